// Asks NVML of this machine's GPUs while the tool does something else: a process of its own (nvml_helper.h) is started,
// and what it has written is collected later. On a machine without NVIDIA's driver nothing is started.
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
  std::chrono::milliseconds timeout{2000};  // from its start

  bool has_driver() const;
};

class NvmlQuery {
 public:
  explicit NvmlQuery(const NvmlRequest& request);
  ~NvmlQuery();
  NvmlQuery(const NvmlQuery&) = delete;
  NvmlQuery& operator=(const NvmlQuery&) = delete;

  // Waits until the answer is whole or the timeout is at its end; of an answer that is not whole, what is there counts.
  // To be called once.
  NvmlAnswer collect();

 private:
  void end_helper();

  std::chrono::milliseconds timeout_;
  std::chrono::steady_clock::time_point started_;
  FileDescriptor answer_;
  int pid_ = 0;  // 0: none runs
  bool has_driver_ = false;
  int not_started_ = 0;  // errno
};

}  // namespace rankstacks::gpu
