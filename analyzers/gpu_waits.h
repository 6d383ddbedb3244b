// Where ranks stand by what runs on their GPUs, which decides over their CPUs' stacks: those name what was launched last, and that may be the
// next operation already.
//
//     some GPUs in a collective's kernel, the others not     the ones wait, the others are elsewhere: `gpu-wait` where another kernel runs or
//                                                            where the CPU waits for the GPU like theirs, else what the CPU's stack tells
//     all in kernels, of different collectives               they wait in these
//     all in the same                                        as the CPUs' stacks and NCCL's counts tell
//     no kernel of a collective                              who waits for its GPU while another kernel runs there, waits for no rank
//     nothing known of kernels, one GPU at 0 %, others 100 % the one is elsewhere
#pragma once

#include <vector>

#include "analyzers/rank_state.h"

namespace rankstacks {

// After everything else that the states tell.
void refine_by_gpus(const JobSnapshot& job, std::vector<RankState>& states);

// "waits for its GPU, which runs spin (1 block of 32)"; empty: its GPU tells nothing.
std::string describe_gpu_wait(const RankState& state);

// Utilisation of the GPU that is used most, by NVML, in percent. Nothing: unknown, or other processes use the GPU too.
std::optional<double> utilization_of(const RankSnapshot& rank);

}  // namespace rankstacks
