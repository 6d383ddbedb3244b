#include "diff/side.h"

#include <optional>
#include <utility>
#include <vector>

namespace rankstacks::diff {

Sides with_common_frames(Side old, Side now) {
  FrameTable& common = old.job.frames;
  std::vector<std::optional<FrameId>> renumbered(now.job.frames.size());
  const auto renumber = [&](FrameId& id) {
    if (!renumbered[id]) renumbered[id] = common.intern(now.job.frames[id]);
    id = *renumbered[id];
  };
  for (RankSnapshot& rank : now.job.ranks) {
    for (ThreadSnapshot& thread : rank.threads) for_each_frame(thread, renumber);
    for (GpuSnapshot& gpu : rank.gpus) for_each_frame(gpu, renumber);
  }
  for (analyzers::Cluster& cluster : now.analysis.clusters)
    for (FrameId& id : cluster.frames) renumber(id);
  now.job.frames = common;
  return {std::move(old), std::move(now)};
}

}  // namespace rankstacks::diff
