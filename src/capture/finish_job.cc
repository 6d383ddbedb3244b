#include "capture/finish_job.h"

#include <algorithm>
#include <fmt/chrono.h>
#include <fmt/format.h>

#include "base/memory_limit.h"
#include "base/workers.h"
#include "model/rank_order.h"

namespace rankstacks {
namespace {

std::string iso_utc(std::chrono::system_clock::time_point t) {
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(t.time_since_epoch()).count();
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:03}Z", fmt::gmtime(static_cast<std::time_t>(ms / 1000)), ms % 1000);
}

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
  rank.snapshot.problems.push_back({error.message(), error.hint.empty() ? std::nullopt : std::optional(error.hint)});
}

void unwind_ranks(std::vector<RankStacks>& ranks, const CaptureOptions& options) {
  const std::size_t of_each = share_of_memory(options.memory, MemoryUse::kFrames) / kBytesOfFrame / std::max<std::size_t>(1, ranks.size());
  const std::size_t most = std::clamp(of_each, kLeastFramesOfRank, kMostFramesOfRank);
  run_side_by_side(ranks.size(), [&](std::size_t i) {
    if (ranks[i].stacks.empty()) unwind_threads(ranks[i], options.unwinder, Deadline::after(ranks[i].time_left), most);
  });
}

FinishedJob finish_job(std::vector<RankStacks> ranks, std::vector<std::vector<RankStacks>> later, const CaptureOptions& options,
                       std::chrono::system_clock::time_point captured_at, std::chrono::steady_clock::time_point started) {
  unwind_ranks(ranks, options);
  for (auto& look : later) unwind_ranks(look, options);

  SymbolBatch symbols;
  for (const RankStacks& rank : ranks) symbols.add(rank);
  for (const auto& look : later)
    for (const RankStacks& rank : look) symbols.add(rank);
  const Symbolizer symbolizer(options.symbols);
  symbols.resolve(symbolizer, options.timeout);

  FinishedJob finished;
  JobSnapshot& job = finished.job;
  job.tool_version = RANKSTACKS_VERSION;
  job.captured_at = iso_utc(captured_at);
  sort_ranks(ranks);
  bool problems_told = false;
  for (RankStacks& rank : ranks) {
    build_threads(rank, symbols, job.frames);
    // A refused debug file concerns the whole job: told once, at the first rank that was read.
    if (!problems_told && rank.target) {
      for (const std::string& p : symbols.problems()) rank.snapshot.problems.push_back({p, std::nullopt});
      problems_told = true;
    }
    job.ranks.push_back(std::move(rank.snapshot));
  }
  for (auto& look : later) {
    std::vector<RankSnapshot>& seen = finished.later.emplace_back();
    for (RankStacks& rank : look) {
      if (!rank.target) continue;
      build_threads(rank, symbols, job.frames);
      seen.push_back(std::move(rank.snapshot));
    }
  }
  job.elapsed_ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - started).count();
  return finished;
}

}  // namespace rankstacks
