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
  SECTION("for the end of a thread that sleeps, or that waits in turn") {
    LiteralJob literal = rank_2_in({libc("pthread_join")});
    RankSnapshot& rank = literal.job.ranks[2];
    rank.threads[0].joins = 900;
    ThreadSnapshot& joined = literal.thread(rank, 900, "pool", Stack{libc("pause")} + in_solver("rest()"));
    joined.state = 'S';
    CHECK(has(said_of_rank_2(literal), "user-code"));
    joined.frames.front() = literal.job.frames.intern(libc("pthread_cond_wait"));
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
