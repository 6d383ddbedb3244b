// The sentences about a rank whose thread waits for a Python lock or a thread's end, if memory names the thread that
// it waits for.
#include <catch2/catch.hpp>

#include <fmt/format.h>

#include "analyzers/analysis.h"
#include "analyzers/python_locks.h"
#include "analyzers/rank_state.h"
#include "support/literal_job.h"

using namespace rankstacks;
using namespace rankstacks::analyzers;
using namespace rankstacks::testing;

namespace {

const std::string kThreading = "/usr/lib/python3.11/threading.py";
const Stack kWaitsForLock =
    Stack{libc("sem_wait"), nat("lock_PyThread_acquire_lock", "/usr/bin/python3.11")} + in_main(52);
const Stack kSleeps = {libc("clock_nanosleep"), nat("time_sleep", "/usr/bin/python3.11"),
                       py("write_report", "/home/u/train.py", 9), py("run", kThreading, 2)};

// Rank 1 of three waits for a lock; it has two other threads, so that none can be identified as the only other one.
LiteralJob waits_for_lock(const Stack& stack = kWaitsForLock) {
  LiteralJob literal;
  literal.job.ranks.reserve(3);
  for (int r = 0; r < 3; ++r) literal.rank(r, 3, r == 1 ? stack : waits_in_all_reduce());
  RankSnapshot& rank = literal.job.ranks[1];
  rank.threads.reserve(4);
  literal.thread(rank, 201, "reporter", kSleeps).state = 'S';
  literal.thread(rank, 202, "saver", kSleeps).state = 'S';
  return literal;
}

ThreadSnapshot& main_of(LiteralJob& literal) { return literal.job.ranks[1].threads[0]; }

std::string verdict_text(const LiteralJob& literal) {
  const Analysis analysis = analyze(literal.job);
  if (analysis.verdict.suspects.size() != 1) return "no single suspect";
  return fmt::format("{}: {}", to_string(analysis.verdict.suspects[0].reason), analysis.verdict.suspects[0].summary);
}

std::string chain(const LiteralJob& literal) {
  const Analysis analysis = analyze(literal.job);
  std::string text;
  for (const WaitChain::Link& link : analysis.verdict.chains.at(0).links) {
    const WaitNode& node = analysis.waits.nodes()[link.node];
    text += node.rank && node.thread
                ? fmt::format("{}:{}", *node.rank, literal.job.ranks[*node.rank].threads[*node.thread].tid)
                : node.text;
    if (link.evidence) text += fmt::format(" -{}-> ", to_string(*link.evidence));
  }
  return text;
}

}  // namespace

TEST_CASE("a lock's holder is named with what it does, and ends the chain") {
  LiteralJob literal = waits_for_lock();
  SECTION("a Lock") {
    main_of(literal).python_lock = PythonLock{PythonLockKind::kLock, {}, 201};
    CHECK(verdict_text(literal) ==
          "python-lock: rank 1 waits for a Python lock (main at train.py:52), which its thread reporter holds, in "
          "write_report at train.py:9 (sleeping)");
    CHECK(chain(literal) ==
          "0:100 -frame-> in all_reduce -others-> 1:101 -memory-> a Python lock held by thread 201 -memory-> 1:201 "
          "-system-call-> a time that it has set itself");
  }
  SECTION("an RLock, of a thread without a name of its own") {
    literal.job.ranks[1].threads[1].name = "python3";
    main_of(literal).python_lock = PythonLock{PythonLockKind::kRLock, {}, 201};
    CHECK(verdict_text(literal) ==
          "python-lock: rank 1 waits for an RLock (main at train.py:52), which its thread 201 holds, in write_report "
          "at train.py:9 (sleeping)");
  }
  SECTION("the import of a module") {
    main_of(literal).python_lock = PythonLock{PythonLockKind::kModule, "torch._C", 202};
    CHECK(verdict_text(literal) ==
          "python-lock: rank 1 waits for the import of torch._C (main at train.py:52), which its thread saver does, in "
          "write_report at train.py:9 (sleeping)");
    CHECK(chain(literal).find("the import of torch._C held by thread 202 -memory-> 1:202") != std::string::npos);
  }
  SECTION("itself") {
    main_of(literal).python_lock = PythonLock{PythonLockKind::kLock, {}, 101};
    CHECK(verdict_text(literal) ==
          "python-lock: rank 1 waits for a Python lock that it holds itself (main at train.py:52)");
    CHECK(chain(literal) ==
          "0:100 -frame-> in all_reduce -others-> 1:101 -memory-> a Python lock held by thread 101 -memory-> 1:101");
  }
  SECTION("evidence") {
    main_of(literal).python_lock = PythonLock{PythonLockKind::kLock, {}, 202};
    const Suspect suspect = analyze(literal.job).verdict.suspects.at(0);
    REQUIRE(suspect.evidence.size() == 2);
    CHECK(suspect.evidence[1].thread == 2);
    CHECK(suspect.advice.starts_with("look at the thread named"));
  }
}

TEST_CASE("the GIL's holder is named, whatever the thread that wants it waited for before") {
  const Stack takes_gil = {libc("pthread_cond_timedwait"), nat("take_gil", "/usr/bin/python3.11"),
                           nat("PyEval_RestoreThread", "/usr/bin/python3.11")};
  SECTION("an event: it is set by now") {
    LiteralJob literal = waits_for_lock(
        takes_gil + Stack{py("wait", kThreading, 320), py("wait", kThreading, 622), py("start", kThreading, 962)} +
        in_main(52));
    main_of(literal).gil = Gil::kWaits;
    CHECK(verdict_text(literal) == "python-lock: rank 1 waits for the GIL (main at train.py:52)");
    CHECK(analyze(literal.job).verdict.suspects[0].advice.starts_with("find the thread that holds it"));
    literal.job.ranks[1].threads[1].gil = Gil::kHolds;
    CHECK(verdict_text(literal) ==
          "python-lock: rank 1 waits for the GIL (main at train.py:52), which its thread reporter holds, in "
          "write_report at train.py:9 (sleeping)");
    CHECK(analyze(literal.job).verdict.suspects[0].advice.starts_with("look at the thread named"));
  }
  SECTION("a collective, which has ended for it") {
    LiteralJob literal = waits_for_lock(takes_gil + waits_in_all_reduce());
    main_of(literal).gil = Gil::kWaits;
    ThreadSnapshot& holder = literal.job.ranks[1].threads[1];
    holder.gil = Gil::kHolds;
    CHECK(verdict_text(literal) ==
          "python-lock: rank 1 waits for the GIL (main at train.py:17), which its thread reporter holds, in "
          "write_report at train.py:9 (sleeping)");
    SECTION("a holder of which more is known") {
      const std::string kSave = kPackages + "torch/serialization.py";
      holder.frames.clear();
      for (const Frame& frame : Stack{libc("writev"), py("save", kSave, 440), py("save_all", "/home/u/train.py", 12)})
        holder.frames.push_back(literal.job.frames.intern(frame));
      holder.syscall = call("writev", 9, "/data/x");
      CHECK(verdict_text(literal).starts_with("checkpoint-io: rank 1 saves or loads a checkpoint (save_all"));
    }
    SECTION("a holder that gets on hands it on") {
      holder.motion.emplace();
      holder.motion->samples = 3;
      holder.motion->moved = true;
      CHECK(analyze(literal.job).verdict.status == VerdictStatus::kSymmetric);
    }
    SECTION("a holder that runs, but in one call of native code in all samples, keeps it") {
      const auto at_one_place = [](ThreadSnapshot& thread) {
        thread.motion.emplace();
        thread.motion->samples = 3;
        thread.motion->places = 1;
      };
      at_one_place(holder);
      holder.state = 'R';
      holder.frames.edit().front() = literal.job.frames.intern(nat("sre_match", "/usr/bin/python3.11"));
      CHECK_FALSE(verdict_text(literal).starts_with("python-lock"));  // the other thread was not sampled so
      at_one_place(main_of(literal));
      CHECK(verdict_text(literal).starts_with("python-lock: rank 1 waits for the GIL (main at train.py:17)"));
      holder.motion->moved = true;
      CHECK_FALSE(verdict_text(literal).starts_with("python-lock"));
      holder.motion->moved = false;
      holder.frames.edit().erase(holder.frames.edit().begin(), holder.frames.edit().begin() + 2);  // in Python code
      CHECK_FALSE(verdict_text(literal).starts_with("python-lock"));
    }
    SECTION("a holder that runs hands it on") {
      holder.state = 'R';
      holder.frames.edit().erase(holder.frames.edit().begin());
      CHECK(analyze(literal.job).verdict.status == VerdictStatus::kSymmetric);
    }
  }
}

TEST_CASE("how certain a lock's holder is depends on who says so") {
  LiteralJob literal = waits_for_lock();
  const auto [kind, certainty] =
      GENERATE(table<PythonLockKind, Certainty>({{PythonLockKind::kLock, Certainty::kLikely},
                                                 {PythonLockKind::kRLock, Certainty::kCertain},
                                                 {PythonLockKind::kModule, Certainty::kCertain}}));
  main_of(literal).python_lock = PythonLock{kind, {}, 201};
  const Analysis analysis = analyze(literal.job);
  for (const WaitEdge& edge : analysis.waits.edges()) {
    if (analysis.waits.nodes()[edge.to].kind == NodeKind::kLock) CHECK(edge.certainty == Certainty::kCertain);
    if (analysis.waits.nodes()[edge.from].kind == NodeKind::kLock) CHECK(edge.certainty == certainty);
  }
}

TEST_CASE("a thread waits for a lock where its frames have no names, too") {
  LiteralJob literal =
      waits_for_lock(Stack{unknown(kLibc, 0x123), unknown("/usr/bin/python3.14", 0x456)} + in_main(52));
  CHECK(verdict_text(literal).starts_with("user-code"));
  main_of(literal).python_lock = PythonLock{PythonLockKind::kRLock, {}, 202};
  CHECK(verdict_text(literal) ==
        "python-lock: rank 1 waits for an RLock (main at train.py:52), which its thread saver holds, in write_report "
        "at train.py:9 (sleeping)");
}

TEST_CASE("a lock whose holder is not known is described as before") {
  LiteralJob literal = waits_for_lock();
  const std::string before = verdict_text(literal);
  CHECK(before == "python-lock: rank 1 waits for a Python lock (main at train.py:52)");
  SECTION("nobody") {
    main_of(literal).python_lock = PythonLock{GENERATE(PythonLockKind::kLock, PythonLockKind::kCondition), {}, {}};
  }
  SECTION("no thread of the rank's") { main_of(literal).python_lock = PythonLock{PythonLockKind::kLock, {}, 999}; }
  CHECK(verdict_text(literal) == before);
}

TEST_CASE("locks taken in opposite order close the chain") {
  LiteralJob literal = waits_for_lock();
  RankSnapshot& rank = literal.job.ranks[1];
  ThreadSnapshot& other = literal.thread(rank, 203, "metrics", kWaitsForLock);
  other.python_lock = PythonLock{PythonLockKind::kLock, {}, 101};
  main_of(literal).python_lock = PythonLock{PythonLockKind::kLock, {}, 203};
  CHECK(chain(literal) ==
        "0:100 -frame-> in all_reduce -others-> 1:101 -memory-> a Python lock held by thread 203 -memory-> 1:203 "
        "-memory-> a Python lock held by thread 101 -memory-> 1:101");
}

TEST_CASE("a thread that is joined shows what the rank does, and no other") {
  const Stack joins = Stack{libc("sem_wait"), py("join", kThreading, 1)} + in_main(50);
  LiteralJob literal = waits_for_lock(joins);
  RankSnapshot& rank = literal.job.ranks[1];
  SECTION("which one is not known") {
    CHECK(verdict_text(literal).starts_with("user-code: rank 1 sleeps in its own code (write_report at train.py:9"));
  }
  SECTION("one that reads from a socket") {
    ThreadSnapshot& reader = literal.thread(
        rank, 203, "reader", Stack{libc("recv"), py("download", "/home/u/train.py", 8), py("run", kThreading, 2)});
    reader.syscall = call("recvfrom", 3, "tcp a -> b");
    CHECK(verdict_text(literal).starts_with("python-lock"));  // of those that sleep and the one that reads
    main_of(literal).joins = 203;
    CHECK(verdict_text(literal).starts_with("network-io: rank 1 waits for the network (download at train.py:8"));
    CHECK(chain(literal).starts_with("0:100 -frame-> in all_reduce -others-> 1:101 -memory-> 1:203"));
  }
  SECTION("one that waits for a lock in turn") {
    literal
        .thread(rank, 203, "flusher",
                Stack{libc("sem_wait"), py("flush", "/home/u/log.py", 4), py("run", kThreading, 2)})
        .python_lock = PythonLock{PythonLockKind::kLock, {}, 201};
    main_of(literal).joins = 203;
    CHECK(verdict_text(literal) ==
          "python-lock: rank 1 waits for a Python lock (flush at log.py:4), which its thread reporter holds, in "
          "write_report at train.py:9 (sleeping)");
    CHECK(chain(literal).find(
              "1:101 -memory-> 1:203 -memory-> a Python lock held by thread 201 -memory-> 1:201 -system-call-> ") !=
          std::string::npos);
  }
}
