// Queries NVML for this machine's GPUs while the tool continues with other work: starts a helper process
// (nvml_helper.h), whose answer is collected later. On a machine without NVIDIA's driver it starts no process.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "base/file_descriptor.h"
#include "gpu/machine.h"
#include "gpu/nvml_answer.h"

namespace rankstacks::gpu {

struct NvmlRequest {
  Machine machine;
  std::string helper = "/proc/self/exe";    // the program that understands kNvmlHelperOption
  std::chrono::milliseconds timeout{2000};  // from the start of the helper

  bool has_driver() const;
};

class NvmlQuery {
 public:
  explicit NvmlQuery(const NvmlRequest& request);
  ~NvmlQuery();
  NvmlQuery(const NvmlQuery&) = delete;
  NvmlQuery& operator=(const NvmlQuery&) = delete;

  // Waits until the answer is complete or the timeout has passed. If the answer is incomplete, the part that has
  // arrived is used. Call this only once.
  NvmlAnswer collect();

 private:
  void end_helper();

  std::chrono::milliseconds timeout_;
  std::chrono::steady_clock::time_point started_;
  FileDescriptor answer_;
  int pid_ = 0;  // 0: no helper runs
  bool has_driver_ = false;
  int not_started_ = 0;  // the errno of a helper that could not be started; else 0
};

}  // namespace rankstacks::gpu
