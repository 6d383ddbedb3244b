// A rank whose main thread waits for a thread of its own: what that thread does is what the rank does.
#include <catch2/catch.hpp>

#include "analyzers/analysis.h"
#include "support/odd_rank.h"

using namespace rankstacks;
using namespace rankstacks::analyzers;
using namespace rankstacks::testing;

TEST_CASE("if the main thread waits for another thread, that thread shows what the rank does") {
  const Stack waits_for_engine =
      Stack{libc("pthread_cond_wait"), nat("c10::ivalue::Future::wait()"), nat("torch::autograd::Engine::execute(int)"),
            py("backward", kPackages + "torch/_tensor.py", 488)} +
      in_main(17);
  const Stack engine_root = {nat("torch::autograd::Engine::thread_main(int)"),
                             nat("torch::autograd::Engine::thread_init(int)")};
  LiteralJob literal = one_differs(waits_for_engine);
  SECTION("a hook that sleeps") {
    literal.thread(literal.job.ranks[2], 999, "pt_autograd_0",
                   Stack{libc("clock_nanosleep"), py("hook", "/home/u/train.py", 8)} + engine_root);
    CHECK(only_rank_2(literal) == "user-code");
    CHECK(verdict_of(literal).suspects[0].evidence[0].thread == 1);
  }
  SECTION("a collective: all wait") {
    for (RankSnapshot& rank : literal.job.ranks) rank.threads.clear();
    for (int r = 0; r < 4; ++r) {
      literal.thread(literal.job.ranks[r], 100 + r, "python3", waits_for_engine);
      literal.thread(literal.job.ranks[r], 900 + r, "pt_autograd_0",
                     Stack{libc("pthread_cond_wait"), nat("c10d::Reducer::finalize_backward()")} + engine_root);
    }
    CHECK(verdict_of(literal).status == VerdictStatus::kSymmetric);
  }
  SECTION("an idle engine shows nothing") {
    literal.thread(literal.job.ranks[2], 999, "pt_autograd_0",
                   Stack{libc("pthread_cond_wait"), nat("torch::autograd::ReadyQueue::pop()")} + engine_root);
    CHECK(verdict_of(literal).status == VerdictStatus::kUndecided);
  }
  SECTION("main joins a thread that saves a checkpoint") {
    LiteralJob other =
        one_differs(Stack{libc("sem_wait"), py("join", "/usr/lib/python3.11/threading.py", 1)} + in_main(50));
    other.thread(other.job.ranks[2], 999, "x",
                 {libc("write"), py("save", kPackages + "torch/serialization.py", 1),
                  py("run", "/usr/lib/python3.11/threading.py", 2)});
    CHECK(only_rank_2(other) == "checkpoint-io");
  }
  SECTION("main joins a thread of the user's") {
    const std::string lib = "/usr/lib/python3.11/";
    LiteralJob other = one_differs(Stack{libc("sem_wait"), py("join", lib + "threading.py", 1)} + in_main(50));
    other.thread(
        other.job.ranks[2], 998, "x",
        {libc("sem_wait"), py("wait", lib + "threading.py", 1), py("run", lib + "threading.py", 2)});  // a helper, idle
    other
        .thread(other.job.ranks[2], 999, "x",
                Stack{libc("recv"), py("download", "/home/u/train.py", 8), py("run", lib + "threading.py", 2)})
        .syscall = call("recvfrom", 3, "tcp a -> b");
    CHECK(only_rank_2(other) == "network-io");
    other.thread(other.job.ranks[2], 1000, "x", kSleep + Stack{py("run", lib + "threading.py", 2)});
    CHECK(only_rank_2(other) == "python-lock");  // which of the two it joins is not known
    LiteralJob lock =
        one_differs(Stack{libc("sem_wait"), nat("lock_PyThread_acquire_lock", "/usr/bin/python3.11")} + in_main(50));
    lock.thread(lock.job.ranks[2], 999, "x", kSleep + Stack{py("run", lib + "threading.py", 2)});
    CHECK(only_rank_2(lock) == "python-lock");  // a lock is not a join
  }
  SECTION("main waits for a pool of processes") {
    const std::string lib = "/usr/lib/python3.11/";
    const Stack pool =
        Stack{libc("sem_wait"), py("wait", lib + "threading.py", 1), py("wait", lib + "multiprocessing/pool.py", 2),
              py("get", lib + "multiprocessing/pool.py", 3)} +
        in_main(50);
    const Stack worker = {py("worker", lib + "multiprocessing/pool.py", 5),
                          py("run", lib + "multiprocessing/process.py", 6),
                          py("_bootstrap", lib + "multiprocessing/process.py", 7)};
    LiteralJob other = one_differs(pool);
    CHECK(only_rank_2(other) == "python-lock");  // of threads, then
    other.child(102, Stack{libc("sem_wait"), py("get", lib + "multiprocessing/queues.py", 4)} + worker + in_main(50));
    CHECK(only_rank_2(other) == "python-lock");
    other.child(102, kSleep + worker + in_main(50));
    CHECK(only_rank_2(other) == "subprocess");
  }
}

TEST_CASE("a loop of the rank's own over descriptors") {
  const Stack own = Stack{libc("epoll_wait"), py("select", "/usr/lib/python3.11/selectors.py", 468),
                          py("serve", "/home/u/train.py", 8)} +
                    in_main(40);
  CHECK(only_rank_2(one_differs(own)) == "network-io");
}

TEST_CASE("main joins a thread that is in a circle of locks") {
  LiteralJob literal =
      one_differs({libc("__futex_abstimed_wait_common64"), nat("std::thread::join()", "/usr/lib/libstdc++.so.6"),
                   nat("exchange()", "/home/u/mesh"), nat("main", "/home/u/mesh")});
  RankSnapshot& rank = literal.job.ranks[2];
  const Stack locks = {libc("pthread_mutex_lock"), nat("exchange()::{lambda()#1}::operator()() const", "/home/u/mesh")};
  for (const Tid tid : {998, 999}) {
    ThreadSnapshot& thread = literal.thread(rank, tid, "mesh", locks);
    thread.state = 'S';
    thread.lock_owner = tid == 998 ? 999 : 998;
  }
  rank.threads[0].joins = 998;
  CHECK(only_rank_2(literal) == "native-lock");
}

TEST_CASE("a finalizer that the collector runs, where the collector's functions have no names") {
  const std::string python = "/usr/bin/python3.11";
  const Stack finalizer = {libc("recv"), py("__del__", "/home/u/train.py", 7), nat("_PyFunction_Vectorcall", python),
                           nat("PyObject_CallOneArg", python), unknown(python, 0x5e4e7d)};
  SECTION("the collector") {
    CHECK(only_rank_2(one_differs(finalizer + Stack{unknown(python, 0x50b703), unknown(python, 0x630c37)} +
                                  in_main(30))) == "garbage-collection");
  }
  SECTION("the end of the last reference") {
    LiteralJob literal = one_differs(
        finalizer + Stack{nat("PyObject_CallFinalizerFromDealloc", python), unknown(python, 0x58c832)} + in_main(30));
    main_of_rank_2(literal).syscall = call("recvfrom", 5, "tcp a -> b");
    CHECK(only_rank_2(literal) == "network-io");
  }
}

TEST_CASE("the collector at work, where its functions have no names") {
  const std::string python = "/usr/bin/python3.11";
  LiteralJob literal = one_differs(
      Stack{unknown(python, 0x630c37), unknown(python, 0x675b10), py("tidy", "/home/u/train.py", 7)} + in_main(30),
      'R');
  CHECK(only_rank_2(literal) == "user-code");
  main_of_rank_2(literal).collecting = true;
  CHECK(only_rank_2(literal) == "garbage-collection");
  // In the other samples the thread was somewhere else: the collection is over.
  main_of_rank_2(literal).motion = Motion{.samples = 3, .places = 3, .moved = true, .travelled = true};
  CHECK(only_rank_2(literal) == "user-code");
}

TEST_CASE("main waits for a pool's thread that runs a function of a library") {
  const std::string lib = "/usr/lib/python3.11/";
  LiteralJob literal = one_differs(Stack{libc("sem_wait"), py("wait", lib + "threading.py", 1),
                                         py("result", lib + "concurrent/futures/_base.py", 451)} +
                                   in_main(50));
  literal
      .thread(literal.job.ranks[2], 999, "x",
              {libc("recv"), py("run", lib + "concurrent/futures/thread.py", 58),
               py("_worker", lib + "concurrent/futures/thread.py", 83)})
      .syscall = call("recvfrom", 3, "tcp a -> b");
  CHECK(only_rank_2(literal) == "network-io");
}

TEST_CASE("main waits in a library whose pool has called the user's Python function") {
  const std::string plugin = "/x/xla_cuda_plugin.so";
  LiteralJob literal = one_differs(Stack{libc("syscall"), nat("absl::Mutex::Block()", plugin),
                                         nat("xla::CommonPjRtLoadedExecutable::Execute()", plugin)} +
                                   in_main(50));
  const Stack pool = {nat("xla::WorkerThread::WorkLoop()", plugin), nat("tsl::PThread::ThreadFn(void*)", plugin)};
  RankSnapshot& rank = literal.job.ranks[2];
  rank.threads[0].syscall = call("futex", -1, "");
  const auto in_pool = [&](Tid tid, const Stack& stack) -> ThreadSnapshot& {
    return literal.thread(rank, tid, "pjrt", stack + pool);
  };
  in_pool(998, {libc("pthread_cond_wait")}).syscall = call("futex", -1, "");
  in_pool(999, {libc("read"), py("read_shard", "/home/u/inside.py", 45), py("_callback", kPackages + "jax/c.py", 226)})
      .syscall = call("read", 9, "/data/shard-0003.bin");
  CHECK(only_rank_2(literal) == "file-io");
  CHECK(verdict_of(literal).summary.find("read_shard at inside.py:45") != std::string::npos);
  SECTION("a library's function is its own work") {
    const Frame own = py("read_shard", kPackages + "jax/inside.py", 45);
    rank.threads.back().frames.edit()[1] = literal.job.frames.intern(own);
    CHECK(only_rank_2(literal) == "user-code");
  }
}

TEST_CASE("the holder of a native lock is shown with the one that waits for it") {
  LiteralJob literal = one_differs(
      Stack{libc("pthread_mutex_lock"), nat("exchange()", "/home/u/mylib.so"), py("step", "/home/u/train.py", 40)} +
      in_main(30));
  literal.thread(literal.job.ranks[2], 999, "x", {libc("clock_nanosleep"), nat("flush()", "/home/u/mylib.so")});
  literal.job.ranks[2].threads[0].lock_owner = 999;
  CHECK(only_rank_2(literal) == "native-lock");
  const Suspect s = verdict_of(literal).suspects.at(0);
  CHECK(s.summary.find("held by thread 999 (flush() in mylib.so, sleeping)") != std::string::npos);
  REQUIRE(s.evidence.size() == 2);
  CHECK((s.evidence[1].thread == 1 && s.evidence[1].frame == 1));
}

TEST_CASE("the holder of a native lock has ended, or is the thread that waits") {
  LiteralJob literal = one_differs(
      Stack{libc("pthread_mutex_lock"), nat("exchange()", "/home/u/mylib.so"), py("step", "/home/u/train.py", 40)} +
      in_main(30));
  ThreadSnapshot& main = main_of_rank_2(literal);
  main.lock_owner = 999;
  CHECK(only_rank_2(literal) == "native-lock");
  const auto suspect = [&] { return verdict_of(literal).suspects.at(0); };
  CHECK(suspect().summary.find("held by thread 999, which has ended (") != std::string::npos);
  CHECK(suspect().advice.starts_with("that thread has ended without unlocking it"));
  CHECK(suspect().evidence.size() == 1);
  main.lock_owner = main.tid;
  CHECK(suspect().advice.starts_with("it has locked it before"));
}

TEST_CASE("a backward pass on a device: the main thread runs the queue of the CPU") {
  const Stack pops =
      Stack{libc("pthread_cond_wait"), nat("torch::autograd::ReadyQueue::pop()"),
            nat("torch::autograd::Engine::thread_main(std::shared_ptr<torch::autograd::GraphTask> const&)"),
            py("backward", kPackages + "torch/autograd/__init__.py", 381)} +
      in_main(17);
  const Stack engine = {nat("torch::autograd::Engine::thread_main(std::shared_ptr<torch::autograd::GraphTask> const&)"),
                        nat("torch::autograd::Engine::thread_init(int, bool)")};
  LiteralJob literal;
  for (int r = 0; r < 4; ++r) {
    RankSnapshot& rank = literal.rank(r, 4, r == 1 ? pops : waits_in_all_reduce());
    literal.thread(rank, 700 + r, "pt_autograd_0",
                   (r == 1 ? Stack{libc("recv"), py("report_gradient", "/home/u/train.py", 5)}
                           : Stack{libc("pthread_cond_wait"), nat("torch::autograd::ReadyQueue::pop()")}) +
                       engine);
    if (r == 1) rank.threads[1].syscall = call("recvfrom", 9, "tcp 10.0.0.1:4 -> 10.0.0.2:80");
  }
  const Verdict v = verdict_of(literal);
  REQUIRE(v.suspects.size() == 1);
  CHECK((v.suspects[0].rank == 1 && v.suspects[0].reason == Reason::kNetworkIo));
  CHECK(v.summary.find("report_gradient at train.py:5") != std::string::npos);
}
