#include "capture/finish_job.h"

#include <fmt/format.h>
#include <algorithm>
#include <chrono>
#include <memory>

#include "base/memory_limit.h"
#include "base/unattended.h"
#include "capture/build_threads.h"
#include "capture/rank_versions.h"
#include "model/captured_at.h"
#include "model/rank_order.h"

namespace rankstacks::capture {
namespace {

void sort_ranks(std::vector<RankStacks>& ranks) {
  std::vector<const RankSnapshot*> snapshots;
  for (const RankStacks& rank : ranks) snapshots.push_back(&rank.snapshot);
  std::vector<RankStacks> sorted;
  sorted.reserve(ranks.size());
  for (const std::size_t i : rank_order(snapshots)) sorted.push_back(std::move(ranks[i]));
  ranks = std::move(sorted);
}

}  // namespace

void fail_rank(RankStacks& rank, const Error& error) {
  rank.target.reset();
  rank.snapshot.status = Status::kFailed;
  rank.snapshot.threads.clear();
  rank.snapshot.problems.push_back(problem_of(error));
}

void unwind_ranks(std::vector<RankStacks>& ranks, const CaptureOptions& options) {
  const std::size_t of_each =
      share_of_memory(options.memory, MemoryUse::kFrames) / kBytesOfFrame / std::max<std::size_t>(1, ranks.size());
  const std::size_t most = std::clamp(of_each, kLeastFramesOfRank, kMaxFramesOfRank);
  std::vector<std::size_t> unread;
  for (std::size_t i = 0; i < ranks.size(); ++i)
    if (ranks[i].target && ranks[i].stacks.empty()) unread.push_back(i);
  // Unwind tables are read from mapped files: a worker that reads them may never come back.
  const auto work = std::make_shared<std::vector<RankStacks>>(unread.size());
  std::vector<RankSnapshot> identities;
  auto limit = Deadline::Clock::duration::zero();
  for (std::size_t n = 0; n < unread.size(); ++n) {
    RankStacks& rank = ranks[unread[n]];
    identities.push_back(rank.snapshot);
    limit = std::max(limit, rank.time_left);
    (*work)[n] = std::move(rank);
    rank = RankStacks();
  }
  // The walk checks the deadline itself, and returns what it has so far; while it waits for a file, it does not return
  // by itself.
  const auto outcomes = Unattended{[work, most, choice = options.unwinder](std::size_t n) {
                                     RankStacks& rank = (*work)[n];
                                     unwind_threads(rank, choice, Deadline::after(rank.time_left), most);
                                   },
                                   Unattended::beyond(limit)}
                            .run(unread.size());
  for (std::size_t n = 0; n < unread.size(); ++n) {
    RankStacks& rank = ranks[unread[n]];
    if (outcomes[n].came_back) {
      rank = std::move((*work)[n]);
      continue;
    }
    rank.snapshot = std::move(identities[n]);
    fail_rank(rank, {.code = ErrorCode::kTimeout,
                     .subject = rank.snapshot.path.value_or(fmt::format("pid {}", rank.snapshot.pid)),
                     .what = "unwinding was given up: a file that it needs for that does not answer",
                     .hint = "the server of a file system (NFS, FUSE) that it has files of is gone or slow; give it "
                             "more time with --timeout"});
  }
}

FinishedJob finish_job(std::vector<RankStacks> ranks, std::vector<std::vector<RankStacks>> later,
                       const CaptureOptions& options, std::chrono::system_clock::time_point captured_at,
                       std::chrono::steady_clock::time_point started) {
  unwind_ranks(ranks, options);
  for (auto& sample : later) unwind_ranks(sample, options);

  SymbolBatch symbols;
  for (const RankStacks& rank : ranks) symbols.add(rank);
  for (const auto& sample : later)
    for (const RankStacks& rank : sample) symbols.add(rank);
  symbols.resolve(std::make_shared<const symbolizers::Symbolizer>(options.symbols), options.timeout);

  FinishedJob finished;
  JobSnapshot& job = finished.job;
  job.tool_version = RANKSTACKS_VERSION;
  job.captured_at = captured_at_text(captured_at);
  sort_ranks(ranks);
  bool problems_added = false;
  for (RankStacks& rank : ranks) {
    build_threads(rank, symbols, job.frames);
    set_python_version(rank.snapshot);
    // A refused debug file concerns the whole job: it is reported once, at the first rank that was read.
    if (!problems_added && rank.target) {
      for (const std::string& p : symbols.problems()) rank.snapshot.problems.push_back({p, std::nullopt});
      problems_added = true;
    }
    job.ranks.push_back(std::move(rank.snapshot));
  }
  for (auto& sample : later) {
    std::vector<RankSnapshot>& seen = finished.later.emplace_back();
    for (RankStacks& rank : sample) {
      if (!rank.target) continue;
      build_threads(rank, symbols, job.frames);
      seen.push_back(std::move(rank.snapshot));
    }
  }
  job.elapsed_ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - started).count();
  return finished;
}

}  // namespace rankstacks::capture
