#include "watch/rhythm.h"

#include <catch2/catch.hpp>

namespace rankstacks::watch {
namespace {

constexpr Rates kTrains{.cpu = 0.9, .runs = 400, .reads = 50, .writes = 2, .bytes = 1e4};
constexpr Rates kWaits{.cpu = 0.001, .runs = 10};
constexpr Rates kPolls{.cpu = 1, .runs = 12};

Rhythm learned(const Rates& rates) {
  Rhythm rhythm;
  for (std::size_t i = 0; i < Rhythm::kLeast; ++i) rhythm.learn(rates);
  return rhythm;
}

TEST_CASE("a rank that does what it usually does moves") {
  CHECK(learned(kTrains).activity(kTrains) == Activity::kMoves);
  CHECK(learned(kTrains).activity({.cpu = 0.5, .runs = 200, .reads = 25, .writes = 1}) == Activity::kMoves);
}

TEST_CASE("a wait without processor time stands, a wait that polls spins") {
  CHECK(learned(kTrains).activity(kWaits) == Activity::kStands);
  CHECK(learned(kTrains).activity(kPolls) == Activity::kSpins);
}

TEST_CASE("a rank that is ready to run, and is given no processor, does not stand") {
  CHECK(learned(kTrains).activity({.cpu = 0.001, .runs = 1, .waited = 0.9}) == Activity::kUnclear);
  CHECK(learned(kTrains).activity({.runs = 0, .is_ready = true}) == Activity::kUnclear);
  // What threads in the background wait for on a busy machine.
  CHECK(learned(kTrains).activity({.cpu = 0.001, .runs = 10, .waited = 0.05}) == Activity::kStands);
}

TEST_CASE("processor time alone, where there is nothing to compare, is unclear") {
  const Rates computes{.cpu = 1, .runs = 20};
  CHECK(learned(computes).activity(computes) == Activity::kUnclear);
  CHECK(learned(computes).activity(kWaits) == Activity::kStands);
  CHECK(Rhythm().activity(kTrains) == Activity::kUnclear);
  CHECK(Rhythm().activity(kWaits) == Activity::kStands);
}

TEST_CASE("threads that wake by a timer do not keep a rank from standing") {
  const Rates wakes{.cpu = 0.004, .runs = 300};
  CHECK(learned(kTrains).activity(wakes) == Activity::kStands);
  CHECK(Rhythm().activity(wakes) == Activity::kStands);
  CHECK(Rhythm().activity({.cpu = 0.004, .runs = 300, .reads = 20}) == Activity::kUnclear);
  // Where the processor time is not enough to compare, the switches do.
  CHECK(learned(wakes).activity(wakes) == Activity::kUnclear);
}

TEST_CASE("a rank that moves much data is at work, whatever is usual") {
  CHECK(learned(kTrains).activity({.cpu = 0.01, .runs = 3, .writes = 0.1, .bytes = 5e7}) == Activity::kMoves);
}

TEST_CASE("the newest periods tell what is usual") {
  Rhythm rhythm = learned({.cpu = 1, .runs = 5000, .reads = 4000});
  const Rates evaluates{.cpu = 1, .runs = 100, .reads = 40};
  CHECK(rhythm.activity(evaluates) == Activity::kSpins);
  for (std::size_t i = 0; i < Rhythm::kMax; ++i) rhythm.learn(evaluates);
  CHECK(rhythm.activity(evaluates) == Activity::kMoves);
}

TEST_CASE("a job moves as long as one of its ranks does") {
  using A = Activity;
  CHECK(stillness_of({A::kStands, A::kMoves}) == Stillness::kMoving);
  CHECK(stillness_of({A::kStands, A::kSpins}) == Stillness::kAll);
  CHECK(stillness_of({A::kStands, A::kUnclear}) == Stillness::kPartly);
  CHECK(stillness_of({A::kUnclear, A::kUnclear, A::kStands}) == Stillness::kUnclear);
}

}  // namespace
}  // namespace rankstacks::watch
