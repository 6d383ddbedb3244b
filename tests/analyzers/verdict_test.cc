#include <catch2/catch.hpp>

#include <fmt/format.h>

#include "analyzers/activity.h"
#include "analyzers/analysis.h"
#include "support/odd_rank.h"

using namespace rankstacks;
using namespace rankstacks::analyzers;
using namespace rankstacks::testing;

TEST_CASE("one rank in its data pipeline, the others in a collective") {
  LiteralJob literal = one_differs(in_getitem());
  main_of_rank_2(literal).syscall = call("read", 5, "pipe:[123]");
  const Verdict v = verdict_of(literal);
  CHECK(v.status == VerdictStatus::kCulprit);
  CHECK(v.summary ==
        "rank 2 is in its data pipeline (__getitem__ at data.py:9, blocked in read(fd 5 -> pipe:[123])) while ranks "
        "0-1,3 wait in DDP's gradient all-reduce");
  REQUIRE(v.suspects.size() == 1);
  CHECK(v.suspects[0].reason == Reason::kDataLoading);
  CHECK(v.suspects[0].confidence == Approx(0.95));
  REQUIRE(v.suspects[0].evidence.size() == 1);
  CHECK((v.suspects[0].evidence[0].rank == 2 && v.suspects[0].evidence[0].thread == 0 &&
         v.suspects[0].evidence[0].frame == 1));
}

TEST_CASE("the loader's worker process shows where the data pipeline is") {
  const Stack waits_for_worker = Stack{libc("poll"), py("get", "/usr/lib/python3.11/multiprocessing/queues.py", 113),
                                       py("_try_get_data", kPackages + "torch/utils/data/dataloader.py", 1120),
                                       py("__next__", kPackages + "torch/utils/data/dataloader.py", 628)} +
                                 in_main(15);
  const Stack worker_root = {py("_worker_loop", kPackages + "torch/utils/data/_utils/worker.py", 302),
                             py("run", "/usr/lib/python3.11/multiprocessing/process.py", 108),
                             py("_bootstrap", "/usr/lib/python3.11/multiprocessing/process.py", 314)};
  LiteralJob literal = one_differs(waits_for_worker);
  literal.child(102, Stack{libc("poll"), py("get", "/usr/lib/python3.11/multiprocessing/queues.py", 113)} +
                         worker_root + in_main(15));  // idle; forked from main
  SECTION("busy") {
    literal.child(102, Stack{libc("read"), py("__getitem__", "/home/u/data.py", 9),
                             py("fetch", kPackages + "torch/utils/data/_utils/fetch.py", 54)} +
                           worker_root + in_main(15));
    CHECK(only_rank_2(literal) == "data-loading");
    const Verdict v = verdict_of(literal);
    CHECK(v.summary ==
          "rank 2 waits for its data pipeline: its loader worker, pid 105, is in __getitem__ at data.py:9 while ranks "
          "0-1,3 wait in DDP's gradient all-reduce");
    CHECK((v.suspects[0].evidence[0].rank == 5 && v.suspects[0].evidence[0].frame == 1));
  }
  SECTION("idle") {
    CHECK(only_rank_2(literal) == "data-loading");
    CHECK(verdict_of(literal).summary.find("worker") == std::string::npos);
  }
  SECTION("dead") {
    literal.child(102, {}, 'Z');
    CHECK(only_rank_2(literal) == "worker-dead");
    CHECK(verdict_of(literal).summary.find("pid 105") != std::string::npos);
  }
  SECTION("a zombie that could not be read") {
    RankSnapshot& child = literal.child(102, {});
    child.threads.clear();
    child.status = Status::kFailed;
    child.problems.push_back({"pid 105: a zombie: it has ended", {}, ProblemCode::kEnded});
    CHECK(only_rank_2(literal) == "worker-dead");
  }
  SECTION("another rank's dead child says nothing about this one") {
    literal.child(101, {}, 'Z');
    CHECK(only_rank_2(literal) == "data-loading");
  }
}

TEST_CASE("a rank that looks again and again for what a dead child was to bring") {
  LiteralJob literal = one_differs(kSleep + in_main(30));
  Motion& motion = main_of_rank_2(literal).motion.emplace(
      Motion{.samples = 8, .places = 1, .cpu_ms = 40, .runs = 2000, .span_ms = 2600, .in_one_function = true});
  CHECK(only_rank_2(literal) == "user-code");
  SECTION("its child is dead") {
    literal.child(102, {}, 'Z');
    CHECK(only_rank_2(literal) == "worker-dead");
    SECTION("so is one of each of the others: that is normal for this program") {
      for (const Pid other : {100, 101, 103}) literal.child(other, {}, 'Z');
      CHECK(only_rank_2(literal) == "user-code");
    }
    SECTION("it sleeps for long: what it waits for is not known") {
      motion.runs = 1;
      CHECK(only_rank_2(literal) == "user-code");
    }
  }
  SECTION("another rank's child is dead") {
    literal.child(101, {}, 'Z');
    CHECK(only_rank_2(literal) == "user-code");
  }
}

TEST_CASE("a child's output, which what it has left behind keeps open") {
  const std::string subprocess = "/usr/lib/python3.11/subprocess.py";
  LiteralJob literal = one_differs(Stack{libc("poll"), py("select", "/usr/lib/python3.11/selectors.py", 415),
                                         py("_communicate", subprocess, 2059), py("communicate", subprocess, 1207)} +
                                   in_main(30));
  literal.job.ranks[2].threads[0].syscall = call("poll", 10, "pipe:[7]");
  CHECK(verdict_of(literal).summary.find("waits for a child process") != std::string::npos);
  literal.child(102, {}, 'Z');
  CHECK(only_rank_2(literal) == "subprocess");
  CHECK(verdict_of(literal).summary.find("waits for the output of a child that has ended") != std::string::npos);
  SECTION("another child is alive") {
    literal.child(102, Stack{libc("read"), py("main", "/home/u/convert.py", 3)});
    CHECK(only_rank_2(literal) == "subprocess");
    CHECK(verdict_of(literal).summary.find("waits for a child process: pid 105") != std::string::npos);
  }
}

TEST_CASE("reasons known from frames") {
  auto reason = [](const Stack& inner, const std::string& = "") {
    return only_rank_2(one_differs(inner + in_main(30)));
  };
  const std::string lib = "/usr/lib/python3.11/";
  CHECK(reason({libc("write"), py("_save", kPackages + "torch/serialization.py", 400),
                py("save", kPackages + "torch/serialization.py", 300)}) == "checkpoint-io");
  CHECK(reason({libc("fsync"), py("save_checkpoint", "/home/u/train.py", 70)}) == "checkpoint-io");
  CHECK(reason({libc("recv"), py("read", lib + "ssl.py", 1), py("readinto", lib + "socket.py", 1),
                py("begin", lib + "http/client.py", 1), py("send", kPackages + "requests/adapters.py", 3)}) ==
        "network-io");
  CHECK(reason({libc("wait4"), py("_try_wait", lib + "subprocess.py", 1), py("wait", lib + "subprocess.py", 2)}) ==
        "subprocess");
  CHECK(reason({libc("read"), nat("builtin_input", "/usr/bin/python3.11")}) == "debugger");
  CHECK(reason({libc("read"), py("_cmdloop", lib + "pdb.py", 3), py("interaction", lib + "pdb.py", 4),
                py("dispatch_line", lib + "bdb.py", 5)}) == "debugger");
  // It counts lines, and waits for nobody.
  CHECK(reason({py("dispatch_line", lib + "bdb.py", 113), py("trace_dispatch", lib + "bdb.py", 90),
                py("augment", "/home/u/train.py", 151)}) != "debugger");
  CHECK(reason({libc("read"), py("wait", kPackages + "torch/utils/file_baton.py", 45),
                py("load", kPackages + "torch/utils/cpp_extension.py", 1)}) == "compiling");
  CHECK(reason({libc("wait4"), py("wait", lib + "subprocess.py", 2),
                py("compile_file", kPackages + "torch/_inductor/cpp_builder.py", 1)}) == "compiling");
  CHECK(reason({nat("subtract_refs", "/usr/bin/python3.11"), nat("gc_collect_main", "/usr/bin/python3.11")}) ==
        "garbage-collection");
  CHECK(reason({libc("write"), py("print_exception", lib + "traceback.py", 125)}) == "exception");
  CHECK(reason({nat("_Unwind_RaiseException", "/lib/libgcc_s.so.1"), nat("__cxa_throw", "/lib/libstdc++.so.6"),
                nat("check")}) == "exception");
  CHECK(reason({libc("pthread_clockjoin_np"), nat("c10d::ProcessGroupNCCL::shutdown()"),
                py("destroy_process_group", kPackages + "torch/distributed/distributed_c10d.py", 9)}) == "exception");
  CHECK(reason({libc("ioctl"), nat("cuStreamSynchronize", "/usr/lib/libcuda.so.1"),
                nat("cudaStreamSynchronize", "/x/libcudart.so")}) == "gpu-wait");
  CHECK(reason({libc("sem_wait"), nat("PyThread_acquire_lock_timed", "/usr/bin/python3.11"),
                nat("lock_PyThread_acquire_lock", "/usr/bin/python3.11"), py("put", "/home/u/q.py", 3)}) ==
        "python-lock");
  CHECK(reason({libc("sem_wait"), py("wait", lib + "threading.py", 320)}) == "python-lock");
  CHECK(reason({libc("__lll_lock_wait"), libc("pthread_mutex_lock"), nat("mylib::step()", "/home/u/mylib.so")}) ==
        "native-lock");
  CHECK(reason(kSleep) == "user-code");
  CHECK(reason({nat("mylib::step()", "/home/u/mylib.so")}) == "user-code");
}

TEST_CASE("of several reasons on a stack the one nearest the cause") {
  auto reason = [](const Stack& stack) { return only_rank_2(one_differs(stack)); };
  const std::string lib = "/usr/lib/python3.11/";
  CHECK(reason(Stack{libc("recv"), py("readinto", lib + "socket.py", 1)} + in_getitem()) == "data-loading");
  CHECK(reason(Stack{libc("read"), py("load", kPackages + "torch/serialization.py", 1)} + in_getitem()) ==
        "data-loading");
  CHECK(reason(Stack{libc("read"), py("interaction", lib + "pdb.py", 1)} + in_getitem()) == "debugger");
  CHECK(reason(Stack{nat("gc_collect_main", "/usr/bin/python3.11")} + waits_in_all_reduce(33)) == "garbage-collection");
}

TEST_CASE("a rank that looks again and again for something is not accused while another one is blocked") {
  LiteralJob literal;
  const Stack polls = Stack{libc("clock_nanosleep"), py("write", "/home/u/ring.py", 35)} + in_main(53),
              reads = Stack{libc("read"), py("work", "/home/u/train.py", 40)} + in_main(30);
  for (int r = 0; r < 4; ++r) literal.rank(r, 4, r == 0 ? polls : r == 2 ? reads : waits_in_all_reduce(), 'S');
  for (RankSnapshot& rank : literal.job.ranks)
    rank.threads[0].motion = Motion{.samples = 8, .places = 1, .cpu_ms = 0, .runs = 0, .span_ms = 6000};
  ThreadSnapshot& first = literal.job.ranks[0].threads[0];
  first.syscall = call("clock_nanosleep", std::nullopt);
  first.motion->runs = 5000, first.motion->in_one_function = true;
  literal.job.ranks[2].threads[0].syscall = call("read", 7, "/data/shard-1");
  const auto accused = [&] {
    std::string text;
    for (const Suspect& s : analyze(literal.job).verdict.suspects) text += std::to_string(s.rank) + " ";
    return text;
  };
  CHECK(accused() == "2 ");
  first.motion->runs = 3;  // a few long sleeps are its own
  CHECK(accused() != "2 ");
}

TEST_CASE("reasons known from the system call and the state") {
  SECTION("a regular file") {
    LiteralJob literal = one_differs(Stack{libc("read"), py("work", "/home/u/train.py", 40)} + in_main(30));
    main_of_rank_2(literal).syscall = call("read", 7, "/data/shard-1");
    CHECK(only_rank_2(literal) == "file-io");
  }
  SECTION("a socket") {
    LiteralJob literal = one_differs(Stack{libc("read"), py("work", "/home/u/train.py", 40)} + in_main(30));
    main_of_rank_2(literal).syscall = call("read", 7, "tcp 10.0.0.1:4 -> 10.0.0.2:5432");
    CHECK(only_rank_2(literal) == "network-io");
  }
  SECTION("a pipe is the program's own business") {
    LiteralJob literal = one_differs(Stack{libc("read"), py("work", "/home/u/train.py", 40)} + in_main(30));
    main_of_rank_2(literal).syscall = call("read", 7, "pipe:[5]");
    CHECK(only_rank_2(literal) == "user-code");
  }
  SECTION("a full pipe to which a library logs, inside of a collective") {
    LiteralJob literal = one_differs(Stack{libc("write"), nat("ncclDebugLog", "libnccl.so.2")} + waits_in_all_reduce());
    main_of_rank_2(literal).syscall = call("write", 52, "/scratch/collected-logs");
    CHECK(only_rank_2(literal) == "file-io");
    main_of_rank_2(literal).syscall = call("write", 2, "pipe:[5]");
    CHECK(only_rank_2(literal) == "file-io");
    main_of_rank_2(literal).syscall = call("write", 9, "tcp 10.0.0.1:4 -> 10.0.0.2:5432");  // how it reaches ranks
    CHECK(only_rank_2(literal) != "file-io");
  }
  SECTION("standard input") {
    LiteralJob literal = one_differs(Stack{libc("read"), py("work", "/home/u/train.py", 40)} + in_main(30));
    main_of_rank_2(literal).syscall = call("read", 0, "/dev/pts/1");
    CHECK(only_rank_2(literal) == "debugger");
  }
  SECTION("state D") {
    CHECK(only_rank_2(one_differs(Stack{py("work", "/home/u/train.py", 40)} + in_main(30), 'D')) == "file-io");
  }
  SECTION("stopped, even inside of a collective") {
    CHECK(only_rank_2(one_differs(waits_in_backward(), 'T')) == "stopped");
  }
  SECTION("frozen, even inside of a collective, and whatever the kernel shows as its state") {
    const LiteralJob literal = one_differs(waits_in_backward(), 'F');
    CHECK(only_rank_2(literal) == "stopped");
    CHECK(verdict_of(literal).summary.find("rank 2 is frozen") != std::string::npos);
    CHECK(verdict_of(literal).suspects[0].advice.find("thaw") != std::string::npos);
  }
  SECTION("traced") { CHECK(only_rank_2(one_differs(kSleep + in_main(30), 't')) == "stopped"); }
  SECTION("waits for the GIL") {
    LiteralJob literal =
        one_differs(Stack{libc("pthread_cond_timedwait"), py("work", "/home/u/train.py", 40)} + in_main(30));
    main_of_rank_2(literal).gil = Gil::kWaits;
    CHECK(only_rank_2(literal) == "python-lock");
  }
}

TEST_CASE("a wait is named by the operation that the program called") {
  LiteralJob literal;
  const std::string c10d = kPackages + "torch/distributed/distributed_c10d.py";
  SECTION("a receive's Work is no collective") {
    const Stack recv = Stack{libc("pthread_cond_timedwait"), nat("gloo::transport::tcp::UnboundBuffer::waitRecv(int*)"),
                             nat("c10d::ProcessGroupGloo::RecvWork::wait(int)")} +
                       in_main(5);
    for (int r = 0; r < 4; ++r) literal.rank(r, 4, r == 0 ? recv : waits_in_all_reduce());
    const Verdict v = verdict_of(literal);
    REQUIRE(v.suspects.size() == 1);
    CHECK((v.suspects[0].rank == 0 && v.suspects[0].reason == Reason::kUnmatchedP2p && v.suspects[0].confidence < 0.5));
  }
  SECTION("DDP's constructor") {
    const Stack verify =
        Stack{libc("pthread_cond_wait"), nat("c10d::Work::wait(int)"), nat("c10d::verify_params_across_processes(int)"),
              py("_verify_param_shape_across_processes", kPackages + "torch/distributed/utils.py", 112)} +
        in_main(5);
    for (int r = 0; r < 4; ++r) literal.rank(r, 4, r == 2 ? kSleep + in_main(4) : verify);
    CHECK(verdict_of(literal).summary.ends_with("while ranks 0-1,3 wait in DDP's parameter check"));
  }
  SECTION("an operation made of others") {
    const Stack object = Stack{libc("pthread_cond_wait"), nat("c10d::Work::wait(int)"), py("all_gather", c10d, 9),
                               py("all_gather_object", c10d, 8)} +
                         in_main(5);
    for (int r = 0; r < 4; ++r) literal.rank(r, 4, r == 2 ? kSleep + in_main(4) : object);
    CHECK(verdict_of(literal).summary.ends_with("while ranks 0-1,3 wait in all_gather_object"));
  }
}

TEST_CASE("what MPI does inside of its calls means nothing: the caller counts") {
  LiteralJob literal;
  const Frame exchange = nat("exchange_halo", "/home/u/solver");
  for (int r = 0; r < 4; ++r) {
    RankSnapshot& rank =
        literal.rank(r, 4,
                     Stack{nat(fmt::format("ucp_{}", r), "/lib/libucp.so.0"), nat("PMPI_Recv", "/lib/libmpi.so.12"),
                           exchange, nat("main", "/home/u/solver")},
                     'R');
    rank.python_version.reset();
  }
  const Verdict v = verdict_of(literal);
  CHECK(v.status == VerdictStatus::kSymmetric);
  CHECK(v.summary.starts_with("all ranks do the same: ranks 0-3 wait in MPI_Recv at the same place"));
  ThreadSnapshot& thread = main_of_rank_2(literal);
  thread.frames.edit()[1] = literal.job.frames.intern(nat("PMPI_Bcast", "/lib/libmpi.so.12"));
  CHECK(describe_place(literal.job, thread) == "exchange_halo in solver");
  Frame with_line = exchange;
  with_line.file = "/home/u/solver.c";
  with_line.line = 12;
  thread.frames.edit()[2] = literal.job.frames.intern(with_line);
  CHECK(describe_place(literal.job, thread) == "exchange_halo at solver.c:12 in solver");
}

TEST_CASE("a barrier of multiprocessing is a wait for ranks") {
  const std::string lib = "/usr/lib/python3.11/";
  LiteralJob literal;
  for (int r = 0; r < 4; ++r)
    literal.rank(r, 4,
                 r == 2 ? kSleep + in_main(4)
                        : Stack{libc("sem_wait"), py("wait", lib + "multiprocessing/synchronize.py", 261),
                                py("wait_for", lib + "multiprocessing/synchronize.py", 313),
                                py("_wait", lib + "threading.py", 721), py("wait", lib + "threading.py", 686)} +
                              in_main(5));
  CHECK(only_rank_2(literal) == "user-code");
}

TEST_CASE("gloo's threads at work are no hang") {
  LiteralJob literal;
  for (int r = 0; r < 4; ++r)
    literal
        .thread(literal.rank(r, 4, waits_in_all_reduce()), 900 + r, "x",
                {libc("recv"), nat("gloo::transport::tcp::Loop::run()")})
        .state = r == 1 ? 'R' : 'S';
  CHECK(verdict_of(literal).status == VerdictStatus::kUndecided);
  literal.job.ranks[1].threads[1].state = 'S';
  CHECK(verdict_of(literal).status == VerdictStatus::kSymmetric);
}

TEST_CASE("two collectives") {
  LiteralJob literal;
  SECTION("the smaller side") {
    for (int r = 0; r < 4; ++r) literal.rank(r, 4, r == 2 ? waits_in_all_reduce(21) : waits_in_backward());
    CHECK(only_rank_2(literal) == "collective-mismatch");
    CHECK(verdict_of(literal).summary ==
          "rank 2 waits in all_reduce (main at train.py:21) while ranks 0-1,3 wait in DDP's gradient all-reduce (main "
          "at train.py:17)");
  }
  SECTION("both sides when equal") {
    for (int r = 0; r < 4; ++r) literal.rank(r, 4, r < 2 ? waits_in_all_reduce(21) : waits_in_backward());
    const Verdict v = verdict_of(literal);
    CHECK(v.status == VerdictStatus::kCulprit);
    CHECK(v.suspects.size() == 4);
    CHECK(v.suspects[0].confidence < 0.5);
    CHECK(v.summary ==
          "ranks 0-1 wait in all_reduce (main at train.py:21) while ranks 2-3 wait in DDP's gradient all-reduce (main "
          "at train.py:17): both cannot be right, and the stacks do not show which is");
  }
  SECTION("the store against a collective") {
    const Stack store = Stack{libc("poll"), nat("c10d::TCPStore::wait(int)"),
                              py("_store_based_barrier", kPackages + "torch/distributed/distributed_c10d.py", 1)} +
                        in_main(5);
    for (int r = 0; r < 4; ++r) literal.rank(r, 4, r == 2 ? store : waits_in_backward());
    CHECK(only_rank_2(literal) == "store-wait");
  }
}

TEST_CASE("waiting in the store for a rank that is elsewhere accuses that rank") {
  const Stack store = Stack{libc("poll"), nat("c10d::TCPStore::doWait(int)"),
                            py("init_process_group", kPackages + "torch/distributed/distributed_c10d.py", 1)} +
                      in_main(5);
  LiteralJob literal;
  for (int r = 0; r < 4; ++r) literal.rank(r, 4, r == 2 ? kSleep + in_main(3) : store);
  CHECK(only_rank_2(literal) == "user-code");
  CHECK(
      verdict_of(literal).summary ==
      "rank 2 sleeps in its own code (work at train.py:40) while ranks 0-1,3 wait in the rendezvous store (TCPStore)");
}

TEST_CASE("a GPU wait under NCCL may be the collective: it waits, it is no suspect") {
  const Stack gpu =
      Stack{nat("cuStreamSynchronize", "/usr/lib/libcuda.so.1"), nat("at::native::copy_kernel_cuda(int)")} +
      in_main(20);
  auto with_nccl = [](LiteralJob& literal) {
    for (RankSnapshot& rank : literal.job.ranks)
      literal.thread(rank, rank.pid + 500, "x",
                     {libc("pthread_cond_clockwait"), nat("c10d::ProcessGroupNCCL::Watchdog::runLoop()")});
  };
  LiteralJob literal;
  SECTION("a rank elsewhere is the suspect") {
    for (int r = 0; r < 4; ++r) literal.rank(r, 4, r == 2 ? in_getitem() : gpu);
    with_nccl(literal);
    CHECK(only_rank_2(literal) == "data-loading");
    CHECK(verdict_of(literal).summary.find("ranks 0-1,3 wait for their GPUs") != std::string::npos);
  }
  SECTION("next to a collective nobody is") {
    for (int r = 0; r < 4; ++r) literal.rank(r, 4, r == 2 ? gpu : waits_in_all_reduce());
    with_nccl(literal);
    CHECK(verdict_of(literal).status == VerdictStatus::kUndecided);
  }
}

TEST_CASE("what must not be decided") {
  LiteralJob literal;
  SECTION("frames that do not show what a rank does") {
    literal = one_differs({unknown("/x/a.so", 0x10), unknown("/x/b.so", 0x20)});
  }
  SECTION("native frames alone of a Python program") { literal = one_differs({libc("poll"), nat("some_loop")}); }
  SECTION("a native stack that ended early") {
    literal = one_differs({nat("some_loop")});
    literal.job.ranks[2].python_version.reset();
    main_of_rank_2(literal).stack_end = StackEnd::kMemoryUnavailable;
  }
  SECTION("no frames") { literal = one_differs({}); }
  SECTION("a rank that could not be read") {
    literal = one_differs({});
    literal.job.ranks[2].threads.clear();
    literal.job.ranks[2].status = Status::kFailed;
  }
  SECTION("sends and receives") {
    for (int r = 0; r < 4; ++r)
      literal.rank(
          r, 4,
          Stack{libc("poll"), py(r % 2 ? "send" : "recv", kPackages + "torch/distributed/distributed_c10d.py", 5)} +
              in_main(r));
  }
  SECTION("most ranks run, one has arrived early") {
    for (int r = 0; r < 4; ++r) literal.rank(r, 4, r == 2 ? waits_in_backward() : in_main(10 + r), r == 2 ? 'S' : 'R');
  }
  SECTION("nobody waits, all at different places") {
    for (int r = 0; r < 4; ++r) literal.rank(r, 4, kSleep + in_main(10 + r));
  }
  SECTION("three places without a majority") {
    for (int r = 0; r < 3; ++r) literal.rank(r, 3, waits_in_all_reduce(10 + r));
  }
  SECTION("two jobs at once") {
    literal = one_differs(in_getitem());
    literal.rank(0, 4, waits_in_all_reduce());
    literal.rank(1, 4, waits_in_all_reduce());
    CHECK(verdict_of(literal).summary.starts_with("ranks 0-1 are there more than once"));
  }
  SECTION("one rank only") { literal.rank(0, 1, kSleep + in_main(1)); }
  SECTION("no ranks") {}
  const Verdict v = verdict_of(literal);
  CHECK(v.status == VerdictStatus::kUndecided);
  CHECK(v.suspects.empty());
  CHECK_FALSE(v.summary.empty());
}

TEST_CASE("what could not be read is said, and costs confidence") {
  LiteralJob literal = one_differs(in_getitem());
  literal.job.ranks[3].threads.clear();
  literal.job.ranks[3].status = Status::kFailed;
  literal.job.ranks[1].status = Status::kPartial;
  const Verdict v = verdict_of(literal);
  CHECK(v.status == VerdictStatus::kCulprit);
  CHECK(v.summary.find("; rank 3 could not be read; rank 1 was read only in part") != std::string::npos);
  CHECK(v.suspects.at(0).confidence == Approx(0.75));
}

TEST_CASE("several suspects, several reasons: the surest first") {
  LiteralJob literal;
  for (int r = 0; r < 8; ++r)
    literal.rank(r, 8, r == 1 ? kSleep + in_main(3) : r == 2 || r == 5 ? in_getitem() : waits_in_backward());
  const Verdict v = verdict_of(literal);
  REQUIRE(v.suspects.size() == 3);
  CHECK((v.suspects[0].rank == 2 && v.suspects[1].rank == 5 && v.suspects[2].rank == 1));
  CHECK(v.summary ==
        "rank 2 is in its data pipeline (__getitem__ at data.py:9) while ranks 0,3-4,6-7 wait in DDP's gradient "
        "all-reduce; rank 5 likewise; also rank 1 (user-code)");
}

TEST_CASE("a server that waits for requests holds up nobody") {
  const Stack selects = Stack{libc("epoll_wait"), py("select", "/usr/lib/python3.11/selectors.py", 468),
                              py("serve", "/home/u/serve.py", 40)} +
                        in_main(20);
  LiteralJob literal;
  ThreadSnapshot& server = literal.rank(0, 4, selects).threads[0];
  server.syscall = call("epoll_wait", 7, "anon_inode:[eventpoll]");
  server.syscall->listens = true;
  for (int r = 1; r < 4; ++r) literal.rank(r, 4, waits_in_all_reduce());
  CHECK(verdict_of(literal).status == VerdictStatus::kHealthy);
  CHECK(verdict_of(literal).summary.find("rank 0 waits for requests") != std::string::npos);
  CHECK(analyze(literal.job).activities[0]->kind == "idle");
  SECTION("but for the rank that holds up the others too") {
    literal.job.ranks[2].threads[0].frames.clear();
    for (const Frame& frame : in_getitem())
      literal.job.ranks[2].threads[0].frames.push_back(literal.job.frames.intern(frame));
    const Verdict v = verdict_of(literal);
    REQUIRE(v.suspects.size() == 1);
    CHECK(v.suspects[0].rank == 2);
  }
  SECTION("its loop waits for an answer, and for no connection") {
    literal.job.ranks[0].threads[0].syscall->listens = false;
    CHECK(verdict_of(literal).suspects.at(0).rank == 0);
  }
  SECTION("a plain accept() waits for one certain connection") {
    literal.job.ranks[0].threads[0].syscall->name = "accept4";
    CHECK(verdict_of(literal).suspects.at(0).rank == 0);
  }
  SECTION("or for a request, if the others wait for what this rank will broadcast") {
    LiteralJob service;
    service.rank(0, 4, Stack{libc("accept4"), py("accept", "/usr/lib/python3.11/socket.py", 294)} + in_main(20))
        .threads[0]
        .syscall = call("accept4", 7, "tcp 127.0.0.1:56537 (listening)");
    for (int r = 1; r < 4; ++r)
      service.rank(r, 4, Stack{nat("PMPI_Bcast", "/usr/lib/libmpi.so.40")} + in_main(30), 'R');
    CHECK(verdict_of(service).status == VerdictStatus::kHealthy);
    for (int r = 1; r < 4; ++r)
      service.job.ranks[static_cast<std::size_t>(r)].threads[0].frames.edit()[0] =
          service.job.frames.intern(nat("PMPI_Barrier", "/usr/lib/libmpi.so.40"));
    CHECK(verdict_of(service).suspects.at(0).rank == 0);
  }
  SECTION("in a core, where sockets are not known, it is the loop of a known server") {
    const auto in_core = [&](const std::string& file) {
      LiteralJob cores;
      cores.rank(
          0, 4,
          Stack{libc("poll"), py("select", "/usr/lib/python3.11/selectors.py", 415), py("serve_forever", file, 233)} +
              in_main(20));
      for (int r = 1; r < 4; ++r) cores.rank(r, 4, waits_in_all_reduce());
      for (RankSnapshot& rank : cores.job.ranks) rank.source = Source::kCore;
      return verdict_of(cores).status;
    };
    CHECK(in_core("/usr/lib/python3.11/socketserver.py") == VerdictStatus::kHealthy);
    CHECK(in_core("/home/u/serve.py") == VerdictStatus::kCulprit);
  }
  SECTION("the server is a child, for which the rank waits") {
    SyscallInfo reads = call("read", 8, "pipe:[5]");
    reads.others = {{.pid = 104}};
    for (const bool between_requests : {true, false}) {
      LiteralJob with_child;
      for (int r = 0; r < 4; ++r)
        with_child.rank(
            r, 4,
            r == 0 ? Stack{libc("read"), py("recv", "/home/u/serve.py", 30)} + in_main(20) : waits_in_all_reduce());
      with_child.job.ranks[0].threads[0].syscall = reads;
      ThreadSnapshot& front_end = with_child.child(100, selects).threads[0];
      front_end.syscall = call("epoll_wait", 7, "anon_inode:[eventpoll]");
      front_end.syscall->listens = between_requests;
      const Verdict v = verdict_of(with_child);
      CHECK((v.status == VerdictStatus::kHealthy) == between_requests);
      CHECK(v.suspects.empty() == between_requests);
    }
  }
}

TEST_CASE("steps that are longer than the time between two samples") {
  const Stack worker = {libc("pthread_cond_wait"), nat("c10d::ProcessGroupGloo::runLoop(int)")};
  LiteralJob literal;
  for (int r = 0; r < 3; ++r) {
    RankSnapshot& rank = literal.rank(r, 3, r == 2 ? kSleep + in_main(3) : waits_in_all_reduce());
    rank.threads[0].motion = Motion{.samples = 8, .places = 1, .runs = r == 2 ? 5 : 2, .span_ms = 2600};
    literal.thread(rank, 900 + r, "pt_gloo_runloop", worker).motion =
        Motion{.samples = 8, .places = 2, .moved = true, .left_wait = true, .runs = 9, .span_ms = 2600};
  }
  CHECK(verdict_of(literal).status == VerdictStatus::kHealthy);
  SECTION("gloo works for a group of another thread: no wait of the main threads has ended") {
    for (RankSnapshot& rank : literal.job.ranks) rank.threads[0].motion->runs = 0;
    CHECK(verdict_of(literal).suspects.at(0).rank == 2);
  }
  SECTION("no collective has ended") {
    for (RankSnapshot& rank : literal.job.ranks) rank.threads[1].motion->left_wait = false;
    CHECK(verdict_of(literal).suspects.at(0).rank == 2);
  }
}

TEST_CASE("a rank that hands on requests from its thread, which serves, is idle") {
  const std::string python = "/usr/lib/python3.11/";
  const Stack takes = Stack{libc("sem_wait"), py("wait", python + "threading.py", 320),
                            py("get", python + "queue.py", 171), py("next_request", "/home/u/serve.py", 30)} +
                      in_main(20);
  const Stack selects = {libc("poll"), py("select", python + "selectors.py", 415),
                         py("serve_forever", python + "socketserver.py", 235), py("run", python + "threading.py", 982)};
  const auto job_of = [&](const std::string& call_of_others, std::optional<int> root, bool listens) {
    LiteralJob literal;
    RankSnapshot& first = literal.rank(0, 3, takes);
    ThreadSnapshot& server = literal.thread(first, 900, "python3", selects);
    server.syscall = call("poll", 7, "tcp 127.0.0.1:8000 (listening)");
    server.syscall->listens = listens;
    for (int r = 1; r < 3; ++r) {
      const std::string file = kPackages + "torch/distributed/distributed_c10d.py";
      RankSnapshot& rank = literal.rank(
          r, 3,
          Stack{libc("pthread_cond_wait"), nat("c10d::Work::wait(long)"), py(call_of_others, file, 900)} + in_main(31));
      FrameVariables variables{.frame = 2, .group = ProcessGroup{"1", {0, 1, 2}}};
      if (root) variables.numbers = {{"src", *root}};
      rank.threads[0].variables = {variables};
    }
    return literal;
  };
  CHECK(verdict_of(job_of("broadcast", 0, true)).status == VerdictStatus::kHealthy);
  SECTION(
      "the others meet among all: its server may be one of metrics, and the queue that of a thread that has ended") {
    CHECK(verdict_of(job_of("all_reduce", std::nullopt, true)).suspects.at(0).rank == 0);
  }
  SECTION("the others expect it from another rank") {
    CHECK(verdict_of(job_of("broadcast", 1, true)).status != VerdictStatus::kHealthy);
  }
  SECTION("the thread waits for one certain connection") {
    CHECK(verdict_of(job_of("broadcast", 0, false)).suspects.at(0).rank == 0);
  }
}

TEST_CASE("the store in which an operation's communicator is set up is the operation's") {
  const std::string c10d = kPackages + "torch/distributed/distributed_c10d.py";
  const Stack sends = Stack{libc("poll"),
                            nat("c10d::TCPStore::doWait(c10::ArrayRef<std::string>)"),
                            nat("c10d::ProcessGroupNCCL::broadcastUniqueNCCLID(ncclUniqueId*)"),
                            nat("c10d::ProcessGroupNCCL::initNCCLComm(std::string const&)"),
                            nat("c10d::ProcessGroupNCCL::send(std::vector<at::Tensor>&, int, int)"),
                            py("isend", c10d, 2552),
                            py("send", c10d, 2627)} +
                      in_main(62);
  LiteralJob literal;
  for (int r = 0; r < 4; ++r) literal.rank(r, 4, r == 2 ? sends : waits_in_all_reduce());
  const auto activity = analyze(literal.job).activities[2];
  REQUIRE(activity);
  CHECK(activity->kind == "in-p2p");
  CHECK(activity->operation == "send");
}
