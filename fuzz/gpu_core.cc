// A GPU core and everything that is derived from it: devices, kernels, exceptions, names.
#include "gpu/core_file.h"
#include "gpu/summarize.h"
#include "input.h"

using namespace rankstacks;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const fuzz::ScratchFile file;
  file.hold(std::as_bytes(std::span(data, size)));
  const auto core = gpu::read_gpu_core(file.path());
  if (!core) return 0;
  if (!*core) {
    fuzz::require(!core->error().what.empty(), "an error says what is wrong");
    return 0;
  }
  FrameTable frames;
  std::vector<Problem> problems;
  for (const gpu::DeviceState& device : (*core)->devices) {
    const GpuSnapshot gpu = gpu::summarize(device, frames, &problems);
    fuzz::require(gpu.execution.has_value(), "a core has the state of execution");
    std::size_t valid = 0, counted = 0;
    for (const gpu::Warp& warp : device.warps) valid += warp.valid_lanes != 0;
    for (const GpuKernel& kernel : gpu.execution->kernels) {
      counted += kernel.warps;
      fuzz::require(!kernel.places.empty() && kernel.places.size() <= kMaxGpuPlaces, "a kernel has places");
      fuzz::require(kernel.blocks > 0 && kernel.sms > 0 && kernel.lanes >= kernel.warps, "a kernel is somewhere");
      std::uint32_t in_places = 0;
      for (const GpuPlace& place : kernel.places) in_places += place.warps;
      fuzz::require(in_places <= kernel.warps && (kernel.more_places > 0 || in_places == kernel.warps),
                    "each warp is at one place");
      fuzz::require(!kernel.frames.empty() && kernel.frames.front() == kernel.places.front().frame,
                    "the stack begins at the most common place");
      for (const FrameId id : kernel.frames)
        fuzz::require(id < frames.size() && frames[id].kind == FrameKind::kGpu, "frames are those of the table");
    }
    fuzz::require(counted == valid || gpu.execution->kernels.size() == gpu::kMaxKernels, "each warp counts once");
    for (const GpuException& e : gpu.execution->exceptions)
      fuzz::require(e.kind != "none" && (!e.frame || *e.frame < frames.size()), "an exception is one");
  }
  fuzz::require((*core)->partial == !(*core)->problems.empty(), "what is missing is said");
  return 0;
}
