// Ranks whose native code waits for another thread: of its own process, or of another one by memory that they share.
#include <catch2/catch.hpp>

#include <map>

#include "analyzers/analysis.h"
#include "analyzers/native_waits.h"
#include "support/literal_job.h"

using namespace rankstacks;
using namespace rankstacks::analyzers;
using namespace rankstacks::testing;

namespace {

const std::string kSolver = "/home/u/solver";

Stack in_solver(const std::string& function) { return {nat(function, kSolver), nat("main", kSolver)}; }
Stack in_mpi() { return Stack{nat("opal_progress", "/usr/lib/libopen-pal.so.40"), nat("MPI_Allreduce", kSolver)}; }

RankSnapshot& solver(LiteralJob& literal, int number, const Stack& stack) {
  RankSnapshot& rank = literal.rank(number, 4, stack);
  rank.python_version.reset();
  return rank;
}

void moves(ThreadSnapshot& thread, int runs, bool moved) {
  Motion motion;
  motion.samples = 8;
  motion.places = moved ? 3 : 1;
  motion.moved = moved;
  motion.runs = runs;
  motion.span_ms = 900;
  thread.motion = motion;
}

// The main thread of rank 2 is in `inner`; the others are in a collective.
LiteralJob rank_2_in(const Stack& inner) {
  LiteralJob literal;
  for (int r = 0; r < 4; ++r) solver(literal, r, r == 2 ? inner + in_solver("step()") : in_mpi() + in_solver("sum()"));
  moves(literal.job.ranks[2].threads[0], 0, false);
  return literal;
}

std::string said_of_rank_2(const LiteralJob& literal) {
  const Verdict v = analyze(literal.job).verdict;
  if (v.suspects.size() != 1 || v.suspects[0].rank != 2) return std::string(to_string(v.status)) + ": " + v.summary;
  return std::string(to_string(v.suspects[0].reason)) + ": " + v.suspects[0].summary;
}
bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

std::map<int, std::string> accused(const LiteralJob& literal) {
  std::map<int, std::string> reasons;
  for (const Suspect& s : analyze(literal.job).verdict.suspects)
    reasons[*literal.job.ranks[s.rank].rank] = to_string(s.reason);
  return reasons;
}
using Accused = std::map<int, std::string>;

// Four processes of which all but rank 2 are in `inner`, a wait in shared memory. Rank 2 reads a file.
LiteralJob meet_in_memory(const Stack& inner) {
  LiteralJob literal;
  for (int r = 0; r < 4; ++r)
    solver(literal, r, (r == 2 ? Stack{libc("read")} : inner) + in_solver(r == 2 ? "load()" : "meet()"));
  literal.job.ranks[2].threads[0].syscall = call("read", 5, "/data/mesh");
  return literal;
}

}  // namespace

TEST_CASE("native code that waits for another thread of its process") {
  CHECK(has(said_of_rank_2(rank_2_in({libc("pthread_cond_wait")})),
            "native-lock: rank 2 waits for a condition of its own threads (step()"));
  CHECK(has(said_of_rank_2(rank_2_in({libc("__new_sem_wait")})), "native-lock: rank 2 waits for a semaphore"));
  CHECK(has(said_of_rank_2(rank_2_in({libc("pthread_barrier_wait")})), "native-lock: rank 2 waits at a barrier"));
  CHECK(
      has(said_of_rank_2(rank_2_in({libc("__pthread_clockjoin_ex"), nat("std::thread::join()", "/x/libstdc++.so.6")})),
          "native-lock: rank 2 waits for a thread to end"));
  SECTION("the header's function that has called the C library is not the place") {
    Frame inlined = nat("std::condition_variable::wait<take()::{lambda()#1}>()", kSolver);
    inlined.file = "/usr/include/c++/12/condition_variable";
    inlined.line = 102;
    CHECK(has(said_of_rank_2(rank_2_in({libc("pthread_cond_wait"), inlined})), "own threads (step()"));
  }
  SECTION("it ran between the samples: it works with its threads") {
    LiteralJob literal = rank_2_in({libc("pthread_cond_wait")});
    moves(literal.job.ranks[2].threads[0], 50, true);
    CHECK(has(said_of_rank_2(literal), "user-code"));
  }
  SECTION("it is woken again and again, and waits on: not at work, unless the wait has a time limit") {
    LiteralJob literal = rank_2_in({libc("pthread_cond_wait")});
    moves(literal.job.ranks[2].threads[0], 250, false);
    CHECK(has(said_of_rank_2(literal), "native-lock: rank 2 waits for a condition of its own threads"));
    LiteralJob limited = rank_2_in({libc("pthread_cond_timedwait")});
    moves(limited.job.ranks[2].threads[0], 250, false);
    CHECK(has(said_of_rank_2(limited), "user-code"));
    SECTION("or one of its threads computes") {
      ThreadSnapshot& other = literal.thread(literal.job.ranks[2], 900, "pool", in_solver("sweep()"));
      other.state = 'R';
      moves(other, 250, false);
      other.motion->cpu_ms = 800;
      CHECK(has(said_of_rank_2(literal), "user-code"));
    }
  }
  SECTION("for the end of a thread that sleeps, or that waits in turn") {
    LiteralJob literal = rank_2_in({libc("pthread_join")});
    RankSnapshot& rank = literal.job.ranks[2];
    rank.threads[0].joins = 900;
    ThreadSnapshot& joined = literal.thread(rank, 900, "pool", Stack{libc("pause")} + in_solver("rest()"));
    joined.state = 'S';
    CHECK(has(said_of_rank_2(literal), "user-code"));
    joined.frames.edit().front() = literal.job.frames.intern(libc("pthread_cond_wait"));
    CHECK(has(said_of_rank_2(literal), "native-lock: rank 2 waits for a thread to end"));
  }
  SECTION("it was sampled once: it may work with its threads") {
    LiteralJob literal = rank_2_in({libc("pthread_cond_wait")});
    literal.job.ranks[2].threads[0].motion.reset();
    CHECK(has(said_of_rank_2(literal), "user-code"));
  }
  SECTION("the interpreter's own waits are Python's locks") {
    LiteralJob literal;
    const ThreadSnapshot& thread = literal.rank(0, 1, {libc("sem_wait"), nat("x", "/usr/bin/python3.11")}).threads[0];
    CHECK(native_wait_of(literal.job, thread) == NativeWait::kNone);
  }
}

TEST_CASE("a futex of native code that no function names") {
  const Stack in_openmp = {unknown("/usr/lib/libgomp.so.1", 0x1e2fd), unknown("/usr/lib/libgomp.so.1", 0x1d000)};
  LiteralJob literal = rank_2_in(in_openmp);
  ThreadSnapshot& main = literal.job.ranks[2].threads[0];
  main.syscall = call("futex");
  CHECK(has(said_of_rank_2(literal), "native-lock: rank 2 waits for another thread in native code (step()"));
  SECTION("while one of its threads computes, it may wait for that one's work") {
    ThreadSnapshot& other = literal.thread(literal.job.ranks[2], 900, "pool", in_solver("sweep()"));
    other.state = 'R';
    moves(other, 250, false);
    other.motion->cpu_ms = 800;
    CHECK(has(said_of_rank_2(literal), "user-code"));
  }
  SECTION("it ran: a wait with a time limit has no other name") {
    moves(main, 50, false);
    CHECK(has(said_of_rank_2(literal), "user-code"));
  }
  SECTION("the C library has no symbols") {
    LiteralJob nameless = rank_2_in({unknown(kLibc, 0x98e51), unknown(kLibc, 0xa5098)});
    nameless.job.ranks[2].threads[0].syscall = call("futex");
    CHECK(has(said_of_rank_2(nameless), "native-lock: rank 2 waits for another thread in native code"));
  }
  SECTION("in another system call nothing is known of a lock") {
    main.syscall = call("pause");
    CHECK(has(said_of_rank_2(literal), "user-code"));
  }
  SECTION("the interpreter's own futexes are Python's locks") {
    LiteralJob interpreter;
    ThreadSnapshot& thread = interpreter.rank(0, 1, {libc("syscall"), nat("x", "/usr/bin/python3.11")}).threads[0];
    thread.syscall = call("futex");
    CHECK(!stands_in_futex(interpreter.job, thread));
  }
}

TEST_CASE("threads of a rank wait for each other's locks, and its main thread for one of them") {
  LiteralJob literal =
      rank_2_in({libc("syscall"),
                 nat("std::__atomic_futex_unsigned_base::_M_futex_wait_until(unsigned int*)", "/x/libstdc++.so.6")});
  RankSnapshot& rank = literal.job.ranks[2];
  rank.threads[0].syscall = call("futex");
  const auto takes = [&](Tid tid, Tid owner, const std::string& function) {
    ThreadSnapshot& thread = literal.thread(rank, tid, "pool", Stack{libc("pthread_mutex_lock")} + in_solver(function));
    thread.state = 'S';
    thread.syscall = call("futex");
    thread.lock_owner = owner;
  };
  takes(901, 902, "save()");
  SECTION("one of them holds the lock, and is at something else") {
    ThreadSnapshot& holder = literal.thread(rank, 902, "pool", Stack{libc("pause")} + in_solver("rest()"));
    holder.state = 'S';
    holder.syscall = call("pause");
    CHECK(!has(said_of_rank_2(literal), "each other's locks"));
  }
  SECTION("in a circle") {
    takes(902, 901, "load()");
    CHECK(has(said_of_rank_2(literal),
              "native-lock: rank 2 waits for another thread in native code (step() in solver, blocked in futex), and "
              "its threads 901 (save() in solver) and 902 (load() in solver) wait for each other's locks"));
    const Analysis analysis = analyze(literal.job);
    REQUIRE(analysis.verdict.chains.size() == 1);
    std::vector<std::string> chain;
    for (const auto& link : analysis.verdict.chains[0].links) chain.push_back(analysis.waits.nodes()[link.node].text);
    CHECK(chain.size() >= 5);
    CHECK(chain[chain.size() - 2] == "a native lock held by thread 901");
    SECTION("of two circles, either may be the one that counts") {
      takes(903, 903, "free()");
      CHECK(!has(said_of_rank_2(literal), "each other's locks"));
    }
  }
  SECTION("one holds it itself") {
    rank.threads.back().lock_owner = 901;
    CHECK(has(said_of_rank_2(literal), "and its thread 901 (save() in solver) waits for a lock that it holds itself"));
  }
}

TEST_CASE("most processes wait in memory that they share, and have no thread that could come") {
  for (const char* wait : {"pthread_barrier_wait", "sem_wait", "pthread_cond_wait"})
    CHECK(accused(meet_in_memory({libc(wait)})) == Accused{{2, "file-io"}});
  SECTION("one of their threads could") {
    LiteralJob literal = meet_in_memory({libc("pthread_barrier_wait")});
    for (int r : {0, 1, 3})
      literal.thread(literal.job.ranks[r], 900 + r, "pool", Stack{libc("read")} + in_solver("fetch()"));
    CHECK(accused(literal).empty());
  }
  SECTION("no majority waits so") {
    LiteralJob literal = meet_in_memory({libc("pthread_barrier_wait")});
    literal.job.ranks[3].threads[0].frames = literal.job.ranks[2].threads[0].frames;
    literal.job.ranks[3].threads[0].syscall = literal.job.ranks[2].threads[0].syscall;
    CHECK(accused(literal).empty());
  }
  SECTION("all of them do: nobody differs") {
    LiteralJob literal;
    for (int r = 0; r < 4; ++r) solver(literal, r, Stack{libc("pthread_barrier_wait")} + in_solver("meet()"));
    CHECK(analyze(literal.job).verdict.status == VerdictStatus::kSymmetric);
  }
}

namespace {

// Cores of four ranks of a program without line numbers. Rank 2 is in `inner`, the others read from a socket.
LiteralJob cores_with_rank_2_in(const Stack& inner, const std::string& syscall) {
  LiteralJob literal;
  for (int r = 0; r < 4; ++r) {
    RankSnapshot& rank = solver(literal, r, (r == 2 ? inner : Stack{libc("recv")}) + Stack{nat("main", kSolver)});
    rank.source = Source::kCore;
    rank.threads[0].state.reset();
    rank.threads[0].syscall = r == 2 ? call(syscall) : call("recvfrom", 5);
  }
  return literal;
}

}  // namespace

TEST_CASE("cores, in which a socket has no other end: who waits within its own process differs from those that read") {
  LiteralJob literal = cores_with_rank_2_in({libc("pthread_cond_wait")}, "futex");
  RankSnapshot& rank = literal.job.ranks[2];
  CHECK(has(said_of_rank_2(literal), "native-lock: rank 2 waits for a condition of its own threads (main in solver"));
  CHECK(has(analyze(literal.job).verdict.summary, "while ranks 0-1,3 wait for what comes over a connection"));
  const auto undecided_about_rank_2 = [&] {
    const Verdict v = analyze(literal.job).verdict;
    return v.status == VerdictStatus::kUndecided && v.candidates.at(0).rank == 2 && v.candidates[0].summary != "";
  };
  SECTION("its other threads take locks") {
    literal.thread(rank, 901, "", Stack{libc("pthread_mutex_lock")} + in_solver("put()")).syscall = call("futex");
    CHECK(accused(literal) == Accused{{2, "native-lock"}});
  }
  SECTION("a thread of it sleeps: perhaps in a task for which the main thread waits") {
    literal.thread(rank, 900, "", Stack{libc("usleep")} + in_solver("tick()")).syscall = call("clock_nanosleep");
    CHECK(undecided_about_rank_2());
  }
  SECTION("a thread of it receives: what that waits for may be another rank") {
    literal.thread(rank, 900, "", Stack{libc("recv")} + in_solver("receive()")).syscall = call("recvfrom", 7);
    CHECK(undecided_about_rank_2());
    CHECK(has(analyze(literal.job).verdict.summary, "rank 2 differs: it waits for a condition of its own threads"));
  }
  SECTION("a thread of it was running: it may be at work") {
    literal.thread(rank, 900, "", in_solver("sweep()"));
    CHECK(undecided_about_rank_2());
  }
  SECTION("as many wait so as receive") {
    literal.job.ranks[0].threads[0].frames = rank.threads[0].frames;
    literal.job.ranks[0].threads[0].syscall = call("futex");
    CHECK(accused(literal).empty());
    CHECK(analyze(literal.job).verdict.status == VerdictStatus::kUndecided);
  }
  SECTION("of two ranks, one") {
    LiteralJob two = cores_with_rank_2_in({libc("pthread_cond_wait")}, "futex");
    two.job.ranks.pop_back();
    two.job.ranks.erase(two.job.ranks.begin());
    for (std::size_t r = 0; r < 2; ++r) two.job.ranks[r].rank = static_cast<int>(r), two.job.ranks[r].world_size = 2;
    CHECK(accused(two) == Accused{{1, "native-lock"}});
  }
  SECTION("the core of a rank is not at hand, and that rank may be the one") {
    literal.job.ranks.pop_back();
    CHECK(accused(literal).empty());
    CHECK(analyze(literal.job).verdict.status == VerdictStatus::kUndecided);
  }
  SECTION("it computes: this may be a moment like any other") {
    rank.threads[0].frames = {literal.job.frames.intern(nat("main", kSolver))};
    rank.threads[0].syscall.reset();
    CHECK(accused(literal).empty());
    CHECK(analyze(literal.job).verdict.status != VerdictStatus::kSymmetric);
  }
  SECTION("all read") {
    rank.threads[0].frames = literal.job.ranks[0].threads[0].frames;
    rank.threads[0].syscall = call("recvfrom", 6);
    CHECK(analyze(literal.job).verdict.status == VerdictStatus::kSymmetric);
  }
  SECTION("while the job runs the kernel may tell no other end either: then nobody is accused, and nobody alike") {
    for (RankSnapshot& one : literal.job.ranks) {
      one.source = Source::kLive;
      one.threads[0].state = 'S';
      moves(one.threads[0], 0, false);
    }
    CHECK(undecided_about_rank_2());
    CHECK(has(analyze(literal.job).verdict.summary, "rank 2 differs: it waits for a condition of its own threads"));
  }
}
