// A capture as a report: its memory says what the threads' frames are, its own notes what no core can say.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "base/result.h"
#include "capture/capture_job.h"
#include "model/snapshot.h"

namespace rankstacks::cli {

// The job with one rank alone, and without what the memory of its capture says: what its notes have to hold.
JobSnapshot facts_of_rank(const JobSnapshot& job, std::size_t rank);

// The other way round: cores that were read, of which some are captures. One snapshot for each capture, as it was when
// it was made, and one for all other cores, if there are any. Notes that cannot be read become problems of their rank.
std::vector<JobSnapshot> join_facts(JobSnapshot cores, const capture::NotedReports& noted);

}  // namespace rankstacks::cli
