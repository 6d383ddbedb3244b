#include <fmt/format.h>
#include <sys/stat.h>
#include <algorithm>
#include <chrono>
#include <map>
#include <memory>

#include "base/unattended.h"
#include "capture/capture_job.h"
#include "capture/core_families.h"
#include "capture/dying_process.h"
#include "capture/finish_job.h"
#include "capture/flight_records.h"
#include "capture/gpu_cores.h"
#include "capture/missing_files.h"
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
  bool records = false;    // a small core is to be made of it
  std::size_t locals = 0;  // CaptureOptions::locals
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

void describe_process(RankSnapshot& snapshot, const target::CoreTarget& core,
                      const target::CoredumpAttributes& attributes) {
  snapshot.pid = core.pid();
  snapshot.host = attributes.host.empty() ? host_of(core) : attributes.host;
  if (!core.executable().empty()) snapshot.executable = core.executable();
  snapshot.command = core.command();
  snapshot.signal = core.signal();
  if (!snapshot.signal) return;
  target::read_fault_instruction(core, *snapshot.signal);
  snapshot.signal->place = target::place_of_fault(core, *snapshot.signal, core.pid());
}

// Its number, and its place in the job.
void identify_rank(RankSnapshot& snapshot, const target::CoreTarget& core,
                   const std::vector<python::RuntimeCandidate>& interpreters) {
  auto environment = core.environment();
  environment.merge(python::read_rank_values(core, interpreters));
  const RankIdentity identity = identity_from_environment(environment);
  if (identity.rank) snapshot.rank = identity.rank;
  snapshot.world_size = identity.world_size;
  snapshot.local_rank = identity.local_rank;
  snapshot.local_world_size = identity.local_world_size;
  snapshot.coordinates = coordinates_of(snapshot.command, environment, snapshot.rank, snapshot.world_size);
}

void state_what_is_missing(RankSnapshot& snapshot, const target::CoreTarget& core,
                           const target::CoredumpAttributes& attributes) {
  snapshot.problems = core.problems();
  if (core.partial()) snapshot.status = Status::kPartial;
  if (attributes.truncated) {
    snapshot.problems.push_back({"systemd-coredump cut this core off when it stored it (user.coredump.truncated)",
                                 "raise ProcessSizeMax= and ExternalSizeMax= in /etc/systemd/coredump.conf",
                                 ProblemCode::kIncomplete});
    snapshot.status = Status::kPartial;
  }
  // Its problems explain why; the other data has no stacks.
  if (core.threads().empty()) snapshot.status = Status::kFailed;
}

// What the process did, from its memory.
void read_memory(RankStacks& rank, const std::vector<python::RuntimeCandidate>& interpreters,
                 flight_recorder::RecorderSymbols& recorders, std::size_t locals, const Deadline& deadline) {
  read_python(rank, interpreters, locals, deadline);
  read_syscalls(rank);
  rank.cxx = target::find_cxx_runtime(rank.target->modules());
  read_exceptions(rank);
  rank.abort_messages = target::find_abort_messages(rank.target->modules());
  read_abort_message(rank);
  rank.recorders = recorders.find(rank.target->modules(), {});
  read_recorders(rank);
  if (rank.recording) {
    rank.recording->add_interpreters(interpreters);
    rank.recording->read_more(target::LimitedTarget(*rank.target, deadline));
  }
}

// What one file holds: a process's core, or one of its GPUs.
struct ReadCore {
  RankStacks rank;
  std::optional<OpenedGpuCore> gpu_core;
  std::optional<WallClock::time_point> time;  // at which it was written
  std::optional<NotedReport> noted;
  std::vector<MissingFile> missing_files;
  CoreDumpPlace dumps;  // where the Flight Recorder of the process would have written
};

// Of a core that is not read yet.
void name_core(RankSnapshot& snapshot, const std::string& path) {
  snapshot.source = Source::kCore;
  snapshot.path = path;
  snapshot.host = "unknown";
}

// What is known of the files that the cores refer to, for all cores.
struct CoreFiles {
  elf::ImageCache images;
  flight_recorder::RecorderSymbols recorders;
};

void read_process_core(ReadCore& into, const std::string& path, const target::CoreOptions& core_options,
                       CoreFiles& files, const Wanted& wanted) {
  const Deadline deadline = Deadline::after(wanted.timeout);
  RankStacks& rank = into.rank;
  RankSnapshot& snapshot = rank.snapshot;
  name_core(snapshot, path);
  if (!core_options.memory) snapshot.rank = rank_from_file_name(path);  // else it is a file without a name
  auto opened = target::CoreTarget::open(path, core_options, files.images, deadline);
  if (!opened) {
    fail_rank(rank, opened.error());
    return;
  }
  target::CoreTarget& core = **opened;
  if (wanted.records) rank.recording = small_core::Recording::of(core);
  read_own_notes(rank, core.own_notes(), into.noted);
  snapshot.method = ReadMethod::kCore;
  const target::CoredumpAttributes attributes = target::read_coredump_attributes(path);
  describe_process(snapshot, core, attributes);
  const auto interpreters = interpreters_of(core);
  identify_rank(snapshot, core, interpreters);
  state_what_is_missing(snapshot, core, attributes);
  into.missing_files = core.missing_files();
  rank.lost_stacks.insert(core.lost_stacks().begin(), core.lost_stacks().end());
  const Variables variables = variables_of(core);
  rank.target = std::move(*opened);
  read_memory(rank, interpreters, files.recorders, wanted.locals, deadline);
  add_environment_of_core(rank, variables);
  if (snapshot.rank) into.dumps = {dump_paths(variables, *snapshot.rank), core_options.memory ? "" : path, core.user()};
  rank.time_left = deadline.left();
}

ReadCore given_up(const std::string& path, const std::string& file) {
  ReadCore core;
  name_core(core.rank.snapshot, path);
  core.rank.snapshot.rank = rank_from_file_name(path);
  fail_rank(core.rank, {.code = ErrorCode::kTimeout,
                        .subject = path,
                        .what = fmt::format("reading it was given up: {} does not answer", file),
                        .hint = "the server of that file system (NFS, FUSE) is gone or slow: `stat` on the file waits "
                                "as well; give it more time with --timeout"});
  return core;
}

// Cores, and the files that they refer to, may be in a file system that does not answer any more: each is read by a
// worker that can be given up.
std::vector<ReadCore> read_cores(const std::vector<std::string>& paths, const target::CoreOptions& core_options,
                                 const Wanted& wanted) {
  struct Work {
    std::vector<std::string> paths;
    target::CoreOptions core_options;
    Wanted wanted;
    CoreFiles files;
    std::vector<ReadCore> cores;
  };
  constexpr int kFilesShare = 4;  // of the timeout: the longest wait for a file that another rank's worker is reading
  const auto work = std::shared_ptr<Work>(
      new Work{paths,
               core_options,
               wanted,
               {elf::ImageCache(std::max<Deadline::Clock::duration>(wanted.timeout / kFilesShare, kMinTimeout)), {}},
               std::vector<ReadCore>(paths.size())});
  // Code that checks the deadline itself returns before this limit, with what it has so far.
  const auto outcomes = Unattended{[work](std::size_t i) {
                                     const std::string& path = work->paths[i];
                                     ReadCore& core = work->cores[i];
                                     reading_now(path);
                                     const auto died_at = work->core_options.died_at;
                                     core.time = died_at ? died_at : written_at(path);
                                     if (auto gpu = gpu::read_gpu_core(path, Deadline::after(work->wanted.timeout)))
                                       core.gpu_core = OpenedGpuCore{path, std::move(*gpu)};
                                     else read_process_core(core, path, work->core_options, work->files, work->wanted);
                                   },
                                   Unattended::beyond(wanted.timeout)}
                            .run(paths.size());
  std::vector<ReadCore> cores;
  for (std::size_t i = 0; i < paths.size(); ++i)
    cores.push_back(outcomes[i].came_back ? std::move(work->cores[i]) : given_up(paths[i], outcomes[i].file));
  return cores;
}

void adopt_children_of_cores(std::vector<RankStacks>& ranks) {
  std::vector<CoreProcess> processes;
  for (RankStacks& rank : ranks)
    processes.push_back(
        {&rank.snapshot, rank.target ? static_cast<const target::CoreTarget&>(*rank.target).parent() : std::nullopt});
  adopt_children(processes);
}

// When the first of them was written.
WallClock::time_point time_of(const std::vector<ReadCore>& cores, const std::vector<std::string>& paths,
                              const GpuCoresOfJob& gpus) {
  std::optional<WallClock::time_point> first;
  for (std::size_t i = 0; i < paths.size(); ++i) {
    const auto of_gpu = gpus.written_at(paths[i]);
    const auto at = of_gpu ? of_gpu : cores[i].time;
    if (at && (!first || *at < *first)) first = at;
  }
  return first.value_or(WallClock::now());
}

MissingFiles missing_of(std::vector<ReadCore>& cores, const std::vector<std::string>& paths) {
  MissingFiles missing;
  for (std::size_t i = 0; i < paths.size(); ++i)
    if (!cores[i].missing_files.empty()) missing.emplace(paths[i], std::move(cores[i].missing_files));
  return missing;
}

}  // namespace

JobSnapshot capture_cores(const std::vector<std::string>& paths, const target::CoreOptions& core_options,
                          const CaptureOptions& options, NotedReports* noted) {
  const auto started = std::chrono::steady_clock::now();
  std::vector<ReadCore> cores =
      read_cores(paths, core_options, {options.timeout, options.kept != nullptr, options.locals});
  std::vector<RankStacks> ranks;
  std::vector<std::optional<OpenedGpuCore>> gpu_cores;
  std::map<std::string, const ReadCore*> core_at;  // those whose time is known
  for (std::size_t i = 0; i < paths.size(); ++i) {
    ranks.push_back(std::move(cores[i].rank));
    gpu_cores.push_back(std::move(cores[i].gpu_core));
    if (noted != nullptr && cores[i].noted) noted->emplace(paths[i], std::move(*cores[i].noted));
    if (cores[i].time) core_at.emplace(paths[i], &cores[i]);
  }
  add_modules_of_cores(ranks);
  const GpuCoresOfJob gpus = join_gpu_cores(ranks, std::move(gpu_cores));
  adopt_children_of_cores(ranks);
  DyingThreads dying;
  if (core_options.dying != 0) {
    dying = read_dying_threads(core_options.dying);
    describe_dying_calls(ranks, core_options.dying);
    for (RankStacks& rank : ranks) {
      if (!rank.target) continue;
      add_surroundings_of_dying(rank.snapshot, core_options.dying, core_options.sysroot,
                                static_cast<const target::CoreTarget&>(*rank.target).environment());
      if (rank.snapshot.flight_record) take_time_of_last_call(*rank.snapshot.flight_record, WallClock::now());
    }
  }
  const WallClock::time_point time = time_of(cores, paths, gpus);
  JobSnapshot job = finish_job(std::move(ranks), {}, options, time, started).job;
  describe_missing_files(job, missing_of(cores, paths), core_options.sysroot, options.timeout);
  for (RankSnapshot& rank : job.ranks) add_dying_threads(rank, dying);
  gpus.add_to(job);
  add_named_dumps(job.ranks, options.flight_recorder, time, options.timeout);
  for (RankSnapshot& rank : job.ranks) {
    const auto core = rank.path ? core_at.find(*rank.path) : core_at.end();
    if (core == core_at.end() || rank.kind != RankKind::kRank) continue;
    add_dump_of_core(rank, core->second->dumps, core_options.sysroot, *core->second->time, options.timeout);
  }
  return job;
}

}  // namespace rankstacks::capture
