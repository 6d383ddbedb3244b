// Dumps of PyTorch's Flight Recorder that are given as files, as other tools' dumps are: old issues have them, and
// nothing else of the job.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "model/snapshot.h"

namespace rankstacks::cli {

// Whether the text is such a dump (a pickle, or JSON), or a page of torch's debug server with those of several ranks.
bool is_flight_record(std::string_view text);

// A rank without threads for each record, with a problem that says so. `rank`: of the only record, where the number at
// the end of the name ("nccl_trace_rank_3") does not count. Errors: kMalformed, kUnsupported, kLimit; kNotFound: no
// rank is known.
Result<JobSnapshot> read_flight_record(std::string_view text, const std::string& path, std::optional<int> rank);

// A record of a rank of which there are stacks as well becomes that rank's, if it has none. Of several records of one
// rank the last is kept.
void fold_flight_records(JobSnapshot& job);

}  // namespace rankstacks::cli
