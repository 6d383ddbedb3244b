// The signal that a process has died of, and what faulthandler has done with it, in the JSON report's form
// (docs/json.md).
#pragma once

#include "model/snapshot.h"
#include "report/json_node.h"
#include "report/json_text.h"

namespace rankstacks::report {

void write_signal(JsonText& json, const SignalInfo& signal);
SignalInfo read_signal(const Node& node);

// With its key.
void write_faulthandler(JsonText& json, const Faulthandler& faulthandler);
Faulthandler read_faulthandler(const Node& node);

}  // namespace rankstacks::report
