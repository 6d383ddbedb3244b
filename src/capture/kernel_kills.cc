#include "capture/kernel_kills.h"

#include <unistd.h>
#include <algorithm>
#include <chrono>
#include <limits>
#include <set>

#include "model/captured_at.h"
#include "target/kernel_log.h"

namespace rankstacks::capture {
namespace {

constexpr std::size_t kMaxKills = 16;
constexpr std::size_t kMaxThreadName = 15;  // TASK_COMM_LEN - 1

std::set<std::string> names_of_threads(const JobSnapshot& job, const std::string& host) {
  std::set<std::string> names;
  for (const RankSnapshot& rank : job.ranks) {
    if (rank.host != host) continue;
    for (const ThreadSnapshot& thread : rank.threads) names.insert(thread.name);
    const std::string_view path = rank.executable ? std::string_view(*rank.executable) : std::string_view();
    names.insert(std::string(path.substr(path.rfind('/') + 1).substr(0, kMaxThreadName)));
  }
  names.erase("");
  return names;
}

// When the first process of the job started; infinite if that is known of none.
double start_of_job(const JobSnapshot& job, const std::string& host) {
  const double ticks_per_second = static_cast<double>(std::max(1l, ::sysconf(_SC_CLK_TCK)));
  double first = std::numeric_limits<double>::infinity();
  for (const RankSnapshot& rank : job.ranks)
    if (rank.host == host && rank.start_ticks != 0)
      first = std::min(first, static_cast<double>(rank.start_ticks) / ticks_per_second);
  return first;
}

double seconds(std::chrono::steady_clock::duration time) { return std::chrono::duration<double>(time).count(); }

}  // namespace

bool lacks_processes(const JobSnapshot& job) {
  std::set<int> numbers;
  int expected = 0;
  for (const RankSnapshot& rank : job.ranks) {
    if (rank.status == Status::kFailed) return true;
    if (std::any_of(rank.problems.begin(), rank.problems.end(),
                    [](const Problem& p) { return p.code == ProblemCode::kEnded; }))
      return true;
    if (std::any_of(rank.threads.begin(), rank.threads.end(),
                    [](const ThreadSnapshot& thread) { return thread.state == 'Z' || thread.state == 'X'; }))
      return true;
    if (rank.kind != RankKind::kRank || !rank.rank) continue;
    numbers.insert(*rank.rank);
    expected = std::max(expected, rank.local_world_size.value_or(rank.world_size.value_or(0)));
  }
  for (const UnseenRank& unseen : job.not_looked_at) numbers.insert(unseen.rank);
  return static_cast<int>(numbers.size()) < expected;
}

std::vector<KernelKill> kills_in_job(const JobSnapshot& job, const std::string& host,
                                     std::vector<std::pair<double, KernelKill>> logged) {
  constexpr double kDistanceOfClocks = 1;  // the log's clock and that of the processes' start times, in seconds
  const std::set<std::string> names = names_of_threads(job, host);
  const double start = start_of_job(job, host);
  std::vector<KernelKill> kills;
  for (auto& [since_boot, kill] : logged) {
    if (since_boot + kDistanceOfClocks < start || names.count(kill.name) == 0) continue;
    kill.host = host;
    kills.push_back(std::move(kill));
  }
  if (kills.size() > kMaxKills) kills.erase(kills.begin(), kills.end() - kMaxKills);
  return kills;
}

std::vector<KernelKill> kernel_kills_of(const JobSnapshot& job, const std::string& host) {
  auto log = target::read_kernel_log();
  if (!log) return {};
  const auto now = std::chrono::system_clock::now();
  const double since_boot = seconds(std::chrono::steady_clock::now().time_since_epoch());
  std::vector<std::pair<double, KernelKill>> logged;
  for (target::LoggedKill& one : *log) {
    const double at = static_cast<double>(one.since_boot_us) / 1e6;
    const auto age = std::chrono::duration<double>(since_boot - at);
    one.kill.at = captured_at_text(now - std::chrono::duration_cast<std::chrono::system_clock::duration>(age));
    logged.emplace_back(at, std::move(one.kill));
  }
  return kills_in_job(job, host, std::move(logged));
}

}  // namespace rankstacks::capture
