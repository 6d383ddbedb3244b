#include "analyzers/recorded_times.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>

#include "analyzers/flight_records.h"
#include "model/rank_set.h"

namespace rankstacks::analyzers {
namespace {

constexpr double kLeastMs = 10'000, kTimesTheLongest = 10, kMsPerSecond = 1000;

}  // namespace

bool is_silent(const RankSnapshot& rank) {
  if (rank.kind != RankKind::kRank || !has_present_record(rank)) return false;
  const FlightRecord& record = *rank.flight_record;
  return record.last_call_ms && record.longest_gap_ms &&
         *record.last_call_ms >= std::max(kLeastMs, kTimesTheLongest * *record.longest_gap_ms);
}

bool has_paused_for_longer(const RankSnapshot& rank) {
  if (rank.kind != RankKind::kRank || !has_present_record(rank)) return false;
  const FlightRecord& record = *rank.flight_record;
  return record.last_call_ms && record.longest_gap_ms && *record.last_call_ms <= *record.longest_gap_ms;
}

std::string describe_silence(const JobSnapshot& job) {
  std::vector<std::size_t> silent;
  double shortest = 0, longest = 0, usual = 0;
  for (std::size_t r = 0; r < job.ranks.size(); ++r) {
    if (!is_silent(job.ranks[r])) continue;
    const FlightRecord& record = *job.ranks[r].flight_record;
    shortest = silent.empty() ? *record.last_call_ms : std::min(shortest, *record.last_call_ms);
    longest = std::max(longest, *record.last_call_ms);
    usual = std::max(usual, *record.longest_gap_ms);
    silent.push_back(r);
  }
  if (silent.empty()) return "";
  const auto seconds = [](double ms) { return fmt::format("{:.0f}", ms / kMsPerSecond); };
  std::string time = seconds(shortest);
  if (seconds(longest) != time) time += " to " + seconds(longest);
  return fmt::format("{} {} called nothing for {} s; before, never for more than {:.2g} s", name_ranks(job, silent),
                     silent.size() == 1 ? "has" : "have", time, usual / kMsPerSecond);
}

}  // namespace rankstacks::analyzers
