// The GPUs of one process, as far as they are known: from NVML (the state of the device), and from the CUDA debugger
// API, a GPU core file or cuda-gdb's output (what runs on it).
//
// Frames are those of JobSnapshot::frames, of kind kGpu: `function` is the demangled device function, `address` the
// virtual pc on the GPU, `offset` the pc's distance from the function's start, `module` empty. Frames that cuda-gdb has
// printed have no offset, but file and line.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/types.h"

namespace rankstacks {
inline namespace model {

struct GpuDim {
  std::uint32_t x = 1, y = 1, z = 1;
  bool operator==(const GpuDim&) const = default;
};

// The warps of one kernel that are at one pc.
struct GpuPlace {
  std::uint32_t frame = 0;  // FrameId
  std::uint32_t warps = 0;  // 0: not known, as what another tool has printed shows where one of its threads is
  bool operator==(const GpuPlace&) const = default;
};

// A kernel of which at least one warp is resident on the device. Numbers of what is resident are 0 where they are not
// known: in dumps of other tools.
struct GpuKernel {
  std::uint64_t grid_id = 0;            // the driver's, unique within the process
  std::optional<std::string> function;  // demangled, in full; empty if no symbol covers its entry
  std::optional<Address> entry;         // the kernel's entry address
  GpuDim grid, block;                   // as launched: blocks of the grid, threads of a block
  std::uint32_t blocks = 0;             // resident
  std::uint32_t sms = 0;                // the number of multiprocessors that it is on
  std::uint32_t warps = 0, lanes = 0;   // resident; lanes: threads that have not exited
  std::vector<GpuPlace> places;         // most warps first, at most kMaxGpuPlaces of them
  std::uint32_t more_places = 0;        // number of further pcs that are left out
  std::vector<std::uint32_t>
      frames;  // FrameIds: the device stack of a thread at the most common place, innermost first
  bool operator==(const GpuKernel&) const = default;
};
inline constexpr std::size_t kMaxGpuPlaces = 8;

// An exception that warps of the device have run into (CUDBGException_t); one entry for each kind, kernel and pc.
struct GpuException {
  std::string kind;                    // "illegal address", "assert", "misaligned address" ...
  std::optional<std::uint32_t> frame;  // FrameId of the pc that raised it
  std::optional<std::uint64_t> grid_id;
  std::optional<std::string> kernel;    // demangled
  std::optional<GpuDim> block, thread;  // indices of the first thread that raised it
  // Number of warps with this exception; 0: they have exited, and only the multiprocessor still records it.
  std::uint32_t warps = 0;
  bool operator==(const GpuException&) const = default;
};

enum class GpuSource { kDebugger, kCore };

// What runs on the device for this process.
struct GpuExecution {
  GpuSource source = GpuSource::kDebugger;
  std::optional<std::string> path;  // of the GPU core
  std::optional<double> held_ms;    // debugger: how long the device was paused for it
  std::uint32_t contexts = 0;       // number of the process's contexts on this device; 0: not known
  // Debugger, if the device was examined twice: whether the kernels of the first session were gone in the second one.
  std::optional<bool> moved;
  std::vector<GpuKernel> kernels;  // kernels with most warps first; empty: the device is idle
  std::vector<GpuException> exceptions;
  bool operator==(const GpuExecution&) const = default;
};

// The state of the device, by NVML. Each member is empty if the driver or the permission does not provide it.
struct GpuHealth {
  std::optional<double> utilization_mean,
      utilization_variance;                       // percent of time some kernel ran, over the driver's last samples
  std::optional<double> memory_utilization_mean;  // percent of time the memory was accessed, over the same
  std::optional<std::uint64_t> memory_used, memory_total, process_memory;  // bytes; process_memory: of this process
  std::optional<unsigned> sm_clock, sm_clock_max, memory_clock, memory_clock_max;  // MHz
  std::vector<std::string> throttle;  // reasons in force other than idle: "hw-slowdown", "sw-power-cap" ...
  std::optional<double> power_w, power_mean_w, power_limit_w, temperature_c;  // power_mean_w: over the last second
  std::optional<std::uint64_t> ecc_corrected, ecc_uncorrected;                // since the driver was loaded
  std::optional<unsigned> remapped_rows;  // rows remapped because of errors, correctable and not, in total
  bool remap_pending = false, remap_failed = false;
  std::optional<unsigned> nvlinks, nvlinks_up;  // number of links that the device has, and number that are up
  std::vector<unsigned> nvlinks_down;           // numbers of the links that are down
  std::optional<std::uint64_t> nvlink_errors;   // sum of all counters of all links
  std::optional<unsigned> pcie_width, pcie_width_max, pcie_generation, pcie_generation_max;
  std::vector<unsigned> xids;        // that concern this process, ascending, if the kernel's log can be read
  std::vector<Pid> other_processes;  // on the same device, not this one
  std::string driver;                // "580.159.04"
  bool operator==(const GpuHealth&) const = default;
};

// One device that the process uses. Devices are matched by PCI address: CUDA's index and the debugger's index do not
// identify the same device everywhere.
struct GpuSnapshot {
  std::string pci;                // "0000:0a:00.0"; empty: unknown
  std::optional<unsigned> index;  // NVML's index
  std::string uuid, name;         // "GPU-...", "NVIDIA H200"; empty: unknown
  std::optional<GpuHealth> health;
  std::optional<GpuExecution> execution;
  bool operator==(const GpuSnapshot&) const = default;
};

// Calls f(id) with a reference to each FrameId of the GPU, so that callers can renumber frames.
template <class F>
void for_each_frame(GpuSnapshot& gpu, F&& f) {
  if (!gpu.execution) return;
  for (GpuKernel& kernel : gpu.execution->kernels) {
    for (GpuPlace& place : kernel.places) f(place.frame);
    for (std::uint32_t& id : kernel.frames) f(id);
  }
  for (GpuException& exception : gpu.execution->exceptions)
    if (exception.frame) f(*exception.frame);
}

}  // namespace model
}  // namespace rankstacks
