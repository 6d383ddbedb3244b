#include "known/group_axes.h"

namespace rankstacks::known {
namespace {

// clang-format off
constexpr GroupAxisRule kRules[] = {
    {"megatron.core.parallel_state", "_PIPELINE_MODEL_PARALLEL_GROUP", "pp", "Megatron", "Megatron-LM megatron/core/parallel_state.py; NeMo uses it too"},
    {"megatron.core.parallel_state", "_DATA_PARALLEL_GROUP", "dp", "Megatron", "Megatron-LM megatron/core/parallel_state.py"},
    {"megatron.core.parallel_state", "_CONTEXT_PARALLEL_GROUP", "cp", "Megatron", "Megatron-LM megatron/core/parallel_state.py"},
    {"megatron.core.parallel_state", "_EXPERT_MODEL_PARALLEL_GROUP", "ep", "Megatron", "Megatron-LM megatron/core/parallel_state.py"},
    {"megatron.core.parallel_state", "_TENSOR_MODEL_PARALLEL_GROUP", "tp", "Megatron", "Megatron-LM megatron/core/parallel_state.py"},
    {"vllm.distributed.parallel_state", "_PP.device_group", "pp", "vLLM", "vllm distributed/parallel_state.py: GroupCoordinator"},
    {"vllm.distributed.parallel_state", "_DP.device_group", "dp", "vLLM", "vllm distributed/parallel_state.py: GroupCoordinator"},
    {"vllm.distributed.parallel_state", "_EP.device_group", "ep", "vLLM", "vllm distributed/parallel_state.py: GroupCoordinator"},
    {"vllm.distributed.parallel_state", "_TP.device_group", "tp", "vLLM", "vllm distributed/parallel_state.py: GroupCoordinator"},
    {"sglang.srt.distributed.parallel_state", "_PP.device_group", "pp", "SGLang", "sglang srt/distributed/parallel_state.py: GroupCoordinator"},
    {"sglang.srt.distributed.parallel_state", "_MOE_EP.device_group", "ep", "SGLang", "sglang srt/distributed/parallel_state.py: GroupCoordinator"},
    {"sglang.srt.distributed.parallel_state", "_TP.device_group", "tp", "SGLang", "sglang srt/distributed/parallel_state.py: GroupCoordinator"},
    {"deepspeed.utils.groups", "mpu.pp_proc_group", "pp", "DeepSpeed", "deepspeed runtime/pipe/topology.py: PipelineParallelGrid, which runtime/engine.py gives to utils/groups.py"},
    {"deepspeed.utils.groups", "mpu.dp_proc_group", "dp", "DeepSpeed", "deepspeed runtime/pipe/topology.py: PipelineParallelGrid"},
    {"deepspeed.utils.groups", "mpu.slice_proc_group", "tp", "DeepSpeed", "deepspeed runtime/pipe/topology.py: PipelineParallelGrid"},
    {"deepspeed.utils.groups", "_DATA_PARALLEL_GROUP", "dp", "DeepSpeed", "deepspeed utils/groups.py: _init_tp_mesh_device"},
    {"deepspeed.utils.groups", "_TENSOR_MODEL_PARALLEL_GROUP", "tp", "DeepSpeed", "deepspeed utils/groups.py: _init_tp_mesh_device"},
};

constexpr MeshDimensionRule kDimensions[] = {
    {"pp", "pp", "torchtitan distributed/parallel_dims.py"},
    {"dp", "dp", "pytorch torch/distributed/device_mesh.py: the examples"},
    {"dp_replicate", "dp_replicate", "torchtitan distributed/parallel_dims.py; accelerate parallelism_config.py"},
    {"dp_shard", "dp_shard", "torchtitan distributed/parallel_dims.py; accelerate parallelism_config.py"},
    {"cp", "cp", "torchtitan distributed/parallel_dims.py; accelerate parallelism_config.py"},
    {"ep", "ep", "torchtitan distributed/parallel_dims.py"},
    {"tp", "tp", "torchtitan distributed/parallel_dims.py; accelerate parallelism_config.py; transformers"},
    {"replicate", "dp_replicate", "pytorch torch/distributed/fsdp/fully_sharded_data_parallel.py: HYBRID_SHARD"},
    {"shard", "dp_shard", "pytorch torch/distributed/fsdp/fully_sharded_data_parallel.py: HYBRID_SHARD"},
    {"data_parallel", "dp", "deepspeed utils/groups.py; lightning strategies/model_parallel.py"},
    {"tensor_parallel", "tp", "deepspeed utils/groups.py; lightning strategies/model_parallel.py"},
};
// clang-format on

}  // namespace

std::span<const GroupAxisRule> group_axes() { return kRules; }
std::span<const MeshDimensionRule> mesh_dimensions() { return kDimensions; }

}  // namespace rankstacks::known
