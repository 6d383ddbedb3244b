// Several reports of one job, one per machine, as one.
#include <algorithm>
#include <cstdio>
#include <map>
#include <tuple>

#include <fmt/format.h>

#include "model/rank_order.h"
#include "report/report.h"

namespace rankstacks::report {
namespace {

// Days since 1970-01-01 of a date of the Gregorian calendar.
std::int64_t days_from_civil(std::int64_t year, int month, int day) {
  year -= month <= 2;
  const std::int64_t era = (year >= 0 ? year : year - 399) / 400;
  const std::int64_t year_of_era = year - era * 400;
  const std::int64_t day_of_year = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;
  return era * 146097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719468;
}

// "2026-01-31T12:00:00.123Z" in milliseconds since 1970; std::nullopt if it is not such a time.
std::optional<double> milliseconds_of(const std::string& captured_at) {
  int year = 0, month = 0, day = 0, hour = 0, minute = 0, used = 0;
  double second = 0;
  if (std::sscanf(captured_at.c_str(), "%4d-%2d-%2dT%2d:%2d:%lfZ%n", &year, &month, &day, &hour, &minute, &second,
                  &used) != 6)
    return std::nullopt;
  if (used == 0 || static_cast<std::size_t>(used) != captured_at.size()) return std::nullopt;
  if (month < 1 || month > 12 || day < 1 || day > 31 || hour < 0 || hour > 23 || minute < 0 || minute > 59 ||
      !(second >= 0 && second < 61))
    return std::nullopt;
  const std::int64_t minutes = (days_from_civil(year, month, day) * 24 + hour) * 60 + minute;
  return static_cast<double>(minutes) * 60'000 + second * 1'000;
}

// Adds the processes of `from` that `to` does not know: each machine's report only knows its own.
void add_processes(std::vector<NcclMember>& to, const std::vector<NcclMember>& from) {
  std::map<int, const NcclMember*> by_rank;
  for (const NcclMember& member : from) by_rank.try_emplace(member.rank, &member);
  for (NcclMember& member : to) {
    const auto same = by_rank.find(member.rank);
    if (same == by_rank.end() || member.process) continue;
    if (same->second->host == member.host && same->second->pid == member.pid) member.process = same->second->process;
  }
}

// Every communicator once, taken from the report in which most of its members answered.
std::optional<NcclStatus> merge_nccl(std::vector<JobSnapshot>& snapshots) {
  std::optional<NcclStatus> merged;
  std::map<std::pair<std::string, std::string>, std::size_t> seen;
  for (JobSnapshot& one : snapshots) {
    if (!one.nccl) continue;
    if (!merged) {
      merged.emplace();
      merged->version = one.nccl->version;
      merged->answers = one.nccl->answers;
    }
    merged->answers = std::min(merged->answers, one.nccl->answers);
    for (NcclCommunicator& communicator : one.nccl->communicators) {
      const auto [it, is_new] =
          seen.try_emplace({communicator.hash, communicator.secondary_hash}, merged->communicators.size());
      if (is_new) {
        merged->communicators.push_back(std::move(communicator));
        continue;
      }
      NcclCommunicator& kept = merged->communicators[it->second];
      if (communicator.members.size() > kept.members.size()) std::swap(kept, communicator);
      for (auto* to : {&kept.members, &kept.missing})
        for (const auto* from : {&communicator.members, &communicator.missing}) add_processes(*to, *from);
    }
  }
  return merged;
}

template <class F>
void for_each_frame_of(RankSnapshot& rank, F&& f) {
  for (ThreadSnapshot& thread : rank.threads) for_each_frame(thread, f);
  for (GpuSnapshot& gpu : rank.gpus) for_each_frame(gpu, f);
}

}  // namespace

JobSnapshot merge_snapshots(std::vector<JobSnapshot> snapshots) {
  if (snapshots.empty()) return {};
  if (snapshots.size() == 1) return std::move(snapshots.front());

  JobSnapshot job;
  std::optional<double> earliest;
  for (const JobSnapshot& one : snapshots) {
    const auto at = milliseconds_of(one.captured_at);
    if (at && (!earliest || *at < *earliest)) {
      earliest = at;
      job.captured_at = one.captured_at;
    }
    if (one.elapsed_ms) job.elapsed_ms = std::max(job.elapsed_ms.value_or(0), *one.elapsed_ms);
  }
  if (!earliest) job.captured_at = snapshots.front().captured_at;
  job.tool_version = snapshots.front().tool_version;

  std::vector<RankSnapshot> ranks;
  std::map<std::tuple<std::string, Pid, Source, std::string, int>, std::size_t> seen;
  for (JobSnapshot& one : snapshots) {
    std::vector<std::optional<FrameId>> renumbered(one.frames.size());
    const auto at = milliseconds_of(one.captured_at);
    for (RankSnapshot& rank : one.ranks) {
      // Cores and dumps of several machines may have "unknown" as their host: they are distinguished by their paths,
      // and the ranks of one log by their numbers.
      const std::string where = rank.source == Source::kLive ? "" : rank.path.value_or("");
      const int number = rank.source == Source::kDump ? rank.rank.value_or(-1) : -1;
      const auto [it, is_new] = seen.try_emplace({rank.host, rank.pid, rank.source, where, number}, ranks.size());
      if (!is_new) {
        ranks[it->second].problems.push_back(
            {fmt::format("{}:{} is in more than one of the merged reports; the first is shown", rank.host, rank.pid),
             "name each machine's report once", ProblemCode::kMismatch});
        continue;
      }
      for_each_frame_of(rank, [&](FrameId& id) {
        if (!renumbered[id]) renumbered[id] = job.frames.intern(one.frames[id]);
        id = *renumbered[id];
      });
      if (rank.captured_offset_ms && at && earliest) *rank.captured_offset_ms += *at - *earliest;
      ranks.push_back(std::move(rank));
    }
  }
  // A rank that one report lacks may be in another.
  for (JobSnapshot& one : snapshots)
    for (UnseenRank& unseen : one.not_looked_at) {
      const bool looked_at = std::any_of(ranks.begin(), ranks.end(), [&](const RankSnapshot& rank) {
        return rank.pid == unseen.pid && rank.host == unseen.host;
      });
      if (!looked_at &&
          std::find(job.not_looked_at.begin(), job.not_looked_at.end(), unseen) == job.not_looked_at.end())
        job.not_looked_at.push_back(std::move(unseen));
    }
  job.nccl = merge_nccl(snapshots);
  std::vector<const RankSnapshot*> unsorted;
  for (const RankSnapshot& rank : ranks) unsorted.push_back(&rank);
  for (const std::size_t i : rank_order(unsorted)) job.ranks.push_back(std::move(ranks[i]));
  return job;
}

}  // namespace rankstacks::report
