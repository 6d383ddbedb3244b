// Where each rank stands: what its threads and its children do, how it moves, whom it waits for. rank_state.cc has the steps in which that is found; most have a file of their own:
//
//   training_threads.h   jobs that train in a thread of their own
//   children.h           what the processes that a rank has started tell of it
//   own_threads.h        ranks whose main thread only waits for the threads of its own process
//   peer_waits.h         waits for another rank in no library that is known
//   progress.h               how it moves between several samples
//   gpu_waits.h          what runs on its GPUs
//
// Who is not there at all, and who has crashed: gone_ranks.h.
#pragma once

#include <cstdint>

#include <optional>
#include <string>
#include <vector>

#include "analyzers/activity.h"
#include "analyzers/gpu_state.h"

namespace rankstacks {

// How a rank moves between several samples.
enum class Progress {
  kUnknown,   // it was looked at once
  kStill,     // it did not run at all
  kRuns,      // it ran, at the same place: a timed wait, a spin, or a step that always looks alike
  kMoves,     // its place or a counter has changed
};

// A line of the program, and its loop counters there.
struct CodePlace {
  std::string function, file;
  int line = -1;
  std::vector<std::pair<std::string, std::int64_t>> numbers;
  int loops = 0;                         // FrameVariables::loops
};

struct RankState {
  std::size_t rank = 0;                  // index into JobSnapshot::ranks
  bool unrelated = false;                 // a process that is no rank of the job: it is in no comparison
  bool readable = false;                 // it has a main thread with frames or a state that tells
  bool ended = false;                    // its process is a zombie, or not there any more
  Doing doing;
  bool gpu_wait_may_be_collective = false;   // waits for its GPU in a process with NCCL's threads: the kernel may be a collective's
  std::optional<std::size_t> known_from_child;  // index of the child that tells more than the rank's own stack
  std::size_t child_thread = 0;
  std::optional<std::size_t> dead_child;     // index of a child that is a zombie or dead
  bool by_own_thread = false;                // its main thread stands by, as the others' do, and doing.thread is the one that trains
  std::optional<std::size_t> child;          // of a rank that waits for a child process: the one, where only one may be meant
  bool inferred = false;                     // that it waits is concluded from the others, not from its frames
  Progress progress = Progress::kUnknown;
  bool counts = false;                       // a loop counter of it, or of the worker that tells for it, has gone on between the samples
  bool left_wait = false;                    // Motion::left_wait of its main thread
  bool travels = false;                      // Motion::travelled, of it or that worker
  GpuState gpu;                              // what runs on its GPUs
  bool known_from_gpu = false;                  // whether it waits for other ranks, its GPUs' kernels tell (gpu_waits.h)
  bool named_by_gpu = false;                 // and in what: doing.operation is the kernel's
  bool known_from_utilization = false;          // its GPU is at rest, and that alone tells it from the others
  bool gpu_only = false;                     // not readable, but what ran on its GPUs is known: a GPU core without its process's
  bool busy = false;                         // it, or the worker that tells for it, was on a processor for a good part of the samples
  std::optional<ProcessGroup> group;         // of a wait for ranks: the group it is for
  std::optional<int> peer;                   // of a send or receive: the other rank
  std::optional<std::size_t> peer_process;   // of a wait in a pipe, socket or lock: the rank at its other end, an index into JobSnapshot::ranks
  std::vector<CodePlace> path;               // the main thread's way through the user's code, outermost first

  // Waits for other ranks, as far as can be told.
  bool waits() const { return waits_for_ranks(doing.activity) || gpu_wait_may_be_collective; }
  bool unknown() const { return !readable || doing.activity == Activity::kUnknown || doing.activity == Activity::kAutograd; }
  bool elsewhere() const { return !waits() && !unknown(); }
  // Several looks were taken, and a wait ended between two of them, or something else of it changed.
  bool moves() const { return progress == Progress::kMoves; }
  // It was seen to do something between the samples.
  bool active() const { return progress == Progress::kMoves || busy; }
};

// One for each rank (children excluded), in the order of the snapshot.
std::vector<RankState> states_of(const JobSnapshot& job, const std::vector<std::vector<Role>>& roles, const std::vector<Cluster>& clusters);

// The thread by which a rank is compared with the others; null: it has no main thread.
const ThreadSnapshot* leading_thread(const JobSnapshot& job, const RankState& state);

// Two ranks with equal keys wait in the same operation, called at the same place: all Python frames of the user's files, with their lines.
std::string place_key(const JobSnapshot& job, const RankState& state);

}  // namespace rankstacks
