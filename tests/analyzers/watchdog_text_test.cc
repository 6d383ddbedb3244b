// The texts are those of torch 2.11's watchdog, in the cores of real ranks.
#include "analyzers/watchdog_text.h"

#include <catch2/catch.hpp>

#include <map>

#include "analyzers/analysis.h"
#include "support/literal_gpu.h"

using namespace rankstacks;
using namespace rankstacks::analyzers;
using namespace rankstacks::testing;

namespace {

std::string text_of(int rank, int sequence, const std::string& operation, int in, int out,
                    const std::string& group = "0(default_pg)") {
  const std::string number = std::to_string(rank);
  return "[PG ID 0 PG GUID " + group + " Rank " + number +
         "] Process group watchdog thread terminated with exception: [Rank " + number +
         "] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=" + std::to_string(sequence) +
         ", OpType=" + operation + ", NumelIn=" + std::to_string(in) + ", NumelOut=" + std::to_string(out) +
         ", Timeout(ms)=12000) ran for 12023 milliseconds before timing out.\nException raised from checkTimeout";
}

const std::string kTruncated =
    "[PG ID 0 PG GUID 0(default_pg) Rank 0] Process group watchdog thread terminated with exception: NCCL error: "
    "invalid usage (run with NCCL_DEBUG=WARN for details), NCCL version 2.28.9\nncclInvalidUsage: This usually "
    "reflects "
    "invalid usage of NCCL library.\nLast error:\nNET/Socket : peer 127.0.0.1<50410> message truncated : receiving "
    "1048576 bytes instead of 65536.";

// Cores of ranks at one place, each ended by its watchdog with that text; "": by a person.
LiteralJob ended_with(const std::vector<std::string>& texts) {
  LiteralJob literal;
  for (std::size_t r = 0; r < texts.size(); ++r) {
    RankSnapshot& rank = nccl_rank(literal, static_cast<int>(r), static_cast<int>(texts.size()), waits_for_gpu());
    rank.source = Source::kCore;
    for (ThreadSnapshot& thread : rank.threads) thread.state.reset();
    if (!texts[r].empty()) rank.threads[1].exception = CxxException{.type = "c10::DistBackendError", .what = texts[r]};
  }
  return literal;
}

std::map<std::size_t, std::string> accused(const LiteralJob& literal) {
  std::map<std::size_t, std::string> reasons;
  for (const Suspect& s : analyze(literal.job).verdict.suspects) reasons[s.rank] = to_string(s.reason);
  return reasons;
}

using Accused = std::map<std::size_t, std::string>;

}  // namespace

TEST_CASE("the operation in a watchdog's text") {
  CHECK(timed_out_work(text_of(1, 5, "_ALLGATHER_BASE", 1024, 2048)) ==
        TimedOutWork{"0(default_pg)", 5, "_ALLGATHER_BASE", 1024, 2048});
  // A text that names no group.
  CHECK(timed_out_work("[Rank 7] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=12, OpType=ALLREDUCE, "
                       "NumelIn=4, NumelOut=4, Timeout(ms)=1800000) ran for 1800091 milliseconds before timing out.") ==
        TimedOutWork{"", 12, "ALLREDUCE", 4, 4});
  CHECK_FALSE(timed_out_work("CUDA error: an illegal memory access was encountered"));
  CHECK_FALSE(timed_out_work("WorkNCCL(SeqNum=x, OpType=ALLREDUCE, NumelIn=4)"));
  CHECK_FALSE(timed_out_work("WorkNCCL(SeqNum=5, OpType=ALLREDUCE"));
  CHECK_FALSE(timed_out_work(""));
  CHECK(says_other_size(kTruncated));
  CHECK_FALSE(says_other_size("socketProgress: Connection closed by remote peer localhost<53842>"));
}

TEST_CASE("watchdogs that name different operations under one number") {
  const auto reduce = [](int rank, int elements = 1024) { return text_of(rank, 5, "ALLREDUCE", elements, elements); };
  CHECK(accused(ended_with({reduce(0), text_of(1, 5, "_ALLGATHER_BASE", 1024, 4096), reduce(2), reduce(3)})) ==
        Accused{{1, "collective-mismatch"}});
  CHECK(accused(ended_with({reduce(0), text_of(1, 5, "_ALLGATHER_BASE", 1024, 2048)})) ==
        Accused{{0, "collective-mismatch"}, {1, "collective-mismatch"}});
  SECTION("one operation, of another size") {
    CHECK(accused(ended_with({reduce(0), reduce(1, 64), reduce(2), reduce(3)})) == Accused{{1, "collective-mismatch"}});
  }
  SECTION("one whose size depends on the rank") {
    CHECK(accused(ended_with({text_of(0, 5, "ALLTOALL_BASE", 100, 90), text_of(1, 5, "ALLTOALL_BASE", 90, 100)}))
              .empty());
  }
  SECTION("the same") { CHECK(accused(ended_with({reduce(0), reduce(1), reduce(2)})).empty()); }
  SECTION("of different groups, or other numbers") {
    CHECK(accused(ended_with({reduce(0), text_of(1, 5, "BROADCAST", 8, 8, "3(tp)"), reduce(2), reduce(3)})).empty());
    CHECK(accused(ended_with({reduce(0), text_of(1, 6, "BROADCAST", 8, 8), reduce(2), reduce(3)})).empty());
  }
}

TEST_CASE("a message that was longer than expected") {
  CHECK(accused(ended_with({kTruncated, ""})) == Accused{{0, "collective-mismatch"}, {1, "collective-mismatch"}});
  // Which of several ranks has the other size is not in the text.
  CHECK(accused(ended_with({kTruncated, "", "", ""})).empty());
}
