// Where ranks are in the program, determined from what runs on their GPUs. This takes precedence over the CPU's
// stacks, which name what was launched last; that may already be the next operation.
//
//     some GPUs in a collective's kernel, others not        the former wait, the latter are elsewhere: `gpu-wait` if
//                                                           another kernel runs or if the CPU waits for the GPU as the
//                                                           others' CPUs do, else what the CPU's stack shows
//     all in kernels, of different collectives              they wait in these
//     all in kernels of the same collective                 decided by the CPUs' stacks and NCCL's counts
//     no kernel of a collective                             a rank that waits for its GPU while another kernel runs
//                                                           there waits for no other rank
//     kernels unknown, one GPU at 0 %, the others at 100 %  the one is elsewhere
//     kernels unknown, all at 100 %, few draw much power    these compute, and the others wait for them
#pragma once

#include <vector>

#include "analyzers/rank_state.h"

namespace rankstacks::analyzers {

// Finds RankState::gpu_computes: by NVML, a kernel runs most of the time, and the GPU draws much of the power that it
// may draw. (An H200 of 700 W draws 125 W while NCCL polls, and 470 to 520 W in matrix products.) It stays empty if
// that is not known, or if a process that is not of the job uses the GPU too.
void find_computing_gpus(const JobSnapshot& job, std::vector<RankState>& states);

// Refines the states by what runs on the GPUs; to be called after all other steps.
void refine_by_gpus(const JobSnapshot& job, std::vector<RankState>& states);

// "waits for its GPU, which runs spin (1 block of 32)". Empty if the GPU shows nothing.
std::string describe_gpu_wait(const RankState& state);

// Utilisation in percent, according to NVML, of the GPU that is used most. std::nullopt if it is unknown, or if other
// processes use the GPU too.
std::optional<double> utilization_of(const RankSnapshot& rank);

}  // namespace rankstacks::analyzers
