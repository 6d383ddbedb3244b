#include "analyzers/progress.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "analyzers/blocking_calls.h"
#include "analyzers/gpu_motion.h"
#include "analyzers/launches.h"
#include "analyzers/own_threads.h"
#include "analyzers/roles.h"
#include "base/text.h"

namespace rankstacks::analyzers {
namespace {

// In a hang gloo's threads sleep, and so does the thread that waits for them, without using a microsecond of processor
// time: if both ran, messages arrived. NCCL's and MPI's threads run whether or not there is progress, and a store is
// polled. (In JAX the thread that waits is one of XLA's. Its main thread looks for signals every 200 ms, and its gloo
// looks for messages every 10 ms.)
//
// A thread that carries out collectives for the one that waits is at another place when one of them has ended. Steps
// may take longer than the time between two samples, so that once is enough: in a hang the thread that waits, which is
// woken by the end of its collective alone, does not run.
bool gloo_moves(const JobSnapshot& job, const RankSnapshot& rank, const std::vector<known::Role>& roles,
                const ThreadSnapshot& waiting) {
  if (!waiting.motion || waiting.motion->runs == 0 || is_busy(waiting)) return false;
  const bool waits_for_gloo = std::any_of(waiting.frames.begin(), waiting.frames.end(), [&](FrameId id) {
    const Frame& frame = job.frames[id];
    return frame.kind == FrameKind::kNative && frame.function &&
           (contains(*frame.function, "gloo::") || contains(*frame.function, "c10d::"));
  });
  if (!waits_for_gloo) return false;
  for (std::size_t t = 0; t < rank.threads.size(); ++t) {
    const auto& motion = rank.threads[t].motion;
    if (!motion) continue;
    if (roles[t] == known::Role::kGlooWorker && motion->left_wait) return true;
    if (roles[t] == known::Role::kGlooLoop && motion->runs >= motion->samples &&
        waiting.motion->runs >= waiting.motion->samples)
      return true;
  }
  return false;
}

// A read from a pipe or a socket returns when something has arrived, and not before: a thread that was on a processor
// again and again, and is in such a read each time, has got what it waited for, and waits for more.
bool receives(const ThreadSnapshot& waiting) {
  constexpr std::array<std::string_view, 5> kReads = {"read", "readv", "recvfrom", "recvmsg", "recvmmsg"};
  return waiting.motion && waiting.motion->places == 1 && waiting.syscall && !waiting.syscall->others.empty() &&
         waiting.motion->runs >= 2 * waiting.motion->samples && is_one_of(waiting.syscall->name, kReads);
}

// Its main thread waits on a condition for what other threads receive from other ranks (receiving_threads.h), and both
// ran again and again: messages have arrived.
bool gets_messages(const RankSnapshot& rank, const RankState& state) {
  const ThreadSnapshot& main = rank.threads[state.doing.thread];
  if (state.inferred || !main.syscall || main.syscall->name != "futex" || !main.motion ||
      main.motion->runs < 2 * main.motion->samples)
    return false;
  return std::any_of(rank.threads.begin(), rank.threads.end(), receives);
}

// The process has no thread at work but the one that waits, and others of its pool for OpenMP's parallel regions, which
// sleep between two of them, were woken again and again: that thread has left its wait, and come back to it.
bool wakes_its_pool(const JobSnapshot& job, const RankSnapshot& rank, const std::vector<known::Role>& roles,
                    std::size_t waiting) {
  bool woken = false;
  for (std::size_t t = 0; t < rank.threads.size(); ++t) {
    const ThreadSnapshot& thread = rank.threads[t];
    if (t == waiting) continue;
    if (roles[t] != known::Role::kOpenmp) {
      if (!is_idle(job, thread, roles[t])) return false;
      continue;
    }
    woken |= thread.state == 'S' && thread.motion && thread.motion->samples > 1 && !is_busy(thread) &&
             thread.motion->runs >= 2 * thread.motion->samples;
  }
  return woken;
}

// Now and then a thread that a sample has stopped returns to its wait so late that this is counted as a run between
// the samples.
bool ran_by_itself(const Motion& motion) {
  constexpr std::int64_t kSamplesPerLateReturn = 4;
  return motion.runs > 0 && motion.runs * kSamplesPerLateReturn >= motion.samples;
}

}  // namespace

bool is_busy(const ThreadSnapshot& thread) {
  constexpr double kShare = 0.2, kShareIfReady = 0.05;
  constexpr double kMsOfPoll = 0.5;  // a thread that polls runs for less at a time
  if (!thread.motion || thread.motion->span_ms <= 0) return false;
  const Motion& motion = *thread.motion;
  const bool waits_for_processor = thread.state == 'R' && motion.cpu_ms >= kMsOfPoll * static_cast<double>(motion.runs);
  return motion.cpu_ms >= (waits_for_processor ? kShareIfReady : kShare) * motion.span_ms;
}

void find_progress(const JobSnapshot& job, const std::vector<std::vector<known::Role>>& roles, RankState& state) {
  const RankSnapshot& rank = job.ranks[state.rank];
  const ThreadSnapshot* main = leading_thread(job, state);
  if (main == nullptr || !main->motion || main->motion->samples < 2) return;
  const ThreadSnapshot& deciding = rank.threads[state.doing.thread];
  std::vector<const ThreadSnapshot*> threads = {main};
  if (&deciding != main && deciding.motion) threads.push_back(&deciding);
  // Who waits for a worker asks after it now and then, which is no progress.
  bool asks_after_worker = false;
  if (state.known_from_child) {
    const std::size_t worker = *state.known_from_child;
    for (std::size_t t = 0; t < job.ranks[worker].threads.size(); ++t)
      if (roles[worker][t] == known::Role::kDataLoader && job.ranks[worker].threads[t].motion) {
        threads.push_back(&job.ranks[worker].threads[t]);
        asks_after_worker = true;
      }
  }
  // What it waits for works, as far as that is seen: a compiler, a script.
  for (const std::size_t c : state.awaited_children)
    for (const ThreadSnapshot& thread : job.ranks[c].threads)
      if (thread.tid == job.ranks[c].pid && thread.motion && is_busy(thread)) threads.push_back(&thread);
  if (!state.doing.by_frame && waits_for_own_threads(job, *main))
    for (std::size_t t = 0; t < rank.threads.size(); ++t) {
      const known::Role role = roles[state.rank][t];
      const auto& motion = rank.threads[t].motion;
      if ((role == known::Role::kNative || role == known::Role::kPython) && motion && motion->moved && !state.inferred)
        threads.push_back(&rank.threads[t]);
    }
  state.left_wait = main->motion->left_wait;
  state.in_one_function = deciding.motion && deciding.motion->in_one_function;
  state.progress = Progress::kStill;
  for (const ThreadSnapshot* thread : threads) {
    const Motion& motion = *thread->motion;
    if ((motion.moved && !state.inferred) || motion.counted) state.progress = Progress::kMoves;
    else if (ran_by_itself(motion) && !(asks_after_worker && thread == main) && state.progress == Progress::kStill)
      state.progress = Progress::kRuns;
    state.busy |= is_busy(*thread);
    state.counts |= motion.counted;
    state.travels |= motion.travelled;
  }
  // In two dumps a thread that goes around a loop may stand at the same place: nothing is known of the time in between.
  if (rank.source == Source::kDump && state.progress != Progress::kMoves) state.progress = Progress::kUnknown;
  if (gpus_go_on(rank) || launches_go_on(job, rank)) state.progress = Progress::kMoves;
  if (state.waits() && state.doing.activity != known::Activity::kStoreWait &&
      gloo_moves(job, rank, roles[state.rank], deciding))
    state.progress = Progress::kMoves;
  if (state.waits() && wakes_its_pool(job, rank, roles[state.rank], state.doing.thread))
    state.progress = Progress::kMoves;
  if (state.doing.activity == known::Activity::kPeerWait && (receives(deciding) || gets_messages(rank, state)))
    state.progress = Progress::kMoves;
  // What it reads comes, from a store that is slow.
  const bool reads =
      state.doing.activity == known::Activity::kFileIo || state.doing.activity == known::Activity::kNetworkIo;
  if (reads && !state.inferred && receives(deciding)) {
    state.progress = Progress::kMoves;
    state.left_wait = true;
  }
}

}  // namespace rankstacks::analyzers
