// Verdicts that more samples may change say so; a job that was sampled for long enough gets a definite one.
#include <catch2/catch.hpp>

#include <algorithm>

#include "analyzers/analysis.h"
#include "analyzers/gpu_motion.h"
#include "analyzers/place.h"
#include "support/literal_gpu.h"

using namespace rankstacks;
using namespace rankstacks::analyzers;
using namespace rankstacks::testing;

namespace {

const Stack kSpins =
    Stack{nat("engine::solve()", "/home/u/engine.so"), py("step", "/home/u/train.py", 12)} + in_main(20);
const Stack kWaitsForGpu = Stack{libc("sched_yield"), nat("cuStreamSynchronize", "/usr/lib/libcuda.so.1"),
                                 nat("cudaStreamSynchronize", "/x/libcudart.so")} +
                           in_main(20);

// Four ranks at one place in every sample, over `span_ms`, of which each ran for `cpu_ms`.
LiteralJob all_at(const Stack& stack, char state, double span_ms, double cpu_ms) {
  LiteralJob literal;
  for (int r = 0; r < 4; ++r) {
    ThreadSnapshot& main = literal.rank(r, 4, stack, state).threads[0];
    Motion motion;
    motion.samples = 8;
    motion.places = 1;
    motion.cpu_ms = cpu_ms;
    motion.runs = cpu_ms > 0 ? 50 : 0;
    motion.span_ms = span_ms;
    main.motion = motion;
  }
  return literal;
}

Verdict verdict_of(const LiteralJob& literal) { return analyze(literal.job).verdict; }

}  // namespace

TEST_CASE("all run, each at one place") {
  SECTION("for a second: healthy, but more samples may show otherwise") {
    const Verdict v = verdict_of(all_at(kSpins, 'R', 900, 880));
    CHECK(v.status == VerdictStatus::kHealthy);
    CHECK(v.doubt == Doubt::kLoops);
  }
  SECTION("for longer than steps take") {
    const Verdict v = verdict_of(all_at(kSpins, 'R', 7000, 6900));
    CHECK(v.status == VerdictStatus::kSymmetric);
    CHECK(v.doubt == Doubt::kLoops);  // a user with more time may take more samples
  }
  SECTION("some of them for a second only: reports of two machines") {
    LiteralJob literal = all_at(kSpins, 'R', 7000, 6900);
    literal.job.ranks[3].threads[0].motion->span_ms = 900;
    literal.job.ranks[3].threads[0].motion->cpu_ms = 880;
    CHECK(verdict_of(literal).status == VerdictStatus::kHealthy);
  }
  SECTION("one of them got on") {
    LiteralJob literal = all_at(kSpins, 'R', 7000, 6900);
    literal.job.ranks[2].threads[0].motion->moved = true;
    CHECK(verdict_of(literal).status == VerdictStatus::kHealthy);
    CHECK(verdict_of(literal).doubt == Doubt::kNone);
  }
}

TEST_CASE("a rank that compiles within its process, while the others wait for it") {
  const auto job_of = [](double span_ms, double cpu_ms) {
    LiteralJob literal = all_at(waits_in_all_reduce(), 'S', span_ms, 0);
    ThreadSnapshot& compiles = literal.job.ranks[1].threads[0];
    compiles.frames.clear();
    for (const Frame& frame : Stack{py("compile_fx", kPackages + "torch/_inductor/compile_fx.py", 10)} + in_main(20))
      compiles.frames.push_back(literal.job.frames.intern(frame));
    compiles.motion->cpu_ms = cpu_ms;
    compiles.motion->runs = cpu_ms > 100 ? 40 : 0;
    compiles.motion->in_one_function = true;
    return literal;
  };
  const Verdict brief = verdict_of(job_of(900, 880)), long_one = verdict_of(job_of(7000, 6900));
  for (const Verdict* v : {&brief, &long_one}) {
    REQUIRE(v->suspects.size() == 1);
    CHECK(v->suspects[0].reason == Reason::kCompiling);
  }
  CHECK(brief.doubt == Doubt::kWorks);
  CHECK(long_one.doubt == Doubt::kNone);
  CHECK(verdict_of(job_of(900, 10)).doubt == Doubt::kNone);  // it waits for a compiler, or for a lock of one
}

TEST_CASE("most ranks look again and again for something, and one runs in a function of its own") {
  const auto job_of = [](double span_ms) {
    LiteralJob literal =
        all_at(Stack{libc("clock_nanosleep"), py("poll", "/home/u/train.py", 44)} + in_main(30), 'S', span_ms, 2);
    ThreadSnapshot& other = literal.job.ranks[0].threads[0];
    other.frames.clear();
    for (const Frame& frame : kSpins) other.frames.push_back(literal.job.frames.intern(frame));
    other.state = 'R';
    other.motion->cpu_ms = span_ms * 0.9;
    for (RankSnapshot& rank : literal.job.ranks) rank.threads[0].motion->in_one_function = true;
    return literal;
  };
  CHECK(verdict_of(job_of(900)).doubt == Doubt::kWorks);
  LiteralJob literal = job_of(7000);
  const Verdict v = verdict_of(literal);
  CHECK(v.status == VerdictStatus::kUndecided);
  CHECK(v.summary.starts_with("rank 0 differs: it runs its own code"));
  REQUIRE_FALSE(v.candidates.empty());
  CHECK(v.candidates.front().rank == 0);
  SECTION("that one counts") {
    literal.job.ranks[0].threads[0].motion->counted = true;
    CHECK(verdict_of(literal).status == VerdictStatus::kHealthy);
  }
  SECTION("most are at work") {
    for (int r = 1; r < 4; ++r) literal.job.ranks[r].threads[0].motion->cpu_ms = 6000;
    CHECK(verdict_of(literal).status == VerdictStatus::kHealthy);
  }
}

TEST_CASE("one rank only, which ran at one place: its step may be long") {
  LiteralJob literal = all_at(kWaitsForGpu, 'R', 900, 700);
  literal.job.ranks.resize(1);
  CHECK(verdict_of(literal).status == VerdictStatus::kUndecided);
  CHECK(verdict_of(literal).doubt == Doubt::kWorks);
  literal.job.ranks[0].threads[0].motion->span_ms = 4500;
  CHECK(verdict_of(literal).doubt == Doubt::kNone);
}

TEST_CASE("all wait for their GPUs") {
  SECTION("live: a step may be long") {
    const Verdict v = verdict_of(all_at(kWaitsForGpu, 'S', 900, 0));
    CHECK(v.status == VerdictStatus::kSymmetric);
    CHECK(v.doubt == Doubt::kGpuWaits);
  }
  SECTION("some of them poll it, the others sleep") {
    LiteralJob literal = all_at(kWaitsForGpu, 'S', 900, 0);
    literal.job.ranks[1].threads[0].motion->runs = 20;
    const Verdict v = verdict_of(literal);
    CHECK(v.status == VerdictStatus::kSymmetric);
    CHECK(v.doubt == Doubt::kGpuWaits);
  }
  SECTION("the kernel is known: it may be a long one") {
    for (const double span_ms : {900.0, 4500.0}) {
      LiteralJob literal = all_at(kWaitsForGpu, 'S', span_ms, 0);
      for (RankSnapshot& rank : literal.job.ranks) runs(literal, rank, "spin_kernel");
      CHECK(verdict_of(literal).doubt == (span_ms < 4000 ? Doubt::kWorks : Doubt::kGpuWaits));
    }
  }
  SECTION("cores: no more samples can be taken") {
    LiteralJob literal = all_at(kWaitsForGpu, 'S', 0, 0);
    for (RankSnapshot& rank : literal.job.ranks) {
      rank.source = Source::kCore;
      rank.threads[0].motion.reset();
    }
    CHECK(verdict_of(literal).doubt == Doubt::kNone);
  }
  SECTION("in a collective nothing is left to doubt") {
    CHECK(verdict_of(all_at(waits_in_all_reduce(), 'S', 900, 0)).doubt == Doubt::kNone);
  }
}

namespace {

// Two ranks: one waits in an all-reduce, the other is in `stack`, and moved like this.
LiteralJob one_waits_for(const Stack& stack, char state, const Motion& motion) {
  LiteralJob literal;
  literal.rank(0, 2, waits_in_all_reduce()).threads[0].motion =
      Motion{.samples = motion.samples, .places = 1, .span_ms = motion.span_ms, .in_one_function = true};
  literal.rank(1, 2, stack, state).threads[0].motion = motion;
  return literal;
}

}  // namespace

TEST_CASE("GPUs are asked after the samples: who moved in these may have come by then") {
  const std::string kLib = "/usr/lib/python3.11/";
  const Stack loop = Stack{libc("epoll_wait"), py("select", kLib + "selectors.py", 468),
                           py("_run_once", kLib + "asyncio/base_events.py", 1884),
                           py("run_forever", kLib + "asyncio/base_events.py", 607)} +
                     in_main(30);
  const auto job_of = [&](bool moved, double span_ms) {
    LiteralJob literal;
    for (int r = 0; r < 2; ++r)
      nccl_rank(literal, r, 2, loop).threads[0].motion = Motion{.samples = 3, .places = 1, .span_ms = span_ms};
    for (RankSnapshot& rank : literal.job.ranks) rank.threads[0].state = 'S';
    Motion& motion = *literal.job.ranks[0].threads[0].motion;
    motion.moved = motion.travelled = moved;
    motion.places = moved ? 2 : 1;
    looked_at(literal.job.ranks[0]);
    runs(literal, literal.job.ranks[1], kAllReduce);
    return literal;
  };
  CHECK(verdict_of(job_of(true, 800)).doubt == Doubt::kWorks);
  CHECK(verdict_of(job_of(true, 7000)).doubt == Doubt::kNone);
  const Verdict stands = verdict_of(job_of(false, 800));
  REQUIRE(stands.suspects.size() == 1);
  CHECK((stands.suspects[0].rank == 0 && stands.suspects[0].reason == Reason::kNetworkIo));
  CHECK(stands.doubt == Doubt::kNone);
}

TEST_CASE("one saves a checkpoint, and came to that from something else between the samples") {
  const Stack saves = Stack{libc("openat"), py("save", kPackages + "torch/serialization.py", 964)} + in_main(30);
  const auto job_of = [&](bool travelled, double span_ms) {
    Motion motion{.samples = 3, .places = 2, .moved = true, .cpu_ms = span_ms * 0.9, .runs = 17, .span_ms = span_ms};
    motion.travelled = travelled;
    return one_waits_for(saves, 'D', motion);
  };
  for (const double span_ms : {800.0, 7000.0}) {
    const Verdict v = verdict_of(job_of(true, span_ms));
    REQUIRE(v.suspects.size() == 1);
    CHECK((v.suspects[0].rank == 1 && v.suspects[0].reason == Reason::kCheckpointIo));
    CHECK(v.doubt == (span_ms < 4000 ? Doubt::kWorks : Doubt::kNone));
  }
  CHECK(verdict_of(job_of(false, 800)).doubt != Doubt::kWorks);
}

TEST_CASE("half of the ranks are at work in one function") {
  Motion motion{
      .samples = 8, .places = 2, .moved = true, .cpu_ms = 900, .runs = 9, .span_ms = 900, .in_one_function = true};
  SECTION("for a second: it may be a step") {
    const Verdict v = verdict_of(one_waits_for(kSpins, 'R', motion));
    CHECK(v.status == VerdictStatus::kUndecided);
    CHECK(v.doubt == Doubt::kWorks);
  }
  motion.span_ms = motion.cpu_ms = 4600;
  SECTION("for longer than steps take: a loop without an end") {
    const Verdict v = verdict_of(one_waits_for(kSpins, 'R', motion));
    REQUIRE(v.suspects.size() == 1);
    CHECK((v.suspects[0].rank == 1 && v.suspects[0].reason == Reason::kUserCode));
  }
  SECTION("it goes from one function to another") {
    motion.in_one_function = false;
    CHECK(verdict_of(one_waits_for(kSpins, 'R', motion)).status == VerdictStatus::kUndecided);
  }
  SECTION("it counts on: it is slow") {
    motion.counted = true;
    CHECK(verdict_of(one_waits_for(kSpins, 'R', motion)).status == VerdictStatus::kHealthy);
  }
}

TEST_CASE("a suspect that ran between the samples may be in a wait of every step") {
  const Stack sleeps = Stack{libc("clock_nanosleep")} + in_main(40);
  Motion motion{.samples = 3, .places = 1, .cpu_ms = 38, .runs = 2, .span_ms = 830, .in_one_function = true};
  CHECK(verdict_of(one_waits_for(sleeps, 'S', motion)).doubt == Doubt::kWakes);
  SECTION("one that did not run at all, in a sleep: it ends by itself") {
    motion.runs = 0, motion.cpu_ms = 0;
    CHECK(verdict_of(one_waits_for(sleeps, 'S', motion)).doubt == Doubt::kWakes);
    motion.span_ms = 3000;
    CHECK(verdict_of(one_waits_for(sleeps, 'S', motion)).doubt == Doubt::kNone);
  }
  SECTION("one that did not run at all, in a read") {
    motion.runs = 0, motion.cpu_ms = 0;
    const Stack reads = Stack{libc("read"), py("load", "/home/u/train.py", 7)} + in_main(40);
    CHECK(verdict_of(one_waits_for(reads, 'S', motion)).doubt == Doubt::kNone);
  }
  SECTION("found there for longer") {
    motion.span_ms = 3000;
    const Verdict v = verdict_of(one_waits_for(sleeps, 'S', motion));
    CHECK(v.doubt == Doubt::kNone);
    REQUIRE(v.suspects.size() == 1);
    CHECK(v.suspects[0].rank == 1);
  }
}

TEST_CASE("one of the ranks, which all wait, has moved: that may have been the last step") {
  LiteralJob literal;
  for (int r = 0; r < 4; ++r) {
    Motion& motion = literal.rank(r, 4, waits_in_all_reduce(), 'R').threads[0].motion.emplace();
    motion = {.samples = 3, .places = 1, .cpu_ms = 700, .runs = 9, .span_ms = 810, .in_one_function = true};
    motion.moved = r == 3;
  }
  CHECK(verdict_of(literal).status == VerdictStatus::kHealthy);
  CHECK(verdict_of(literal).doubt == Doubt::kRests);
  SECTION("it was sampled for longer, and moved again") {
    for (RankSnapshot& rank : literal.job.ranks) rank.threads[0].motion->span_ms = 3000;
    CHECK(verdict_of(literal).doubt == Doubt::kNone);
  }
  SECTION("most have") {
    literal.job.ranks[0].threads[0].motion->moved = literal.job.ranks[1].threads[0].motion->moved = true;
    CHECK(verdict_of(literal).doubt == Doubt::kNone);
  }
}

TEST_CASE("a suspect that uses the processor all the time may be in a long step") {
  LiteralJob literal;
  for (int r = 0; r < 4; ++r) {
    Motion motion{.samples = 3, .places = 1, .span_ms = 780, .in_one_function = true};
    if (r == 2) motion.cpu_ms = 770, motion.runs = 8;
    literal.rank(r, 4, r == 2 ? kSpins : waits_in_all_reduce(), r == 2 ? 'R' : 'S').threads[0].motion = motion;
  }
  const auto accused = [&] {
    const Verdict v = verdict_of(literal);
    return v.suspects.size() == 1 && v.suspects[0].rank == 2 && v.suspects[0].reason == Reason::kUserCode;
  };
  CHECK(accused());
  CHECK(verdict_of(literal).doubt == Doubt::kWorks);
  SECTION("for longer than steps take") {
    for (RankSnapshot& rank : literal.job.ranks) rank.threads[0].motion->span_ms = 4600;
    literal.job.ranks[2].threads[0].motion->cpu_ms = 4500;
    CHECK(accused());
    CHECK(verdict_of(literal).doubt == Doubt::kNone);
  }
  SECTION("on a machine with too few processors: it got little time, and used it") {
    literal.job.ranks[2].threads[0].motion->cpu_ms = 100;
    CHECK(verdict_of(literal).doubt == Doubt::kWorks);
    literal.job.ranks[2].threads[0].motion->runs = 300;  // a third of a millisecond each time: it polls
    CHECK(verdict_of(literal).doubt == Doubt::kWakes);
  }
}

TEST_CASE("a suspect whose program works may be in a long step of it") {
  const auto job = [](double span_ms, double cpu_ms) {
    LiteralJob literal;
    Motion still;
    still.samples = 8, still.places = 1, still.span_ms = span_ms;
    for (int r = 0; r < 2; ++r) {
      RankSnapshot& rank = literal.rank(
          r, 2,
          r == 0 ? Stack{libc("wait4"), py("wait", "/usr/lib/python3.11/subprocess.py", 1264)} + in_main(34)
                 : waits_in_all_reduce());
      rank.threads[0].motion = still;
    }
    RankSnapshot& child = literal.child(100, Stack{py("score", "/home/u/evaluate.py", 4)}, 'R');
    child.threads[0].motion = still;
    child.threads[0].motion->runs = 9, child.threads[0].motion->cpu_ms = cpu_ms;
    return verdict_of(literal);
  };
  CHECK(job(820, 800).doubt == Doubt::kWorks);
  CHECK(job(4200, 4100).doubt == Doubt::kNone);
  CHECK(job(4200, 4100).suspects.at(0).reason == Reason::kSubprocess);
}

TEST_CASE("samples that followed each other at once show nothing") {
  const Stack waits = Stack{libc("read"), py("load", "/home/u/train.py", 7)} + in_main(40);
  CHECK(verdict_of(all_at(waits, 'S', 800, 0)).status == VerdictStatus::kSymmetric);
  CHECK(verdict_of(all_at(waits, 'S', 0.7, 0)).doubt == Doubt::kWakes);
  CHECK(verdict_of(all_at(waits, 'S', 800, 0)).doubt == Doubt::kNone);
}

TEST_CASE("all sleep at one place: a pause of the job, or for ever") {
  const Stack sleeps = Stack{libc("clock_nanosleep")} + in_main(40);
  const Verdict v = verdict_of(all_at(sleeps, 'S', 800, 0));
  CHECK(v.status == VerdictStatus::kSymmetric);
  CHECK(v.doubt == Doubt::kWakes);
  CHECK(verdict_of(all_at(sleeps, 'S', 3000, 0)).doubt == Doubt::kNone);
}

TEST_CASE("a job that moves, in which one rank did not run at all") {
  const Stack receives = Stack{libc("recv"), py("fetch", "/home/u/train.py", 7)} + in_main(40);
  LiteralJob literal;
  Motion motion{.samples = 3, .places = 2, .moved = true, .cpu_ms = 800, .runs = 7, .span_ms = 810};
  literal.rank(0, 2, waits_in_all_reduce(), 'R').threads[0].motion = motion;
  Motion& rests = literal.rank(1, 2, receives).threads[0].motion.emplace();
  rests = {.samples = 3, .places = 1, .span_ms = 810, .in_one_function = true};
  SECTION("for a second: it may hold up the other from now on") {
    const Verdict v = verdict_of(literal);
    CHECK(v.status == VerdictStatus::kHealthy);
    CHECK(v.doubt == Doubt::kRests);
    CHECK(v.summary.find("rank 1 waits for the network") != std::string::npos);
  }
  SECTION("the other goes on moving for longer") {
    for (RankSnapshot& rank : literal.job.ranks) rank.threads[0].motion->span_ms = 3000;
    CHECK(verdict_of(literal).status == VerdictStatus::kHealthy);
    CHECK(verdict_of(literal).doubt == Doubt::kNone);
  }
  SECTION("it ran, at the same place: only the other has moved") {
    rests.runs = 1;
    CHECK(verdict_of(literal).doubt == Doubt::kRests);
  }
  SECTION("it moved") {
    rests = motion;
    CHECK(verdict_of(literal).status == VerdictStatus::kHealthy);
    CHECK(verdict_of(literal).doubt == Doubt::kNone);
  }
}

TEST_CASE("a kernel that others wait for may be a long one") {
  LiteralJob literal;
  for (int r = 0; r < 2; ++r) {
    Motion motion{.samples = 8, .places = 1, .cpu_ms = 880, .runs = 90, .span_ms = 900, .in_one_function = true};
    nccl_rank(literal, r, 2, waits_for_gpu()).threads[0].motion = motion;
  }
  runs(literal, literal.job.ranks[0], kAllReduce);
  runs(literal, literal.job.ranks[1], "gemm");
  CHECK(verdict_of(literal).suspects.at(0).rank == 1);
  CHECK(verdict_of(literal).doubt == Doubt::kWorks);
  SECTION("its GPU draws no power: it does not compute") {
    for (RankSnapshot& rank : literal.job.ranks) health_of(rank).power_w = 125, health_of(rank).power_limit_w = 700;
    CHECK(verdict_of(literal).suspects.at(0).rank == 1);
    CHECK(verdict_of(literal).doubt == Doubt::kNone);
  }
  SECTION("it runs for longer than steps take") {
    for (RankSnapshot& rank : literal.job.ranks) rank.threads[0].motion->span_ms = 4600;
    CHECK(verdict_of(literal).suspects.at(0).rank == 1);
    CHECK(verdict_of(literal).doubt == Doubt::kNone);
  }
}

TEST_CASE("the same kernels in a second session of the debugger") {
  LiteralJob before;
  for (int r = 0; r < 2; ++r) {
    Motion motion{.samples = 8, .places = 1, .cpu_ms = 4500, .runs = 90, .span_ms = 4600, .in_one_function = true};
    nccl_rank(before, r, 2, waits_for_gpu()).threads[0].motion = motion;
  }
  runs(before, before.job.ranks[0], kAllReduce);
  runs(before, before.job.ranks[1], "gemm");
  JobSnapshot after = before.job;
  SECTION("are still there: one does not end") {
    fold_sessions(before.job, after);
    CHECK(after.ranks[1].gpus[0].execution->moved == false);
    CHECK(analyze(after).verdict.suspects.at(0).rank == 1);
  }
  SECTION("have ended, and the next ones run") {
    for (RankSnapshot& rank : after.ranks) rank.gpus[0].execution->kernels[0].grid_id += 3;
    fold_sessions(before.job, after);
    CHECK(after.ranks[1].gpus[0].execution->moved == true);
    CHECK(analyze(after).verdict.status == VerdictStatus::kHealthy);
  }
  SECTION("are gone") {
    after.ranks[1].gpus[0].execution->kernels.clear();
    fold_sessions(before.job, after);
    CHECK(after.ranks[1].gpus[0].execution->moved == true);
    CHECK(after.ranks[0].gpus[0].execution->moved == false);
  }
  SECTION("were none, and are none") {
    for (JobSnapshot* job : {&before.job, &after}) job->ranks[1].gpus[0].execution->kernels.clear();
    fold_sessions(before.job, after);
    CHECK_FALSE(after.ranks[1].gpus[0].execution->moved);
  }
}

TEST_CASE("one part of a job moves and another does not: who is waited for in the former is not accused") {
  // Ranks 0 and 1 share a group, and ranks 2 and 3, of which rank 2 is between two steps.
  LiteralJob literal;
  for (int r = 0; r < 4; ++r) {
    const bool elsewhere = r == 1 || r == 2;
    ThreadSnapshot& main = literal.rank(r, 4, elsewhere ? kSpins : waits_in_all_reduce()).threads[0];
    main.syscall = call(elsewhere ? "clock_nanosleep" : "futex");
    if (!elsewhere)
      main.variables = {
          {.frame = 2, .numbers = {}, .group = ProcessGroup{r == 0 ? "1" : "2", {r == 0 ? 0 : 2, r == 0 ? 1 : 3}}}};
    const bool moves = r >= 2;
    main.motion = Motion{.samples = 8,
                         .places = 1,
                         .moved = r == 3,
                         .counted = moves,
                         .left_wait = r == 3,
                         .cpu_ms = moves ? 56.0 : 0.0,
                         .runs = moves ? 1150 : 0,
                         .span_ms = 4650};
  }
  const Verdict v = verdict_of(literal);
  REQUIRE(v.suspects.size() == 1);
  CHECK(v.suspects[0].rank == 1);
}

TEST_CASE("who gets on is not accused while it is not known what all others do") {
  LiteralJob literal;
  for (int r = 0; r < 4; ++r) {
    ThreadSnapshot& main = literal.rank(r, 4, r == 2 ? kSpins : waits_in_all_reduce(), r == 2 ? 'R' : 'S').threads[0];
    main.motion = Motion{.samples = 3,
                         .places = 1,
                         .counted = r == 2,
                         .cpu_ms = r == 2 ? 700.0 : 0.0,
                         .runs = r == 2 ? 9 : 0,
                         .span_ms = 900};
  }
  CHECK(verdict_of(literal).status == VerdictStatus::kHealthy);
  SECTION("one could not be read") {
    literal.job.ranks[0].threads.clear();
    literal.job.ranks[0].status = Status::kFailed;
    const Verdict v = verdict_of(literal);
    CHECK(v.status == VerdictStatus::kUndecided);
    CHECK(v.summary ==
          "ranks 1,3 wait in all_reduce; rank 2, for which they wait, moves (runs its own code (step at train.py:12, "
          "running)); but what all others do is not known; rank 0 could not be read");
  }
  SECTION("of one nothing but its call is known: it may read for the library by which ranks communicate") {
    ThreadSnapshot& main = literal.job.ranks[0].threads[0];
    main.frames.clear();
    main.stack_end = StackEnd::kMemoryUnavailable;
    main.syscall = call("recvfrom", 7, "tcp 10.0.0.1:4 -> 10.0.0.2:5");
    CHECK(verdict_of(literal).status == VerdictStatus::kUndecided);
    literal.job.ranks[2].threads[0].motion->counted = false;
    const Verdict v = verdict_of(literal);
    REQUIRE(v.suspects.size() == 1);
    CHECK(v.suspects[0].rank == 2);
  }
  SECTION("of one only Python's functions are known, not what they have called") {
    ThreadSnapshot& main = literal.job.ranks[0].threads[0];
    main.frames.clear();
    Stack python = in_main(17);
    for (Frame& frame : python) {
      frame.origin = FrameOrigin::kSeparate;
      main.frames.push_back(literal.job.frames.intern(frame));
    }
    main.stack_end = StackEnd::kNoUnwindInfo;
    main.syscall = call("futex");
    literal.job.ranks[2].threads[0].motion->counted = false;
    const auto accuses_rank_0 = [&] {
      const Verdict v = verdict_of(literal);
      return std::any_of(v.suspects.begin(), v.suspects.end(), [](const Suspect& s) { return s.rank == 0; });
    };
    CHECK_FALSE(accuses_rank_0());
    const auto called_from = [&](const std::string& module) {
      std::vector<FrameId> frames = main.frames;
      std::erase_if(frames, [&](FrameId id) { return literal.job.frames[id].kind == FrameKind::kNative; });
      frames.insert(frames.begin(), {literal.job.frames.intern(libc("clock_nanosleep")),
                                     literal.job.frames.intern(nat("sleeps", module))});
      main.frames = frames;
    };
    main.syscall = call("clock_nanosleep");
    called_from("/usr/lib/libmpi.so.12");  // between two polls
    CHECK_FALSE(accuses_rank_0());
    called_from("/usr/bin/python3.11");
    CHECK(accuses_rank_0());
    main.syscall.reset();
    main.gil = Gil::kHolds;
    CHECK(accuses_rank_0());
    called_from("/usr/lib/libmpi.so.12");
    CHECK_FALSE(accuses_rank_0());
  }
  SECTION("of one there is one sample only") {
    literal.job.ranks[0].threads[0].motion.reset();
    CHECK(verdict_of(literal).status == VerdictStatus::kHealthy);
  }
}

namespace {

// Ranks 0 and 1 look again and again for something, asleep in between, and rank 2 is in a loop of its own, in which it
// sleeps as well, and counts.
LiteralJob two_look(double span_ms) {
  LiteralJob literal;
  for (int r = 0; r < 3; ++r) {
    ThreadSnapshot& thread =
        literal
            .rank(r, 3,
                  Stack{libc("clock_nanosleep"), py(r == 2 ? "tidy" : "meet", "/home/u/train.py", 7 + r / 2)} +
                      in_main(40))
            .threads[0];
    thread.syscall = call("clock_nanosleep");
    thread.motion = Motion{.samples = 8, .places = 1, .cpu_ms = 2, .span_ms = span_ms, .in_one_function = true};
    thread.motion->runs = static_cast<int>(span_ms / (r == 2 ? 20 : 50));
    thread.motion->counted = r == 2;
  }
  return literal;
}

}  // namespace

TEST_CASE("ranks that look again and again for something, while another one runs on in one function") {
  const Verdict brief = verdict_of(two_look(840));
  CHECK(brief.status == VerdictStatus::kHealthy);
  CHECK(brief.summary == "nothing is seen to be stuck: every rank runs");
  CHECK(brief.doubt == Doubt::kWorks);
  LiteralJob literal = two_look(4600);
  const auto motion_of = [&](std::size_t r) -> Motion& { return *literal.job.ranks[r].threads[0].motion; };
  SECTION("for longer than steps take: they may wait for that one") {
    const Verdict v = verdict_of(literal);
    CHECK(v.status == VerdictStatus::kUndecided);
    CHECK(v.summary ==
          "ranks 0-1 look again and again for something (meet at train.py:7), and rank 2 sleeps in its own code (tidy "
          "at train.py:8): whether what the former look for is to come from that rank is not in their frames");
    REQUIRE(v.candidates.size() == 1);
    CHECK((v.candidates[0].rank == 2 && v.candidates[0].reason == Reason::kUserCode));
  }
  SECTION("that one computes") {
    ThreadSnapshot& thread = literal.job.ranks[2].threads[0];
    thread.state = 'R', thread.syscall.reset();
    motion_of(2).cpu_ms = 4500, motion_of(2).moved = true, motion_of(2).places = 3, motion_of(2).counted = false;
    CHECK(verdict_of(literal).status == VerdictStatus::kUndecided);
  }
  SECTION("that one computes, and counts: it gets on") {
    ThreadSnapshot& thread = literal.job.ranks[2].threads[0];
    thread.state = 'R', thread.syscall.reset();
    motion_of(2).cpu_ms = 4500;
    CHECK(verdict_of(literal).status == VerdictStatus::kHealthy);
  }
  SECTION("it goes from one function to another, be it of a library: it gets on") {
    motion_of(2).travelled = motion_of(2).moved = true;
    const Verdict v = verdict_of(literal);
    CHECK(v.status == VerdictStatus::kHealthy);
    CHECK(v.summary == "nothing is seen to be stuck: every rank runs, none is seen waiting for another");
  }
  SECTION("one of those that look gets on") {
    motion_of(1).in_one_function = false, motion_of(1).travelled = motion_of(1).moved = true;
    CHECK(verdict_of(literal).status == VerdictStatus::kHealthy);
  }
  SECTION("the third does the same, and has counted") {
    literal.job.ranks[2].threads[0].frames = literal.job.ranks[0].threads[0].frames;
    CHECK(verdict_of(literal).status == VerdictStatus::kHealthy);
  }
  SECTION("all count: nobody looks for anything") {
    motion_of(0).counted = motion_of(1).counted = true;
    const Verdict v = verdict_of(literal);
    CHECK(v.status == VerdictStatus::kHealthy);
    CHECK(v.summary == "nothing is stuck: every rank moves, none waits for another");
  }
  SECTION("Python's sleep, which was a select until 3.10") {
    for (const char* inner : {"pysleep", "", "select_select"}) {
      for (int r = 0; r < 2; ++r) {
        ThreadSnapshot& thread = literal.job.ranks[r].threads[0];
        Stack stack = {libc("__select"), nat(inner, "/usr/lib/libpython3.7m.so.1.0"),
                       py("meet", "/home/u/train.py", 7)};
        if (stack[1].function->empty()) stack[1].function.reset();
        thread.frames.clear();
        for (const Frame& frame : stack + in_main(40)) thread.frames.push_back(literal.job.frames.intern(frame));
        thread.syscall = call("pselect6");
        CHECK(is_in_sleep(literal.job, thread) == (std::string(inner) != "select_select"));
      }
      CHECK((verdict_of(literal).status == VerdictStatus::kUndecided) == (std::string(inner) != "select_select"));
    }
  }
}
