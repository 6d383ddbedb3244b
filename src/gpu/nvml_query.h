// Asks NVML of this machine's GPUs while the tool does something else: a process of its own (nvml_helper.h) is started, and what it has written is
// collected later. On a machine without NVIDIA's driver nothing is started.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "gpu/nvml_answer.h"
#include "base/file_descriptor.h"

namespace rankstacks::gpu {

// Where things are; tests have them elsewhere.
struct NvmlPlaces {
  std::string library;                                      // empty: as NvmlLibrary finds it
  std::string devices = "/dev";                             // nvidiactl, nvidia0 ... in it
  std::string driver = "/proc/driver/nvidia";
  std::string kernel_log = "/dev/kmsg";
  std::string helper = "/proc/self/exe";                    // the program that understands kNvmlHelperOption
  std::chrono::milliseconds patience{2000};                 // from its start

  // All of it in one folder.
  static NvmlPlaces in_folder(const std::string& folder);
  bool has_driver() const;
};

class NvmlQuery {
 public:
  explicit NvmlQuery(const NvmlPlaces& places);
  ~NvmlQuery();
  NvmlQuery(const NvmlQuery&) = delete;
  NvmlQuery& operator=(const NvmlQuery&) = delete;

  // Waits until the answer is whole or the patience is at its end; of an answer that is not whole, what is there counts. To be called once.
  NvmlAnswer collect();

 private:
  void end_helper();

  std::chrono::milliseconds patience_;
  std::chrono::steady_clock::time_point started_;
  FileDescriptor answer_;
  int pid_ = 0;                                             // 0: none runs
  bool has_driver_ = false;
  int not_started_ = 0;                                     // errno
};

}  // namespace rankstacks::gpu
