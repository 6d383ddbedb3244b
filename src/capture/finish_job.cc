#include "capture/finish_job.h"

#include <fmt/format.h>
#include <algorithm>
#include <chrono>
#include <memory>
#include <set>

#include "base/background.h"
#include "base/memory_limit.h"
#include "base/unattended.h"
#include "capture/build_threads.h"
#include "capture/handled_faults.h"
#include "capture/rank_versions.h"
#include "model/captured_at.h"
#include "model/rank_order.h"
#include "small_core/interpreter_note.h"

namespace rankstacks::capture {
namespace {

// Of the tool's memory, for what small cores hold.
constexpr std::size_t kShareOfKept = 8;

// The symbols that a small core notes: all of its frames; without --with-symbols those of the interpreters, by which
// Python's frames are recognised among the native ones up to 3.9.
small_core::NotedSymbols symbols_to_note(const RankStacks& rank, const SymbolBatch& symbols, bool all) {
  std::set<std::string> interpreters;
  for (const auto& candidate : small_core::read_interpreters(rank.recording->kept().interpreters))
    interpreters.insert(candidate.module);
  small_core::NotedSymbols noted;
  for (const unwind::UnwoundStack& stack : rank.stacks)
    for (const unwind::UnwoundFrame& frame : stack.frames) {
      const target::Module* module = rank.target->modules().find(frame.lookup_pc());
      if (module == nullptr || !module->image || (!all && !interpreters.contains(module->path))) continue;
      const Vaddr vaddr = module->to_vaddr(frame.lookup_pc());
      const auto* locations = symbols.find(*module, vaddr);
      if (locations != nullptr && !locations->empty())
        noted[small_core::symbol_key(*module)].try_emplace(vaddr, *locations);
    }
  return noted;
}

// Hands over what was recorded of the ranks, which have their stacks and symbols now.
void hand_over(std::vector<RankStacks>& ranks, const SymbolBatch& symbols, small_core::KeptJobs& kept,
               const std::string& captured_at) {
  std::vector<small_core::KeptProcess> processes;
  for (RankStacks& rank : ranks) {
    if (!rank.target || !rank.recording) continue;
    small_core::KeptProcess& process = rank.recording->kept();
    process.symbols = small_core::write_symbols(symbols_to_note(rank, symbols, kept.with_symbols()));
    process.has_all_symbols = kept.with_symbols();
    processes.push_back(std::move(process));
  }
  kept.add(captured_at, std::move(processes));
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
  const std::uint64_t kept = std::min<std::uint64_t>(
      small_core::Recording::kMaxBytes, options.memory / kShareOfKept / std::max<std::size_t>(1, ranks.size()));
  const auto outcomes = Unattended{[work, most, kept, choice = options.unwinder](std::size_t n) {
                                     RankStacks& rank = (*work)[n];
                                     unwind_threads(rank, choice, Deadline::after(rank.time_left), most);
                                     read_handled_fault(rank);
                                     if (rank.recording) rank.recording->keep(rank.stacks, kept);
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
                       std::chrono::steady_clock::time_point started,
                       const std::function<void(std::vector<RankStacks>&)>& meanwhile) {
  unwind_ranks(ranks, options);
  for (auto& sample : later) unwind_ranks(sample, options);

  SymbolBatch symbols;
  for (const RankStacks& rank : ranks) symbols.add(rank);
  for (const auto& sample : later)
    for (const RankStacks& rank : sample) symbols.add(rank);
  {
    const Background resolving([&] { symbols.resolve(options.symbols, options.libc_lines, options.timeout); });
    meanwhile(ranks);
  }

  FinishedJob finished;
  JobSnapshot& job = finished.job;
  job.tool_version = RANKSTACKS_VERSION;
  job.captured_at = captured_at_text(captured_at);
  if (options.kept) hand_over(ranks, symbols, *options.kept, job.captured_at);
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
  finished.leftovers = std::make_shared<std::pair<std::vector<RankStacks>, std::vector<std::vector<RankStacks>>>>(
      std::move(ranks), std::move(later));
  job.elapsed_ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - started).count();
  return finished;
}

}  // namespace rankstacks::capture
