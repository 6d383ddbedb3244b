// Ranks that crashed, have ended, or are not there.
#include <catch2/catch.hpp>

#include "analyzers/analysis.h"
#include "support/odd_rank.h"

using namespace rankstacks;
using namespace rankstacks::analyzers;
using namespace rankstacks::testing;

TEST_CASE("crashes") {
  auto crash = [](LiteralJob& literal, std::size_t r, int number, const char* name, int code = -6) {
    RankSnapshot& rank = literal.job.ranks[r];
    rank.source = Source::kCore;
    rank.signal = SignalInfo{number, name, rank.pid, code, {}};
  };
  LiteralJob literal = one_differs(Stack{nat("mylib::step()", "/home/u/mylib.so")} + in_main(30));
  SECTION("a fault that the others do not share") {
    crash(literal, 2, 11, "SIGSEGV", 1);
    CHECK(only_rank_2(literal) == "crashed");
    CHECK(verdict_of(literal).summary ==
          "rank 2 crashed with SIGSEGV (main at train.py:30) while ranks 0-1,3 wait in DDP's gradient all-reduce");
  }
  SECTION("a fault along with aborts that followed") {
    for (const std::size_t r : {0, 1, 3}) crash(literal, r, 6, "SIGABRT");
    crash(literal, 2, 11, "SIGSEGV", 1);
    CHECK(only_rank_2(literal) == "crashed");
  }
  SECTION("the same abort in all ranks distinguishes none: the frames do") {
    for (std::size_t r = 0; r < 4; ++r) crash(literal, r, 6, "SIGABRT");
    CHECK(only_rank_2(literal) == "user-code");
  }
  SECTION("a signal sent from outside to take a core is no crash") {
    crash(literal, 0, 6, "SIGABRT", 0);
    CHECK(only_rank_2(literal) == "user-code");
  }
  SECTION("an abort in a core without threads may be a watchdog's") {
    crash(literal, 0, 6, "SIGABRT");
    literal.job.ranks[0].threads.clear();
    CHECK(only_rank_2(literal) == "user-code");
    literal.job.ranks[0].abort_message = "free(): invalid pointer";
    CHECK(verdict_of(literal).suspects.at(0).reason == Reason::kCrashed);
  }
  SECTION("the watchdog is the reporter") {
    crash(literal, 0, 6, "SIGABRT");
    literal.thread(literal.job.ranks[0], 900, "x", {libc("abort"), nat("c10d::ProcessGroupNCCL::Watchdog::run()")});
    literal.job.ranks[0].signal->tid = 900;
    CHECK(only_rank_2(literal) == "user-code");
  }
}

TEST_CASE("missing ranks") {
  auto waiting = [](std::vector<int> numbers, int world) {
    LiteralJob literal;
    for (const int r : numbers) literal.rank(r, world, waits_in_all_reduce());
    return literal;
  };
  SECTION("one of four") {
    const Verdict v = verdict_of(waiting({0, 1, 3}, 4));
    REQUIRE(v.status == VerdictStatus::kCulprit);
    REQUIRE(v.suspects.size() == 1);
    CHECK(v.suspects[0].reason == Reason::kMissing);
    CHECK(v.suspects[0].missing_rank == 2);
    CHECK(v.suspects[0].rank == SIZE_MAX);
    CHECK(v.summary ==
          "rank 2 is not there (ended, never started, or not looked at) while ranks 0-1,3 wait in all_reduce");
  }
  SECTION("the last of four") { CHECK(verdict_of(waiting({0, 1, 2}, 4)).suspects.at(0).missing_rank == 3); }
  SECTION("both ranks of a machine belong to it, and one is not there") {
    LiteralJob literal = waiting({0}, 2);
    CHECK(verdict_of(literal).status == VerdictStatus::kUndecided);
    literal.job.ranks[0].local_world_size = 2;
    CHECK(verdict_of(literal).suspects.at(0).missing_rank == 1);
    literal.job.not_looked_at = {{.rank = 1, .host = "node-a", .pid = 4711}};
    CHECK(verdict_of(literal).status == VerdictStatus::kUndecided);
  }
  SECTION("what has its number is a child that it has left behind, as NCCL knows") {
    LiteralJob literal = waiting({0}, 2);
    const std::string host = literal.job.ranks[0].host;
    const Pid pid = literal.job.ranks[0].pid;
    literal.job.not_looked_at = {{.rank = 1, .host = host, .pid = 4711}};
    NcclMember here{.rank = 0, .host = "192.0.2.2", .pid = pid, .process = NcclMember::Process{host, pid}};
    NcclMember lost{.rank = 1, .host = "192.0.2.2", .pid = 4700};
    const auto status_with = [&](const NcclMember& one, const NcclMember& other) {
      literal.job.nccl = NcclStatus{
          .version = "2.28.9", .communicators = {{.hash = "0x1", .size = 2, .members = {one}, .missing = {other}}}};
      return verdict_of(literal).status;
    };
    CHECK(status_with(here, lost) == VerdictStatus::kCulprit);
    CHECK(verdict_of(literal).suspects.at(0).missing_rank == 1);
    lost.pid = 4711;  // the rank itself
    CHECK(status_with(here, lost) == VerdictStatus::kUndecided);
    lost.pid = 4700;
    here.pid = 17;  // a container counts its processes by itself
    CHECK(status_with(here, lost) == VerdictStatus::kUndecided);
  }
  SECTION("half of the job is another machine") {
    const Verdict v = verdict_of(waiting({0, 1, 2, 3}, 8));
    CHECK(v.status == VerdictStatus::kUndecided);
    CHECK(v.summary.find("ranks 4-7 were not looked at") != std::string::npos);
  }
  const auto silent = [](std::string name, NodeFault fault, std::vector<int> ranks) {
    NodeSnapshot node{.name = std::move(name), .fault = fault, .engine = "ssh"};
    node.ranks = std::move(ranks);
    return node;
  };
  SECTION("those of a node that may be dead are suspects") {
    LiteralJob literal = waiting({0, 1}, 4);
    literal.job.nodes = {silent("n1", NodeFault::kNone, {}), silent("n2", NodeFault::kNoRoute, {2, 3})};
    const Verdict v = verdict_of(literal);
    REQUIRE(v.suspects.size() == 2);
    CHECK((v.suspects[0].reason == Reason::kMissing && v.suspects[0].missing_rank == 2));
    CHECK(v.suspects[1].summary == "rank 3 is on n2, which could not be reached: ssh: no route to host");
    CHECK(v.summary ==
          "ranks 2-3 are on nodes that could not be reached, while ranks 0-1 wait in all_reduce: n2 (ranks 2-3): ssh: "
          "no route to host");
  }
  SECTION("those of a node that refuses are only said to be missing, whatever the layout says of them") {
    LiteralJob literal = waiting({0, 1, 2}, 4);
    literal.job.nodes = {silent("n1", NodeFault::kNone, {}), silent("n2", NodeFault::kLogin, {3})};
    const Verdict v = verdict_of(literal);
    CHECK(v.status == VerdictStatus::kUndecided);
    CHECK(v.summary.find("ranks 3 were not looked at: n2 (rank 3): ssh: login denied") != std::string::npos);
  }
  SECTION("a dead node is no suspect where a rank is elsewhere") {
    LiteralJob literal = one_differs(in_getitem());
    literal.job.ranks.pop_back();
    literal.job.nodes = {silent("n4", NodeFault::kNoRoute, {3})};
    CHECK(only_rank_2(literal) == "data-loading");
  }
  SECTION("not when a rank is elsewhere: that one is the reason") {
    LiteralJob literal = one_differs(in_getitem());
    literal.job.ranks.pop_back();
    CHECK(only_rank_2(literal) == "data-loading");
  }
  auto ended = [](LiteralJob& literal, const char* how) -> RankSnapshot& {
    RankSnapshot& rank = literal.process();  // its number ended with its environment
    rank.status = Status::kFailed;
    rank.problems.push_back({how, {}, ProblemCode::kEnded});
    return rank;
  };
  SECTION("a zombie is the one that is missing") {
    LiteralJob literal = waiting({0, 1, 3}, 4);
    ended(literal, "pid 103: a zombie: it has ended, and its parent has not collected its exit status");
    const Verdict v = verdict_of(literal);
    REQUIRE(v.suspects.size() == 1);
    CHECK((v.suspects[0].reason == Reason::kMissing && v.suspects[0].missing_rank == 2));
    CHECK(v.summary == "rank 2 is not there (pid 103 has ended) while ranks 0-1,3 wait in all_reduce");
  }
  SECTION("one that is gone, in a job without rank numbers") {
    LiteralJob literal = waiting({0, 1}, 2);
    for (RankSnapshot& rank : literal.job.ranks) rank.rank = rank.world_size = {};
    ended(literal, "pid 102: no such process");
    const Verdict v = verdict_of(literal);
    REQUIRE(v.suspects.size() == 1);
    CHECK((v.suspects[0].reason == Reason::kMissing && v.suspects[0].rank == 2));
    CHECK(v.summary == "rank node-a:102 has ended while ranks node-a:100,node-a:101 wait in all_reduce");
  }
  SECTION("one that could not be read for another reason is not known to have ended") {
    LiteralJob literal = waiting({0, 1, 3}, 4);
    ended(literal, "pid 103: traced by pid 7 (gdb)").problems.front().code = ProblemCode::kPermission;
    CHECK(verdict_of(literal).status == VerdictStatus::kUndecided);
  }
  SECTION("that it has ended is known from the code, whatever the words") {
    LiteralJob literal = waiting({0, 1, 3}, 4);
    RankSnapshot& gone = ended(literal, "lorem ipsum");
    REQUIRE(verdict_of(literal).suspects.size() == 1);
    CHECK(verdict_of(literal).suspects[0].reason == Reason::kMissing);
    gone.problems.front() = {"a zombie, no such process", {}, ProblemCode::kPermission};
    CHECK(verdict_of(literal).status == VerdictStatus::kUndecided);
  }
  SECTION("the last one of a job that has ended") {
    LiteralJob literal;
    literal.rank(0, 3, kSleep + in_main(3));
    ended(literal, "pid 101: a zombie");
    ended(literal, "pid 102: a zombie");
    const Verdict v = verdict_of(literal);
    CHECK(v.status == VerdictStatus::kUndecided);
    CHECK(v.summary.starts_with(
        "2 of 3 ranks have ended (pids 101,102); rank 0 sleeps in its own code (work at train.py:40); "));
  }
  SECTION("absurd world sizes") {
    CHECK(verdict_of(waiting({0, 1}, 2'000'000'000)).status == VerdictStatus::kSymmetric);
  }
}
