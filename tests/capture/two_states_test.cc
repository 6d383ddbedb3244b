// The short form of bench/torn.cc.
#include "support/two_states.h"

#include <catch2/catch.hpp>

using namespace rankstacks;

TEST_CASE("a process that changes between two states is never shown in both", "[two_states]") {
  constexpr int kTimes = 40;
  for (const auto& behaviour : testing::behaviours())
    for (const auto policy : {target::StopPolicy::kAuto, target::StopPolicy::kNever}) {
      INFO(behaviour.name << ", --stop " << (policy == target::StopPolicy::kAuto ? "auto" : "never"));
      const testing::Samples samples = testing::take_samples(behaviour, policy, kTimes);
      CHECK(samples.done == kTimes);
      CHECK(samples.wrong == std::vector<std::string>());
      // Something was read that could be wrong.
      if (policy == target::StopPolicy::kAuto) CHECK(samples.seen[0] + samples.seen[1] > 0);
    }
}
