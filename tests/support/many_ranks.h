// A job of many ranks, made of a saved report of few.
#pragma once

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <utility>

#include "model/snapshot.h"

namespace rankstacks::testing {

// The thread as another process has it, whose addresses differ by `away`.
inline ThreadSnapshot thread_elsewhere(const JobSnapshot& seed, ThreadSnapshot thread, std::uint64_t away, Tid tid,
                                       FrameTable& frames) {
  thread.tid = tid;
  for_each_frame(thread, [&](FrameId& id) {
    Frame frame = seed.frames[id];
    if (frame.kind == FrameKind::kNative) frame.address += away;
    id = frames.intern(std::move(frame));
  });
  return thread;
}

// The report's ranks are repeated under new numbers until there are `ranks`, and the threads of each until it has
// `threads` (0: as many as it had). Addresses differ from rank to rank, as in a real job. `only`: after each rank once,
// only this one is repeated. `with_children`: each is followed by its child processes as they are, under new numbers.
inline JobSnapshot many_ranks(const JobSnapshot& seed, std::size_t ranks, std::size_t threads,
                              std::optional<std::size_t> only = {}, bool with_children = false) {
  constexpr Pid kPerRank = 1000;
  JobSnapshot job;
  job.tool_version = seed.tool_version;
  job.captured_at = seed.captured_at;
  std::size_t made = 0;
  for (std::size_t r = 0; made < ranks; ++r) {
    const RankSnapshot& from = seed.ranks[only && r >= seed.ranks.size() ? *only : r % seed.ranks.size()];
    if (from.kind != RankKind::kRank || from.threads.empty()) continue;
    RankSnapshot rank = from;
    rank.rank = static_cast<int>(made);
    rank.world_size = static_cast<int>(ranks);
    rank.pid = static_cast<Pid>(made + 1) * kPerRank;
    rank.threads.clear();
    for (GpuSnapshot& gpu : rank.gpus)
      for_each_frame(gpu, [&](FrameId& id) { id = job.frames.intern(Frame(seed.frames[id])); });
    const std::uint64_t away = made << 32;
    const std::size_t count = threads == 0 ? from.threads.size() : threads;
    for (std::size_t t = 0; rank.threads.size() < count; ++t)
      rank.threads.push_back(thread_elsewhere(seed, from.threads[t % from.threads.size()], away,
                                              rank.pid + static_cast<Tid>(rank.threads.size()), job.frames));
    Pid next = rank.pid + kPerRank / 2;
    const Pid parent = rank.pid;
    job.ranks.push_back(std::move(rank));
    ++made;
    if (!with_children) continue;
    for (const RankSnapshot& one : seed.ranks) {
      if (one.kind != RankKind::kChild || one.parent != from.pid || one.host != from.host) continue;
      RankSnapshot child = one;
      child.parent = parent;
      child.pid = next;
      for (ThreadSnapshot& thread : child.threads) thread = thread_elsewhere(seed, thread, away, next++, job.frames);
      job.ranks.push_back(std::move(child));
    }
  }
  return job;
}

}  // namespace rankstacks::testing
