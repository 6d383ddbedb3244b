#include "capture/gpu_cores.h"

#include <fmt/format.h>
#include <catch2/catch.hpp>

#include "capture/capture_job.h"
#include "gpu/gpu_core_writer.h"
#include "support/temporary_directory.h"

namespace rankstacks::capture {
namespace {

using namespace testing;

std::string named_by(const std::string& path) {
  const GpuCoreName name = read_gpu_core_name(path);
  return fmt::format("rank {} pid {} host {}", name.rank ? std::to_string(*name.rank) : "-",
                     name.pid ? std::to_string(*name.pid) : "-", name.host.empty() ? "-" : name.host);
}

RankSnapshot host_rank(const std::string& host, Pid pid, std::optional<int> rank = {}) {
  RankSnapshot snapshot;
  snapshot.host = host;
  snapshot.pid = pid;
  snapshot.rank = rank;
  return snapshot;
}

// The index of the rank that the core is joined to, or -1.
int joined(const std::string& path, const std::vector<RankSnapshot>& ranks, const std::vector<Tid>& owners = {},
           std::vector<std::vector<Tid>> threads = {}) {
  std::vector<const RankSnapshot*> pointers;
  for (const RankSnapshot& rank : ranks) pointers.push_back(&rank);
  threads.resize(ranks.size());
  gpu::GpuCore core;
  core.threads = owners;
  const auto found = rank_of_gpu_core({path, core}, pointers, threads);
  return found ? static_cast<int>(*found) : -1;
}

TEST_CASE("what the file names of GPU cores contain") {
  CHECK(named_by("/x/core_1795297016_node-a_1293.nvcudmp") == "rank - pid 1293 host node-a");
  CHECK(named_by("core_1795297016_node_a.b.c_1293.nvcudmp.gz") == "rank - pid 1293 host node_a.b.c");
  CHECK(named_by("gpucore.node-7.4711") == "rank - pid 4711 host node-7");
  CHECK(named_by("cuda.rank3.4711") == "rank 3 pid 4711 host -");
  CHECK(named_by("rank-3.pid4711.nvcudmp.xz") == "rank 3 pid 4711 host -");
  CHECK(named_by("4711.gpucore.zst") == "rank - pid 4711 host -");
  CHECK(named_by("core.4711.1795297016") == "rank - pid 4711 host -");
  CHECK(named_by("rank3.nvcudmp") == "rank 3 pid - host -");
  CHECK(named_by("rank_3.core") == "rank 3 pid - host -");
  CHECK(named_by("spin.nvcudmp.xz") == "rank - pid - host -");
  CHECK(named_by("gpu0.nvcudmp") == "rank - pid - host -");
  CHECK(named_by("core_1795297016_1293.nvcudmp") == "rank - pid 1293 host -");
  CHECK(named_by("99999999999999999999999") == "rank - pid - host -");
  CHECK(named_by("") == "rank - pid - host -");
}

TEST_CASE("a GPU core belongs to the process with its pid, on its host") {
  CHECK(joined("core_1795297016_node-a_1293.nvcudmp", {host_rank("node-a", 1292), host_rank("node-a", 1293)}) == 1);
  CHECK(joined("core_1795297016_node-a_1293.nvcudmp", {host_rank("node-b", 1293), host_rank("node-a.cluster", 1293)}) ==
        1);
  CHECK(joined("core_1795297016_node-a_1293.nvcudmp", {host_rank("unknown", 1293)}) == 0);
  CHECK(joined("core_1795297016_node-a_1293.nvcudmp", {host_rank("node-b", 1293)}) == -1);
  CHECK(joined("gpucore.1293", {host_rank("node-a", 1293), host_rank("node-b", 1293)}) ==
        -1);  // it could belong to either
  CHECK(joined("cuda.rank1.1293", {host_rank("a", 1293, 0), host_rank("b", 1293, 1)}) == 1);
  CHECK(joined("cuda.rank2.1293", {host_rank("a", 1293, 0)}) == -1);  // another rank
  CHECK(joined("spin.nvcudmp", {host_rank("a", 1293, 0)}) == -1);
}

TEST_CASE("a GPU core that names a rank, or a thread that owns a context") {
  CHECK(joined("rank1.nvcudmp", {host_rank("a", 10, 0), host_rank("b", 11, 1)}) == 1);
  CHECK(joined("rank1.nvcudmp", {host_rank("a", 10, 1), host_rank("b", 11, 1)}) == -1);
  CHECK(joined("rank1.77", {host_rank("a", 10, 1)}) == -1);  // its pid is another
  CHECK(joined("spin.nvcudmp", {host_rank("a", 10), host_rank("a", 20)}, {21}, {{10, 11}, {20, 21}}) == 1);
  CHECK(joined("spin.nvcudmp", {host_rank("a", 10), host_rank("b", 20)}, {21}, {{10, 21}, {20, 21}}) == -1);
  CHECK(joined("core_1795297016_node-a_1293.nvcudmp", {host_rank("node-a", 10)}, {11}, {{10, 11}}) == -1);
  RankSnapshot failed = host_rank("a", 1293);
  failed.status = Status::kFailed;
  CHECK(joined("gpucore.1293", {failed}) == -1);
}

TEST_CASE("GPU cores alone: ranks without threads, in order, with the time the core says") {
  const TemporaryDirectory directory;
  GpuCoreWriter core = spin_core();
  core.written = 1795297016;
  core.devices.insert(core.devices.begin(), core.devices[0]);
  core.devices[0].slot = 9;
  write_file(directory / "gpucore.rank1.20", core.write());
  write_file(directory / "core_1795297016_node-a_10.nvcudmp", spin_core().write());
  Bytes cut = spin_core().write();
  cut.resize(200);
  write_file(directory / "gpucore.rank0.30", cut);
  const JobSnapshot job = capture_cores(
      {directory / "gpucore.rank1.20", directory / "core_1795297016_node-a_10.nvcudmp", directory / "gpucore.rank0.30"},
      {}, {});
  REQUIRE(job.ranks.size() == 3);
  const RankSnapshot& broken = job.ranks[0];
  CHECK(broken.rank == 0);
  CHECK(broken.status == Status::kFailed);
  REQUIRE(broken.problems.size() == 1);
  CHECK(broken.problems[0].message.find("gpucore.rank0.30: the section headers lie outside the file of 200 bytes") !=
        std::string::npos);
  const RankSnapshot& first = job.ranks[1];
  CHECK(first.rank == 1);
  CHECK(first.pid == 20);
  CHECK(first.host == "unknown");
  CHECK(first.source == Source::kCore);
  CHECK(first.status == Status::kComplete);
  CHECK(first.problems.empty());
  CHECK(first.threads.empty());
  CHECK(first.path == directory / "gpucore.rank1.20");
  REQUIRE(first.gpus.size() == 2);
  CHECK(first.gpus[0].pci == "0000:00:06.0");
  CHECK(first.gpus[1].pci == "0000:00:09.0");
  REQUIRE(first.gpus[0].execution);
  CHECK(first.gpus[0].execution->source == GpuSource::kCore);
  CHECK(first.gpus[0].execution->path == directory / "gpucore.rank1.20");
  REQUIRE(first.gpus[0].execution->kernels.size() == 1);
  const GpuKernel& kernel = first.gpus[0].execution->kernels[0];
  CHECK(kernel.function == "spin(int*)");
  CHECK(job.frames[kernel.frames[0]].function == "inner(int)");
  const RankSnapshot& second = job.ranks[2];
  CHECK_FALSE(second.rank);
  CHECK(second.host == "node-a");
  CHECK(second.pid == 10);
  CHECK(job.captured_at == "2026-11-21T21:36:56.000Z");
}

TEST_CASE("a damaged GPU core makes the rank that it is joined to partial, and names itself") {
  GpuCoreWriter writer = spin_core();
  writer.devices[0].status = 10;
  const TemporaryDirectory directory;
  const std::string path = directory / "gpucore.20";
  write_file(path, writer.write());
  auto core = gpu::read_gpu_core(path);
  REQUIRE((core && *core));
  RankSnapshot rank = host_rank("a", 20);
  rank.path = "core.20";
  FrameTable frames;
  add_gpus({path, **core}, rank, frames);
  CHECK(rank.status == Status::kPartial);
  REQUIRE(rank.problems.size() == 1);
  CHECK(rank.problems[0].message == path + ": GPU 0: the driver could not read its state (CUDBGResult 10)");
  CHECK(rank.gpus.size() == 1);
}

}  // namespace
}  // namespace rankstacks::capture
