// Literal process tables, for tests of which processes are planned.
#pragma once

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "capture/job_processes.h"

namespace rankstacks::testing {

using Environment = std::map<std::string, std::string>;

constexpr Pid kSelf = 9999;  // this tool

struct Machine {
  std::vector<capture::ProcessEntry> entries;
  std::map<Pid, Environment> environments;
  std::map<Pid, capture::ProcessPlace> places;  // of those that are not user 0's, in the machine's own namespaces
  std::vector<Pid> wrappers, trainers;
  std::map<Pid, std::string> titles;

  void add(Pid pid, Pid parent, const std::string& name, Environment environment = {}) {
    entries.push_back({pid, parent, name, 'S', 1, false});
    environments[pid] = std::move(environment);
  }
  capture::ProcessEntry& last() { return entries.back(); }
  capture::ProcessTable table() const { return capture::ProcessTable(entries); }
  capture::ProcessFacts facts() const {
    return {[this](Pid pid) { return environments.contains(pid) ? environments.at(pid) : Environment{}; },
            [this](Pid pid) { return std::find(wrappers.begin(), wrappers.end(), pid) != wrappers.end(); },
            [this](Pid pid) { return std::find(trainers.begin(), trainers.end(), pid) != trainers.end(); },
            [this](Pid pid) { return titles.contains(pid) ? titles.at(pid) : std::string(); },
            {},
            [this](Pid pid) {
              return places.contains(pid) ? places.at(pid) : capture::ProcessPlace{0, "net:[1]", "0::/\n", false};
            }};
  }
  std::vector<capture::PlannedTarget> pids(const std::vector<Pid>& wanted) const {
    return capture::plan_pids(wanted, table(), facts(), kSelf);
  }
  std::vector<capture::PlannedTarget> job() const { return capture::plan_job(table(), facts(), kSelf); }
};

}  // namespace rankstacks::testing
