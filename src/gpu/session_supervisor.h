// Starts the helper processes of GPU sessions, all at once, collects what they report, and frees the processes of those
// helpers that are killed on the way. Helpers that take too long are left: they end their sessions by themselves.
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

// How long sessions are waited for, from their beginning. A session takes 0.1 to 3 s, but one whose GPU is also used by
// others may take much longer to pause it; its process is held up already, then, and its state is near.
struct SessionLimits {
  std::chrono::steady_clock::duration until_paused, in_all;
};

// One outcome for each target, in their order. Processes of helpers that were killed are freed, for which it takes at
// most kFreeingLimit more.
inline constexpr std::chrono::seconds kFreeingLimit{30};
std::vector<SessionOutcome> hold_sessions(const std::vector<SessionTarget>& targets, const Machine& machine,
                                          const SessionLimits& limits);

}  // namespace rankstacks::gpu
