// The counting half of summarize(): warps by kernel and pc, exceptions by kind, kernel and pc. No names, no images.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "gpu/device_state.h"

namespace rankstacks::gpu {

struct PlaceCount {
  Address pc = 0;
  std::uint32_t warps = 0;
  std::size_t first_warp = 0;  // index into DeviceState::warps: lowest SM, then lowest warp
  std::uint32_t lane = 0;      // of that warp, the lowest at the pc
};

struct KernelCount {
  std::uint64_t grid_id = 0;
  std::uint32_t warps = 0;
  std::vector<PlaceCount> places;  // most warps first, then by pc
};

// Most warps first, then by grid. Warps without any lane left do not count.
std::vector<KernelCount> count_kernels(const DeviceState& state);

struct ExceptionCount {
  ExceptionCode code = 0;
  std::optional<std::uint64_t> grid_id;
  std::optional<Address> pc;
  std::uint32_t warps = 0;
  std::size_t first_warp = 0;  // index into DeviceState::warps, where warps > 0
};

// Exceptions of warps first, by number of warps; then those that only multiprocessors remember, if no warp has one of
// that kind and pc.
std::vector<ExceptionCount> count_exceptions(const DeviceState& state);

// The grid of that id; nullptr: unknown.
const Grid* find_grid(const DeviceState& state, std::uint64_t id);

}  // namespace rankstacks::gpu
