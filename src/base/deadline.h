// The moment at which work on untrusted input is given up.
//
// A walk calls passed() between its steps and ends with the results it has. The code that started the walk says in the
// report that it was cut short.
#pragma once

#include <algorithm>
#include <chrono>
#include <limits>

namespace rankstacks {
inline namespace base {

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

  // The time that is left. A deadline can be resumed from it: the work on one rank pauses while other ranks have their
  // turn.
  Clock::duration left() const noexcept {
    if (end_ == Clock::time_point::max()) return Clock::duration::max();
    return std::max(end_ - Clock::now(), Clock::duration::zero());
  }

 private:
  explicit Deadline(Clock::time_point end) : end_(end) {}
  Clock::time_point end_;
};

// For walks of short steps: reads the clock (25 ns) at every 64th step only. Once passed() was true it stays true.
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

}  // namespace base
}  // namespace rankstacks
