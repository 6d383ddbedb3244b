#include <catch2/catch.hpp>

#include "support/fake_target.h"
#include "target/limited_target.h"

namespace rankstacks::target {
namespace {

using namespace std::chrono_literals;

TEST_CASE("a limited target gives the target's memory until its deadline, and none afterwards") {
  testing::FakeTarget target;
  target.put_value<std::uint64_t>(0x1000, 42);
  const LimitedTarget open(target, Deadline::after(1h));
  for (int i = 0; i < 200; ++i) REQUIRE(open.read_value<std::uint64_t>(0x1000) == 42u);
  CHECK_FALSE(open.gave_up());
  CHECK(open.subject() == "fake");
  const LimitedTarget over(target, Deadline::after(0s));
  CHECK_FALSE(over.gave_up());  // nothing was read from it yet
  CHECK_FALSE(over.read_value<std::uint64_t>(0x1000));
  CHECK(over.gave_up());
}

}  // namespace
}  // namespace rankstacks::target
