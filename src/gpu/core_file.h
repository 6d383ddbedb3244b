// A GPU core, as CUDA writes it on an exception or when it is asked to: for each device of the process the state that a debugger would have seen.
//
// Any size: the GPU's memory in it is mapped and never touched. Not trusted: the walk from devices down to lanes follows the section headers' links,
// level by level, so that it ends; what it takes is bounded below.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/result.h"
#include "base/types.h"
#include "gpu/device_state.h"
#include "model/snapshot.h"

namespace rankstacks::gpu {

struct GpuCore {
  std::vector<DeviceState> devices;        // that have a context of the process, or something on them; in the core's order
  std::vector<Tid> threads;                // of the process: those that own the contexts
  std::string driver;                      // "580.159"; empty: the core does not say
  std::optional<std::chrono::system_clock::time_point> written;
  std::vector<Problem> problems;
  bool partial = false;                    // something that belongs to it could not be read
};

inline constexpr std::size_t kMaxWarps = 1u << 18;         // in all: eight of the largest devices hold a third of it
inline constexpr std::uint64_t kMaxRows = 16u << 20;       // of all tables; those eight have 2.5 million threads
inline constexpr std::size_t kMaxReturns = 1024;           // of one thread
inline constexpr std::size_t kMaxImages = 256;             // of one device, of code that its warps are in
inline constexpr std::uint64_t kMaxImageBytes = 2ull << 30;   // in all; NCCL's is 190 MB

// Nothing: the file is none of a GPU's, or cannot be opened: the reader of other cores says what it is.
// Errors: it is a GPU's, and nothing can be read from it.
std::optional<Result<GpuCore>> read_gpu_core(const std::string& path, const Deadline& deadline = Deadline::never());

}  // namespace rankstacks::gpu
