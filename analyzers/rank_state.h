// The state of each rank: what its threads and its children do, how it moves, and which ranks it waits for.
// rank_state.cc has the steps that determine it; most of them have their own file:
//
//     training_threads.h   jobs that train in a thread other than the main thread
//     message_threads.h    other threads that were to send what another rank waits for
//     lost_threads.h       threads that have ended, and that the rank waits for
//     children.h           what the processes that a rank has started show about it
//     own_threads.h        ranks whose main thread only waits for other threads of its process
//     peer_waits.h         waits for another rank outside of any known library
//     accept_waits.h       waits for the connection of another rank
//     native_waits.h       waits for another thread in the C library's calls
//     progress.h           how the rank moves between several samples
//     gpu_waits.h          what runs on its GPUs
//
// Ranks that do not exist or have crashed: gone_ranks.h.
#pragma once

#include <cstdint>

#include <optional>
#include <string>
#include <vector>

#include "analyzers/activity.h"
#include "analyzers/gpu_state.h"
#include "analyzers/timed_out_work.h"

namespace rankstacks::analyzers {

// How a rank moves between several samples.
enum class Progress {
  kUnknown,  // it was sampled once
  kStill,    // it did not run at all
  kRuns,     // it ran, at the same place: a timed wait, a spin, or a step that looks the same in every sample
  kMoves,    // its place or a counter has changed
};

// A line of the program, and the loop counters at that line.
struct CodePlace {
  std::string function, file;
  int line = -1;
  std::vector<std::pair<std::string, std::int64_t>> numbers;
  int loops = 0;           // FrameVariables::loops
  bool is_python = false;  // of native code no loop is known
};

struct RankState {
  std::size_t rank = 0;    // index into JobSnapshot::ranks
  bool unrelated = false;  // a process that is not a rank of the job; it is in no comparison
  bool readable = false;   // it has a main thread whose frames or state are known
  bool ended = false;      // its process is a zombie, or does not exist any more
  Doing doing;
  // Waits for its GPU in a process with NCCL's threads: the kernel may be a collective's.
  bool gpu_wait_may_be_collective = false;
  std::optional<std::size_t> known_from_child;  // index of the child that shows more than the rank's own stack
  std::size_t child_thread = 0;
  std::optional<std::size_t> dead_child;  // index of a child that is a zombie or dead
  // It waits for a thread of its own that has ended, and which the other ranks have: "prefetch of data.py".
  std::string lost_thread;
  bool lost_trainer = false;  // or it was the one that trained, and the main thread goes on to serve requests
  // Its main thread is where those of other ranks are, and doing.thread is the one that decides: the one that trains,
  // or that was to send a message.
  bool by_own_thread = false;
  // Index of the child process that the rank waits for, if only one can be meant.
  std::optional<std::size_t> child;
  // A child process that holds a lock for which another rank waits, while this rank waits for ranks itself: what the
  // child does is what keeps them.
  std::optional<std::size_t> holds_by_child;
  // Of a rank that waits for child processes: those that it may wait for, and that are alive.
  std::vector<std::size_t> awaited_children;
  // It reads the output of a child that has ended: some process that this child has left behind has that output open.
  bool reads_after_end = false;
  bool inferred = false;  // the wait is concluded from the other ranks, not from its frames
  Progress progress = Progress::kUnknown;
  // A loop counter of the rank, or of its worker that decides, increased between the samples.
  bool counts = false;
  bool left_wait = false;  // Motion::left_wait of its main thread
  bool travels = false;    // Motion::travelled, of it or that worker
  // It waits for requests from outside of the job: in the event loop of a server, or for its child that is in one.
  bool serves = false;
  bool has_server = false;  // a thread of its own, other than doing.thread, is in the event loop of a server
  // doing.thread runs a call that another rank has made to it, and waits for.
  bool answers_call = false;
  bool in_one_function = false;  // Motion::in_one_function, of the thread that decides
  GpuState gpu;                  // what runs on its GPUs
  // Its GPUs did not answer; `gpu` is that of the ranks that are at its very place.
  bool gpu_assumed = false;
  bool known_from_gpu = false;  // its GPUs' kernels show whether it waits for other ranks (gpu_waits.h)
  bool named_by_gpu = false;    // and in which operation: doing.operation is the kernel's
  // Its collective's kernel has another grid or variant than that of another rank: "1 block of 128",
  // "Sum f32 RING SIMPLE, 1 block of 128". Else empty.
  std::string launched_otherwise;
  bool known_from_utilization = false;  // its GPU is at rest, which is its only difference from the others
  bool known_from_power = false;        // its GPU computes, which is its only difference from the others
  // Its GPUs compute, as opposed to a kernel that only polls (gpu_waits.h, find_computing_gpus).
  std::optional<bool> gpu_computes;
  // Not readable, but what ran on its GPUs is known: a GPU core without its process's core.
  bool gpu_only = false;
  // Not readable, but its calls are known: a dump of its Flight Recorder without its stacks. `recorded` is what it
  // waits in; "": nothing that it has called has not ended, or several things have not.
  bool recorded_only = false;
  // The rank, or its worker that decides, was on a processor for a good part of the samples.
  bool busy = false;
  std::optional<ProcessGroup> group;  // if it waits for ranks: the process group of the wait
  std::optional<int> peer;            // if it sends or receives: the other rank
  std::optional<int> tag;             // of that message
  std::optional<int> root;            // of a broadcast, a reduce, a gather, a scatter: the rank that has or gets it all
  // If it waits at a pipe, socket or lock: the rank at the other end, an index into JobSnapshot::ranks.
  std::optional<std::size_t> peer_process;
  // If it waits for its GPU, or is recorded_only: the operation that its Flight Recorder names, "all_reduce, number 9
  // of group 0".
  std::string recorded;
  // If it waits for its GPU: the collective of which its watchdog says that it has not ended.
  std::optional<TimedOutWork> timed_out;
  std::vector<CodePlace> path;  // the main thread's path through the user's code, outermost first

  // In a collective, by its stacks or, where it waits for its GPU, by its Flight Recorder.
  bool in_collective() const {
    return doing.activity == known::Activity::kCollective || (gpu_wait_may_be_collective && !recorded.empty());
  }
  // Waits for other ranks, as far as this can be determined.
  bool waits() const { return known::waits_for_ranks(doing.activity) || gpu_wait_may_be_collective; }
  bool unknown() const {
    return !readable || doing.activity == known::Activity::kUnknown || doing.activity == known::Activity::kAutograd ||
           in_driver();
  }
  bool in_driver() const { return readable && doing.activity == known::Activity::kDriverCall; }
  bool elsewhere() const { return !waits() && !unknown(); }
  // Several samples were taken; between two of them a wait ended, or something else of the rank changed.
  bool moves() const { return progress == Progress::kMoves; }
  // It was seen to do something between the samples.
  bool active() const { return progress == Progress::kMoves || busy; }
};

// One for each rank (children excluded), in the order of the snapshot.
std::vector<RankState> states_of(const JobSnapshot& job, const std::vector<std::vector<known::Role>>& roles,
                                 const std::vector<Cluster>& clusters, const Families& families);

// Whether it is a process without a rank for which the ranks of a server work, or that takes on what they make, by its
// title.
bool directs_ranks(const RankSnapshot& rank);

// The collective that the watchdogs of all ranks that wait name; std::nullopt if there is none.
std::optional<TimedOutWork> common_work(const std::vector<RankState>& states);

// The reason of a suspect in this state; kNone if it is none that can be blamed.
Reason reason_for(const RankState& state);

// The thread by which a rank is compared with the others; nullptr if it has no main thread.
const ThreadSnapshot* leading_thread(const JobSnapshot& job, const RankState& state);

// Two ranks with equal keys wait in the same operation, called from the same place: all Python frames in the user's
// files, with their lines, are equal.
std::string place_key(const JobSnapshot& job, const RankState& state);

}  // namespace rankstacks::analyzers
