// A rank that waits for something that is not another rank: what it waits for, and the advice.
#include <catch2/catch.hpp>

#include "analyzers/analysis.h"
#include "support/literal_job.h"

using namespace rankstacks;
using namespace rankstacks::analyzers;
using namespace rankstacks::testing;

namespace {

const std::string kLib = "/usr/lib/python3.11/";

// Rank 2 of four is in `inner`, called by its main program; the others wait in a collective.
LiteralJob rank_2_in(const Stack& inner, std::optional<SyscallInfo> syscall = {}) {
  LiteralJob literal;
  for (int r = 0; r < 4; ++r) literal.rank(r, 4, r == 2 ? inner + in_main(30) : waits_in_all_reduce());
  literal.job.ranks[2].threads[0].syscall = std::move(syscall);
  return literal;
}

// "file-io: cannot write its output (...)" for rank 2 if it is the only suspect; else the status and the summary.
std::string verdict_text(const LiteralJob& literal) {
  const Verdict v = analyze(literal.job).verdict;
  if (v.suspects.size() != 1 || v.suspects[0].rank != 2) return std::string(to_string(v.status)) + ": " + v.summary;
  return std::string(to_string(v.suspects[0].reason)) + ": " +
         v.suspects[0].summary.substr(std::string("rank 2 ").size());
}
std::string advice(const LiteralJob& literal) { return analyze(literal.job).verdict.suspects.at(0).advice; }
bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

const Stack kLockWait = {libc("sem_wait"), nat("PyThread_acquire_lock_timed", "/usr/bin/python3.11")};

}  // namespace

TEST_CASE("output that nobody takes is file I/O") {
  for (const std::string target : {"pipe:[5]", "/dev/pts/3", "/dev/tty"}) {
    const LiteralJob literal = rank_2_in({libc("write"), py("log", "/home/u/train.py", 7)}, call("write", 1, target));
    CHECK(verdict_text(literal) ==
          "file-io: cannot write its output (log at train.py:7, blocked in write(fd 1 -> " + target + "))");
    CHECK(has(advice(literal), "reader of that pipe"));
  }
  CHECK(has(verdict_text(rank_2_in({libc("write"), py("log", "/home/u/train.py", 7)}, call("write", 2))),
            "file-io: cannot write its output"));  // a core
  CHECK(has(verdict_text(rank_2_in({libc("write"), py("log", "/home/u/train.py", 7)}, call("write", 9))), "user-code"));
  CHECK(has(verdict_text(rank_2_in({libc("write"), py("log", "/home/u/train.py", 7)}, call("write", 9, "/data/x"))),
            "file-io: is blocked in file I/O"));
  CHECK(has(verdict_text(
                rank_2_in({libc("write"), py("log", "/home/u/train.py", 7)}, call("write", 9, "anon_inode:[eventfd]"))),
            "user-code"));
}

TEST_CASE("a core does not say what a descriptor is, nor whether a child is alive") {
  LiteralJob literal = rank_2_in({libc("read"), py("load", "/home/u/train.py", 7)}, call("read", 9));
  CHECK(verdict_text(literal) == "user-code: is in its own code (load at train.py:7, blocked in read(fd 9))");
  literal.job.ranks[2].source = Source::kCore;
  CHECK(verdict_text(literal) ==
        "user-code: is in its own code (load at train.py:7, blocked in read(fd 9); whether at a file, a pipe or a "
        "socket is not in the core)");
  literal = rank_2_in({libc("poll"), py("load", "/home/u/train.py", 7)}, call("poll", 9));
  literal.job.ranks[2].source = Source::kCore;
  CHECK(has(verdict_text(literal), "blocked in poll(fd 9))"));  // no file: these are always ready
  const Stack get = {libc("read"), py("recv", kLib + "multiprocessing/connection.py", 378),
                     py("get", kLib + "multiprocessing/queues.py", 103), py("load", "/home/u/train.py", 7)};
  literal = rank_2_in(get, call("read", 9));
  literal.job.ranks[2].source = Source::kCore;
  CHECK(has(verdict_text(literal), "subprocess: "));
  CHECK(has(verdict_text(literal), "blocked in read(fd 9); whether the child is alive is not in the core)"));
  // What the user's code receives may as well come from another rank.
  const Stack receive = {libc("read"), py("_recv", kLib + "multiprocessing/connection.py", 395),
                         py("recv", kLib + "multiprocessing/connection.py", 378), py("load", "/home/u/train.py", 7)};
  literal = rank_2_in(receive, call("read", 9));
  literal.job.ranks[2].source = Source::kCore;
  CHECK(verdict_text(literal) ==
        "subprocess: waits for the other end of a connection (load at train.py:7, blocked in read(fd 9); whether a "
        "child or another rank is there is not in the core)");
  // A wait for a dead child returns.
  literal = rank_2_in({libc("wait4"), py("load", "/home/u/train.py", 7)}, call("wait4"));
  literal.job.ranks[2].source = Source::kCore;
  CHECK(has(verdict_text(literal), "blocked in wait4)"));
}

TEST_CASE("locks on files, by each of their calls") {
  for (const std::string name : {"flock", "fcntl"}) {
    const LiteralJob literal = rank_2_in({libc(name), py("lock", "/home/u/train.py", 7)}, call(name, 9, "/data/lock"));
    CHECK(has(verdict_text(literal), "file-io: waits for a file lock (lock at train.py:7, blocked in " + name));
    CHECK(has(advice(literal), "lslocks"));
  }
  CHECK(has(verdict_text(rank_2_in({libc("fcntl"), py("lock", "/home/u/train.py", 7)})),
            "file-io: waits for a file lock"));  // a core
}

TEST_CASE("a socket that is polled is the network") {
  for (const std::string name : {"poll", "pselect6"}) {
    CHECK(has(verdict_text(rank_2_in({libc(name), py("fetch", "/home/u/train.py", 7)},
                                     call(name, 9, "tcp 10.0.0.1:4 -> 10.0.0.2:5432"))),
              "network-io: waits for the network (fetch at train.py:7"));
    CHECK(has(verdict_text(
                  rank_2_in({libc(name), py("fetch", "/home/u/train.py", 7)}, call(name, 9, "anon_inode:[eventfd]"))),
              "user-code"));
    CHECK(has(verdict_text(rank_2_in({libc(name), py("fetch", "/home/u/train.py", 7)}, call(name))), "user-code"));
  }
}

TEST_CASE("SQLite sleeps between two tries for a lock") {
  const std::string sqlite = "/usr/lib/libsqlite3.so.0.8.6";
  CHECK(has(verdict_text(rank_2_in({libc("clock_nanosleep"), libc("usleep"), unknown(sqlite, 0x10),
                                    nat("sqlite3_step", sqlite), py("save", "/home/u/train.py", 7)},
                                   call("clock_nanosleep"))),
            "file-io: waits for a locked SQLite database (save at train.py:7"));
  CHECK(has(
      verdict_text(rank_2_in({unknown(sqlite, 0x10), nat("sqlite3_step", sqlite), py("save", "/home/u/train.py", 7)})),
      "user-code"));
  SyscallInfo tries = call("clock_nanosleep");
  tries.others.push_back({.pid = 4711, .kind = EndKind::kDatabase, .command = "python3 sweep.py"});
  tries.database = "/data/trials.db";
  CHECK(verdict_text(rank_2_in(
            {libc("clock_nanosleep"), libc("usleep"), unknown(sqlite, 0x10), py("save", "/home/u/train.py", 7)},
            tries)) ==
        "file-io: waits for a locked SQLite database (save at train.py:7, blocked in clock_nanosleep for a lock of the "
        "database trials.db, held by pid 4711 (python3 sweep.py))");
  CHECK(has(verdict_text(rank_2_in(
                {libc("clock_nanosleep"), nat("time_sleep", "/usr/bin/python3.11"), py("save", "/home/u/train.py", 7)},
                call("clock_nanosleep"))),
            "user-code"));
}

TEST_CASE("an event loop: its pool's threads show what it waits for, else it waits for what its tasks await") {
  const Stack loop = {libc("epoll_wait"), py("select", kLib + "selectors.py", 468),
                      py("_run_once", kLib + "asyncio/base_events.py", 1884),
                      py("run_forever", kLib + "asyncio/base_events.py", 607)};
  const Stack pool = {py("run", kLib + "concurrent/futures/thread.py", 58),
                      py("_worker", kLib + "concurrent/futures/thread.py", 83), py("run", kLib + "threading.py", 975)};
  const Stack collective = {libc("pthread_cond_wait"), nat("c10d::Work::wait(int)"),
                            py("all_reduce", kPackages + "torch/distributed/distributed_c10d.py", 1541)};
  LiteralJob literal;
  for (int r = 0; r < 4; ++r) {
    RankSnapshot& rank = literal.rank(r, 4, loop + in_main(30));
    rank.threads[0].syscall = call("epoll_wait", 5, "anon_inode:[eventpoll]");
    literal.thread(rank, 900 + r, "asyncio_0",
                   r == 2 ? Stack{libc("sem_wait"), nat("PyThread_acquire_lock_timed", "/usr/bin/python3.11")} +
                                Stack{pool[1], pool[2]}
                          : collective + pool);
  }
  SECTION("a task of rank 2 awaits something of the program itself: its loop watches its own descriptor alone") {
    for (RankSnapshot& rank : literal.job.ranks) *rank.threads[0].syscall->fd_target += " of 1 descriptor";
    CHECK(
        has(verdict_text(literal), "user-code: waits in its event loop, which watches no socket (main at train.py:30"));
  }
  SECTION("it awaits the end of a child, by a thread of asyncio's") {
    literal.job.ranks[2].threads[0].syscall->fd_target = "anon_inode:[eventpoll] of 1 descriptor";
    literal.thread(literal.job.ranks[2], 950, "waitpid-0",
                   {libc("wait4"), py("_do_waitpid", kLib + "asyncio/unix_events.py", 1400),
                    py("run", kLib + "threading.py", 975)});
    CHECK(has(verdict_text(literal), "subprocess"));
  }
  SECTION("it awaits the end of a child, by a descriptor of that") {
    literal.job.ranks[2].threads[0].syscall->fd_target = "anon_inode:[eventpoll] of 2 descriptors";
    literal.job.ranks[2].threads[0].syscall->others.push_back(
        {.pid = 4712, .kind = EndKind::kChild, .command = "tool"});
    CHECK(has(verdict_text(literal), "subprocess"));
  }
  SECTION("a task of rank 2 awaits something") {
    CHECK(has(verdict_text(literal), "network-io: waits in its event loop (main at train.py:30"));
    CHECK(has(advice(literal), "all_tasks"));
    CHECK(has(analyze(literal.job).verdict.summary, "while ranks 0-1,3 wait in all_reduce"));
  }
  SECTION("a thread next to the loop says nothing about it") {
    literal.thread(literal.job.ranks[2], 950, "beat",
                   {libc("write"), py("save", kPackages + "torch/serialization.py", 1),
                    py("beat", "/home/u/train.py", 3), py("run", kLib + "threading.py", 2)});
    CHECK(has(verdict_text(literal), "network-io"));
  }
  SECTION("nor does a collective there, where a function in its pool does") {
    literal.job.ranks[1].threads.clear();  // main threads that differ: nothing else is compared
    literal.thread(literal.job.ranks[1], 101, "python3", waits_in_all_reduce());
    literal.thread(literal.job.ranks[2], 950, "metrics",
                   collective + Stack{py("report", "/home/u/metrics.py", 9), py("run", kLib + "threading.py", 2)});
    literal.thread(literal.job.ranks[2], 951, "asyncio_1",
                   Stack{libc("write"), py("save", kPackages + "torch/serialization.py", 1)} + pool);
    CHECK(has(verdict_text(literal), "checkpoint-io"));
  }
  SECTION("a function in its pool does") {
    literal.thread(literal.job.ranks[2], 950, "asyncio_1",
                   Stack{libc("write"), py("save", kPackages + "torch/serialization.py", 1)} + pool);
    CHECK(has(verdict_text(literal), "checkpoint-io"));
  }
  SECTION("a rank in the collective waits, whatever else its pool does") {
    literal.thread(literal.job.ranks[1], 950, "asyncio_1",
                   Stack{libc("write"), py("save", kPackages + "torch/serialization.py", 1)} + pool);
    CHECK(has(verdict_text(literal), "network-io"));
  }
  SECTION("all of them in the collective") {
    literal.job.ranks[2].threads.pop_back();
    literal.thread(literal.job.ranks[2], 902, "asyncio_0", collective + pool);
    CHECK(analyze(literal.job).verdict.status == VerdictStatus::kSymmetric);
  }
  SECTION("a thread next to the loop of rank 0 is in the collective, as the main threads of others are") {
    literal.job.ranks[0].threads.pop_back();
    literal.thread(literal.job.ranks[0], 900, "trainer",
                   collective + Stack{py("main", "/home/u/train.py", 17), py("<module>", "/home/u/train.py", 60)});
    for (const std::size_t r : {1U, 2U, 3U}) {
      literal.job.ranks[r].threads.clear();
      literal.thread(literal.job.ranks[r], 100 + static_cast<Tid>(r), "python3", waits_in_all_reduce());
    }
    CHECK(has(analyze(literal.job).verdict.summary, "waits in all_reduce"));
    CHECK_FALSE(has(analyze(literal.job).verdict.summary, "event loop"));
  }
  SECTION("what a callback of the loop does is no wait of the loop") {
    literal.job.ranks[2].threads.clear();
    literal
        .thread(literal.job.ranks[2], 102, "python3",
                Stack{libc("read"), py("load", "/home/u/train.py", 3), py("_run", kLib + "asyncio/events.py", 80),
                      loop[2], loop[3]} +
                    in_main(30))
        .syscall = call("read", 5, "/data/x");
    CHECK(has(verdict_text(literal), "file-io"));
  }
}

TEST_CASE("remote calls: who serves the call is waited for") {
  const std::string rpc = kPackages + "torch/distributed/rpc/";
  const Stack shutdown =
      Stack{libc("sem_wait"), py("wait", kLib + "threading.py", 320), py("_all_gather", rpc + "api.py", 235),
            py("_wait_all_workers", rpc + "api.py", 300), py("shutdown", rpc + "api.py", 362)} +
      in_main(40);
  LiteralJob literal;
  literal.rank(0, 4, Stack{libc("pthread_cond_wait"), py("rpc_sync", rpc + "api.py", 809)} + in_main(39));
  for (int r = 1; r < 4; ++r) literal.rank(r, 4, shutdown);
  SECTION("a served call that does not end") {
    literal
        .thread(literal.job.ranks[2], 999, "python3",
                {libc("recv"), py("step", "/home/u/train.py", 8), py("_run_function", rpc + "internal.py", 206),
                 nat("torch::distributed::rpc::RequestCallback::operator()(int)")})
        .syscall = call("recvfrom", 8, "tcp a -> b");
    CHECK(has(verdict_text(literal), "network-io: waits for the network (step at train.py:8"));
  }
  SECTION("none: all wait, and the frames do not show for whom") {
    CHECK(analyze(literal.job).verdict.status == VerdictStatus::kUndecided);
  }
}

TEST_CASE("a rank that others call is waited for because of that call, wherever its main thread waits") {
  const std::string rpc = kPackages + "torch/distributed/rpc/";
  LiteralJob literal;
  literal.rank(0, 3, Stack{libc("pthread_cond_wait"), py("rpc_sync", rpc + "api.py", 809)} + in_main(39));
  for (int r = 1; r < 3; ++r) literal.rank(r, 3, waits_in_all_reduce());
  literal
      .thread(literal.job.ranks[2], 999, "python3",
              {libc("recv"), py("evaluate", "/home/u/train.py", 8), py("_run_function", rpc + "internal.py", 206)})
      .syscall = call("recvfrom", 8, "tcp a -> b");
  CHECK(has(verdict_text(literal), "network-io: waits for the network (evaluate at train.py:8"));
  SECTION("nobody calls: the thread is a helper of its own") {
    literal.job.ranks[0].threads[0].frames = literal.job.ranks[1].threads[0].frames;
    const Verdict v = analyze(literal.job).verdict;
    CHECK(v.status == VerdictStatus::kSymmetric);
    CHECK(v.suspects.empty());
  }
}

TEST_CASE("what an object's own code does inside of a collective waits for no rank") {
  const std::string c10d = kPackages + "torch/distributed/distributed_c10d.py";
  const Stack outside =
      Stack{py("_tensor_to_object", c10d, 3234), py("broadcast_object_list", c10d, 3852)} + in_main(30);
  const auto verdict = [&](const Stack& inside, std::optional<SyscallInfo> syscall) {
    LiteralJob literal;
    for (int r = 0; r < 3; ++r) literal.rank(r, 3, r == 2 ? inside + outside : waits_in_all_reduce());
    literal.job.ranks[2].threads[0].syscall = std::move(syscall);
    return verdict_text(literal);
  };
  const Frame own = py("__setstate__", "/home/u/tokenizer.py", 12);
  CHECK(has(verdict({libc("recv"), own}, call("recvfrom", 8, "tcp a -> b")),
            "network-io: waits for the network (__setstate__ at tokenizer.py:12"));
  CHECK(has(verdict({nat("clock_nanosleep", kLibc), own}, call("clock_nanosleep")), "user-code"));
  // Without such code it is the collective that waits.
  CHECK(!has(verdict({libc("recv"), nat("gloo::transport::tcp::Pair::recv()")}, call("recvfrom", 8, "tcp a -> b")),
             "network-io"));
}

TEST_CASE("the child that a rank waits for is named") {
  const Stack communicate = {libc("poll"), py("_communicate", kLib + "subprocess.py", 2),
                             py("communicate", kLib + "subprocess.py", 1)};
  LiteralJob literal = rank_2_in(communicate, call("poll"));
  const auto child = [&](const Stack& stack, std::vector<std::string> command,
                         std::optional<SyscallInfo> syscall = {}) {
    RankSnapshot& process = literal.child(102, stack);
    process.command = std::move(command);
    if (process.command.front() != "python3") process.python_version.reset();
    process.threads[0].syscall = std::move(syscall);
  };
  child({libc("wait4"), nat("waitjob", "/bin/dash")}, {"sh", "-c", "git rev-parse | cat"}, call("wait4"));
  child({libc("read"), nat("main", "/usr/bin/git")}, {"git", "rev-parse"}, call("read", 3, "/x"));
  CHECK(has(verdict_text(literal),
            "subprocess: waits for a child process: pid 105 (git rev-parse) (main at train.py:30"));
  SECTION("two that may be meant") {
    child({libc("read"), nat("main", "/usr/bin/git")}, {"cat"}, call("read", 0, "pipe:[1]"));
    CHECK(has(verdict_text(literal), "subprocess: waits for a child process (main at train.py:30"));
  }
}

TEST_CASE("who reads a pipe, and has a child, waits for what that one prints") {
  LiteralJob literal = rank_2_in({libc("read"), py("main", "/home/u/train.py", 7)}, call("read", 9, "pipe:[5]"));
  CHECK(has(verdict_text(literal), "user-code"));
  RankSnapshot& child = literal.child(102, {libc("clock_nanosleep"), nat("main", "/bin/sleep")});
  child.command = {"sleep", "9"};
  child.python_version.reset();
  CHECK(has(verdict_text(literal), "subprocess: waits for a child process: pid 104 (sleep 9)"));
}

TEST_CASE("locks that nobody holds are called what they are, and the thread that should come is shown") {
  const auto verb = [](const Stack& waits) { return verdict_text(rank_2_in(kLockWait + waits)); };
  const Frame wait = py("wait", kLib + "threading.py", 320);
  const std::string alone = " (main at train.py:30), and it has no other Python thread";
  CHECK(verb({wait, py("get", kLib + "queue.py", 171)}) == "python-lock: waits for a queue to be filled" + alone);
  CHECK(verb({wait, py("put", kLib + "queue.py", 140)}) == "python-lock: waits for room in a queue" + alone);
  CHECK(verb({wait}) == "python-lock: waits for a condition of its own threads" + alone);
  CHECK(verb({wait, py("wait_for", kLib + "threading.py", 350)}) ==
        "python-lock: waits for a condition of its own threads" + alone);
  CHECK(verb({wait, py("wait", kLib + "threading.py", 622)}) ==
        "python-lock: waits for an event of its own threads" + alone);
  CHECK(verb({wait, py("wait_for", kLib + "threading.py", 350), py("_wait", kLib + "threading.py", 700),
              py("wait", kLib + "threading.py", 680)}) == "python-lock: waits at a barrier of its own threads" + alone);
  CHECK(verb({wait, py("acquire", kLib + "threading.py", 480)}) ==
        "python-lock: waits for a semaphore of its own threads" + alone);
  CHECK(verb({py("_wait_for_tstate_lock", kLib + "threading.py", 1132), py("join", kLib + "threading.py", 1112)}) ==
        "python-lock: waits for a thread to end" + alone);
  CHECK(verb({py("acquire", "<frozen importlib._bootstrap>", 120),
              py("_lock_unlock_module", "<frozen importlib._bootstrap>", 224)}) ==
        "python-lock: waits for another thread's import" + alone);
  CHECK(verb({}) == "python-lock: waits for a Python lock" + alone);
  CHECK(verb({wait, py("wait", kLib + "threading.py", 622), py("wait", kLib + "multiprocessing/pool.py", 765),
              py("get", kLib + "multiprocessing/pool.py", 768)}) ==
        "python-lock: waits for its pool of processes (main at train.py:30)");

  LiteralJob literal = rank_2_in(kLockWait + Stack{wait, py("get", kLib + "queue.py", 171)});
  literal
      .thread(literal.job.ranks[2], 999, "Router",
              {libc("recv"), py("reader", "/home/u/service.py", 7), py("run", kLib + "threading.py", 975)})
      .syscall = call("recvfrom", 8, "unix socket:[3]");
  CHECK(verdict_text(literal) ==
        "python-lock: waits for a queue to be filled (main at train.py:30), and its thread Router is in reader at "
        "service.py:7 (blocked in recvfrom(fd 8 -> unix socket:[3]))");
  literal.thread(literal.job.ranks[2], 1000, "Other",
                 {libc("recv"), py("reader", "/home/u/service.py", 7), py("run", kLib + "threading.py", 975)});
  CHECK(verdict_text(literal) == "python-lock: waits for a queue to be filled (main at train.py:30)");
}

TEST_CASE("ranks that poll in the call of a function in which another one prepares something") {
  const std::string lib = "/usr/lib/python3.11/";
  LiteralJob literal;
  const auto prepare = [](int line) { return Stack{py("prepare", "/home/u/train.py", line)} + in_main(30); };
  for (int r = 0; r < 2; ++r) {
    RankSnapshot& rank = literal.rank(
        r, 2,
        r == 0 ? Stack{libc("wait4"), py("_wait", lib + "subprocess.py", 2053), py("run", lib + "subprocess.py", 550)} +
                     prepare(12)
               : Stack{libc("clock_nanosleep"), nat("time_sleep", "/usr/bin/python3.11")} + prepare(16));
    rank.threads[0].syscall = r == 0 ? call("wait4") : call("clock_nanosleep");
    rank.threads[0].motion = Motion{.samples = 3,
                                    .places = 1,
                                    .cpu_ms = r == 0 ? 0 : 0.4,
                                    .runs = r == 0 ? 0 : 9,
                                    .span_ms = 2900,
                                    .in_one_function = true};
  }
  literal.child(100, {libc("read"), nat("main", "/usr/bin/tar")}).threads[0].syscall = call("read", 3, "/data/a.tar");
  const Verdict v = analyze(literal.job).verdict;
  REQUIRE(v.suspects.size() == 1);
  CHECK((v.suspects[0].rank == 0 && v.suspects[0].reason == Reason::kSubprocess));
  CHECK(has(v.summary, "while rank 1 looks again and again for something (prepare at train.py:16)"));
  SECTION("in another function: what they look for may be anything") {
    for (const FrameId id : literal.job.ranks[1].threads[0].frames)
      if (literal.job.frames[id].function == "prepare") {
        Frame other = literal.job.frames[id];
        other.function = "look_for_requests";
        std::replace(literal.job.ranks[1].threads[0].frames.edit().begin(),
                     literal.job.ranks[1].threads[0].frames.edit().end(), id, literal.job.frames.intern(other));
        break;
      }
    CHECK(analyze(literal.job).verdict.status == VerdictStatus::kUndecided);
  }
  SECTION("the program may be a server") {
    literal.job.ranks.back().threads[0].syscall = call("epoll_wait", 3);
    CHECK(analyze(literal.job).verdict.status != VerdictStatus::kCulprit);
  }
  SECTION("a rank could not be read") {
    literal.rank(2, 3, in_main(30)).status = Status::kFailed;
    CHECK(analyze(literal.job).verdict.status != VerdictStatus::kCulprit);
  }
  SECTION("in few samples it is seen to look once: more of them are taken") {
    for (int r = 0; r < 2; ++r) literal.job.ranks[r].threads[0].motion->span_ms = 820;
    literal.job.ranks[1].threads[0].motion->runs = 1;
    CHECK(analyze(literal.job).verdict.status == VerdictStatus::kUndecided);
    CHECK(analyze(literal.job).verdict.doubt == Doubt::kWakes);
  }
  SECTION("the program works") {
    literal.job.ranks[0].threads[0].motion->moved = true;
    CHECK(analyze(literal.job).verdict.status != VerdictStatus::kCulprit);
  }
}

TEST_CASE("ranks that poll while one makes no progress: it is named, and not accused") {
  LiteralJob literal;
  for (int r = 0; r < 4; ++r) {
    RankSnapshot& rank =
        literal.rank(r, 4,
                     r == 2 ? Stack{libc("recv"), py("download", "/home/u/train.py", 7)} + in_main(30)
                            : Stack{libc("clock_nanosleep"), nat("time_sleep", "/usr/bin/python3.11")} + in_main(40));
    rank.threads[0].syscall = r == 2 ? call("recvfrom", 5, "tcp a -> b") : call("clock_nanosleep");
    rank.threads[0].motion = r == 2 ? Motion{.samples = 2, .places = 1, .span_ms = 450}
                                    : Motion{.samples = 2, .places = 1, .cpu_ms = 0.2, .runs = 4, .span_ms = 450};
  }
  const Verdict v = analyze(literal.job).verdict;
  CHECK(v.status == VerdictStatus::kUndecided);
  CHECK(has(v.summary, "rank 2 differs: it waits for the network (download at train.py:7"));
}
