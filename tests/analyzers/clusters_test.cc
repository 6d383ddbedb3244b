#include <catch2/catch.hpp>

#include "analyzers/analysis.h"
#include "analyzers/normalize.h"
#include "support/literal_job.h"

using namespace rankstacks;
using namespace rankstacks::analyzers;
using namespace rankstacks::testing;

namespace {

std::vector<Cluster> clusters_of(const JobSnapshot& job) { return cluster_threads(job, assign_roles(job)); }

// The sizes of the odd classes, in cluster order, of a job whose main threads form classes of the given sizes.
std::vector<std::size_t> odd_sizes(const std::vector<int>& sizes) {
  LiteralJob literal;
  int number = 0, line = 1;
  for (const int size : sizes) {
    for (int i = 0; i < size; ++i) literal.rank(number++, 100, in_main(line));
    ++line;
  }
  std::vector<std::size_t> odd;
  for (const Cluster& c : clusters_of(literal.job))
    if (c.odd) odd.push_back(c.ranks.size());
  return odd;
}

bool alike(const Stack& a, const Stack& b) {
  LiteralJob literal;
  literal.rank(0, 2, a);
  literal.rank(1, 2, b);
  return clusters_of(literal.job).size() == 1;
}

}  // namespace

TEST_CASE("a class is odd when it and all smaller ones hold at most half of the ranks") {
  CHECK(odd_sizes({7, 1}) == std::vector<std::size_t>{1});
  CHECK(odd_sizes({5, 3}) == std::vector<std::size_t>{3});
  CHECK(odd_sizes({2, 2}).empty());
  CHECK(odd_sizes({1, 1, 1, 1}).empty());
  CHECK(odd_sizes({2, 1, 1}) == std::vector<std::size_t>{1, 1});
  CHECK(odd_sizes({3, 3, 1}) == std::vector<std::size_t>{1});
  CHECK(odd_sizes({2, 1, 1, 1, 1, 1, 1}).empty());
  CHECK(odd_sizes({1}).empty());
  CHECK(odd_sizes({2, 1}) == std::vector<std::size_t>{1});
}

TEST_CASE("odd clusters come first, then by role, the larger first; ids are their order") {
  LiteralJob literal;
  for (int r = 0; r < 4; ++r) {
    RankSnapshot& rank = literal.rank(r, 4, in_main(r == 2 ? 15 : 17));
    literal.thread(rank, 1000 + r, "x", {libc("epoll_wait"), nat("gloo::transport::tcp::Loop::run()")});
  }
  const auto clusters = clusters_of(literal.job);
  REQUIRE(clusters.size() == 3);
  CHECK(
      (clusters[0].odd && clusters[0].role == known::Role::kMain && clusters[0].ranks == std::vector<std::size_t>{2}));
  CHECK((!clusters[1].odd && clusters[1].role == known::Role::kMain &&
         clusters[1].ranks == std::vector<std::size_t>{0, 1, 3}));
  CHECK((!clusters[2].odd && clusters[2].role == known::Role::kGlooLoop && clusters[2].members.size() == 4));
  for (int i = 0; i < 3; ++i) CHECK(clusters[static_cast<std::size_t>(i)].id == i);
}

TEST_CASE("an additional thread is not odd, a thread at another place is") {
  LiteralJob literal;
  const Stack idle = {libc("pthread_cond_wait"), nat("c10d::ProcessGroupGloo::runLoop(int)")};
  const Stack busy = {libc("pthread_cond_wait"), nat("gloo::barrier(gloo::BarrierOptions&)"),
                      nat("c10d::ProcessGroupGloo::runLoop(int)")};
  for (int r = 0; r < 4; ++r) {
    RankSnapshot& rank = literal.rank(r, 4, in_main(17));
    literal.thread(rank, 1000 + r, "x", idle);
    if (r == 0) literal.thread(rank, 1100, "x", busy);
  }
  for (const Cluster& c : clusters_of(literal.job)) CHECK_FALSE(c.odd);
  literal.job.ranks[0].threads.erase(literal.job.ranks[0].threads.begin() + 1);
  const auto clusters = clusters_of(literal.job);
  REQUIRE(clusters.front().odd);
  CHECK(clusters.front().ranks == std::vector<std::size_t>{0});
}

TEST_CASE("children are clustered apart and do not make a rank odd") {
  LiteralJob literal;
  for (int r = 0; r < 3; ++r) literal.rank(r, 3, in_main(17));
  literal.child(100, in_main(40));
  literal.child(100, in_main(17));
  const auto clusters = clusters_of(literal.job);
  REQUIRE(clusters.size() == 3);
  CHECK(clusters[0].ranks == std::vector<std::size_t>{0, 1, 2});
  for (const Cluster& c : clusters) CHECK_FALSE(c.odd);
}

TEST_CASE("what differs by chance does not split a cluster") {
  const Stack outer = {nat("wait_for_it"), nat("main", "/x/app"), libc("__libc_start_call_main"),
                       nat("_start", "/x/app")};
  SECTION("the C library's inner frames of one blocking call") {
    CHECK(alike(Stack{libc("__futex_abstimed_wait_common64"), libc("__futex_abstimed_wait_common"),
                      libc("__GI___futex_abstimed_wait_cancelable64"), libc("___pthread_cond_wait")} +
                    outer,
                Stack{unknown(kLibc, 0x88f16), libc("pthread_cond_wait@@GLIBC_2.3.2")} + outer));
    CHECK_FALSE(alike(Stack{libc("poll")} + outer, Stack{libc("read")} + outer));
  }
  SECTION("clones and versions") { CHECK(alike({nat("f.part.0"), nat("g")}, {nat("f.cold"), nat("g.isra.0")})); }
  SECTION("addresses") { CHECK(alike({unknown("/x/a.so", 0x10, 0x7f0010)}, {unknown("/y/a.so", 0x10, 0x5f0010)})); }
  SECTION("offsets of unknown functions do count") {
    CHECK_FALSE(alike({unknown("/x/a.so", 0x10)}, {unknown("/x/a.so", 0x20)}));
  }
  SECTION("memory without a module is one thing") {
    CHECK(alike({unknown("", 0x10, 0x1000), nat("jit")}, {unknown("", 0x20, 0x2000), nat("jit")}));
  }
  SECTION("how warm the interpreter is") {
    const Frame a = py("a", "/home/u/t.py", 1), b = py("b", "/home/u/t.py", 2);
    CHECK(alike({a, b},
                {a, nat("_PyObject_Call", "/usr/bin/python3.11"), nat("cfunction_call", "/usr/bin/python3.11"), b}));
    CHECK(alike({libc("read"), nat("os_read", "/usr/bin/python3.11"),
                 nat("cfunction_vectorcall_FASTCALL", "/usr/bin/python3.11"), a},
                {libc("read"), nat("os_read", "/usr/bin/python3.11"), a}));
    CHECK_FALSE(alike({libc("read"), nat("os_read", "/usr/bin/python3.11"), a},
                      {libc("read"), nat("sock_recv", "/usr/bin/python3.11"), a}));
  }
  SECTION("a poll loop in and between its waits") {
    const Stack loop = {nat("gloo::transport::tcp::Loop::run()"), unknown("/lib/libstdc++.so.6", 0xd44a3),
                        unknown(kLibc, 0x891f5), unknown(kLibc, 0x1098ec)};
    LiteralJob literal;
    literal.thread(literal.rank(0, 2, in_main(1)), 1000, "x", Stack{libc("epoll_wait")} + loop);
    literal.thread(literal.rank(1, 2, in_main(1)), 1001, "x", loop);
    CHECK(clusters_of(literal.job).size() == 2);  // main, gloo-loop
  }
  SECTION("a handler of an event loop, unless it waits for a lock") {
    const Stack handler =
        Stack{libc("recv"), nat("gloo::transport::tcp::Pair::read()"), nat("gloo::transport::tcp::Loop::run()")};
    LiteralJob literal;
    literal.thread(literal.rank(0, 2, in_main(1)), 1000, "x",
                   {libc("epoll_wait"), nat("gloo::transport::tcp::Loop::run()")});
    ThreadSnapshot& thread = literal.thread(literal.rank(1, 2, in_main(1)), 1001, "x", handler);
    CHECK(clusters_of(literal.job).size() == 2);  // main, gloo-loop
    thread.syscall = call("futex");
    CHECK(clusters_of(literal.job).size() == 3);
  }
  SECTION("a poll loop that is somewhere else does count") {
    CHECK_FALSE(
        alike({libc("pthread_mutex_lock"), nat("ncclCommAbort"), nat("c10d::ProcessGroupNCCL::Watchdog::runLoop()")},
              {nat("c10d::ProcessGroupNCCL::Watchdog::runLoop()")}));
  }
  SECTION("MPI's progress engine") {
    const Stack call = {nat("PMPI_Allreduce", "/x/libmpi.so.40"), nat("step")};
    CHECK(alike(Stack{nat("mlx5_poll_cq", "/x/libmlx5.so"), nat("ucp_worker_progress", "/x/libucp.so")} + call,
                Stack{nat("opal_progress", "/x/libopen-pal.so")} + call));
  }
  SECTION("start-up frames that unwinding did not reach") {
    CHECK(alike(Stack{libc("poll"), nat("f")}, Stack{libc("poll"), nat("f"), unknown(kLibc, 0x891f5), libc("clone3")}));
  }
  SECTION("Python lines count") { CHECK_FALSE(alike(in_main(17), in_main(18))); }
}

TEST_CASE("a stack that ended early joins the one class with the same inner frames") {
  const Stack inner = {libc("poll"), nat("f"), nat("g")};
  LiteralJob literal;
  literal.rank(0, 3, inner + Stack{nat("h")});
  literal.rank(1, 3, inner + Stack{nat("h")});
  literal.rank(2, 3, inner).threads[0].stack_end = StackEnd::kMemoryUnavailable;
  auto clusters = clusters_of(literal.job);
  REQUIRE(clusters.size() == 1);
  CHECK(clusters[0].ranks == std::vector<std::size_t>{0, 1, 2});
  CHECK(clusters[0].frames.size() == 4);

  SECTION("not when two classes would do") {
    literal.rank(3, 4, inner + Stack{nat("i")});
    CHECK(clusters_of(literal.job).size() == 3);
  }
  SECTION("not a complete one") {
    literal.job.ranks[2].threads[0].stack_end = StackEnd::kComplete;
    CHECK(clusters_of(literal.job).size() == 2);
  }
}

TEST_CASE("threads without any frames are a class of their own") {
  CHECK(alike({}, {}));
  CHECK_FALSE(alike({}, in_main(1)));
}

TEST_CASE("a normalised stack keeps places and counts what it left out") {
  LiteralJob literal;
  const Frame a = py("a", "/t.py", 1), b = py("b", "/t.py", 2);
  const Frame plumbing = nat("_PyObject_Call", "/usr/bin/python3.11");
  RankSnapshot& rank = literal.rank(
      0, 1, {libc("f1"), libc("read"), a, plumbing, plumbing, b, plumbing, libc("__libc_start_call_main")});
  const NormalizedFrames frames(literal.job.frames);
  const auto stack = normalized_stack(rank.threads[0], frames);
  REQUIRE(stack.size() == 3);
  CHECK((stack[0].index == 1 && stack[0].hidden == 0));
  CHECK((stack[1].index == 2 && stack[1].hidden == 2));
  CHECK((stack[2].index == 5 && stack[2].hidden == 2));
}
