#include "nccl/job_status.h"

#include <map>
#include <set>
#include <tuple>

#include <fmt/format.h>

namespace rankstacks::nccl {

void keep_own_communicators(NcclStatus& status, const std::vector<NcclProcess>& processes,
                            const std::vector<std::string>& addresses) {
  const std::set<std::string> local(addresses.begin(), addresses.end());
  std::map<Pid, const NcclProcess*> by_pid;
  for (const NcclProcess& process : processes) {
    const auto [it, is_new] = by_pid.try_emplace(process.own_pid, &process);
    if (!is_new) it->second = nullptr;  // in two containers: which of the two it is cannot be known
  }
  std::erase_if(status.communicators, [&](NcclCommunicator& communicator) {
    bool own = false;
    for (auto* const members : {&communicator.members, &communicator.missing})
      for (NcclMember& member : *members) {
        const auto found = by_pid.find(member.pid);
        if (member.pid <= 0 || found == by_pid.end() || !local.contains(member.host)) continue;
        own = true;
        if (found->second != nullptr) member.process = found->second->process;
      }
    return !own;
  });
}

std::optional<std::string> contradiction_in(const NcclStatus& status, const std::vector<NcclProcess>& processes,
                                            const std::vector<std::string>& addresses,
                                            const std::function<LocalProcess(Pid own_pid)>& look_up) {
  const std::set<std::string> local(addresses.begin(), addresses.end());
  std::set<Pid> known;
  for (const NcclProcess& process : processes) known.insert(process.own_pid);
  for (const NcclCommunicator& communicator : status.communicators) {
    std::set<int> ranks;
    for (const NcclMember& member : communicator.members) {
      if (communicator.size > 0 && member.rank >= communicator.size)
        return fmt::format("it names rank {} of communicator {}, which has {} ranks", member.rank, communicator.hash,
                           communicator.size);
      if (!ranks.insert(member.rank).second)
        return fmt::format("it names rank {} of communicator {} twice", member.rank, communicator.hash);
      if (member.pid <= 0 || !local.contains(member.host) || !known.insert(member.pid).second) continue;
      const LocalProcess found = look_up(member.pid);
      if (found == LocalProcess::kNone)
        return fmt::format("it names pid {} on this machine, which no process has", member.pid);
      if (found == LocalProcess::kNotOfNccl)
        return fmt::format("it names pid {} on this machine, which has no NCCL loaded", member.pid);
    }
  }
  return std::nullopt;
}

void compare_counts(NcclStatus& first, const NcclStatus& second) {
  using Key = std::tuple<std::string, std::string, int>;
  std::map<Key, const NcclMember*> again;
  for (const NcclCommunicator& communicator : second.communicators)
    for (const NcclMember& member : communicator.members)
      again.try_emplace(Key{communicator.hash, communicator.secondary_hash, member.rank}, &member);
  for (NcclCommunicator& communicator : first.communicators)
    for (NcclMember& member : communicator.members) {
      const auto found = again.find(Key{communicator.hash, communicator.secondary_hash, member.rank});
      member.counts_move = found != again.end() && found->second->launched != member.launched;
    }
  first.answers = 2;
}

}  // namespace rankstacks::nccl
