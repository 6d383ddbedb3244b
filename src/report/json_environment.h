// What ranks run with, and what differs between them, in JSON (docs/versions.md).
#pragma once

#include <functional>
#include <vector>

#include "analyzers/differences.h"
#include "model/snapshot.h"
#include "report/json_node.h"
#include "report/json_text.h"

namespace rankstacks::report {

// The members `modules` and `environment` of a rank; neither if nothing is known.
void write_environment(JsonText& json, const RankSnapshot& rank);
void read_environment(const Node& rank_node, RankSnapshot& rank);

// `differences`, a member of the report. `label` writes the name of a rank.
void write_differences(JsonText& json, const JobSnapshot& job, const std::vector<analyzers::Difference>& differences,
                       const std::function<void(std::size_t)>& label);

}  // namespace rankstacks::report
