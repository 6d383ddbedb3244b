// The texts are those of torch 2.11's watchdog, in the cores of real ranks.
#include "analyzers/watchdog_text.h"

#include <catch2/catch.hpp>

#include <map>

#include "analyzers/analysis.h"
#include "analyzers/timed_out_work.h"
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

// The operation that the chain of the first suspect goes through, and the evidence for it.
std::string operation_of_chain(const LiteralJob& literal) {
  const Analysis analysis = analyze(literal.job);
  if (analysis.verdict.chains.empty()) return "no chain";
  const WaitChain& chain = analysis.verdict.chains.front();
  for (std::size_t i = 1; i < chain.links.size(); ++i) {
    const WaitNode& node = analysis.waits.nodes()[chain.links[i].node];
    if (node.kind == NodeKind::kOperation)
      return node.text + ", by " + std::string(to_string(*chain.links[i - 1].evidence));
  }
  return "no operation";
}

// Of such cores: the rank at another place than the others.
void put_elsewhere(LiteralJob& literal, std::size_t rank, const Stack& stack) {
  LiteralJob other;
  const RankSnapshot& made = other.rank(static_cast<int>(rank), 2, stack);
  std::vector<FrameId>& frames = literal.job.ranks[rank].threads[0].frames.edit();
  frames.clear();
  for (const FrameId id : made.threads[0].frames) frames.push_back(literal.job.frames.intern(other.job.frames[id]));
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
        TimedOutWork{"0(default_pg)", 5, "_ALLGATHER_BASE", 1024, 2048, 12000, 12023});
  // A text that names no group.
  CHECK(timed_out_work("[Rank 7] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=12, OpType=ALLREDUCE, "
                       "NumelIn=4, NumelOut=4, Timeout(ms)=1800000) ran for 1800091 milliseconds before timing out.") ==
        TimedOutWork{"", 12, "ALLREDUCE", 4, 4, 1800000, 1800091});
  // One that is cut, or of a version with other words.
  CHECK(timed_out_work("WorkNCCL(SeqNum=12, OpType=ALLREDUCE, NumelIn=4, NumelOut=4, Timeout(ms)=x) ran for -1 "
                       "milliseconds") == TimedOutWork{"", 12, "ALLREDUCE", 4, 4, {}, {}});
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

TEST_CASE("a collective that has timed out, in words") {
  CHECK(describe_work({"0(default_pg)", 38, "_ALLGATHER_BASE"}) == "all-gather 38 of group default_pg");
  CHECK(describe_work({"3(tp)", 5, "ALLREDUCE"}) == "all-reduce 5 of group 3 (tp)");
  CHECK(describe_work({"3(undefined)", 5, "BARRIER"}) == "barrier 5 of group 3");
  CHECK(describe_work({"3", 5, "COALESCED"}) == "coalesced operation 5 of group 3");
  CHECK(describe_work({"", 5, "NEWER_THAN_THIS"}) == "NEWER_THAN_THIS 5");
  const auto after = [](std::optional<std::int64_t> timeout, std::optional<std::int64_t> ran) {
    return describe_timeout({"", 5, "ALLREDUCE", 4, 4, timeout, ran});
  };
  CHECK(after(12000, 12073) == "after 12 s");
  CHECK(after(600000, 600091) == "after 10 min");
  CHECK(after({}, 90400) == "after 90 s");
  CHECK(after(500, {}) == "after 500 ms");
  CHECK(after({}, {}) == "");
}

TEST_CASE("a rank that waits for its GPU waits in what its watchdog names") {
  LiteralJob literal = ended_with({text_of(0, 38, "_ALLGATHER_BASE", 32896, 65792), ""});
  put_elsewhere(literal, 1, in_getitem());
  const Analysis analysis = analyze(literal.job);
  CHECK(accused(literal) == Accused{{1, "data-loading"}});
  CHECK(operation_of_chain(literal) == "in all-gather 38 of group default_pg, by memory");
  CHECK(analysis.verdict.summary.find(
            "while rank 0 waits in all-gather 38 of group default_pg (its watchdog, after 12 s)") != std::string::npos);
  REQUIRE(analysis.activities[0]);
  CHECK(analysis.activities[0]->kind == "in-collective");
  CHECK(analysis.activities[0]->operation == "all-gather");
  CHECK(analysis.activities[0]->group == "0");
  // What is known of the wait makes the verdict as certain as if its frames named it.
  literal.job.ranks[0].threads[1].exception.reset();
  const Analysis without = analyze(literal.job);
  CHECK(operation_of_chain(literal) == "for the GPU, by frame");
  CHECK(without.verdict.suspects.front().confidence < analysis.verdict.suspects.front().confidence);
}

TEST_CASE("a rank at the place of one whose watchdog names the operation is in it") {
  LiteralJob literal = ended_with({"", "", text_of(2, 38, "ALLREDUCE", 8, 8), ""});
  put_elsewhere(literal, 1, in_getitem());
  CHECK(accused(literal) == Accused{{1, "data-loading"}});
  CHECK(operation_of_chain(literal).starts_with("in all-reduce 38 of group default_pg"));
  // Their texts name different ones: each rank waits in its own.
  literal.job.ranks[3].threads[1].exception =
      CxxException{.type = "c10::DistBackendError", .what = text_of(3, 4, "ALLREDUCE", 8, 8, "7(tp)")};
  CHECK(accused(literal) == Accused{{1, "data-loading"}});
}

TEST_CASE("ranks in one operation under one number have called the same, wherever their CPUs are") {
  LiteralJob literal = ended_with({text_of(0, 38, "ALLREDUCE", 8, 8), text_of(1, 38, "ALLREDUCE", 8, 8)});
  put_elsewhere(literal, 1, waits_for_gpu(99));
  const Analysis analysis = analyze(literal.job);
  CHECK(analysis.verdict.status == VerdictStatus::kSymmetric);
  CHECK(analysis.verdict.summary.find(
            "ranks 0-1 wait in all-reduce 38 of group default_pg (their watchdogs, after 12 s)") != std::string::npos);
}

TEST_CASE("a collective of a group whose members are known needs these alone") {
  LiteralJob literal = ended_with({text_of(0, 5, "ALLREDUCE", 8, 8, "3(tp)"), "", "", ""});
  for (const std::size_t r : {1, 2, 3}) put_elsewhere(literal, r, in_getitem());
  CHECK(accused(literal).size() == 3);
  literal.job.ranks[0].threads[0].variables.push_back({.frame = 3, .group = ProcessGroup{"3", {0, 1}, "tp"}});
  CHECK(accused(literal) == Accused{{1, "data-loading"}});
}

TEST_CASE("a send and a receive of one number are no mismatch") {
  CHECK(accused(ended_with({text_of(0, 5, "SEND", 8, 8), text_of(1, 5, "RECV", 8, 8)})).empty());
}
