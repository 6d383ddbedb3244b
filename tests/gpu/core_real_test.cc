// GPU cores of an H200, driver 580.159.04 (fixtures/gpu/README.md), compared with what
// cuda-gdb 13.0 says about the same files.
#include <fmt/format.h>
#include <algorithm>
#include <catch2/catch.hpp>

#include "gpu/core_file.h"
#include "gpu/summarize.h"

namespace rankstacks::gpu {
namespace {

struct Read {
  GpuCore core;
  std::vector<GpuSnapshot> gpus;
  FrameTable frames;
  std::vector<Problem> problems;

  std::string text(std::uint32_t id) const {
    const Frame& f = frames[id];
    return fmt::format("{}+0x{:x}", f.function.value_or("?"), f.offset.value_or(0));
  }
  std::vector<std::string> stack(const GpuKernel& kernel) const {
    std::vector<std::string> lines;
    for (const std::uint32_t id : kernel.frames) lines.push_back(text(id));
    return lines;
  }
  const GpuExecution& execution(std::size_t i = 0) const { return *gpus.at(i).execution; }
};

Read read(const std::string& name) {
  auto core = read_gpu_core(std::string(RANKSTACKS_FIXTURES) + "/gpu/" + name + ".nvcudmp.xz");
  REQUIRE(core);
  INFO((*core ? "" : core->error().message()));
  REQUIRE(*core);
  Read read{std::move(**core), {}, {}, {}};
  for (const DeviceState& device : read.core.devices)
    read.gpus.push_back(summarize(device, read.frames, &read.problems));
  for (const Problem& p : read.core.problems) FAIL_CHECK(p.message);
  for (const Problem& p : read.problems) FAIL_CHECK(p.message);
  CHECK_FALSE(read.core.partial);
  return read;
}

const std::vector<std::string> kSpinStack = {"inner(int volatile*, int)+0xa0", "outer(int volatile*, int)+0x30",
                                             "spin(int*)+0x50"};

// A kernel of 2 blocks of 64 threads that raised an exception in block 1: what all three cores have in common.
const GpuException& one_exception(const Read& read, const std::string& kernel) {
  REQUIRE(read.gpus.size() == 1);
  REQUIRE(read.execution().kernels.size() == 1);
  const GpuKernel& k = read.execution().kernels[0];
  CHECK(k.function == kernel);
  CHECK(k.grid == GpuDim{2, 1, 1});
  CHECK(k.block == GpuDim{64, 1, 1});
  CHECK(k.blocks == 2);
  CHECK(k.sms == 2);
  CHECK(k.warps == 4);
  REQUIRE(read.execution().exceptions.size() == 1);
  const GpuException& e = read.execution().exceptions[0];
  CHECK(e.warps == 1);
  CHECK(e.grid_id == 1);
  CHECK(e.kernel == kernel);
  CHECK(e.block == GpuDim{1, 0, 0});
  return e;
}

TEST_CASE("a real GPU core: one spinning kernel, two calls deep") {
  for (const char* name : {"spin", "graph"}) {
    const Read r = read(name);
    REQUIRE(r.gpus.size() == 1);  // of two that the process saw
    CHECK(r.gpus[0].name == "NVIDIA H200");
    CHECK(r.gpus[0].pci == "0000:00:06.0");
    CHECK(r.core.devices[0].sm_type == "sm_90");
    CHECK(r.core.driver == "580.159");
    CHECK(r.core.written);
    CHECK(r.execution().contexts == 1);
    CHECK(r.execution().exceptions.empty());
    REQUIRE(r.execution().kernels.size() == 1);
    const GpuKernel& kernel = r.execution().kernels[0];
    CHECK(kernel.function == "spin(int*)");
    CHECK(kernel.grid == GpuDim{4, 1, 1});
    CHECK(kernel.block == GpuDim{64, 1, 1});
    CHECK(kernel.blocks == 4);
    CHECK(kernel.sms == 4);
    CHECK(kernel.warps == 8);
    CHECK(kernel.lanes == 256);
    CHECK(r.stack(kernel) == kSpinStack);
  }
}

TEST_CASE("a real GPU core: two devices of one process") {
  const Read r = read("two-gpus");
  REQUIRE(r.gpus.size() == 2);
  CHECK(r.gpus[0].pci == "0000:00:06.0");
  CHECK(r.gpus[1].pci == "0000:00:07.0");
  REQUIRE(r.execution(0).kernels.size() == 1);
  CHECK(r.execution(0).kernels[0].function == "spin(int*)");
  REQUIRE(r.execution(1).kernels.size() == 1);
  CHECK(r.execution(1).kernels[0].function == "other(int*)");
  CHECK(r.core.threads.size() == 2);
}

TEST_CASE("a real GPU core: a context and no kernel") {
  const Read r = read("idle");
  REQUIRE(r.gpus.size() == 1);
  CHECK(r.execution().contexts == 1);
  CHECK(r.execution().kernels.empty());
  CHECK(r.execution().exceptions.empty());
}

TEST_CASE("a real GPU core: an illegal address") {
  const Read r = read("illegal");
  const GpuException& e = one_exception(r, "illegal(int*)");
  CHECK(e.kind == "illegal address");
  CHECK(r.text(*e.frame) == "illegal(int*)+0xf0");  // cuda-gdb: "triggered at PC 0x7ff67b7a00f0"
  CHECK_FALSE(e.thread);  // the one that raised it has left; all others of its warp are marked
}

TEST_CASE("a real GPU core: a misaligned address") {
  const Read r = read("misaligned");
  const GpuException& e = one_exception(r, "misaligned(int*)");
  CHECK(e.kind == "misaligned address");
  CHECK(r.text(*e.frame) == "misaligned(int*)+0xf0");
  CHECK(e.thread == GpuDim{33, 0, 0});
}

TEST_CASE("a real GPU core: an assert") {
  const Read r = read("assert");
  const GpuException& e = one_exception(r, "asserting(int*)");
  CHECK(e.kind == "assert");
  CHECK(r.text(*e.frame) == "asserting(int*)+0x170");
  CHECK(e.thread == GpuDim{33, 0, 0});
}

TEST_CASE("a real GPU core: NCCL's all-reduce that a rank never joins") {
  const Read r = read("nccl");
  REQUIRE(r.gpus.size() == 1);
  REQUIRE(r.execution().kernels.size() == 1);
  const GpuKernel& kernel = r.execution().kernels[0];
  CHECK(kernel.function == "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)");
  CHECK(kernel.grid == GpuDim{24, 1, 1});
  CHECK(kernel.block == GpuDim{544, 1, 1});
  CHECK(kernel.blocks == 24);
  CHECK(kernel.sms == 24);
  CHECK(kernel.warps == 24 * 17);
  std::uint32_t in_places = 0;
  for (const GpuPlace& place : kernel.places) in_places += place.warps;
  CHECK(kernel.places.size() == kMaxGpuPlaces);
  CHECK(kernel.more_places == 1);
  CHECK(in_places == kernel.warps - 1);
  CHECK(kernel.places[0].warps > 24 * 12);
  CHECK(r.stack(kernel) ==
        std::vector<std::string>{"ncclDevFunc_AllReduce_Sum_f32_RING_SIMPLE()+0xfaf0",
                                 "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)+0x1d80"});
}

}  // namespace
}  // namespace rankstacks::gpu
