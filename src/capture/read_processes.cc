#include "capture/read_processes.h"

#include <fmt/format.h>
#include <memory>

#include "base/memory_limit.h"
#include "base/workers.h"
#include "capture/finish_job.h"
#include "capture/no_suspension.h"
#include "target/limited_target.h"
#include "target/syscalls.h"

namespace rankstacks::capture {
namespace {

// What is read of a process while it does not run. This may be done several times: the last one counts.
void walk(RankStacks& rank, const target::LiveTarget& target, const std::vector<python::RuntimeCandidate>& interpreters,
          std::size_t locals) {
  rank.snapshot.problems = *rank.problems_before;
  rank.snapshot.status = Status::kComplete;
  rank.snapshot.python_version.reset();
  rank.python.reset();
  read_syscalls(rank);
  read_exceptions(rank);
  read_abort_message(rank);
  read_python(rank, interpreters, locals, target.walks_until(), "2 s of reading");
  if (!rank.recording) return;
  read_recorders(rank);
  target.begin_lasting();
  rank.recording->read_more(target::LimitedTarget(target, target.walks_until()));
  target.end_lasting();
}

void note_how(RankSnapshot& snapshot, const target::LiveTarget& target) {
  snapshot.problems.insert(snapshot.problems.begin(), target.problems().begin(), target.problems().end());
  for (const Problem& cut : target.cuts()) {
    snapshot.problems.push_back(cut);
    snapshot.status = Status::kPartial;
  }
  if (target.freeze()) snapshot.problems.push_back(target::problem_of(*target.freeze()));
  snapshot.method = target.method();
  snapshot.stopped_ms = target.stopped_ms();
  snapshot.threads_stopped = target.threads_stopped();
}

// The rank as it was before its process was read.
RankStacks prepared_again(const RankStacks& rank, const target::LiveTarget& target) {
  RankStacks prepared;
  prepared.target = target.again();
  prepared.cxx = rank.cxx;
  prepared.abort_messages = rank.abort_messages;
  prepared.recorders = rank.recorders;
  prepared.problems_before = rank.problems_before;
  prepared.time_left = rank.time_left;
  prepared.snapshot = rank.snapshot;
  return prepared;
}

}  // namespace

void ProcessReader::read_one(LiveRanks& live, std::size_t i, const target::CopyLimits& limits,
                             target::SocketTables& sockets, target::SocketTables& newer) const {
  RankStacks& rank = live.ranks[i];
  target::LiveTarget& target = *live.targets[i];
  target::StopChoice choice{.policy = policy_};
  if (const auto needed = needed_.find(target.pid()); needed != needed_.end())
    choice.needed.assign(needed->second.begin(), needed->second.end());
  if (!rank.problems_before) rank.problems_before = rank.snapshot.problems;
  const auto captured =
      target.capture([&] { walk(rank, target, *live.interpreters[i], options_.locals); }, limits, choice);
  if (!captured) {
    note_how(rank.snapshot, target);
    fail_rank(rank, captured.error());
    rank.snapshot.method.reset();
    live.targets[i] = nullptr;
    return;
  }
  note_how(rank.snapshot, target);
  drop_moved(rank);
  rank.stacks.clear();
  // The process is running again when these are read from /proc; its descriptors are the same unless it has moved on.
  for (auto& call : rank.syscalls)
    if (call && call->fd) call->fd_target = target::describe_descriptor(target.pid(), *call->fd, sockets, &newer);
}

void ProcessReader::read_all(LiveRanks& live, const std::vector<std::size_t>& which,
                             target::SocketTables& sockets) const {
  target::SocketTables newer;
  const NoSuspension none_is_left_stopped;
  const std::size_t copies = share_of_memory(options_.memory, MemoryUse::kCopies);
  const auto pool = std::make_shared<target::CopyPool>(copies / 2);
  const target::CopyLimits limits = target::CopyLimits::share(copies, live.ranks.size(), pool);
  run_on_fresh_threads(which.size(), [&](std::size_t n) { read_one(live, which[n], limits, sockets, newer); });
}

void ProcessReader::read(LiveRanks& live, target::SocketTables& sockets) {
  std::vector<std::size_t> all;
  for (std::size_t i = 0; i < live.targets.size(); ++i)
    if (live.targets[i] != nullptr) all.push_back(i);
  read_all(live, all, sockets);
}

std::vector<std::size_t> ProcessReader::to_read_again(const LiveRanks& live) {
  if (policy_ != target::StopPolicy::kAuto) return {};
  std::vector<std::size_t> which;
  for (std::size_t i = 0; i < live.ranks.size(); ++i) {
    const RankStacks& rank = live.ranks[i];
    // Where a core is made, all threads were stopped: a further stop tells no more.
    if (!rank.target || rank.recording || live.targets[i] == nullptr || live.targets[i]->does_not_answer()) continue;
    const auto threads = rank.target->threads();
    bool any = false;
    for (std::size_t t = 0; t < rank.stacks.size(); ++t) {
      if (rank.stacks[t].end != StackEnd::kRegistersUnknown || !live.targets[i]->can_stop(threads[t])) continue;
      if (const auto& call = rank.syscalls[t]; call && target::is_spoiled_by_stop(call->number)) continue;
      any |= needed_[live.targets[i]->pid()].insert(threads[t].tid).second;
    }
    if (any) which.push_back(i);
  }
  return which;
}

void ProcessReader::read_again(LiveRanks& live, const std::vector<std::size_t>& which, target::SocketTables& sockets) {
  if (which.empty()) return;
  std::vector<RankStacks> before(which.size());
  std::vector<target::LiveTarget*> targets(which.size());
  for (std::size_t n = 0; n < which.size(); ++n) {
    RankStacks& rank = live.ranks[which[n]];
    targets[n] = live.targets[which[n]];
    before[n] = std::move(rank);
    rank = prepared_again(before[n], *targets[n]);
    live.targets[which[n]] = static_cast<target::LiveTarget*>(rank.target.get());
    targets[n]->forget_copy();  // its stacks have been unwound
  }
  read_all(live, which, sockets);
  for (std::size_t n = 0; n < which.size(); ++n) {
    RankStacks& rank = live.ranks[which[n]];
    const target::LiveTarget* const read = live.targets[which[n]];
    if (read != nullptr && read->is_same_program(*targets[n])) continue;
    before[n].snapshot.problems.push_back(
        {fmt::format("could not be read once more, with a stop of threads: {}",
                     read != nullptr                  ? "it has executed another program (exec)"
                     : rank.snapshot.problems.empty() ? "it failed"
                                                      : rank.snapshot.problems.back().message),
         std::nullopt});
    before[n].snapshot.stopped_ms = rank.snapshot.stopped_ms;
    rank = std::move(before[n]);
    live.targets[which[n]] = targets[n];
  }
  unwind_ranks(live.ranks, options_);
}

}  // namespace rankstacks::capture
