#include <catch2/catch.hpp>

#include "analyzers/analysis.h"
#include "analyzers/gpu_health.h"
#include "analyzers/gpu_state.h"
#include "known/collective_kernels.h"
#include "support/literal_gpu.h"

using namespace rankstacks;
using namespace rankstacks::analyzers;
using namespace rankstacks::testing;

namespace {

const std::string kSpin = "spin(int*)";

Verdict verdict_of(const LiteralJob& literal) { return analyze(literal.job).verdict; }

// "culprit 2:gpu-wait", "symmetric"
std::string said(const Verdict& v) {
  std::string text(to_string(v.status));
  for (const Suspect& s : v.suspects) {
    CHECK_FALSE(s.advice.empty());
    text += " " + std::to_string(s.rank) + ":" + std::string(to_string(s.reason));
  }
  return text;
}

// Ranks that all wait for their GPUs at one place, each with the kernel named; "": examined, and nothing runs there;
// "?": not examined.
LiteralJob waiting_alike(const std::vector<std::string>& kernels) {
  LiteralJob literal;
  for (std::size_t r = 0; r < kernels.size(); ++r) {
    RankSnapshot& rank = nccl_rank(literal, static_cast<int>(r), static_cast<int>(kernels.size()), waits_for_gpu());
    if (kernels[r] == "?") continue;
    looked_at(rank);
    if (!kernels[r].empty()) runs(literal, rank, kernels[r]);
  }
  return literal;
}

void make_idle(LiteralJob& literal) {
  for (RankSnapshot& rank : literal.job.ranks)
    for (ThreadSnapshot& thread : rank.threads) thread.motion = Motion{3, 1, false, false, false, false, 0, 0, 600};
}

}  // namespace

TEST_CASE("kernels that are collectives, by their names") {
  CHECK(collective_of(kAllReduce) == known::Collective::kAllReduce);
  CHECK(collective_of("ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)") ==
        known::Collective::kReduceScatter);
  CHECK(collective_of("ncclDevKernel_Reduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)") ==
        known::Collective::kReduce);
  CHECK(collective_of("ncclDevKernel_Broadcast_RING_LL(ncclDevKernelArgsStorage<4096ul>)") ==
        known::Collective::kBroadcast);
  CHECK(collective_of(kSendRecv) == known::Collective::kSendRecv);
  CHECK(collective_of("ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)") == known::Collective::kUnknown);
  CHECK(collective_of("ncclDevKernel_Generic_1(ncclDevKernelArgsStorage<4096ul>)") ==
        known::Collective::kUnknown);  // RCCL
  CHECK(collective_of("ncclSymDevKernel_AllReduce_RSxLD_AGxST_sum_bf16(ncclSymDevArgs)") ==
        known::Collective::kAllReduce);
  CHECK(collective_of("ncclSymkDevKernel_AllGather_LLMC(ncclSymkDevWorkArgs4K)") == known::Collective::kAllGather);
  CHECK(collective_of("ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm*, unsigned long, ncclWork*)") ==
        known::Collective::kAllReduce);
  CHECK(collective_of("ncclAllReduceRingLLKernel_sum_f32(ncclColl)") == known::Collective::kAllReduce);
  CHECK(collective_of("ncclReduceScatterRingLLKernel_sum_f32(ncclColl)") == known::Collective::kReduceScatter);
  CHECK(collective_of("void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>(vllm::RankData*, vllm::RankSignals)") ==
        known::Collective::kAllReduce);
  CHECK(collective_of(
            "void (anonymous namespace)::two_shot_all_reduce_kernel_inplace<c10::BFloat16, 16, 2>(c10::BFloat16**)") ==
        known::Collective::kAllReduce);
  CHECK_FALSE(collective_of(kSpin));
  CHECK_FALSE(collective_of(
      "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float> >(at::native::ReduceOp<float>)"));
  CHECK_FALSE(collective_of("ncclTestKernel(int)"));
  CHECK_FALSE(collective_of(""));
  CHECK(kernel_name("void (anonymous namespace)::softmax<float, 4>(float*)") == "softmax");
  CHECK(kernel_name("void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<int>, std::array<char*, "
                    "1ul> >(int, at::native::FillFunctor<int>)") == "at::native::vectorized_elementwise_kernel");
  CHECK(kernel_name("triton_poi_fused_add_0") == "triton_poi_fused_add_0");
}

TEST_CASE("each line of the table of other libraries' kernels matches its own kernel, and no earlier line does") {
  for (const known::CollectiveKernel& kernel : known::collective_kernels()) {
    const std::string name = "void ns::" + std::string(kernel.part) + "x<float, 4>(float*, int)";
    INFO(name);
    CHECK(collective_of(name) == kernel.operation);
    const auto first = std::find_if(
        known::collective_kernels().begin(), known::collective_kernels().end(),
        [&](const known::CollectiveKernel& one) { return kernel.part.find(one.part) != std::string_view::npos; });
    CHECK(first->operation == kernel.operation);
    CHECK_FALSE(kernel.source.empty());
  }
}

TEST_CASE("a rank whose GPU polls in another library's barrier waits for one that does something else") {
  LiteralJob literal = waiting_alike({"c10d::symmetric_memory::barrier_kernel(unsigned int**, int, int, int)", ""});
  RankSnapshot& odd = literal.job.ranks[1];
  odd.threads[0].state = 'S';
  odd.threads[0].frames.clear();
  for (const Frame& frame : Stack{libc("clock_nanosleep"), py("sleep", "/home/u/train.py", 7)} + in_main(20))
    odd.threads[0].frames.push_back(literal.job.frames.intern(frame));
  CHECK(said(verdict_of(literal)) == "culprit 1:user-code");
}

TEST_CASE("a signal of symmetric memory that nobody puts is a message without a counterpart") {
  const LiteralJob literal = waiting_alike(
      {kAllReduce, "c10d::symmetric_memory::wait_signal_kernel(unsigned int**, int, int, int, int, unsigned long)"});
  CHECK(said(verdict_of(literal)) == "culprit 1:unmatched-p2p");
}

TEST_CASE("a kernel of one's own that is at one place may poll for another rank") {
  LiteralJob literal = waiting_alike({kSpin, ""});
  RankSnapshot& other = literal.job.ranks[1];
  other.threads[0].frames.clear();
  for (const Frame& frame : Stack{py("colour", "/home/u/train.py", 7)} + in_main(20))
    other.threads[0].frames.push_back(literal.job.frames.intern(frame));
  for (RankSnapshot& rank : literal.job.ranks)
    rank.threads[0].motion =
        Motion{.samples = 20, .places = 3, .moved = true, .cpu_ms = 4500, .runs = 90, .span_ms = 4500};
  literal.job.ranks[0].threads[0].motion->places = 1;
  literal.job.ranks[0].threads[0].motion->moved = false;
  CHECK(said(verdict_of(literal)) == "undecided");
  GpuKernel& kernel = literal.job.ranks[0].gpus[0].execution->kernels[0];
  kernel.places.front().warps -= 1;  // the last one is elsewhere: it computes
  CHECK(said(verdict_of(literal)) == "healthy");
}

TEST_CASE("what runs on a rank's GPUs") {
  LiteralJob literal = waiting_alike({kAllReduce, kSpin, "", "?"});
  const auto activity = [&](std::size_t r) { return gpu_state_of(literal.job.frames, literal.job.ranks[r]).activity; };
  CHECK(activity(0) == GpuActivity::kCollective);
  CHECK(activity(1) == GpuActivity::kKernel);
  CHECK(activity(2) == GpuActivity::kIdle);
  CHECK(activity(3) == GpuActivity::kUnknown);
  SECTION("a collective takes precedence over another kernel") {
    runs(literal, literal.job.ranks[1], kSendRecv);
    CHECK(activity(1) == GpuActivity::kCollective);
    CHECK(gpu_state_of(literal.job.frames, literal.job.ranks[1]).only_messages());
  }
  SECTION("one that serves several is identified by the function that its warps are in") {
    GpuKernel& kernel = runs(literal, literal.job.ranks[2], "ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)");
    const auto collectives = [&] { return gpu_state_of(literal.job.frames, literal.job.ranks[2]).collectives; };
    CHECK(collectives() == std::vector<known::Collective>{known::Collective::kUnknown});
    kernel.frames.insert(kernel.frames.begin(),
                         gpu_frame(literal, "ncclDevFunc_ReduceScatter_Sum_f32_RING_SIMPLE()", 0x10, 0x10));
    CHECK(collectives() == std::vector<known::Collective>{known::Collective::kReduceScatter});
    kernel.places.push_back({gpu_frame(literal, "ncclDevFunc_SendRecv()", 0x20, 0x10), 1});
    CHECK(collectives() == std::vector<known::Collective>{known::Collective::kUnknown});
  }
  SECTION("a kernel without a name may be one") {
    looked_at(literal.job.ranks[1]).kernels.front().function.reset();
    CHECK(activity(1) == GpuActivity::kUnknown);
  }
  SECTION("health alone says nothing about kernels") {
    health_of(literal.job.ranks[3]);
    CHECK(activity(3) == GpuActivity::kUnknown);
  }
}

TEST_CASE("the same collective, launched with another grid, is another call") {
  LiteralJob literal = waiting_alike({"", "", "", ""});
  for (std::size_t r = 0; r < 4; ++r) runs(literal, literal.job.ranks[r], kAllReduce, r == 2 ? 1 : 24, 544);
  Verdict v = verdict_of(literal);
  CHECK(said(v) == "culprit 2:collective-mismatch");
  CHECK(v.summary.find("AllReduce (1 block of 544) on the GPU") != std::string::npos);
  CHECK(v.summary.find("AllReduce (24 blocks of 544) on the GPU") != std::string::npos);
  SECTION("two ranks: neither is more right") {
    LiteralJob two = waiting_alike({"", ""});
    runs(two, two.job.ranks[0], kAllReduce, 24, 544);
    runs(two, two.job.ranks[1], kAllReduce, 1, 128);
    CHECK(said(verdict_of(two)) == "culprit 0:collective-mismatch 1:collective-mismatch");
  }
  SECTION("messages differ by design") {
    LiteralJob messages = waiting_alike({"", ""});
    runs(messages, messages.job.ranks[0], kSendRecv, 2, 544);
    runs(messages, messages.job.ranks[1], kSendRecv, 8, 544);
    CHECK(said(verdict_of(messages)) == "symmetric");
  }
  SECTION("several collectives at once cannot be compared") {
    runs(literal, literal.job.ranks[2], kAllReduce, 24, 544);
    CHECK(said(verdict_of(literal)) == "symmetric");
  }
}

TEST_CASE("the same collective of another data type, reduction or protocol is another call") {
  const std::string of_bfloat = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)";
  SECTION("the data type and the algorithm are in the kernel's name") {
    const Verdict v = verdict_of(waiting_alike({kAllReduce, kAllReduce, of_bfloat, kAllReduce}));
    CHECK(said(v) == "culprit 2:collective-mismatch");
    CHECK(v.summary.find("AllReduce (Sum bf16 RING LL, 13 blocks of 512) on the GPU") != std::string::npos);
    CHECK(v.summary.find("AllReduce (Sum f32 RING LL, 13 blocks of 512) on the GPU") != std::string::npos);
  }
  LiteralJob literal = waiting_alike({"", "", "", ""});
  const auto within = [&](std::size_t r, const std::string& function) {
    GpuKernel& kernel = runs(literal, literal.job.ranks[r], kAllReduce);
    const FrameId frame = gpu_frame(literal, function, 0x7f0000008000 + 0x1000 * function.size(), 0x100);
    kernel.places = {{kernel.frames.front(), 1}, {frame, kernel.warps - 1}};
  };
  SECTION("the rest is in that of the function which the kernel calls") {
    for (std::size_t r = 0; r < 4; ++r)
      within(r, r == 2 ? "ncclDevFunc_AllReduce_MinMax_f32_RING_LL()" : "ncclDevFunc_AllReduce_Sum_f32_RING_SIMPLE()");
    const Verdict v = verdict_of(literal);
    CHECK(said(v) == "culprit 2:collective-mismatch");
    CHECK(v.summary.find("AllReduce (MinMax f32 RING LL, 13 blocks of 512)") != std::string::npos);
  }
  SECTION("a kernel that calls none runs what its name says") {
    for (const std::size_t r : {0u, 1u, 3u}) within(r, "ncclDevFunc_AllReduce_Sum_f32_RING_SIMPLE()");
    runs(literal, literal.job.ranks[2], kAllReduce);
    CHECK(said(verdict_of(literal)) == "culprit 2:collective-mismatch");
  }
  SECTION("a function without a name may be any") {
    for (const std::size_t r : {0u, 1u, 3u}) within(r, "ncclDevFunc_AllReduce_Sum_f32_RING_SIMPLE()");
    GpuKernel& kernel = runs(literal, literal.job.ranks[2], kAllReduce);
    Frame nameless;
    nameless.kind = FrameKind::kGpu;
    nameless.address = 0x7f0000001230;
    kernel.places.push_back({literal.job.frames.intern(nameless), 3});
    CHECK(said(verdict_of(literal)) == "symmetric");
  }
}

TEST_CASE("a CPU that polls while its GPU is in a collective makes no progress") {
  LiteralJob literal;
  const Stack polls = Stack{libc("clock_nanosleep")} + in_main(40),
              sleeps = Stack{libc("clock_nanosleep")} + in_main(50);
  RankSnapshot& first = nccl_rank(literal, 0, 2, polls);
  runs(literal, first, kAllReduce);
  looked_at(nccl_rank(literal, 1, 2, sleeps));
  Motion motion{
      .samples = 20, .places = 2, .moved = true, .travelled = true, .cpu_ms = 20, .runs = 1100, .span_ms = 1200};
  motion.in_one_function = true;
  literal.job.ranks[0].threads[0].motion = motion;
  literal.job.ranks[1].threads[0].motion = Motion{.samples = 20, .places = 1, .span_ms = 1200};
  CHECK(said(verdict_of(literal)) == "culprit 1:user-code");
  SECTION("in a job that moves it does other things as well") {
    literal.job.ranks[0].threads[0].motion->in_one_function = false;
    CHECK(said(verdict_of(literal)) == "healthy");
  }
}

TEST_CASE("GPUs that compute are not stuck: by the power that they draw") {
  LiteralJob literal = waiting_alike({"?", "?", "?", "?"});
  for (RankSnapshot& rank : literal.job.ranks) {
    GpuHealth& health = health_of(rank, 100);
    health.power_w = 490, health.power_limit_w = 700;
    for (ThreadSnapshot& thread : rank.threads)
      thread.motion = Motion{.samples = 8, .places = 1, .cpu_ms = 6600, .runs = 20, .span_ms = 6600};
  }
  CHECK(said(verdict_of(literal)) == "healthy");
  const auto set = [&](std::size_t r, double watts) { literal.job.ranks[r].gpus[0].health->power_w = watts; };
  SECTION("one computes, and the others only poll: they wait for it") {
    for (const std::size_t r : {0u, 2u, 3u}) set(r, 124);
    CHECK(said(verdict_of(literal)) == "culprit 1:gpu-wait");
    SECTION("which a step of a second may do as well") {
      for (RankSnapshot& rank : literal.job.ranks)
        for (ThreadSnapshot& thread : rank.threads) thread.motion->span_ms = 900;
      CHECK(verdict_of(literal).doubt == Doubt::kGpuWaits);
    }
  }
  SECTION("all only poll") {
    for (std::size_t r = 0; r < 4; ++r) set(r, 124);
    CHECK(said(verdict_of(literal)) == "symmetric");
  }
  SECTION("the mean of the last second counts for more than one moment") {
    for (std::size_t r = 0; r < 4; ++r) literal.job.ranks[r].gpus[0].health->power_mean_w = 124;
    CHECK(said(verdict_of(literal)) == "symmetric");
  }
  SECTION("a process of another job draws it") {
    for (RankSnapshot& rank : literal.job.ranks) rank.gpus[0].health->other_processes = {4242};
    CHECK(said(verdict_of(literal)) == "symmetric");
  }
}

TEST_CASE("identical CPU stacks are distinguished by their GPUs") {
  SECTION("another kernel where the others poll") {
    const Verdict v = verdict_of(waiting_alike({kAllReduce, kAllReduce, kSpin, kAllReduce}));
    CHECK(said(v) == "culprit 2:gpu-wait");
    CHECK(v.summary ==
          "rank 2 waits for its GPU, which runs spin (13 blocks of 512) (main at train.py:17, running) while ranks "
          "0-1,3 wait in AllReduce on the GPU");
    CHECK(v.suspects[0].confidence == Approx(0.90));
  }
  SECTION("no kernel where the others poll") {
    const Verdict v = verdict_of(waiting_alike({kAllReduce, "", kAllReduce, kAllReduce}));
    CHECK(said(v) == "culprit 1:gpu-wait");
    CHECK(v.summary.find("rank 1 waits for its GPU, on which no kernel runs") == 0);
    CHECK(v.suspects[0].confidence < 0.75);
  }
  SECTION("of two ranks") { CHECK(said(verdict_of(waiting_alike({kSpin, kAllReduce}))) == "culprit 0:gpu-wait"); }
  SECTION("not looked at: nothing is concluded from that") {
    CHECK(said(verdict_of(waiting_alike({kAllReduce, "?", kAllReduce, kAllReduce}))) ==
          said(verdict_of(waiting_alike({"?", "?", "?", "?"}))));
  }
  SECTION("a kernel without a name is no other kernel") {
    LiteralJob literal = waiting_alike({kAllReduce, kSpin, kAllReduce, kAllReduce});
    looked_at(literal.job.ranks[1]).kernels.front().function.reset();
    CHECK(verdict_of(literal).suspects.empty());
  }
  SECTION("the same collective on all") {
    const Verdict v = verdict_of(waiting_alike({kAllReduce, kAllReduce, kAllReduce, kAllReduce}));
    CHECK(said(v) == "symmetric");
    CHECK(v.summary.find("each GPU runs AllReduce") != std::string::npos);
  }
  SECTION("a kernel that serves many collectives differs from none") {
    CHECK(said(verdict_of(waiting_alike({kAllReduce, "ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)",
                                         kAllReduce, kAllReduce}))) == "symmetric");
  }
}

TEST_CASE("a rank whose GPU did not answer, at the place of ranks whose GPUs did") {
  // Ranks 0 to 2 wait at one place, rank 3 at another one.
  const auto three_and_one = [](const std::string& of_rank_1, const std::string& of_rank_3) {
    LiteralJob literal = waiting_alike({kAllReduce, of_rank_1, kAllReduce, of_rank_3});
    ThreadSnapshot& main = literal.job.ranks[3].threads[0];
    main.frames.edit()[main.frames.size() - 2] = literal.job.frames.intern(py("main", "/home/u/train.py", 44));
    return literal;
  };
  SECTION("waits in the collective in which they are") {
    CHECK(said(verdict_of(three_and_one("?", kAllGather))) == said(verdict_of(three_and_one(kAllReduce, kAllGather))));
    CHECK(said(verdict_of(three_and_one("?", kAllGather))) == "culprit 3:collective-mismatch");
    CHECK(said(verdict_of(three_and_one("?", kSpin))) == "culprit 3:gpu-wait");
  }
  SECTION("may be in another one if they differ") {
    CHECK(verdict_of(waiting_alike({kAllReduce, "?", kAllReduce, kAllGather})).suspects.empty());
  }
  SECTION("is not accused of what their GPUs do by themselves") {
    CHECK(said(verdict_of(waiting_alike({"?", kSpin, kSpin}))) == "symmetric");
    CHECK(said(verdict_of(waiting_alike({"?", "", ""}))) == "symmetric");
  }
  SECTION("in another step it waits for something else") {
    LiteralJob literal = three_and_one("?", kAllGather);
    for (RankSnapshot& rank : literal.job.ranks)
      rank.threads[0].variables = {
          {.frame = rank.threads[0].frames.size() - 2, .numbers = {{"step", *rank.rank == 1 ? 8 : 9}}, .group = {}}};
    CHECK(said(verdict_of(literal)) != "culprit 3:collective-mismatch");
  }
}

TEST_CASE("ranks in kernels of different collectives") {
  SECTION("the smaller side") {
    const Verdict v = verdict_of(waiting_alike({kAllReduce, kAllReduce, kAllReduce, kAllGather}));
    CHECK(said(v) == "culprit 3:collective-mismatch");
    CHECK(v.summary.find("rank 3 waits in AllGather on the GPU") == 0);
    CHECK(v.summary.find("ranks 0-2 wait in AllReduce on the GPU") != std::string::npos);
  }
  SECTION("two sides of one size: both") {
    CHECK(said(verdict_of(waiting_alike({kAllReduce, kAllGather}))) ==
          "culprit 0:collective-mismatch 1:collective-mismatch");
  }
  SECTION("one of several kernels in common") {
    LiteralJob literal = waiting_alike({kAllReduce, kAllGather, kAllReduce});
    runs(literal, literal.job.ranks[1], kAllReduce);
    CHECK(verdict_of(literal).status == VerdictStatus::kSymmetric);
  }
  SECTION("of two ranks the one that sends or receives has no counterpart") {
    const Verdict v = verdict_of(waiting_alike({kAllReduce, kSendRecv}));
    CHECK(said(v) == "culprit 1:unmatched-p2p");
    CHECK(v.summary.find("rank 1 waits in SendRecv on the GPU with rank 0") == 0);
    CHECK(v.suspects.at(0).advice.find("all-to-all, gather and scatter") != std::string::npos);
  }
  SECTION("a collective that consists of messages has their kernel: the CPU says which it is") {
    const Stack gathers = waits_for_gpu(30);
    LiteralJob literal;
    runs(literal, nccl_rank(literal, 0, 2, waits_for_gpu()), kAllReduce);
    Stack stack(gathers.begin(), gathers.end() - static_cast<std::ptrdiff_t>(in_main(30).size()));
    stack.push_back(py("gather_object", kPackages + "torch/distributed/distributed_c10d.py", 3300));
    runs(literal, nccl_rank(literal, 1, 2, stack + in_main(30)), kSendRecv);
    const Verdict v = verdict_of(literal);
    CHECK(said(v) == "culprit 0:collective-mismatch 1:collective-mismatch");
    CHECK(v.summary.find("gather_object") != std::string::npos);
  }
  SECTION("the CPUs may be at different places: the kernels decide") {
    LiteralJob literal;
    for (int r = 0; r < 4; ++r)
      runs(literal, nccl_rank(literal, r, 4, waits_for_gpu(r % 2 ? 17 : 40)), r == 2 ? kAllGather : kAllReduce);
    CHECK(said(verdict_of(literal)) == "culprit 2:collective-mismatch");
  }
}

TEST_CASE("a message for which a rank still connects, while those of the others run on their GPUs") {
  const Stack connects = Stack{libc("accept"), nat("bootstrapRecv(void*, int, int, void*, int)", "libnccl.so.2"),
                               nat("ncclP2PPreconnectFunc(ncclAsyncJob*)", "libnccl.so.2"),
                               nat("ncclGroupEndInternal(ncclSimInfo_v22200*)", "libnccl.so.2"),
                               py("batch_isend_irecv", kPackages + "torch/distributed/distributed_c10d.py", 2900)} +
                         in_main(16);
  const auto job_of = [&](int ranks, int connecting) {
    LiteralJob literal;
    for (int r = 0; r < ranks; ++r) {
      RankSnapshot& rank = nccl_rank(literal, r, ranks, r < connecting ? connects : waits_for_gpu(18));
      if (r >= connecting) runs(literal, rank, kSendRecv);
      else looked_at(rank);
    }
    return literal;
  };
  CHECK(said(verdict_of(job_of(2, 1))) == "culprit 0:unmatched-p2p");
  CHECK(said(verdict_of(job_of(4, 1))) == "culprit 0:unmatched-p2p");
  SECTION("two may connect with each other") {
    CHECK(said(verdict_of(job_of(4, 2))).find("0:unmatched-p2p") == std::string::npos);
  }
}

TEST_CASE("the CPU shows why the GPU is idle") {
  LiteralJob literal;
  for (int r = 0; r < 4; ++r) {
    RankSnapshot& rank = nccl_rank(literal, r, 4, r == 2 ? in_getitem() : waits_for_gpu());
    looked_at(rank);
    if (r != 2) runs(literal, rank, kAllReduce);
  }
  literal.job.ranks[2].threads[0].state = 'S';
  const Verdict v = verdict_of(literal);
  CHECK(said(v) == "culprit 2:data-loading");
  CHECK(v.suspects[0].confidence == Approx(0.95));  // and not less: that the others wait for ranks is known
}

TEST_CASE("a rank whose GPU polls has arrived, whatever its CPU has gone on to") {
  LiteralJob literal;
  for (int r = 0; r < 4; ++r) {
    RankSnapshot& rank = nccl_rank(literal, r, 4, r == 0 ? in_getitem() : waits_for_gpu());
    looked_at(rank);
    runs(literal, rank, r == 3 ? kSpin : kAllReduce);
  }
  literal.job.ranks[0].threads[0].state = 'S';
  CHECK(said(verdict_of(literal)) == "culprit 3:gpu-wait");
}

TEST_CASE("only the ranks of the group that polls are needed, if the CPU shows the group") {
  LiteralJob literal;
  for (int r = 0; r < 4; ++r) {
    RankSnapshot& rank = nccl_rank(literal, r, 4, r % 2 == 0 ? waits_in_all_reduce() : waits_for_gpu());
    if (r % 2 == 0) rank.threads[0].variables = {{2, {}, ProcessGroup{"1", {0, 2}}, false}};
    looked_at(rank);
    if (r != 2) runs(literal, rank, r == 0 ? kAllReduce : kSpin);  // 1 and 3 are at work
  }
  CHECK(said(verdict_of(literal)) == "culprit 2:gpu-wait");
}

TEST_CASE("the CPU's call may be the next one: the kernel decides") {
  LiteralJob literal;
  for (int r = 0; r < 4; ++r)
    runs(literal, nccl_rank(literal, r, 4, waits_in_all_reduce()), r == 1 ? kAllGather : kAllReduce);
  CHECK(said(verdict_of(literal)) == "culprit 1:collective-mismatch");
}

TEST_CASE("a rank that waits for its GPU while a kernel of its own runs there waits for no rank") {
  LiteralJob literal;
  for (int r = 0; r < 4; ++r) {
    RankSnapshot& rank = nccl_rank(literal, r, 4, r == 1 ? waits_for_gpu() : waits_in_all_reduce());
    looked_at(rank);
    if (r == 1) runs(literal, rank, kSpin);
  }
  const Analysis analysis = analyze(literal.job);
  CHECK(said(analysis.verdict) == "culprit 1:gpu-wait");
  REQUIRE(analysis.activities[1]);
  CHECK(analysis.activities[1]->kind == "gpu-wait");
  CHECK(analysis.activities[1]->summary.find("spin") != std::string::npos);
}

TEST_CASE("what a kernel ran into is the cause") {
  LiteralJob literal = waiting_alike({kAllReduce, kAllReduce, "", kAllReduce});
  GpuException& exception = looked_at(literal.job.ranks[2]).exceptions.emplace_back();
  exception.kind = "illegal address";
  exception.kernel = "oops(int*)";
  exception.block = GpuDim{3, 0, 0};
  exception.thread = GpuDim{17, 0, 0};
  SECTION("in a job that hangs") {
    const Verdict v = verdict_of(literal);
    CHECK(said(v) == "culprit 2:crashed");
    CHECK(v.summary ==
          "rank 2 crashed on its GPU: illegal address in kernel oops, block (3,0,0) thread (17,0,0) while ranks 0-1,3 "
          "wait in AllReduce on the GPU");
    CHECK(v.suspects[0].confidence == Approx(0.90));
  }
  SECTION("a process that is not of the job is not accused") {
    RankSnapshot& unrelated = literal.job.ranks[2];
    unrelated.rank.reset();
    unrelated.world_size.reset();
    CHECK(verdict_of(literal).suspects.empty());
  }
  SECTION("in a GPU core without its process's") {
    literal.job.ranks[2].threads.clear();
    literal.job.ranks[2].source = Source::kCore;
    const Verdict v = verdict_of(literal);
    CHECK(said(v) == "culprit 2:crashed");
    CHECK(v.suspects[0].evidence.empty());
  }
  SECTION("in the only GPU core") {
    const RankSnapshot rank = literal.job.ranks[2];
    literal.job.ranks = {rank};
    literal.job.ranks[0].threads.clear();
    CHECK(said(verdict_of(literal)) == "culprit 0:crashed");
  }
}

TEST_CASE("GPU cores without the cores of their processes") {
  const auto cores = [](const std::vector<std::string>& kernels) {
    LiteralJob literal = waiting_alike(kernels);
    for (RankSnapshot& rank : literal.job.ranks) {
      rank.threads.clear();
      rank.source = Source::kCore;
    }
    return literal;
  };
  CHECK(said(verdict_of(cores({kAllReduce, kSpin}))) == "culprit 1:gpu-wait");
  CHECK(said(verdict_of(cores({kAllReduce, ""}))) == "undecided");
  CHECK(said(verdict_of(cores({kAllReduce, kAllReduce}))) == "undecided");
  CHECK(verdict_of(cores({"", ""})).summary ==
        "the GPU of rank 0 is idle; only the state of GPUs is at hand: the stacks of their processes would show why");
}

TEST_CASE("a GPU at rest while the others are busy") {
  LiteralJob literal = waiting_alike({"?", "?", "?", "?"});
  for (RankSnapshot& rank : literal.job.ranks) health_of(rank, rank.rank == 3 ? 0 : 100);
  SECTION("in a hang it is evidence, and a weak one") {
    make_idle(literal);
    const Verdict v = verdict_of(literal);
    CHECK(said(v) == "culprit 3:gpu-wait");
    CHECK(v.suspects[0].confidence < 0.60);
  }
  SECTION("one sample does not show that it is a hang") { CHECK(verdict_of(literal).suspects.empty()); }
  SECTION("a job that moves") {
    make_idle(literal);
    literal.job.ranks[0].threads[0].motion->moved = true;
    CHECK(said(verdict_of(literal)) == "healthy");
  }
  SECTION("another process may be what keeps a GPU busy") {
    make_idle(literal);
    health_of(literal.job.ranks[1], 100).other_processes = {4242};
    CHECK(verdict_of(literal).suspects.empty());
  }
  SECTION("neither at rest nor busy") {
    make_idle(literal);
    health_of(literal.job.ranks[1], 60);
    CHECK(verdict_of(literal).suspects.empty());
  }
  SECTION("kernels are better evidence") {
    make_idle(literal);
    for (RankSnapshot& rank : literal.job.ranks) runs(literal, rank, rank.rank == 1 ? kSpin : kAllReduce);
    CHECK(said(verdict_of(literal)) == "culprit 1:gpu-wait");
  }
}

TEST_CASE("what differs between the GPUs") {
  LiteralJob literal = waiting_alike({"?", "?", "?", "?"});
  for (RankSnapshot& rank : literal.job.ranks) {
    GpuHealth& health = health_of(rank);
    health.sm_clock = 1980;
    health.throttle = {"sw-power-cap"};
    health.nvlinks = health.nvlinks_up = 18;
  }
  CHECK(describe_gpu_differences(literal.job).empty());
  const auto notes = [&] {
    std::string text;
    for (const GpuCondition& condition : gpu_conditions(literal.job)) {
      CHECK(condition.differs == (condition.rank == 2));
      for (const std::string& note : condition.notes) text += (text.empty() ? "" : ", ") + note;
    }
    return text;
  };
  GpuHealth& odd = health_of(literal.job.ranks[2]);
  SECTION("utilisation") {
    odd.utilization_mean = 0;
    odd.sm_clock = 345;  // it rests
    CHECK(notes() == "0 % used, the others 100 %");
  }
  SECTION("a link") {
    odd.nvlinks_up = 16;
    odd.nvlinks_down = {3, 5};
    CHECK(notes() == "NVLinks 3,5 down");
    CHECK(describe_gpu_differences(literal.job) == "the GPU of rank 2 differs (NVLinks 3,5 down)");
  }
  SECTION("clock and throttling, beyond what all have") {
    odd.sm_clock = 1200;
    odd.throttle = {"hw-slowdown", "sw-power-cap"};
    CHECK(notes() == "SM clock 1200 MHz, of the others 1980, throttled by hw-slowdown");
  }
  SECTION("errors") {
    odd.ecc_uncorrected = 2;
    odd.remap_pending = true;
    odd.xids = {48, 63};
    CHECK(notes() == "2 uncorrected ECC errors, row remapping pending, Xid 48,63");
  }
  SECTION("driver and bus") {
    odd.driver = "570.86.15";
    odd.pcie_width = 8;
    odd.pcie_width_max = 16;
    CHECK(notes() == "PCIe x8 of x16, driver 570.86.15, of the others 580.159.04");
  }
  SECTION("unrelated, but not the job's own") {
    odd.other_processes = {100, 101, 4242};
    CHECK(notes() == "1 other process on it");
  }
  SECTION("what all have is no difference") {
    for (RankSnapshot& rank : literal.job.ranks) health_of(rank).xids = {31};
    for (const GpuCondition& condition : gpu_conditions(literal.job)) {
      CHECK_FALSE(condition.differs);
      CHECK(condition.notes.size() == 1);
    }
  }
}

TEST_CASE("a wait for the GPU is that, whichever code of a library asks for it") {
  const Stack synchronizes = {nat("cuStreamSynchronize", "libcuda.so.1"),
                              nat("cudaStreamSynchronize", "libcudart.so.13")};
  for (const Frame& asks :
       {py("__next__", kPackages + "torch/utils/data/dataloader.py", 725),
        py("_offload_state_dict_to_cpu", kPackages + "torch/distributed/checkpoint/state_dict.py", 7),
        py("save", kPackages + "torch/serialization.py", 70)}) {
    LiteralJob literal;
    for (int r = 0; r < 3; ++r) {
      RankSnapshot& rank = literal.rank(
          r, 3, r == 1 ? Stack{libc("clock_nanosleep")} + in_main(35) : synchronizes + Stack{asks} + in_main(30));
      literal.thread(rank, rank.pid + 1000, "x",
                     {libc("pthread_cond_wait"), nat("c10d::ProcessGroupNCCL::Watchdog::run()")});
    }
    INFO(*asks.file);
    CHECK(said(verdict_of(literal)) == "culprit 1:user-code");
  }
}
