// The files that a process of a core had loaded and that are not on this machine, in JSON (docs/json.md).
#pragma once

#include "model/snapshot.h"
#include "report/json_node.h"
#include "report/json_text.h"

namespace rankstacks::report {

// The member `missing_files` of a rank; none if no file is missing.
void write_missing_files(JsonText& json, const RankSnapshot& rank);
void read_missing_files(const Node& rank_node, RankSnapshot& rank);

}  // namespace rankstacks::report
