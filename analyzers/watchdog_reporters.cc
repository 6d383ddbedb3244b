#include "analyzers/watchdog_reporters.h"

#include <algorithm>
#include <csignal>
#include <set>

#include <fmt/format.h>

#include "analyzers/deaths.h"
#include "analyzers/names.h"
#include "model/rank_set.h"

namespace rankstacks::analyzers {
namespace {

// The frame that shows that a thread is about to end its process; std::nullopt if it is not.
std::optional<std::size_t> ending_frame(const JobSnapshot& job, const ThreadSnapshot& thread) {
  std::optional<std::size_t> place;
  for (std::size_t i = 0; i < thread.frames.size(); ++i) {
    const Frame& frame = job.frames[thread.frames[i]];
    if (frame.kind != FrameKind::kNative || !frame.function) continue;
    const std::string& function = *frame.function;
    if (function.starts_with("std::terminate(") || function.starts_with("__gnu_cxx::__verbose_terminate_handler(") ||
        function == "std::terminate")
      return i;
    if (!place && is_c_library(frame.module) && public_libc_name(function) == "abort") place = i;
  }
  return place;
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
      if (const auto frame = ending_frame(job, thread)) failures.push_back({r, t, *frame});
    }
  }
  return failures;
}

std::vector<Evidence> find_watchdog_reporters(const JobSnapshot& job,
                                              const std::vector<std::vector<known::Role>>& roles) {
  std::vector<Evidence> reporters;
  for (std::size_t r = 0; r < job.ranks.size(); ++r) {
    const RankSnapshot& rank = job.ranks[r];
    if (rank.kind != RankKind::kRank) continue;
    for (std::size_t t = 0; t < rank.threads.size(); ++t) {
      if (!is_watchdog_reporter(roles[r][t], rank.threads[t])) continue;
      const auto frame = ending_frame(job, rank.threads[t]);
      const bool got_signal = rank.signal && rank.signal->number == SIGABRT &&
                              rank.signal->tid == rank.threads[t].tid && !rank.threads[t].frames.empty();
      if (frame || got_signal) reporters.push_back({r, t, frame.value_or(0)});
    }
  }
  return reporters;
}

std::string describe_exception(const CxxException& exception) {
  if (!exception.what || exception.what->empty()) return exception.type;
  return fmt::format("{}: {}", exception.type, first_line(*exception.what));
}

std::string describe_watchdog_reporters(const JobSnapshot& job, const std::vector<Evidence>& reporters) {
  if (reporters.empty()) return "";
  std::set<std::size_t> ranks;
  const CxxException* carried = nullptr;
  for (const Evidence& m : reporters) {
    ranks.insert(m.rank);
    const auto& exception = job.ranks[m.rank].threads[m.thread].exception;
    if (exception && (carried == nullptr || (!carried->what && exception->what))) carried = &*exception;
  }
  const std::string who = name_ranks(job, {ranks.begin(), ranks.end()});
  if (carried != nullptr)
    return fmt::format("the watchdog that ends {} only reports it, with {}", who, describe_exception(*carried));
  return fmt::format(
      "the watchdog that ends {} only reports it: its message is in {} own error output, the cause is with the ranks "
      "that the collective waited for",
      who, ranks.size() == 1 ? "that rank's" : "those ranks'");
}

}  // namespace rankstacks::analyzers
