// When further samples of a job are taken.
#pragma once

#include <algorithm>
#include <chrono>

namespace rankstacks::capture {

struct SampleTimes {
  using Clock = std::chrono::steady_clock;

  Clock::time_point first;  // when the first sample began
  int samples = 1;          // in all, the first included
  Clock::duration interval{};

  // Of sample `n` (1: the one after the first), asked for at `now`. On a machine so busy that a sample takes long, it
  // is later than its turn, so that the times between the samples, in which a thread can be seen to run (`covered` so
  // far), add up to nine tenths of what they should be.
  Clock::time_point of(int n, Clock::time_point now, Clock::duration covered) const {
    const Clock::duration missing = interval * (samples - 1) * 9 / 10 - covered;
    return std::max(first + n * interval, now + missing / (samples - n));
  }
};

}  // namespace rankstacks::capture
