// Makes frames comparable across ranks.
//
// Two threads can be at the same place although their addresses, their libc's inner frames and CPython's call
// machinery differ. The rules:
//     1. A Python frame is identified by function, file and line, a native one by the module's base name and the
//        function, without clone suffixes and symbol versions. Without a function: module+offset; in no module:
//        "anonymous".
//     2. Inner end: the innermost run of frames in opaque modules (C and C++ library, CUDA driver, OpenMP runtime)
//        counts as one frame, namely its outermost one: what the program called (pthread_cond_wait, poll,
//        cuStreamSynchronize). Whether a wait is seen in futex, in its cancellation wrapper or just before it is
//        chance. The same holds for everything inside an MPI_* call: MPI's progress engines spin through dozens of
//        functions.
//     3. A thread between two rounds of a known poll loop equals one inside that loop's timed wait. So does a thread
//        in a handler of an event loop whose handlers never block (gloo's), unless it waits for a lock there.
//     4. CPython's own C frames count only if they are the innermost code and directly above a system call (os_read,
//        lock_PyThread_acquire_lock): the frames between two Python functions depend on how warm the adaptive
//        interpreter is, not on where the program is.
//     5. Outer end: frames that start every thread or program are dropped. They differ only if unwinding ended early.
// A stack that would be left empty is kept frame by frame.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "model/snapshot.h"

namespace rankstacks::analyzers {

using NormId = std::uint32_t;

// The kinds of frames that the rules above distinguish.
enum class FrameClass : std::uint8_t {
  kPython,
  kNative,
  kOpaque,       // C and C++ library, CUDA driver, OpenMP runtime
  kInterpreter,  // CPython's own C code
  kStart,        // starts a thread or the program
};

// Every frame of a job, normalised once. Equal normal forms have equal ids.
class NormalizedFrames {
 public:
  explicit NormalizedFrames(const FrameTable& frames);

  NormId id(FrameId frame) const { return ids_[frame]; }
  FrameClass frame_class(FrameId frame) const { return classes_[frame]; }
  bool is_poll_loop(FrameId frame) const { return poll_loop_[frame]; }
  bool is_event_loop(FrameId frame) const { return event_loop_[frame]; }
  bool is_mpi_call(FrameId frame) const { return mpi_call_[frame]; }

 private:
  std::vector<NormId> ids_;
  std::vector<FrameClass> classes_;
  std::vector<bool> poll_loop_, event_loop_, mpi_call_;
};

// A frame that counts, with its index in ThreadSnapshot::frames and the number of frames between it and the next
// outer one that counts.
struct StackItem {
  NormId norm = 0;
  std::size_t index = 0;
  std::uint32_t hidden = 0;
};

// A thread in a handler of an event loop that does is not between two rounds of it.
bool waits_for_lock(const ThreadSnapshot& thread);

// The frames of a thread that count, innermost first. It depends on its frames and on waits_for_lock() alone.
std::vector<StackItem> normalized_stack(const ThreadSnapshot& thread, const NormalizedFrames& frames);

}  // namespace rankstacks::analyzers
