#include "watch/reading.h"

#include <catch2/catch.hpp>

namespace rankstacks::watch {
namespace {

ProcessReading process(Pid pid, std::size_t rank, double cpu_ms, std::int64_t runs = 0) {
  ProcessReading reading{.pid = pid, .start_ticks = 7, .rank = rank};
  reading.counters.cpu_ms = cpu_ms;
  reading.counters.runs = runs;
  return reading;
}

Reading at(double seconds, std::vector<ProcessReading> processes) {
  return {Seconds(seconds), 2, std::move(processes)};
}

TEST_CASE("what a rank has done is what it and its children have done, in a second") {
  ProcessReading child = process(12, 1, 3000);
  child.is_rank = false;
  ProcessReading later = child;
  later.counters.cpu_ms = 5000;
  const auto rates = rates_between(at(10, {process(10, 0, 100, 5), process(11, 1, 0), child}),
                                   at(12, {process(10, 0, 1100, 25), process(11, 1, 2000), later}));
  REQUIRE(rates.size() == 2);
  CHECK(rates[0].cpu == Approx(0.5));
  CHECK(rates[0].runs == Approx(10));
  CHECK(rates[1].cpu == Approx(2));
}

TEST_CASE("how long threads were ready and had no processor") {
  ProcessReading before = process(10, 0, 0), after = before;
  before.counters.waited_ms = 500;
  after.counters.waited_ms = 2500;
  before.counters.is_ready = after.counters.is_ready = true;
  const auto rates = rates_between(at(0, {before, process(11, 1, 0)}), at(4, {after, process(11, 1, 0)}));
  CHECK(rates[0].waited == Approx(0.5));
  CHECK(rates[0].is_ready);
  CHECK(rates[1].waited == 0);
  CHECK_FALSE(rates[1].is_ready);
  // One that polls is ready now and then.
  before.counters.is_ready = false;
  CHECK_FALSE(rates_between(at(0, {before}), at(4, {after}))[0].is_ready);
  CHECK_FALSE(rates_between(at(0, {after}), at(4, {before}))[0].is_ready);
  after.is_new = true;  // it was started in between
  CHECK(rates_between(at(0, {}), at(4, {after}))[0].is_ready);
}

TEST_CASE("a new process counts from its start, one that was not read before does not count") {
  ProcessReading child = process(12, 0, 1000);
  child.is_rank = false;
  for (const bool is_new : {false, true}) {
    child.is_new = is_new;
    const auto rates = rates_between(at(0, {process(10, 0, 0)}), at(1, {process(10, 0, 0), child}));
    CHECK(rates[0].cpu == Approx(is_new ? 1 : 0));
  }
}

TEST_CASE("another process with the pid is not the one before") {
  ProcessReading other = process(10, 0, 500);
  other.start_ticks = 8;
  CHECK(rates_between(at(0, {process(10, 0, 100)}), at(1, {other}))[0].cpu == 0);
}

TEST_CASE("counters that go back count as nothing, and an ended rank is not alive") {
  ProcessReading gone = process(11, 1, 0);
  gone.ended = true;
  const auto rates =
      rates_between(at(0, {process(10, 0, 100, 50), process(11, 1, 9)}), at(1, {process(10, 0, 50, 40), gone}));
  CHECK(rates[0].cpu == 0);
  CHECK(rates[0].runs == 0);
  CHECK(rates[0].alive);
  CHECK_FALSE(rates[1].alive);
}

}  // namespace
}  // namespace rankstacks::watch
