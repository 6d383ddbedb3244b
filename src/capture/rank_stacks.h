// Turns a captured target into its RankSnapshot, in three steps, so that symbols are looked up once for all ranks:
//
//     unwind_threads()   per rank    here             finds the return addresses, from the registers
//     SymbolBatch        per job     symbol_batch.h   resolves all addresses of all ranks, in one pass per file
//     build_threads()    per rank    build_threads.h  merges the native and the Python frames, and interns them
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "base/deadline.h"
#include "capture/rank_problems.h"
#include "flight_recorder/memory.h"
#include "model/snapshot.h"
#include "python/python.h"
#include "small_core/recording.h"
#include "small_core/symbol_note.h"
#include "target/abort_message.h"
#include "target/awaited.h"
#include "target/cxx_exceptions.h"
#include "target/target.h"
#include "unwind/unwinder.h"

namespace rankstacks::capture {

// kAuto: libunwind, and libdwfl for a thread whose stack libunwind cannot finish.
enum class UnwinderChoice { kAuto, kLibunwind, kLibdwfl };

// The memory that a futex call waits on, interpreted as each of the possible types: the threads of the process that it
// names; 0: none.
struct FutexMemory {
  Tid mutex_owner = 0;    // if it is a pthread_mutex_t; may have ended
  Tid rwlock_writer = 0;  // if it is a pthread_rwlock_t
  Tid joined = 0;         // if it is the tid in a thread's descriptor: pthread_join waits for the end of that thread
};

// One rank while it is being captured. Owned by the capture of the job until its snapshot is built.
struct RankStacks {
  std::unique_ptr<small_core::Recording> recording;  // set if a small core is to be made; outlives the target
  std::unique_ptr<target::Target> target;            // nullptr: failed; the snapshot says why
  std::set<Tid> lost_stacks;  // of a core: threads whose missing stacks are already among its problems
  // Of a capture: what it notes of stacks and symbols, for where the files of its modules are missing.
  std::map<Tid, unwind::UnwoundStack> noted_stacks;
  small_core::NotedSymbols noted_symbols;
  std::optional<python::State> python;
  std::vector<std::optional<SyscallInfo>> syscalls;     // parallel to target->threads()
  std::vector<std::optional<target::Awaited>> awaited;  // parallel to target->threads()
  // Parallel to target->threads(): the address that a futex call waits on.
  std::vector<std::optional<Address>> futexes;
  std::vector<std::optional<FutexMemory>> futex_memory;   // parallel to target->threads(): the memory there
  std::optional<target::CxxRuntime> cxx;                  // first sample only: where its threads keep C++ exceptions
  std::vector<flight_recorder::RecorderPlace> recorders;  // PyTorch's Flight Recorders
  std::vector<Address> abort_messages;  // first sample only: where its C libraries keep the address of their last words
  target::HeldExceptions exceptions;    // parallel to target->threads(), or empty
  std::vector<unwind::UnwoundStack> stacks;  // parallel to target->threads()
  // Live: the snapshot's problems before its process was read, which may have to be done more than once.
  std::optional<std::vector<Problem>> problems_before;
  // What is left of --timeout after the rank was read.
  Deadline::Clock::duration time_left = Deadline::Clock::duration::max();
  RankSnapshot snapshot;  // identity, problems and times are filled in by the capture
};

// Reads the Python state, if the process is an interpreter. Problems are added to the snapshot. If the deadline passes,
// the rank is partial, and the problem says which limit that was: `limit`. `locals`: CaptureOptions::locals.
void read_python(RankStacks& rank, std::span<const python::RuntimeCandidate> candidates, std::size_t locals,
                 const Deadline& deadline = Deadline::never(), const char* limit = kTimeoutOption);

void read_syscalls(RankStacks& rank);

// Drops what was read of threads whose registers turned out to be of another moment: the target has none of them any
// more.
void drop_moved(RankStacks& rank);

// Reads the C++ exceptions that the threads hold, if `cxx` is set.
void read_exceptions(RankStacks& rank);

// Reads PyTorch's Flight Recorders from the target's memory.
void read_recorders(RankStacks& rank);

// Reads what the C library said before it aborted the process, from `abort_messages`.
void read_abort_message(RankStacks& rank);

// The limit for all stacks of a rank together: 8,192 frames for each of 128 threads, in 50 MB. Further threads keep
// their innermost frame.
inline constexpr std::size_t kMaxFramesOfRank = 1u << 20;
// Memory used for one frame until the report is written as JSON; and the number of frames that each rank of a large job
// may have, whatever the memory limit.
inline constexpr std::size_t kBytesOfFrame = 512, kLeastFramesOfRank = 4096;
// The same limit including frames left out of very deep stacks: 16 endless stacks.
inline constexpr std::size_t kMaxUnwoundOfRank = 16 * unwind::kMaxUnwoundFrames;

// When the deadline passes, threads keep the frames found so far, at least the innermost one, and the rank is partial.
void unwind_threads(RankStacks& rank, UnwinderChoice choice, const Deadline& deadline = Deadline::never(),
                    std::size_t most_frames = kMaxFramesOfRank);

}  // namespace rankstacks::capture
