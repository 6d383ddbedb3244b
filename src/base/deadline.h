// When work on untrusted input is given up.
//
// A walk asks passed() between its steps and ends with what it has; whoever started it says in the report that it was cut short.
#pragma once

#include <algorithm>
#include <chrono>
#include <limits>

namespace rankstacks {

class Deadline {
 public:
  using Clock = std::chrono::steady_clock;

  static Deadline never() { return Deadline(Clock::time_point::max()); }
  static Deadline after(Clock::duration span) {
    const auto now = Clock::now();
    return Deadline(span > Clock::time_point::max() - now ? Clock::time_point::max() : now + span);
  }

  static Deadline at(Clock::time_point end) { return Deadline(end); }

  bool passed() const noexcept { return end_ != Clock::time_point::max() && Clock::now() >= end_; }

  // What is left of it, to be counted on later: work on one rank rests while others have their turn.
  Clock::duration left() const noexcept {
    if (end_ == Clock::time_point::max()) return Clock::duration::max();
    return std::max(end_ - Clock::now(), Clock::duration::zero());
  }

 private:
  explicit Deadline(Clock::time_point end) : end_(end) {}
  Clock::time_point end_;
};

// For walks of short steps: looks at the clock (25 ns) at every 64th step only, and stays with "passed" once it was.
class DeadlineCheck {
 public:
  explicit DeadlineCheck(const Deadline& deadline) : deadline_(deadline) {}
  bool passed() noexcept {
    constexpr unsigned kSteps = 64;
    if (!passed_ && steps_++ % kSteps == 0) passed_ = deadline_.passed();
    return passed_;
  }
  bool gave_up() const noexcept { return passed_; }

 private:
  Deadline deadline_;
  unsigned steps_ = 0;
  bool passed_ = false;
};

}  // namespace rankstacks
