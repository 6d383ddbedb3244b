#include "known/gpu_drivers.h"

#include <algorithm>
#include <array>

namespace rankstacks::known {
namespace {

// nvidia0, nvidiactl, nvidia-uvm, nvidia-modeset, nvidia-caps (NVIDIA open-gpu-kernel-modules
// kernel-open/common/inc/nv-chardev-numbers.h); kfd and dri (Linux drivers/gpu/drm/amd/amdkfd/kfd_chardev.c,
// drivers/gpu/drm/drm_drv.c).
constexpr std::array<std::string_view, 3> kFiles = {"/dev/nvidia", "/dev/kfd", "/dev/dri/"};

// The modules' names, as the kernel prints them after a symbol (Linux kernel/kallsyms.c: __sprint_symbol).
constexpr std::array<std::string_view, 5> kModules = {" [nvidia]", " [nvidia_uvm]", " [nvidia_modeset]", " [amdgpu]",
                                                      " [i915]"};

// CUDA's driver API, cuda.h.
constexpr std::array<std::string_view, 3> kWaits = {"cuCtxSynchronize", "cuStreamSynchronize", "cuEventSynchronize"};

}  // namespace

bool waits_for_gpu_alone(std::string_view function) {
  return std::any_of(kWaits.begin(), kWaits.end(), [&](std::string_view name) { return function.starts_with(name); });
}

bool is_gpu_driver_file(std::string_view path) {
  return std::any_of(kFiles.begin(), kFiles.end(), [&](std::string_view file) { return path.starts_with(file); });
}

bool is_in_gpu_driver(std::string_view kernel_frame) {
  return std::any_of(kModules.begin(), kModules.end(),
                     [&](std::string_view module) { return kernel_frame.ends_with(module); });
}

}  // namespace rankstacks::known
