// How processes have died, in words; and whose death is a cause of its own.
#include <catch2/catch.hpp>

#include <fmt/format.h>

#include "analyzers/deaths.h"
#include "support/odd_rank.h"

using namespace rankstacks;
using namespace rankstacks::analyzers;
using namespace rankstacks::testing;

namespace {

SignalInfo fault_at(Address address, FaultPlace place) { return {11, "SIGSEGV", 7, 1, address, std::move(place)}; }

RankSnapshot& dies(LiteralJob& literal, std::size_t r, int number, const char* name, int code) {
  RankSnapshot& rank = literal.job.ranks[r];
  rank.source = Source::kCore;
  rank.signal = SignalInfo{number, name, rank.pid, code, {}};
  return rank;
}

LiteralJob job_with_one_in_a_library() {
  return one_differs(Stack{nat("mylib::step()", "/home/u/mylib.so")} + in_main(30));
}

constexpr int kByKill = 0, kByTgkill = -6;

}  // namespace

TEST_CASE("the place of a fault in words") {
  CHECK(describe_fault({6, "SIGABRT", 7, -6, {}}).empty());
  CHECK_FALSE(is_reraised({6, "SIGABRT", 7, -6, {}}));
  CHECK_FALSE(is_reraised({11, "SIGSEGV", 7, 1, 0x10}));
  CHECK(is_reraised({11, "SIGSEGV", 7, -6, 0x10}));
  CHECK(describe_fault({11, "SIGSEGV", 7, 1, 0x10}) == "at 0x10");
  CHECK(describe_fault(fault_at(0, {FaultRegion::kFirstPage, true, {}, {}, {}})) ==
        "at 0x0, a null pointer, executed as code");
  CHECK(describe_fault(fault_at(0x10, {FaultRegion::kFirstPage, false, {}, {}, {}})) ==
        "at 0x10, in the first page: a null pointer with offset 16");
  CHECK(describe_fault(fault_at(0x9000, {FaultRegion::kBelowStack, false, {}, {}, {}})) ==
        "at 0x9000, below the stack of thread 7: the stack has overflowed");
  CHECK(describe_fault(
            fault_at(0x9000, {FaultRegion::kMapped, false, FaultMapping{"/l/libfoo.so", "r-x", 4096}, {}, {}})) ==
        "at 0x9000, in /l/libfoo.so (+0x1000), which is read-only");
  CHECK(describe_fault(fault_at(0x9000, {FaultRegion::kMapped, true, FaultMapping{"", "rw-", 16}, {}, {}})) ==
        "at 0x9000, in anonymous memory (+0x10), which is rw-, executed as code");
  CHECK(describe_fault(fault_at(0x9000, {FaultRegion::kMapped, false, FaultMapping{"", "---", 16}, {}, {}})) ==
        "at 0x9000, in anonymous memory (+0x10), which allows no access");
  CHECK(describe_fault(fault_at(
            0x9000,
            {FaultRegion::kUnmapped, false, {}, FaultMapping{"/l/a.so", "r--", 8}, FaultMapping{"", "rw-", 4088}})) ==
        "at 0x9000, where nothing is mapped, 0x8 bytes behind /l/a.so, 0xff8 bytes before anonymous memory");
  CHECK(describe_fault(fault_at(0x9000, {})) == "at 0x9000, where nothing is mapped");
}

TEST_CASE("a fault and the C library's words are in the verdict") {
  LiteralJob literal = job_with_one_in_a_library();
  SECTION("a fault") {
    dies(literal, 2, 11, "SIGSEGV", 1).signal = fault_at(0x10, {FaultRegion::kFirstPage, false, {}, {}, {}});
    literal.job.ranks[2].signal->tid = literal.job.ranks[2].pid;
    CHECK(verdict_of(literal).summary ==
          "rank 2 crashed with SIGSEGV at 0x10, in the first page: a null pointer with offset 16 (main at train.py:30) "
          "while ranks 0-1,3 wait in DDP's gradient all-reduce");
  }
  SECTION("the first line of a message") {
    dies(literal, 2, 6, "SIGABRT", kByTgkill).abort_message = "free(): invalid pointer\nand more";
    CHECK(verdict_of(literal).summary ==
          "rank 2 crashed with SIGABRT (main at train.py:30, free(): invalid pointer) while ranks 0-1,3 wait in DDP's "
          "gradient all-reduce");
  }
}

TEST_CASE("what the kernel's log says of processes with the job's names") {
  LiteralJob literal = job_with_one_in_a_library();
  CHECK(describe_kernel_kills(literal.job) == "");
  literal.job.ranks[1].oom_kills = 2;
  CHECK(describe_kernel_kills(literal.job) ==
        ", and the kernel has killed 2 processes of the control group of rank 1 for lack of memory");
  for (Pid pid = 901; pid <= 904; ++pid)
    literal.job.kernel_log.push_back({"node-a", pid, "python3", KernelKill::Cause::kOutOfMemory, "T", "Killed"});
  literal.job.kernel_log.back() = {
      "node-a", 904, "python3", KernelKill::Cause::kFault, "T", "python3[904]: segfault at 8"};
  CHECK(describe_kernel_kills(literal.job) ==
        ", and by the kernel's log pid 902 (python3) was killed for lack of memory at T, pid 903 (python3) was killed "
        "for "
        "lack of memory at T, pid 904 (python3) ended by a fault (python3[904]: segfault at 8) at T, after 1 more");
  RankSnapshot child = literal.job.ranks[0];
  child.host = "node-a", child.pid = 903;
  CHECK(describe_kernel_kills(literal.job, child, 1) ==
        ", and by the kernel's log pid 903 (python3) was killed for lack of memory at T");
  child.pid = 77;
  CHECK(describe_kernel_kills(literal.job, child, 1) ==
        ", and the kernel has killed 2 processes of the control group of rank 1 for lack of memory");
}

TEST_CASE("a signal that another process has sent is no cause") {
  LiteralJob literal = job_with_one_in_a_library();
  SECTION("the launcher aborts the others after one has failed") {
    for (const std::size_t r : {0, 1, 3}) dies(literal, r, 6, "SIGABRT", kByTgkill).signal->sender = 1;
    dies(literal, 2, 6, "SIGABRT", kByTgkill).signal->sender = literal.job.ranks[2].pid;
    CHECK(only_rank_2(literal) == "crashed");
    CHECK(describe_sender(literal.job, literal.job.ranks[0]) == "sent by pid 1");
    CHECK(describe_sender(literal.job, literal.job.ranks[2]).empty());
    literal.job.ranks[0].signal->sender_uid = 1000;
    literal.job.ranks[0].signal->sender = literal.job.ranks[3].pid;
    const std::string by = fmt::format("sent by pid {}", literal.job.ranks[3].pid);
    CHECK(describe_sender(literal.job, literal.job.ranks[0]) == by + " (rank 3), uid 1000");
    literal.job.ranks[3].rank.reset();
    literal.job.ranks[3].command = {"/usr/bin/torchrun", "train.py"};
    CHECK(describe_sender(literal.job, literal.job.ranks[0]) == by + " (torchrun), uid 1000");
    literal.job.ranks[3].host = "another";
    CHECK(describe_sender(literal.job, literal.job.ranks[0]) == by + ", uid 1000");
  }
  SECTION("os.kill of its own process") {
    RankSnapshot& rank = dies(literal, 2, 11, "SIGSEGV", kByKill);
    rank.signal->sender = rank.pid;
    CHECK(only_rank_2(literal) == "crashed");
  }
  SECTION("its own, of a core that is known by another of its threads") {
    RankSnapshot& rank = dies(literal, 2, 6, "SIGABRT", kByTgkill);
    rank.signal->sender = rank.pid;
    rank.signal->tid = rank.pid;
    rank.pid = 7777;
    CHECK(only_rank_2(literal) == "crashed");
  }
  SECTION("a fault that was sent") {
    dies(literal, 0, 11, "SIGSEGV", kByKill).signal->sender = 0;
    CHECK(only_rank_2(literal) == "user-code");
    CHECK(describe_sender(literal.job, literal.job.ranks[0]) == "sent by a process of another pid namespace");
  }
}

TEST_CASE("an exception that reports others is no cause") {
  LiteralJob literal = job_with_one_in_a_library();
  const auto throws = [&](std::size_t r, std::optional<ExceptionCause> cause) {
    dies(literal, r, 6, "SIGABRT", kByTgkill).threads[0].exception = CxxException{"gloo::IoException", "text", cause};
  };
  throws(0, ExceptionCause::kPeer);
  throws(1, ExceptionCause::kTimeout);
  SECTION("in addition to one of its own") {
    throws(2, {});
    CHECK(only_rank_2(literal) == "crashed");
  }
  SECTION("alone") { CHECK(only_rank_2(literal) == "user-code"); }
}
