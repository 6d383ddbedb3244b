#include "analyzers/network_threads.h"

#include <algorithm>
#include <set>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "analyzers/names.h"
#include "analyzers/place.h"
#include "analyzers/roles.h"
#include "known/nccl_networks.h"

namespace rankstacks::analyzers {
namespace {

struct Network {
  bool known = false, moves_data = false;
};

Network network_of(const JobSnapshot& job, const RankSnapshot& rank, const std::vector<known::Role>& roles,
                   std::set<std::string>& names) {
  Network network;
  for (std::size_t t = 0; t < rank.threads.size(); ++t) {
    const ThreadSnapshot& thread = rank.threads[t];
    if (roles[t] != known::Role::kNcclProxy || thread.frames.empty()) continue;
    network.known = true;
    if (is_idle(job, thread, roles[t])) continue;
    network.moves_data = true;
    for (const FrameId id : thread.frames)
      if (job.frames[id].function)
        if (const auto name = known::nccl_network(*job.frames[id].function); !name.empty()) names.emplace(name);
  }
  return network;
}

}  // namespace

std::optional<Deadlock> explain_by_network_threads(const WaitingJob& waiting) {
  Side moving, resting;
  std::set<std::string> names;
  for (const std::size_t i : waiting.all_members()) {
    const RankState& s = waiting.states[i];
    const Network network = network_of(waiting.job, waiting.job.ranks[s.rank], waiting.facts.roles[s.rank], names);
    if (!network.known) return std::nullopt;
    (network.moves_data ? moving : resting).push_back(i);
  }
  if (moving.empty() || resting.empty() || (moving.size() == resting.size() && moving.size() > 1)) return std::nullopt;
  const bool accuses_moving = moving.size() < resting.size();
  Side accused = accuses_moving ? moving : resting;
  const bool all_wait_for_gpus = std::all_of(accused.begin(), accused.end(), [&](std::size_t i) {
    return waiting.states[i].doing.activity == known::Activity::kGpuWait;
  });
  // Of two ranks it is the one that has launched less. One that is in a collective has made another call than the
  // other: then neither is the odd one.
  const bool equal = moving.size() == resting.size() && !all_wait_for_gpus;
  if (equal) accused = waiting.all_members();
  const bool at_same_place = !accuses_moving && place_key(waiting.job, waiting.states[resting.front()]) ==
                                                    place_key(waiting.job, waiting.states[moving.front()]);
  const Reason reason = accuses_moving || !all_wait_for_gpus ? Reason::kCollectiveMismatch
                        : at_same_place                      ? Reason::kBehind
                                                             : Reason::kGpuWait;
  Deadlock found = accuse_side(
      accused, reason,
      fmt::format("NCCL's threads for the network{} have data to move at {}, and none at {}",
                  names.size() == 1 ? " (" + *names.begin() + ")" : "", name_side(waiting.job, waiting.states, moving),
                  name_side(waiting.job, waiting.states, resting)),
      equal);
  for (Blame& blame : found.suspects) blame.confidence = equal ? kEqualSides : kPartnersGuessed;
  found.may_be_a_step = true;
  return found;
}

}  // namespace rankstacks::analyzers
