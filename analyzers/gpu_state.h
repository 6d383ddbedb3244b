// What the kernels on a rank's GPUs show: a kernel of a collective, which waits for the other ranks; another kernel;
// none.
//
// NCCL's kernels poll until all ranks of their communicator have arrived. Such a kernel on the device therefore shows
// where the rank is in the program's order of work, whatever its CPU has launched since. Several kernels may be
// resident at once; a kernel of a collective takes precedence.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "analyzers/operation.h"
#include "model/snapshot.h"

namespace rankstacks::analyzers {

enum class GpuActivity {
  kUnknown,  // its GPUs were not examined, or a kernel has no name
  kIdle,     // no kernel is resident
  kCollective,
  kKernel,  // a kernel that is no collective
  kException,
};

// kAllReduce for ncclDevKernel_AllReduce_Sum_f32_RING_LL(...); kUnknown for a kernel that serves several collectives;
// std::nullopt if the kernel belongs to no collective.
std::optional<known::Collective> collective_of(std::string_view function);

// For display, without arguments and template arguments: "at::native::vectorized_elementwise_kernel". Not sanitized.
std::string kernel_name(std::string_view function);

// The pointers are into the snapshot.
struct GpuState {
  GpuActivity activity = GpuActivity::kUnknown;
  std::vector<known::Collective> collectives;  // ascending, unique; kCollective only
  const GpuKernel* kernel = nullptr;           // the kernel that shows the activity: kCollective, kKernel
  const GpuException* exception = nullptr;
  // The grid of the collective's kernel ("1 block of 128"), if there is exactly one, and it is not of messages.
  std::optional<std::string> launch;
  // With `launch`, of NCCL's kernels: reduction, data type, algorithm and protocol ("MinMax f32 RING SIMPLE"), as far
  // as the names have them.
  std::optional<std::string> variant;

  bool in_collective() const { return activity == GpuActivity::kCollective; }
  // It is known which collective it is.
  bool named() const { return in_collective() && collectives.front() != known::Collective::kUnknown; }
  // Sends and receives only: of the other ranks only the peers are needed.
  bool only_messages() const { return collectives.size() == 1 && collectives.front() == known::Collective::kSendRecv; }
};

// Whether the only kernel of a collective on its GPUs is none of NCCL's, which does not count it.
bool runs_collective_of_another_library(const GpuState& state);

// Whether it was read what runs on a GPU of the rank's.
bool gpus_were_examined(const RankSnapshot& rank);

// `frames` is the job's table. A kernel that serves several collectives is identified by the function that its warps
// are in (ncclDevFunc_AllReduce_...).
GpuState gpu_state_of(const FrameTable& frames, const RankSnapshot& rank);

// Ranks whose GPUs do the same: run a collective of one name, run another kernel, are idle, or ran into an exception
// of one kind.
struct GpuCluster {
  GpuState state;                  // of its first rank
  std::vector<std::size_t> ranks;  // indices into JobSnapshot::ranks, ascending
};

// Clusters of the ranks whose GPUs were examined: exceptions first, ranks in collectives last.
std::vector<GpuCluster> gpu_clusters(const JobSnapshot& job);

// Whether two ranks have kernels of the same collective, but of different variants.
bool differ_in_variant(const GpuState& a, const GpuState& b);

// Whether two ranks may be in one collective: they have a kernel of the same collective and variant, launched with the
// same grid, or it is not known which collective it is. NCCL chooses the grid, the algorithm and the protocol by the
// size, the data type and the communicator, with the same result on all ranks; only for messages do the ranks differ.
bool may_be_same_collective(const GpuState& a, const GpuState& b);

// Whether all warps of a kernel were seen at one place: it computes nothing, but polls.
bool polls_at_one_place(const GpuKernel& kernel);

// "AllReduce", "AllGather and SendRecv"; "a collective" if that is not known.
std::string name_collectives(const GpuState& state);

// "spin (1 block of 32)": the kernel that shows the activity, or one with an exception. Not sanitized.
std::string describe_kernel(const GpuKernel& kernel);

// "illegal address in kernel oops, block (3,0,0) thread (17,0,0)". Not sanitized.
std::string describe_exception(const GpuException& exception);

// "13 blocks of 512", "(2,4,1) blocks of (32,8,1)"
std::string describe_launch(const GpuKernel& kernel);

}  // namespace rankstacks::analyzers
