// What PyTorch's NCCL watchdog says of a collective when it ends its process. In a core nothing else names the
// operation that a rank has waited for, once it was launched.
//
//     [PG ID 0 PG GUID 0(default_pg) Rank 1] Process group watchdog thread terminated with exception: [Rank 1] Watchdog
//     caught collective operation timeout: WorkNCCL(SeqNum=5, OpType=_ALLGATHER_BASE, NumelIn=1024, NumelOut=2048,
//     Timeout(ms)=12000) ran for 12004 milliseconds before timing out.
//
// Source: torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp, WorkNCCL::checkTimeout; as of 2.11.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/snapshot.h"

namespace rankstacks::analyzers {

// The oldest operation of a process group that has not finished.
struct TimedOutWork {
  std::string group;  // "0(default_pg)", the same on all of its ranks; "" if the text does not name it
  std::int64_t sequence = 0;
  std::string operation;  // "_ALLGATHER_BASE", as c10d::OpType
  std::int64_t elements_in = 0, elements_out = 0;
  std::optional<std::int64_t> timeout_ms;  // of the process group
  std::optional<std::int64_t> ran_ms;      // how long it had run when the watchdog looked
  bool operator==(const TimedOutWork&) const = default;

  // Under its number all ranks of the group call the same operation. Messages, and batches of them, have numbers of
  // their own.
  bool is_collective() const;
  std::string_view group_name() const;         // "0"
  std::string_view group_description() const;  // "default_pg"; "" if it has none
  bool is_of_group(const TimedOutWork& other) const { return !group.empty() && group == other.group; }
  bool is_same(const TimedOutWork& other) const {
    return is_of_group(other) && sequence == other.sequence && operation == other.operation;
  }
};
std::optional<TimedOutWork> timed_out_work(std::string_view text);

// What the watchdogs of a rank say; std::nullopt if they say nothing, or name different operations.
std::optional<TimedOutWork> timed_out_work_of(const RankSnapshot& rank);

// The members of a collective's group, as ranks of the job: all of them in the default group, else those that the
// process's memory or its Flight Recorder states of the group of that name. Empty: not known.
std::vector<int> members_of_group(const RankSnapshot& rank, const TimedOutWork& work);

// "all-gather", "all-gather 38 of group default_pg", "all-reduce 5 of group 3 (tp)"
std::string describe_operation(const TimedOutWork& work);
std::string describe_work(const TimedOutWork& work);
// "group default_pg", "group 3 (tp)"; "" if the text does not name it.
std::string describe_group(const TimedOutWork& work);
// "after 12 s"; "" if the text does not say it.
std::string describe_timeout(const TimedOutWork& work);

}  // namespace rankstacks::analyzers
