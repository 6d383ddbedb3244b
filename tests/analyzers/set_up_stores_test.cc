#include <catch2/catch.hpp>

#include "analyzers/analysis.h"
#include "support/collective_calls.h"
#include "support/literal_gpu.h"

using namespace rankstacks;
using namespace rankstacks::analyzers;
using namespace rankstacks::testing;

TEST_CASE("one store is not that of the others: NCCL's id is not found in it") {
  LiteralJob literal;
  const auto add = [&](int r, int size, bool in_store, std::string group = "0", std::string function = "all_reduce") {
    const Stack innermost = in_store ? Stack{libc("nanosleep"), nat("c10d::FileStore::get(std::string const&)"),
                                             nat("c10d::ProcessGroupNCCL::broadcastUniqueNCCLID(ncclUniqueId*)")}
                                     : Stack{libc("accept"), nat("ncclCommInitRankFunc(ncclAsyncJob*)")};
    RankSnapshot& rank = literal.rank(
        r, size,
        innermost + Stack{nat("c10d::ProcessGroupNCCL::initNCCLComm(std::string const&)"), py(function, kC10d, 2000)} +
            in_main(20));
    rank.threads[0].variables.push_back({.frame = innermost.size() + 1, .group = ProcessGroup{group, {}}});
  };
  SECTION("the one that still waits in the store") {
    for (int r = 0; r < 2; ++r) add(r, 2, r == 1);
    CHECK(accused(literal) == Accused{{1, "store-wait"}});
    const std::string summary = analyze(literal.job).verdict.summary;
    INFO(summary);
    CHECK(summary.find("has found in the store") != std::string::npos);
  }
  SECTION("a message, whose communicator has an id of its own") {
    for (int r = 0; r < 2; ++r) add(r, 2, r == 1, "0", "isend");
    CHECK(accused(literal) != Accused{{1, "store-wait"}});
  }
  SECTION("all of them connect, or all are in the store") {
    const bool in_store = GENERATE(true, false);
    for (int r = 0; r < 2; ++r) add(r, 2, in_store);
    CHECK(analyze(literal.job).verdict.status == VerdictStatus::kSymmetric);
  }
  SECTION("most of them are in the store: which store is the right one is not known") {
    for (int r = 0; r < 4; ++r) add(r, 4, r > 0);
    CHECK(accused(literal).empty());
  }
  SECTION("another group, whose id nobody has published yet") {
    for (int r = 0; r < 2; ++r) add(r, 2, r == 1, r == 1 ? "1" : "2");
    CHECK(accused(literal) != Accused{{1, "store-wait"}});
  }
}

TEST_CASE("a rank that is at the beginning of its program, while the others wait for their GPUs") {
  const Stack in_store = Stack{libc("poll"), nat("c10d::TCPStore::wait(std::vector<std::string> const&)"),
                               py("rejoin", "/home/u/train.py", 5)} +
                         in_main(3);
  const auto job = [&](bool has_set_up_nccl, int waiting) {
    LiteralJob literal;
    for (int r = 0; r < 3; ++r) {
      if (r < waiting) nccl_rank(literal, r, 3, waits_for_gpu());
      else if (has_set_up_nccl) nccl_rank(literal, r, 3, in_store);
      else literal.rank(r, 3, in_store);
    }
    return accused(literal);
  };
  CHECK(job(false, 2) == Accused{{2, "store-wait"}});
  CHECK(job(true, 2).empty());
  CHECK(job(false, 1).empty());
}
