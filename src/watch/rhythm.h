// What a rank usually does in a period, learned from the periods in which its job went on; and what it does in one
// period compared with that.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <vector>

#include "watch/reading.h"

namespace rankstacks::watch {

// From the least to the most that a period says against a hang.
enum class Activity {
  kStands,   // next to no processor time, and none of its usual input, output or switches
  kSpins,    // processor time as usual, but none of the input and output that usually goes with it: a wait that polls
  kUnclear,  // processor time, and nothing else to compare; or it is ready to run, and has no processor
  kMoves,    // input or output as usual
};

// How much the ranks of a job stand, as a whole.
enum class Stillness {
  kMoving,   // some rank moves
  kUnclear,  // none moves; of most, nothing is certain
  kPartly,   // none moves, and half of them or more stand or spin
  kAll,      // all of them stand or spin
};

class Rhythm {
 public:
  Activity activity(const Rates& rates) const;
  void learn(const Rates& rates);
  // Nothing is known to compare with, and it reads or writes more than threads in the background do.
  bool may_move(const Rates& rates) const;
  // Enough periods to know what is usual.
  bool is_known() const { return learned_ >= kLeast; }

  static constexpr std::size_t kLeast = 6, kMax = 64;  // periods

 private:
  enum Feature { kCpu, kRuns, kReads, kWrites, kFeatures };
  static std::array<double, kFeatures> features_of(const Rates& rates);
  // The median of the periods learned; std::nullopt if it is too little to show a difference.
  std::optional<double> usual(Feature feature) const;
  bool is_down(Feature feature, double rate) const;
  // Nothing but the processor time can tell that it works.
  bool is_quiet(const Rates& rates) const;

  std::array<std::vector<double>, kFeatures> periods_;  // the newest kMax
  std::array<std::optional<double>, kFeatures> usual_;
  std::size_t learned_ = 0;
};

Stillness stillness_of(const std::vector<Activity>& ranks);

}  // namespace rankstacks::watch
