// The graph of waits, and the chains that lead to a suspect.
#include <catch2/catch.hpp>

#include <fmt/format.h>

#include "analyzers/analysis.h"
#include "support/literal_job.h"

using namespace rankstacks;
using namespace rankstacks::analyzers;
using namespace rankstacks::testing;

namespace {

// "thread 0:100 -frame-> operation -group-> thread 1:101 -> timer"
std::string chain_in_short(const LiteralJob& literal, const Analysis& analysis, std::size_t index = 0) {
  std::string text;
  if (index >= analysis.verdict.chains.size()) return "none";
  for (const WaitChain::Link& link : analysis.verdict.chains[index].links) {
    const WaitNode& node = analysis.waits.nodes()[link.node];
    text += to_string(node.kind);
    if (node.rank && node.thread)
      text += fmt::format(" {}:{}", *node.rank, literal.job.ranks[*node.rank].threads[*node.thread].tid);
    if (node.kind == NodeKind::kMissingRank) text += fmt::format(" {}", node.missing_rank);
    if (link.evidence) text += fmt::format(" -{}-> ", to_string(*link.evidence));
  }
  return text;
}

// The chain from a rank's main thread along the first edges, as long as it stays in this rank.
std::string way_in_short(const LiteralJob& literal, const Analysis& analysis, std::size_t rank) {
  std::string text;
  for (std::size_t node = analysis.waits.node_of_rank(rank).value();;) {
    const WaitNode& at = analysis.waits.nodes()[node];
    text += to_string(at.kind);
    if (at.kind == NodeKind::kOperation || analysis.waits.edges_from(node).empty()) return text;
    if (at.rank && at.thread)
      text += fmt::format(" {}:{}", *at.rank, literal.job.ranks[*at.rank].threads[*at.thread].tid);
    const WaitEdge& edge = analysis.waits.edges()[analysis.waits.edges_from(node).front()];
    text += fmt::format(" -{}-> ", to_string(edge.evidence));
    node = edge.to;
  }
}

const Stack kSleeps = {libc("clock_nanosleep"), nat("time_sleep", "/usr/bin/python3.11"),
                       py("flush", "/home/u/log.py", 3)};

// Two ranks wait in a collective; rank 1 of three has the stack `stack`.
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
    CHECK(chain_in_short(literal, analysis) ==
          fmt::format("thread 0:{} -frame-> operation -others-> thread 1:{} -system-call-> timer", tid(0), tid(1)));
  }
  SECTION("a lock, whose owner sleeps") {
    RankSnapshot& rank = literal.job.ranks[1];
    ThreadSnapshot owner = rank.threads[0];
    owner.tid = rank.pid + 7;
    ThreadSnapshot& main = rank.threads[0];
    main.frames.clear();
    for (const Frame& frame :
         Stack{libc("__lll_lock_wait"), libc("pthread_mutex_lock"), nat("mylib::step()", "/home/u/mylib.so")} +
             in_main(20))
      main.frames.push_back(literal.job.frames.intern(Frame(frame)));
    main.lock_owner = owner.tid;
    rank.threads.push_back(owner);
    const Analysis analysis = analyze(literal.job);
    REQUIRE(analysis.verdict.suspects.size() == 1);
    CHECK(analysis.verdict.suspects[0].reason == Reason::kNativeLock);
    CHECK(chain_in_short(literal, analysis) == fmt::format("thread 0:{} -frame-> operation -others-> thread 1:{} "
                                                           "-frame-> lock -memory-> thread 1:{} -system-call-> timer",
                                                           literal.job.ranks[0].threads[0].tid, rank.pid,
                                                           rank.pid + 7));
  }
  SECTION("two locks in a circle") {
    RankSnapshot& rank = literal.job.ranks[1];
    const Stack waits =
        Stack{libc("__lll_lock_wait"), libc("pthread_mutex_lock"), nat("mylib::step()", "/home/u/mylib.so")} +
        in_main(20);
    rank.threads[0].frames.clear();
    for (const Frame& frame : waits) rank.threads[0].frames.push_back(literal.job.frames.intern(Frame(frame)));
    ThreadSnapshot other = rank.threads[0];
    other.tid = rank.pid + 7;
    other.lock_owner = rank.pid;
    rank.threads[0].lock_owner = other.tid;
    rank.threads.push_back(other);
    const Analysis analysis = analyze(literal.job);
    const std::string text = chain_in_short(literal, analysis);
    CHECK(text.ends_with(
        fmt::format("thread 1:{} -frame-> lock -memory-> thread 1:{} -frame-> lock -memory-> thread 1:{}", rank.pid,
                    rank.pid + 7, rank.pid)));
  }
}

TEST_CASE("a chain goes on to who has the other end") {
  LiteralJob literal = third_differs(Stack{libc("read"), py("build", "/home/u/build.py", 9)} + in_main(20));
  const auto blocked = [&](EndKind kind, std::vector<std::pair<Pid, std::string>> ends) {
    ThreadSnapshot& main = literal.job.ranks[1].threads[0];
    main.syscall = call("read", 5, "pipe:[77]");
    for (auto& [pid, command] : ends) main.syscall->others.push_back({pid, kind, command});
  };
  const Pid pid = literal.job.ranks[1].pid;
  const std::string begin = fmt::format(
      "thread 0:{} -frame-> operation -others-> thread 1:{} -system-call-> descriptor", literal.job.ranks[0].pid, pid);
  SECTION("a child, and what that waits for") {
    RankSnapshot& child = literal.child(pid, {libc("wait4")});
    child.threads[0].syscall = call("wait4");
    const Pid grandchild = literal.child(pid, {libc("clock_nanosleep")}).pid;
    literal.job.ranks[3].threads[0].syscall->others.push_back({grandchild, EndKind::kChild, ""});
    blocked(EndKind::kPipe, {{literal.job.ranks[3].pid, ""}, {grandchild, ""}});
    CHECK(chain_in_short(literal, analyze(literal.job)) ==
          begin + fmt::format(" -system-call-> thread 3:{} -system-call-> thread 4:{} -system-call-> timer",
                              literal.job.ranks[3].pid, grandchild));
  }
  SECTION("a child whose main thread waits for an event, and whose other thread serves") {
    const std::string lib = "/usr/lib/python3.11/";
    RankSnapshot& manager = literal.child(
        pid, {libc("sem_wait"), py("wait", lib + "threading.py", 324),
              py("serve_forever", lib + "multiprocessing/managers.py", 180), py("main", "/home/u/train.py", 90)});
    const Pid manager_pid = manager.pid;
    literal.thread(manager, manager_pid + 50, "server",
                   Stack{libc("clock_nanosleep"), py("look_up", "/home/u/words.py", 4),
                         py("serve_client", lib + "multiprocessing/managers.py", 252)});
    for (ThreadSnapshot& thread : manager.threads) thread.stack_end = StackEnd::kComplete;
    blocked(EndKind::kSocket, {{manager_pid, ""}});
    CHECK(chain_in_short(literal, analyze(literal.job)) ==
          begin + fmt::format(" -system-call-> thread 3:{} -system-call-> timer", manager_pid + 50));
  }
  SECTION("a process outside of the job") {
    blocked(EndKind::kPipe, {{4711, "tee train.log"}});
    const Analysis analysis = analyze(literal.job);
    CHECK(chain_in_short(literal, analysis) == begin + " -system-call-> process");
    CHECK(analysis.waits.nodes()[analysis.verdict.chains.at(0).links.back().node].text == "pid 4711 (tee train.log)");
  }
  SECTION("a child of another rank is none of its own") {
    const Pid others = literal.child(literal.job.ranks[2].pid, {libc("clock_nanosleep")}).pid;
    blocked(EndKind::kPipe, {{others, ""}});
    CHECK(chain_in_short(literal, analyze(literal.job)).find("descriptor -") == std::string::npos);
  }
}

TEST_CASE("a chain goes on to the only thread that can bring about what is waited for") {
  const std::string threading = "/usr/lib/python3.11/threading.py";
  LiteralJob literal = third_differs(Stack{libc("sem_wait"), nat("PyThread_acquire_lock_timed", "/usr/bin/python3.11"),
                                           py("wait", threading, 320), py("wait", threading, 622)} +
                                     in_main(20));
  RankSnapshot& rank = literal.job.ranks[1];
  for (RankSnapshot& each : literal.job.ranks) each.status = Status::kComplete;
  literal.thread(rank, rank.pid + 7, "fetcher", kSleeps).stack_end = StackEnd::kComplete;
  const std::string begin =
      fmt::format("thread 0:{} -frame-> operation -others-> thread 1:{}", literal.job.ranks[0].pid, rank.pid);
  SECTION("an event") {
    CHECK(chain_in_short(literal, analyze(literal.job)) ==
          begin + fmt::format(" -others-> thread 1:{} -system-call-> timer", rank.pid + 7));
  }
  SECTION("none is in the user's code, and one runs an event loop") {
    rank.threads.pop_back();
    ThreadSnapshot& loop = literal.thread(
        rank, rank.pid + 9, "storeIO",
        {libc("epoll_wait"), py("select", "/usr/lib/python3.11/selectors.py", 468),
         py("_run_once", "/usr/lib/python3.11/asyncio/base_events.py", 1884), py("run", threading, 975)});
    loop.stack_end = StackEnd::kComplete;
    loop.syscall = call("epoll_wait", 20, "anon_inode:[eventpoll]");
    CHECK(chain_in_short(literal, analyze(literal.job)) ==
          begin + fmt::format(" -others-> thread 1:{} -system-call-> descriptor", rank.pid + 9));
  }
  SECTION("one of two") {
    literal.thread(rank, rank.pid + 8, "logger", kSleeps).stack_end = StackEnd::kComplete;
    CHECK(chain_in_short(literal, analyze(literal.job)) == begin);
  }
}

TEST_CASE("a chain goes on to the thread that prepares a batch, or writes a checkpoint") {
  const std::string lib = "/usr/lib/python3.11/";
  const Stack gets = {libc("sem_wait"), py("wait", lib + "threading.py", 320), py("get", lib + "queue.py", 171),
                      py("__next__", kPackages + "grain/_src/python/dataset/transformations/prefetch.py", 635)};
  const Stack loops = {libc("epoll_wait"), py("select", lib + "selectors.py", 468),
                       py("_run_once", lib + "asyncio/base_events.py", 1884),
                       py("restore", kPackages + "orbax/checkpoint/_src/checkpointers/checkpointer.py", 375)};
  const Stack pool = {py("run", lib + "concurrent/futures/thread.py", 58),
                      py("_worker", lib + "concurrent/futures/thread.py", 83)};
  const auto chain = [](const Stack& main, const std::vector<Stack>& others) {
    LiteralJob literal = third_differs(main + in_main(20));
    RankSnapshot& rank = literal.job.ranks[1];
    if (main[0].function == "epoll_wait") rank.threads[0].syscall = call("epoll_wait", 20, "anon_inode:[eventpoll]");
    for (RankSnapshot& each : literal.job.ranks) each.status = Status::kComplete;
    for (std::size_t i = 0; i < others.size(); ++i)
      literal.thread(rank, static_cast<Tid>(i) + 7, "python3", others[i]).stack_end = StackEnd::kComplete;
    const std::string text = chain_in_short(literal, analyze(literal.job));
    return text.substr(text.find("thread 1:"));
  };
  CHECK(chain(gets, {kSleeps}) == "thread 1:101 -others-> thread 1:7 -system-call-> timer");
  CHECK(chain(gets, {pool, kSleeps + pool, kSleeps + pool}) ==
        "thread 1:101 -others-> thread 1:8 -system-call-> timer");
  const Stack logs = {libc("clock_nanosleep"), py("log", "/home/u/log.py", 80)};
  CHECK(chain(gets, {kSleeps, logs}) == "thread 1:101");
  // A task without the user's code; idle threads of the pool run none.
  const Stack idle = {libc("sem_wait"), py("_worker", lib + "concurrent/futures/thread.py", 81)};
  const Stack reads =
      Stack{libc("clock_nanosleep"), py("read_text", kPackages + "etils/epath/abstract_path.py", 174)} + pool;
  CHECK(chain(loops, {idle, reads}) == "thread 1:101 -others-> thread 1:8 -system-call-> timer");
  CHECK(chain(loops, {reads, reads}) == "thread 1:101 -system-call-> descriptor");
}

TEST_CASE("a rank whose main thread waits for a thread that waits for other ranks is innocent") {
  // Rank 0 waits in its main thread; rank 2 in another thread, which holds what its main thread waits for; rank 1
  // sleeps.
  LiteralJob literal;
  for (int r = 0; r < 3; ++r) literal.rank(r, 3, r == 1 ? kSleeps + in_main(20) : waits_in_all_reduce());
  RankSnapshot& rank = literal.job.ranks[2];
  const Tid saver = rank.pid + 7, between = rank.pid + 8;
  const auto wait_in = [&](ThreadSnapshot& thread, const Stack& stack) {
    thread.frames.clear();
    for (const Frame& frame : stack) thread.frames.push_back(literal.job.frames.intern(Frame(frame)));
  };
  const Stack locks = {libc("__lll_lock_wait"), libc("pthread_mutex_lock"), nat("mylib::step()", "/home/u/mylib.so")};
  literal.thread(rank, saver, "saver", waits_in_all_reduce(40));
  std::string expected;
  SECTION("a lock") {
    wait_in(rank.threads[0], locks + in_main(20));
    rank.threads[0].lock_owner = saver;
    expected = fmt::format("thread 2:{} -frame-> lock -memory-> thread 2:{} -frame-> operation", rank.pid, saver);
  }
  SECTION("the end of a thread that waits for a lock") {
    wait_in(rank.threads[0], Stack{libc("pthread_join"), nat("mylib::wait()", "/home/u/mylib.so")} + in_main(20));
    rank.threads[0].joins = between;
    literal.thread(rank, between, "mylib", locks).lock_owner = saver;
    expected = fmt::format("thread 2:{} -memory-> thread 2:{} -frame-> lock -memory-> thread 2:{} -frame-> operation",
                           rank.pid, between, saver);
  }
  SECTION("the GIL") {
    wait_in(rank.threads[0],
            Stack{libc("pthread_cond_timedwait"), nat("take_gil", "/usr/bin/python3.11")} + in_main(20));
    rank.threads[0].gil = Gil::kWaits;
    rank.threads[1].gil = Gil::kHolds;
    expected = fmt::format("thread 2:{} -memory-> lock -memory-> thread 2:{} -frame-> operation", rank.pid, saver);
  }
  const Analysis analysis = analyze(literal.job);
  REQUIRE(analysis.verdict.suspects.size() == 1);
  CHECK(analysis.verdict.suspects[0].rank == 1);
  CHECK(way_in_short(literal, analysis, 2) == expected);
}

TEST_CASE("threads of one process that wait for each other are no way out of it") {
  LiteralJob literal =
      third_differs(Stack{libc("pthread_join"), nat("mylib::wait()", "/home/u/mylib.so")} + in_main(20));
  RankSnapshot& rank = literal.job.ranks[1];
  rank.threads[0].joins = rank.pid + 7;
  literal.thread(rank, rank.pid + 7, "mylib", {libc("pthread_join"), nat("mylib::wait_too()", "/home/u/mylib.so")})
      .joins = rank.pid;
  const Analysis analysis = analyze(literal.job);
  REQUIRE(analysis.verdict.suspects.size() == 1);
  CHECK(analysis.verdict.suspects[0].rank == 1);
}

TEST_CASE("who is gone is accused where somebody waits for it") {
  const ProcessGroup first{"1", {0, 1, 2}};
  const auto in_group = [](RankSnapshot& rank, const ProcessGroup& group) {
    rank.threads[0].variables.push_back({.frame = 2, .numbers = {}, .group = group});
  };
  const auto end = [](RankSnapshot& rank) {
    rank.status = Status::kFailed;
    rank.threads.clear();
    rank.problems.push_back({.message = "the process has ended", .hint = {}, .code = ProblemCode::kEnded});
  };
  LiteralJob literal;
  for (int r = 0; r < 4; ++r) literal.rank(r, 4, r == 1 ? kSleeps + in_main(20) : waits_in_all_reduce());
  SECTION("not one that no group contains") {
    for (const std::size_t r : {0u, 2u}) in_group(literal.job.ranks[r], first);
    end(literal.job.ranks[3]);
    const Analysis analysis = analyze(literal.job);
    REQUIRE(analysis.verdict.suspects.size() == 1);
    CHECK(analysis.verdict.suspects[0].rank == 1);
  }
  SECTION("one that a group contains") {
    for (const std::size_t r : {0u, 2u}) in_group(literal.job.ranks[r], {"1", {0, 2, 3}});
    end(literal.job.ranks[3]);
    const Analysis analysis = analyze(literal.job);
    REQUIRE(analysis.verdict.suspects.size() == 1);
    CHECK(analysis.verdict.suspects[0].rank == 3);
    CHECK(chain_in_short(literal, analysis) ==
          fmt::format("thread 0:{} -frame-> operation -group-> process", literal.job.ranks[0].pid));
  }
  SECTION("a disagreement within a group is reported although ranks outside of it were not captured") {
    literal.job.ranks.pop_back();
    literal.job.ranks[1] = literal.job.ranks[0];
    literal.job.ranks[1].rank = 1;
    literal.job.ranks[1].pid = literal.job.ranks[1].threads[0].tid = 101;
    literal.job.ranks[1].threads[0].frames.clear();
    for (const Frame& frame :
         Stack{libc("pthread_cond_wait"), nat("gloo::transport::tcp::UnboundBuffer::waitRecv(int*)"),
               py("broadcast", kPackages + "torch/distributed/distributed_c10d.py", 2000),
               py("wrapper", kPackages + "torch/distributed/c10d_logger.py", 80)} +
             in_main(31))
      literal.job.ranks[1].threads[0].frames.push_back(literal.job.frames.intern(Frame(frame)));
    for (RankSnapshot& rank : literal.job.ranks) in_group(rank, first);
    const Analysis analysis = analyze(literal.job);
    REQUIRE(analysis.verdict.suspects.size() == 1);
    CHECK(analysis.verdict.suspects[0].rank == 1);
    CHECK(analysis.verdict.suspects[0].reason == Reason::kCollectiveMismatch);
  }
}

TEST_CASE("a rank that is not there is a node") {
  LiteralJob literal;
  for (int r = 0; r < 2; ++r) literal.rank(r, 3, waits_in_all_reduce());
  const Analysis analysis = analyze(literal.job);
  REQUIRE(analysis.verdict.suspects.size() == 1);
  CHECK(analysis.verdict.suspects[0].reason == Reason::kMissing);
  CHECK(chain_in_short(literal, analysis) ==
        fmt::format("thread 0:{} -frame-> operation -others-> missing-rank 2", literal.job.ranks[0].pid));
}

TEST_CASE("ranks that wait alike are one operation, and all ranks that they need are one node") {
  LiteralJob literal;
  constexpr int kRanks = 600;
  for (int r = 0; r < kRanks; ++r) literal.rank(r, kRanks, r % 2 == 0 ? waits_in_all_reduce() : kSleeps + in_main(20));
  const Analysis analysis = analyze(literal.job);
  CHECK(analysis.waits.edges().size() < 4 * kRanks);
  CHECK(analysis.waits.nodes().size() < 4 * kRanks);
}

TEST_CASE("candidates are named if nothing is decided, and are not accused") {
  SECTION("none in addition to suspects") {
    const Analysis analysis = analyze(third_differs(kSleeps + in_main(20)).job);
    CHECK(analysis.verdict.status == VerdictStatus::kCulprit);
    CHECK(analysis.verdict.candidates.empty());
  }
  SECTION("the rank whose frames do not show what it does") {
    const LiteralJob literal = third_differs({unknown("/opt/engine.so", 0x1234)});
    const Analysis analysis = analyze(literal.job);
    REQUIRE(analysis.verdict.status == VerdictStatus::kUndecided);
    REQUIRE_FALSE(analysis.verdict.candidates.empty());
    CHECK(analysis.verdict.candidates.front().rank == 1);
    CHECK(analysis.verdict.suspects.empty());
  }
}
