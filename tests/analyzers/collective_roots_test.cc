#include <catch2/catch.hpp>

#include <array>

#include "analyzers/analysis.h"
#include "support/collective_calls.h"

using namespace rankstacks;
using namespace rankstacks::analyzers;
using namespace rankstacks::testing;

TEST_CASE("a broadcast from another source is another call") {
  LiteralJob literal;
  SECTION("all wait at one line") {
    for (int r = 0; r < 4; ++r)
      arguments(literal.rank(r, 4, in_call("broadcast", 20)), kWorld, {{"src", r == 1 ? 1 : 0}});
    CHECK(accused(literal) == Accused{{1, "collective-mismatch"}});
  }
  SECTION("two of them, and the others have gone on: neither two is more right") {
    for (int r = 0; r < 4; ++r) {
      if (r < 2) arguments(literal.rank(r, 4, in_call("broadcast", 20)), kWorld, {{"src", r}});
      else arguments(literal.rank(r, 4, in_call("all_reduce", 21)), kWorld);
    }
    const Verdict v = analyze(literal.job).verdict;
    CHECK(v.status == VerdictStatus::kUndecided);
    CHECK(v.summary.find("ranks may be roots in turn") != std::string::npos);
  }
  const ProcessGroup of_three{"1", {0, 1, 2}};
  // Of three ranks, rank 1 has gone on unless `waits`. The roots are those of ranks 0 to 2.
  const auto in_one_round = [&](bool waits, std::array<int, 3> roots) {
    for (int r = 0; r < 3; ++r) {
      const bool gone_on = r == 1 && !waits;
      RankSnapshot& rank = literal.rank(r, 3, in_call(gone_on ? "all_reduce" : "gather_object", gone_on ? 21 : 20));
      if (gone_on) arguments(rank, of_three);
      else arguments(rank, of_three, {{"dst", roots[static_cast<std::size_t>(r)]}});
      FrameVariables loop{.frame = rank.threads[0].frames.size() - 2, .numbers = {{"number", 3}}, .loops = 1};
      rank.threads[0].variables.push_back(loop);
    }
  };
  SECTION("two of them in one round of a loop, and only the one that has gone on knows who is right") {
    in_one_round(false, {0, 0, 2});
    const Verdict v = analyze(literal.job).verdict;
    CHECK(v.status == VerdictStatus::kUndecided);
    CHECK(v.summary.find("with different roots in one step") != std::string::npos);
    REQUIRE(v.candidates.size() == 2);
    CHECK((v.candidates[0].rank == 0 && v.candidates[1].rank == 2));
  }
  SECTION("in no loop, and one of four has gone on: most of those that wait are right") {
    for (int r = 0; r < 4; ++r) {
      if (r == 2) arguments(literal.rank(r, 4, in_call("barrier", 21)), kWorld);
      else arguments(literal.rank(r, 4, in_call("broadcast", 20)), kWorld, {{"src", r == 1 ? 2 : 0}});
    }
    CHECK(accused(literal) == Accused{{1, "collective-mismatch"}});
    // A loop around the call: they may be roots in turn.
    for (RankSnapshot& rank : literal.job.ranks)
      rank.threads[0].variables.push_back({.frame = rank.threads[0].frames.size() - 2, .loops = 1});
    CHECK(accused(literal) != Accused{{1, "collective-mismatch"}});
  }
  SECTION("all in one round of a loop: most of them are right") {
    in_one_round(true, {0, 0, 2});
    CHECK(accused(literal) == Accused{{2, "collective-mismatch"}});
    literal.job.ranks[2].threads[0].variables.edit().back().numbers = {{"number", 4}};
    CHECK(accused(literal) == Accused{{2, "collective-mismatch"}});
  }
  SECTION("the same source") {
    for (int r = 0; r < 4; ++r) arguments(literal.rank(r, 4, in_call("broadcast", 20)), kWorld, {{"src", 0}});
    CHECK(analyze(literal.job).verdict.status == VerdictStatus::kSymmetric);
  }
}
