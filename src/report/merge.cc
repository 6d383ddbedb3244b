// Several reports of one job, one per machine, as one.
#include <algorithm>
#include <map>
#include <tuple>

#include <fmt/format.h>

#include "model/captured_at.h"
#include "model/process_key.h"
#include "model/rank_order.h"
#include "report/report.h"

namespace rankstacks::report {
namespace {

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

// The processes of the reports so far.
class SeenProcesses {
 public:
  // The index of the same process among `ranks`; if it is new, std::nullopt, and it gets the index ranks.size().
  std::optional<std::size_t> add(const RankSnapshot& process, const std::vector<RankSnapshot>& ranks) {
    // Cores and dumps of several machines may have "unknown" as their host: they are distinguished by their paths, and
    // the ranks of one log by their numbers.
    const std::string where = process.source == Source::kLive ? "" : process.path.value_or("");
    const int number = process.source == Source::kDump ? process.rank.value_or(-1) : -1;
    std::vector<std::size_t>& of_name = by_name_[{process.host, process.pid, process.source, where, number}];
    for (const std::size_t i : of_name)
      if (same_process(process, ranks[i]).value_or(true)) return i;
    // Seen from inside of a container, a process has another pid, and perhaps another host.
    std::vector<std::size_t>* of_number =
        process.own_pid && process.pid_space ? &by_number_[{process.pid_space->boot_id, *process.own_pid}] : nullptr;
    if (of_number != nullptr)
      for (const std::size_t i : *of_number)
        if (same_process(process, ranks[i]).value_or(false)) return i;
    of_name.push_back(ranks.size());
    if (of_number != nullptr) of_number->push_back(ranks.size());
    return std::nullopt;
  }

 private:
  std::map<std::tuple<std::string, Pid, Source, std::string, int>, std::vector<std::size_t>> by_name_;
  std::map<std::pair<std::string, NamespacedPid>, std::vector<std::size_t>> by_number_;
};

// When the first of them was captured becomes the time of all; returns it, if it is known.
std::optional<double> merge_times(JobSnapshot& job, const std::vector<JobSnapshot>& snapshots) {
  std::optional<double> earliest;
  for (const JobSnapshot& one : snapshots) {
    const auto at = captured_at_ms(one.captured_at);
    if (at && (!earliest || *at < *earliest)) {
      earliest = at;
      job.captured_at = one.captured_at;
    }
    if (one.elapsed_ms) job.elapsed_ms = std::max(job.elapsed_ms.value_or(0), *one.elapsed_ms);
  }
  if (!earliest) job.captured_at = snapshots.front().captured_at;
  return earliest;
}

// A rank that one report lacks may be in another.
void merge_unseen(JobSnapshot& job, std::vector<JobSnapshot>& snapshots, const std::vector<RankSnapshot>& ranks) {
  for (JobSnapshot& one : snapshots)
    for (UnseenRank& unseen : one.not_looked_at) {
      const bool looked_at = std::any_of(ranks.begin(), ranks.end(), [&](const RankSnapshot& rank) {
        return process_key(rank) == process_key(unseen);
      });
      if (!looked_at &&
          std::find(job.not_looked_at.begin(), job.not_looked_at.end(), unseen) == job.not_looked_at.end())
        job.not_looked_at.push_back(std::move(unseen));
    }
}

std::vector<RankSnapshot> merge_ranks(JobSnapshot& job, std::vector<JobSnapshot>& snapshots,
                                      std::optional<double> earliest) {
  std::vector<RankSnapshot> ranks;
  SeenProcesses seen;
  for (JobSnapshot& one : snapshots) {
    std::vector<std::optional<FrameId>> renumbered(one.frames.size());
    const auto at = captured_at_ms(one.captured_at);
    for (RankSnapshot& rank : one.ranks) {
      if (const auto same = seen.add(rank, ranks)) {
        ranks[*same].problems.push_back(
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
  return ranks;
}

}  // namespace

JobSnapshot merge_snapshots(std::vector<JobSnapshot> snapshots) {
  if (snapshots.empty()) return {};
  if (snapshots.size() == 1) {
    name_apart(snapshots.front());
    return std::move(snapshots.front());
  }

  JobSnapshot job;
  const std::optional<double> earliest = merge_times(job, snapshots);
  job.tool_version = snapshots.front().tool_version;
  std::vector<RankSnapshot> ranks = merge_ranks(job, snapshots, earliest);
  merge_unseen(job, snapshots, ranks);
  for (JobSnapshot& one : snapshots) {
    for (NodeSnapshot& node : one.nodes) job.nodes.push_back(std::move(node));
    for (KernelKill& kill : one.kernel_log)
      if (std::find(job.kernel_log.begin(), job.kernel_log.end(), kill) == job.kernel_log.end())
        job.kernel_log.push_back(std::move(kill));
  }
  job.nccl = merge_nccl(snapshots);
  std::vector<const RankSnapshot*> unsorted;
  for (const RankSnapshot& rank : ranks) unsorted.push_back(&rank);
  for (const std::size_t i : rank_order(unsorted)) job.ranks.push_back(std::move(ranks[i]));
  name_apart(job);
  return job;
}

}  // namespace rankstacks::report
