#include <fmt/format.h>
#include <sys/stat.h>
#include <algorithm>
#include <chrono>
#include <map>
#include <memory>

#include "base/unattended.h"
#include "capture/capture_job.h"
#include "capture/core_families.h"
#include "capture/finish_job.h"
#include "capture/flight_records.h"
#include "capture/gpu_cores.h"
#include "capture/parallel_layout.h"
#include "capture/rank_identity.h"
#include "capture/rank_versions.h"
#include "python/rank_values.h"
#include "small_core/interpreter_note.h"
#include "small_core/stack_note.h"
#include "target/coredump_attributes.h"
#include "target/environment_block.h"
#include "target/fault_instruction.h"
#include "target/fault_place.h"
#include "target/limited_target.h"

namespace rankstacks::capture {
namespace {

using WallClock = std::chrono::system_clock;

// The name of the machine on which the core was taken. The core format does not contain it, but the environment of a
// job usually does. Slurm states the node of each task; the shell's HOSTNAME is that of the machine on which the job
// was submitted, because `sbatch` and `srun` hand on the environment.
std::string host_of(const target::CoreTarget& core) {
  for (const char* name : {"SLURMD_NODENAME", "HOSTNAME", "HOST"})
    if (const auto it = core.environment().find(name); it != core.environment().end() && !it->second.empty())
      return it->second;
  return "unknown";
}

// The time of a core's last modification, which is when it was written: the best available estimate of the time of the
// capture.
std::optional<WallClock::time_point> written_at(const std::string& path) {
  struct stat st {};
  if (stat(path.c_str(), &st) != 0) return std::nullopt;
  return WallClock::time_point(std::chrono::duration_cast<WallClock::duration>(
      std::chrono::seconds(st.st_mtim.tv_sec) + std::chrono::nanoseconds(st.st_mtim.tv_nsec)));
}

// As the process had set them when its core was taken.
Variables variables_of(const target::CoreTarget& core) {
  Variables variables = core.environment();
  if (const auto variable = target::find_environ_variable(core.modules()))
    for (const auto& [name, value] : target::read_current_environment(core, *variable)) variables[name] = value;
  return variables;
}

// What is asked of each core.
struct Wanted {
  Deadline::Clock::duration timeout;
  bool records = false;  // a small core is to be made of it
};

// What a capture says in addition to its memory.
void read_own_notes(RankStacks& rank, const target::OwnNotes& own, std::optional<NotedReport>& report) {
  if (!own.is_capture()) return;
  rank.noted_stacks = small_core::read_stacks(own.body(target::OwnNote::kStacks));
  rank.noted_symbols = small_core::read_symbols(own.body(target::OwnNote::kSymbols));
  const auto text = own.body(target::OwnNote::kReport);
  if (text.empty()) return;
  report =
      NotedReport{{reinterpret_cast<const char*>(text.data()), text.size()}, (own.flags & target::kHasAllSymbols) != 0};
}

// Those that a capture notes; the files of its modules, which say where they are, may be missing.
std::vector<python::RuntimeCandidate> interpreters_of(const target::CoreTarget& core) {
  auto noted = small_core::read_interpreters(core.own_notes().body(target::OwnNote::kInterpreters));
  return noted.empty() ? python::find_python_runtime(core) : noted;
}

void read_core(RankStacks& rank, const std::string& path, const target::CoreOptions& core_options,
               elf::ImageCache& images, const Wanted& wanted, CoreDumpPlace& dumps,
               std::optional<NotedReport>& noted_report) {
  const Deadline deadline = Deadline::after(wanted.timeout);
  RankSnapshot& snapshot = rank.snapshot;
  snapshot.source = Source::kCore;
  snapshot.path = path;
  snapshot.host = "unknown";
  if (!core_options.memory) snapshot.rank = rank_from_file_name(path);  // else it is a file without a name
  auto opened = target::CoreTarget::open(path, core_options, images, deadline);
  if (!opened) {
    fail_rank(rank, opened.error());
    return;
  }
  target::CoreTarget& core = **opened;
  if (wanted.records) rank.recording = small_core::Recording::of(core);
  read_own_notes(rank, core.own_notes(), noted_report);
  snapshot.pid = core.pid();
  const target::CoredumpAttributes noted = target::read_coredump_attributes(path);
  snapshot.host = noted.host.empty() ? host_of(core) : noted.host;
  if (!core.executable().empty()) snapshot.executable = core.executable();
  snapshot.command = core.command();
  snapshot.signal = core.signal();
  if (snapshot.signal) target::read_fault_instruction(core, *snapshot.signal);
  if (snapshot.signal) snapshot.signal->place = target::place_of_fault(core, *snapshot.signal, core.pid());
  const auto interpreters = interpreters_of(core);
  auto environment = core.environment();
  environment.merge(python::read_rank_values(core, interpreters));
  const RankIdentity identity = identity_from_environment(environment);
  if (identity.rank) snapshot.rank = identity.rank;
  snapshot.world_size = identity.world_size;
  snapshot.local_rank = identity.local_rank;
  snapshot.local_world_size = identity.local_world_size;
  snapshot.coordinates = coordinates_of(snapshot.command, environment, snapshot.rank, snapshot.world_size);
  snapshot.problems = core.problems();
  snapshot.method = ReadMethod::kCore;
  if (core.partial()) snapshot.status = Status::kPartial;
  if (noted.truncated) {
    snapshot.problems.push_back({"systemd-coredump cut this core off when it stored it (user.coredump.truncated)",
                                 "raise ProcessSizeMax= and ExternalSizeMax= in /etc/systemd/coredump.conf",
                                 ProblemCode::kIncomplete});
    snapshot.status = Status::kPartial;
  }
  // Its problems explain why; the other data has no stacks.
  if (core.threads().empty()) snapshot.status = Status::kFailed;
  rank.lost_stacks.insert(core.lost_stacks().begin(), core.lost_stacks().end());
  const Variables variables = variables_of(core);
  rank.target = std::move(*opened);
  read_python(rank, interpreters, deadline);
  read_syscalls(rank);
  rank.cxx = target::find_cxx_runtime(rank.target->modules());
  read_exceptions(rank);
  rank.abort_messages = target::find_abort_messages(rank.target->modules());
  read_abort_message(rank);
  if (rank.recording) {
    rank.recording->add_interpreters(interpreters);
    rank.recording->read_more(target::LimitedTarget(*rank.target, deadline));
  }
  add_environment_of_core(rank, variables);
  if (snapshot.rank) dumps = {dump_paths(variables, *snapshot.rank), core_options.memory ? "" : path, core.user()};
  rank.time_left = deadline.left();
}

}  // namespace

JobSnapshot capture_cores(const std::vector<std::string>& paths, const target::CoreOptions& core_options,
                          const CaptureOptions& options, NotedReports* noted) {
  const auto started = std::chrono::steady_clock::now();
  // Cores, and the files that they refer to, may be in a file system that does not answer any more: each is read by a
  // worker that can be given up.
  struct Work {
    std::vector<std::string> paths;
    target::CoreOptions core_options;
    Wanted wanted;
    elf::ImageCache images;
    std::vector<RankStacks> ranks;
    std::vector<std::optional<OpenedGpuCore>> gpu_cores;
    std::vector<std::optional<WallClock::time_point>> times;
    std::vector<std::optional<NotedReport>> noted;
    std::vector<CoreDumpPlace> dumps;  // where the Flight Recorder of each would have written
  };
  constexpr int kFilesShare = 4;  // of the timeout: the longest wait for a file that another rank's worker is reading
  const auto work = std::shared_ptr<Work>(
      new Work{paths, core_options, Wanted{options.timeout, options.kept != nullptr},
               elf::ImageCache(std::max<Deadline::Clock::duration>(options.timeout / kFilesShare, kMinTimeout)),
               std::vector<RankStacks>(paths.size()), std::vector<std::optional<OpenedGpuCore>>(paths.size()),
               std::vector<std::optional<WallClock::time_point>>(paths.size()),
               std::vector<std::optional<NotedReport>>(paths.size()), std::vector<CoreDumpPlace>(paths.size())});
  // Code that checks the deadline itself returns before this limit, with what it has so far.
  const auto outcomes =
      Unattended{[work](std::size_t i) {
                   reading_now(work->paths[i]);
                   work->times[i] = written_at(work->paths[i]);
                   if (auto core = gpu::read_gpu_core(work->paths[i], Deadline::after(work->wanted.timeout)))
                     work->gpu_cores[i] = OpenedGpuCore{work->paths[i], std::move(*core)};
                   else
                     read_core(work->ranks[i], work->paths[i], work->core_options, work->images, work->wanted,
                               work->dumps[i], work->noted[i]);
                 },
                 Unattended::beyond(options.timeout)}
          .run(paths.size());
  std::vector<RankStacks> ranks(paths.size());
  std::vector<std::optional<OpenedGpuCore>> gpu_cores(paths.size());
  std::vector<std::optional<WallClock::time_point>> times(paths.size());
  std::map<std::string, std::size_t> core_at;
  for (std::size_t i = 0; i < paths.size(); ++i) {
    if (outcomes[i].came_back) {
      ranks[i] = std::move(work->ranks[i]);
      gpu_cores[i] = std::move(work->gpu_cores[i]);
      times[i] = work->times[i];
      if (noted != nullptr && work->noted[i]) noted->emplace(paths[i], std::move(*work->noted[i]));
      core_at.emplace(paths[i], i);
      continue;
    }
    ranks[i].snapshot.source = Source::kCore;
    ranks[i].snapshot.path = paths[i];
    ranks[i].snapshot.host = "unknown";
    ranks[i].snapshot.rank = rank_from_file_name(paths[i]);
    fail_rank(ranks[i], {.code = ErrorCode::kTimeout,
                         .subject = paths[i],
                         .what = fmt::format("reading it was given up: {} does not answer", outcomes[i].file),
                         .hint = "the server of that file system (NFS, FUSE) is gone or slow: `stat` on the file waits "
                                 "as well; give it more time with --timeout"});
  }
  add_modules_of_cores(ranks);
  const GpuCoresOfJob gpus = join_gpu_cores(ranks, std::move(gpu_cores));
  std::vector<CoreProcess> processes;
  for (RankStacks& rank : ranks)
    processes.push_back(
        {&rank.snapshot, rank.target ? static_cast<const target::CoreTarget&>(*rank.target).parent() : std::nullopt});
  adopt_children(processes);
  std::optional<WallClock::time_point> first;
  const auto note_time = [&](std::optional<WallClock::time_point> at) {
    if (at && (!first || *at < *first)) first = at;
  };
  for (std::size_t i = 0; i < paths.size(); ++i)
    note_time(gpus.written_at(paths[i]) ? gpus.written_at(paths[i]) : times[i]);
  JobSnapshot job = finish_job(std::move(ranks), {}, options, first.value_or(WallClock::now()), started).job;
  gpus.add_to(job);
  add_named_dumps(job.ranks, options.flight_recorder, first.value_or(WallClock::now()), options.timeout);
  for (RankSnapshot& rank : job.ranks) {
    const auto core = rank.path ? core_at.find(*rank.path) : core_at.end();
    if (core == core_at.end() || rank.kind != RankKind::kRank || !times[core->second]) continue;
    add_dump_of_core(rank, work->dumps[core->second], core_options.sysroot, *times[core->second], options.timeout);
  }
  return job;
}

}  // namespace rankstacks::capture
