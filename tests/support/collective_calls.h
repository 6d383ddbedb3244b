// Ranks in calls of torch.distributed, for tests of what the analyzers make of ranks that all wait.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "analyzers/analysis.h"
#include "support/literal_job.h"

namespace rankstacks::testing {

inline const std::string kC10d = kPackages + "torch/distributed/distributed_c10d.py";

// A call of torch.distributed at a line of main, over gloo.
inline Stack in_call(const std::string& function, int line) {
  return Stack{libc("pthread_cond_wait"), nat("gloo::transport::tcp::UnboundBuffer::waitRecv(int*)"),
               py(function, kC10d, 2000)} +
         in_main(line);
}

// The arguments of the call, and the step that main is at.
inline void arguments(RankSnapshot& rank, std::optional<ProcessGroup> group,
                      std::vector<std::pair<std::string, std::int64_t>> numbers = {}, std::optional<int> step = {}) {
  rank.threads[0].variables.push_back({.frame = 2, .numbers = std::move(numbers), .group = std::move(group)});
  if (step) rank.threads[0].variables.push_back({.frame = 3, .numbers = {{"step", *step}}, .group = {}});
}

inline const ProcessGroup kWorld{"0", {0, 1, 2, 3}};

inline std::map<int, std::string> accused(const LiteralJob& literal) {
  std::map<int, std::string> reasons;
  for (const analyzers::Suspect& s : analyzers::analyze(literal.job).verdict.suspects)
    reasons[s.rank == SIZE_MAX ? s.missing_rank : *literal.job.ranks[s.rank].rank] = to_string(s.reason);
  return reasons;
}
using Accused = std::map<int, std::string>;

}  // namespace rankstacks::testing
