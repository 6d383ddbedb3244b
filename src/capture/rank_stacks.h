// From a captured target to its RankSnapshot, in the three steps that let symbols be looked up once for all ranks:
//
//     unwind_threads()   per rank    registers -> return addresses
//     SymbolBatch        per job     every address of every rank, grouped by file, resolved in one pass per file
//     build_threads()    per rank    merge with the Python frames, intern
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

namespace rankstacks {

enum class UnwinderChoice { kAuto, kLibunwind, kLibdwfl };   // kAuto: libunwind, and libdwfl for a thread that it does not finish

// What a thread waits on in a futex call, by what it may be: the threads of the process that are named there; 0: none.
struct FutexMemory {
  Tid mutex_owner = 0;      // if it is a pthread_mutex_t
  Tid rwlock_writer = 0;    // if it is a pthread_rwlock_t
  Tid joined = 0;           // its descriptor is what stands there: pthread_join waits for its end
};

// One rank on its way. Owned by the capture of the job until its snapshot is built.
struct RankStacks {
  std::unique_ptr<Target> target;                       // nullptr: failed; the snapshot says why
  std::set<Tid> lost_stacks;                            // of a core: their absence is among its problems already
  std::optional<python::State> python;
  std::vector<std::optional<SyscallInfo>> syscalls;     // parallel to target->threads()
  std::vector<std::optional<Awaited>> awaited;          // parallel to target->threads()
  std::vector<std::optional<Address>> futexes;          // parallel to target->threads(): what a futex call waits on
  std::vector<std::optional<FutexMemory>> futex_memory; // parallel to target->threads(): what stands there
  std::optional<CxxRuntime> cxx;                        // first look only: where its threads keep C++ exceptions
  std::vector<std::optional<HeldException>> exceptions; // parallel to target->threads(), or empty
  std::vector<UnwoundStack> stacks;                     // parallel to target->threads()
  Deadline::Clock::duration time_left = Deadline::Clock::duration::max();   // of --timeout, after it was read
  RankSnapshot snapshot;                                // identity, problems and times are filled in by the capture
};

// Reads the Python state; a process that is no interpreter has none. Problems go to the snapshot; past the deadline, which is
// `limit`, it is partial.
inline constexpr const char* kTimeoutOption = "--timeout";
void read_python(RankStacks& rank, std::span<const python::RuntimeCandidate> candidates, const Deadline& deadline = Deadline::never(),
                 const char* limit = kTimeoutOption);

void read_syscalls(RankStacks& rank);

// The C++ exceptions that the threads hold, where `cxx` is there. They are shown of threads that terminate alone.
void read_exceptions(RankStacks& rank);

// All stacks of a rank together: 8,192 frames each of 128 threads, in 50 MB. Threads beyond keep their innermost frame.
inline constexpr std::size_t kMaxFramesOfRank = 1u << 20;
// What is kept of one frame, until it stands in the report as JSON; and the frames that each of many ranks may have, whatever the limit of memory.
inline constexpr std::size_t kBytesOfFrame = 512, kLeastFramesOfRank = 4096;
// Those left out of too deep stacks counted too: 16 stacks without an end.
inline constexpr std::size_t kMaxUnwoundOfRank = 16 * kMaxUnwoundFrames;

// Past the deadline threads keep what they have, at least the innermost frame, and the rank is partial.
void unwind_threads(RankStacks& rank, UnwinderChoice choice, const Deadline& deadline = Deadline::never(), std::size_t most_frames = kMaxFramesOfRank);

// All addresses of all ranks by file. A file is known by its build-id where it has one, so that copies of one library count once.
class SymbolBatch {
 public:
  void add(const RankStacks& rank);
  // Files in parallel, each with this much time.
  void resolve(const std::shared_ptr<const Symbolizer>& symbolizer, Deadline::Clock::duration timeout = Deadline::Clock::duration::max());
  bool gave_up(const Module& module) const;             // its file took longer
  // Locations of the address in the module's image; nullptr: it was not asked for, or the module has no image.
  const std::vector<SourceLocation>* find(const Module& module, Vaddr vaddr) const;
  const std::vector<std::string>& problems() const { return problems_; }

 private:
  struct File {
    std::shared_ptr<const elf::Image> image;
    std::vector<Vaddr> addresses;
    SymbolizedImage symbols;
  };
  static std::string key(const elf::Image& image);

  std::map<std::string, File> files_;
  std::unordered_map<const elf::Image*, File*> by_image_;   // of the ranks' targets, which outlive the batch; values in files_
  std::vector<std::string> problems_;
};

// Fills snapshot.threads, python_version, status.
void build_threads(RankStacks& rank, const SymbolBatch& symbols, FrameTable& frames);

}  // namespace rankstacks
