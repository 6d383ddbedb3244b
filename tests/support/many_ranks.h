// A job of many ranks, made of a saved report of few.
#pragma once

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <utility>

#include "model/snapshot.h"

namespace rankstacks::testing {

// The report's ranks are repeated under new numbers until there are `ranks`, and the threads of each until it has
// `threads` (0: as many as it had). Addresses differ from rank to rank, as in a real job. `only`: after each rank once,
// only this one is repeated.
inline JobSnapshot many_ranks(const JobSnapshot& seed, std::size_t ranks, std::size_t threads,
                              std::optional<std::size_t> only = {}) {
  JobSnapshot job;
  job.tool_version = seed.tool_version;
  job.captured_at = seed.captured_at;
  for (std::size_t r = 0; job.ranks.size() < ranks; ++r) {
    const RankSnapshot& from = seed.ranks[only && r >= seed.ranks.size() ? *only : r % seed.ranks.size()];
    if (from.kind != RankKind::kRank || from.threads.empty()) continue;
    RankSnapshot rank = from;
    rank.rank = static_cast<int>(job.ranks.size());
    rank.world_size = static_cast<int>(ranks);
    rank.pid = 1000 + static_cast<Pid>(job.ranks.size()) * 1000;
    rank.threads.clear();
    const std::size_t count = threads == 0 ? from.threads.size() : threads;
    for (std::size_t t = 0; rank.threads.size() < count; ++t) {
      ThreadSnapshot thread = from.threads[t % from.threads.size()];
      thread.tid = rank.pid + static_cast<Tid>(rank.threads.size());
      for_each_frame(thread, [&](FrameId& id) {
        Frame frame = seed.frames[id];
        if (frame.kind == FrameKind::kNative) frame.address += job.ranks.size() << 32;
        id = job.frames.intern(std::move(frame));
      });
      rank.threads.push_back(std::move(thread));
    }
    job.ranks.push_back(std::move(rank));
  }
  return job;
}

}  // namespace rankstacks::testing
