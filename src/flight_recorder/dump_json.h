// The JSON form of a dump (torch's _dump_nccl_trace_json, _dump_fr_trace_json).
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "flight_recorder/document.h"

namespace rankstacks::flight_recorder {

// Errors: kMalformed: not JSON; kLimit: too many values, or nested too deep.
Result<Document> read_json(std::string_view text, const std::string& subject);

}  // namespace rankstacks::flight_recorder
