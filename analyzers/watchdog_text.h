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

#include "analyzers/accusation.h"

namespace rankstacks::analyzers {

// The oldest operation of a process group that has not finished.
struct TimedOutWork {
  std::string group;  // "0(default_pg)", the same on all of its ranks; "" if the text does not name it
  std::int64_t sequence = 0;
  std::string operation;  // "_ALLGATHER_BASE", as c10d::OpType
  std::int64_t elements_in = 0, elements_out = 0;
  bool operator==(const TimedOutWork&) const = default;
};
std::optional<TimedOutWork> timed_out_work(std::string_view text);

// Whether NCCL found that ranks have called a collective with different sizes: a message did not fit where the other
// rank expected it ("message truncated", of NCCL 2.28's socket transport).
bool says_other_size(std::string_view text);

// Ranks that wait, and whose watchdogs name different operations, or different sizes, under one number of one group.
// std::nullopt if there are no such texts.
std::optional<Deadlock> explain_by_watchdogs(const JobSnapshot& job, const std::vector<RankState>& states);

}  // namespace rankstacks::analyzers
