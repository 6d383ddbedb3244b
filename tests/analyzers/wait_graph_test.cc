// The graph of waits, and the chains that lead to a suspect.
#include <catch2/catch.hpp>

#include <fmt/format.h>

#include "analyzers/analysis.h"
#include "support/literal_job.h"

using namespace rankstacks;
using namespace rankstacks::testing;

namespace {

// "thread 0:100 -frame-> operation -group-> thread 1:101 -> timer"
std::string chain_in_short(const LiteralJob& literal, const Analysis& analysis, std::size_t index = 0) {
  std::string text;
  if (index >= analysis.verdict.chains.size()) return "none";
  for (const WaitChain::Link& link : analysis.verdict.chains[index].links) {
    const WaitNode& node = analysis.waits.nodes()[link.node];
    text += to_string(node.kind);
    if (node.rank && node.thread) text += fmt::format(" {}:{}", *node.rank, literal.job.ranks[*node.rank].threads[*node.thread].tid);
    if (node.kind == NodeKind::kMissingRank) text += fmt::format(" {}", node.missing_rank);
    if (link.evidence) text += fmt::format(" -{}-> ", to_string(*link.evidence));
  }
  return text;
}

const Stack kSleeps = {libc("clock_nanosleep"), nat("time_sleep", "/usr/bin/python3.11"), py("flush", "/home/u/log.py", 3)};

// Two ranks wait in a collective; rank 1 of three stands in `stack`.
LiteralJob third_differs(const Stack& stack) {
  LiteralJob literal;
  for (int r = 0; r < 3; ++r) literal.rank(r, 3, r == 1 ? stack : waits_in_all_reduce());
  return literal;
}

}  // namespace

TEST_CASE("a chain ends where the suspect's own wait ends") {
  LiteralJob literal = third_differs(kSleeps + in_main(20));
  SECTION("a sleep") {
    const Analysis analysis = analyze(literal.job);
    REQUIRE(analysis.verdict.suspects.size() == 1);
    CHECK(analysis.verdict.chains.at(0).from == 0);
    const auto tid = [&](std::size_t r) { return literal.job.ranks[r].threads[0].tid; };
    CHECK(chain_in_short(literal, analysis) == fmt::format("thread 0:{} -frame-> operation -others-> thread 1:{} -system-call-> timer", tid(0), tid(1)));
  }
  SECTION("a lock, whose owner sleeps") {
    RankSnapshot& rank = literal.job.ranks[1];
    ThreadSnapshot owner = rank.threads[0];
    owner.tid = rank.pid + 7;
    ThreadSnapshot& main = rank.threads[0];
    main.frames.clear();
    for (const Frame& frame : Stack{libc("__lll_lock_wait"), libc("pthread_mutex_lock"), nat("mylib::step()", "/home/u/mylib.so")} + in_main(20)) main.frames.push_back(literal.job.frames.intern(Frame(frame)));
    main.lock_owner = owner.tid;
    rank.threads.push_back(owner);
    const Analysis analysis = analyze(literal.job);
    REQUIRE(analysis.verdict.suspects.size() == 1);
    CHECK(analysis.verdict.suspects[0].reason == Reason::kNativeLock);
    CHECK(chain_in_short(literal, analysis) == fmt::format("thread 0:{} -frame-> operation -others-> thread 1:{} -frame-> lock -memory-> thread 1:{} -system-call-> timer",
                                                           literal.job.ranks[0].threads[0].tid, rank.pid, rank.pid + 7));
  }
  SECTION("two locks in a circle") {
    RankSnapshot& rank = literal.job.ranks[1];
    const Stack waits = Stack{libc("__lll_lock_wait"), libc("pthread_mutex_lock"), nat("mylib::step()", "/home/u/mylib.so")} + in_main(20);
    rank.threads[0].frames.clear();
    for (const Frame& frame : waits) rank.threads[0].frames.push_back(literal.job.frames.intern(Frame(frame)));
    ThreadSnapshot other = rank.threads[0];
    other.tid = rank.pid + 7;
    other.lock_owner = rank.pid;
    rank.threads[0].lock_owner = other.tid;
    rank.threads.push_back(other);
    const Analysis analysis = analyze(literal.job);
    const std::string text = chain_in_short(literal, analysis);
    CHECK(text.ends_with(fmt::format("thread 1:{} -frame-> lock -memory-> thread 1:{} -frame-> lock -memory-> thread 1:{}", rank.pid, rank.pid + 7, rank.pid)));
  }
}

TEST_CASE("a rank that is not there is a node") {
  LiteralJob literal;
  for (int r = 0; r < 2; ++r) literal.rank(r, 3, waits_in_all_reduce());
  const Analysis analysis = analyze(literal.job);
  REQUIRE(analysis.verdict.suspects.size() == 1);
  CHECK(analysis.verdict.suspects[0].reason == Reason::kMissing);
  CHECK(analysis.verdict.chains.empty());   // no group says that it is needed; the world size does
}

TEST_CASE("ranks that wait alike are one operation, and all whom they need one node") {
  LiteralJob literal;
  constexpr int kRanks = 600;
  for (int r = 0; r < kRanks; ++r) literal.rank(r, kRanks, r % 2 == 0 ? waits_in_all_reduce() : kSleeps + in_main(20));
  const Analysis analysis = analyze(literal.job);
  CHECK(analysis.waits.edges().size() < 4 * kRanks);
  CHECK(analysis.waits.nodes().size() < 4 * kRanks);
}

TEST_CASE("candidates stand where nothing is decided, and accuse nobody") {
  SECTION("none beside suspects") {
    const Analysis analysis = analyze(third_differs(kSleeps + in_main(20)).job);
    CHECK(analysis.verdict.status == VerdictStatus::kCulprit);
    CHECK(analysis.verdict.candidates.empty());
  }
  SECTION("the rank whose frames do not tell") {
    const LiteralJob literal = third_differs({unknown("/opt/engine.so", 0x1234)});
    const Analysis analysis = analyze(literal.job);
    REQUIRE(analysis.verdict.status == VerdictStatus::kUndecided);
    REQUIRE_FALSE(analysis.verdict.candidates.empty());
    CHECK(analysis.verdict.candidates.front().rank == 1);
    CHECK(analysis.verdict.suspects.empty());
  }
}
