// Asks NCCL's RAS about the communicators of the processes that are looked at: right before the first of them is stopped, as a stopped process
// does not answer, and once more after the last look.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "model/snapshot.h"
#include "nccl/job_status.h"
#include "nccl/ras.h"
#include "target/live_target.h"

namespace rankstacks {

class NcclCounts {
 public:
  // Called for every process before any is stopped; those without NCCL are passed over.
  void add(const LiveTarget& target, const std::string& host, const std::map<std::string, std::string>& environment);

  // At most 1 s each. Only where a socket of one of the processes listens, and only an answer that comes from one of
  // them and fits what /proc tells, is believed. Nobody of them listening is no problem (RAS can be turned off), nor is
  // an answer that concerns other processes only.
  void ask_first();
  void ask_again();

  std::optional<NcclStatus> status;
  // Why there is none, for the first process with NCCL: `troubled`.
  std::optional<Problem> problem;
  Pid troubled = 0;

 private:
  std::vector<std::string> listening() const;
  Result<NcclStatus> ask() const;

  std::vector<NcclProcess> processes_;     // of one network namespace: the first one's
  std::vector<Pid> pids_;   // theirs, as this tool counts
  RasAddress address_;
  bool can_ask_ = false;
};

}  // namespace rankstacks
