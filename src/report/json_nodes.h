// The nodes that were asked, in JSON (docs/json.md).
#pragma once

#include "model/snapshot.h"
#include "report/json_node.h"
#include "report/json_text.h"

namespace rankstacks::report {

// The members `nodes` and `problems` of a report; neither if no node was asked.
void write_nodes(JsonText& json, const JobSnapshot& job);
// Reads `nodes`; `problems` follows from it.
void read_nodes(const Node& root, JobSnapshot& job);

// The word for a fault, as in `nodes[].fault`; "" for none.
std::string_view word_of_fault(NodeFault fault);

}  // namespace rankstacks::report
