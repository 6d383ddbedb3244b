// What PyTorch's Flight Recorder, in dumps or in the ranks' memory, shows of ranks that all wait: under which number
// each has called which operation of which group.
//
//     number 4: all_reduce of 1024 Float | _all_gather_base     collective-mismatch: another operation, size or type
//     group A waits for rank 1, group B for the others          process-group-order
//     one rank has not called what the others wait in           behind at the place of another rank, else gpu-wait
//     a message whose peer waits in a collective                unmatched-p2p; so are messages in a circle
//
// Groups are distinguished by their names and their members. What a dump does not show accuses nobody: a group whose
// members are not known, a rank without a dump, a dump that is not of the time of the stacks. Ranks call operations
// long before their GPUs come to them; so only the first operation that has not ended counts.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "analyzers/accusation.h"

namespace rankstacks::analyzers {

// Whether the rank has a dump that was written at about the time of its stacks: a minute of a live rank's; any time of
// dumps, which are named together with it; 15 minutes of a core's, as the watchdogs dump before they end their
// processes, and large cores take their time.
bool has_present_record(const RankSnapshot& rank);

// std::nullopt if the dumps show no difference.
std::optional<Deadlock> explain_by_flight_records(const JobSnapshot& job, const std::vector<RankState>& states,
                                                  const std::vector<std::vector<known::Role>>& roles);

// "all_reduce, number 9 of group 0": the first operation that has not ended, if the dump is of this time and has only
// one group with such operations; else "".
std::string describe_recorded_wait(const JobSnapshot& job, const RankSnapshot& rank,
                                   const std::vector<known::Role>& roles);

// The numbers of the ranks in the group of that operation; empty if it is not known.
std::vector<int> members_of_recorded_wait(const JobSnapshot& job, const RankSnapshot& rank,
                                          const std::vector<known::Role>& roles);

// Indices into JobSnapshot::ranks of those that have called a collective that has not ended, and that another of their
// group has not called.
std::set<std::size_t> ranks_ahead_by_record(const JobSnapshot& job);
// Those of them that need something of each other rank: a broadcast or a scatter has what it needs from one alone.
std::set<std::size_t> ranks_that_need_all_by_record(const JobSnapshot& job);

// Numbers of the ranks that are members of a group in which another one waits, and of which there is no record; sorted.
std::vector<int> members_without_record(const JobSnapshot& job);

// One group whose ranks differ in what they have called or in what has ended.
struct RecordedPosition {
  std::vector<std::size_t> ranks;  // indices into JobSnapshot::ranks
  std::string text;                // "called 4, ended 3, waits in all_reduce of 1024 Float"
};
struct RecordedDifference {
  std::string group;  // "group 0 (default_pg)"
  std::vector<RecordedPosition> positions;
};
std::vector<RecordedDifference> recorded_differences(const JobSnapshot& job);

}  // namespace rankstacks::analyzers
