// The state of the GPUs of the captured processes, by NVML: queried during the capture, filled in afterwards.
#pragma once

#include <optional>
#include <vector>

#include "gpu/nvml_join.h"
#include "gpu/nvml_query.h"
#include "model/snapshot.h"
#include "target/live_target.h"

namespace rankstacks::capture {

class GpuHealthQuestion {
 public:
  explicit GpuHealthQuestion(const gpu::NvmlRequest& request) : request_(request) {}

  // Called for every process. `target` is nullptr if the process cannot be captured; then it is not known whether it
  // uses CUDA.
  void add(Pid pid, RankKind kind, const target::LiveTarget* target);

  // Starts NVML's helper process, unless none of the processes can use a GPU.
  void ask();

  // Returns at most 2 s after ask(). Problems are reported at the first process that uses CUDA.
  void fill_in(std::vector<RankSnapshot>& ranks);

 private:
  gpu::NvmlRequest request_;
  std::vector<gpu::GpuUser> users_;
  bool possible_ = false;
  std::optional<gpu::NvmlQuery> query_;
};

}  // namespace rankstacks::capture
