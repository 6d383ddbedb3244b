#include "model/process_index.h"

#include <algorithm>
#include <map>
#include <string>

namespace rankstacks {
inline namespace model {

ProcessIndex::ProcessIndex(const JobSnapshot& job) {
  std::map<std::string, std::size_t> hosts;
  std::map<PidSpace, std::size_t> spaces;
  machine_of_.reserve(job.ranks.size());
  by_host_.reserve(job.ranks.size());
  for (std::size_t i = 0; i < job.ranks.size(); ++i) {
    const RankSnapshot& process = job.ranks[i];
    // Processes that follow one another are mostly on one machine, which is looked up once.
    Machine machine;
    if (i > 0 && process.host == job.ranks[i - 1].host && process.pid_space == job.ranks[i - 1].pid_space) {
      machine = machine_of_.back();
    } else {
      machine.host = hosts.try_emplace(process.host, hosts.size()).first->second;
      if (process.pid_space) machine.space = spaces.try_emplace(*process.pid_space, spaces.size() + 1).first->second;
    }
    machine_of_.push_back(machine);
    if (machine.space != 0) by_space_.push_back({{machine.space, process.pid}, i});
    by_host_.push_back({{machine.host, process.pid}, i});
  }
  std::sort(by_space_.begin(), by_space_.end());
  std::sort(by_host_.begin(), by_host_.end());
}

std::vector<std::size_t> ProcessIndex::find(std::size_t counted_as, Pid pid) const {
  const std::size_t space = machine_of_[counted_as].space, host = machine_of_[counted_as].host;
  std::vector<std::size_t> found;
  const auto add_from = [&](const Entries& entries, const Key& key, auto&& counts) {
    for (auto it = std::lower_bound(entries.begin(), entries.end(), std::pair(key, std::size_t{0}));
         it != entries.end() && it->first == key && found.size() < kMaxNamesakes; ++it)
      if (counts(it->second)) found.push_back(it->second);
  };
  if (space != 0) add_from(by_space_, {space, pid}, [](std::size_t) { return true; });
  add_from(by_host_, {host, pid}, [&](std::size_t other) { return space == 0 || machine_of_[other].space == 0; });
  std::sort(found.begin(), found.end());
  return found;
}

}  // namespace model
}  // namespace rankstacks
