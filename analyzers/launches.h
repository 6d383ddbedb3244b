// What NCCL's own counts show of ranks that all wait for their GPUs: which has launched another collective than the
// others, or none.
//
// Frames name no collective in that case: it was launched earlier, and the rank waits in some synchronisation. RAS
// counts launches per communicator:
//
//     AllReduce 4 | AllReduce 3, AllGather 1                         another collective; so it is where each side has
//                                                                    launched more of something than the other
//     communicator A: rank 1 lags; communicator B: the others lag    groups in another order
//     one rank lags                                                  it waits for its GPU for another reason; or, if it
//                                                                    has a communicator of two ranks that never ran a
//                                                                    collective, for a message (these are not counted)
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "analyzers/accusation.h"

namespace rankstacks::analyzers {

// std::nullopt if there are no counts, or if they are equal.
std::optional<Deadlock> explain_by_launches(const JobSnapshot& job, const std::vector<RankState>& states);

// Ranks that wait on the host and have not launched what the others of a communicator wait for on their GPUs.
std::optional<Deadlock> explain_by_skipped_launch(const JobSnapshot& job, const std::vector<RankState>& states);

// Whether these states, which are indices into `states`, share a communicator, and none that waits for its GPU has
// launched less than another: if they wait at different places, they do not wait for one that is late.
bool none_launched_too_little(const JobSnapshot& job, const std::vector<RankState>& states,
                              const std::vector<std::size_t>& waiting);

// Whether these share a communicator, and have launched the same on every communicator: then no collective of NCCL
// waits for any of them, except behind other work on a GPU.
bool all_launched_the_same(const JobSnapshot& job, const std::vector<RankState>& states,
                           const std::vector<std::size_t>& waiting);

// Ranks that go round in one Python function and count nothing, and that have launched a collective which another rank
// has not: they ask again and again whether it has finished, and wait for their GPUs.
void refine_by_launches(const JobSnapshot& job, std::vector<RankState>& states);

// How much the ranks have launched on each communicator.
class LaunchCounts {
 public:
  // The job must outlive it.
  explicit LaunchCounts(const JobSnapshot& job);
  // Whether two ranks, indices into JobSnapshot::ranks, have launched the same on all communicators that they share.
  bool are_equal(std::size_t a, std::size_t b) const;
  // Whether they share a communicator whose launches were counted.
  bool share_some(std::size_t a, std::size_t b) const;
  // Whether a rank has launched a collective that cannot end, since another member of the communicator, whose part in
  // it is needed, has launched fewer of them.
  bool has_one_that_cannot_end(std::size_t a) const;

 private:
  using Launched = std::vector<std::pair<std::string, std::int64_t>>;
  std::vector<std::vector<std::pair<std::size_t, const Launched*>>> of_rank_;  // by communicator, ascending
  std::map<std::pair<std::size_t, std::string>, std::int64_t> least_;  // by communicator and collective of all members
};

// Whether the counts of this process increased between the two answers.
bool launches_go_on(const JobSnapshot& job, const RankSnapshot& rank);

}  // namespace rankstacks::analyzers
