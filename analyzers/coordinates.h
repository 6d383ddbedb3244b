// Ranks by their coordinates in the job's grid: which of them should be alike, and how they are named.
//
// The ranks of one pipeline stage run the same program on different data, so a rank that is elsewhere than the rest
// of its stage is odd. Stages differ by design.
#pragma once

#include <string>
#include <vector>

#include "model/snapshot.h"

namespace rankstacks::analyzers {

inline constexpr int kNoStage = -1;

// The pipeline stage of each process, by its index; kNoStage for children, processes without a rank number and ranks
// that could not be read. Empty if the coordinates of some rank are not known, if there is only one stage, or if some
// stage has only one rank, which has no other to compare with.
std::vector<int> pipeline_stages(const JobSnapshot& job);

// "pp 1, dp 0, tp 1": the axes that distinguish ranks. "" if they are not known, or if there is one such axis, which
// says no more than the rank's number.
std::string describe_coordinates(const JobSnapshot& job, std::size_t rank);

// "rank 5 (pp 1, dp 0, tp 1)"
std::string name_with_coordinates(const JobSnapshot& job, std::size_t rank);

// "all ranks of pipeline stage 1", "all ranks of pipeline stages 1,3". "" if the ranks are not exactly those of whole
// stages, if they are all ranks, or if not all ranks of the job were captured.
std::string whole_stages(const JobSnapshot& job, const std::vector<std::size_t>& ranks);

// "Megatron, from the command line": the source of the first rank whose coordinates are known. "" if there is none.
std::string coordinates_source(const JobSnapshot& job);

}  // namespace rankstacks::analyzers
