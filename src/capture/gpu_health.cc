#include "capture/gpu_health.h"

#include <unistd.h>
#include <algorithm>

namespace rankstacks::capture {
namespace {

bool has_cuda(const target::LiveTarget& target) {
  const auto& modules = target.modules().all();
  return std::any_of(modules.begin(), modules.end(), [](const target::Module& m) {
    return m.path.substr(m.path.rfind('/') + 1).starts_with("libcuda.so");
  });
}

// Other data about that device is kept.
void add_gpu(std::vector<GpuSnapshot>& gpus, GpuSnapshot gpu) {
  const auto known =
      std::find_if(gpus.begin(), gpus.end(), [&](const GpuSnapshot& g) { return !g.pci.empty() && g.pci == gpu.pci; });
  if (known == gpus.end()) {
    gpus.push_back(std::move(gpu));
    return;
  }
  gpu.execution = std::move(known->execution);
  *known = std::move(gpu);
}

}  // namespace

void GpuHealthQuestion::add(Pid pid, RankKind kind, const target::LiveTarget* target) {
  const bool uses = target != nullptr && has_cuda(*target);
  if (uses || target == nullptr) possible_ = true;
  if (kind != RankKind::kRank) return;
  gpu::GpuUser& user = users_.emplace_back(gpu::GpuUser{pid, uses});
  if (const long ticks = sysconf(_SC_CLK_TCK); target != nullptr && ticks > 0)
    user.started = static_cast<double>(target->start_ticks()) / static_cast<double>(ticks);
}

void GpuHealthQuestion::ask() {
  if (possible_) query_.emplace(request_);
}

void GpuHealthQuestion::fill_in(std::vector<RankSnapshot>& ranks) {
  if (!query_) return;
  const gpu::NvmlAnswer answer = query_->collect();
  query_.reset();
  if (answer.outcome == gpu::NvmlOutcome::kNoDriver) return;
  gpu::JoinedGpus joined =
      join_gpus(answer, users_, gpu::facts_of_this_machine(request_.machine.devices()), gpu::in_own_pid_namespace());
  for (RankSnapshot& rank : ranks) {
    const auto found = joined.of.find(rank.pid);
    if (found == joined.of.end() || rank.kind != RankKind::kRank) continue;
    for (GpuSnapshot& gpu : found->second) add_gpu(rank.gpus, std::move(gpu));
  }
  const auto user = std::find_if(users_.begin(), users_.end(), [](const gpu::GpuUser& u) { return u.uses_cuda; });
  if (user == users_.end()) return;
  for (RankSnapshot& rank : ranks)
    if (rank.pid == user->pid)
      rank.problems.insert(rank.problems.end(), joined.problems.begin(), joined.problems.end());
}

}  // namespace rankstacks::capture
