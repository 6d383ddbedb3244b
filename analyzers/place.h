// Where a thread stands in its program, and what it is blocked in: by its frames, its state and its system call.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "model/snapshot.h"

namespace rankstacks {

// The frame a person looks for first: the innermost Python frame in a file of the user; else the innermost Python frame; else the innermost
// native frame with a name outside of the C library. Nothing: the stack has none.
std::optional<std::size_t> telling_frame(const JobSnapshot& job, const ThreadSnapshot& thread);

// How many frames are the thread's own: in a forked worker (multiprocessing) what stands outside of its _bootstrap is its parent's stack.
std::size_t own_frames(const FrameTable& frames, const ThreadSnapshot& thread);

// What the thread called: the system call where the kernel told, else the C library's function on top of the stack. "": neither.
std::string blocking_call(const JobSnapshot& job, const ThreadSnapshot& thread);
// It sleeps, or waits for a signal, a connection or any of several descriptors.
bool waits_for_events(const JobSnapshot& job, const ThreadSnapshot& thread);
// Of multiprocessing's locks between processes, whose acquire() is no Python code.
bool is_process_lock(const Frame& frame);
// It writes to a pipe or a terminal whose reader takes nothing.
bool writes_output(const ThreadSnapshot& thread);

// "Blocked.__getitem__ at train.py:9"
std::string describe_place(const JobSnapshot& job, const ThreadSnapshot& thread);
// How a thread stands, by its state and system call.
enum class Stand { kUnknown, kStopped, kTraced, kDead, kSleeping, kInCall, kRunning, kUninterruptible };
Stand stand_of(const JobSnapshot& job, const ThreadSnapshot& thread);

// "blocked in read(fd 5 -> pipe:[123])", "sleeping", "running"; "" where nothing is known.
std::string describe_block(const JobSnapshot& job, const ThreadSnapshot& thread);

}  // namespace rankstacks
