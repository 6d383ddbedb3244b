// The evidence for a verdict, in a sentence.
#include <catch2/catch.hpp>

#include "analyzers/analysis.h"
#include "report/text_chains.h"
#include "support/literal_gpu.h"

using namespace rankstacks;
using namespace rankstacks::report;
using namespace rankstacks::testing;

namespace {

const Stack kWaitsForLock =
    Stack{libc("__lll_lock_wait"), libc("pthread_mutex_lock"), nat("mylib::step()", "/home/u/mylib.so")} + in_main(20);
const Stack kSleeps = {libc("clock_nanosleep"), nat("time_sleep", "/usr/bin/python3.11"),
                       py("flush", "/home/u/log.py", 3)};

// Rank 1 of three waits for a lock that another of its threads holds, which waits for one that a third holds; the
// others wait in a collective.
LiteralJob two_locks() {
  LiteralJob literal;
  literal.job.ranks.reserve(3);
  for (int r = 0; r < 3; ++r) literal.rank(r, 3, r == 1 ? kWaitsForLock : waits_in_all_reduce());
  RankSnapshot& rank = literal.job.ranks[1];
  rank.threads.reserve(3);
  rank.threads[0].lock_owner = 201;
  literal.thread(rank, 201, "writer", kWaitsForLock).lock_owner = 202;
  literal.thread(rank, 202, "reporter", kSleeps);
  return literal;
}

}  // namespace

TEST_CASE("a chain of locks is described link by link") {
  const LiteralJob literal = two_locks();
  const analyzers::Analysis analysis = analyzers::analyze(literal.job);
  CHECK(describe_chain(literal.job, analysis) ==
        "chain: rank 0 in main at train.py:17 <- in all_reduce <- rank 1 in main at train.py:20 <- a native lock held "
        "by thread 201 <- its thread writer (201) in main at train.py:20 <- "
        "a native lock held by thread 202 <- its thread reporter (202) in flush at log.py:3, sleeping <- a time that "
        "it has set itself");
}

TEST_CASE("one lock is in the summary already") {
  LiteralJob literal = two_locks();
  literal.job.ranks[1].threads[1].lock_owner.reset();
  CHECK(describe_chain(literal.job, analyzers::analyze(literal.job)).empty());
}

TEST_CASE("a wait through autograd's thread is described, which the summary leaves out") {
  const Stack pops =
      Stack{libc("pthread_cond_wait"), nat("torch::autograd::ReadyQueue::pop()"),
            nat("torch::autograd::Engine::thread_main(std::shared_ptr<torch::autograd::GraphTask> const&)"),
            py("backward", kPackages + "torch/autograd/__init__.py", 381)} +
      in_main(17);
  const Stack reads_norm = {libc("sched_yield"), nat("cuStreamSynchronize", "/usr/lib/libcuda.so.1"),
                            nat("cudaStreamSynchronize", "/x/libcudart.so"), py("log_norm", "/home/u/train.py", 70),
                            nat("torch::autograd::Engine::thread_init(int, bool)")};
  LiteralJob literal;
  literal.job.ranks.reserve(2);
  nccl_rank(literal, 0, 2, pops).threads[0].state = 'S';
  literal.thread(literal.job.ranks[0], 700, "pt_autograd_0", reads_norm).state = 'R';
  nccl_rank(literal, 1, 2, kSleeps + in_main(20)).threads[0].state = 'S';
  const std::string chain = describe_chain(literal.job, analyzers::analyze(literal.job));
  INFO(chain);
  CHECK(chain.starts_with("chain: rank 0 in main at train.py:17"));
  CHECK(chain.find(" <- its thread pt_autograd_0 (700) in log_norm at train.py:70") != std::string::npos);
  CHECK(chain.find(" <- rank 1 in flush at log.py:3") != std::string::npos);
}

TEST_CASE("where a rank waits for what only its watchdog names, or its GPU, is described") {
  LiteralJob literal;
  literal.job.ranks.reserve(2);
  RankSnapshot& waits = nccl_rank(literal, 0, 2, waits_for_gpu());
  nccl_rank(literal, 1, 2, in_getitem()).threads[0].state = 'S';
  const auto chain = [&] { return describe_chain(literal.job, analyzers::analyze(literal.job)); };
  CHECK(chain().empty());
  SECTION("its watchdog") {
    waits.threads[1].exception = CxxException{
        "c10::DistBackendError",
        "[PG ID 0 PG GUID 0(default_pg) Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=38, "
        "OpType=_ALLGATHER_BASE, NumelIn=4, NumelOut=8, Timeout(ms)=12000) ran for 12073 milliseconds"};
    CHECK(
        chain().starts_with("chain: rank 0 in main at train.py:17, running <- in all-gather 38 of group default_pg <- "
                            "rank 1 in __getitem__ at data.py:9"));
  }
  SECTION("its GPU") {
    runs(literal, waits, kAllReduce);
    looked_at(literal.job.ranks[1]);
    CHECK(
        chain().starts_with("chain: rank 0 in main at train.py:17, running <- in AllReduce on the GPU <- rank 1 in "));
  }
}

TEST_CASE("a chain ends at a process that was not captured") {
  LiteralJob literal;
  literal.job.ranks.reserve(2);
  literal.rank(0, 2, waits_in_all_reduce()).threads[0].state = 'S';
  const Stack queries = Stack{libc("read"), py("query", "/home/u/db.py", 9)} + in_main(20);
  ThreadSnapshot& reads = literal.rank(1, 2, queries).threads[0];
  reads.state = 'S';
  reads.syscall = SyscallInfo{.name = "read", .number = 0, .fd = 5, .fd_target = "pipe:[77]"};
  reads.syscall->others = {{4242, EndKind::kPipe, "mysql acme"}};
  const std::string chain = describe_chain(literal.job, analyzers::analyze(literal.job), true);
  INFO(chain);
  CHECK(chain.find(" <- pid 4242 (mysql acme)") != std::string::npos);
}

TEST_CASE("the rank to examine first, if nothing is decided") {
  LiteralJob literal;
  for (int r = 0; r < 3; ++r)
    literal.rank(r, 3, r == 1 ? Stack{unknown("/opt/engine.so", 0x1234)} : waits_in_all_reduce());
  const analyzers::Analysis analysis = analyzers::analyze(literal.job);
  REQUIRE(analysis.verdict.status == analyzers::VerdictStatus::kUndecided);
  const std::string text = describe_candidates(literal.job, analysis.verdict);
  CHECK(text.starts_with("if it hangs, look at rank 1 first: "));
  CHECK(text.find("what would decide: ") != std::string::npos);
}

TEST_CASE("what a program calls itself does nothing to the terminal of who reads a chain") {
  LiteralJob literal = two_locks();
  literal.job.ranks[1].threads[1].name = "\x1b[2J";
  CHECK(describe_chain(literal.job, analyzers::analyze(literal.job)).find('\x1b') == std::string::npos);
}
