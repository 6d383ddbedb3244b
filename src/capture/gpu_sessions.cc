#include "capture/gpu_sessions.h"

#include <fmt/format.h>
#include <algorithm>
#include <memory>

#include "base/unattended.h"
#include "capture/prepare_targets.h"
#include "gpu/attach_point.h"
#include "gpu/session_supervisor.h"
#include "target/proc.h"

namespace rankstacks::capture {
namespace {

// Whether the process has the driver's own thread: every process that has created a context has it, and a process that
// was forked from one since does not.
bool has_event_handler(Pid pid) {
  const auto tasks = target::proc::tasks_of(pid);
  return std::any_of(tasks.begin(), tasks.end(), [&](Tid tid) {
    const auto name = target::proc::read_file(fmt::format("/proc/{}/task/{}/comm", pid, tid));
    return name && name->starts_with("cuda-EvtHandlr");
  });
}

void add_problem(RankSnapshot& rank, Problem problem) {
  rank.problems.push_back(std::move(problem));
  if (rank.status == Status::kComplete) rank.status = Status::kPartial;
}

Problem gpu_problem(Problem problem) {
  problem.message.insert(0, "GPU: ");
  if (problem.code != ProblemCode::kPermission && problem.code != ProblemCode::kTimeout)
    problem.code = ProblemCode::kGpu;
  return problem;
}

// Adds what runs on a device to the entry that NVML has made for that device, if there is one.
void join(RankSnapshot& rank, GpuSnapshot gpu) {
  const auto known = std::find_if(rank.gpus.begin(), rank.gpus.end(),
                                  [&](const GpuSnapshot& g) { return !g.pci.empty() && g.pci == gpu.pci; });
  // Parts of one device (MIG) share its address: each part gets an entry of its own.
  if (known == rank.gpus.end() || known->execution) rank.gpus.push_back(std::move(gpu));
  else known->execution = std::move(gpu.execution);
}

// Two processes that both claim to be rank 3 (two jobs, or a wrong environment) must not write the same file.
std::string core_path(const std::string& base, const JobSnapshot& job, const RankSnapshot& rank) {
  const auto has_its_name = [&](const RankSnapshot& other) {
    return other.kind == RankKind::kRank && other.rank == rank.rank;
  };
  if (rank.rank && rank.kind == RankKind::kRank && std::count_if(job.ranks.begin(), job.ranks.end(), has_its_name) == 1)
    return fmt::format("{}.rank{}", base, *rank.rank);
  return fmt::format("{}.{}.{}", base, rank.host, rank.pid);
}

// How a debugger can attach to the driver of a process, as far as the plan needs it. This is read from the process's
// memory, which may never answer.
struct Asked {
  std::optional<Error> error;
  bool has_descriptor = false;
};

Asked ask(const target::ProcessId& process, const gpu::Machine& machine) {
  const auto point = gpu::AttachPoint::find(process, machine);
  if (!point) return {.error = point.error()};
  reading_now(fmt::format("/proc/{}/mem", process.pid));
  const auto descriptor = point->attach_descriptor();
  return {.error = {}, .has_descriptor = descriptor && *descriptor};
}

std::vector<Asked> ask_all(const std::vector<target::ProcessId>& processes, const GpuRequest& request) {
  const auto limit = std::max<Unattended::Duration>(request.timeout, kMinTimeout);
  const auto asked = std::make_shared<std::vector<Asked>>(processes.size());
  const auto outcomes = Unattended{[asked, processes, machine = request.machine](std::size_t i) {
                                     (*asked)[i] = ask(processes[i], machine);
                                   },
                                   limit}
                            .run(processes.size());
  std::vector<Asked> answers(processes.size());
  for (std::size_t i = 0; i < processes.size(); ++i) {
    if (outcomes[i].came_back) answers[i] = (*asked)[i];
    else answers[i].error = silent_process(processes[i].pid, "looking at its CUDA driver", outcomes[i].file, limit);
  }
  return answers;
}

bool is_driver(const Frame& frame) {
  return frame.kind == FrameKind::kNative && frame.module.substr(frame.module.rfind('/') + 1).starts_with("libcuda.so");
}

}  // namespace

std::optional<BlockedLaunch> blocked_launch_of(const FrameTable& frames, const RankSnapshot& rank) {
  for (const ThreadSnapshot& thread : rank.threads) {
    if (thread.frames.size() < 3) continue;
    const auto& yields = frames[thread.frames.front()].function;
    if (!yields || !yields->ends_with("sched_yield") || !is_driver(frames[thread.frames[1]])) continue;
    for (std::size_t i = 1; i < thread.frames.size() && is_driver(frames[thread.frames[i]]); ++i) {
      const auto& function = frames[thread.frames[i]].function;
      if (function && (function->starts_with("cuLaunch") || function->starts_with("cuGraphLaunch") ||
                       function->starts_with("cuMemcpy") || function->starts_with("cuMemset")))
        return BlockedLaunch{thread.tid, *function};
    }
  }
  return std::nullopt;
}

GpuPlan plan_gpu_sessions(JobSnapshot& job, const GpuRequest& request) {
  GpuPlan plan;
  std::vector<std::size_t> meant;
  std::vector<target::ProcessId> processes;
  bool some_launch = false;
  for (std::size_t i = 0; i < job.ranks.size(); ++i) {
    const RankSnapshot& rank = job.ranks[i];
    if (rank.source != Source::kLive || rank.status == Status::kFailed || !has_event_handler(rank.pid)) continue;
    if (const auto launch = blocked_launch_of(job.frames, rank)) {
      add_problem(job.ranks[i],
                  {fmt::format("GPU: not asked: thread {} is in {}, which waits for room in the queue of its GPU and "
                               "holds the driver's lock",
                               launch->tid, launch->call),
                   "what runs there holds up the launches behind it: look at what the other ranks wait for",
                   ProblemCode::kGpu});
      some_launch = true;
      continue;
    }
    meant.push_back(i);
    processes.push_back({rank.pid, rank.start_ticks});
  }
  const std::vector<Asked> answers = ask_all(processes, request);
  for (std::size_t n = 0; n < meant.size(); ++n) {
    if (answers[n].error) {
      add_problem(job.ranks[meant[n]], gpu_problem(problem_of(*answers[n].error)));
      continue;
    }
    if (!answers[n].has_descriptor) plan.makes_inferior_calls = true;
    plan.ranks.push_back(meant[n]);
  }
  if (plan.ranks.empty() && !job.ranks.empty() && !some_launch &&
      std::none_of(job.ranks.begin(), job.ranks.end(), [](const RankSnapshot& r) { return has_event_handler(r.pid); }))
    job.ranks.front().problems.push_back(
        {"--gpu: no process of the job has a CUDA context", std::nullopt, ProblemCode::kGpu});
  return plan;
}

void hold_gpu_sessions(JobSnapshot& job, const GpuPlan& plan, const GpuRequest& request) {
  constexpr std::chrono::seconds kLeastWithCore{180};
  constexpr int kCoreFactor = 5;    // a core of 1 GiB takes a minute
  constexpr int kPausedFactor = 3;  // --gpu-limit, for those that are about to answer
  constexpr std::chrono::hours kMax{1};
  const auto with_core = std::clamp<Unattended::Duration>(
      kCoreFactor * std::min<Unattended::Duration>(request.timeout, kMax), kLeastWithCore, kMax);
  const gpu::SessionLimits limits = request.core ? gpu::SessionLimits{with_core, with_core}
                                                 : gpu::SessionLimits{request.limit, kPausedFactor * request.limit};
  std::vector<gpu::SessionTarget> targets;
  for (const std::size_t i : plan.ranks) {
    gpu::SessionTarget& target = targets.emplace_back();
    target.process = {job.ranks[i].pid, job.ranks[i].start_ticks};
    if (request.core) target.core_path = core_path(*request.core, job, job.ranks[i]);
    target.core_limit = request.core_limit;
  }
  auto outcomes = gpu::hold_sessions(targets, request.machine, limits);
  for (std::size_t t = 0; t < outcomes.size(); ++t) {
    RankSnapshot& rank = job.ranks[plan.ranks[t]];
    gpu::SessionOutcome& outcome = outcomes[t];
    for (Problem& problem : outcome.problems) {
      problem.code = ProblemCode::kGpu;
      add_problem(rank, std::move(problem));
    }
    if (!outcome.answer) {
      add_problem(rank, gpu_problem(problem_of(*outcome.error)));
      continue;
    }
    gpu::SessionAnswer& answer = *outcome.answer;
    for (Problem& problem : answer.problems) add_problem(rank, gpu_problem(std::move(problem)));
    std::vector<FrameId> ids;
    for (Frame& frame : answer.frames) ids.push_back(job.frames.intern(std::move(frame)));
    for (GpuSnapshot& gpu : answer.gpus) {
      for_each_frame(gpu, [&](std::uint32_t& id) { id = ids[id]; });
      join(rank, std::move(gpu));
    }
    std::sort(rank.gpus.begin(), rank.gpus.end(),
              [](const GpuSnapshot& a, const GpuSnapshot& b) { return a.pci < b.pci; });
  }
}

}  // namespace rankstacks::capture
