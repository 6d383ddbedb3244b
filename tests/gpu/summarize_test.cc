#include "gpu/summarize.h"

#include <fmt/format.h>
#include <catch2/catch.hpp>
#include <chrono>

#include "gpu/count_warps.h"
#include "gpu_core_writer.h"

namespace rankstacks::gpu {
namespace {

using namespace testing;

Warp warp(std::uint32_t sm, std::uint32_t index, std::uint64_t grid, Address pc, std::uint32_t lanes = ~0u) {
  Warp w{.sm = sm, .index = index, .grid_id = grid, .valid_lanes = lanes, .active_lanes = lanes};
  w.pc.fill(pc);
  return w;
}

Grid spin_grid(std::uint64_t id) {
  return {.id = id, .context = 0xc0, .module = 0xa0, .entry = kSpinCode, .grid = {2, 1, 1}, .block = {64, 1, 1}};
}

std::string text(const FrameTable& frames, std::uint32_t id) {
  const Frame& f = frames[id];
  return fmt::format("{}{}+{} at {:x}", f.kind == FrameKind::kGpu ? "" : "not GPU: ", f.function.value_or("?"),
                     f.offset ? fmt::format("0x{:x}", *f.offset) : "?", f.address);
}

TEST_CASE("a warp is counted where most of its active lanes are, the lowest lane decides between equals") {
  DeviceState state;
  Warp w = warp(0, 0, 1, 0x100);
  w.active_lanes = 0xff;
  for (std::size_t lane = 8; lane < kLanes; ++lane) w.pc[lane] = 0x900;  // more, and not active
  state.warps = {w};
  CHECK(count_kernels(state).front().places.front().pc == 0x100);
  for (std::size_t lane = 3; lane < 8; ++lane) state.warps[0].pc[lane] = 0x200;
  CHECK(count_kernels(state).front().places.front().pc == 0x200);
  CHECK(count_kernels(state).front().places.front().lane == 3);
  state.warps[0].active_lanes = 0x3f;  // three at each
  CHECK(count_kernels(state).front().places.front().pc == 0x100);
  CHECK(count_kernels(state).front().places.front().lane == 0);
  state.warps[0].active_lanes = 0;  // none active: of all that are there
  CHECK(count_kernels(state).front().places.front().pc == 0x900);
  CHECK(count_kernels(state).front().places.front().lane == 8);
  state.warps[0].active_lanes = ~0u;
  state.warps[0].valid_lanes = 0;  // all have exited
  CHECK(count_kernels(state).empty());
}

TEST_CASE("three places in a warp, the largest neither first nor a majority") {
  DeviceState state;
  Warp w = warp(0, 0, 1, 0x100);
  for (std::size_t lane = 0; lane < kLanes; ++lane) w.pc[lane] = lane < 10 ? 0x300 : lane < 22 ? 0x200 : 0x100;
  state.warps = {w};
  CHECK(count_kernels(state).front().places.front().pc == 0x200);
  CHECK(count_kernels(state).front().places.front().lane == 10);
}

TEST_CASE("kernels of a device, with names, places and a stack") {
  DeviceState state{.device = 1, .pci = "0000:0a:00.0", .name = "NVIDIA Test", .contexts = 1};
  state.grids = {spin_grid(9)};
  state.images = {{0xc0, 0xa0, spin_cubin().write()}};
  state.warps = {warp(5, 1, 9, kSpinCode + 0x110), warp(3, 2, 9, kSpinCode + 0x110, 0xf),
                 warp(3, 1, 9, kSpinCode + 0x20)};
  state.warps[0].block = {1, 0, 0};
  CHECK(needed_modules(state) == std::vector<ModuleId>{{0xc0, 0xa0}});
  REQUIRE(representative_lanes(state) == std::vector<LaneId>{{9, 3, 2, 0}});
  state.stacks = {{3, 2, 0, {kSpinCode + 0x400}}};  // the call is the kernel's last instruction
  FrameTable frames;
  std::vector<Problem> problems;
  const GpuSnapshot gpu = summarize(state, frames, &problems);
  CHECK(problems.empty());
  CHECK(gpu.pci == "0000:0a:00.0");
  CHECK(gpu.name == "NVIDIA Test");
  REQUIRE(gpu.execution);
  CHECK(gpu.execution->contexts == 1);
  CHECK(gpu.execution->exceptions.empty());
  REQUIRE(gpu.execution->kernels.size() == 1);
  const GpuKernel& kernel = gpu.execution->kernels[0];
  CHECK(kernel.function == "spin(int*)");
  CHECK(kernel.grid_id == 9);
  CHECK(kernel.entry == kSpinCode);
  CHECK(kernel.grid == GpuDim{2, 1, 1});
  CHECK(kernel.block == GpuDim{64, 1, 1});
  CHECK(kernel.blocks == 2);
  CHECK(kernel.sms == 2);
  CHECK(kernel.warps == 3);
  CHECK(kernel.lanes == 68);
  REQUIRE(kernel.places.size() == 2);
  CHECK(text(frames, kernel.places[0].frame) == "inner(int)+0x10 at 70000110");
  CHECK(kernel.places[0].warps == 2);
  CHECK(text(frames, kernel.places[1].frame) == "spin(int*)+0x20 at 70000020");
  CHECK(kernel.more_places == 0);
  REQUIRE(kernel.frames.size() == 2);
  CHECK(kernel.frames[0] == kernel.places[0].frame);
  CHECK(text(frames, kernel.frames[1]) == "spin(int*)+0x400 at 70000400");
}

TEST_CASE("several kernels: most warps first; at most eight places are kept, the others counted") {
  DeviceState state;
  state.grids = {spin_grid(1), spin_grid(2)};
  for (std::uint32_t i = 0; i < 5; ++i) state.warps.push_back(warp(0, i, 1, 0x100 + 16 * (i % 2)));
  for (std::uint32_t i = 0; i < 20; ++i) state.warps.push_back(warp(1, i, 2, 0x1000 + 16 * (i % 10)));
  FrameTable frames;
  const auto kernels = summarize(state, frames).execution->kernels;
  REQUIRE(kernels.size() == 2);
  CHECK(kernels[0].grid_id == 2);
  CHECK(kernels[0].places.size() == kMaxGpuPlaces);
  CHECK(kernels[0].more_places == 2);
  CHECK_FALSE(kernels[0].function);
  CHECK(text(frames, kernels[0].places[0].frame) == "?+? at 1000");
  CHECK(kernels[1].warps == 5);
  CHECK(kernels[1].places[0].warps == 3);
}

TEST_CASE("a grid without any description is a kernel, named by the entry that its threads are in") {
  DeviceState state;
  state.warps = {warp(0, 0, 77, kSpinCode + 0x110)};
  state.images = {{0xc0, 0xa0, spin_cubin().write()}};
  FrameTable frames;
  const auto kernels = summarize(state, frames).execution->kernels;
  REQUIRE(kernels.size() == 1);
  CHECK(kernels[0].grid_id == 77);
  CHECK(kernels[0].function == "spin(int*)");
  CHECK_FALSE(kernels[0].entry);
  CHECK(kernels[0].grid == GpuDim{1, 1, 1});
  CHECK(needed_modules(state).empty());
}

TEST_CASE("the same address in two contexts' modules: the kernel's own one names it") {
  CubinWriter other;
  other.code = {{"_Z5otherv", kSpinCode, 0x400, {{"_Z5otherv", 0, 0x400, true}}}};
  DeviceState state;
  state.grids = {spin_grid(9)};
  state.warps = {warp(0, 0, 9, kSpinCode + 0x110)};
  state.images = {{0xc1, 0xb0, other.write()}, {0xc0, 0xb1, other.write()}, {0xc0, 0xa0, spin_cubin().write()}};
  FrameTable frames;
  CHECK(text(frames, summarize(state, frames).execution->kernels[0].places[0].frame) == "inner(int)+0x10 at 70000110");
  state.images.pop_back();
  CHECK(text(frames, summarize(state, frames).execution->kernels[0].places[0].frame) == "other()+0x110 at 70000110");
}

TEST_CASE("damaged images are reported, the rest keeps its numbers") {
  DeviceState state;
  state.grids = {spin_grid(9)};
  state.warps = {warp(0, 0, 9, kSpinCode + 0x110)};
  Bytes image = spin_cubin().write();
  image.resize(40);
  state.images = {{0xc0, 0xa0, image}, {0xc0, 0xa1, {}}};
  FrameTable frames;
  std::vector<Problem> problems;
  const auto kernels = summarize(state, frames, &problems).execution->kernels;
  REQUIRE(problems.size() == 1);
  CHECK(problems[0].message == "the image of module 0xa0: cubin: no ELF file");
  REQUIRE(kernels.size() == 1);
  CHECK_FALSE(kernels[0].function);
  CHECK(text(frames, kernels[0].places[0].frame) == "?+? at 70000110");
}

TEST_CASE("exceptions: once per kind, kernel and pc") {
  DeviceState state;
  state.grids = {spin_grid(9)};
  state.images = {{0xc0, 0xa0, spin_cubin().write()}};
  for (std::uint32_t i = 0; i < 3; ++i) {
    state.warps.push_back(warp(2, i, 9, kSpinCode + 0x120));
    state.warps.back().exception = 14;
    state.warps.back().error_pc = kSpinCode + 0x110;
    state.warps.back().block = {i, 0, 0};
    state.warps.back().exception_thread = GpuDim{7, 0, 0};
  }
  state.warps.push_back(warp(3, 0, 9, kSpinCode + 0x20));
  state.warps.back().exception = 12;                  // an assert has no pc of its own
  state.sm_exceptions = {{2, 14, kSpinCode + 0x110},  // of warps that are there
                         {4, 14, kSpinCode + 0x110},  // another's, the same thing
                         {5, 6, kSpinCode + 0x30},
                         {6, 6, kSpinCode + 0x30},
                         {7, 99, {}}};
  FrameTable frames;
  const auto exceptions = summarize(state, frames).execution->exceptions;
  REQUIRE(exceptions.size() == 4);
  CHECK(exceptions[0].kind == "illegal address");
  CHECK(exceptions[0].warps == 3);
  CHECK(exceptions[0].kernel == "spin(int*)");
  CHECK(exceptions[0].grid_id == 9);
  CHECK(exceptions[0].block == GpuDim{0, 0, 0});
  CHECK(exceptions[0].thread == GpuDim{7, 0, 0});
  CHECK(text(frames, *exceptions[0].frame) == "inner(int)+0x10 at 70000110");
  CHECK(exceptions[1].kind == "assert");
  CHECK(exceptions[1].warps == 1);
  CHECK_FALSE(exceptions[1].thread);
  CHECK(text(frames, *exceptions[1].frame) == "spin(int*)+0x20 at 70000020");
  CHECK(exceptions[2].kind == "misaligned address");
  CHECK(exceptions[2].warps == 0);
  CHECK_FALSE(exceptions[2].block);
  CHECK(exceptions[2].kernel == "spin(int*)");
  CHECK(exceptions[2].grid_id == 9);  // the only grid of that kernel
  CHECK(exceptions[3].kind == "exception 99");
  CHECK_FALSE(exceptions[3].frame);
  CHECK_FALSE(exceptions[3].kernel);
}

TEST_CASE("a multiprocessor's exception is of no grid where two run its kernel") {
  DeviceState state;
  state.grids = {spin_grid(1), spin_grid(2)};
  state.images = {{0xc0, 0xa0, spin_cubin().write()}};
  state.warps = {warp(0, 0, 1, kSpinCode), warp(0, 1, 2, kSpinCode)};
  state.sm_exceptions = {{5, 14, kSpinCode + 0x30}};
  FrameTable frames;
  const auto exceptions = summarize(state, frames).execution->exceptions;
  REQUIRE(exceptions.size() == 1);
  CHECK(exceptions[0].kernel == "spin(int*)");
  CHECK_FALSE(exceptions[0].grid_id);
}

TEST_CASE("more kernels and exceptions than are kept") {
  DeviceState state;
  for (std::uint32_t i = 0; i < 2000; ++i) {
    state.warps.push_back(warp(i, 0, i, 0x100));
    state.warps.back().exception = 1;
    state.warps.back().error_pc = 0x100 + i;
  }
  FrameTable frames;
  std::vector<Problem> problems;
  const GpuExecution execution = *summarize(state, frames, &problems).execution;
  CHECK(execution.kernels.size() == kMaxKernels);
  CHECK(execution.exceptions.size() == kMaxExceptions);
  REQUIRE(problems.size() == 2);
  CHECK(problems[0].message == "GPU 0: 976 kernels with the fewest warps are left out");
  CHECK(problems[1].message == "GPU 0: 1744 exceptions with the fewest warps are left out");
}

TEST_CASE("6,544 warps: what is counted while the device is paused") {
  DeviceState state;
  state.grids = {spin_grid(1)};
  for (std::uint32_t i = 0; i < 6544; ++i)
    state.warps.push_back(warp(i % 132, i / 132, 1, kSpinCode + 16 * ((i * 7919) % 61)));
  const auto start = std::chrono::steady_clock::now();
  const auto lanes = representative_lanes(state);
  const auto modules = needed_modules(state);
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
  INFO(took.count() << " ms");
  CHECK(lanes.size() == 1);
  CHECK(modules.size() == 1);
  std::uint32_t warps = 0;
  const std::vector<KernelCount> kernels = count_kernels(state);
  for (const PlaceCount& place : kernels.front().places) warps += place.warps;
  CHECK(warps == 6544);
  if (std::getenv("RANKSTACKS_TIMES") != nullptr) fmt::print("6,544 warps in {:.3f} ms\n", took.count());
}

}  // namespace
}  // namespace rankstacks::gpu
