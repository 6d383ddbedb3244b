// Determines a rank's place in the grid of a job that combines several kinds of parallelism: from the process groups
// that its framework has in memory (python/rank_values.h), else from the sizes on its command line and in its
// environment.
//
// A framework numbers its ranks by a fixed order of the axes, here with the fastest axis last:
//
//     Megatron-LM, NeMo, Megatron-DeepSpeed     pp dp cp tp      with --use-tp-pp-dp-mapping  dp pp cp tp;
//                                                                the expert axis is a part of dp
//     DeepSpeed, PipeModelDataParallelTopology  pp dp tp         (pipe, data, model)
//     torchtitan                                pp dp_replicate dp_shard cp tp
//     Accelerate with Megatron-LM               as Megatron-LM, from MEGATRON_LM_TP_DEGREE and MEGATRON_LM_PP_DEGREE
//
// Sources: megatron/core/parallel_state.py (RankGenerator) and megatron/training/initialize.py;
// deepspeed/runtime/pipe/topology.py; torchtitan/distributed/parallel_dims.py; accelerate/utils/launch.py.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>

#include "model/snapshot.h"

namespace rankstacks::capture {

// `environment`: with the values that python::read_rank_values() has found. std::nullopt if no sizes are given, if they
// do not fit the world size, or if the framework may use other sizes (a checkpoint's, an encoder's). If a settings file
// may contain more sizes than the command line (torchtitan, NeMo), only those axes are returned whose place follows
// from the given sizes.
std::optional<Coordinates> coordinates_of(std::span<const std::string> command,
                                          const std::map<std::string, std::string>& environment,
                                          std::optional<int> rank, std::optional<int> world_size);

}  // namespace rankstacks::capture
