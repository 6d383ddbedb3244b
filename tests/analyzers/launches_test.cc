#include <catch2/catch.hpp>

#include <map>

#include "analyzers/analysis.h"
#include "support/literal_gpu.h"

using namespace rankstacks;
using namespace rankstacks::analyzers;
using namespace rankstacks::testing;

namespace {

using Counts = std::vector<std::pair<std::string, std::int64_t>>;
using Accused = std::map<std::size_t, std::string>;

const Stack kSynchronizes =
    Stack{nat("cuStreamSynchronize", "libcuda.so.1"), py("synchronize", kPackages + "torch/cuda/__init__.py", 1162)};
const Stack kOwnPlace = kSynchronizes + Stack{py("simulate", "/home/u/train.py", 7)} + in_main(31);
const Stack kInBarrier = Stack{nat("cuStreamSynchronize", "libcuda.so.1"), nat("c10d::ProcessGroupNCCL::barrier()"),
                               py("barrier", kPackages + "torch/distributed/distributed_c10d.py", 5030)} +
                         in_main(33);
const Stack kSleeps = Stack{libc("clock_nanosleep")} + in_main(35);

// Four ranks in the same synchronisation, but rank 1 in `odd`, and what NCCL says that each has launched.
LiteralJob all_synchronize(const Stack& odd = kSynchronizes + in_main(30)) {
  LiteralJob literal;
  for (int r = 0; r < 4; ++r) {
    RankSnapshot& rank = literal.rank(r, 4, r == 1 ? odd : kSynchronizes + in_main(30), 'R');
    literal.thread(rank, rank.pid + 1000, "x",
                   {libc("pthread_cond_wait"), nat("c10d::ProcessGroupNCCL::Watchdog::run()")});
  }
  literal.job.nccl = NcclStatus{.version = "2.28.9"};
  return literal;
}

void communicator(LiteralJob& literal, const std::vector<std::pair<std::size_t, Counts>>& launched) {
  NcclCommunicator one{.hash = std::to_string(literal.job.nccl->communicators.size()),
                       .size = static_cast<int>(launched.size())};
  for (const auto& [r, counts] : launched) {
    const RankSnapshot& rank = literal.job.ranks[r];
    one.members.push_back({.rank = static_cast<int>(one.members.size()),
                           .host = "192.0.2.2",
                           .pid = rank.pid,
                           .process = NcclMember::Process{rank.host, rank.pid},
                           .launched = counts});
  }
  literal.job.nccl->communicators.push_back(std::move(one));
}

Accused accused(const LiteralJob& literal) {
  Accused reasons;
  for (const Suspect& s : analyze(literal.job).verdict.suspects) reasons[s.rank] = to_string(s.reason);
  return reasons;
}

}  // namespace

TEST_CASE("NCCL's counts distinguish ranks that all wait for their GPUs") {
  LiteralJob literal = all_synchronize();
  const Counts four = {{"AllGather", 0}, {"AllReduce", 4}}, three = {{"AllGather", 0}, {"AllReduce", 3}},
               gathered = {{"AllGather", 1}, {"AllReduce", 3}};
  SECTION("equal") {
    communicator(literal, {{0, four}, {1, four}, {2, four}, {3, four}});
    CHECK(analyze(literal.job).verdict.status == VerdictStatus::kSymmetric);
  }
  SECTION("another collective") {
    communicator(literal, {{0, four}, {1, gathered}, {2, four}, {3, four}});
    CHECK(accused(literal) == Accused{{1, "collective-mismatch"}});
    CHECK(analyze(literal.job).verdict.summary.find("1 AllGather") != std::string::npos);
  }
  SECTION("another collective, two against two") {
    communicator(literal, {{0, four}, {1, gathered}, {2, four}, {3, gathered}});
    CHECK(accused(literal).size() == 4);
  }
  SECTION("each side has launched more of something") {
    const Counts skipped = {{"AllGather", 3}, {"AllReduce", 3}};
    communicator(literal, {{0, four}, {1, skipped}, {2, four}, {3, four}});
    CHECK(accused(literal) == Accused{{1, "collective-mismatch"}});
    communicator(literal = all_synchronize(kOwnPlace), {{0, skipped}, {1, four}, {2, skipped}, {3, skipped}});
    CHECK(accused(literal) == Accused{{1, "collective-mismatch"}});
  }
  SECTION("groups in another order") {
    communicator(literal, {{0, four}, {1, three}, {2, four}, {3, four}});
    communicator(literal, {{0, three}, {1, four}, {2, three}, {3, three}});
    CHECK(accused(literal) == Accused{{1, "process-group-order"}});
  }
  SECTION("one has launched less, and waits at the place of the others") {
    communicator(literal, {{0, four}, {1, three}, {2, four}, {3, four}});
    CHECK(accused(literal) == Accused{{1, "behind"}});
  }
  SECTION("one has launched less, and waits for its GPU somewhere else") {
    literal = all_synchronize(kOwnPlace);
    communicator(literal, {{0, four}, {1, three}, {2, four}, {3, four}});
    CHECK(accused(literal) == Accused{{1, "gpu-wait"}});
    for (RankSnapshot& rank : literal.job.ranks)
      for (ThreadSnapshot& thread : rank.threads)
        thread.motion = Motion{.samples = 3, .places = 1, .cpu_ms = 300, .runs = 60, .span_ms = 800};
    CHECK(analyze(literal.job).verdict.doubt == Doubt::kGpuWaits);  // it may be in a step that takes long
  }
  SECTION("as many launches, but one waits in a barrier") {
    literal = all_synchronize(kInBarrier);
    communicator(literal, {{0, four}, {1, four}, {2, four}, {3, four}});
    CHECK(accused(literal) == Accused{{1, "collective-mismatch"}});
  }
  SECTION("one waits in a barrier, and the others for their GPUs: nothing is known without counts") {
    literal = all_synchronize(kInBarrier);
    CHECK(analyze(literal.job).verdict.status == VerdictStatus::kUndecided);
  }
  SECTION("one asks again and again whether what it has launched is done; the rank that has not launched it sleeps") {
    literal = all_synchronize(kSleeps);
    communicator(literal, {{0, four}, {1, three}, {2, four}, {3, four}});
    RankSnapshot& polls = literal.job.ranks[2];
    polls.threads[0].frames.clear();
    for (const Frame& frame : Stack{libc("clock_nanosleep")} + in_main(40))
      polls.threads[0].frames.push_back(literal.job.frames.intern(frame));
    for (RankSnapshot& rank : literal.job.ranks)
      for (ThreadSnapshot& thread : rank.threads)
        thread.motion = Motion{.samples = 20, .places = 1, .cpu_ms = 20, .runs = 0, .span_ms = 1200};
    Motion& motion = *polls.threads[0].motion;
    motion.runs = 1100, motion.in_one_function = true;
    CHECK(accused(literal) == Accused{{1, "user-code"}});
    motion.in_one_function = false;  // it does something else in between
    CHECK(accused(literal).size() != 1);
  }
  SECTION("two wait for a message: their communicator of two has run nothing that is counted") {
    communicator(literal, {{0, three}, {1, three}, {2, four}, {3, four}});
    communicator(literal, {{0, {{"AllReduce", 0}}}, {1, {{"AllReduce", 0}}}});
    CHECK(accused(literal) == Accused{{0, "unmatched-p2p"}, {1, "unmatched-p2p"}});
  }
  SECTION(
      "one has launched more than all others, which wait for their GPUs at one place: it has skipped what they do") {
    literal = all_synchronize(kOwnPlace);
    communicator(literal, {{0, three}, {1, four}, {2, three}, {3, three}});
    CHECK(accused(literal) == Accused{{1, "collective-mismatch"}});
    const Verdict v = analyze(literal.job).verdict;
    CHECK(v.summary.find("by NCCL's counts rank 1 launched 4 AllReduce, and ranks 0,2-3, which wait for something that "
                         "they have launched before, 3 AllReduce") != std::string::npos);
    for (RankSnapshot& rank : literal.job.ranks)
      rank.threads[0].motion = Motion{.samples = 3, .places = 1, .cpu_ms = 700, .runs = 5, .span_ms = 700};
    CHECK(analyze(literal.job).verdict.doubt == Doubt::kGpuWaits);  // it may be a long step of theirs
    for (RankSnapshot& rank : literal.job.ranks) rank.threads[0].motion->span_ms = 4500;
    CHECK(analyze(literal.job).verdict.doubt == Doubt::kNone);
  }
  SECTION("one has launched more than all others, at their place") {
    communicator(literal, {{0, three}, {1, four}, {2, three}, {3, three}});
    CHECK(accused(literal).empty());
  }
  SECTION("they go on") {
    communicator(literal, {{0, four}, {1, three}, {2, four}, {3, four}});
    literal.job.nccl->answers = 2;
    for (NcclMember& member : literal.job.nccl->communicators[0].members) member.counts_move = true;
    for (RankSnapshot& rank : literal.job.ranks)
      for (ThreadSnapshot& thread : rank.threads)
        thread.motion = Motion{.samples = 3, .places = 1, .cpu_ms = 900, .runs = 5, .span_ms = 900};
    CHECK(analyze(literal.job).verdict.status == VerdictStatus::kHealthy);
  }
}

TEST_CASE("some ranks wait for their GPUs, others in a collective on the host, and all launches are equal") {
  const Stack copies = Stack{nat("cuMemcpyDtoHAsync_v2", "libcuda.so.1")} + in_main(31);
  LiteralJob literal = all_synchronize(copies);
  for (std::size_t r : {0u, 2u, 3u}) {
    ThreadSnapshot& main = literal.job.ranks[r].threads[0];
    main.frames.clear();
    for (const Frame& frame : waits_in_all_reduce()) main.frames.push_back(literal.job.frames.intern(frame));
    main.state = 'S';
  }
  const Counts one = {{"AllReduce", 4}};
  SECTION("what that GPU is busy with is its own work") {
    communicator(literal, {{0, one}, {1, one}, {2, one}, {3, one}});
    CHECK(accused(literal) == Accused{{1, "gpu-wait"}});
  }
  SECTION("it is ahead: the others have yet to launch what it waits for") {
    communicator(literal, {{0, one}, {1, {{"AllReduce", 5}}}, {2, one}, {3, one}});
    CHECK(accused(literal) == Accused{{1, "collective-mismatch"}});
  }
  SECTION("it has called a scatter, by the Flight Recorder, which NCCL does not count") {
    communicator(literal, {{0, one}, {1, one}, {2, one}, {3, one}});
    for (std::size_t r = 0; r < 4; ++r) {
      RecordedGroup all{.name = "0", .description = "default_pg", .library = "nccl", .ranks = {0, 1, 2, 3}};
      all.last_enqueued = r == 1 ? 4 : 3;
      all.last_completed = 3;
      if (r == 1) all.operations = {{.sequence = 4, .name = "scatter", .state = RecordedState::kScheduled}};
      literal.job.ranks[r].flight_record = FlightRecord{.path = "/tmp/trace", .age_ms = 100.0, .groups = {all}};
    }
    CHECK(accused(literal) == Accused{{1, "collective-mismatch"}});
  }
}

TEST_CASE("ranks of two replicas: one waits for its GPU, the others on the host") {
  LiteralJob literal = all_synchronize();
  for (std::size_t r : {0u, 2u, 3u}) {
    ThreadSnapshot& main = literal.job.ranks[r].threads[0];
    main.frames.clear();
    for (const Frame& frame : waits_in_all_reduce()) main.frames.push_back(literal.job.frames.intern(frame));
    main.state = 'S';
  }
  const Counts four = {{"AllReduce", 4}}, three = {{"AllReduce", 3}};
  SECTION("its partner has skipped what the ranks of the other pair have launched") {
    communicator(literal, {{0, four}, {2, four}});
    communicator(literal, {{1, four}, {3, three}});
    CHECK(accused(literal) == Accused{{3, "collective-mismatch"}});
  }
  SECTION("it has launched one more than they") {
    communicator(literal, {{0, three}, {2, three}});
    communicator(literal, {{1, four}, {3, three}});
    CHECK(accused(literal) == Accused{{1, "collective-mismatch"}});
  }
  SECTION("no pair tells it, but in every step they launch as often as in their other communicators") {
    const Counts reduced = {{"Broadcast", 4}, {"Reduce", 4}};
    communicator(literal, {{0, reduced}, {1, reduced}});
    communicator(literal, {{2, reduced}, {3, reduced}});
    communicator(literal, {{1, four}, {3, three}});
    CHECK(accused(literal) == Accused{{3, "collective-mismatch"}});
    literal.job.nccl->communicators.pop_back();
    communicator(literal, {{1, {{"AllReduce", 5}}}, {3, four}});
    CHECK(accused(literal) == Accused{{1, "collective-mismatch"}});
    literal.job.nccl->communicators.pop_back();
    communicator(literal, {{1, {{"AllReduce", 9}}}, {3, {{"AllReduce", 8}}}});
    CHECK(accused(literal) != Accused{{3, "collective-mismatch"}});
    CHECK(accused(literal) != Accused{{1, "collective-mismatch"}});
  }
  SECTION("a rank that is late because its partner is late elsewhere") {
    communicator(literal, {{1, three}, {2, four}});
    communicator(literal, {{0, {{"Broadcast", 4}}}, {2, {{"Broadcast", 4}}}});
    communicator(literal, {{1, {{"Broadcast", 4}}}, {3, {{"Broadcast", 3}}}});
    CHECK(accused(literal) == Accused{{3, "collective-mismatch"}});
  }
  SECTION("the other pair has launched another number than either") {
    communicator(literal, {{0, {{"AllReduce", 9}}}, {2, {{"AllReduce", 9}}}});
    communicator(literal, {{1, four}, {3, three}});
    CHECK(accused(literal) != Accused{{3, "collective-mismatch"}});
  }
}

TEST_CASE("a collective on a GPU that is of another moment than the stacks") {
  const Stack waits_on_host = waits_in_all_reduce(34);
  const auto job_of = [&](const Counts& of_first, const Counts& of_others, const Stack& others) {
    LiteralJob literal;
    for (int r = 0; r < 2; ++r) {
      RankSnapshot& rank = nccl_rank(literal, r, 2, r == 0 ? kSynchronizes + in_main(30) : others);
      if (r == 0) runs(literal, rank, "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)");
      else looked_at(rank);
    }
    literal.job.nccl = NcclStatus{.version = "2.28.9"};
    communicator(literal, {{0, of_first}, {1, of_others}});
    return analyze(literal.job).verdict.summary;
  };
  const Counts four = {{"AllReduce", 4}}, three = {{"AllReduce", 3}};
  const std::string on_gpu = "AllReduce on the GPU";
  // Rank 1 has launched it, too, and it is gone there.
  CHECK(job_of(four, four, waits_on_host).find(on_gpu) == std::string::npos);
  // It has not launched it.
  CHECK(job_of(four, three, waits_on_host).find(on_gpu) != std::string::npos);
  // It waits for its GPU: what it has launched may wait there for something else.
  CHECK(job_of(four, four, kOwnPlace).find(on_gpu) != std::string::npos);
}

TEST_CASE("a GPU on which nothing is seen, although its rank has launched what cannot have ended") {
  LiteralJob literal = all_synchronize(kOwnPlace);
  for (std::size_t r = 0; r < 4; ++r) {
    looked_at(literal.job.ranks[r]);
    if (r != 1) runs(literal, literal.job.ranks[r], "ncclDevKernel_ReduceScatter_Sum_f32_RING_LL()");
  }
  const auto of_all = [&](const Counts& common, const Counts& odd) {
    communicator(literal, {{0, common}, {1, odd}, {2, common}, {3, common}});
  };
  of_all({{"ReduceScatter", 4}}, {{"ReduceScatter", 3}});
  SECTION("an all-reduce, which needs the others") {
    of_all({{"AllReduce", 4}}, {{"AllReduce", 5}});
    CHECK(accused(literal) == Accused{{1, "process-group-order"}});
  }
  SECTION("a broadcast may have ended for its source") {
    of_all({{"Broadcast", 4}}, {{"Broadcast", 5}});
    CHECK(accused(literal) == Accused{{1, "gpu-wait"}});
  }
  SECTION("nothing that the others have not launched") {
    of_all({{"AllReduce", 4}}, {{"AllReduce", 4}});
    CHECK(accused(literal) == Accused{{1, "gpu-wait"}});
  }
}

TEST_CASE("a rank that has launched less, and whose GPU could not be asked: its step may be long") {
  LiteralJob literal = all_synchronize(kOwnPlace);
  for (std::size_t r = 0; r < 4; ++r)
    for (ThreadSnapshot& thread : literal.job.ranks[r].threads)
      thread.motion = Motion{.samples = 3, .places = 1, .cpu_ms = 700, .runs = 20, .span_ms = 800};
  communicator(literal,
               {{0, {{"AllReduce", 4}}}, {1, {{"AllReduce", 3}}}, {2, {{"AllReduce", 4}}}, {3, {{"AllReduce", 4}}}});
  CHECK(accused(literal) == Accused{{1, "gpu-wait"}});
  CHECK(analyze(literal.job).verdict.doubt == Doubt::kGpuWaits);
  for (const std::size_t r : {0u, 2u, 3u})
    runs(literal, literal.job.ranks[r], "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)");
  CHECK(accused(literal) == Accused{{1, "gpu-wait"}});
  CHECK(analyze(literal.job).verdict.doubt == Doubt::kWorks);
}
