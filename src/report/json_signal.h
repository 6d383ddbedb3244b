// The signal that a process has died of, in the JSON report's form (docs/json.md).
#pragma once

#include "model/snapshot.h"
#include "report/json_node.h"
#include "report/json_text.h"

namespace rankstacks::report {

void write_signal(JsonText& json, const SignalInfo& signal);
SignalInfo read_signal(const Node& node);

}  // namespace rankstacks::report
