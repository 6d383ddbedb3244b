// Formats everything known about the GPUs of one rank; and, for all ranks, the state of their GPUs and the kernels on
// them, with ranks that are alike on one line:
//
//     GPUs
//       0-6 (7 ranks): NVIDIA H200, 100 %, 71.2 of 140.8 GiB
//       7 (1 rank): NVIDIA H200, 0 %, 71.2 of 140.8 GiB  <- 0 % used, the others 100 %
//       > 7 (1 rank): no kernel
//       > 0-6 (7 ranks): ncclDevKernel_AllReduce_Sum_f32_RING_LL, 13 blocks of 512, 208 warps, most at +0x1230
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "model/snapshot.h"
#include "report/text_style.h"

namespace rankstacks::report {

// `most`: the number of lines below the heading. Empty if nothing is known about any GPU.
std::vector<std::string> gpu_lines(const JobSnapshot& job, const TextStyle& style, std::size_t width, std::size_t most);

// Every GPU of one rank in full: all data from NVML, all kernels with their places and device stacks, all exceptions.
std::vector<std::string> gpu_detail_lines(const JobSnapshot& job, std::size_t rank, const TextStyle& style);

}  // namespace rankstacks::report
