// What a verdict says of whether a job goes on.
#include <catch2/catch.hpp>

#include "analyzers/goes_on.h"
#include "support/literal_job.h"

using namespace rankstacks;
using namespace rankstacks::analyzers;
using namespace rankstacks::testing;

namespace {

const Stack kComputes =
    Stack{nat("engine::solve()", "/home/u/engine.so"), py("evaluate", "/home/u/train.py", 12)} + in_main(20);

// Rank 0 computes at one place, and the others wait for it.
LiteralJob evaluates(std::optional<double> cpu_ms) {
  LiteralJob literal;
  for (int r = 0; r < 4; ++r) {
    ThreadSnapshot& main =
        literal.rank(r, 4, r == 0 ? kComputes : waits_in_all_reduce(), r == 0 ? 'R' : 'S').threads[0];
    if (!cpu_ms) continue;
    Motion motion;
    motion.samples = 3;
    motion.places = 1;
    motion.in_one_function = true;
    motion.cpu_ms = r == 0 ? *cpu_ms : 0;
    motion.runs = motion.cpu_ms > 0;
    motion.span_ms = 700;
    main.motion = motion;
  }
  return literal;
}

GoesOn goes_on(const LiteralJob& literal) {
  const Analysis analysis = analyze(literal.job);
  REQUIRE(analysis.verdict.status == VerdictStatus::kCulprit);
  REQUIRE(analysis.verdict.suspects.size() == 1);
  REQUIRE(analysis.verdict.suspects[0].rank == 0);
  return analyzers::goes_on(literal.job, analysis);
}

}  // namespace

TEST_CASE("a suspect that has run and is where it was makes no progress") {
  CHECK(goes_on(evaluates(650)) == GoesOn::kNo);
}

TEST_CASE("a suspect that had no processor could not have moved") {
  CHECK(goes_on(evaluates(0)) == GoesOn::kNotKnown);
  CHECK(goes_on(evaluates(30)) == GoesOn::kNotKnown);
  CHECK(goes_on(evaluates(40)) == GoesOn::kNo);
  CHECK(goes_on(evaluates(std::nullopt)) == GoesOn::kNotKnown);
}

TEST_CASE("a suspect that sleeps needs no processor") {
  LiteralJob literal = evaluates(0);
  literal.job.ranks[0].threads[0].state = 'S';
  const Analysis analysis = analyze(literal.job);
  REQUIRE(!analysis.verdict.suspects.empty());
  CHECK(analyzers::goes_on(literal.job, analysis) == GoesOn::kNo);
}
