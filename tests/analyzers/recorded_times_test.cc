// How long ago ranks have called something, by PyTorch's Flight Recorder.
#include "analyzers/recorded_times.h"

#include <catch2/catch.hpp>

#include "analyzers/analysis.h"
#include "support/literal_gpu.h"

using namespace rankstacks;
using namespace rankstacks::analyzers;
using namespace rankstacks::testing;

namespace {

void record(RankSnapshot& rank, std::optional<double> last_call_ms, std::optional<double> longest_gap_ms) {
  FlightRecord& made = rank.flight_record.emplace();
  made.age_ms = 0, made.last_call_ms = last_call_ms, made.longest_gap_ms = longest_gap_ms;
}

Motion ran_for(double cpu_ms, double span_ms, int places) {
  Motion motion;
  motion.samples = 8, motion.places = places, motion.runs = 50, motion.cpu_ms = cpu_ms, motion.span_ms = span_ms;
  return motion;
}

}  // namespace

TEST_CASE("a rank that has called nothing for much longer than ever before is silent") {
  LiteralJob literal;
  RankSnapshot& rank = literal.rank(0, 1, in_main(3));
  CHECK_FALSE(is_silent(rank));
  record(rank, 62'400, 2100);
  CHECK(is_silent(rank));
  CHECK(describe_silence(literal.job) == "rank 0 has called nothing for 62 s; before, never for more than 2.1 s");
  SECTION("not longer than before by far") {
    record(rank, 62'400, 9000);
    CHECK_FALSE(is_silent(rank));
  }
  SECTION("a few seconds") {
    record(rank, 9000, 1);
    CHECK_FALSE(is_silent(rank));
  }
  SECTION("too few calls") {
    record(rank, 62'400, {});
    CHECK_FALSE(is_silent(rank));
  }
  SECTION("a dump of long ago") {
    rank.flight_record->age_ms = 90'000;
    CHECK_FALSE(is_silent(rank));
  }
  SECTION("of several ranks") {
    record(literal.rank(1, 2, in_main(3)), 64'200, 1500);
    literal.rank(2, 3, in_main(3));
    CHECK(describe_silence(literal.job) ==
          "ranks 0-1 have called nothing for 62 to 64 s; before, never for more than 2.1 s");
  }
}

TEST_CASE("half of the ranks are at work, and the others have never waited for that long") {
  LiteralJob literal;
  nccl_rank(literal, 0, 2, waits_for_gpu()).threads[0].motion = ran_for(900, 900, 1);
  nccl_rank(literal, 1, 2, Stack{py("draw", "/home/u/sampler.py", 60)} + in_main(20)).threads[0].motion =
      ran_for(900, 900, 4);
  CHECK(analyze(literal.job).verdict.status == VerdictStatus::kUndecided);
  record(literal.job.ranks[0], 31'000, 120);
  const Verdict verdict = analyze(literal.job).verdict;
  REQUIRE(verdict.suspects.size() == 1);
  CHECK((verdict.suspects[0].rank == 1 && verdict.suspects[0].reason == Reason::kUserCode));
  SECTION("rank 0 has duties, which take longer") {
    std::swap(literal.job.ranks[0].rank, literal.job.ranks[1].rank);
    literal.job.ranks[1].threads[0].motion->travelled = true;
    CHECK(analyze(literal.job).verdict.suspects.empty());
  }
}

TEST_CASE("all ranks sleep at one place again and again, and have never called nothing for that long") {
  LiteralJob literal;
  const Stack sleeps = Stack{libc("clock_nanosleep"), py("pause", "/home/u/train.py", 12)} + in_main(20);
  for (int r = 0; r < 3; ++r) {
    ThreadSnapshot& main = literal.rank(r, 3, sleeps).threads[0];
    main.motion = ran_for(1, 4300, 1);
    main.syscall = call("clock_nanosleep");
  }
  CHECK(analyze(literal.job).verdict.status == VerdictStatus::kHealthy);
  for (RankSnapshot& rank : literal.job.ranks) record(rank, 62'000, 300);
  const Verdict verdict = analyze(literal.job).verdict;
  CHECK(verdict.status == VerdictStatus::kSymmetric);
  CHECK(verdict.summary.find("ranks 0-2 have called nothing for 62 s") != std::string::npos);
  SECTION("one of them has called something just now") {
    record(literal.job.ranks[1], 20, 300);
    CHECK(analyze(literal.job).verdict.status == VerdictStatus::kHealthy);
  }
}
