// A GPU core, as CUDA writes it on an exception or on request: for each device of the process, the state that a
// debugger would have seen.
//
// The file may have any size: the GPU memory in it is mapped and never touched. It is untrusted: the walk from devices
// down to lanes follows the section headers' links level by level, so that it ends, and the limits below bound what is
// taken from the file.
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
  std::vector<DeviceState> devices;  // those with a context or anything on them; in the core's order
  std::vector<Tid> threads;          // threads of the process that own the contexts
  std::string driver;                // "580.159"; empty if the core does not say
  std::optional<std::chrono::system_clock::time_point> written;
  std::vector<Problem> problems;
  bool partial = false;  // something that belongs to the core could not be read
};

inline constexpr std::size_t kMaxWarps = 1u << 18;           // in all: eight of the largest devices hold a third of it
inline constexpr std::uint64_t kMaxRows = 16u << 20;         // rows of all tables; those eight have 2.5 million threads
inline constexpr std::size_t kMaxReturns = 1024;             // return addresses of one thread
inline constexpr std::size_t kMaxImages = 256;               // images of one device, of code that its warps are in
inline constexpr std::uint64_t kMaxImageBytes = 2ull << 30;  // in all; NCCL's is 190 MB

// std::nullopt if the file is not from a GPU, or cannot be opened: the reader of other cores then says what it is.
// Errors: the file is from a GPU, and nothing can be read from it.
std::optional<Result<GpuCore>> read_gpu_core(const std::string& path, const Deadline& deadline = Deadline::never());

}  // namespace rankstacks::gpu
