// The end of DDP's backward pass, which waits for what a communication hook has returned.
#include <catch2/catch.hpp>

#include "analyzers/analysis.h"
#include "support/literal_gpu.h"

using namespace rankstacks;
using namespace rankstacks::analyzers;
using namespace rankstacks::testing;

namespace {

const std::string kLib = "/usr/lib/python3.12/", kReducer = "/home/u/reducer.py";
const Stack kEngine = {nat("torch::autograd::Engine::thread_main(int)"),
                       nat("torch::autograd::Engine::thread_init(int)")};
const Stack kForBucket =
    Stack{libc("pthread_cond_wait"),
          nat("std::condition_variable::wait(std::unique_lock<std::mutex>&)", "/usr/lib/libstdc++.so.6"),
          nat("c10d::Reducer::finalize_backward()")} +
    kEngine;
const Stack kBackward =
    Stack{libc("pthread_cond_wait"), nat("torch::autograd::ReadyQueue::pop()"),
          nat("torch::autograd::Engine::thread_main(int)"), py("backward", kPackages + "torch/_tensor.py", 631)} +
    in_main(16);
const Stack kTakesBucket = {libc("futex"),
                            nat("PyThread_acquire_lock_timed", "/usr/bin/python3.12"),
                            py("wait", kLib + "threading.py", 355),
                            py("get", kLib + "queue.py", 171),
                            py("reduce_buckets", kReducer, 53),
                            py("run", kLib + "threading.py", 1010)};

// Two ranks over NCCL. Rank 0 waits for its GPU, rank 1 at the end of its backward pass.
LiteralJob job() {
  LiteralJob literal;
  nccl_rank(literal, 0, 2, waits_for_gpu());
  RankSnapshot& rank = nccl_rank(literal, 1, 2, kBackward);
  literal.thread(rank, 901, "pt_autograd_0", kForBucket);
  for (ThreadSnapshot& thread : rank.threads) thread.state = 'S';
  return literal;
}

std::string said(const LiteralJob& literal) {
  const Verdict v = analyze(literal.job).verdict;
  std::string text(to_string(v.status));
  for (const Suspect& s : v.suspects) text += " " + std::to_string(s.rank) + ":" + std::string(to_string(s.reason));
  return text;
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("over NCCL the end of the backward pass sleeps for a future that a hook has made") {
  LiteralJob literal = job();
  RankSnapshot& odd = literal.job.ranks[1];
  CHECK(said(literal) == "culprit 1:native-lock");
  CHECK(has(analyze(literal.job).verdict.summary,
            "rank 1 waits for the future that DDP's communication hook has returned"));

  SECTION("the thread that is to set it waits as well: it is named") {
    literal.thread(odd, 902, "reducer", kTakesBucket);
    CHECK(said(literal) == "culprit 1:native-lock");
    CHECK(has(analyze(literal.job).verdict.summary, "its thread reducer is in reduce_buckets at reducer.py:53"));
    const Analysis analysis = analyze(literal.job);
    REQUIRE_FALSE(analysis.verdict.chains.empty());
    CHECK(has(analysis.waits.nodes().at(analysis.verdict.chains.front().links.back().node).text, "reduce_buckets"));
  }
  SECTION("the thread that is to set it is held up by something of its own") {
    ThreadSnapshot& reducer = literal.thread(odd, 902, "reducer",
                                             {libc("recv"), py("readinto", kLib + "socket.py", 7),
                                              py("reduce_buckets", kReducer, 55), py("run", kLib + "threading.py", 1)});
    reducer.state = 'S';
    reducer.syscall = call("recvfrom", 9, "tcp a -> b");
    CHECK(said(literal) == "culprit 1:network-io");
  }
  SECTION("of several threads of the user's none is known to set it") {
    literal.thread(odd, 902, "reducer", kTakesBucket);
    literal.thread(odd, 903, "logger", kTakesBucket);
    CHECK(said(literal) == "culprit 1:native-lock");
    CHECK_FALSE(has(analyze(literal.job).verdict.summary, "reduce_buckets"));
  }
  SECTION("two models end their backward passes at a time") {
    literal.thread(odd, 904, "pt_autograd_1", kForBucket);
    CHECK(said(literal) == "culprit 1:native-lock");
  }
}

TEST_CASE("where the end of the backward pass waits for the all-reduce itself") {
  LiteralJob literal = job();
  RankSnapshot& rank = literal.job.ranks[1];
  const auto kind = [&] { return analyze(literal.job).activities.at(1).value().kind; };
  CHECK(kind() == "native-lock");
  SECTION("gloo's future is complete when its thread has run the collective") {
    literal.thread(
        rank, 902, "pt_gloo_runloop",
        {libc("epoll_wait"), nat("gloo::transport::tcp::UnboundBuffer::waitRecv(int*)"),
         nat("gloo::allreduce(gloo::AllreduceOptions&)"), nat("c10d::ProcessGroupGloo::AsyncWork::execute(int)"),
         nat("c10d::ProcessGroupGloo::runLoop(int)")});
    CHECK(kind() == "in-collective");
  }
  SECTION("a process without NCCL") {
    rank.threads.erase(rank.threads.begin() + 1);
    CHECK(kind() == "in-collective");
  }
  SECTION("its threads are not all known") {
    rank.status = Status::kPartial;
    CHECK(kind() == "in-collective");
  }
  SECTION("most ranks wait there: for a rank") {
    literal.thread(literal.job.ranks[0], 903, "pt_autograd_0", kForBucket);
    CHECK(kind() == "in-collective");
  }
  SECTION("it has called something that waits") {
    rank.threads.pop_back();
    literal
        .thread(rank, 901, "pt_autograd_0",
                Stack{libc("pthread_cond_wait"), nat("c10d::Work::wait(int)")} +
                    Stack(kForBucket.begin() + 2, kForBucket.end()))
        .state = 'S';
    CHECK(kind() == "in-collective");
  }
}
