// The processes of a job, found as a capture finds them; nothing is stopped for it.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "capture/capture_job.h"

namespace rankstacks::capture {

struct FoundProcess {
  Pid pid = 0;
  RankKind kind = RankKind::kRank;
  std::optional<int> rank;                         // of a rank, if it is known
  std::uint64_t start_ticks = 0;                   // 0: not known
  std::map<std::string, std::string> environment;  // of a rank
  std::vector<std::string> command;                // of a rank
};

struct FoundJob {
  std::vector<FoundProcess> processes;  // each rank is followed by its children
  std::optional<NotChosen> not_chosen;  // LiveRequest::job chooses none
};

// `limit` is for each process that does not answer, `silence` for each of its waits (Unattended::silence).
FoundJob find_job(const LiveRequest& request, std::chrono::steady_clock::duration limit,
                  std::chrono::steady_clock::duration silence = std::chrono::steady_clock::duration::max());

}  // namespace rankstacks::capture
