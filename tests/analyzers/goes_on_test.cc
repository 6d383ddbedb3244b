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
LiteralJob evaluates(std::optional<double> cpu_ms, std::int64_t runs = 1) {
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
    motion.runs = motion.cpu_ms > 0 ? runs : 0;
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
  CHECK(goes_on(evaluates(60)) == GoesOn::kNotKnown);
  CHECK(goes_on(evaluates(80)) == GoesOn::kNo);
  CHECK(goes_on(evaluates(40, 100)) == GoesOn::kNotKnown);  // 30 threads for each processor, and some interrupt it
  CHECK(goes_on(evaluates(4, 100)) == GoesOn::kNo);         // it gives it back
  CHECK(goes_on(evaluates(std::nullopt)) == GoesOn::kNotKnown);
}

TEST_CASE("a suspect that sleeps needs no processor") {
  LiteralJob literal = evaluates(0);
  literal.job.ranks[0].threads[0].state = 'S';
  const Analysis analysis = analyze(literal.job);
  REQUIRE(!analysis.verdict.suspects.empty());
  CHECK(analyzers::goes_on(literal.job, analysis) == GoesOn::kNo);
}

namespace {

// All main threads wait for a thread of their own, which has run as often as that between two samples.
GoesOn joins(char state, double cpu_ms, std::int64_t runs) {
  const std::string engine = "/home/u/engine";
  LiteralJob literal;
  for (int r = 0; r < 4; ++r) {
    RankSnapshot& rank = literal.rank(
        r, 4, Stack{libc("pthread_join"), nat("pool::join()", engine), nat("main", engine), libc("__libc_start_main")});
    rank.python_version.reset();
    ThreadSnapshot& other = literal.thread(rank, rank.pid + 1000, "load", Stack{nat("pool::load()", engine)});
    other.state = state;
    other.motion = Motion{.samples = 2, .places = 1, .cpu_ms = cpu_ms, .runs = runs, .span_ms = 2000};
  }
  const Analysis analysis = analyze(literal.job);
  REQUIRE(analysis.verdict.status == VerdictStatus::kSymmetric);
  REQUIRE(standing_places(literal.job, analysis).has_value() == (state != 'R' || runs > 100));
  return analyzers::goes_on(literal.job, analysis);
}

}  // namespace

TEST_CASE("ranks that all wait for a thread of their own stand, unless that has no processor, or is seen by chance") {
  CHECK(joins('S', 0, 2) == GoesOn::kNo);
  CHECK(joins('R', 30, 10) == GoesOn::kNotKnown);  // in turns of 3 ms
  CHECK(joins('R', 20, 400) == GoesOn::kNotKnown);
  CHECK(joins('S', 20, 400) == GoesOn::kNotKnown);
}

TEST_CASE(
    "of a rank that counts on beyond the step in which the others wait, a short look does not show whether it comes") {
  for (const double span_ms : {900.0, 7000.0}) {
    LiteralJob literal;
    for (int r = 0; r < 4; ++r) {
      ThreadSnapshot& main =
          literal.rank(r, 4, r == 2 ? Stack{py("load", "/home/u/train.py", 40)} + in_main(30) : waits_in_all_reduce(31))
              .threads[0];
      main.variables.push_back(
          {.frame = main.frames.size() - 2, .numbers = {{"step", r == 2 ? 57 : 3}}, .group = {}, .loops = 1});
      main.motion = Motion{.samples = 3, .places = 1, .span_ms = span_ms};
      if (r == 2)
        *main.motion = {.samples = 3, .places = 2, .moved = true, .counted = true, .runs = 9, .span_ms = span_ms};
    }
    CHECK(analyzers::goes_on(literal.job, analyze(literal.job)) == (span_ms < 1000 ? GoesOn::kNotKnown : GoesOn::kNo));
  }
}

TEST_CASE("where the ranks stand is the same text as long as none gets further") {
  const auto places = [](int line, const Motion& of_one) {
    LiteralJob literal;
    literal.rank(0, 2, waits_in_all_reduce(line));
    ThreadSnapshot& other = literal.rank(1, 2, waits_in_backward(30), 'R').threads[0];
    other.motion = of_one;
    return standing_places(literal.job, analyze(literal.job));
  };
  const Motion polls{.samples = 2, .places = 1, .cpu_ms = 1900, .runs = 1000, .span_ms = 2000};
  const Motion moves{.samples = 2, .places = 2, .moved = true, .travelled = true, .cpu_ms = 1900, .span_ms = 2000};
  REQUIRE(places(20, polls));
  CHECK(places(20, polls) == places(20, polls));
  CHECK(places(20, polls) != places(21, polls));
  CHECK_FALSE(places(20, moves));
}
