// Turns a captured target into its RankSnapshot, in three steps, so that symbols are looked up once for all ranks:
//
//     unwind_threads()   per rank    finds the return addresses, from the registers
//     SymbolBatch        per job     resolves all addresses of all ranks, in one pass per file
//     build_threads()    per rank    merges the native and the Python frames, and interns them
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <unordered_map>
#include <vector>

#include "base/deadline.h"
#include "model/snapshot.h"
#include "python/python.h"
#include "symbolizers/symbolizer.h"
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
  Tid mutex_owner = 0;    // if it is a pthread_mutex_t
  Tid rwlock_writer = 0;  // if it is a pthread_rwlock_t
  Tid joined = 0;         // if it is the tid in a thread's descriptor: pthread_join waits for the end of that thread
};

// One rank while it is being captured. Owned by the capture of the job until its snapshot is built.
struct RankStacks {
  std::unique_ptr<target::Target> target;  // nullptr: failed; the snapshot says why
  std::set<Tid> lost_stacks;               // of a core: threads whose missing stacks are already among its problems
  std::optional<python::State> python;
  std::vector<std::optional<SyscallInfo>> syscalls;     // parallel to target->threads()
  std::vector<std::optional<target::Awaited>> awaited;  // parallel to target->threads()
  // Parallel to target->threads(): the address that a futex call waits on.
  std::vector<std::optional<Address>> futexes;
  std::vector<std::optional<FutexMemory>> futex_memory;  // parallel to target->threads(): the memory there
  std::optional<target::CxxRuntime> cxx;                 // first sample only: where its threads keep C++ exceptions
  std::vector<std::optional<target::HeldException>> exceptions;  // parallel to target->threads(), or empty
  std::vector<unwind::UnwoundStack> stacks;                      // parallel to target->threads()
  // What is left of --timeout after the rank was read.
  Deadline::Clock::duration time_left = Deadline::Clock::duration::max();
  RankSnapshot snapshot;  // identity, problems and times are filled in by the capture
};

inline constexpr const char* kTimeoutOption = "--timeout";
// Reads the Python state, if the process is an interpreter. Problems are added to the snapshot. If the deadline passes,
// the rank is partial, and the problem says which limit that was: `limit`.
void read_python(RankStacks& rank, std::span<const python::RuntimeCandidate> candidates,
                 const Deadline& deadline = Deadline::never(), const char* limit = kTimeoutOption);

void read_syscalls(RankStacks& rank);

// Reads the C++ exceptions that the threads hold, if `cxx` is set. They are only shown for threads that are terminating
// the process.
void read_exceptions(RankStacks& rank);

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

// All addresses of all ranks, by file. A file is identified by its build-id if it has one, so that copies of one
// library count once.
class SymbolBatch {
 public:
  void add(const RankStacks& rank);
  // Resolves the files in parallel, each with this much time.
  void resolve(const std::shared_ptr<const symbolizers::Symbolizer>& symbolizer,
               Deadline::Clock::duration timeout = Deadline::Clock::duration::max());
  bool gave_up(const target::Module& module) const;  // whether the lookup in its file took too long
  // The locations of the address in the module's image; nullptr if it was not added, or if the module has no image.
  const std::vector<symbolizers::SourceLocation>* find(const target::Module& module, Vaddr vaddr) const;
  const std::vector<std::string>& problems() const { return problems_; }

 private:
  struct File {
    std::shared_ptr<const elf::Image> image;
    std::vector<Vaddr> addresses;
    symbolizers::SymbolizedImage symbols;
  };
  static std::string key(const elf::Image& image);

  std::map<std::string, File> files_;
  // Keys: images of the ranks' targets, which outlive the batch. Values: entries of files_.
  std::unordered_map<const elf::Image*, File*> by_image_;
  std::vector<std::string> problems_;
};

// Fills in snapshot.threads, python_version and status.
void build_threads(RankStacks& rank, const SymbolBatch& symbols, FrameTable& frames);

}  // namespace rankstacks::capture
