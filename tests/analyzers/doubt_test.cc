// Verdicts that more samples may change say so; a job that was sampled for long enough gets a definite one.
#include <catch2/catch.hpp>

#include "analyzers/analysis.h"
#include "support/literal_job.h"

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

TEST_CASE("all wait for their GPUs") {
  SECTION("live: a step may be long") {
    const Verdict v = verdict_of(all_at(kWaitsForGpu, 'S', 900, 0));
    CHECK(v.status == VerdictStatus::kSymmetric);
    CHECK(v.doubt == Doubt::kGpuWaits);
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
