// How the GPUs of the processes that are looked at are, by NVML: asked for while they are looked at, filled in afterwards.
#pragma once

#include <optional>
#include <vector>

#include "gpu/nvml_join.h"
#include "gpu/nvml_query.h"
#include "model/snapshot.h"
#include "target/live_target.h"

namespace rankstacks {

class GpuHealthQuestion {
 public:
  explicit GpuHealthQuestion(const gpu::NvmlRequest& request) : request_(request) {}

  // Called for every process; nullptr: it cannot be looked at, and whether it uses CUDA is not known.
  void add(Pid pid, RankKind kind, const LiveTarget* target);

  // Nothing is asked where none of them can use a GPU. NVML's helper process runs from here on.
  void ask();

  // At most 2 s after ask(). Problems go to the first process that uses CUDA.
  void fill_in(std::vector<RankSnapshot>& ranks);

 private:
  gpu::NvmlRequest request_;
  std::vector<gpu::GpuUser> users_;
  bool possible_ = false;
  std::optional<gpu::NvmlQuery> query_;
};

}  // namespace rankstacks
