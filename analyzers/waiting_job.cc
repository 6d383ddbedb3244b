#include "analyzers/waiting_job.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

namespace rankstacks::analyzers {

WaitingJob::WaitingJob(const Facts& the_facts)
    : facts(the_facts),
      job(the_facts.job),
      states(the_facts.states),
      operations(the_facts.operations),
      sides(sides_by_place(the_facts)) {
  for (const PendingOperation& operation : operations) ranks += operation.members.size();
}

WaitingJob WaitingJob::with_sides(std::vector<Side> others) const {
  WaitingJob same = *this;
  same.sides = std::move(others);
  return same;
}

bool WaitingJob::is_p2p(std::size_t i) const { return states[i].doing.activity == known::Activity::kPointToPoint; }

bool WaitingJob::in_store(std::size_t i) const { return states[i].doing.activity == known::Activity::kStoreWait; }

bool WaitingJob::any_side(known::Activity activity) const {
  return std::any_of(sides.begin(), sides.end(),
                     [&](const Side& side) { return states[side.front()].doing.activity == activity; });
}

bool WaitingJob::waits_for_gpu() const {
  return std::any_of(sides.begin(), sides.end(),
                     [&](const Side& side) { return states[side.front()].gpu_wait_may_be_collective; });
}

bool WaitingJob::known_from_gpus() const {
  return std::all_of(sides.begin(), sides.end(), [&](const Side& side) { return states[side.front()].known_from_gpu; });
}

bool WaitingJob::names_some_operation() const {
  return std::any_of(sides.begin(), sides.end(),
                     [&](const Side& side) { return !states[side.front()].gpu_wait_may_be_collective; });
}

bool WaitingJob::wait_in_one_function() const {
  const auto& first = states[sides.front().front()].path;
  return !first.empty() && std::all_of(sides.begin(), sides.end(), [&](const Side& side) {
    const auto& path = states[side.front()].path;
    return !path.empty() && path.back().function == first.back().function && path.back().file == first.back().file;
  });
}

std::vector<std::size_t> WaitingJob::all_members() const {
  std::vector<std::size_t> members;
  for (const Side& side : sides) members.insert(members.end(), side.begin(), side.end());
  return members;
}

std::string WaitingJob::describe_sides() const {
  std::string text;
  for (const Side& side : sides) text += (text.empty() ? "" : " while ") + describe_side(job, states, side);
  return text;
}

Deadlock WaitingJob::accuse(const std::vector<std::size_t>& members, Reason reason, double confidence) const {
  Deadlock found;
  const std::set<std::size_t> accused(members.begin(), members.end());
  for (const std::size_t i : accused) found.suspects.push_back({i, reason, confidence});
  for (const Side& side : sides) {
    Side others;
    std::copy_if(side.begin(), side.end(), std::back_inserter(others),
                 [&](std::size_t i) { return !accused.contains(i); });
    if (!others.empty())
      found.explanation += (found.explanation.empty() ? "" : ", ") + describe_side(job, states, others);
  }
  return found;
}

}  // namespace rankstacks::analyzers
