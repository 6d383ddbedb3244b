#include "known/collective_kernels.h"

#include "base/text.h"

namespace rankstacks::known {
namespace {

using C = Collective;

// clang-format off
constexpr CollectiveKernel kKernels[] = {
    {"cross_device_reduce_", C::kAllReduce, "vllm, sglang csrc/custom_all_reduce.cuh"},
    {"allreduce_prototype_twoshot", C::kAllReduce, "vllm, sglang csrc/quickreduce/quick_reduce.h"},
    {"one_shot_all_reduce_kernel", C::kAllReduce, "pytorch c10d/symm_mem/CUDASymmetricMemoryOps.cu"},
    {"two_shot_all_reduce_kernel", C::kAllReduce, "pytorch c10d/symm_mem/CUDASymmetricMemoryOps.cu"},
    {"multimem_all_reduce_kernel", C::kAllReduce, "pytorch c10d/symm_mem/CUDASymmetricMemoryOps.cu"},
    {"multimem_one_shot_all_reduce_kernel", C::kAllReduce, "pytorch c10d/symm_mem/CUDASymmetricMemoryOps.cu"},
    {"multimem_all_gather_kernel", C::kAllGather, "pytorch c10d/symm_mem/CUDASymmetricMemoryOps.cu"},
    {"symmetric_memory::barrier_kernel", C::kBarrier, "pytorch c10d/symm_mem/CUDASymmetricMemory.cu"},
    {"symmetric_memory::put_signal_kernel", C::kSendRecv, "pytorch c10d/symm_mem/CUDASymmetricMemory.cu: until the peer has taken the last one"},
    {"symmetric_memory::wait_signal_kernel", C::kSendRecv, "pytorch c10d/symm_mem/CUDASymmetricMemory.cu: until the peer has put one"},
    {"oneShotAllReduceKernel", C::kAllReduce, "pytorch c10d/intra_node_comm.cu, TensorRT-LLM kernels/customAllReduceKernels.cu"},
    {"twoShotAllReduceKernel", C::kAllReduce, "pytorch c10d/intra_node_comm.cu, TensorRT-LLM kernels/customAllReduceKernels.cu"},
    {"allreduce_fusion_kernel", C::kAllReduce, "FlashInfer, TensorRT-LLM kernels/communicationKernels/allReduceFusionKernels.cu"},
    {"stream_executor::gpu::AllReduceKernelImpl", C::kAllReduce, "xla stream_executor/gpu/all_reduce_kernel_lib.cu.h"},
    {"deep_ep::", C::kUnknown, "DeepEP csrc/kernels: dispatch, combine, barriers"},
    {"kuserbuffers_", C::kUnknown, "TransformerEngine comm_gemm_overlap/userbuffers/userbuffers.cu: pushes, receives"},
    {"userbuffers_fp16_sum_inplace", C::kUnknown, "TransformerEngine comm_gemm_overlap/userbuffers/userbuffers.cu: reductions, gathers"},
    {"msccl", C::kUnknown, "RCCL's MSCCL, MSCCL++"},
    {"nvshmemi_", C::kUnknown, "nvshmem src/device: barriers and collectives on a stream"},
    {"barrier_on_stream_kernel", C::kBarrier, "nvshmem src/device/launch, comm_gemm: nvshmemx_barrier_on_stream"},
    {"sync_on_stream_kernel", C::kBarrier, "nvshmem src/device/launch: nvshmemx_sync_on_stream"},
};
// clang-format on

}  // namespace

std::span<const CollectiveKernel> collective_kernels() { return kKernels; }

std::optional<Collective> operation_of_kernel(std::string_view name) {
  for (const CollectiveKernel& kernel : kKernels)
    if (contains(name, kernel.part)) return kernel.operation;
  return std::nullopt;
}

}  // namespace rankstacks::known
