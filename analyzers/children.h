// The processes that ranks have started: a loader worker that shows more than the stack of its rank, a child that the
// rank waits for, a child that has died.
#pragma once

#include <optional>
#include <vector>

#include "analyzers/rank_state.h"
#include "model/families.h"

namespace rankstacks::analyzers {

// It is a zombie, or does not exist any more.
bool is_dead(const RankSnapshot& process);

// Fills RankState::known_from_child, dead_child, child, awaited_children and reads_after_end of the ranks that wait, or
// may wait, for a child. Of a rank that reads the output of a child it also changes the activity. Dead children do not
// count if every rank that has arrived in a collective has as many.
void look_at_children(const JobSnapshot& job, const std::vector<std::vector<known::Role>>& roles,
                      const Families& families, std::vector<RankState>& states);

// The child at the other end of what a rank waits for, if that is one of its children alone.
std::optional<std::size_t> awaited_child(const JobSnapshot& job, const Families& families, const RankState& state);

// The child processes of a rank, if all that may do its work wait for each other in one collective, such as a barrier
// of multiprocessing.
struct MeetingOfChildren {
  Operation operation;
  std::size_t waiting = 0;         // children in it; 0 if some child does something else, or none is there
  std::vector<std::size_t> ended;  // indices of children that have ended, and would be missing there
};
MeetingOfChildren meeting_of_children(const JobSnapshot& job, const std::vector<std::vector<known::Role>>& roles,
                                      const Families& families, std::size_t rank);

}  // namespace rankstacks::analyzers
