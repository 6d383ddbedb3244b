// What --timeout cuts short is reported, and the rank is partial.
#include <catch2/catch.hpp>

#include "capture/rank_stacks.h"
#include "support/fake_target.h"

namespace rankstacks::capture {
namespace {

using namespace std::chrono_literals;

RankStacks rank_of(int threads) {
  auto target = std::make_unique<testing::FakeTarget>();
  for (int t = 0; t < threads; ++t) {
    target::ThreadInfo info;
    info.tid = 100 + t;
    info.registers.emplace();
    info.registers->set(target::kRip, 0x400000 + static_cast<Address>(t));
    info.registers->set(target::kRsp, 0x7ffc0000);
    target->threads_.push_back(std::move(info));
  }
  RankStacks rank;
  rank.snapshot.pid = 100;
  rank.target = std::move(target);
  return rank;
}

TEST_CASE("threads that could not be unwound in time keep their innermost frame") {
  RankStacks rank = rank_of(3);
  unwind_threads(rank, UnwinderChoice::kAuto, Deadline::after(0s));
  REQUIRE(rank.stacks.size() == 3);
  for (std::size_t i = 0; i < 3; ++i) {
    REQUIRE(rank.stacks[i].frames.size() == 1);
    CHECK(rank.stacks[i].frames[0].pc == 0x400000 + i);
    CHECK(rank.stacks[i].end == StackEnd::kMemoryUnavailable);
  }
  CHECK(rank.snapshot.status == Status::kPartial);
  REQUIRE(rank.snapshot.problems.size() == 1);
  CHECK(rank.snapshot.problems[0].message ==
        "unwinding was given up, as the time for it (--timeout) was over: the rest is missing");
}

TEST_CASE("with time left nothing is reported") {
  RankStacks rank = rank_of(2);
  unwind_threads(rank, UnwinderChoice::kAuto, Deadline::after(1h));
  CHECK(rank.stacks.size() == 2);
  CHECK(rank.snapshot.status == Status::kComplete);
  CHECK(rank.snapshot.problems.empty());
}

TEST_CASE("that Python's state was not read before the deadline is reported") {
  RankStacks rank = rank_of(1);
  const python::RuntimeCandidate candidate{.module = "/usr/bin/python3",
                                           .runtime = 0x1000,
                                           .version = python::Version{3, 11, 2, ""},
                                           .how = "symbol _PyRuntime"};
  read_python(rank, std::span(&candidate, 1), 0, Deadline::after(0s));
  CHECK(rank.snapshot.status == Status::kPartial);
  REQUIRE_FALSE(rank.snapshot.problems.empty());
  CHECK(rank.snapshot.problems[0].message ==
        "reading Python's state was given up, as the time for it (--timeout) was over: the rest is missing");
  CHECK_FALSE(rank.python);
}

}  // namespace
}  // namespace rankstacks::capture
