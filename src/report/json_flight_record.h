// The member "flight_recorder" of a rank in the JSON report (docs/json.md), written and read.
#pragma once

#include "model/flight_record.h"
#include "report/json_node.h"
#include "report/json_text.h"

namespace rankstacks::report {

void write_flight_record(JsonText& json, const FlightRecord& record);

// Throws a Defect for a value that does not fit.
FlightRecord read_flight_record(const Node& node);

}  // namespace rankstacks::report
