// The live capture in its order: plan (who), prepare (files), stop-copy-resume (side by side), then everything else on the copies.
#include <algorithm>
#include <chrono>
#include <ctime>
#include <fmt/format.h>
#include <map>
#include <thread>
#include <unistd.h>

#include "base/memory_limit.h"
#include "base/workers.h"
#include "capture/capture_job.h"
#include "capture/finish_job.h"
#include "capture/gpu_health.h"
#include "capture/job_processes.h"
#include "capture/nccl_counts.h"
#include "capture/no_suspension.h"
#include "capture/parallel_layout.h"
#include "target/environment_block.h"
#include "target/glances.h"
#include "target/limited_target.h"
#include "target/live_target.h"
#include "target/proc.h"
#include "target/run_time.h"
#include "unwind/glanced_stack.h"

namespace rankstacks {
namespace {

using WallClock = std::chrono::system_clock;

// Everything known of one process before it is stopped. Made once, when first asked for.
struct Prepared {
  std::unique_ptr<LiveTarget> target;
  std::optional<Error> error;
  std::vector<python::RuntimeCandidate> interpreters;
  std::map<std::string, std::string> environment;
};

class Preparer {
 public:
  // The environment as the process was started with it, overlaid by what it has now: os.environ["RANK"] = ... is how
  // multiprocessing.spawn's children learn theirs, and shows in libc's `environ` alone.
  std::map<std::string, std::string> environment(Pid pid) {
    auto initial = initial_environment(pid);
    if (identity_from_environment(initial).precedence >= 0 && !is_python(pid)) return initial;
    if (!may_differ(pid)) return initial;
    Prepared& p = prepare(pid);
    return p.environment.empty() ? initial : p.environment;
  }

  bool is_wrapper(Pid pid, const ProcessTable& table) {
    const ProcessEntry* entry = table.find(pid);
    if (entry == nullptr || entry->threads != 1 || table.children(pid).size() != 1 || is_python(pid)) return false;
    const auto call = proc::read_file(fmt::format("/proc/{}/syscall", pid));
    // wait4, waitid, rt_sigsuspend: how shells and wrappers wait for their child.
    return call && (call->starts_with("61 ") || call->starts_with("247 ") || call->starts_with("130 "));
  }

  // It has a library loaded by which ranks talk to each other.
  static bool can_train(Pid pid) {
    const auto maps = proc::read_file(fmt::format("/proc/{}/maps", pid));
    return maps && (maps->find("/libtorch") != std::string::npos || maps->find("/libmpi") != std::string::npos || maps->find("/libnccl") != std::string::npos ||
                    maps->find("/jaxlib/") != std::string::npos || maps->find("/libtensorflow") != std::string::npos || maps->find("/libpaddle") != std::string::npos ||
                    maps->find("/libcuda.so") != std::string::npos);
  }

  Prepared& prepare(Pid pid) {
    auto it = prepared_.find(pid);
    if (it != prepared_.end()) return it->second;
    Prepared& p = prepared_[pid];
    if ((p.error = not_a_target(pid))) return p;
    auto target = LiveTarget::prepare(pid, images_);
    if (!target) {
      p.error = target.error();
      return p;
    }
    p.target = std::move(*target);
    p.interpreters = python::find_python_runtime(*p.target);
    p.environment = initial_environment(pid);
    if (const auto variable = find_environ_variable(p.target->modules())) {
      for (auto& [name, value] : read_current_environment(*p.target, *variable)) p.environment[name] = value;
    }
    return p;
  }

  LiveImages& images() { return images_; }

 private:
  static std::map<std::string, std::string> initial_environment(Pid pid) {
    const auto text = proc::read_file(fmt::format("/proc/{}/environ", pid));
    return text ? proc::parse_environment(proc::split_nul(*text)) : std::map<std::string, std::string>{};
  }
  static bool is_python(Pid pid) {
    const auto exe = proc::read_link(fmt::format("/proc/{}/exe", pid));
    return exe && exe->substr(exe->rfind('/') + 1).starts_with("python");
  }
  // Only a program that sets its own environment is worth the deeper look: Python's multiprocessing, in practice.
  static bool may_differ(Pid pid) { return is_python(pid); }

  LiveImages images_;
  std::map<Pid, Prepared> prepared_;
};

std::string host_name() {
  char name[256] = "";
  if (gethostname(name, sizeof name - 1) != 0) return "unknown";
  return name;
}

// False: it could not be captured, and the rank says why.
bool capture_one(RankStacks& rank, LiveTarget& target, const std::vector<python::RuntimeCandidate>& interpreters, const CopyLimits& limits) {
  const auto copied = [&] {
    read_syscalls(rank);
    read_exceptions(rank);
    const auto still = target.stands_still();
    if (still) read_python(rank, interpreters, *still, "2 s of standing still");
    else read_python(rank, interpreters, Deadline::after(rank.time_left));
  };
  const auto captured = target.capture(copied, limits);
  RankSnapshot& snapshot = rank.snapshot;
  snapshot.problems.insert(snapshot.problems.begin(), target.problems().begin(), target.problems().end());
  if (!captured) {
    fail_rank(rank, captured.error());
    return false;
  }
  for (const Problem& cut : target.cuts()) {
    snapshot.problems.push_back(cut);
    snapshot.status = Status::kPartial;
  }
  snapshot.stopped_ms = target.stopped_ms();
  // The process runs again: these read /proc, and its descriptors are what they were unless it moved on meanwhile.
  for (auto& call : rank.syscalls)
    if (call && call->fd) call->fd_target = proc::describe_fd(target.pid(), *call->fd);
  return true;
}

// Everything is stopped, copied and resumed. Afterwards targets[i] is nullptr where that failed, and the rank says why.
void capture_side_by_side(std::vector<RankStacks>& ranks, std::vector<LiveTarget*>& targets, const std::vector<const std::vector<python::RuntimeCandidate>*>& interpreters,
                          std::size_t memory) {
  const NoSuspension none_is_left_stopped;
  const std::size_t copies = share_of_memory(memory, MemoryUse::kCopies);
  const auto pool = std::make_shared<CopyPool>(copies / 2);
  const CopyLimits limits = CopyLimits::share(copies, ranks.size(), pool);
  run_on_fresh_threads(ranks.size(), [&](std::size_t i) {
    if (targets[i] != nullptr && !capture_one(ranks[i], *targets[i], *interpreters[i], limits)) targets[i] = nullptr;
  });
}

// The first look's processes, looked at again and again.
class LaterLooks {
 public:
  LaterLooks(const std::vector<LiveTarget*>& first, const std::vector<const std::vector<python::RuntimeCandidate>*>& interpreters, LiveImages& images, const CaptureOptions& options,
             bool glances)
      : images_(images), options_(options), with_glances_(glances) {
    for (std::size_t i = 0; i < first.size(); ++i)
      if (first[i] != nullptr && !first[i]->does_not_answer()) processes_.push_back({first[i]->pid(), first[i]->start_ticks(), interpreters[i]});
  }

  // A look is unwound at once: there is time until the next, and what was copied for it can go.
  void look(std::chrono::steady_clock::time_point when) {
    // Where processors are scarce, a thread that the last look has stopped goes back to its wait a little later: no run of its own.
    constexpr std::chrono::milliseconds kReturn{20};
    std::this_thread::sleep_for(std::min<std::chrono::steady_clock::duration>(kReturn, (when - std::chrono::steady_clock::now()) / 4));
    const auto from = std::chrono::steady_clock::now();
    const auto before = run_times();
    if (with_glances_ && glances_.empty()) follow_the_wakeful();
    if (!glances_.empty()) glances_.glance_until(when);
    std::this_thread::sleep_until(when);
    const auto after = run_times();
    between += std::chrono::steady_clock::now() - from;
    for (const auto& [tid, then] : before) {
      const auto now = after.find(tid);
      if (now == after.end()) continue;
      RunTime& time = ran[tid];
      time.cpu_ms += now->second.cpu_ms - then.cpu_ms;
      time.runs += now->second.runs - then.runs;
    }
    std::vector<RankStacks> ranks(processes_.size());
    std::vector<LiveTarget*> targets(processes_.size());
    std::vector<const std::vector<python::RuntimeCandidate>*> interpreters(processes_.size());
    for (std::size_t i = 0; i < processes_.size(); ++i) {
      ranks[i].time_left = options_.timeout;
      ranks[i].snapshot.pid = processes_[i].pid;
      auto target = LiveTarget::prepare(processes_[i].pid, images_);
      if (!target || (*target)->start_ticks() != processes_[i].start_ticks) continue;
      targets[i] = target->get();
      interpreters[i] = processes_[i].interpreters;
      ranks[i].target = std::move(*target);
    }
    capture_side_by_side(ranks, targets, interpreters, options_.memory);
    unwind_ranks(ranks, options_);
    for (LiveTarget* target : targets) {
      if (target == nullptr) continue;
      if (target->does_not_answer()) std::erase_if(processes_, [&](const Process& process) { return process.pid == target->pid(); });
      target->forget_copy();
    }
    looks.push_back(std::move(ranks));
  }

  // What was glanced at between the looks, as more of them: stacks that were walked to their end alone.
  void add_glances() {
    for (std::size_t n = 0; n < Glances::kMostPlaces && !glances_.empty(); ++n) {
      std::vector<RankStacks> ranks;
      for (const Process& process : processes_) {
        auto target = glanced(process, n);
        if (!target) continue;
        RankStacks& rank = ranks.emplace_back();
        rank.snapshot.pid = process.pid;
        const LimitedTarget limited(*target, Deadline::after(options_.timeout));
        for (std::size_t i = 0; i < target->threads().size();) {
          if (auto stack = unwind_glance(limited, *target->threads()[i].registers)) {
            rank.stacks.push_back(std::move(*stack));
            ++i;
          } else {
            target->leave_out(i);
          }
        }
        rank.target = std::move(target);
        read_syscalls(rank);
      }
      if (!ranks.empty()) looks.push_back(std::move(ranks));
    }
  }

  std::vector<std::vector<RankStacks>> looks;
  std::unordered_map<Tid, RunTime> ran;
  std::chrono::steady_clock::duration between{};

 private:
  struct Process {
    Pid pid;
    std::uint64_t start_ticks;
    const std::vector<python::RuntimeCandidate>* interpreters;
  };

  std::unordered_map<Tid, RunTime> run_times() const {
    std::unordered_map<Tid, RunTime> times;
    for (const Process& process : processes_)
      for (const Tid tid : proc::tasks_of(process.pid))
        if (const auto time = run_time_of(process.pid, tid)) times.emplace(tid, *time);
    return times;
  }

  // Those of each process that woke up most often. Not of an interpreter: what Python is at lies in more than the stack.
  void follow_the_wakeful() {
    const std::size_t of_each = std::max<std::size_t>(1, Glances::kMostThreads / std::max<std::size_t>(1, processes_.size()));
    for (const Process& process : processes_) {
      if (!process.interpreters->empty()) continue;
      std::vector<std::pair<std::int64_t, Tid>> wakeful;
      for (const Tid tid : proc::tasks_of(process.pid))
        if (const auto found = ran.find(tid); found != ran.end() && found->second.runs > 0) wakeful.emplace_back(-found->second.runs, tid);
      std::sort(wakeful.begin(), wakeful.end());
      for (std::size_t i = 0; i < std::min(of_each, wakeful.size()); ++i) glances_.follow(process.pid, wakeful[i].second);
    }
  }

  std::unique_ptr<GlancedTarget> glanced(const Process& process, std::size_t n) {
    std::vector<Glance> glances = glances_.of(process.pid, n);
    if (glances.empty()) return nullptr;
    auto target = LiveTarget::prepare(process.pid, images_);
    if (!target || (*target)->start_ticks() != process.start_ticks) return nullptr;
    return std::make_unique<GlancedTarget>(std::move(*target), std::move(glances));
  }

  LiveImages& images_;
  const CaptureOptions& options_;
  const bool with_glances_;
  Glances glances_;
  std::vector<Process> processes_;
};
}  // namespace

LiveCapture capture_live(const LiveRequest& request, const CaptureOptions& options) {
  const auto started = std::chrono::steady_clock::now();
  const ProcessTable table = ProcessTable::scan();
  Preparer preparer;
  const ProcessFacts facts{[&](Pid pid) { return preparer.environment(pid); }, [&](Pid pid) { return preparer.is_wrapper(pid, table); }, Preparer::can_train};
  const std::vector<PlannedTarget> plan = request.whole_job ? plan_job(table, facts, getpid()) : plan_pids(request.pids, table, facts, getpid());

  const std::string host = host_name();
  std::vector<RankStacks> ranks(plan.size());
  for (RankStacks& rank : ranks) rank.time_left = options.timeout;
  std::vector<LiveTarget*> targets(plan.size());   // owned by ranks[i].target; nullptr: failed
  std::vector<const std::vector<python::RuntimeCandidate>*> interpreters(plan.size());
  NcclCounts nccl;
  GpuHealthQuestion gpu_health(request.nvml);
  for (std::size_t i = 0; i < plan.size(); ++i) {
    Prepared& prepared = preparer.prepare(plan[i].pid);
    RankSnapshot& snapshot = ranks[i].snapshot;
    snapshot.kind = plan[i].kind;
    snapshot.parent = plan[i].parent;
    snapshot.pid = plan[i].pid;
    snapshot.host = host;
    snapshot.source = Source::kLive;
    if (plan[i].kind == RankKind::kRank) {
      snapshot.rank = plan[i].identity.rank;
      snapshot.world_size = plan[i].identity.world_size;
      snapshot.local_rank = plan[i].identity.local_rank;
    }
    gpu_health.add(plan[i].pid, plan[i].kind, prepared.target.get());
    if (!prepared.target) {
      fail_rank(ranks[i], *prepared.error);
      continue;
    }
    targets[i] = prepared.target.get();
    interpreters[i] = &prepared.interpreters;
    if (!targets[i]->executable().empty()) snapshot.executable = targets[i]->executable();
    snapshot.command = targets[i]->command();
    if (snapshot.kind == RankKind::kRank) snapshot.coordinates = coordinates_of(snapshot.command, prepared.environment, snapshot.rank, snapshot.world_size);
    if (snapshot.kind == RankKind::kRank) nccl.add(*targets[i], host, prepared.environment);
    ranks[i].target = std::move(prepared.target);
    ranks[i].cxx = find_cxx_runtime(ranks[i].target->modules());
  }

  gpu_health.ask();
  nccl.ask_first();
  for (RankStacks& rank : ranks)
    if (nccl.problem && rank.snapshot.pid == nccl.troubled) rank.snapshot.problems.push_back(*nccl.problem);

  const auto first_look = std::chrono::steady_clock::now();
  capture_side_by_side(ranks, targets, interpreters, options.memory);

  WallClock::time_point first = WallClock::time_point::max();
  for (const LiveTarget* target : targets)
    if (target != nullptr) first = std::min(first, target->captured_at());
  if (first == WallClock::time_point::max()) first = WallClock::now();
  for (std::size_t i = 0; i < plan.size(); ++i)
    if (targets[i] != nullptr) ranks[i].snapshot.captured_offset_ms = std::chrono::duration<double, std::milli>(targets[i]->captured_at() - first).count();
  // A rank's child that ended before its turn came (a compiler, a shell) has no more to say than one that ended before the tool began.
  std::erase_if(ranks, [](const RankStacks& rank) {
    const RankSnapshot& snapshot = rank.snapshot;
    return snapshot.kind == RankKind::kChild && snapshot.status == Status::kFailed && !proc::stat_of(snapshot.pid);
  });
  LaterLooks later(targets, interpreters, preparer.images(), options, request.glances);
  if (request.samples > 1) {
    unwind_ranks(ranks, options);
    for (LiveTarget* target : targets)
      if (target != nullptr) target->forget_copy();
    for (int n = 1; n < request.samples; ++n) later.look(first_look + n * request.interval);
    later.add_glances();
    nccl.ask_again();
  }
  FinishedJob finished = finish_job(std::move(ranks), std::move(later.looks), options, first, started);
  finished.job.nccl = std::move(nccl.status);
  gpu_health.fill_in(finished.job.ranks);
  if (!request.whole_job) finished.job.not_looked_at = find_unseen(plan, table, facts, host, getpid());
  return {std::move(finished.job), std::move(finished.later), std::move(later.ran), later.between};
}

}  // namespace rankstacks
