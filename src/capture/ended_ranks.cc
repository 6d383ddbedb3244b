#include "capture/ended_ranks.h"

#include <fmt/format.h>
#include <sys/wait.h>
#include <algorithm>
#include <charconv>
#include <optional>
#include <string>
#include <vector>

#include "base/signal_name.h"
#include "capture/rank_problems.h"
#include "target/proc.h"

namespace rankstacks::capture {
namespace {

// The exit status, in the form of waitpid(2), of a process that nobody has waited for yet: the last field of
// /proc/PID/stat (proc(5): exit_code), which is 0 for those who may not trace the process.
std::optional<int> exit_status_of(const RankSnapshot& rank) {
  const auto text = target::proc::read_file(fmt::format("/proc/{}/stat", rank.pid));
  const auto stat = text ? target::proc::parse_stat(*text) : std::nullopt;
  if (!stat || !stat->ends() || stat->start_ticks != rank.start_ticks) return std::nullopt;
  const std::size_t end = text->find_last_not_of(" \n") + 1, last = text->rfind(' ', end == 0 ? 0 : end - 1);
  int status = 0;
  if (last == std::string::npos ||
      std::from_chars(text->data() + last + 1, text->data() + end, status).ec != std::errc())
    return std::nullopt;
  return status;
}

std::string describe_end(const RankSnapshot& rank) {
  const int status = exit_status_of(rank).value_or(0);
  if (WIFSIGNALED(status)) return ", killed by " + signal_name(WTERMSIG(status));
  return status != 0 ? fmt::format(", with exit status {}", WEXITSTATUS(status)) : "";
}

bool is_noted(const RankSnapshot& rank) {
  return std::any_of(rank.problems.begin(), rank.problems.end(),
                     [](const Problem& p) { return p.code == ProblemCode::kEnded; });
}

}  // namespace

bool is_alive(const RankSnapshot& rank) {
  const auto leader = target::proc::stat_of(rank.pid);
  if (!leader || leader->start_ticks != rank.start_ticks) return false;
  if (!leader->ends()) return true;
  const std::vector<Tid> tids = target::proc::tasks_of(rank.pid);
  return std::any_of(tids.begin(), tids.end(), [&](Tid tid) {
    const auto stat = target::proc::stat_of(rank.pid, tid);
    return stat && !stat->ends();
  });
}

void note_ended(JobSnapshot& job) {
  for (RankSnapshot& rank : job.ranks) {
    if (rank.kind != RankKind::kRank || rank.source != Source::kLive || rank.status == Status::kFailed ||
        is_noted(rank) || is_alive(rank))
      continue;
    rank.problems.push_back(
        {"it ended while it was looked at" + describe_end(rank), std::nullopt, ProblemCode::kEnded});
    worsen(rank, Status::kPartial);
  }
}

}  // namespace rankstacks::capture
