// Starts the helper processes of GPU sessions, all at once, collects what they report, and frees the processes of those
// helpers that are killed on the way.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "base/types.h"
#include "gpu/machine.h"
#include "gpu/session_answer.h"
#include "target/process_id.h"

namespace rankstacks::gpu {

struct SessionTarget {
  target::ProcessId process;             // a pid that another process has by now is not touched
  std::optional<std::string> core_path;  // also write a lightweight GPU core there
  std::uint64_t core_limit = 0;          // bytes
};

struct SessionOutcome {
  std::optional<SessionAnswer> answer;
  std::optional<Error> error;     // why there is none
  std::vector<Problem> problems;  // of the session itself: killed, hung, freed
};

// One outcome for each target, in their order. A session takes 0.1 to 1.5 s; those still under way after `limit` are
// ended, and their processes freed (within at most kFreeingLimit more).
inline constexpr std::chrono::seconds kFreeingLimit{30};
std::vector<SessionOutcome> hold_sessions(const std::vector<SessionTarget>& targets, const Machine& machine,
                                          std::chrono::steady_clock::duration limit);

}  // namespace rankstacks::gpu
