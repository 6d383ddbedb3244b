#include <catch2/catch.hpp>

#include "analyzers/analysis.h"
#include "support/collective_calls.h"

using namespace rankstacks;
using namespace rankstacks::analyzers;
using namespace rankstacks::testing;

TEST_CASE("collectives that were called before, and wait at one place") {
  const auto run_by_gloo = [](const std::string& collective) {
    return Stack{libc("pthread_cond_timedwait"),
                 nat("gloo::transport::tcp::UnboundBuffer::waitRecv(int*)"),
                 nat("gloo::(anonymous namespace)::ring(gloo::Options&)"),
                 nat("gloo::" + collective + "(gloo::Options&)"),
                 nat("c10d::(anonymous namespace)::AsyncWork::run()"),
                 nat("c10d::ProcessGroupGloo::runLoop(int)")};
  };
  const Stack waits_for_earlier = {libc("pthread_cond_wait"), nat("c10d::Work::wait(std::chrono::duration<long>)"),
                                   nat("c10d::(anonymous namespace)::AsyncBarrierWork::run()"),
                                   nat("c10d::ProcessGroupGloo::runLoop(int)")};
  LiteralJob literal;
  for (int r = 0; r < 4; ++r) {
    RankSnapshot& rank = literal.rank(
        r, 4, Stack{libc("pthread_cond_wait"), nat("c10d::Work::wait(std::chrono::duration<long>)")} + in_main(12));
    literal.thread(rank, rank.pid + 1000, "pt_gloo_runloop", run_by_gloo("allgather"));
    if (r != 2) literal.thread(rank, rank.pid + 2000, "pt_gloo_runloop", waits_for_earlier);
  }
  RankSnapshot& odd = literal.job.ranks[2];
  SECTION("all run the same") {
    literal.thread(odd, odd.pid + 2000, "pt_gloo_runloop", waits_for_earlier);
    CHECK(accused(literal).empty());
  }
  SECTION("one runs one more") {
    literal.thread(odd, odd.pid + 2000, "pt_gloo_runloop", run_by_gloo("barrier"));
    CHECK(accused(literal) == Accused{{2, "collective-mismatch"}});
    CHECK(analyze(literal.job).verdict.summary.find("barrier") != std::string::npos);
  }
  SECTION("of dumps, which are of one moment after the other") {
    for (RankSnapshot& rank : literal.job.ranks) rank.source = Source::kDump;
    SECTION("one runs one more") {
      literal.thread(odd, odd.pid + 2000, "pt_gloo_runloop", run_by_gloo("allgather"));
      CHECK(accused(literal).empty());
    }
    SECTION("one runs another") {
      odd.threads.pop_back();
      literal.thread(odd, odd.pid + 1000, "pt_gloo_runloop", run_by_gloo("barrier"));
      CHECK(accused(literal) == Accused{{2, "collective-mismatch"}});
    }
  }
  SECTION("what one runs is not known") {
    odd.threads.pop_back();
    literal.thread(odd, odd.pid + 1000, "pt_gloo_runloop", {});
    CHECK(accused(literal).empty());
  }
}

TEST_CASE("groups used in another order") {
  LiteralJob literal;
  SECTION("one rank against three") {
    for (int r = 0; r < 4; ++r)
      arguments(literal.rank(r, 4, in_call("all_reduce", r == 2 ? 12 : 13)),
                ProcessGroup{r == 2 ? "2" : "1", {0, 1, 2, 3}});
    CHECK(accused(literal) == Accused{{2, "process-group-order"}});
  }
  SECTION("a circle of groups of two: each waits for the next") {
    for (int r = 0; r < 4; ++r)
      arguments(literal.rank(r, 4, in_call("all_reduce", 12)), ProcessGroup{std::to_string(r + 1), {r, (r + 1) % 4}});
    CHECK(accused(literal) == Accused{{0, "process-group-order"},
                                      {1, "process-group-order"},
                                      {2, "process-group-order"},
                                      {3, "process-group-order"}});
  }
  SECTION("the default group against another: the same with another group") {
    for (int r = 0; r < 4; ++r)
      arguments(literal.rank(r, 4, in_call("all_reduce", r == 3 ? 12 : 13)),
                r == 3 ? ProcessGroup{"1", {2, 3}} : kWorld);
    CHECK(accused(literal) == Accused{{3, "collective-mismatch"}});
  }
}

TEST_CASE("what a group is for is a word about it, and not a part of it") {
  LiteralJob literal;
  // Rank 1's memory did not show it.
  for (int r = 0; r < 4; ++r)
    arguments(literal.rank(r, 4, r == 3 ? Stack{libc("clock_nanosleep")} + in_main(20) : in_call("all_reduce", 12)),
              r < 2 ? ProcessGroup{"5", {0, 1, 3}, r == 0 ? "mesh_tp" : ""} : kWorld);
  const Analysis analysis = analyze(literal.job);
  CHECK(accused(literal).contains(3));
  REQUIRE((analysis.activities[0] && analysis.activities[1]));
  CHECK(analysis.activities[0]->summary.find("in all_reduce of group 5 (mesh_tp; ranks 0-1,3)") != std::string::npos);
  CHECK(analysis.activities[1]->summary.find("in all_reduce of group 5 (ranks 0-1,3)") != std::string::npos);
  CHECK(analysis.activities[0]->group == "5");
  CHECK(ProcessGroup{"5", {0}, "mesh_tp"} == ProcessGroup{"5", {0}});
}

TEST_CASE("one that calls a collective on its way out has ended before the others") {
  LiteralJob literal;
  const Stack at_exit = Stack{libc("pthread_cond_wait"),
                              nat("gloo::transport::tcp::UnboundBuffer::waitRecv(int*)"),
                              py("barrier", kC10d, 2000),
                              py("clean_up", "/home/u/train.py", 70),
                              nat("atexit_callfuncs", "/usr/bin/python3.11"),
                              nat("Py_FinalizeEx", "/usr/bin/python3.11"),
                              nat("Py_RunMain", "/usr/bin/python3.11")};
  SECTION("one of four") {
    for (int r = 0; r < 4; ++r) literal.rank(r, 4, r == 2 ? at_exit : in_call("all_reduce", 13));
    CHECK(accused(literal) == Accused{{2, "exception"}});
  }
  SECTION("all of them: they wait for something else") {
    for (int r = 0; r < 4; ++r) literal.rank(r, 4, at_exit);
    CHECK(accused(literal).empty());
  }
  SECTION("two that nobody needs, in addition to two that wait for each other") {
    for (int r = 0; r < 4; ++r) {
      if (r < 2) literal.rank(r, 4, at_exit);
      else arguments(literal.rank(r, 4, in_call("recv", 40)), {}, {{"src", r == 2 ? 3 : 2}});
    }
    CHECK(accused(literal) == Accused{{2, "unmatched-p2p"}, {3, "unmatched-p2p"}});
  }
  SECTION("three of four: the one that goes on is no less odd") {
    for (int r = 0; r < 4; ++r) literal.rank(r, 4, r != 2 ? at_exit : in_call("all_reduce", 13));
    CHECK(accused(literal) == Accused{{2, "collective-mismatch"}});
  }
}

TEST_CASE("what nobody waits for holds up nobody") {
  // 0 and 1 wait for each other's data loader in their own group; 2 and 3 belong to another group and do something
  // else.
  LiteralJob literal;
  for (int r = 0; r < 4; ++r) {
    if (r == 0) arguments(literal.rank(r, 4, in_call("all_reduce", 12)), ProcessGroup{"1", {0, 1}});
    else
      literal.rank(
          r, 4,
          r == 1 ? in_getitem() : Stack{libc("clock_nanosleep"), py("serve", "/home/u/train.py", 70)} + in_main(50));
  }
  CHECK(accused(literal) == Accused{{1, "data-loading"}});
}

TEST_CASE("mpi4py's collectives of objects consist of MPI's calls") {
  const std::string mpi4py = "/usr/lib/python3/dist-packages/mpi4py/MPI.cpython-311-x86_64-linux-gnu.so";
  const auto mpi = [](const std::string& function) { return Stack{nat(function, "/usr/lib/libmpi.so.40")}; };
  // What rank 0 does of a reduction, and what the others do; `method` names it if the module has symbols.
  const auto part = [&](int rank, const std::string& method, int line) {
    const bool stripped = method.empty();
    const Frame outer = stripped ? unknown(mpi4py, 0xd3b3c) : nat("__pyx_pw_6mpi4py_3MPI_4Comm_199" + method, mpi4py);
    const Frame step = stripped ? unknown(mpi4py, 0xd2dfb) : nat("__pyx_f_6mpi4py_3MPI_PyMPI_step", mpi4py);
    return (rank == 0 ? mpi("PMPI_Recv") + Stack{step, step, outer} : mpi("PMPI_Bcast") + Stack{step, outer}) +
           in_main(line);
  };
  LiteralJob literal;
  SECTION("all in one") {
    const std::string method = GENERATE("", "allreduce");
    for (int r = 0; r < 3; ++r) literal.rank(r, 3, part(r, method, 11));
    const Analysis analysis = analyze(literal.job);
    CHECK(analysis.verdict.status == VerdictStatus::kSymmetric);
    CHECK(analysis.activities[0]->operation == (method.empty() ? "a collective of mpi4py" : "mpi4py's allreduce"));
  }
  SECTION("one in another") {
    for (int r = 0; r < 3; ++r) literal.rank(r, 3, part(r, r == 2 ? "bcast" : "allreduce", r == 2 ? 10 : 11));
    CHECK(accused(literal) == Accused{{2, "collective-mismatch"}});
  }
  SECTION("at different places, in communicators that are not known: nobody is accused of a message") {
    for (int r = 0; r < 4; ++r) literal.rank(r, 4, part(r % 2, "", r == 0 ? 15 : r == 3 ? 15 : 12 + r));
    CHECK(accused(literal).empty());
  }
  SECTION("an object that is sent or received") {
    for (int r = 0; r < 3; ++r)
      literal.rank(r, 3,
                   (r == 0   ? mpi("PMPI_Mprobe") + Stack{unknown(mpi4py, 0xe2756), unknown(mpi4py, 0xe4107)}
                    : r == 1 ? mpi("PMPI_Send") + Stack{unknown(mpi4py, 0xe2750), unknown(mpi4py, 0xe4100)}
                             : mpi("PMPI_Bcast") + Stack{unknown(mpi4py, 0xe4000)}) +
                       in_main(9));
    const Analysis analysis = analyze(literal.job);
    CHECK(analysis.activities[0]->operation == "MPI_Mprobe");
    CHECK(analysis.activities[1]->operation == "MPI_Send");
    CHECK(analysis.activities[2]->operation == "MPI_Bcast");
  }
}

TEST_CASE("a group of some ranks against all ranks: only who belongs to both can be in the wrong one") {
  const ProcessGroup three{"1", {0, 1, 2}};
  LiteralJob literal;
  SECTION("one of the three has gone on, with the rank that is not one of them") {
    for (int r = 0; r < 4; ++r)
      arguments(literal.rank(r, 4, in_call(r < 2 ? "barrier" : "all_reduce", r < 2 ? 12 : 13)), r < 2 ? three : kWorld);
    CHECK(accused(literal) == Accused{{2, "collective-mismatch"}});
  }
  SECTION("one of the three meets the others where they are not") {
    for (int r = 0; r < 4; ++r)
      arguments(literal.rank(r, 4, in_call(r < 1 ? "barrier" : "all_reduce", r < 1 ? 12 : 13)), r < 1 ? three : kWorld);
    CHECK(accused(literal) == Accused{{0, "collective-mismatch"}});
  }
  SECTION("most ranks do not belong to the group") {
    for (int r = 0; r < 8; ++r)
      arguments(literal.rank(r, 8, in_call(r < 2 ? "barrier" : "all_reduce", r < 2 ? 12 : 13)),
                r < 2 ? three : ProcessGroup{"0", {0, 1, 2, 3, 4, 5, 6, 7}});
    CHECK(accused(literal) == Accused{{2, "collective-mismatch"}});
  }
}

TEST_CASE("a rank without which nobody would wait in a circle") {
  LiteralJob literal;
  SECTION("it takes the group of all ranks for its own: its partner, and those who are further on, wait for it") {
    const ProcessGroup pair{"1", {0, 1}};
    for (int r = 0; r < 4; ++r)
      arguments(literal.rank(r, 4, in_call(r < 2 ? "all_reduce" : "barrier", r < 2 ? 12 : 13)), r == 0 ? pair : kWorld);
    CHECK(accused(literal) == Accused{{1, "collective-mismatch"}});
  }
  SECTION("it meets those of its row where those of its column do") {
    for (int r = 0; r < 4; ++r)
      arguments(literal.rank(r, 4, in_call(r % 2 == 1 ? "all_reduce" : "barrier", r % 2 == 1 ? 12 : 13)),
                r == 1   ? ProcessGroup{"4", {1, 3}}
                : r == 3 ? ProcessGroup{"2", {2, 3}}
                         : kWorld);
    CHECK(accused(literal) == Accused{{3, "collective-mismatch"}});
  }
  SECTION("two of them: the circle does not show which") {
    for (int r = 0; r < 3; ++r)
      arguments(literal.rank(r, 3, in_call("all_reduce", 12 + r)), ProcessGroup{std::to_string(r), {r, (r + 1) % 3}});
    CHECK(accused(literal).size() == 3);
  }
}

TEST_CASE("two sides in collectives of MPI, whose communicators are not read") {
  const auto in_mpi = [](const std::string& function, const std::string& caller) {
    return Stack{nat("opal_progress", "/usr/lib/libopen-pal.so.40"), nat(function, "/usr/lib/libmpi.so.40"),
                 nat(caller, "/home/u/solver")};
  };
  LiteralJob literal;
  SECTION("of two ranks each: those of one side may be in two communicators") {
    for (int r = 0; r < 4; ++r)
      literal.rank(r, 4, r < 2 ? in_mpi("MPI_Allreduce", "sum_up") : in_mpi("MPI_Barrier", "next"))
          .python_version.reset();
    const Verdict v = analyze(literal.job).verdict;
    CHECK(v.status == VerdictStatus::kUndecided);
    CHECK(v.summary.find("which communicators these are is not in the frames") != std::string::npos);
  }
  SECTION("of one rank each: both are in one communicator, or else one is alone in its own") {
    for (int r = 0; r < 2; ++r)
      literal.rank(r, 2, r < 1 ? in_mpi("MPI_Allreduce", "sum_up") : in_mpi("MPI_Barrier", "next"))
          .python_version.reset();
    CHECK(accused(literal) == Accused{{0, "collective-mismatch"}, {1, "collective-mismatch"}});
  }
  SECTION("one against three") {
    for (int r = 0; r < 4; ++r)
      literal.rank(r, 4, r < 1 ? in_mpi("MPI_Allreduce", "sum_up") : in_mpi("MPI_Barrier", "next"))
          .python_version.reset();
    CHECK(accused(literal) == Accused{{0, "collective-mismatch"}});
  }
}

TEST_CASE("the same code at another step") {
  LiteralJob literal;
  SECTION("an earlier one, in another call of the loop") {
    for (int r = 0; r < 4; ++r)
      arguments(literal.rank(r, 4, in_call(r == 2 ? "barrier" : "all_reduce", r == 2 ? 16 : 18)), kWorld, {},
                r == 2 ? 7 : 8);
    CHECK(accused(literal) == Accused{{2, "behind"}});
  }
  SECTION("a later one is another collective") {
    for (int r = 0; r < 4; ++r)
      arguments(literal.rank(r, 4, in_call(r == 2 ? "barrier" : "all_reduce", r == 2 ? 20 : 18)), kWorld, {},
                r == 2 ? 9 : 8);
    CHECK(accused(literal) == Accused{{2, "collective-mismatch"}});
  }
  SECTION("behind the loop, which ended earlier: the counter is what remained") {
    for (int r = 0; r < 4; ++r)
      arguments(literal.rank(r, 4, in_call(r == 2 ? "barrier" : "all_reduce", r == 2 ? 20 : 18)), kWorld, {},
                r == 2 ? 7 : 8);
    CHECK(accused(literal) == Accused{{2, "collective-mismatch"}});
  }
  SECTION(
      "further down, but still in the loop: two steps earlier; the last step's call is one that the others left out") {
    const auto at_step = [](int step, int line) {
      LiteralJob job;
      for (int r = 0; r < 4; ++r) {
        RankSnapshot& rank = job.rank(r, 4, in_call(r == 2 ? "barrier" : "all_reduce", r == 2 ? line : 18));
        arguments(rank, kWorld, {}, r == 2 ? step : 8);
        rank.threads[0].variables.edit()[1].loops = 1;
      }
      return accused(job);
    };
    CHECK(at_step(6, 20) == Accused{{2, "behind"}});
    CHECK(at_step(7, 20) == Accused{{2, "collective-mismatch"}});
    CHECK(at_step(7, 16) == Accused{{2, "behind"}});
  }
  SECTION("the last step, in a function that is called at the others' line") {
    for (int r = 0; r < 4; ++r) {
      const std::string call = r == 2 ? "all_gather" : "all_reduce";
      const Stack deeper = {py("log_norm", "/home/u/train.py", 9)};
      const Stack stack = Stack{libc("pthread_cond_wait"), nat("c10d::Work::wait(std::chrono::duration<long>)"),
                                py(call, kC10d, 2000)} +
                          (r == 2 ? deeper : Stack{}) + in_main(18);
      RankSnapshot& rank = literal.rank(r, 4, stack);
      rank.threads[0].variables.push_back({.frame = 2, .numbers = {}, .group = kWorld});
      rank.threads[0].variables.push_back(
          {.frame = stack.size() - 2, .numbers = {{"step", r == 2 ? 7 : 8}}, .group = {}, .loops = 1});
    }
    CHECK(accused(literal) == Accused{{2, "collective-mismatch"}});
  }
  SECTION("further down, in the outer of two loops: the counter may be what remained of the inner one") {
    for (int r = 0; r < 4; ++r) {
      RankSnapshot& rank = literal.rank(r, 4, in_call(r == 2 ? "barrier" : "all_reduce", r == 2 ? 20 : 18));
      arguments(rank, kWorld, {}, r == 2 ? 7 : 8);
      rank.threads[0].variables.edit()[1].loops = r == 2 ? 1 : 2;
    }
    CHECK(accused(literal) == Accused{{2, "collective-mismatch"}});
  }
  SECTION("the same call") {
    for (int r = 0; r < 4; ++r) arguments(literal.rank(r, 4, in_call("all_reduce", 18)), kWorld, {}, r == 2 ? 7 : 8);
    CHECK(accused(literal) == Accused{{2, "behind"}});
  }
  SECTION("two against two: those behind") {
    for (int r = 0; r < 4; ++r)
      arguments(literal.rank(r, 4, in_call(r < 2 ? "barrier" : "all_reduce", r < 2 ? 16 : 18)), kWorld, {},
                r < 2 ? 7 : 8);
    CHECK(accused(literal) == Accused{{0, "behind"}, {1, "behind"}});
  }
  SECTION("a counter that differs in each rank shows nothing") {
    for (int r = 0; r < 4; ++r) arguments(literal.rank(r, 4, in_call("all_reduce", 18)), kWorld, {}, 100 * r);
    CHECK(analyze(literal.job).verdict.status == VerdictStatus::kSymmetric);
  }
}

TEST_CASE("the same collective from many places meets by its order") {
  LiteralJob literal;
  SECTION("three of four are in it") {
    for (int r = 0; r < 4; ++r)
      arguments(literal.rank(r, 4, in_call(r == 0 ? "barrier" : "all_reduce", r == 0 ? 30 : 16 + 2 * (r / 2))), kWorld);
    CHECK(accused(literal) == Accused{{0, "collective-mismatch"}});
  }
  SECTION("no call has a majority") {
    for (int r = 0; r < 4; ++r)
      arguments(literal.rank(r, 4, in_call(r == 0 ? "barrier" : r == 1 ? "broadcast" : "all_reduce", 20 + r)), kWorld);
    CHECK(accused(literal).empty());
  }
}

TEST_CASE("one that handles an exception is what its collective comes from") {
  LiteralJob literal;
  const auto handles = [&](RankSnapshot& rank) {
    rank.threads[0].handles =
        HandledException{.type = "RuntimeError", .message = "loss is NaN", .frame = 3, .handler = {}, .raised = {}};
  };
  SECTION("one of four") {
    for (int r = 0; r < 4; ++r) {
      RankSnapshot& rank = literal.rank(r, 4, in_call(r == 2 ? "barrier" : "all_reduce", r == 2 ? 40 : 18));
      if (r == 2) handles(rank);
    }
    CHECK(accused(literal) == Accused{{2, "exception"}});
    CHECK(analyze(literal.job).verdict.summary.find("RuntimeError(\"loss is NaN\")") != std::string::npos);
  }
  SECTION("C++'s, handled or on its way: the rank has not crashed") {
    for (const auto member : {&ThreadSnapshot::handles_cxx, &ThreadSnapshot::raises_cxx}) {
      LiteralJob other;
      for (int r = 0; r < 4; ++r) {
        RankSnapshot& rank = other.rank(r, 4, in_call(r == 2 ? "barrier" : "all_reduce", r == 2 ? 40 : 18));
        if (r == 2) rank.threads[0].*member = HandledCxxException{{"std::runtime_error", "no such shard"}, {}};
      }
      CHECK(accused(other) == Accused{{2, "exception"}});
      CHECK(analyze(other.job).verdict.summary.find("std::runtime_error: no such shard") != std::string::npos);
    }
  }
  SECTION("all of them: their programs run in a handler") {
    for (int r = 0; r < 4; ++r)
      handles(literal.rank(r, 4, in_call(r == 2 ? "barrier" : "all_reduce", r == 2 ? 40 : 18)));
    CHECK(accused(literal) == Accused{{2, "collective-mismatch"}});
  }
  SECTION("in the same call as the others it does not differ") {
    for (int r = 0; r < 4; ++r) {
      RankSnapshot& rank = literal.rank(r, 4, in_call("all_reduce", 18));
      if (r == 2) handles(rank);
    }
    CHECK(analyze(literal.job).verdict.status == VerdictStatus::kSymmetric);
  }
}

TEST_CASE("ranks that nobody looked at") {
  LiteralJob literal;
  for (int r = 0; r < 2; ++r) literal.rank(r, 4, waits_in_all_reduce());
  SECTION("they run on this machine") {
    literal.job.not_looked_at = {{2, "node-a", 900}, {3, "node-a", 901}};
    const Verdict v = analyze(literal.job).verdict;
    CHECK(v.status == VerdictStatus::kUndecided);
    CHECK(v.summary.find("ranks 2-3 run on this machine") != std::string::npos);
  }
  SECTION("one of them is gone") {
    literal.rank(2, 4, waits_in_all_reduce());
    CHECK(accused(literal) == Accused{{3, "missing"}});
  }
  SECTION("one of them is gone, and what the others wait for is not known") {
    const auto of_three = [](const Stack& stack, std::int64_t runs) {
      LiteralJob job;
      for (const int r : {0, 1, 3}) {
        Motion motion;
        motion.samples = 3;
        motion.places = 1;
        motion.in_one_function = true;
        motion.runs = runs;
        motion.span_ms = 800;
        job.rank(r, 4, stack).threads[0].motion = motion;
      }
      return job;
    };
    const Stack at_own_barrier = {libc("pthread_barrier_wait"), nat("meet()", "/home/u/mesh"),
                                  nat("main", "/home/u/mesh")};
    LiteralJob still = of_three(at_own_barrier, 0);
    for (RankSnapshot& rank : still.job.ranks) rank.python_version.reset();
    CHECK(accused(still) == Accused{{2, "missing"}});
    CHECK(analyze(still.job).verdict.summary.find("while each of ranks 0-1,3 waits at a barrier") != std::string::npos);
    for (RankSnapshot& rank : still.job.ranks) rank.source = Source::kCore;
    CHECK(accused(still).empty());
    const Stack looks = {libc("clock_nanosleep"), nat("time_sleep", "/usr/bin/python3.11"),
                         py("wait_for_files", "/home/u/train.py", 40)};
    LiteralJob polls = of_three(looks + in_main(5), 8);
    for (RankSnapshot& rank : polls.job.ranks) rank.threads[0].syscall = call("clock_nanosleep");
    CHECK(accused(polls) == Accused{{2, "missing"}});
    LiteralJob works = of_three(Stack{py("simulate", "/home/u/train.py", 41)} + in_main(5), 300);
    for (RankSnapshot& rank : works.job.ranks) {
      rank.threads[0].state = 'R';
      rank.threads[0].motion->moved = true;
    }
    CHECK(analyze(works.job).verdict.status == VerdictStatus::kHealthy);
  }
  SECTION("cores of ranks that have met") {
    literal.rank(2, 4, waits_in_all_reduce());
    for (RankSnapshot& rank : literal.job.ranks) rank.source = Source::kCore;
    CHECK(analyze(literal.job).verdict.status == VerdictStatus::kUndecided);
  }
  SECTION("cores of ranks that wait for all to arrive") {
    LiteralJob start;
    for (int r = 0; r < 3; ++r)
      start
          .rank(r, 4,
                Stack{libc("recv"), nat("c10d::TCPStore::doWait(int)"), py("init_process_group", kC10d, 700)} +
                    in_main(5))
          .source = Source::kCore;
    CHECK(accused(start) == Accused{{3, "missing"}});
  }
}

TEST_CASE("processes that are not of the job are in no comparison") {
  LiteralJob literal;
  for (int r = 0; r < 4; ++r) literal.rank(r, 4, r == 2 ? in_getitem() : waits_in_all_reduce());
  RankSnapshot& shell = literal.process();
  shell.executable = "/usr/bin/sleep";
  literal.thread(shell, shell.pid, "sleep", {libc("clock_nanosleep"), nat("main", "/usr/bin/sleep")});
  CHECK(accused(literal) == Accused{{2, "data-loading"}});
  CHECK(analyze(literal.job).verdict.summary.find(std::to_string(shell.pid) + " is not of this job") !=
        std::string::npos);
}

TEST_CASE("where no process has a number, those of another program are not of the job") {
  LiteralJob literal;
  for (int r = 0; r < 5; ++r) {
    RankSnapshot& process = literal.process();
    process.executable = r == 0 ? "/opt/tools/bin/monitor-1.0" : "/home/u/env/bin/python3.11";  // of one length
    literal.thread(process, process.pid, "main",
                   r == 0   ? Stack{libc("clock_nanosleep"), nat("main", "/opt/tools/bin/monitor-1.0")}
                   : r == 2 ? in_getitem()
                            : waits_in_all_reduce());
  }
  const Verdict v = analyze(literal.job).verdict;
  REQUIRE(v.suspects.size() == 1);
  CHECK((v.suspects[0].rank == 2 && v.suspects[0].reason == Reason::kDataLoading));
  CHECK(v.summary.find(std::to_string(literal.job.ranks[0].pid) + " is not of this job") != std::string::npos);
}

TEST_CASE("processes of plain multiprocessing wait for each other in queues and locks") {
  const std::string lib = "/usr/lib/python3.11/multiprocessing/";
  LiteralJob literal;
  for (int r = 0; r < 4; ++r) {
    RankSnapshot& process = literal.process();
    process.executable = "/usr/bin/python3.11";
    process.python_version = "3.11.2";
    const Stack work = {libc("clock_nanosleep"), py("tokenize", "/home/u/job.py", 29)};
    const Stack queue = {libc("read"), py("_recv", lib + "connection.py", 378), py("get", lib + "queues.py", 103)};
    const Stack lock = {libc("sem_wait"),
                        nat("_multiprocessing_SemLock_acquire", "/usr/lib/python3.11/lib-dynload/_multiprocessing.so"),
                        py("__enter__", lib + "synchronize.py", 95)};
    literal.thread(process, process.pid, "python3",
                   (r == 1   ? work
                    : r == 0 ? queue
                             : lock) +
                       Stack{py("run", lib + "process.py", 108), py("_bootstrap", lib + "process.py", 314)});
  }
  const auto only_rank_1 = [&] {
    const Verdict v = analyze(literal.job).verdict;
    return v.suspects.size() == 1 && v.suspects[0].rank == 1 && v.suspects[0].reason == Reason::kUserCode;
  };
  CHECK(only_rank_1());
  SECTION("one has the queue's lock, and polls its pipe until its time is over") {
    ThreadSnapshot& polls = literal.job.ranks[0].threads[0];
    polls.frames.clear();
    for (const Frame& frame : Stack{libc("poll"), py("select", "/usr/lib/python3.11/selectors.py", 415),
                                    py("wait", lib + "connection.py", 930), py("_poll", lib + "connection.py", 423),
                                    py("poll", lib + "connection.py", 256), py("get", lib + "queues.py", 113),
                                    py("next_task", "/home/u/job.py", 55), py("run", lib + "process.py", 108)})
      polls.frames.push_back(literal.job.frames.intern(frame));
    CHECK(only_rank_1());
  }
}

TEST_CASE("a program of its own, whose main threads all join a pool: the threads that only some ranks have decide") {
  LiteralJob literal;
  for (int r = 0; r < 4; ++r) {
    RankSnapshot& rank = literal.rank(
        r, 4, {libc("pthread_join"), nat("flow::Pool::Join()", "/home/u/flow"), nat("main", "/home/u/flow")});
    rank.executable = "/home/u/flow";
    rank.python_version.reset();
    for (int t = 0; t < 5; ++t)
      literal.thread(rank, rank.pid * 10 + t, "w",
                     {libc("pthread_cond_wait"), nat("flow::Pool::Work()", "/home/u/flow")});
    literal.thread(rank, rank.pid * 10 + 9, "w",
                   r == 2 ? Stack{libc("pause"), nat("flow::data::LoadBatch(bool)", "/home/u/flow"),
                                  nat("flow::Pool::Work()", "/home/u/flow")}
                          : Stack{libc("usleep"), nat("flow::Poller::WaitFor(long)", "/home/u/flow"),
                                  nat("flow::Pool::Work()", "/home/u/flow")});
  }
  CHECK(accused(literal) == Accused{{2, "data-loading"}});
  SECTION("whichever of the pool's threads the main threads join at this moment") {
    literal.job.ranks[3].threads[0].joins = literal.job.ranks[3].threads[6].tid;
    CHECK(accused(literal) == Accused{{2, "data-loading"}});
    literal.job.ranks[0].threads[0].joins = literal.job.ranks[0].threads[1].tid;
    CHECK(accused(literal) == Accused{{2, "data-loading"}});
    literal.job.ranks[2].threads[0].joins = literal.job.ranks[2].threads[6].tid;
    CHECK(accused(literal) == Accused{{2, "data-loading"}});
  }
  SECTION("and where all have the same threads, no rank differs") {
    for (RankSnapshot& rank : literal.job.ranks)
      rank.threads.back().frames = literal.job.ranks[0].threads.back().frames;
    literal.job.ranks[3].threads[0].joins = literal.job.ranks[3].threads[6].tid;
    CHECK(analyze(literal.job).verdict.status == VerdictStatus::kSymmetric);
  }
}

TEST_CASE("a main thread that takes a lock waits for no thread of its pool") {
  LiteralJob literal;
  const std::string ring = "/home/u/ring";
  for (int r = 0; r < 4; ++r) {
    RankSnapshot& rank =
        literal.rank(r, 4,
                     r == 2 ? Stack{libc("pthread_mutex_lock"), nat("log_step()", ring), nat("main", ring)}
                            : Stack{libc("pthread_cond_wait"), nat("Engine::wait_for()", ring), nat("main", ring)});
    rank.executable = ring;
    rank.python_version.reset();
    rank.threads[0].syscall = call("futex");
    literal.thread(rank, rank.pid * 10, "ring",
                   r == 2 ? Stack{libc("pthread_cond_wait"), nat("Engine::comm_loop()", ring)}
                          : Stack{libc("recv"), nat("Ring::recv_all(int)", ring), nat("Engine::comm_loop()", ring)});
  }
  const Verdict verdict = analyze(literal.job).verdict;
  INFO(verdict.summary);
  CHECK(accused(literal) == Accused{{2, "native-lock"}});
  REQUIRE(verdict.suspects.size() == 1);
  CHECK(verdict.suspects[0].summary.find("waits for a lock in native code (log_step()") != std::string::npos);
}

TEST_CASE("a rank that waits for its GPU, and is missing in the group in which most ranks wait") {
  const Stack synchronizes =
      Stack{nat("cuStreamSynchronize", "libcuda.so.1"), py("synchronize", kPackages + "torch/cuda/__init__.py", 1162)} +
      in_main(30);
  const auto job_of = [&](int ranks, std::optional<ProcessGroup> group) {
    LiteralJob literal;
    for (int r = 0; r < ranks; ++r) {
      RankSnapshot& rank = literal.rank(r, ranks, r == 1 ? synchronizes : waits_in_all_reduce());
      literal.thread(rank, rank.pid + 1000, "x",
                     {libc("pthread_cond_wait"), nat("c10d::ProcessGroupNCCL::Watchdog::run()")});
      if (r != 1) arguments(rank, group);
    }
    return literal;
  };
  CHECK(accused(job_of(3, ProcessGroup{"1", {0, 1, 2}})) == Accused{{1, "collective-mismatch"}});
  SECTION("no majority: either may be right") { CHECK(accused(job_of(2, ProcessGroup{"1", {0, 1}})).empty()); }
  SECTION("the group does not need it") { CHECK(accused(job_of(3, ProcessGroup{"1", {0, 2}})).empty()); }
  SECTION("the group is not known") { CHECK(accused(job_of(3, std::nullopt)).empty()); }
}

TEST_CASE("ranks that poll for messages in one function are at one place") {
  const auto polls = [](const std::string& call, const std::string& caller) {
    return Stack{nat("opal_progress", "/usr/lib/libopen-pal.so.40"), nat(call, "/usr/lib/libmpi.so.40"),
                 nat(caller, "/home/u/solver"), nat("main", "/home/u/solver")};
  };
  LiteralJob literal;
  const char* const calls[] = {"PMPI_Test", "PMPI_Iprobe", "PMPI_Testall", "PMPI_Iprobe"};
  SECTION("whichever of its calls they are found in") {
    for (int r = 0; r < 4; ++r) literal.rank(r, 4, polls(calls[r], "exchange")).python_version.reset();
    CHECK(analyze(literal.job).verdict.status == VerdictStatus::kSymmetric);
  }
  SECTION("one of them in another function") {
    for (int r = 0; r < 4; ++r)
      literal.rank(r, 4, polls(calls[r], r == 2 ? "collect" : "exchange")).python_version.reset();
    CHECK(analyze(literal.job).verdict.status != VerdictStatus::kSymmetric);
  }
}

TEST_CASE("a rank that waits for the lock of a window is no odd one: another holds it") {
  LiteralJob literal;
  for (int r = 0; r < 4; ++r)
    literal
        .rank(r, 4,
              r == 3 ? Stack{nat("PMPI_Win_lock", "/usr/lib/libmpi.so.40"), nat("next_task", "/home/u/solver")}
                     : Stack{nat("PMPI_Barrier", "/usr/lib/libmpi.so.40"), nat("main", "/home/u/solver")})
        .python_version.reset();
  const Verdict verdict = analyze(literal.job).verdict;
  CHECK(verdict.status == VerdictStatus::kUndecided);
  CHECK(verdict.summary.find("who holds or fills it is not in these frames") != std::string::npos);
  REQUIRE(verdict.candidates.size() > 1);
  CHECK(verdict.candidates.front().rank != 3);
}

TEST_CASE("a rank that waits for a task of Ray's, and the others wait for that rank") {
  const Stack gets =
      Stack{libc("pthread_cond_timedwait"), py("get_objects", kPackages + "ray/_private/worker.py", 1007),
            py("get", kPackages + "ray/_private/worker.py", 3009)} +
      in_main(19);
  LiteralJob literal;
  for (int r = 0; r < 3; ++r) {
    RankSnapshot& rank = literal.rank(r, 3, r == 1 ? gets : in_call("all_reduce", 21));
    if (r != 1) arguments(rank, ProcessGroup{"0", {0, 1, 2}});
  }
  CHECK(accused(literal) == Accused{{1, "network-io"}});
  SECTION("not if their group is not known to need it") {
    LiteralJob unknown;
    for (int r = 0; r < 3; ++r) unknown.rank(r, 3, r == 1 ? gets : in_call("all_reduce", 21));
    CHECK(accused(unknown).empty());
  }
}
