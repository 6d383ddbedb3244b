// A thread that would fill the queue that a rank waits for has ended; the other ranks have it.
#include <catch2/catch.hpp>

#include "analyzers/analysis.h"
#include "support/literal_job.h"

using namespace rankstacks;
using namespace rankstacks::analyzers;
using namespace rankstacks::testing;

namespace {

const std::string kLib = "/usr/lib/python3.11/";
const std::string kPython = "/usr/bin/python3.11";
const Stack kThreadRoot = {py("run", kLib + "threading.py", 975), py("_bootstrap_inner", kLib + "threading.py", 1038),
                           py("_bootstrap", kLib + "threading.py", 995)};
const Stack kWaits = {libc("sem_wait"), nat("PyThread_acquire_lock_timed", kPython),
                      py("wait", kLib + "threading.py", 320)};
const Stack kGets = kWaits + Stack{py("get", kLib + "queue.py", 171), py("next_batch", "/home/u/train.py", 12)};
const Stack kPrefetch = kWaits + Stack{py("put", kLib + "queue.py", 140), py("prefetch", "/home/u/data.py", 9)};

// Rank 1 gets from a queue; the other ranks wait in a collective, and have the thread that fills it.
LiteralJob job_of(int ranks = 3, const Stack& thread = kPrefetch + kThreadRoot) {
  LiteralJob literal;
  for (int r = 0; r < ranks; ++r) {
    RankSnapshot& rank = literal.rank(r, ranks, r == 1 ? kGets + in_main(15) : waits_in_all_reduce());
    rank.threads[0].syscall = call("futex");
    if (r != 1) literal.thread(rank, rank.pid + 900, "prefetch", thread).state = 'S';
  }
  return literal;
}

Suspect only_suspect(const LiteralJob& literal) {
  const Verdict v = analyze(literal.job).verdict;
  REQUIRE(v.suspects.size() == 1);
  CHECK(v.suspects[0].rank == 1);
  return v.suspects[0];
}

}  // namespace

TEST_CASE("a rank has lost the thread that the others have") {
  for (const int ranks : {2, 3, 8}) {
    const Suspect one = only_suspect(job_of(ranks));
    CHECK(one.reason == Reason::kWorkerDead);
    CHECK(one.summary.find("waits for a queue to be filled") != std::string::npos);
    CHECK(one.summary.find("has no thread in prefetch of data.py as the other ranks have") != std::string::npos);
    CHECK(one.advice.find("that thread has ended") != std::string::npos);
  }
}

TEST_CASE("a rank whose main thread serves a page has lost the thread that trains") {
  const Stack serves = {libc("poll"), py("select", kLib + "selectors.py", 415),
                        py("serve_forever", kLib + "socketserver.py", 235)};
  const auto served = [&](int ranks, const Stack& trains) {
    LiteralJob literal;
    for (int r = 0; r < ranks; ++r) {
      RankSnapshot& rank = literal.rank(r, ranks, serves + in_main(15));
      rank.threads[0].syscall = call("poll", 3, "tcp 127.0.0.1:80 (listening)");
      rank.threads[0].syscall->listens = true;
      if (r != 1) literal.thread(rank, rank.pid + 900, "trainer", trains + kThreadRoot).state = 'S';
    }
    return literal;
  };
  for (const int ranks : {2, 3, 8}) {
    const LiteralJob literal = served(ranks, waits_in_all_reduce());
    const Suspect one = only_suspect(literal);
    CHECK(one.reason == Reason::kWorkerDead);
    CHECK(one.summary.find("has no thread in ") != std::string::npos);
    CHECK(one.summary.find("waits for requests") != std::string::npos);
  }
  SECTION("it has another thread of its own") {
    LiteralJob literal = served(3, waits_in_all_reduce());
    literal.thread(literal.job.ranks[1], 990, "worker", kPrefetch + kThreadRoot).state = 'S';
    CHECK(analyze(literal.job).verdict.suspects.empty());
  }
  SECTION("what the others wait for comes from one rank, which may have no request") {
    const Stack broadcast = Stack{libc("pthread_cond_wait"), nat("c10d::Work::wait(int)"),
                                  py("broadcast", kPackages + "torch/distributed/distributed_c10d.py", 1408)} +
                            in_main(17);
    CHECK(analyze(served(3, broadcast).job).verdict.suspects.empty());
  }
  SECTION("two jobs, of which one has nothing to do") {
    LiteralJob literal = served(2, waits_in_all_reduce());
    literal.job.ranks[1].rank = 0;
    literal.job.ranks[1].host = "other";
    CHECK(analyze(literal.job).verdict.suspects.empty());
  }
  SECTION("the threads of the others wait for no rank") {
    CHECK(analyze(served(3, kPrefetch).job).verdict.suspects.empty());
  }
}

TEST_CASE("a queue that nobody fills is a wait for a lock, unless the threads show which thread is gone") {
  SECTION("the others have no thread of their own either") {
    LiteralJob literal = job_of();
    for (RankSnapshot& rank : literal.job.ranks) rank.threads.resize(1);
    CHECK(only_suspect(literal).reason == Reason::kPythonLock);
  }
  SECTION("only some of the others have it") {
    LiteralJob literal = job_of();
    literal.job.ranks[2].threads.resize(1);
    CHECK(only_suspect(literal).reason == Reason::kPythonLock);
  }
  SECTION("the rank has another thread, which may fill it") {
    LiteralJob literal = job_of();
    literal.thread(literal.job.ranks[1], 1900, "feeder",
                   Stack{libc("read"), py("feed", "/home/u/feed.py", 4)} + kThreadRoot);
    CHECK(only_suspect(literal).reason == Reason::kPythonLock);
  }
  SECTION("the rank was read in part: the thread may be among those that are not known") {
    LiteralJob literal = job_of();
    literal.job.ranks[1].status = Status::kPartial;
    CHECK(only_suspect(literal).reason == Reason::kPythonLock);
  }
  SECTION("the threads of the others are a library's") {
    const Stack of_library = kWaits + Stack{py("run", kPackages + "tqdm/_monitor.py", 60)} + kThreadRoot;
    CHECK(only_suspect(job_of(3, of_library)).reason == Reason::kPythonLock);
  }
}
