#include <chrono>
#include <fmt/format.h>
#include <sys/stat.h>

#include "base/workers.h"
#include "capture/capture_job.h"
#include "capture/core_families.h"
#include "capture/finish_job.h"
#include "capture/gpu_cores.h"
#include "capture/parallel_layout.h"
#include "capture/rank_identity.h"

namespace rankstacks {
namespace {

using WallClock = std::chrono::system_clock;

// Where a core says on which machine it was taken: nothing in the format does, the environment of a job mostly does.
std::string host_of(const CoreTarget& core) {
  for (const char* name : {"HOSTNAME", "SLURMD_NODENAME", "HOST"})
    if (const auto it = core.environment().find(name); it != core.environment().end() && !it->second.empty()) return it->second;
  return "unknown";
}

// A core's last change is when it was written: the nearest to the time of the capture that there is.
std::optional<WallClock::time_point> written_at(const std::string& path) {
  struct stat st{};
  if (stat(path.c_str(), &st) != 0) return std::nullopt;
  return WallClock::time_point(std::chrono::duration_cast<WallClock::duration>(std::chrono::seconds(st.st_mtim.tv_sec) + std::chrono::nanoseconds(st.st_mtim.tv_nsec)));
}

void read_core(RankStacks& rank, const std::string& path, const CoreOptions& core_options, elf::ImageCache& images, Deadline::Clock::duration timeout) {
  const Deadline deadline = Deadline::after(timeout);
  RankSnapshot& snapshot = rank.snapshot;
  snapshot.source = Source::kCore;
  snapshot.path = path;
  snapshot.host = "unknown";
  snapshot.rank = rank_from_file_name(path);
  auto opened = CoreTarget::open(path, core_options, images, deadline);
  if (!opened) {
    fail_rank(rank, opened.error());
    return;
  }
  const CoreTarget& core = **opened;
  snapshot.pid = core.pid();
  snapshot.host = host_of(core);
  if (!core.executable().empty()) snapshot.executable = core.executable();
  snapshot.command = core.command();
  snapshot.signal = core.signal();
  const RankIdentity identity = identity_from_environment(core.environment());
  if (identity.rank) snapshot.rank = identity.rank;
  snapshot.world_size = identity.world_size;
  snapshot.local_rank = identity.local_rank;
  snapshot.coordinates = coordinates_of(snapshot.command, core.environment(), snapshot.rank, snapshot.world_size);
  snapshot.problems = core.problems();
  if (core.partial()) snapshot.status = Status::kPartial;
  if (core.threads().empty()) snapshot.status = Status::kFailed;   // its problems say so; what remains has no stack
  rank.lost_stacks.insert(core.lost_stacks().begin(), core.lost_stacks().end());
  rank.target = std::move(*opened);
  read_python(rank, python::find_python_runtime(*rank.target), deadline);
  read_syscalls(rank);
  rank.cxx = find_cxx_runtime(rank.target->modules());
  read_exceptions(rank);
  rank.time_left = deadline.left();
}

}  // namespace

JobSnapshot capture_cores(const std::vector<std::string>& paths, const CoreOptions& core_options, const CaptureOptions& options) {
  const auto started = std::chrono::steady_clock::now();
  elf::ImageCache images;
  std::vector<RankStacks> ranks(paths.size());
  std::vector<std::optional<OpenedGpuCore>> gpu_cores(paths.size());
  run_side_by_side(paths.size(), [&](std::size_t i) {
    if (auto core = gpu::read_gpu_core(paths[i], Deadline::after(options.timeout))) {
      gpu_cores[i] = OpenedGpuCore{paths[i], std::move(*core)};
    } else {
      read_core(ranks[i], paths[i], core_options, images, options.timeout);
    }
  });
  const GpuCoresOfJob gpus = join_gpu_cores(ranks, std::move(gpu_cores));
  std::vector<CoreProcess> processes;
  for (RankStacks& rank : ranks)
    processes.push_back({&rank.snapshot, rank.target ? static_cast<const CoreTarget&>(*rank.target).parent() : std::nullopt});
  adopt_children(processes);
  std::optional<WallClock::time_point> first;
  const auto note_time = [&](std::optional<WallClock::time_point> at) {
    if (at && (!first || *at < *first)) first = at;
  };
  for (const std::string& path : paths) note_time(gpus.written_at(path) ? gpus.written_at(path) : written_at(path));
  JobSnapshot job = finish_job(std::move(ranks), {}, options, first.value_or(WallClock::now()), started).job;
  gpus.add_to(job);
  return job;
}

}  // namespace rankstacks
