// NCCL's threads for the network, in jobs whose ranks all wait for their GPUs.
#include "analyzers/network_threads.h"

#include <catch2/catch.hpp>

#include <map>

#include "analyzers/analysis.h"
#include "support/literal_gpu.h"

using namespace rankstacks;
using namespace rankstacks::analyzers;
using namespace rankstacks::testing;

namespace {

const std::string kNccl = "/x/libnccl.so.2";
const Stack kNothingToMove = {libc("pthread_cond_wait"), nat("ncclProxyGetPostedOps(ncclProxyState*, int*)", kNccl),
                              nat("ncclProxyProgress(void*)", kNccl)};
const Stack kBetween = {libc("sched_yield"), nat("ncclProxyProgress(void*)", kNccl)};
const Stack kReceives = {libc("recv"), nat("ncclNetSocketTest(void*, int*, int*)", kNccl),
                         nat("recvProxyProgress(ncclProxyState*, ncclProxyArgs*)", kNccl), nat("progressOps", kNccl),
                         nat("ncclProxyProgress(void*)", kNccl)};

// Rank r waits at line `lines[r]`; its threads for the network are in `networks[r]`.
LiteralJob job(const std::vector<int>& lines, const std::vector<std::vector<Stack>>& networks) {
  LiteralJob literal;
  const int world = static_cast<int>(lines.size());
  for (int r = 0; r < world; ++r) {
    RankSnapshot& rank = nccl_rank(literal, r, world, waits_for_gpu(lines[static_cast<std::size_t>(r)]));
    Tid tid = rank.pid + 5000;
    for (const Stack& stack : networks[static_cast<std::size_t>(r)])
      literal.thread(rank, tid++, "NCCL Progress", stack);
  }
  return literal;
}

using Accused = std::map<std::size_t, std::string>;
Accused accused(const LiteralJob& literal) {
  Accused reasons;
  for (const Suspect& s : analyze(literal.job).verdict.suspects) reasons[s.rank] = to_string(s.reason);
  return reasons;
}

}  // namespace

TEST_CASE("one rank has nothing to move, and the others have") {
  const LiteralJob literal = job({17, 17, 17}, {{kReceives}, {kNothingToMove}, {kNothingToMove, kBetween}});
  CHECK(accused(literal) == Accused{{1, "behind"}});
  const Verdict verdict = analyze(literal.job).verdict;
  CHECK(
      verdict.summary.find("NCCL's threads for the network (sockets) have data to move at ranks 0,2, and none at rank "
                           "1") != std::string::npos);
  CHECK(verdict.reference == kFromNetwork);
  CHECK(verdict.suspects[0].confidence < 0.5);
  SECTION("at another place it waits for its GPU") {
    CHECK(accused(job({17, 9, 17}, {{kReceives}, {kNothingToMove}, {kBetween}})) == Accused{{1, "gpu-wait"}});
  }
}

TEST_CASE("one rank has something to move, and the others have nothing") {
  CHECK(accused(job({17, 17, 17}, {{kNothingToMove}, {kBetween}, {kNothingToMove}})) ==
        Accused{{1, "collective-mismatch"}});
}

TEST_CASE("two ranks, one of which has something to move and the other is in a collective") {
  LiteralJob literal;
  const Stack in_collective = Stack{libc("sched_yield"), nat("ncclAllReduce", kNccl),
                                    py("all_reduce", kPackages + "torch/distributed/distributed_c10d.py", 2000)} +
                              in_main(9);
  for (int r = 0; r < 2; ++r) {
    RankSnapshot& rank = nccl_rank(literal, r, 2, r == 0 ? waits_for_gpu() : in_collective);
    literal.thread(rank, rank.pid + 5000, "NCCL Progress", r == 0 ? kReceives : kNothingToMove);
  }
  CHECK(accused(literal) == Accused{{0, "collective-mismatch"}, {1, "collective-mismatch"}});
}

TEST_CASE("NCCL's threads for the network show no difference") {
  CHECK(accused(job({17, 17}, {{kReceives}, {kBetween}})).empty());
  CHECK(accused(job({17, 17}, {{kNothingToMove}, {kNothingToMove}})).empty());
  SECTION("a rank without one needs no network") { CHECK(accused(job({17, 17}, {{kReceives}, {}})).empty()); }
  SECTION("two against two") {
    CHECK(accused(job({17, 17, 17, 17}, {{kBetween}, {kBetween}, {kNothingToMove}, {kNothingToMove}})).empty());
  }
}
