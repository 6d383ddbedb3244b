// Dumps of PyTorch's Flight Recorder that are given as files, as other tools' dumps are: old issues have them, and
// nothing else of the job.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model/snapshot.h"

namespace rankstacks::cli {

// A rank without threads for each record of such a dump (a pickle, or JSON), or of a page of torch's debug server with
// those of several ranks, with a problem that says so; std::nullopt: the text is neither. `rank`: of the only record,
// whose name does not count then ("nccl_trace_rank_3"). Errors: kMalformed, kUnsupported, kLimit; kNotFound: no rank is
// known.
std::optional<Result<JobSnapshot>> read_flight_record(std::string_view text, const std::string& path,
                                                      std::optional<int> rank);

// Takes out of the job the ranks of which there is a record and nothing else.
std::vector<RankSnapshot> take_flight_records(JobSnapshot& job);

// Gives them back. A record of a rank of which there are stacks as well becomes that rank's. Of several records of one
// process the newest is kept. One whose last call was much earlier than those of others is of another time: its age
// says so, and a problem.
void fold_flight_records(JobSnapshot& job, std::vector<RankSnapshot> records);

}  // namespace rankstacks::cli
