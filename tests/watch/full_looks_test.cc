#include "watch/full_looks.h"

#include <optional>
#include <vector>

#include <catch2/catch.hpp>

namespace rankstacks::watch {
namespace {

constexpr std::optional<FullLook> kNotDone = std::nullopt;
constexpr FullLook kStanding{.hangs = true, .ranks = 4, .written = true};
constexpr FullLook kGoesOn{.hangs = false, .ranks = 4, .written = false};
constexpr FullLook kGoesOnWritten{.hangs = false, .ranks = 4, .written = true};
constexpr FullLook kNotWritten{.hangs = true, .ranks = 4, .written = false};
constexpr FullLook kAllEnded{.hangs = true, .ranks = 0, .written = true};

// The looks with these outcomes, as far as they are taken, and what each of them finds.
struct Course {
  explicit Course(const std::vector<std::optional<FullLook>>& outcomes) {
    for (const auto& outcome : outcomes) {
      if (!looks.goes_on()) break;
      CHECK(looks.number() == static_cast<int>(found.size()) + 1);
      decided.push_back(looks.next_decides());
      found.push_back(looks.looked(outcome));
    }
  }

  FullLooks looks;
  std::vector<bool> decided;
  std::vector<Found> found;
};

using FoundByEach = std::vector<Found>;

TEST_CASE("a job that the first look finds standing hangs, and is looked at three times") {
  const Course course({kStanding, kStanding, kStanding, kStanding});
  CHECK(course.found == FoundByEach{Found::kHangs, Found::kNothing, Found::kNothing});
  CHECK(course.decided == std::vector<bool>{true, false, false});
  CHECK(course.looks.newest() == 3);
}

TEST_CASE("a job that does not hang by the first look has no report, and no further look") {
  for (const FullLook& first : {kGoesOn, kGoesOnWritten}) {
    const Course course({first, kStanding, kStanding});
    CHECK(course.found == FoundByEach{Found::kNoHang});
    CHECK_FALSE(course.looks.newest());
  }
}

TEST_CASE("after a look that was not done in time the next one decides") {
  const Course healthy({kNotDone, kGoesOn, kStanding});
  CHECK(healthy.found == FoundByEach{Found::kNothing, Found::kNoHang});
  CHECK(healthy.decided == std::vector<bool>{true, true});
  CHECK_FALSE(healthy.looks.newest());

  const Course hangs({kNotDone, kStanding, kStanding});
  CHECK(hangs.found == FoundByEach{Found::kNothing, Found::kHangs, Found::kNothing});
  CHECK(hangs.decided == std::vector<bool>{true, true, false});
  CHECK(hangs.looks.newest() == 3);

  const Course late({kNotDone, kNotDone, kGoesOn});
  CHECK(late.found == FoundByEach{Found::kNothing, Found::kNothing, Found::kNoHang});
  CHECK_FALSE(late.looks.newest());
}

TEST_CASE("three looks that were not done in time decide nothing") {
  const Course course({kNotDone, kNotDone, kNotDone, kStanding});
  CHECK(course.found == FoundByEach{Found::kNothing, Found::kNothing, Found::kNothing});
  CHECK_FALSE(course.looks.newest());
}

TEST_CASE("a look whose report cannot be written leaves it to the next one") {
  const Course hangs({kNotWritten, kStanding, kNotWritten});
  CHECK(hangs.found == FoundByEach{Found::kNothing, Found::kHangs, Found::kNothing});
  CHECK(hangs.looks.newest() == 2);
  const Course healthy({kNotWritten, kGoesOn});
  CHECK(healthy.found == FoundByEach{Found::kNothing, Found::kNoHang});
}

TEST_CASE("what later looks show changes nothing in that the job hangs") {
  const Course course({kStanding, kGoesOnWritten, kNotDone});
  CHECK(course.found == FoundByEach{Found::kHangs, Found::kNothing, Found::kNothing});
  CHECK(course.looks.newest() == 2);
}

TEST_CASE("no look follows one that finds no rank any more") {
  const Course first({kAllEnded, kStanding});
  CHECK(first.found == FoundByEach{Found::kHangs});
  CHECK(first.looks.newest() == 1);
  const Course second({kStanding, kAllEnded, kStanding});
  CHECK(second.found == FoundByEach{Found::kHangs, Found::kNothing});
  CHECK(second.looks.newest() == 2);
}

}  // namespace
}  // namespace rankstacks::watch
