// What the kernels on a rank's GPUs tell: one of a collective, which waits for the other ranks; another one; none.
//
// NCCL's kernels poll until all ranks of their communicator have arrived, so that one of them on the device says where the rank stands in the
// program's order of work, whatever its CPU has launched since. Several kernels may be resident at once: a collective's counts first.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "analyzers/operation.h"
#include "model/snapshot.h"

namespace rankstacks {

enum class GpuActivity {
  kUnknown,      // its GPUs were not looked at, or a kernel has no name
  kIdle,         // no kernel is resident
  kCollective,
  kKernel,       // a kernel that is no collective
  kException,
};

// kAllReduce of ncclDevKernel_AllReduce_Sum_f32_RING_LL(...); kUnknown of a kernel that serves several; nothing: it is no collective.
std::optional<Collective> collective_of(std::string_view function);

// For people: no arguments, no template arguments. "at::native::vectorized_elementwise_kernel". Not sanitized.
std::string kernel_name(std::string_view function);

// Points into the snapshot.
struct GpuState {
  GpuActivity activity = GpuActivity::kUnknown;
  std::vector<Collective> collectives;            // ascending, unique; kCollective only
  const GpuKernel* kernel = nullptr;              // that tells: kCollective, kKernel
  const GpuException* exception = nullptr;

  bool in_collective() const { return activity == GpuActivity::kCollective; }
  // Which collective it is, is known.
  bool named() const { return in_collective() && collectives.front() != Collective::kUnknown; }
  // Sends and receives alone: of the ranks only its peers are needed.
  bool only_messages() const { return collectives.size() == 1 && collectives.front() == Collective::kSendRecv; }
};

// `frames`: the job's. A kernel that serves several collectives is told by the function that its warps are in (ncclDevFunc_AllReduce_...).
GpuState gpu_state_of(const FrameTable& frames, const RankSnapshot& rank);

// Ranks whose GPUs do the same: run a collective of one name, another kernel, nothing, or ran into an exception of one kind.
struct GpuCluster {
  GpuState state;                                 // of its first rank
  std::vector<std::size_t> ranks;                 // indices into JobSnapshot::ranks, ascending
};

// Of the ranks whose GPUs were looked at: exceptions first, those in collectives last.
std::vector<GpuCluster> gpu_clusters(const JobSnapshot& job);

// Whether two ranks may be in one collective: some kernel of the one is also the other's, or which it is, is not known.
bool may_be_same_collective(const GpuState& a, const GpuState& b);

// "AllReduce", "AllGather and SendRecv"; "a collective" where that is not known.
std::string name_collectives(const GpuState& state);

// "spin (1 block of 32)": the kernel that tells, or of an exception. Not sanitized.
std::string describe_kernel(const GpuKernel& kernel);

// "illegal address in kernel oops, block (3,0,0) thread (17,0,0)". Not sanitized.
std::string describe_exception(const GpuException& exception);

// "13 blocks of 512", "(2,4,1) blocks of (32,8,1)"
std::string describe_launch(const GpuKernel& kernel);

}  // namespace rankstacks
