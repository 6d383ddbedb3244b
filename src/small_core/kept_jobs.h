// The processes that were recorded with the last looks at a job. A look that leaves the verdict open is followed by
// another one, and the report is made of the one that shows most: its processes are those to write.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "small_core/kept_process.h"

namespace rankstacks::small_core {

class KeptJobs {
 public:
  // `with_symbols`: whether functions and lines are kept too.
  explicit KeptJobs(bool with_symbols) : with_symbols_(with_symbols) {}
  bool with_symbols() const { return with_symbols_; }

  // `captured_at`: as in the JobSnapshot. Only the last two jobs are kept.
  void add(std::string captured_at, std::vector<KeptProcess> processes) {
    if (jobs_.size() == kJobs) jobs_.erase(jobs_.begin());
    jobs_.emplace_back(std::move(captured_at), std::move(processes));
  }
  // Of the job that was captured then, else of the last one: a job made of cores has the time that captures among them
  // note. Empty if there is none.
  std::vector<KeptProcess> take(const std::string& captured_at) {
    for (auto& [at, processes] : jobs_)
      if (at == captured_at) return std::move(processes);
    return jobs_.empty() ? std::vector<KeptProcess>() : std::move(jobs_.back().second);
  }
  // Other names for the cores of the last job, by their paths.
  void rename(const std::map<std::string, std::string>& names) {
    if (jobs_.empty()) return;
    for (KeptProcess& process : jobs_.back().second)
      if (const auto name = process.path ? names.find(*process.path) : names.end(); name != names.end())
        process.path = name->second;
  }

 private:
  static constexpr std::size_t kJobs = 2;
  bool with_symbols_;
  std::vector<std::pair<std::string, std::vector<KeptProcess>>> jobs_;
};

}  // namespace rankstacks::small_core
