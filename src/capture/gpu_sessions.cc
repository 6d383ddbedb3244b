#include "capture/gpu_sessions.h"

#include <algorithm>
#include <fmt/format.h>

#include "gpu/attach_point.h"
#include "gpu/session_supervisor.h"
#include "target/proc.h"

namespace rankstacks {
namespace {

// The driver's own thread: there in every process that has made a context, and in none that was forked from one since.
bool has_event_handler(Pid pid) {
  const auto tasks = proc::tasks_of(pid);
  return std::any_of(tasks.begin(), tasks.end(), [&](Tid tid) {
    const auto name = proc::read_file(fmt::format("/proc/{}/task/{}/comm", pid, tid));
    return name && name->starts_with("cuda-EvtHandlr");
  });
}

void add_problem(RankSnapshot& rank, Problem problem) {
  rank.problems.push_back(std::move(problem));
  if (rank.status == Status::kComplete) rank.status = Status::kPartial;
}

Problem problem_of(const Error& error) { return {"GPU: " + error.message(), error.hint.empty() ? std::nullopt : std::optional<std::string>(error.hint)}; }

// A device that NVML has described already gets what runs on it.
void join(RankSnapshot& rank, GpuSnapshot gpu) {
  const auto known = std::find_if(rank.gpus.begin(), rank.gpus.end(), [&](const GpuSnapshot& g) { return !g.pci.empty() && g.pci == gpu.pci; });
  // Parts of one device (MIG) have its address in common: each is an entry of its own.
  if (known == rank.gpus.end() || known->execution) rank.gpus.push_back(std::move(gpu));
  else known->execution = std::move(gpu.execution);
}

std::string core_path(const std::string& base, const RankSnapshot& rank) {
  if (rank.rank && rank.kind == RankKind::kRank) return fmt::format("{}.rank{}", base, *rank.rank);
  return fmt::format("{}.{}.{}", base, rank.host, rank.pid);
}

}  // namespace

GpuPlan plan_gpu_sessions(JobSnapshot& job, const gpu::Machine& machine) {
  GpuPlan plan;
  for (std::size_t i = 0; i < job.ranks.size(); ++i) {
    RankSnapshot& rank = job.ranks[i];
    if (rank.source != Source::kLive || rank.status == Status::kFailed || !has_event_handler(rank.pid)) continue;
    const auto point = gpu::AttachPoint::find({rank.pid, rank.start_ticks}, machine);
    if (!point) {
      add_problem(rank, problem_of(point.error()));
      continue;
    }
    const auto descriptor = point->attach_descriptor();
    if (!descriptor || !*descriptor) plan.borrows_threads = true;
    plan.ranks.push_back(i);
  }
  if (plan.ranks.empty() && !job.ranks.empty() && std::none_of(job.ranks.begin(), job.ranks.end(), [](const RankSnapshot& r) { return has_event_handler(r.pid); }))
    job.ranks.front().problems.push_back({"--gpu: no process of the job has a CUDA context", std::nullopt});
  return plan;
}

void hold_gpu_sessions(JobSnapshot& job, const GpuPlan& plan, const GpuRequest& request) {
  std::vector<gpu::SessionTarget> targets;
  for (const std::size_t i : plan.ranks) {
    gpu::SessionTarget& target = targets.emplace_back();
    target.process = {job.ranks[i].pid, job.ranks[i].start_ticks};
    if (request.core) target.core_path = core_path(*request.core, job.ranks[i]);
    target.core_limit = request.core_limit;
  }
  auto outcomes = gpu::hold_sessions(targets, request.machine, request.core ? std::chrono::seconds(300) : std::chrono::seconds(90));
  for (std::size_t t = 0; t < outcomes.size(); ++t) {
    RankSnapshot& rank = job.ranks[plan.ranks[t]];
    gpu::SessionOutcome& outcome = outcomes[t];
    for (Problem& problem : outcome.problems) add_problem(rank, std::move(problem));
    if (!outcome.answer) {
      add_problem(rank, problem_of(*outcome.error));
      continue;
    }
    gpu::SessionAnswer& answer = *outcome.answer;
    for (Problem& problem : answer.problems) add_problem(rank, {"GPU: " + problem.message, problem.hint});
    std::vector<FrameId> ids;
    for (Frame& frame : answer.frames) ids.push_back(job.frames.intern(std::move(frame)));
    for (GpuSnapshot& gpu : answer.gpus) {
      for_each_frame(gpu, [&](std::uint32_t& id) { id = ids[id]; });
      join(rank, std::move(gpu));
    }
    std::sort(rank.gpus.begin(), rank.gpus.end(), [](const GpuSnapshot& a, const GpuSnapshot& b) { return a.pci < b.pci; });
  }
}

}  // namespace rankstacks
