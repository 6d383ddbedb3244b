// NVIDIA's management library, opened at run time: what it tells of each GPU. Its calls can hang for ever (a GPU that
// has fallen off its bus), so nothing but the helper process (nvml_helper.h) makes them.
#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "gpu/machine.h"
#include "gpu/nvml_answer.h"
#include "gpu/nvml_layouts.h"

namespace rankstacks::gpu {

class NvmlLibrary {
 public:
  // The machine's own (machine_library.h). It is never closed.
  static Result<NvmlLibrary> open(const Machine& machine);

  nvml::Return start() const;          // nvmlInit
  std::string driver_version() const;  // empty: unknown
  unsigned device_count() const;
  std::string words_for(nvml::Return code) const;  // "GPU is lost"

  // May be called for several devices at a time, from threads. What the driver does not give stays empty.
  struct Device {
    nvml::Return result = nvml::kSuccess;  // else there is no `device`
    NvmlDevice device;
  };
  Device read_device(unsigned index) const;

 private:
  nvml::Functions nvml_;
};

}  // namespace rankstacks::gpu
