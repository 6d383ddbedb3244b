// The raw state of one device at one moment, as the debugger API or a GPU core gives it, before anything is counted or
// named.
//
//     live session ──┐
//                    ├─> DeviceState ──> summarize() ──> GpuSnapshot
//     GPU core ──────┘
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "model/gpu.h"

namespace rankstacks::gpu {

inline constexpr std::size_t kLanes = 32;

// CUDBGException_t (cudadebugger.h; model/gpu_exception.h names them); 0: none.
using ExceptionCode = std::uint32_t;

struct Warp {
  std::uint32_t sm = 0, index = 0;
  std::uint64_t grid_id = 0;
  GpuDim block;                                     // its block's index in the grid
  GpuDim first_thread;                              // index in the block of its lane 0, where known
  std::uint32_t valid_lanes = 0, active_lanes = 0;  // masks
  ExceptionCode exception = 0;
  std::optional<Address> error_pc;
  std::optional<GpuDim> exception_thread;  // index in the block of the lowest lane that has the exception, where known
  std::array<Address, kLanes> pc{};        // of valid lanes: virtual pcs
};

struct Grid {
  std::uint64_t id = 0;
  std::uint64_t context = 0, module = 0, function = 0;  // handles
  Address entry = 0;
  GpuDim grid, block;
};

// A multiprocessor's own record of an exception; the warps that caused it may have left.
struct SmException {
  std::uint32_t sm = 0;
  ExceptionCode code = 0;
  std::optional<Address> error_pc;
};

// A relocated cubin: its symbols' values are addresses on the GPU.
struct ModuleImage {
  std::uint64_t context = 0, module = 0;  // module: as Grid::module names it
  std::vector<std::byte> bytes;           // an ELF file; empty if it could not be had
};

// The device stack of one lane: return addresses, innermost first, without the pc itself.
struct LaneStack {
  std::uint32_t sm = 0, warp = 0, lane = 0;
  std::vector<Address> returns;
};

struct DeviceState {
  std::uint32_t device = 0;   // the debugger's index
  std::string pci;            // "0000:0a:00.0"; empty: unknown
  std::string name, sm_type;  // "NVIDIA H200", "sm_90"
  std::uint32_t contexts = 0;
  std::vector<Warp> warps;
  std::vector<Grid> grids;  // those that the warps name
  std::vector<SmException> sm_exceptions;
  std::vector<ModuleImage> images;  // those that the grids name
  std::vector<LaneStack> stacks;    // of representative lanes
};

}  // namespace rankstacks::gpu
