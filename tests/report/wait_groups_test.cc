#include "report/wait_groups.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <set>

#include "support/literal_job.h"

using namespace rankstacks;
using namespace rankstacks::report;
using namespace rankstacks::testing;

namespace {

LiteralJob hung_job(int ranks) {
  LiteralJob made;
  for (int r = 0; r < ranks; ++r) made.rank(r, ranks, r == 2 ? in_getitem() : waits_in_backward());
  return made;
}

}  // namespace

TEST_CASE("ranks that wait alike are one node, and the suspect is another") {
  const LiteralJob made = hung_job(64);
  const analyzers::Analysis analysis = analyzers::analyze(made.job);
  REQUIRE(analysis.verdict.suspects.size() == 1);
  const WaitGroups waits = group_waits(made.job, analysis, 80);
  REQUIRE(waits.groups.size() >= 3);
  CHECK(waits.groups.size() <= 6);
  CHECK(waits.left_out == 0);
  std::size_t suspects = 0, waiting = 0;
  for (const WaitGroup& group : waits.groups) {
    CAPTURE(group.label);
    if (group.suspect) {
      ++suspects;
      CHECK(group.ranks == std::vector<std::size_t>{2});
      CHECK(group.in_chain);
      CHECK(group.label.starts_with("rank 2 in "));
    }
    if (group.ranks.size() == 63) {
      ++waiting;
      CHECK(group.label.starts_with("ranks 0-1,3-63 in "));
      CHECK(group.threads.size() == 63);
    }
  }
  CHECK(suspects == 1);
  CHECK(waiting == 1);
}

TEST_CASE("every edge between nodes is one between their groups, once") {
  const LiteralJob made = hung_job(16);
  const analyzers::Analysis analysis = analyzers::analyze(made.job);
  const WaitGroups waits = group_waits(made.job, analysis, 80);
  REQUIRE_FALSE(waits.edges.empty());
  CHECK(waits.edges.size() < analysis.waits.edges().size());
  std::set<std::tuple<std::size_t, std::size_t, analyzers::WaitEvidence>> seen;
  for (const WaitGroupEdge& edge : waits.edges) {
    REQUIRE(edge.from < waits.groups.size());
    REQUIRE(edge.to < waits.groups.size());
    CHECK(seen.insert({edge.from, edge.to, edge.evidence}).second);
  }
  REQUIRE(waits.chain_groups.size() == analysis.verdict.chains.size());
  REQUIRE_FALSE(waits.chain_groups.empty());
  const std::vector<std::size_t>& chain = waits.chain_groups.front();
  REQUIRE(chain.size() >= 2);
  for (std::size_t l = 0; l + 1 < chain.size(); ++l)
    CHECK(std::any_of(waits.edges.begin(), waits.edges.end(), [&](const WaitGroupEdge& edge) {
      return edge.from == chain[l] && edge.to == chain[l + 1] && edge.in_chain;
    }));
}

TEST_CASE("ranks whose messages go to different ranks are different nodes; what is left out is counted") {
  LiteralJob made;
  constexpr int kRanks = 40;
  for (int r = 0; r < kRanks; ++r) {
    RankSnapshot& rank = made.rank(
        r, kRanks,
        Stack{libc("pthread_cond_wait"), nat("c10d::ProcessGroupGloo::RecvWork::wait(std::chrono::duration<long>)"),
              py("recv", kPackages + "torch/distributed/distributed_c10d.py", 1600)} +
            in_main(20));
    FrameVariables variables;
    variables.frame = 2;
    variables.numbers = {{"src", (r + 1) % kRanks}};
    rank.threads[0].variables.push_back(variables);
  }
  const analyzers::Analysis analysis = analyzers::analyze(made.job);
  const WaitGroups all = group_waits(made.job, analysis, SIZE_MAX);
  REQUIRE(all.groups.size() >= kRanks);
  const WaitGroups few = group_waits(made.job, analysis, 10);
  CHECK(few.groups.size() == 10);
  CHECK(few.left_out == all.groups.size() - 10);
  for (const WaitGroupEdge& edge : few.edges) {
    CHECK(edge.from < 10);
    CHECK(edge.to < 10);
  }
}

TEST_CASE("a job without waits has no groups") {
  LiteralJob made;
  made.rank(0, 1, in_main(3), 'R');
  const analyzers::Analysis analysis = analyzers::analyze(made.job);
  CHECK(group_waits(made.job, analysis, 80).groups.empty());
}
