// Several reports of one job, one per machine, as one.
#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "model/captured_at.h"
#include "model/process_key.h"
#include "model/rank_order.h"
#include "report/report.h"
#include "report/shared_parts.h"

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

// Calls `f` with each of its frames; `stack` with the stacks of its threads, which may be shared.
template <class F, class Stack>
void for_each_frame_of(RankSnapshot& rank, F&& f, Stack&& stack) {
  for (ThreadSnapshot& thread : rank.threads) {
    SharedList<FrameId> frames = std::exchange(thread.frames, {});
    for_each_frame(thread, f);
    stack(frames);
    thread.frames = std::move(frames);
  }
  for (GpuSnapshot& gpu : rank.gpus) for_each_frame(gpu, f);
}

bool has_place_without_address(const Frame& frame) { return frame.kind == FrameKind::kNative && frame.offset; }

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

}  // namespace

struct JobMerger::State {
  JobSnapshot job;
  SeenProcesses seen;
  std::size_t added = 0;
  bool has_addresses = true;
  SharedParts parts;
  std::string first_captured_at;
  std::vector<std::optional<double>> captured;  // ms, of the snapshot of each rank
  std::optional<double> earliest;
  std::vector<UnseenRank> unseen;
  std::set<std::tuple<std::string, Pid, std::string, KernelKill::Cause, std::string, std::string>> kills;
  std::map<std::pair<std::string, std::string>, std::size_t> communicators;  // by both hashes

  // Gives ranks the frames of `job` in place of those of their own report, and the stacks that others have.
  class Interning {
   public:
    Interning(State& state, std::vector<Frame> frames)
        : state_(state), frames_(std::move(frames)), renumbered_(frames_.size()) {}

    void intern(RankSnapshot& rank) {
      for_each_frame_of(
          rank, [&](FrameId& id) { renumber(id); }, [&](SharedList<FrameId>& stack) { intern(stack); });
      state_.parts.share(rank);
    }

   private:
    static constexpr std::size_t kSlots = 256;

    void renumber(FrameId& id) {
      if (!renumbered_[id]) {
        Frame& frame = frames_[id];
        if (!state_.has_addresses && has_place_without_address(frame)) frame.address = 0;
        renumbered_[id] = state_.job.frames.intern(std::move(frame));
      }
      id = *renumbered_[id];
    }

    // All stacks that it is called with exist before the first call.
    void intern(SharedList<FrameId>& stack) {
      if (stack.empty()) return;
      auto& [own, shared] = stacks_[reinterpret_cast<std::uintptr_t>(stack.identity()) / 16 % kSlots];
      if (own != stack.identity()) {
        own = stack.identity();
        for (FrameId& id : stack.edit()) renumber(id);
        state_.parts.share(stack);
        shared = stack;
      } else {
        stack = shared;
      }
    }

    State& state_;
    std::vector<Frame> frames_;
    std::vector<std::optional<FrameId>> renumbered_;
    std::array<std::pair<const void*, SharedList<FrameId>>, kSlots> stacks_{};  // of the last ones
  };

  void drop_addresses() {
    has_addresses = false;
    parts.forget();
    Interning interning(*this, std::exchange(job.frames, {}).take());
    for (RankSnapshot& rank : job.ranks) interning.intern(rank);
  }

  void add_times(const JobSnapshot& one) {
    const auto at = captured_at_ms(one.captured_at);
    if (at && (!earliest || *at < *earliest)) {
      earliest = at;
      job.captured_at = one.captured_at;
    }
    if (one.elapsed_ms) job.elapsed_ms = std::max(job.elapsed_ms.value_or(0), *one.elapsed_ms);
  }

  void add_ranks(JobSnapshot& one) {
    Interning interning(*this, std::move(one.frames).take());
    const auto at = captured_at_ms(one.captured_at);
    for (RankSnapshot& rank : one.ranks) {
      if (const auto same = seen.add(rank, job.ranks)) {
        job.ranks[*same].problems.push_back(
            {fmt::format("{}:{} is in more than one of the merged reports; the first is shown", rank.host, rank.pid),
             "name each machine's report once", ProblemCode::kMismatch});
        continue;
      }
      interning.intern(rank);
      job.ranks.push_back(std::move(rank));
      captured.push_back(at);
    }
    if (has_addresses && job.ranks.size() > JobMerger::kMaxRanksWithAddresses) drop_addresses();
  }

  // Every communicator once, taken from the report in which most of its members answered.
  void add_nccl(NcclStatus one) {
    if (!job.nccl) job.nccl = NcclStatus{one.version, one.answers, {}};
    job.nccl->answers = std::min(job.nccl->answers, one.answers);
    for (NcclCommunicator& communicator : one.communicators) {
      const auto [it, is_new] =
          communicators.try_emplace({communicator.hash, communicator.secondary_hash}, job.nccl->communicators.size());
      if (is_new) {
        job.nccl->communicators.push_back(std::move(communicator));
        continue;
      }
      NcclCommunicator& kept = job.nccl->communicators[it->second];
      if (communicator.members.size() > kept.members.size()) std::swap(kept, communicator);
      for (auto* to : {&kept.members, &kept.missing})
        for (const auto* from : {&communicator.members, &communicator.missing}) add_processes(*to, *from);
    }
  }

  // A rank that one report lacks may be in another.
  void keep_unseen() {
    if (unseen.empty()) return;
    std::set<ProcessKey> looked_at;
    for (const RankSnapshot& rank : job.ranks) looked_at.insert(process_key(rank));
    std::set<std::pair<int, ProcessKey>> kept;
    for (UnseenRank& one : unseen)
      if (!looked_at.contains(process_key(one)) && kept.emplace(one.rank, process_key(one)).second)
        job.not_looked_at.push_back(std::move(one));
  }

  void sort_ranks() {
    std::vector<const RankSnapshot*> unsorted;
    for (const RankSnapshot& rank : job.ranks) unsorted.push_back(&rank);
    std::vector<RankSnapshot> sorted;
    sorted.reserve(job.ranks.size());
    for (const std::size_t i : rank_order(unsorted)) sorted.push_back(std::move(job.ranks[i]));
    job.ranks = std::move(sorted);
  }

  void add(JobSnapshot one) {
    add_times(one);
    add_ranks(one);
    std::move(one.not_looked_at.begin(), one.not_looked_at.end(), std::back_inserter(unseen));
    std::move(one.nodes.begin(), one.nodes.end(), std::back_inserter(job.nodes));
    for (KernelKill& kill : one.kernel_log)
      if (kills.emplace(kill.host, kill.pid, kill.name, kill.cause, kill.at, kill.text).second)
        job.kernel_log.push_back(std::move(kill));
    if (one.nccl) add_nccl(*std::move(one.nccl));
  }

  JobSnapshot take() {
    if (!earliest) job.captured_at = first_captured_at;
    for (std::size_t i = 0; i < job.ranks.size(); ++i)
      if (auto& offset = job.ranks[i].captured_offset_ms; offset && captured[i]) *offset += *captured[i] - *earliest;
    keep_unseen();
    sort_ranks();
    name_apart(job);
    return std::move(job);
  }
};

JobMerger::JobMerger() : state_(std::make_unique<State>()) {}
JobMerger::~JobMerger() = default;

void JobMerger::add(JobSnapshot snapshot) {
  State& state = *state_;
  if (state.added++ == 0) {
    state.first_captured_at = snapshot.captured_at;
    state.job.tool_version = snapshot.tool_version;
    alone_ = std::move(snapshot);
    return;
  }
  if (alone_) {
    state.add(*std::move(alone_));
    alone_.reset();
  }
  state.add(std::move(snapshot));
}

JobSnapshot JobMerger::take() {
  if (!alone_) return state_->take();
  name_apart(*alone_);
  return *std::move(alone_);
}

void drop_addresses(JobSnapshot& job) {
  std::vector<Frame> frames = std::exchange(job.frames, {}).take();
  std::vector<std::optional<FrameId>> renumbered(frames.size());
  const auto renumber = [&](FrameId& id) {
    if (!renumbered[id]) {
      if (has_place_without_address(frames[id])) frames[id].address = 0;
      renumbered[id] = job.frames.intern(std::move(frames[id]));
    }
    id = *renumbered[id];
  };
  for (RankSnapshot& rank : job.ranks) {
    for (ThreadSnapshot& thread : rank.threads) for_each_frame(thread, renumber);
    for (GpuSnapshot& gpu : rank.gpus) for_each_frame(gpu, renumber);
  }
}

JobSnapshot merge_snapshots(std::vector<JobSnapshot> snapshots) {
  JobMerger merger;
  for (JobSnapshot& snapshot : snapshots) merger.add(std::move(snapshot));
  return merger.take();
}

}  // namespace rankstacks::report
