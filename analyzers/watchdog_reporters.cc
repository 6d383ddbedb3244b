#include "analyzers/watchdog_reporters.h"

#include <algorithm>
#include <csignal>
#include <set>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

#include "analyzers/deaths.h"
#include "analyzers/names.h"
#include "analyzers/timed_out_work.h"
#include "model/rank_set.h"

namespace rankstacks::analyzers {
namespace {

// The frame that shows that a thread is about to end its process; std::nullopt if it is not.
std::optional<std::size_t> ending_frame(const JobSnapshot& job, const SharedList<FrameId>& frames) {
  std::optional<std::size_t> place;
  for (std::size_t i = 0; i < frames.size(); ++i) {
    const Frame& frame = job.frames[frames[i]];
    if (frame.kind != FrameKind::kNative || !frame.function) continue;
    const std::string& function = *frame.function;
    if (function.starts_with("std::terminate(") || function.starts_with("__gnu_cxx::__verbose_terminate_handler(") ||
        function == "std::terminate")
      return i;
    if (!place && is_c_library(frame.module) && public_libc_name(function) == "abort") place = i;
  }
  return place;
}

// A watchdog puts its own name before the text of an exception that it has caught: "[PG ID 0 PG GUID 0(default_pg) Rank
// 1] Process group watchdog thread terminated with exception: [Rank 1] Watchdog caught ...". The group stays.
std::string without_watchdog(std::string text) {
  constexpr std::string_view kAdded = "watchdog thread terminated with exception: ";
  const std::size_t at = text.find(kAdded), group = text.find("] ");
  if (at == std::string::npos || !text.starts_with('[') || group > at) return text;
  const std::string own = text.substr(at + kAdded.size());
  const bool names_rank = own.starts_with("[Rank ") && own.find("] ") != std::string::npos;
  return text.substr(0, group + 2) + (names_rank ? own.substr(own.find("] ") + 2) : own);
}

// ", after 12 s in all-gather 38 of group default_pg"; ", after 12 s: rank 0 in ..., rank 1 in ..." if they differ.
std::string describe_timed_out(const JobSnapshot& job, const std::vector<Evidence>& reporters) {
  std::vector<std::pair<TimedOutWork, std::vector<std::size_t>>> works;
  for (const Evidence& m : reporters) {
    const auto& exception = job.ranks[m.rank].threads[m.thread].exception;
    const auto work = exception && exception->what ? timed_out_work(*exception->what) : std::nullopt;
    if (!work) continue;
    const auto known =
        std::find_if(works.begin(), works.end(), [&](const auto& one) { return one.first.is_same(*work); });
    if (known == works.end()) works.push_back({*work, {m.rank}});
    else known->second.push_back(m.rank);
  }
  if (works.empty()) return "";
  const std::string time = describe_timeout(works.front().first);
  if (works.size() == 1)
    return fmt::format(",{}{} in {}", time.empty() ? "" : " ", time, describe_work(works.front().first));
  std::string text = time.empty() ? "" : fmt::format(", {}:", time);
  constexpr std::size_t kMax = 3;
  for (std::size_t i = 0; i < works.size() && i < kMax; ++i)
    text += fmt::format("{} {} in {}", i == 0 && !time.empty() ? "" : ",", name_ranks(job, works[i].second),
                        describe_work(works[i].first));
  if (works.size() > kMax) text += fmt::format(", and {} more", works.size() - kMax);
  return text;
}

}  // namespace

bool is_watchdog_reporter(known::Role role, const ThreadSnapshot& thread) {
  if (thread.exception && thread.exception->cause == ExceptionCause::kOwnGpu) return false;
  return role == known::Role::kNcclWatchdog || role == known::Role::kNcclHeartbeat || role == known::Role::kNcclMonitor;
}

std::vector<Evidence> find_gpu_failures(const JobSnapshot& job) {
  std::vector<Evidence> failures;
  for (std::size_t r = 0; r < job.ranks.size(); ++r) {
    const RankSnapshot& rank = job.ranks[r];
    if (rank.kind != RankKind::kRank) continue;
    for (std::size_t t = 0; t < rank.threads.size(); ++t) {
      const ThreadSnapshot& thread = rank.threads[t];
      if (!thread.exception || thread.exception->cause != ExceptionCause::kOwnGpu) continue;
      if (const auto frame = ending_frame(job, thread.frames)) failures.push_back({r, t, *frame});
    }
  }
  return failures;
}

std::vector<Evidence> find_watchdog_reporters(const JobSnapshot& job,
                                              const std::vector<std::vector<known::Role>>& roles) {
  std::vector<Evidence> reporters;
  std::unordered_map<const void*, std::optional<std::size_t>> of_stack;  // its ending_frame
  for (std::size_t r = 0; r < job.ranks.size(); ++r) {
    const RankSnapshot& rank = job.ranks[r];
    if (rank.kind != RankKind::kRank) continue;
    for (std::size_t t = 0; t < rank.threads.size(); ++t) {
      if (!is_watchdog_reporter(roles[r][t], rank.threads[t])) continue;
      const SharedList<FrameId>& frames = rank.threads[t].frames;
      const auto [known, is_new] = of_stack.try_emplace(frames.identity());
      if (is_new) known->second = ending_frame(job, frames);
      const auto frame = known->second;
      const bool got_signal =
          rank.signal && rank.signal->number == SIGABRT && rank.signal->tid == rank.threads[t].tid && !frames.empty();
      if (frame || got_signal) reporters.push_back({r, t, frame.value_or(0)});
    }
  }
  return reporters;
}

std::string describe_exception(const CxxException& exception) {
  if (!exception.what || exception.what->empty()) return exception.type;
  std::string text = without_watchdog(first_line(*exception.what));
  const auto work = timed_out_work(text);
  constexpr std::string_view kUnit = " milliseconds";
  // What follows is "before timing out.".
  if (work && work->ran_ms) text.resize(text.rfind(kUnit) + kUnit.size());
  else if (text.ends_with('.') && !text.ends_with("..")) text.pop_back();
  return fmt::format("{}: {}", exception.type, text);
}

std::string describe_watchdog_reporters(const JobSnapshot& job, const std::vector<Evidence>& reporters,
                                        bool wait_is_named) {
  if (reporters.empty()) return "";
  std::set<std::size_t> ranks;
  const CxxException* carried = nullptr;
  for (const Evidence& m : reporters) {
    ranks.insert(m.rank);
    const auto& exception = job.ranks[m.rank].threads[m.thread].exception;
    if (exception && (carried == nullptr || (!carried->what && exception->what))) carried = &*exception;
  }
  const std::string who = name_ranks(job, {ranks.begin(), ranks.end()});
  if (carried != nullptr && carried->what && timed_out_work(*carried->what))
    return fmt::format("the watchdog that ends {} only reports it{}", who,
                       wait_is_named ? "" : describe_timed_out(job, reporters));
  if (carried != nullptr)
    return fmt::format("the watchdog that ends {} only reports it, with {}", who, describe_exception(*carried));
  return fmt::format(
      "the watchdog that ends {} only reports it: its message is in {} own error output, the cause is with the ranks "
      "that the collective waited for",
      who, ranks.size() == 1 ? "that rank's" : "those ranks'");
}

}  // namespace rankstacks::analyzers
