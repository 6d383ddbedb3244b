// NVML, NVIDIA's management library, loaded at run time: reads what it reports about each GPU. Its calls can hang
// forever (on a GPU that has fallen off its bus), so only the helper process (nvml_helper.h) makes them.
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
  // Loads the machine's own library (machine_library.h). It is never closed.
  static Result<NvmlLibrary> open(const Machine& machine);

  nvml::Return start() const;          // nvmlInit
  std::string driver_version() const;  // empty: unknown
  unsigned device_count() const;
  std::string words_for(nvml::Return code) const;  // "GPU is lost"

  // Threads may read several devices at the same time. Values that the driver does not report stay empty.
  struct Device {
    nvml::Return result = nvml::kSuccess;  // if it is another value, `device` is not valid
    NvmlDevice device;
  };
  Device read_device(unsigned index) const;

 private:
  nvml::Functions nvml_;
};

}  // namespace rankstacks::gpu
