// Counts and names a device's raw state: which kernels are on it, where their warps are, what went wrong.
//
//     DeviceState --count--> kernels by grid, their warps by pc --name--> GpuSnapshot
//                                 |                                          ^
//                                 +--> which lanes' stacks, which images ----+   fetched in between
//
// A warp counts at the pc of most of its active lanes; of two pcs with equally many lanes, at that of the lowest lane.
// Counting looks up no names: the live session does it while the device is paused (6,544 warps: 0.2 ms,
// tests/gpu/summarize_test.cc).
#pragma once

#include <vector>

#include "gpu/device_state.h"
#include "model/snapshot.h"

namespace rankstacks::gpu {

struct LaneId {
  std::uint64_t grid_id = 0;
  std::uint32_t sm = 0, warp = 0, lane = 0;
  bool operator==(const LaneId&) const = default;
};

// The lane that represents each kernel: of the kernel's warps at the most common pc the first (by SM and index), and of
// that warp the lowest active lane. Kernels with most warps first, at most kMaxKernels.
std::vector<LaneId> representative_lanes(const DeviceState& state);

struct ModuleId {
  std::uint64_t context = 0, module = 0;
  auto operator<=>(const ModuleId&) const = default;
};

// The modules of the kernels that warps name, each once.
std::vector<ModuleId> needed_modules(const DeviceState& state);

// Addresses whose functions summarize() will look up, ascending: also in images of modules beyond needed_modules(), if
// those contain them.
std::vector<Address> code_addresses(const DeviceState& state);

// Bounds that no real device comes near: it has at most 128 grids at a time.
inline constexpr std::size_t kMaxKernels = 1024;
inline constexpr std::size_t kMaxExceptions = 256;

// `problems` receives the images that are damaged, and what the bounds have cut off.
GpuSnapshot summarize(const DeviceState& state, FrameTable& frames, std::vector<Problem>* problems = nullptr);

}  // namespace rankstacks::gpu
