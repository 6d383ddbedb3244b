#include "known/rank_values.h"

namespace rankstacks::known {
namespace {

// clang-format off
constexpr RankValueRule kRules[] = {
    {"jax._src.distributed", "global_state.process_id", "jax:process_id", "jax _src/distributed.py: State, set by jax.distributed.initialize"},
    {"jax._src.distributed", "global_state.num_processes", "jax:num_processes", "jax _src/distributed.py: State"},
    {"jax._src.distributed", "global_state.coordinator_address", "jax:coordinator_address", "jax _src/distributed.py: State"},
    {"vllm.distributed.parallel_state", "_WORLD.rank", "vllm:rank", "vllm distributed/parallel_state.py: GroupCoordinator"},
    {"vllm.distributed.parallel_state", "_WORLD.world_size", "vllm:world_size", "vllm distributed/parallel_state.py: GroupCoordinator"},
    {"vllm.distributed.parallel_state", "_WORLD.local_rank", "vllm:local_rank", "vllm distributed/parallel_state.py: GroupCoordinator"},
    {"sglang.srt.distributed.parallel_state", "_WORLD.rank", "sglang:rank", "sglang srt/distributed/parallel_state.py: GroupCoordinator"},
    {"sglang.srt.distributed.parallel_state", "_WORLD.world_size", "sglang:world_size", "sglang srt/distributed/parallel_state.py: GroupCoordinator"},
};
// clang-format on

}  // namespace

std::span<const RankValueRule> rank_values() { return kRules; }

}  // namespace rankstacks::known
