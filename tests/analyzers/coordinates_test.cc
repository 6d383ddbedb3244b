// Pipeline stages as the sets of ranks that should be alike.
#include <catch2/catch.hpp>

#include <map>

#include "analyzers/analysis.h"
#include "analyzers/coordinates.h"
#include "analyzers/whole_hosts.h"
#include "support/literal_job.h"

using namespace rankstacks;
using namespace rankstacks::analyzers;
using namespace rankstacks::testing;

namespace {

// Ranks of a grid of two pipeline stages, dp 2, tp 2: 0-3 are stage 0, 4-7 stage 1.
void locate(RankSnapshot& rank) {
  const int n = *rank.rank;
  rank.coordinates = Coordinates{"Megatron, from the command line", {{"pp", n / 4}, {"dp", n / 2 % 2}, {"tp", n % 2}}};
}

LiteralJob grid(const std::map<int, Stack>& stacks, bool located = true, char state = 'S') {
  LiteralJob literal;
  for (const auto& [n, stack] : stacks) {
    RankSnapshot& rank = literal.rank(n, 8, stack, state);
    if (located) locate(rank);
  }
  return literal;
}

// A collective whose group is not known.
Stack in_collective(const std::string& function, int line) {
  return Stack{libc("pthread_cond_wait"), nat("gloo::transport::tcp::UnboundBuffer::waitRecv(int*)"),
               py(function, kPackages + "torch/distributed/distributed_c10d.py", 2000)} +
         in_main(line);
}

std::map<int, std::string> accused(const LiteralJob& literal) {
  std::map<int, std::string> reasons;
  for (const Suspect& s : analyze(literal.job).verdict.suspects)
    reasons[*literal.job.ranks.at(s.rank).rank] = to_string(s.reason);
  return reasons;
}
using Accused = std::map<int, std::string>;

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("a rank that differs within its stage") {
  // Stage 0 is in its first half of the step, stage 1 in its second, but for rank 5.
  std::map<int, Stack> stacks;
  for (int r = 0; r < 8; ++r) stacks[r] = in_collective("all_reduce", r < 4 ? 10 : 20);
  stacks[5] = in_collective("all_gather", 25);
  const LiteralJob literal = grid(stacks);
  CHECK(accused(literal) == Accused{{5, "collective-mismatch"}});
  const Verdict v = analyze(literal.job).verdict;
  CHECK(v.reference == "pipeline stages: Megatron, from the command line");
  CHECK(v.summary ==
        "rank 5 (pp 1, dp 0, tp 1) waits in all_gather (main at train.py:25) while ranks 4,6-7 wait in all_reduce "
        "(main at train.py:20), as the others of pipeline stage 1 do");
  SECTION("without coordinates it cannot be determined: no side has the majority") {
    CHECK(accused(grid(stacks, false)).empty());
    CHECK(analyze(grid(stacks, false).job).verdict.status == VerdictStatus::kUndecided);
  }
  SECTION("in the tree it is odd, and named by its place; the stages are not") {
    std::map<std::size_t, bool> odd;  // by size of the cluster
    for (const Cluster& c : analyze(literal.job).clusters) odd[c.ranks.size()] = c.odd;
    CHECK(odd == std::map<std::size_t, bool>{{1, true}, {3, false}, {4, false}});
  }
}

TEST_CASE("a class that is odd in one stage says nothing of the other classes of the next") {
  // Rank 0 is where most of stage 1 are, and rank 7 is where nobody else is.
  std::map<int, Stack> stacks;
  for (int r = 0; r < 8; ++r) stacks[r] = in_main(r == 0 || (r >= 4 && r < 7) ? 10 : r == 7 ? 30 : 20);
  std::map<std::vector<std::size_t>, bool> odd;
  for (const Cluster& c : analyze(grid(stacks).job).clusters) odd[c.ranks] = c.odd;
  CHECK(odd == std::map<std::vector<std::size_t>, bool>{{{0, 4, 5, 6}, true}, {{1, 2, 3}, false}, {{7}, true}});
}

TEST_CASE("stages that differ by design") {
  std::map<int, Stack> stacks;
  SECTION("alike within each: nobody is accused, and it is said why") {
    for (int r = 0; r < 8; ++r) stacks[r] = in_collective(r < 4 ? "all_reduce" : "all_gather", r < 4 ? 10 : 20);
    const Verdict v = analyze(grid(stacks).job).verdict;
    CHECK(v.status == VerdictStatus::kUndecided);
    CHECK(v.suspects.empty());
    CHECK(has(v.summary, "stages differ by design"));
    CHECK(has(v.summary, "Megatron, from the command line"));
    CHECK(accused(grid(stacks, false)).size() == 8);  // two equal sides: both
  }
  SECTION("but one group of all ranks has all of them: then they are compared") {
    for (int r = 0; r < 8; ++r)
      stacks[r] = in_collective(r == 5 ? "barrier" : "all_reduce", r < 4 ? 10 : r == 5 ? 12 : 10);
    LiteralJob literal = grid(stacks);
    for (RankSnapshot& rank : literal.job.ranks)
      rank.threads[0].variables.push_back(
          {.frame = 2, .numbers = {}, .group = ProcessGroup{"0", {0, 1, 2, 3, 4, 5, 6, 7}}});
    CHECK(accused(literal) == Accused{{5, "collective-mismatch"}});
    CHECK(analyze(literal.job).verdict.reference == kFromGroups);
  }
  SECTION("at another step of the same line") {
    for (int r = 0; r < 8; ++r) stacks[r] = in_collective("all_reduce", 10);
    LiteralJob literal = grid(stacks), unlocated = grid(stacks, false);
    // Stages of 4 and 2, one step apart: 2 of 6 would be behind.
    for (LiteralJob* job : {&literal, &unlocated}) {
      job->job.ranks.resize(6);
      for (RankSnapshot& rank : job->job.ranks) {
        rank.world_size = 6;
        rank.threads[0].variables.push_back({.frame = 3, .numbers = {{"step", *rank.rank < 4 ? 41 : 40}}, .group = {}});
      }
    }
    CHECK(accused(unlocated) == Accused{{4, "behind"}, {5, "behind"}});
    CHECK(accused(literal).empty());
  }
}

TEST_CASE("a whole stage") {
  std::map<int, Stack> stacks;
  for (int r = 0; r < 8; ++r) stacks[r] = r < 4 ? in_collective("recv", 10) : in_getitem();
  SECTION("that is held up is named as one") {
    const Verdict v = analyze(grid(stacks).job).verdict;
    REQUIRE(v.suspects.size() == 4);
    CHECK(v.suspects.front().summary.starts_with("rank 4 (pp 1, dp 0, tp 0) "));
    CHECK(has(v.summary, "ranks 5-7 likewise (all ranks of pipeline stage 1)"));
  }
  SECTION("that computes has its turn") {
    // Three stages of two, so that those at work are fewer than half.
    LiteralJob literal;
    for (int r = 0; r < 6; ++r) {
      RankSnapshot& rank = literal.rank(
          r, 6, r < 4 ? in_collective("recv", 10) : Stack{nat("mylib::step()", "/home/u/mylib.so")} + in_main(30),
          r < 4 ? 'S' : 'R');
      rank.coordinates = Coordinates{"DeepSpeed, from the command line", {{"pp", r / 2}, {"dp", r % 2}, {"tp", 0}}};
    }
    const Verdict v = analyze(literal.job).verdict;
    CHECK(v.status == VerdictStatus::kUndecided);
    CHECK(has(v.summary, "all ranks of pipeline stage 2 are running their own code"));
    SECTION("one rank of it does not") {
      literal.job.ranks[4].threads[0] = literal.job.ranks[0].threads[0];
      literal.job.ranks[4].threads[0].tid = literal.job.ranks[4].pid;
      CHECK(accused(literal) == Accused{{5, "user-code"}});
    }
  }
}

TEST_CASE("names of places") {
  std::map<int, Stack> stacks;
  for (int r = 0; r < 8; ++r) stacks[r] = in_getitem();
  LiteralJob literal = grid(stacks);
  CHECK(describe_coordinates(literal.job, 6) == "pp 1, dp 1, tp 0");
  CHECK(name_with_coordinates(literal.job, 6) == "rank 6 (pp 1, dp 1, tp 0)");
  CHECK(whole_stages(literal.job, {4, 5, 6, 7}) == "all ranks of pipeline stage 1");
  CHECK(whole_stages(literal.job, {0, 1, 2, 3, 4, 5, 6, 7}).empty());
  CHECK(whole_stages(literal.job, {4, 5, 6}).empty());
  CHECK(whole_stages(literal.job, {}).empty());
  CHECK(pipeline_stages(literal.job) == std::vector<int>{0, 0, 0, 0, 1, 1, 1, 1});
  SECTION("several stages, not all") {
    for (RankSnapshot& rank : literal.job.ranks)
      rank.coordinates->axes = {{"pp", *rank.rank / 2}, {"dp", *rank.rank % 2}};
    CHECK(whole_stages(literal.job, {2, 3, 4, 5}) == "all ranks of pipeline stages 1-2");
  }
  SECTION("one axis says no more than the rank's number") {
    for (RankSnapshot& rank : literal.job.ranks) rank.coordinates->axes = {{"pp", 0}, {"dp", *rank.rank}, {"tp", 0}};
    CHECK(describe_coordinates(literal.job, 6).empty());
    CHECK(name_with_coordinates(literal.job, 6) == "rank 6");
    CHECK(pipeline_stages(literal.job).empty());
  }
  SECTION("a rank without coordinates, or stages of one rank, leave nothing to compare with") {
    LiteralJob lone = literal;
    for (RankSnapshot& rank : lone.job.ranks) rank.coordinates->axes = {{"pp", *rank.rank}};
    CHECK(pipeline_stages(lone.job).empty());
    literal.job.ranks[3].coordinates.reset();
    CHECK(pipeline_stages(literal.job).empty());
    CHECK(describe_coordinates(literal.job, 3).empty());
  }
  SECTION("not all of the job was looked at") {
    literal.job.ranks.erase(literal.job.ranks.begin());
    CHECK(whole_stages(literal.job, {3, 4, 5, 6}).empty());
  }
  SECTION("a rank that could not be read has no stage, a child none") {
    literal.job.ranks[0].status = Status::kFailed;
    literal.job.ranks[0].coordinates.reset();
    literal.child(101, in_getitem());
    CHECK(pipeline_stages(literal.job) == std::vector<int>{kNoStage, 0, 0, 0, 1, 1, 1, 1, kNoStage});
  }
}

TEST_CASE("messages whose peers nobody knows") {
  const auto waits_for_work = [](int line) {
    return Stack{libc("pthread_cond_wait"),
                 nat("c10d::ProcessGroupGloo::RecvWork::wait(std::chrono::duration<long>)")} +
           in_main(line);
  };
  std::map<int, Stack> stacks;
  SECTION("a stage that receives from the next one does what pipelines do: within that one, a rank differs") {
    for (int r = 0; r < 8; ++r)
      stacks[r] = r < 4 ? waits_for_work(10) : in_collective(r == 5 ? "all_gather" : "all_reduce", r == 5 ? 25 : 20);
    CHECK(accused(grid(stacks)) == Accused{{5, "collective-mismatch"}});
    CHECK(accused(grid(stacks, false)).empty());
  }
  SECTION("a rank that receives, and the others of its stage do not") {
    for (int r = 0; r < 8; ++r)
      stacks[r] = r == 6 ? waits_for_work(12) : in_collective(r < 4 ? "all_gather" : "all_reduce", r < 4 ? 10 : 20);
    CHECK(accused(grid(stacks)) == Accused{{6, "unmatched-p2p"}});
  }
}

TEST_CASE("the ranks of whole hosts have these in common, and a rack shows by the names of its nodes") {
  LiteralJob literal;
  for (int r = 0; r < 12; ++r)
    literal.rank(r, 12, in_getitem()).host = "rack" + std::to_string(1 + r / 6) + "-n0" + std::to_string(1 + r % 6 / 2);
  const WholeHosts hosts(literal.job);
  CHECK(hosts.describe({2, 3}) == "all ranks of rack1-n02");
  CHECK(hosts.describe({6, 7, 8, 9, 10, 11}) == "all ranks of rack2-n[01-03]");
  CHECK(hosts.describe({2, 3, 4}).empty());
  CHECK(hosts.describe({2}).empty());
  CHECK(hosts.describe({0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}).empty());
  CHECK(hosts.describe({2, 2}).empty());
  SECTION("a child is no rank of its host") {
    literal.job.ranks[3].kind = RankKind::kChild;
    literal.job.ranks[3].rank.reset();
    for (RankSnapshot& rank : literal.job.ranks) rank.world_size = 11;
    for (std::size_t r = 4; r < 12; ++r) --*literal.job.ranks[r].rank;
    CHECK(WholeHosts(literal.job).describe({2, 3}).empty());
    CHECK(WholeHosts(literal.job).describe({4, 5}) == "all ranks of rack1-n03");
  }
  SECTION("ranks that were not captured may be there as well") {
    literal.job.ranks.pop_back();
    CHECK(WholeHosts(literal.job).describe({2, 3}).empty());
  }
  SECTION("one rank on each host: its number says as much") {
    for (RankSnapshot& rank : literal.job.ranks) rank.host = "n" + std::to_string(rank.pid);
    CHECK(WholeHosts(literal.job).describe({4, 5}).empty());
  }
}
