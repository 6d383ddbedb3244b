// Calls of the GPU's driver that the kernel does not interrupt: nobody is accused of them.
#include <catch2/catch.hpp>

#include "analyzers/analysis.h"
#include "analyzers/driver_calls.h"
#include "support/literal_gpu.h"

using namespace rankstacks;
using namespace rankstacks::analyzers;
using namespace rankstacks::testing;

namespace {

Verdict verdict_of(const LiteralJob& literal) { return analyze(literal.job).verdict; }

// As it is seen where it cannot be stopped: the innermost call, and Python's frames next to it.
Stack in_driver_at(int line) {
  Stack stack = Stack{libc("ioctl")} + in_main(line);
  for (Frame& frame : stack)
    if (frame.kind == FrameKind::kPython) frame.origin = FrameOrigin::kSeparate;
  return stack;
}

RankSnapshot& calls_driver(LiteralJob& literal, int number, int world, const Stack& stack) {
  RankSnapshot& rank = nccl_rank(literal, number, world, stack);
  ThreadSnapshot& thread = rank.threads.front();
  thread.state = 'D';
  thread.stack_end = StackEnd::kNoUnwindInfo;
  thread.syscall = call("ioctl", 31, "/dev/nvidiactl");
  return rank;
}

Motion seen_for(double span_ms, bool moved = false) {
  return {
      .samples = 3, .places = moved ? 2 : 1, .moved = moved, .cpu_ms = 0, .runs = moved ? 4 : 0, .span_ms = span_ms};
}

}  // namespace

TEST_CASE("which calls are the driver's") {
  LiteralJob literal;
  ThreadSnapshot& thread = calls_driver(literal, 0, 2, in_driver_at(17)).threads.front();
  CHECK(is_in_driver_call(literal.job, thread));
  SECTION("a call that can be interrupted is a wait like others") {
    thread.state = 'S';
    CHECK_FALSE(is_in_driver_call(literal.job, thread));
  }
  SECTION("a call within a wait for the GPU is a part of it") {
    for (const char* wait : {"cuCtxSynchronize", "cuStreamSynchronize", "cuEventSynchronize"}) {
      RankSnapshot& rank = nccl_rank(literal, 1, 2, Stack{libc("ioctl"), nat(wait, "/x/libcuda.so.1")} + in_main(17));
      rank.threads.front().state = 'D';
      rank.threads.front().syscall = call("ioctl", 31, "/dev/nvidiactl");
      CHECK_FALSE(is_in_driver_call(literal.job, rank.threads.front()));
    }
    ThreadSnapshot& frees = literal.job.ranks[1].threads.front();
    frees.frames.edit().front() = literal.job.frames.intern(nat("cuMemFree_v2", "/x/libcuda.so.1"));
    frees.frames.edit()[1] = frees.frames.front();
    CHECK(is_in_driver_call(literal.job, frees));
  }
  SECTION("of another device") {
    thread.syscall = call("ioctl", 31, "/dev/fuse");
    CHECK_FALSE(is_in_driver_call(literal.job, thread));
  }
  SECTION("by the kernel's stack, whatever the call is") {
    thread.syscall = call("munmap");
    CHECK_FALSE(is_in_driver_call(literal.job, thread));
    thread.kernel_place =
        KernelPlace{"", {"rwsem_down_write_slowpath+0x2c4/0x580", "os_acquire_rwlock_write+0x35/0x60 [nvidia]"}};
    CHECK(is_in_driver_call(literal.job, thread));
  }
  SECTION("a file that does not answer is none") {
    thread.syscall = call("read", 5, "/data/x");
    thread.frames.edit().front() = literal.job.frames.intern(libc("read"));
    CHECK_FALSE(is_in_driver_call(literal.job, thread));
  }
}

TEST_CASE("a rank in a call of the GPU's driver is not accused") {
  LiteralJob literal;
  for (int r = 0; r < 4; ++r) {
    if (r == 2) calls_driver(literal, r, 4, in_driver_at(30));
    else literal.rank(r, 4, waits_in_all_reduce());
    literal.job.ranks.back().threads.front().motion = seen_for(700);
  }
  const Verdict v = verdict_of(literal);
  CHECK(v.status == VerdictStatus::kUndecided);
  CHECK(v.summary ==
        "ranks 0-1,3 wait in all_reduce; rank 2 is in a call of the GPU's driver, whose lock another process may hold");
  CHECK(v.doubt == Doubt::kWorks);  // it may return soon
  CHECK(v.candidates.at(0).rank == 2);
  CHECK(v.candidates.at(0).summary == "is in a call of the GPU's driver that has not returned");
  SECTION("also where Python's frames are those of a collective: it may be launching it") {
    Stack launches =
        Stack{libc("ioctl"), py("all_reduce", kPackages + "torch/distributed/distributed_c10d.py", 2000)} + in_main(30);
    for (Frame& frame : launches)
      if (frame.kind == FrameKind::kPython) frame.origin = FrameOrigin::kSeparate;
    ThreadSnapshot& thread = literal.job.ranks[2].threads.front();
    thread.frames.clear();
    for (const Frame& frame : launches) thread.frames.push_back(literal.job.frames.intern(frame));
    CHECK(verdict_of(literal).status == VerdictStatus::kUndecided);
  }
  SECTION("another rank that is elsewhere still is") {
    ThreadSnapshot& thread = literal.job.ranks[1].threads.front();
    thread.frames.clear();
    for (const Frame& frame : in_getitem()) thread.frames.push_back(literal.job.frames.intern(frame));
    const Verdict accused = verdict_of(literal);
    REQUIRE(accused.suspects.size() == 1);
    CHECK(accused.suspects[0].rank == 1);
    CHECK(accused.doubt == Doubt::kWorks);
  }
}

TEST_CASE("all ranks in calls of the GPU's driver") {
  LiteralJob literal;
  for (int r = 0; r < 3; ++r)
    calls_driver(literal, r, 3, in_driver_at(r == 0 ? 17 : 30)).threads.front().motion = seen_for(700);
  const Verdict v = verdict_of(literal);
  CHECK(v.status == VerdictStatus::kUndecided);
  CHECK(v.summary ==
        "no rank is seen waiting for another, and ranks 0-2 are in a call of the GPU's driver, whose lock another "
        "process may hold");
  CHECK(v.doubt == Doubt::kWorks);
  SECTION("sampled for long") {
    for (RankSnapshot& rank : literal.job.ranks) rank.threads.front().motion = seen_for(4500);
    CHECK(verdict_of(literal).doubt == Doubt::kNone);
  }
  SECTION("one that has moved on") {
    literal.job.ranks[1].threads.front().motion = seen_for(700, true);
    CHECK(verdict_of(literal).status == VerdictStatus::kHealthy);
  }
}

TEST_CASE("a rank in a call of the driver that has called what another has not waits for that one") {
  LiteralJob literal;
  calls_driver(literal, 0, 2, in_driver_at(17));
  nccl_rank(literal, 1, 2, Stack{libc("recv")} + in_main(9)).threads[0].syscall =
      call("recvfrom", 5, "tcp 10.0.0.1:4000 -> 10.0.0.2:80");
  const auto record = [&](int rank, std::int64_t calls) {
    FlightRecord& made = literal.job.ranks[static_cast<std::size_t>(rank)].flight_record.emplace();
    made.age_ms = 0;
    RecordedGroup& group = made.groups.emplace_back();
    group.name = "0", group.library = "nccl", group.ranks = {0, 1};
    group.last_enqueued = calls;
    for (std::int64_t n = 1; n <= calls; ++n)
      group.operations.push_back({.sequence = n,
                                  .name = "all_reduce",
                                  .state = n < 5 ? RecordedState::kCompleted : RecordedState::kScheduled});
  };
  CHECK(verdict_of(literal).suspects.empty());
  record(0, 5);
  record(1, 4);
  const Verdict verdict = verdict_of(literal);
  REQUIRE(verdict.suspects.size() == 1);
  CHECK((verdict.suspects[0].rank == 1 && verdict.suspects[0].reason == Reason::kNetworkIo));
  SECTION("both have called the same") {
    record(1, 5);
    CHECK(verdict_of(literal).suspects.empty());
  }
}
