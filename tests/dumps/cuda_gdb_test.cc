// fixtures/gpu/*.txt is what cuda-gdb 13.0 says of the GPU cores there; tests/gpu reads the cores themselves.
#include <catch2/catch.hpp>

#include <algorithm>
#include <sstream>

#include "analyzers/analysis.h"
#include "analyzers/gpu_state.h"
#include "dumps/dump.h"
#include "support/dump_texts.h"

using namespace rankstacks;

namespace {

std::string text_of(const std::string& name) { return testing::text_of_fixture("gpu/" + name + ".txt"); }

const GpuExecution& execution(const JobSnapshot& job, std::size_t gpu = 0) {
  return *job.ranks.at(0).gpus.at(gpu).execution;
}

std::vector<std::string> stack(const JobSnapshot& job, const std::vector<FrameId>& frames) {
  std::vector<std::string> lines;
  for (const FrameId id : frames) {
    const Frame& frame = job.frames[id];
    CHECK(frame.kind == FrameKind::kGpu);
    lines.push_back(frame.function.value_or("?") +
                    (frame.line ? " " + *frame.file + ":" + std::to_string(*frame.line) : ""));
  }
  return lines;
}

bool says(const RankSnapshot& rank, ProblemCode code, const std::string& part) {
  return std::any_of(rank.problems.begin(), rank.problems.end(), [&](const Problem& problem) {
    return problem.code == code && problem.message.find(part) != std::string::npos;
  });
}

constexpr const char* kHostThreads =
    "Thread 2 (Thread 0x7f40 (LWP 4712) \"cuda-EvtHandlr\"):\n"
    "#0  0x00007f0000000010 in poll () from /lib/x86_64-linux-gnu/libc.so.6\n"
    "#1  0x00007f0000001010 in ?? () from /lib/x86_64-linux-gnu/libcuda.so.1\n"
    "\n"
    "Thread 1 (Thread 0x7f41 (LWP 4711) \"train\"):\n"
    "#0  0x00007f0000001020 in ?? () from /lib/x86_64-linux-gnu/libcuda.so.1\n"
    "#1  0x00007f0000002020 in cudaStreamSynchronize () from /opt/cuda/lib64/libcudart.so.12\n"
    "#2  0x0000000000401020 in step (n=3) at train.cc:20\n"
    "#3  0x0000000000401050 in main () at train.cc:30\n";

}  // namespace

TEST_CASE("cuda-gdb: kernels, the device, the stack of the kernel in focus") {
  const JobSnapshot job = testing::read_dump(text_of("spin"));
  const RankSnapshot& rank = job.ranks.at(0);
  CHECK(rank.dumped_by == "cuda-gdb");
  CHECK(rank.pid == 583);
  CHECK(rank.host == "vm");  // of the core's name
  CHECK(rank.threads.empty());
  REQUIRE(rank.gpus.size() == 1);
  CHECK(rank.gpus[0].pci == "0000:00:06.0");
  CHECK(rank.gpus[0].name == "NVIDIA H200");
  CHECK(execution(job).source == GpuSource::kCore);
  CHECK(execution(job).contexts == 1);
  const GpuKernel& kernel = execution(job).kernels.at(0);
  CHECK(kernel.grid_id == 1);
  CHECK(kernel.function == "spin");
  CHECK(kernel.grid == GpuDim{4, 1, 1});
  CHECK(kernel.block == GpuDim{64, 1, 1});
  CHECK(kernel.blocks == 4);
  CHECK(kernel.sms == 4);
  CHECK(stack(job, kernel.frames) == std::vector<std::string>{"inner(int volatile*, int) kernels.cu:30",
                                                              "outer(int volatile*, int) kernels.cu:33",
                                                              "spin kernels.cu:35"});
  CHECK(job.frames[kernel.frames[0]].address == 0x7f211b7a0130);
  CHECK_FALSE(says(rank, ProblemCode::kMalformed, "not understood"));
}

TEST_CASE("cuda-gdb: several kernels, several devices, none") {
  const JobSnapshot several = testing::read_dump(text_of("several"));
  REQUIRE(execution(several).kernels.size() == 3);
  CHECK(execution(several).kernels[0].function == "spin");
  CHECK(execution(several).kernels[1].function == "other");
  CHECK(execution(several).kernels[2].function == "third<long long>");
  CHECK(execution(several).kernels[2].block == GpuDim{256, 1, 1});
  CHECK(execution(several).kernels[1].frames.empty());

  const JobSnapshot two = testing::read_dump(text_of("two-gpus"));
  REQUIRE(two.ranks[0].gpus.size() == 2);
  CHECK(two.ranks[0].gpus[1].pci == "0000:00:07.0");
  CHECK(execution(two, 1).kernels.at(0).function == "other");

  const JobSnapshot idle = testing::read_dump(text_of("idle"));
  REQUIRE(idle.ranks[0].gpus.size() == 1);
  CHECK(idle.ranks[0].gpus[0].pci == "0000:00:06.0");
  CHECK(execution(idle).kernels.empty());
  CHECK(idle.ranks[0].threads.empty());  // "<unavailable> in ?? ()" is none
}

TEST_CASE("cuda-gdb: exceptions are those of the cores") {
  struct Expected {
    const char* name;
    const char* kind;
    std::optional<GpuDim> thread;
    Address at;
  };
  // cuda-gdb states no pc of an assertion: it is where the thread stands.
  for (const auto& [name, kind, thread, at] :
       {Expected{"illegal", "illegal address", std::nullopt, 0x7ff67b7a00f0},
        Expected{"misaligned", "misaligned address", GpuDim{33, 0, 0}, 0x7fa2277a00f0},
        Expected{"assert", "assert", GpuDim{33, 0, 0}, 0x7fc7377a0170}}) {
    INFO(name);
    const JobSnapshot job = testing::read_dump(text_of(name));
    REQUIRE(execution(job).exceptions.size() == 1);
    const GpuException& exception = execution(job).exceptions[0];
    CHECK(exception.kind == kind);
    CHECK(exception.grid_id == 1);
    CHECK(exception.block == GpuDim{1, 0, 0});
    CHECK(exception.thread == thread);
    CHECK(exception.kernel == (name == std::string("assert") ? "asserting" : name));
    REQUIRE(exception.frame);
    CHECK(job.frames[*exception.frame].address == at);
    const auto verdict = analyzers::analyze(job).verdict;
    REQUIRE(verdict.suspects.size() == 1);
    CHECK(verdict.suspects[0].reason == analyzers::Reason::kCrashed);
    CHECK(verdict.suspects[0].confidence == 0.75);  // a core's is 0.90
  }
}

TEST_CASE("cuda-gdb: an exception that is named before the focus, by its number, or behind its place") {
  const JobSnapshot before = testing::read_dump(
      "CUDA Exception: Warp Out-of-range Address\n\n"
      "Program received signal CUDA_EXCEPTION_5, Warp Out-of-range Address.\n"
      "[Switching focus to CUDA kernel 6, grid 11, block (0,2,0), thread (0,6,0), device 3, sm 0, warp 2, lane 5]\n"
      "0x0000000000c8c6a0 in void init<float, (bool)1>(State&)<<<(80,64,1),(16,16,1)>>> ()\n");
  REQUIRE(execution(before).exceptions.size() == 1);
  const GpuException& exception = execution(before).exceptions[0];
  CHECK(exception.kind == "address out of range");
  CHECK(exception.block == GpuDim{0, 2, 0});
  CHECK(exception.thread == GpuDim{0, 6, 0});
  CHECK(exception.kernel == "init<float, (bool)1>");
  REQUIRE(execution(before).kernels.size() == 1);
  CHECK(execution(before).kernels[0].grid == GpuDim{80, 64, 1});
  CHECK(execution(before).kernels[0].grid_id == 11);

  const JobSnapshot behind = testing::read_dump(
      "[Current focus set to CUDA kernel 0, grid 1, block (0,0,0), thread (0,0,0), device 0, sm 0, warp 0, lane 0]\n"
      "The exception was triggered at PC 0x5ff3bb8 (enz.jl:14)\n"
      "Thread 1 \"julia\" received signal CUDA_EXCEPTION_1, Lane Illegal Address.\n"
      "CUDA Exception: Warp Future Trouble\n");
  REQUIRE(execution(behind).exceptions.size() == 2);
  CHECK(execution(behind).exceptions[0].kind == "illegal address");
  CHECK(behind.frames[*execution(behind).exceptions[0].frame].line == 14);
  CHECK(execution(behind).exceptions[1].kind == "future trouble");
}

TEST_CASE("cuda-gdb: tables of other versions, with arguments, cut off, pasted") {
  const JobSnapshot old = testing::read_dump(
      "(cuda-gdb) info cuda kernels\n"
      "  Kernel Dev Grid   SMs Mask GridDim  BlockDim        Name                         Args \n"
      "*      1   0    2 0x00ffffff (240,1,1) (128,1,1) acos_main parms=0x7f (a)...\n"
      "       2   1   -5 0x00000000 (2,3,4)   (1,1,1)   void other<int, 2>     n=1\n");
  REQUIRE(old.ranks[0].gpus.size() == 2);
  CHECK(execution(old).kernels.at(0).function == "acos_main");
  CHECK(execution(old).kernels[0].sms == 24);
  CHECK(execution(old, 1).kernels.at(0).function == "other<int, 2>");
  CHECK(execution(old, 1).kernels.at(0).grid == GpuDim{2, 3, 4});
  CHECK(execution(old, 1).kernels[0].grid_id == static_cast<std::uint64_t>(-5));

  const JobSnapshot statuses = testing::read_dump(
      "Kernel Parent Dev Grid Status SMs Mask GridDim BlockDim Invocation\n"
      "* 0 - 0 52162520 Active (preempted) 0x00000001 (1,1,1) (64,1,1) ncclReduceRingLLKernel_sum_f64()\n"
      "1 0 0 -7 Pending 0x00000000 (1,1,1) (64,1,1) later(void)(c=5)\n"
      "2 - 0 9 Active 0x3 (4801,1,1) (64,1,1) at::(anonymous namespace)::render(float*)(n=307200, x=0x7, y=\"a)\n");
  REQUIRE(execution(statuses).kernels.size() == 2);
  CHECK(execution(statuses).kernels[0].function == "at::(anonymous namespace)::render");
  CHECK(execution(statuses).kernels[1].function == "ncclReduceRingLLKernel_sum_f64");
  CHECK(execution(statuses).kernels[1].grid_id == 52162520);

  const JobSnapshot cut =
      testing::read_dump("  Kernel Parent Dev Grid Status  SMs Mask GridDim BlockDim Invocation \n*  0  -  0  4 Act");
  REQUIRE(execution(cut).kernels.size() == 1);
  CHECK_FALSE(execution(cut).kernels[0].function);
}

TEST_CASE("cuda-gdb: the process's threads, and a kernel's frames among them") {
  const std::string kernels =
      "  Kernel Parent Dev Grid Status   SMs Mask GridDim BlockDim Invocation \n"
      "*      0      -   2    7 Active 0x00000005 (2,1,1) (32,1,1) spin()     \n";
  const std::string device_stack =
      "#0  0x0000000000c00130 in inner () at kernels.cu:30\n#1  0x0000000000c00050 in spin<<<(2,1,1),(32,1,1)>>> (\n"
      "    flag=0x7f) at kernels.cu:36\n";
  const std::string focus =
      "[Switching focus to CUDA kernel 0, grid 7, block (0,0,0), thread (0,0,0), device 2, sm 0, warp 0, lane 0]\n";
  for (const std::string& text :
       {focus + device_stack + kernels + kHostThreads, kHostThreads + kernels + device_stack,
        focus + kernels + kHostThreads + device_stack,
        std::string("[New LWP 4712]\n") + kernels + kHostThreads + "[Switching to Thread 0x7f41 (LWP 4711)]\n" +
            device_stack + "[Inferior 1 (process 4711) detached]\n"}) {
    INFO(text);
    const JobSnapshot job = testing::read_dump(text, "rank3_pid4711.cuda-gdb");
    REQUIRE(job.ranks.size() == 1);
    const RankSnapshot& rank = job.ranks[0];
    CHECK(rank.rank == 3);
    CHECK(rank.pid == 4711);
    CHECK(rank.dumped_by == "cuda-gdb");
    REQUIRE(rank.threads.size() == 2);
    CHECK(rank.threads[0].tid == 4711);
    CHECK(rank.threads[0].frames.size() == 4);
    REQUIRE(execution(job).kernels.size() == 1);
    CHECK(execution(job).kernels[0].grid_id == 7);
    CHECK(stack(job, execution(job).kernels[0].frames) ==
          std::vector<std::string>{"inner kernels.cu:30", "spin kernels.cu:36"});
    CHECK_FALSE(says(rank, ProblemCode::kMalformed, "not understood"));
  }
}

TEST_CASE("cuda-gdb: inlined functions, and a narrow terminal") {
  const JobSnapshot job = testing::read_dump(
      "[Switching focus to CUDA kernel 0, grid 11534, block (0,0,0), thread (0,0,0), device 1, sm 0, warp 0, lane 0]\n"
      "ncclFunction_AllGather_RING_SIMPLE_Sum_int8_t () at prims_simple.h:128 in waitPeer inlined from "
      "prims_simple.h:227\n"
      "128           while (connStepCache < step) {\n(cuda-gdb) bt\n"
      "#0  ncclFunction_AllGather_RING_SIMPLE_Sum_int8_t ()\n"
      "    at /data/nccl/prims_simple.h:128 in waitPeer inlined from prims_simple.h:227\n"
      "#1  0x00007f01 in ncclKernel_AllGather_RING_LL_Sum_int8_t<<<(2,1,1),(288,1,1)>>> ()\n    at common.h:214\n");
  const GpuKernel& kernel = execution(job).kernels.at(0);
  CHECK(kernel.function == "ncclKernel_AllGather_RING_LL_Sum_int8_t");
  CHECK(kernel.block == GpuDim{288, 1, 1});
  CHECK(stack(job, kernel.frames) ==
        std::vector<std::string>{"ncclFunction_AllGather_RING_SIMPLE_Sum_int8_t /data/nccl/prims_simple.h:128",
                                 "ncclKernel_AllGather_RING_LL_Sum_int8_t common.h:214"});
}

TEST_CASE("cuda-gdb: of NCCL's kernel one thread is known, which may not have called the variant yet") {
  const std::string text = text_of("nccl");
  const JobSnapshot called = testing::read_dump(text);
  CHECK(analyzers::gpu_state_of(called.frames, called.ranks[0]).variant == "Sum f32 RING SIMPLE");
  std::string before = text;
  for (std::size_t at; (at = before.find("in ncclDevFunc_AllReduce_Sum_f32_RING_SIMPLE() ()")) != std::string::npos;)
    before.replace(at, 49, "in ncclDevKernel_AllReduce_Sum_f32_RING_LL<<<(24,1,1),(544,1,1)>>> ()");
  const JobSnapshot not_yet = testing::read_dump(before);
  const auto state = analyzers::gpu_state_of(not_yet.frames, not_yet.ranks[0]);
  CHECK(state.named());
  CHECK_FALSE(state.variant);
}

TEST_CASE("cuda-gdb: that it lists no kernel says nothing if it may not have got at the GPUs") {
  const std::string devices =
      "  Dev PCI Bus/Dev ID        Name Description SM Type SMs Warps/SM Lanes/Warp Max Regs/Lane Active SMs Mask \n"
      "    0        00:06.0 NVIDIA H200   GH100GL-A   sm_90 132       64         32           255 0x0000 \n"
      "    1        00:07.0 NVIDIA H200   GH100GL-A   sm_90 132       64         32           255 0x0000 \n";
  const JobSnapshot idle = testing::read_dump("No CUDA kernels.\n" + devices + kHostThreads);
  REQUIRE(idle.ranks.at(0).gpus.size() == 1);
  CHECK(idle.ranks[0].gpus[0].pci.empty());  // which of the two it uses is not known
  CHECK(execution(idle).kernels.empty());
  const JobSnapshot unknown = testing::read_dump(std::string("No CUDA kernels.\n") + kHostThreads);
  CHECK(unknown.ranks.at(0).gpus.empty());
  CHECK(says(unknown.ranks[0], ProblemCode::kGpu, "no device"));
  const JobSnapshot failed = testing::read_dump(
      "Timed out waiting for the CUDA API to initialize.\nNo CUDA kernels.\n" + devices + kHostThreads);
  CHECK(failed.ranks.at(0).gpus.empty());
  CHECK(says(failed.ranks[0], ProblemCode::kGpu, "could not look"));
  CHECK_FALSE(dumps::read_dump("No CUDA devices.\nNo CUDA kernels.\n", "x", 1));
}

TEST_CASE("cuda-gdb: several sessions and several ranks in one text") {
  const std::string kernels =
      "Kernel Parent Dev Grid Status SMs Mask GridDim BlockDim Invocation\n* 0 - 0 7 Active 0x1 (1,1,1) (32,1,1) ";
  const JobSnapshot sessions = testing::read_dump(kernels + "one()\n[Inferior 1 (process 11) detached]\n" + kernels +
                                                  "two()\n[Inferior 1 (process 12) detached]\n");
  REQUIRE(sessions.ranks.size() == 2);
  CHECK(sessions.ranks[0].pid == 11);
  CHECK(sessions.ranks[1].pid == 12);
  CHECK(sessions.ranks[1].gpus.at(0).execution->kernels.at(0).function == "two");

  std::string prefixed;
  for (const char* rank : {"0: ", "1: "}) {
    std::istringstream lines(text_of(rank[0] == '0' ? "nccl" : "spin"));
    for (std::string line; std::getline(lines, line);) prefixed += rank + line + "\n";
  }
  const JobSnapshot ranks = testing::read_dump(prefixed);
  REQUIRE(ranks.ranks.size() == 2);
  CHECK(ranks.ranks[1].rank == 1);
  CHECK(ranks.ranks[1].gpus.at(0).execution->kernels.at(0).function == "spin");
}

TEST_CASE("cuda-gdb's GPUs are added to the better dump of the process") {
  JobSnapshot job = testing::read_dump(
      "Process 4711: python3 a.py\nPython v3.11.2 (/usr/bin/python3)\n\nThread 4711 (idle): \"MainThread\"\n"
      "    f (a.py:1)\n",
      "rank00003_pid4711.pyspy");
  JobSnapshot more = testing::read_dump(text_of("nccl"), "rank00003_pid4711.cuda-gdb");
  more.ranks[0].pid = 4711;
  for (GpuSnapshot& gpu : more.ranks[0].gpus)
    for_each_frame(gpu, [&](FrameId& id) { id = job.frames.intern(more.frames[id]); });
  job.ranks.push_back(std::move(more.ranks[0]));
  dumps::keep_one_dump_of_each(job);
  REQUIRE(job.ranks.size() == 1);
  CHECK(job.ranks[0].dumped_by == "py-spy");
  REQUIRE(job.ranks[0].gpus.size() == 1);
  CHECK(execution(job).kernels.at(0).function == "ncclDevKernel_AllReduce_Sum_f32_RING_LL");
  CHECK_FALSE(says(job.ranks[0], ProblemCode::kMismatch, "left out"));
}

TEST_CASE("cuda-gdb's text that was cut off gives what is there") {
  for (const char* name : {"nccl", "several", "illegal"}) {
    const std::string text = text_of(name);
    std::size_t read_ones = 0;
    for (std::size_t length = 0; length <= text.size(); length += 23) {
      const auto job = dumps::read_dump(text.substr(0, length), "x", 1);
      if (!job) continue;
      ++read_ones;
      INFO(name << " " << length);
      CHECK_FALSE(job->ranks.at(0).gpus.empty());
    }
    CHECK(read_ones > 40);
  }
}
