// Jobs that train in a thread other than the main thread: what the main thread does says nothing about the rank.
#include <algorithm>
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
const Stack kCollective = {libc("pthread_cond_wait"), nat("c10d::Work::wait(int)"),
                           py("all_reduce", kPackages + "torch/distributed/distributed_c10d.py", 1541)};
const Motion kStill{.samples = 2, .places = 1, .span_ms = 450},
    kPolls{.samples = 2, .places = 2, .moved = true, .cpu_ms = 0.1, .runs = 3, .span_ms = 450};

Stack trainer(int line) { return Stack{py("train", "/home/u/train.py", line)} + kThreadRoot; }
bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// Four ranks whose main threads are idle; a thread of each trains, that of rank 2 in `odd`.
LiteralJob job_of(const Stack& standby, const Stack& odd, const Motion& of_main = kPolls) {
  LiteralJob literal;
  for (int r = 0; r < 4; ++r) {
    RankSnapshot& rank = literal.rank(r, 4, standby + in_main(50));
    rank.threads[0].motion = of_main;
    ThreadSnapshot& thread = literal.thread(rank, 900 + r, "trainer", r == 2 ? odd : kCollective + trainer(17));
    thread.state = 'S';
    thread.motion = kStill;
  }
  return literal;
}

const Stack kSleeps = {libc("clock_nanosleep"), nat("time_sleep", kPython)};
const Stack kJoins = {libc("sem_wait"), nat("PyThread_acquire_lock_timed", kPython),
                      py("join", kLib + "threading.py", 1112)};
const Stack kPauses = {libc("pause"), nat("signal_pause", kPython)};

}  // namespace

TEST_CASE("a hang of the training threads, whatever the main threads do meanwhile") {
  for (const Stack& standby : {kSleeps, kJoins, kPauses}) {
    LiteralJob literal = job_of(standby, Stack{libc("recv")} + trainer(19));
    literal.job.ranks[2].threads[1].syscall = call("recvfrom", 9, "tcp a -> b");
    const Verdict v = analyze(literal.job).verdict;
    CHECK(v.status == VerdictStatus::kCulprit);
    REQUIRE(v.suspects.size() == 1);
    CHECK((v.suspects[0].rank == 2 && v.suspects[0].reason == Reason::kNetworkIo));
    CHECK(has(v.summary, "train at train.py:19"));
    CHECK(has(v.summary, "while ranks 0-1,3 wait in all_reduce"));
  }
}

TEST_CASE("threads other than the training ones that every rank has decide nothing") {
  LiteralJob literal = job_of(kJoins, kSleeps + trainer(19), kStill);
  for (int r = 0; r < 4; ++r)
    literal
        .thread(
            literal.job.ranks[static_cast<std::size_t>(r)], 950 + r, "poller",
            Stack{libc("recv"), py("readinto", kLib + "socket.py", 7), py("poll", "/home/u/train.py", 9)} + kThreadRoot)
        .motion = kStill;
  const Verdict v = analyze(literal.job).verdict;
  REQUIRE(v.suspects.size() == 1);
  CHECK((v.suspects[0].rank == 2 && v.suspects[0].reason == Reason::kUserCode));
}

TEST_CASE("threads that always wait for ranks do not outvote the training ones") {
  const Stack listens =
      Stack{libc("recv"), nat("c10d::TCPStore::wait(...)"), py("listen", "/home/u/abort.py", 9)} + kThreadRoot;
  LiteralJob literal = job_of(kJoins, kSleeps + trainer(19), kStill);
  for (RankSnapshot& rank : literal.job.ranks)
    literal.thread(rank, rank.pid + 850, "listener", listens).motion = kStill;
  const Verdict v = analyze(literal.job).verdict;
  REQUIRE(v.suspects.size() == 1);
  CHECK((v.suspects[0].rank == 2 && v.suspects[0].reason == Reason::kUserCode));
}

TEST_CASE("a thread that one rank alone has, and that waits for ranks, accuses nobody") {
  LiteralJob literal;
  for (int r = 0; r < 4; ++r) literal.rank(r, 4, kSleeps + in_main(50)).threads[0].motion = kStill;
  literal
      .thread(literal.job.ranks[0], 950, "listener",
              kCollective + Stack{py("listen", "/home/u/abort.py", 9)} + kThreadRoot)
      .motion = kStill;
  CHECK(analyze(literal.job).verdict.status == VerdictStatus::kSymmetric);
}

TEST_CASE(
    "threads that wait for messages do not outvote those in a collective, and threads in the store not those that "
    "exchange messages") {
  const Stack receives = Stack{libc("pthread_cond_wait"), nat("gloo::transport::tcp::UnboundBuffer::waitRecv(int*)"),
                               nat("c10d::ProcessGroupGloo::RecvWork::wait(int)"),
                               py("recv", kPackages + "torch/distributed/distributed_c10d.py", 2500)};
  LiteralJob literal = job_of(kPauses, kCollective + trainer(17), kStill);
  for (int r = 0; r < 4; ++r)
    literal
        .thread(literal.job.ranks[static_cast<std::size_t>(r)], 950 + r, "inbox",
                (r == 2 ? kSleeps : receives) + Stack{py("inbox", "/home/u/mail.py", 9)} + kThreadRoot)
        .motion = kStill;
  CHECK(analyze(literal.job).verdict.status == VerdictStatus::kSymmetric);

  LiteralJob exchange = job_of(kPauses, receives + trainer(18), kStill);
  for (int r = 0; r < 4; ++r) {
    RankSnapshot& rank = exchange.job.ranks[static_cast<std::size_t>(r)];
    rank.threads.pop_back();
    exchange.thread(rank, 900 + r, "trainer", receives + trainer(18)).motion = kStill;
    exchange
        .thread(rank, 950 + r, "listener",
                (r == 0 ? kSleeps : Stack{libc("recv"), nat("c10d::TCPStore::wait(...)")}) +
                    Stack{py("listen", "/home/u/abort.py", 9)} + kThreadRoot)
        .motion = kStill;
  }
  for (const Suspect& suspect : analyze(exchange.job).verdict.suspects) CHECK_FALSE(has(suspect.summary, "listen"));
}

TEST_CASE("where half of the ranks have no training thread any more, those in the collective wait for them") {
  LiteralJob literal = job_of(kPauses, kCollective + trainer(17), kStill);
  for (const std::size_t r : {1U, 2U}) literal.job.ranks[r].threads.pop_back();
  const Verdict v = analyze(literal.job).verdict;
  CHECK(v.status == VerdictStatus::kCulprit);
  REQUIRE(v.suspects.size() == 2);
  CHECK((v.suspects[0].rank == 1 && v.suspects[1].rank == 2));
}

TEST_CASE("half of the ranks train in one function, half in another") {
  LiteralJob literal = job_of(kPauses, kCollective + trainer(17), kStill);
  for (const std::size_t r : {1U, 2U}) {
    literal.job.ranks[r].threads.pop_back();
    literal
        .thread(literal.job.ranks[r], 900 + static_cast<Tid>(r), "second stage",
                kCollective + Stack{py("train_second", "/home/u/train.py", 17)} + kThreadRoot)
        .motion = kStill;
  }
  CHECK(analyze(literal.job).verdict.suspects.empty());
  for (const std::size_t r : {1U, 2U}) {
    literal.job.ranks[r].threads.pop_back();
    literal
        .thread(literal.job.ranks[r], 900 + static_cast<Tid>(r), "trainer",
                kCollective + Stack{py("train", "/mnt/home/u/train.py", 17)} + kThreadRoot)
        .motion = kStill;
  }
  CHECK_FALSE(has(analyze(literal.job).verdict.summary, "pause"));
}

TEST_CASE("a helper's collective that one rank alone is in does not outvote the training threads") {
  LiteralJob literal = job_of(kPauses, kCollective + trainer(17), kStill);
  for (int r = 0; r < 4; ++r)
    literal
        .thread(literal.job.ranks[static_cast<std::size_t>(r)], 950 + r, "metrics",
                (r == 1 ? kCollective : kSleeps) + Stack{py("report", "/home/u/metrics.py", 9)} + kThreadRoot)
        .motion = kStill;
  CHECK(analyze(literal.job).verdict.suspects.empty());
}

TEST_CASE("one training thread in a collective accuses all that are elsewhere") {
  LiteralJob literal = job_of(kPauses, kCollective + trainer(17), kStill);
  for (const std::size_t r : {1U, 2U, 3U}) {
    RankSnapshot& rank = literal.job.ranks[r];
    rank.threads.pop_back();
    ThreadSnapshot& thread = literal.thread(rank, 900 + static_cast<Tid>(r), "trainer",
                                            Stack{libc("read"), py("load", "/home/u/data.py", 4)} + trainer(12));
    thread.motion = kStill;
    thread.syscall = call("read", 5, "/data/x");
  }
  const Verdict v = analyze(literal.job).verdict;
  CHECK(v.status == VerdictStatus::kCulprit);
  REQUIRE(v.suspects.size() == 3);
  CHECK(v.suspects[0].reason == Reason::kFileIo);
}

TEST_CASE("training threads that wait for their GPUs, in processes with NCCL's threads") {
  const Stack synchronizes = {nat("cuStreamSynchronize", "/usr/lib/libcuda.so.1"), nat("cudaStreamSynchronize"),
                              py("synchronize", kPackages + "torch/cuda/streams.py", 100)};
  LiteralJob literal = job_of(kPauses, Stack{libc("recv")} + trainer(19), kStill);
  for (int r = 0; r < 4; ++r) {
    RankSnapshot& rank = literal.job.ranks[static_cast<std::size_t>(r)];
    if (r == 2) {
      rank.threads.back().syscall = call("recvfrom", 9, "tcp a -> b");
    } else {
      rank.threads.pop_back();
      literal.thread(rank, 900 + r, "trainer", synchronizes + trainer(17)).motion = kStill;
    }
    literal
        .thread(rank, 970 + r, "pt_nccl_watchdg",
                {libc("pthread_cond_timedwait"), nat("c10d::ProcessGroupNCCL::watchdogHandler()")})
        .motion = kPolls;
  }
  const Verdict v = analyze(literal.job).verdict;
  REQUIRE(v.suspects.size() == 1);
  CHECK((v.suspects[0].rank == 2 && v.suspects[0].reason == Reason::kNetworkIo));
}

TEST_CASE("of several training threads that began alike, those that wait for ranks are compared") {
  LiteralJob literal = job_of(kJoins, kSleeps + trainer(22), kStill);
  for (int r = 0; r < 4; ++r) {
    RankSnapshot& rank = literal.job.ranks[static_cast<std::size_t>(r)];
    rank.threads.pop_back();
    literal.thread(rank, 900 + r, "trainer", kSleeps + trainer(22)).motion = kStill;
    literal.thread(rank, 950 + r, "trainer", r == 1 ? Stack{libc("recv")} + trainer(19) : kCollective + trainer(17))
        .motion = kStill;
    if (r == 1) rank.threads.back().syscall = call("recvfrom", 9, "tcp a -> b");
  }
  const Verdict v = analyze(literal.job).verdict;
  REQUIRE(v.suspects.size() == 1);
  CHECK((v.suspects[0].rank == 1 && v.suspects[0].reason == Reason::kNetworkIo));
}

TEST_CASE("training threads that move are healthy, all at one place symmetric") {
  LiteralJob literal = job_of(kSleeps, kCollective + trainer(17));
  CHECK(analyze(literal.job).verdict.status == VerdictStatus::kSymmetric);
  for (RankSnapshot& rank : literal.job.ranks) rank.threads[1].motion = kPolls;
  CHECK(analyze(literal.job).verdict.status == VerdictStatus::kHealthy);
}

TEST_CASE("main threads that differ, or wait for ranks themselves, decide") {
  LiteralJob literal = job_of(kSleeps, kCollective + trainer(17), kStill);
  literal.job.ranks[2].threads.erase(literal.job.ranks[2].threads.begin());
  literal
      .thread(literal.job.ranks[2], 102, "python3", Stack{libc("read"), py("load", "/home/u/data.py", 4)} + in_main(50))
      .syscall = call("read", 5, "/data/x");
  CHECK(analyze(literal.job).verdict.status != VerdictStatus::kSymmetric);

  LiteralJob mixed;
  for (int r = 0; r < 4; ++r) {
    RankSnapshot& rank = mixed.rank(r, 4, r == 2 ? kSleeps + in_main(30) : waits_in_all_reduce());
    mixed.thread(rank, 900 + r, "averager", kCollective + Stack{py("average", "/home/u/train.py", 3)} + kThreadRoot);
  }
  const Verdict v = analyze(mixed.job).verdict;
  REQUIRE(v.suspects.size() == 1);
  CHECK((v.suspects[0].rank == 2 && v.suspects[0].reason == Reason::kUserCode));
}

TEST_CASE("dead children that the waiting ranks have as well are no lost workers") {
  LiteralJob literal;
  for (int r = 0; r < 4; ++r)
    literal.rank(r, 4,
                 r == 2 ? Stack{libc("sem_wait"), nat("PyThread_acquire_lock_timed", kPython)} + in_main(30)
                        : waits_in_all_reduce());
  literal.child(102, {}, 'Z');
  CHECK(analyze(literal.job).verdict.suspects.at(0).reason == Reason::kWorkerDead);
  for (const Pid parent : {100, 101, 103}) literal.child(parent, {}, 'Z');
  CHECK(analyze(literal.job).verdict.suspects.at(0).reason == Reason::kPythonLock);
  literal.child(102, {}, 'Z');
  CHECK(analyze(literal.job).verdict.suspects.at(0).reason == Reason::kWorkerDead);
}

TEST_CASE("who is blocked in waitpid waits for a child that lives") {
  LiteralJob literal;
  for (int r = 0; r < 4; ++r)
    literal.rank(
        r, 4,
        r == 2 ? Stack{libc("wait4"), py("wait", kLib + "subprocess.py", 1)} + in_main(30) : waits_in_all_reduce());
  literal.job.ranks[2].threads[0].syscall = call("wait4");
  literal.child(102, {}, 'Z');
  CHECK(analyze(literal.job).verdict.suspects.at(0).reason == Reason::kSubprocess);
}

TEST_CASE("a lock of multiprocessing that is taken without Python code") {
  const std::string module = kLib + "lib-dynload/_multiprocessing.cpython-311-x86_64-linux-gnu.so";
  LiteralJob literal;
  for (int r = 0; r < 4; ++r)
    literal.rank(r, 4, r == 2 ? Stack{libc("sem_wait"), unknown(module, 0x10)} + in_main(30) : waits_in_all_reduce());
  const Verdict v = analyze(literal.job).verdict;
  CHECK(v.suspects.at(0).reason == Reason::kPythonLock);
  CHECK(has(v.summary, "rank 2 waits for a lock between processes"));
}

// CPython's SemLock gives the GIL back before it waits, and sem_post wakes up others.
TEST_CASE("a lock of multiprocessing that is given back, or taken at once, is no wait") {
  const std::string module = kLib + "lib-dynload/_multiprocessing.cpython-311-x86_64-linux-gnu.so";
  const auto verdict_of = [&](Stack inner, std::optional<Gil> gil) {
    LiteralJob literal;
    for (int r = 0; r < 4; ++r) literal.rank(r, 4, r == 2 ? inner + in_main(30) : waits_in_all_reduce());
    if (gil) literal.job.ranks[2].threads[0].gil = *gil;
    return analyze(literal.job).verdict;
  };
  const auto is_lock = [](const Verdict& v) {
    return std::any_of(v.suspects.begin(), v.suspects.end(),
                       [](const Suspect& s) { return s.reason == Reason::kPythonLock; });
  };
  const std::string file = kLib + "multiprocessing/synchronize.py";
  CHECK_FALSE(is_lock(verdict_of({libc("futex_wake"), libc("sem_post@GLIBC_2.2.5"), unknown(module, 0x10)}, {})));
  CHECK_FALSE(is_lock(verdict_of({unknown(module, 0x10), py("__exit__", file, 98)}, {})));
  CHECK_FALSE(is_lock(verdict_of({unknown(module, 0x10), py("wait", file, 261)}, Gil::kHolds)));
  CHECK(is_lock(verdict_of({unknown(module, 0x10), py("wait", file, 261)}, {})));
}

TEST_CASE("rank 0 of a server takes part in the work by a thread, while its main thread is an event loop") {
  const std::string kEngine = "/home/u/engine.py";
  const Stack loop = {libc("epoll_wait"), py("select", kLib + "selectors.py", 468),
                      py("_run_once", kLib + "asyncio/base_events.py", 1949),
                      py("run_forever", kLib + "asyncio/base_events.py", 641), py("serve", kEngine, 43)};
  const Stack forward = kCollective + Stack{py("forward", kEngine, 35)};
  LiteralJob literal;
  for (int r = 0; r < 4; ++r) {
    const Stack own = r == 0   ? loop
                      : r == 2 ? Stack{py("compile", kEngine, 82), py("forward", kEngine, 33), py("serve", kEngine, 49)}
                               : forward + Stack{py("serve", kEngine, 49)};
    RankSnapshot& rank = literal.rank(r, 4, own + in_main(50), r == 2 ? 'R' : 'S');
    if (r == 0) rank.threads[0].syscall = call("epoll_wait", 94, "anon_inode:[eventpoll]");
  }
  const auto suspects = [&] {
    std::string text;
    for (const Suspect& s : analyze(literal.job).verdict.suspects)
      text += std::to_string(s.rank) + ":" + std::string(to_string(s.reason)) + " ";
    return text;
  };
  SECTION("without such a thread the loop may await what another rank does") { CHECK(suspects() == "2:user-code "); }
  SECTION("if no other rank is elsewhere, they wait for the loop") {
    literal.job.ranks.pop_back();
    literal.job.ranks.pop_back();
    for (RankSnapshot& rank : literal.job.ranks) rank.world_size = 2;
    CHECK(suspects() == "0:network-io ");
  }
  SECTION("with it, the rank waits as the others do") {
    const Stack asks = {libc("sem_wait"), nat("PyThread_acquire_lock_timed", kPython),
                        py("wait", kLib + "threading.py", 355), py("get", kLib + "queue.py", 171),
                        py("ask", kEngine, 54)};
    literal.thread(literal.job.ranks[0], 902, "executor", asks + kThreadRoot).state = 'S';
    literal.job.ranks[2].threads[0].syscall = call("accept", 5);
    literal.job.ranks[2].threads[0].state = 'S';
    literal.thread(literal.job.ranks[0], 901, "scheduler", forward + Stack{py("schedule", kEngine, 60)} + kThreadRoot)
        .state = 'S';
    const auto waits = [&](std::size_t rank) {
      return analyze(literal.job).activities.at(rank).value().kind == "in-collective";
    };
    CHECK(waits(0));
    CHECK(suspects() == "2:network-io ");
  }
}
