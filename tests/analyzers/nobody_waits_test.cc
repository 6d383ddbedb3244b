// Jobs of which no rank is seen waiting for another: who differs, or that nobody does.
#include <catch2/catch.hpp>

#include <fmt/format.h>

#include "analyzers/activity.h"
#include "analyzers/analysis.h"
#include "support/odd_rank.h"

using namespace rankstacks;
using namespace rankstacks::analyzers;
using namespace rankstacks::testing;

TEST_CASE("all ranks wait for compilers: these work, or they do not") {
  const auto job = [](int runs, double cpu_ms, bool moved) {
    LiteralJob literal;
    const auto motion = [](int ran, double ms, bool gets_on) {
      Motion found;
      found.samples = 8;
      found.places = gets_on ? 8 : 1;
      found.moved = found.travelled = gets_on;
      found.runs = ran;
      found.cpu_ms = ms;
      found.span_ms = 7000;
      return found;
    };
    for (int r = 0; r < 2; ++r)
      literal.rank(r, 2, Stack{libc("wait4"), py("wait", "/usr/lib/python3.11/subprocess.py", 1264)} + in_main(34))
          .threads[0]
          .motion = motion(0, 0, false);
    for (const Pid parent : {100, 101}) {
      RankSnapshot& child = literal.child(parent, {nat("parse()", "/usr/lib/gcc/cc1")}, 'R');
      child.python_version.reset();
      child.threads[0].motion = motion(runs, cpu_ms, moved);
    }
    return verdict_of(literal).status;
  };
  CHECK(job(300, 3000, true) == VerdictStatus::kHealthy);
  CHECK(job(0, 0, false) == VerdictStatus::kSymmetric);
}

TEST_CASE("one rank apart, and nobody is seen waiting") {
  LiteralJob literal;
  for (int r = 0; r < 4; ++r)
    literal
        .rank(r, 4,
              r == 2 ? kSleep + in_main(4) : Stack{libc("read"), py("exchange", "/home/u/train.py", 8)} + in_main(5))
        .threads[0]
        .syscall = call(r == 2 ? "clock_nanosleep" : "read", r == 2 ? std::optional<int>() : 3,
                        r == 2 ? std::optional<std::string>() : "pipe:[1]");
  const Verdict v = verdict_of(literal);
  CHECK(v.status == VerdictStatus::kUndecided);
  CHECK(v.summary ==
        "rank 2 differs: it sleeps in its own code (work at train.py:40); of ranks 0-1,3 each is in its own code "
        "(exchange at train.py:8, blocked in read(fd 3 -> pipe:[1])); "
        "whether these wait for it is not in their frames");
}

TEST_CASE("one rank has passed what the others look for, and no rank has called anything for long") {
  const auto job = [](int line, double last_call_ms) {
    LiteralJob literal;
    for (int r = 0; r < 4; ++r) {
      const Stack in_function = {py("in_turn", "/home/u/train.py", r == 2 ? line : 67),
                                 py("<module>", "/home/u/train.py", 90)};
      const Stack reads = {libc("recv"), py("download", "/home/u/train.py", 61)};
      RankSnapshot& rank = literal.rank(r, 4, (r == 2 ? reads : kSleep) + in_function);
      if (r == 2) rank.threads[0].syscall = call("recvfrom", 70, "socket:[7]");
      rank.threads[0].motion =
          Motion{.samples = 8, .places = 1, .runs = r == 2 ? 0 : 40, .span_ms = 5000, .in_one_function = true};
      FlightRecord& record = rank.flight_record.emplace();
      record.age_ms = 0, record.last_call_ms = last_call_ms, record.longest_gap_ms = 700;
    }
    return verdict_of(literal);
  };
  const Verdict passed = job(68, 25'000);
  REQUIRE(passed.suspects.size() == 1);
  CHECK(passed.suspects[0].rank == 2);
  CHECK(passed.summary.find("that it has passed in the same function") != std::string::npos);
  CHECK(job(66, 25'000).status == VerdictStatus::kUndecided);
  CHECK(job(68, 2000).status == VerdictStatus::kUndecided);
}

TEST_CASE("most ranks wait in a collective of the program's own, by its name") {
  const auto job = [](const std::string& function) {
    LiteralJob literal;
    for (int r = 0; r < 3; ++r) {
      RankSnapshot& rank = literal.rank(
          r, 3,
          Stack{libc(r == 1 ? "poll" : "read"), nat(r == 1 ? "FeatureDb::query(int)" : function, "/home/u/solver"),
                nat("main", "/home/u/solver")});
      rank.python_version.reset();
      rank.source = Source::kCore;
      rank.threads[0].syscall = call(r == 1 ? "poll" : "read", 4);
    }
    return verdict_of(literal);
  };
  const Verdict verdict = job("Comm::allreduce(double&)");
  REQUIRE(verdict.suspects.size() == 1);
  CHECK((verdict.suspects[0].rank == 1 && verdict.suspects[0].confidence < 0.5));
  CHECK(verdict.summary.find("ranks 0,2 are in Comm::allreduce, by its name a collective of the program's own") !=
        std::string::npos);
  CHECK(job("Comm::gather_statistics(double&)").status == VerdictStatus::kUndecided);
}

TEST_CASE("a rank whose own threads wait in a circle, and nobody is seen waiting for it") {
  LiteralJob literal;
  const std::string solver = "/home/u/solver";
  for (int r = 0; r < 3; ++r) {
    RankSnapshot& rank =
        literal.rank(r, 3,
                     r == 1 ? Stack{libc("pthread_mutex_lock"), nat("metrics()", solver), nat("main", solver)}
                            : Stack{libc("read"), nat("receive()", solver), nat("main", solver)});
    rank.python_version.reset();
    rank.source = Source::kCore;
  }
  CHECK(verdict_of(literal).status == VerdictStatus::kUndecided);
  RankSnapshot& odd = literal.job.ranks[1];
  SECTION("it holds the lock itself") { odd.threads[0].lock_owner = odd.threads[0].tid; }
  SECTION("two threads wait for each other") {
    ThreadSnapshot& other =
        literal.thread(odd, 900, "solver", Stack{libc("pthread_mutex_lock"), nat("update()", solver)});
    other.lock_owner = odd.threads[0].tid;
    odd.threads[0].lock_owner = 900;
  }
  const Verdict verdict = verdict_of(literal);
  REQUIRE(verdict.suspects.size() == 1);
  CHECK(verdict.suspects[0].rank == 1);
  CHECK(verdict.suspects[0].reason == Reason::kNativeLock);
}

TEST_CASE("what tasks await in an event loop is on no stack") {
  LiteralJob literal;
  for (int r = 0; r < 3; ++r)
    literal
        .rank(r, 3,
              Stack{libc("epoll_wait"), py("select", "/usr/lib/python3.11/selectors.py", 468),
                    py("_run_once", "/usr/lib/python3.11/asyncio/base_events.py", 1884),
                    py("run_forever", "/usr/lib/python3.11/asyncio/base_events.py", 607)} +
                  in_main(24))
        .threads[0]
        .syscall = call("epoll_wait", 3, "anon_inode:[eventpoll]");
  const Verdict verdict = verdict_of(literal);
  CHECK(verdict.status == VerdictStatus::kUndecided);
  CHECK(verdict.summary.ends_with("what their tasks await, which may differ, is on no stack"));
}

TEST_CASE("the user of a parent of several processes is advised how to compare them") {
  LiteralJob literal;
  literal.rank(0, 1,
               Stack{libc("wait4"), py("wait", "/usr/lib/python3.11/multiprocessing/popen_fork.py", 43)} + in_main(5));
  literal.child(100, kSleep);
  literal.child(100, kSleep);
  CHECK(verdict_of(literal).status == VerdictStatus::kUndecided);
  CHECK(verdict_of(literal).summary.ends_with("; if its 2 child processes are the ranks, name them with --pids"));
}

TEST_CASE("what an interpreter calls after its main program has ended") {
  const std::string python = "/usr/bin/python3.11";
  const Stack outside = {unknown(python, 0x512cf4), nat("Py_RunMain", python), nat("Py_BytesMain", python)};
  const Frame hook = py("hook", "/home/u/train.py", 7);
  CHECK(only_rank_2(one_differs(Stack{libc("clock_nanosleep"), hook} + outside)) == "exception");
  CHECK(only_rank_2(one_differs(Stack{libc("clock_nanosleep"), hook, py("<module>", "/home/u/train.py", 9)} +
                                outside)) == "user-code");
  CHECK(only_rank_2(one_differs(Stack{libc("clock_nanosleep"), hook, nat("main", "/home/u/app")})) ==
        "user-code");  // embedded
  // A greenlet's frames end at its function; the greenlet that it was started from goes on outside of it.
  CHECK(
      only_rank_2(one_differs(Stack{libc("clock_nanosleep"), hook, nat("greenlet::UserGreenlet::g_initialstub(void*)"),
                                    nat("_PyEval_EvalFrameDefault", python)} +
                              outside)) == "user-code");
}

TEST_CASE("symmetric, healthy") {
  LiteralJob literal;
  SECTION("all wait at one place") {
    for (int r = 0; r < 4; ++r) literal.rank(r, 4, waits_in_all_reduce());
    CHECK(verdict_of(literal).status == VerdictStatus::kSymmetric);
    CHECK(verdict_of(literal).suspects.empty());
  }
  SECTION("all read at one place") {
    for (int r = 0; r < 4; ++r) literal.rank(r, 4, in_getitem());
    CHECK(verdict_of(literal).status == VerdictStatus::kSymmetric);
  }
  SECTION("all run") {
    for (int r = 0; r < 4; ++r) literal.rank(r, 4, in_main(10 + r), 'R');
    CHECK(verdict_of(literal).status == VerdictStatus::kHealthy);
  }
}

TEST_CASE("the process that a rank waits for cannot run") {
  LiteralJob literal = one_differs(Stack{libc("write"), py("log", "/home/u/train.py", 8)} + in_main(30));
  const Pid child = literal.child(102, {libc("read"), nat("main", "/usr/bin/cat")}, 'T').pid;
  SyscallInfo& call = main_of_rank_2(literal).syscall.emplace();
  call.name = "write";
  call.fd = 1;
  call.fd_target = "pipe:[123]";
  call.others.push_back({.pid = child, .kind = EndKind::kPipe, .command = {}});
  const auto suspect = [&] { return verdict_of(literal).suspects.at(0); };
  const std::string continues = fmt::format("pid {0} is stopped: continue it (kill -CONT {0})", child);
  CHECK(suspect().reason == Reason::kFileIo);
  CHECK(suspect().summary.ends_with(fmt::format("to pid {} (a child of rank 2, stopped))", child)));
  CHECK(suspect().advice.starts_with(continues));
  SECTION("frozen") {
    literal.job.ranks.back().threads[0].state = 'F';
    CHECK(suspect().summary.ends_with("(a child of rank 2, frozen))"));
    CHECK(suspect().advice.find("thaw its control group") != std::string::npos);
  }
  SECTION("one of its threads runs") {
    literal.thread(literal.job.ranks.back(), 999, "cat", {libc("read")}).state = 'S';
    CHECK(suspect().summary.ends_with("(a child of rank 2))"));
    CHECK(suspect().advice.starts_with("nobody takes what it writes"));
  }
  SECTION("another process has the pipe, too") {
    call.others.push_back({.pid = 77, .kind = EndKind::kPipe, .command = "tee log"});
    CHECK(suspect().advice.starts_with("nobody takes what it writes"));
  }
  SECTION("it waits for the end of that child") {
    call.name = "wait4";
    call.fd.reset();
    call.fd_target.reset();
    call.others.front().kind = EndKind::kChild;
    CHECK(suspect().reason == Reason::kSubprocess);
    CHECK(suspect().summary.find(", stopped)") != std::string::npos);
    CHECK(suspect().advice.starts_with(continues));
  }
}

TEST_CASE("most ranks look again and again for something at one place") {
  const auto polling = [](int pollers, int line = 30) {
    LiteralJob literal;
    for (int r = 0; r < 4; ++r) {
      const bool polls = r >= 4 - pollers;
      RankSnapshot& rank = literal.rank(r, 4, polls ? kSleep + in_main(r == 3 ? line : 30) : waits_in_all_reduce());
      rank.threads[0].motion = Motion{.samples = 8, .places = 1, .span_ms = 2600};
      if (polls) {
        rank.threads[0].motion->cpu_ms = 40;
        rank.threads[0].motion->runs = 2000;
        rank.threads[0].motion->in_one_function = true;
      }
    }
    return verdict_of(literal);
  };
  const Verdict open = polling(3);
  CHECK(open.status == VerdictStatus::kUndecided);
  REQUIRE(open.candidates.size() == 1);
  CHECK(open.candidates[0].rank == 0);
  CHECK(polling(3, 40).suspects.size() == 3);  // at several places
  CHECK(polling(2).suspects.size() == 2);      // half of them
  CHECK(polling(1).suspects.size() == 1);
}

TEST_CASE("joblib looks for the results of its workers again and again") {
  const std::string joblib = kPackages + "joblib/", loky = joblib + "externals/loky/";
  const Stack parallel = {py("_retrieve", joblib + "parallel.py", 1822),
                          py("_get_outputs", joblib + "parallel.py", 1704),
                          py("__call__", joblib + "parallel.py", 2098)};
  const Stack worker = {py("_process_worker", loky + "process_executor.py", 490),
                        py("run", "/usr/lib/python3.11/multiprocessing/process.py", 108),
                        py("<module>", loky + "backend/popen_loky_posix.py", 180)};
  LiteralJob literal = one_differs(Stack{libc("clock_nanosleep")} + parallel + in_main(14));
  literal.thread(
      literal.job.ranks[2], 901, "ExecutorManager",
      {libc("poll"), py("select", "/usr/lib/python3.11/selectors.py", 415),
       py("wait", "/usr/lib/python3.11/multiprocessing/connection.py", 947),
       py("wait_result_broken_or_wakeup", loky + "process_executor.py", 686),
       py("run", loky + "process_executor.py", 623), py("_bootstrap", "/usr/lib/python3.11/threading.py", 1002)});
  CHECK(only_rank_2(literal) == "python-lock");
  CHECK(verdict_of(literal).summary.starts_with("rank 2 waits for its pool of processes"));
  literal.child(102,
                {libc("read"), py("main", loky + "backend/resource_tracker.py", 357), py("<module>", "<string>", 1)});
  literal.child(102, Stack{libc("poll"), py("select", "/usr/lib/python3.11/selectors.py", 415),
                           py("_poll", "/usr/lib/python3.11/multiprocessing/connection.py", 440),
                           py("get", "/usr/lib/python3.11/multiprocessing/queues.py", 113)} +
                         worker);
  CHECK(only_rank_2(literal) == "python-lock");  // idle
  const Pid busy = literal
                       .child(102, Stack{libc("open"), py("load", "/home/u/data.py", 13),
                                         py("__call__", joblib + "parallel.py", 607)} +
                                       worker)
                       .pid;
  CHECK(only_rank_2(literal) == "subprocess");
  CHECK(verdict_of(literal).summary.starts_with(
      fmt::format("rank 2 waits for a child process: pid {}, in load at data.py:13", busy)));
}

TEST_CASE("processes of multiprocessing in a barrier, and one that has ended") {
  const std::string library = "/usr/lib/python3.11/multiprocessing/";
  const Stack in_barrier = Stack{libc("sem_wait"),
                                 py("wait", library + "synchronize.py", 261),
                                 py("wait_for", library + "synchronize.py", 313),
                                 py("_wait", "/usr/lib/python3.11/threading.py", 725),
                                 py("wait", "/usr/lib/python3.11/threading.py", 690),
                                 py("worker", "/home/u/simulate.py", 9),
                                 py("run", library + "process.py", 108),
                                 py("_bootstrap", library + "process.py", 314)} +
                           in_main(14);
  LiteralJob literal;
  SECTION("the processes alone: one that is not among them does not come") {
    for (int r = 0; r < 3; ++r) literal.rank(r, 3, in_barrier);
    const Verdict v = verdict_of(literal);
    CHECK(v.status == VerdictStatus::kUndecided);
    CHECK(v.summary.find("opens when all for whom it was made are there") != std::string::npos);
  }
  SECTION("their parent") {
    RankSnapshot& parent =
        literal.rank(0, 1, Stack{libc("wait4"), py("join", library + "process.py", 149)} + in_main(15));
    const Pid pid = parent.pid;
    const auto lost = [&] {
      const Verdict v = verdict_of(literal);
      return v.suspects.empty() ? "" : fmt::format("{}: {}", to_string(v.suspects[0].reason), v.summary);
    };
    literal.child(pid, in_barrier);
    literal.child(pid, in_barrier);
    CHECK(lost().empty());
    literal.child(pid, {}, 'Z');
    CHECK(lost().starts_with("worker-dead: rank 0 has lost a worker process (pid 103)"));
    CHECK(lost().ends_with("while 2 of its child processes wait in a multiprocessing barrier"));
    SECTION("one is still at work") {
      literal.child(pid, in_getitem());
      CHECK(lost().empty());
    }
    SECTION("one has moved") {
      literal.job.ranks[1].threads[0].motion = Motion{.samples = 3, .places = 2, .moved = true};
      CHECK(lost().empty());
    }
  }
  SECTION("a parent that comes to the barrier itself") {
    const Pid pid = literal.rank(0, 1, in_barrier).pid;
    literal.child(pid, in_barrier);
    CHECK(verdict_of(literal).suspects.empty());
    literal.child(pid, {}, 'Z');
    CHECK(verdict_of(literal).suspects.size() == 1);
  }
}

TEST_CASE("stopped and debugger are reasons of their own where nobody waits yet") {
  LiteralJob literal;
  for (int r = 0; r < 4; ++r) literal.rank(r, 4, in_main(10), r == 2 ? 'T' : 'R');
  CHECK(only_rank_2(literal) == "stopped");
  LiteralJob other;
  for (int r = 0; r < 4; ++r) other.rank(r, 4, in_main(10), r == 2 ? 'F' : 'R');
  CHECK(only_rank_2(other) == "stopped");
}

TEST_CASE("a rank that looks again and again for what another one is to bring") {
  LiteralJob literal;
  literal.rank(0, 3, kSleep + in_main(3));
  literal.rank(1, 3, waits_in_all_reduce());
  literal.rank(2, 3, kSleep + in_main(7));
  for (RankSnapshot& rank : literal.job.ranks) {
    const bool polls = *rank.rank == 2;
    rank.threads[0].motion =
        Motion{.samples = 8, .places = 1, .runs = polls ? 4 : 0, .span_ms = 2600, .in_one_function = true};
  }
  const Verdict v = verdict_of(literal);
  REQUIRE(v.suspects.size() == 1);
  CHECK(v.suspects[0].rank == 0);
  SECTION("alone it is the one") {
    literal.job.ranks[0].threads[0].frames = literal.job.ranks[1].threads[0].frames;
    CHECK(verdict_of(literal).suspects.at(0).rank == 2);
  }
}
