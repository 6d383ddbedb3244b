#include "capture/sample_times.h"

#include <catch2/catch.hpp>

using namespace rankstacks::capture;
using namespace std::chrono_literals;

TEST_CASE("samples are taken at their turn, and on a busy machine later, so that enough time is between them") {
  const SampleTimes times{.first = SampleTimes::Clock::time_point(10s), .samples = 4, .interval = 1s};
  const auto at = [](auto time) { return SampleTimes::Clock::time_point(time); };
  SECTION("each in its turn: reading takes a tenth of a second") {
    CHECK(times.of(1, at(10100ms), 0s) == at(11s));
    CHECK(times.of(2, at(11100ms), 900ms) == at(12s));
    CHECK(times.of(3, at(12100ms), 1800ms) == at(13s));
  }
  SECTION("the first sample took longer than all of them should") {
    CHECK(times.of(1, at(15s), 0s) == at(15900ms));
    CHECK(times.of(2, at(16s), 900ms) == at(16900ms));
    CHECK(times.of(3, at(17s), 1800ms) == at(17900ms));
  }
  SECTION("one of them took long: the last one makes up for it") {
    CHECK(times.of(2, at(13500ms), 900ms) == at(14400ms));
    CHECK(times.of(3, at(14500ms), 900ms) == at(16300ms));
  }
}
