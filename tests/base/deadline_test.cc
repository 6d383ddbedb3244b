#include <catch2/catch.hpp>

#include "base/deadline.h"

namespace rankstacks {
namespace {

using namespace std::chrono_literals;

TEST_CASE("an expired deadline has passed; one far in the future, or none, has not") {
  CHECK(Deadline::after(0s).passed());
  CHECK(Deadline::after(-5s).passed());
  CHECK_FALSE(Deadline::after(1h).passed());
  CHECK_FALSE(Deadline::never().passed());
  CHECK_FALSE(Deadline::after(Deadline::Clock::duration::max()).passed());
}

TEST_CASE("the remaining time of a deadline can be used later") {
  CHECK(Deadline::after(0s).left() == Deadline::Clock::duration::zero());
  CHECK(Deadline::never().left() == Deadline::Clock::duration::max());
  const auto left = Deadline::after(1h).left();
  CHECK(left <= 1h);
  CHECK(left > 0s);
}

TEST_CASE("a check notices a deadline within 64 steps and stays with it") {
  DeadlineCheck check(Deadline::after(0s));
  CHECK_FALSE(check.gave_up());
  int steps = 0;
  while (!check.passed()) REQUIRE(++steps < 64);
  CHECK(check.gave_up());
  CHECK(check.passed());
  DeadlineCheck endless(Deadline::never());
  for (int i = 0; i < 1000; ++i) CHECK_FALSE(endless.passed());
  CHECK_FALSE(endless.gave_up());
}

}  // namespace
}  // namespace rankstacks
