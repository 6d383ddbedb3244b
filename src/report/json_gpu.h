// Writes and reads ranks[].gpus[] of the JSON report. Members are named as in model/gpu.h; unknown or empty ones are
// left out.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "analyzers/gpu_state.h"
#include "model/snapshot.h"
#include "report/json_node.h"
#include "report/json_text.h"

namespace rankstacks::report {

// `frame_text`: one frame as a finished JSON value.
void write_gpus(JsonText& json, const std::vector<GpuSnapshot>& gpus,
                const std::function<const std::string&(FrameId)>& frame_text);

// Writes the GPU clusters, a member next to `ranks`. `label` writes the name of a rank, given its index.
void write_gpu_clusters(JsonText& json, const std::vector<analyzers::GpuCluster>& clusters,
                        const std::function<void(std::size_t)>& label);

// `read_frame`: reads and interns one frame. Throws Defect.
std::vector<GpuSnapshot> read_gpus(const Node& list, const std::function<FrameId(const Node&)>& read_frame);

}  // namespace rankstacks::report
