// The live capture. Its steps: plan which processes to capture; prepare them (open their files); stop, copy and resume
// them in parallel; do everything else on the copies.
#include <fmt/format.h>
#include <unistd.h>
#include <algorithm>
#include <chrono>
#include <ctime>
#include <memory>
#include <thread>

#include "base/unattended.h"
#include "capture/capture_job.h"
#include "capture/ended_ranks.h"
#include "capture/finish_job.h"
#include "capture/flight_records.h"
#include "capture/gpu_health.h"
#include "capture/job_plan.h"
#include "capture/job_processes.h"
#include "capture/kernel_kills.h"
#include "capture/nccl_counts.h"
#include "capture/other_ends.h"
#include "capture/parallel_layout.h"
#include "capture/prepare_targets.h"
#include "capture/preparer.h"
#include "capture/rank_versions.h"
#include "capture/read_processes.h"
#include "capture/sample_times.h"
#include "target/glances.h"
#include "target/limited_target.h"
#include "target/live_target.h"
#include "target/oom_kills.h"
#include "target/proc.h"
#include "target/process_id.h"
#include "target/run_time.h"
#include "unwind/glanced_stack.h"

namespace rankstacks::capture {
namespace {

using WallClock = std::chrono::system_clock;

std::string host_name() {
  char name[256] = "";
  if (gethostname(name, sizeof name - 1) != 0) return "unknown";
  return name;
}

// A process whose unwinding was given up belongs to the worker that may still be unwinding it.
void leave_to_workers(LiveRanks& live) {
  for (std::size_t i = 0; i < live.targets.size(); ++i)
    if (live.ranks[i].target == nullptr) live.targets[i] = nullptr;
}

// Releases the copies of processes that have been unwound.
void forget_copies(LiveRanks& live) {
  for (target::LiveTarget* const target : live.targets)
    if (target != nullptr) target->forget_copy();
}

// Whether the copies take memory that the next steps may need. To release small ones takes longer than to keep them.
bool are_large(const LiveRanks& live, const CaptureOptions& options) {
  constexpr std::size_t kShare = 64;
  std::size_t bytes = 0;
  for (const target::LiveTarget* target : live.targets) bytes += target != nullptr ? target->copied_bytes() : 0;
  return bytes > options.memory / kShare;
}

// Takes further samples of the processes of the first sample.
class LaterSamples {
 public:
  LaterSamples(const std::vector<target::LiveTarget*>& first,
               const std::vector<const std::vector<python::RuntimeCandidate>*>& interpreters,
               const target::LiveImages& images, const CaptureOptions& options, ProcessReader& reader, bool glances)
      : images_(images), options_(options), reader_(reader), with_glances_(glances) {
    for (std::size_t i = 0; i < first.size(); ++i)
      if (first[i] != nullptr && !first[i]->does_not_answer())
        processes_.push_back({first[i]->pid(), first[i]->start_ticks(), interpreters[i]});
  }

  // Unwinds the sample immediately: there is time until the next one, and the memory copied for it can be released.
  void take(std::chrono::steady_clock::time_point when) {
    // On a busy machine a thread returns to its wait slightly late after a sample; that is not counted as a run.
    constexpr std::chrono::milliseconds kReturn{20};
    // Where a machine is so busy that the next sample is late, glances are what shows motion.
    constexpr std::chrono::milliseconds kLeastGlances{100};
    if (!glances_.empty())
      when = std::max<std::chrono::steady_clock::time_point>(
          when, std::chrono::steady_clock::now() + kReturn + kLeastGlances);
    std::this_thread::sleep_for(
        std::min<std::chrono::steady_clock::duration>(kReturn, (when - std::chrono::steady_clock::now()) / 4));
    const auto from = std::chrono::steady_clock::now();
    const auto before = run_times();
    if (with_glances_ && glances_.empty()) follow_the_wakeful();
    if (!glances_.empty()) glances_.glance_until(when, kLeastGlances);
    std::this_thread::sleep_until(when);
    const auto after = run_times();
    between += std::chrono::steady_clock::now() - from;
    for (const auto& [tid, then] : before) {
      const auto now = after.find(tid);
      if (now == after.end()) continue;
      target::RunTime& time = ran[tid];
      time.cpu_ms += now->second.cpu_ms - then.cpu_ms;
      time.runs += now->second.runs - then.runs;
    }
    LiveRanks sample(processes_.size());
    auto prepared = prepare_again();
    for (std::size_t i = 0; i < processes_.size(); ++i) {
      sample.ranks[i].time_left = options_.timeout;
      sample.ranks[i].snapshot.pid = processes_[i].pid;
      if (!prepared[i]) continue;
      sample.targets[i] = prepared[i].get();
      sample.interpreters[i] = processes_[i].interpreters;
      sample.ranks[i].target = std::move(prepared[i]);
    }
    target::SocketTables sockets;
    reader_.read(sample, sockets);
    for (const target::LiveTarget* target : sample.targets)
      if (target != nullptr && target->does_not_answer())
        std::erase_if(processes_, [&](const Process& process) { return process.pid == target->pid(); });
    unwind_ranks(sample.ranks, options_);
    reader_.read_again(sample, reader_.to_read_again(sample), sockets);
    forget_copies(sample);
    samples.push_back(std::move(sample.ranks));
  }

  // Adds the glances taken between the samples as further samples, using only stacks that were walked to their end.
  void add_glances() {
    for (std::size_t n = 0; n < target::Glances::kMaxPlaces && !glances_.empty(); ++n) {
      struct Work {
        std::vector<std::vector<target::Glance>> glances;
        std::vector<std::unique_ptr<target::LiveTarget>> targets;
        std::vector<RankStacks> ranks;
      };
      const auto work = std::make_shared<Work>();
      for (const Process& process : processes_) work->glances.push_back(glances_.of(process.pid, n));
      if (std::all_of(work->glances.begin(), work->glances.end(),
                      [](const auto& of_process) { return of_process.empty(); }))
        continue;
      work->targets = prepare_again();
      work->ranks.resize(processes_.size());
      const auto timeout = options_.timeout;
      const auto outcomes = Unattended{[work, timeout](std::size_t i) {
                                         if (work->targets[i] && !work->glances[i].empty())
                                           unwind_glances(work->ranks[i], std::move(work->targets[i]),
                                                          std::move(work->glances[i]), timeout);
                                       },
                                       std::max<Deadline::Clock::duration>(timeout, kMinTimeout)}
                                .run(processes_.size());
      std::vector<RankStacks> ranks;
      for (std::size_t i = 0; i < processes_.size(); ++i) {
        if (!outcomes[i].came_back || !work->ranks[i].target) continue;
        ranks.push_back(std::move(work->ranks[i]));
        ranks.back().snapshot.pid = processes_[i].pid;
      }
      if (!ranks.empty()) samples.push_back(std::move(ranks));
    }
  }

  std::vector<std::vector<RankStacks>> samples;
  std::unordered_map<Tid, target::RunTime> ran;
  std::chrono::steady_clock::duration between{};

 private:
  struct Process {
    Pid pid;
    std::uint64_t start_ticks;
    const std::vector<python::RuntimeCandidate>* interpreters;
  };

  static void unwind_glances(RankStacks& rank, std::unique_ptr<target::LiveTarget> process,
                             std::vector<target::Glance> glances, Deadline::Clock::duration timeout) {
    auto target = std::make_unique<target::GlancedTarget>(std::move(process), std::move(glances));
    const target::LimitedTarget limited(*target, Deadline::after(timeout));
    for (std::size_t i = 0; i < target->threads().size();) {
      if (auto stack = unwind::unwind_glance(limited, *target->threads()[i].registers)) {
        rank.stacks.push_back(std::move(*stack));
        ++i;
      } else {
        target->leave_out(i);
      }
    }
    rank.target = std::move(target);
    read_syscalls(rank);
  }

  std::unordered_map<Tid, target::RunTime> run_times() const {
    std::unordered_map<Tid, target::RunTime> times;
    for (const Process& process : processes_)
      for (const Tid tid : target::proc::tasks_of(process.pid))
        if (const auto time = target::run_time_of(process.pid, tid)) times.emplace(tid, *time);
    return times;
  }

  // Follows the threads of each process that woke up most often, except in Python processes: the state of Python code
  // is not in the stack alone.
  void follow_the_wakeful() {
    const std::size_t of_each =
        std::max<std::size_t>(1, target::Glances::kMaxThreads / std::max<std::size_t>(1, processes_.size()));
    for (const Process& process : processes_) {
      if (!process.interpreters->empty()) continue;
      std::vector<std::pair<std::int64_t, Tid>> wakeful;
      for (const Tid tid : target::proc::tasks_of(process.pid))
        if (const auto found = ran.find(tid); found != ran.end() && found->second.runs > 0)
          wakeful.emplace_back(-found->second.runs, tid);
      std::sort(wakeful.begin(), wakeful.end());
      for (std::size_t i = 0; i < std::min(of_each, wakeful.size()); ++i)
        glances_.follow(process.pid, wakeful[i].second);
    }
  }

  // Prepares those that are still the same processes. nullptr for a process that is not, or that cannot be captured any
  // more.
  std::vector<std::unique_ptr<target::LiveTarget>> prepare_again() const {
    std::vector<Pid> pids;
    for (const Process& process : processes_) pids.push_back(process.pid);
    auto prepared = prepare_targets(pids, images_, Preparing::kModules, options_.timeout, options_.silence);
    std::vector<std::unique_ptr<target::LiveTarget>> targets(pids.size());
    for (std::size_t i = 0; i < pids.size(); ++i)
      if (prepared[i].target && prepared[i].target->start_ticks() == processes_[i].start_ticks)
        targets[i] = std::move(prepared[i].target);
    return targets;
  }

  target::LiveImages images_;
  const CaptureOptions& options_;
  ProcessReader& reader_;
  const bool with_glances_;
  target::Glances glances_;
  std::vector<Process> processes_;
};

void identify(RankSnapshot& snapshot, const PlannedTarget& planned, const std::string& host) {
  snapshot.kind = planned.kind;
  snapshot.parent = planned.parent;
  snapshot.pid = planned.pid;
  snapshot.host = host;
  snapshot.source = Source::kLive;
  if (planned.kind == RankKind::kRank) {
    snapshot.rank = planned.identity.rank;
    snapshot.world_size = planned.identity.world_size;
    snapshot.local_rank = planned.identity.local_rank;
    snapshot.local_world_size = planned.identity.local_world_size;
  }
}

// Another process may have got the pid of one that was planned and has ended.
bool is_another(const target::LiveTarget& target, const ProcessEntry* planned) {
  return planned != nullptr && planned->start_ticks != 0 && planned->start_ticks != target.start_ticks();
}

LiveRanks take_prepared(const std::vector<PlannedTarget>& plan, const ProcessTable& table, Preparer& preparer,
                        const std::string& host, const CaptureOptions& options, GpuHealthQuestion& gpu_health,
                        NcclCounts& nccl) {
  const bool records = options.kept != nullptr;
  flight_recorder::RecorderSymbols recorders;
  std::vector<Pid> pids;
  for (const PlannedTarget& target : plan) pids.push_back(target.pid);
  preparer.prepare(pids);
  LiveRanks live(plan.size());
  for (std::size_t i = 0; i < plan.size(); ++i) {
    PreparedTarget& prepared = preparer.prepared(plan[i].pid);
    RankStacks& rank = live.ranks[i];
    RankSnapshot& snapshot = rank.snapshot;
    rank.time_left = options.timeout;
    identify(snapshot, plan[i], host);
    if (prepared.target && is_another(*prepared.target, table.find(plan[i].pid))) {
      prepared.target.reset();
      prepared.error = Error{.code = ErrorCode::kGone,
                             .subject = fmt::format("pid {}", plan[i].pid),
                             .what = "it has ended, and another process has its number"};
    }
    gpu_health.add(plan[i].pid, plan[i].kind, prepared.target.get());
    if (!prepared.target) {
      fail_rank(rank, *prepared.error);
      continue;
    }
    const auto environment = preparer.environment(plan[i].pid);
    const target::LiveTarget& target = *(live.targets[i] = prepared.target.get());
    live.interpreters[i] = &prepared.interpreters;
    snapshot.start_ticks = target.start_ticks();
    snapshot.own_pid = target::namespaced_pid_of(target.pid());
    snapshot.oom_kills = target::oom_kills_of(target.pid());
    if (!target.executable().empty()) snapshot.executable = target.executable();
    snapshot.command = target.command();
    if (snapshot.kind == RankKind::kRank)
      snapshot.coordinates = coordinates_of(snapshot.command, environment, snapshot.rank, snapshot.world_size);
    if (snapshot.kind == RankKind::kRank) nccl.add(target, host, environment);
    if (records) {
      rank.recording = small_core::Recording::of(*prepared.target, environment);
      rank.recording->add_interpreters(prepared.interpreters);
      rank.recorders = recorders.find(prepared.target->modules(), {});
    }
    rank.target = std::move(prepared.target);
    rank.cxx = prepared.cxx;
    rank.abort_messages = prepared.abort_messages;
  }
  return live;
}

// Returns the time of the first capture, and sets captured_offset_ms of each snapshot to its distance from that time.
WallClock::time_point set_capture_times(LiveRanks& live) {
  WallClock::time_point first = WallClock::time_point::max();
  const auto is_read = [&](std::size_t i) { return live.targets[i] != nullptr && live.ranks[i].target != nullptr; };
  for (std::size_t i = 0; i < live.targets.size(); ++i)
    if (is_read(i)) first = std::min(first, live.targets[i]->captured_at());
  if (first == WallClock::time_point::max()) first = WallClock::now();
  for (std::size_t i = 0; i < live.targets.size(); ++i)
    if (is_read(i))
      live.ranks[i].snapshot.captured_offset_ms =
          std::chrono::duration<double, std::milli>(live.targets[i]->captured_at() - first).count();
  return first;
}

// All pids of the capture are numbers of the tool's own namespace.
void state_pid_space(JobSnapshot& job) {
  const std::optional<PidSpace> space = target::own_pid_space();
  for (RankSnapshot& rank : job.ranks) rank.pid_space = space;
  for (UnseenRank& unseen : job.not_looked_at) unseen.pid_space = space;
  if (!job.nccl) return;
  for (NcclCommunicator& communicator : job.nccl->communicators)
    for (auto* const members : {&communicator.members, &communicator.missing})
      for (NcclMember& member : *members)
        if (member.process) member.process->pid_space = space;
}

// Where PyTorch's Flight Recorders are in processes whose memory was not recorded with the sample: those of the
// libraries whose threads the process has.
void find_recorders(std::vector<RankStacks>& ranks) {
  struct Work {
    flight_recorder::RecorderSymbols symbols;
    std::vector<target::ModuleMap> modules;
    std::vector<flight_recorder::RecorderSymbols::Which> which;
    std::vector<std::vector<flight_recorder::RecorderPlace>> found;
  };
  const auto work = std::make_shared<Work>();
  std::vector<std::size_t> of;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const RankStacks& rank = ranks[i];
    if (!rank.target || rank.recording || rank.snapshot.kind != RankKind::kRank) continue;
    flight_recorder::RecorderSymbols::Which which{.nccl = false, .gloo = false};
    for (const target::ThreadInfo& thread : rank.target->threads()) {  // c10::setThreadName, torch 2.1 and newer
      which.nccl |= thread.name == "pt_nccl_watchdg";
      which.gloo |= thread.name == "pt_gloo_runloop";
    }
    if (!which.nccl && !which.gloo) continue;
    of.push_back(i);
    work->modules.push_back(rank.target->modules());
    work->which.push_back(which);
  }
  if (of.empty()) return;
  work->found.resize(of.size());
  constexpr std::chrono::seconds kLongest{2};  // a file whose server does not answer
  const auto outcomes =
      Unattended{[work](std::size_t n) { work->found[n] = work->symbols.find(work->modules[n], work->which[n]); },
                 kLongest}
          .run(of.size());
  for (std::size_t n = 0; n < of.size(); ++n)
    if (outcomes[n].came_back) ranks[of[n]].recorders = std::move(work->found[n]);
}

// What PyTorch's Flight Recorders have in memory, of processes whose memory was not recorded with the sample. They are
// read while the processes run: a record that changed meanwhile is not used.
void add_recorded(std::vector<RankStacks>& ranks) {
  struct Work {
    std::vector<Pid> pids;
    std::vector<std::vector<flight_recorder::RecorderPlace>> places;
    std::vector<std::optional<FlightRecord>> records;
  };
  const auto work = std::make_shared<Work>();
  std::vector<std::size_t> of;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const RankStacks& rank = ranks[i];
    if (!rank.target || rank.recording || rank.recorders.empty()) continue;
    of.push_back(i);
    work->pids.push_back(rank.snapshot.pid);
    work->places.push_back(rank.recorders);
  }
  if (of.empty()) return;
  work->records.resize(of.size());
  constexpr std::chrono::seconds kLongest{2};  // memory that no process fills in
  const auto outcomes = Unattended{[work](std::size_t n) {
                                     work->records[n] = flight_recorder::read_recorders(
                                         [pid = work->pids[n]](Address at, std::span<std::byte> into) {
                                           return target::proc::read_memory(pid, at, into);
                                         },
                                         work->places[n]);
                                   },
                                   kLongest}
                            .run(of.size());
  for (std::size_t n = 0; n < of.size(); ++n) {
    if (!outcomes[n].came_back || !work->records[n]) continue;
    RankSnapshot& snapshot = ranks[of[n]].snapshot;
    const auto now = target::proc::stat_of(snapshot.pid);
    if (!now || now->start_ticks != snapshot.start_ticks) continue;  // another process has got its number
    snapshot.flight_record = std::move(work->records[n]);
    snapshot.flight_record->age_ms = 0;
    take_time_of_last_call(*snapshot.flight_record, std::chrono::system_clock::now());
  }
}

// Of the records that were read with the sample: those of processes whose memory was recorded.
void take_times_of_last_calls(LiveRanks& live) {
  for (std::size_t i = 0; i < live.ranks.size(); ++i)
    if (RankStacks& rank = live.ranks[i]; live.targets[i] != nullptr && rank.target && rank.snapshot.flight_record)
      take_time_of_last_call(*rank.snapshot.flight_record, live.targets[i]->captured_at());
}

// Removes the children of ranks (a compiler, a shell) that ended before they could be captured, just as children that
// ended before the tool started are not part of the report.
void leave_out_ended_children(LiveRanks& live) {
  for (std::size_t i = live.ranks.size(); i-- > 0;) {
    const RankSnapshot& snapshot = live.ranks[i].snapshot;
    if (snapshot.kind != RankKind::kChild || snapshot.status != Status::kFailed || target::proc::stat_of(snapshot.pid))
      continue;
    const auto at = static_cast<std::ptrdiff_t>(i);
    live.ranks.erase(live.ranks.begin() + at);
    live.targets.erase(live.targets.begin() + at);
    live.interpreters.erase(live.interpreters.begin() + at);
  }
}

}  // namespace

LiveCapture capture_live(const LiveRequest& request, const CaptureOptions& options) {
  const auto started = std::chrono::steady_clock::now();
  const ProcessTable table = table_for(request);
  Preparer preparer(table, std::max<Deadline::Clock::duration>(options.timeout, kMinTimeout), options.silence);
  const LivePlan chosen = plan_live(request, table, preparer);
  if (chosen.not_chosen) return {.job = {}, .not_chosen = chosen.not_chosen};
  const std::vector<PlannedTarget>& plan = chosen.targets;

  const std::string host = host_name();
  NcclCounts nccl;
  GpuHealthQuestion gpu_health(request.nvml);
  LiveRanks live = take_prepared(plan, table, preparer, host, options, gpu_health, nccl);
  gpu_health.ask();
  auto sockets = std::make_shared<target::SocketTables>();
  if (nccl.ask_first(*sockets)) sockets = std::make_shared<target::SocketTables>();
  for (RankStacks& rank : live.ranks)
    if (nccl.problem && rank.snapshot.pid == nccl.troubled) rank.snapshot.problems.push_back(*nccl.problem);

  const auto first_sample = std::chrono::steady_clock::now();
  ProcessReader reader(options, request.stop);
  reader.read(live, *sockets);
  WallClock::time_point first = set_capture_times(live);
  LaterSamples later(live.targets, live.interpreters, preparer.images(), options, reader, request.glances);
  leave_out_ended_children(live);
  OtherEndsSearch other_ends(live.ranks, sockets);
  unwind_ranks(live.ranks, options);
  if (const auto again = reader.to_read_again(live); !again.empty()) {
    other_ends.fill_in(live.ranks);
    reader.read_again(live, again, *sockets);
    OtherEndsSearch(live.ranks, again, sockets).fill_in(live.ranks);
    first = set_capture_times(live);
  }
  leave_to_workers(live);
  if (request.samples > 1 || options.kept || are_large(live, options)) forget_copies(live);
  take_times_of_last_calls(live);
  find_database_holders(live.ranks);
  // The rest of what is not in the copies, with nothing of the functions' names in it: that is looked up meanwhile.
  const auto read_the_rest = [&](std::vector<RankStacks>& ranks) {
    add_versions(ranks, [&](Pid pid) { return preparer.environment(pid); });
    find_recorders(ranks);
    other_ends.fill_in(ranks);
  };
  if (request.samples > 1) {
    read_the_rest(live.ranks);
    const SampleTimes times{first_sample, request.samples, request.interval};
    for (int n = 1; n < request.samples; ++n) later.take(times.of(n, std::chrono::steady_clock::now(), later.between));
    later.add_glances();
    nccl.ask_again();
  }
  FinishedJob finished = finish_job(std::move(live.ranks), std::move(later.samples), options, first, started,
                                    [&](std::vector<RankStacks>& ranks) {
                                      if (request.samples <= 1) read_the_rest(ranks);
                                      add_recorded(ranks);
                                    });
  finished.job.nccl = std::move(nccl.status);
  add_named_dumps(finished.job.ranks, options.flight_recorder, first, options.timeout);
  const auto place_of_dump = [&](const RankSnapshot& rank) {
    return rank.kind == RankKind::kRank && rank.status != Status::kFailed
               ? dump_place_of(rank, preparer.environment(rank.pid))
               : std::nullopt;
  };
  add_found_dumps(finished.job.ranks, place_of_dump, first, options.timeout);
  gpu_health.fill_in(finished.job.ranks);
  if (!request.job) finished.job.not_looked_at = find_unseen(plan, table, preparer.facts(), host, getpid());
  state_pid_space(finished.job);
  note_ended(finished.job);
  if (lacks_processes(finished.job)) finished.job.kernel_log = kernel_kills_of(finished.job, host);
  using Left = std::pair<target::LiveImages, std::shared_ptr<void>>;
  return {std::move(finished.job),
          {},
          std::move(finished.later),
          std::move(later.ran),
          later.between,
          std::make_shared<Left>(preparer.images(), std::move(finished.leftovers))};
}

}  // namespace rankstacks::capture
