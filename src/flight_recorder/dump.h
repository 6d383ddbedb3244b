// A dump of PyTorch's Flight Recorder (torch/csrc/distributed/c10d/FlightRecorder.hpp, versions 2.x; as of torch 2.11),
// pickle or JSON, reduced to what decides something.
//
//     {"version": "2.10",
//      "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}},
//      "pg_status": {"0": {"last_enqueued_collective": 4, ...}},          JSON: numbers as strings
//      "entries": [{"pg_id": 0, "process_group": ("0", "default_pg"), "collective_seq_id": 4, "p2p_seq_id": 0,
//                   "op_id": 4, "profiling_name": "nccl:all_reduce", "is_p2p": False, "state": "scheduled",
//                   "retired": False, "input_sizes": [[1024]], ..., "frames": [...]}]}   JSON: without frames
//
// Seen in real dumps: pg_status lags behind the entries; gloo's operations that have ended are "scheduled" and retired
// (NCCL's retired ones that are not completed have timed out); the messages of a batch are "scheduled" for ever, and
// the entry "coalesced" of the same numbers has their state.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "model/flight_record.h"

namespace rankstacks::flight_recorder {

// Keys that are missing have their defaults; a value of another type than torch writes is an error. Errors: kMalformed,
// kUnsupported (a pickle that is not plain data), kLimit. age_ms is not set.
Result<FlightRecord> read_dump(std::string_view bytes, const std::string& path);

}  // namespace rankstacks::flight_recorder
