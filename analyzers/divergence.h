// Two ranks in the same program: where their ways part, and which of them is behind.
#pragma once

#include <optional>
#include <string>

#include "analyzers/rank_state.h"

namespace rankstacks {

struct Divergence {
  std::string counter;                   // the outermost loop counter that differs; empty: none does, or none is known
  std::int64_t count_a = 0, count_b = 0;
  bool a_may_be_done = false, b_may_be_done = false;   // it stands further down in the function of the counter, and is not seen in a loop, or in fewer of them

  bool a_may_count_another = false;      // it stands in more loops there than the other: the counter may be of one of its own, by the same name

  // The one with the lower count, unless it may have left the loop, and the counter is what remained of it.
  bool a_is_behind() const { return !counter.empty() && count_a < count_b && !a_may_be_done; }
  bool b_is_behind() const { return !counter.empty() && count_b < count_a && !b_may_be_done; }
  // It has been where the other is, which may have left the loop since.
  bool a_is_past() const { return !counter.empty() && count_a > count_b && !a_may_count_another; }
};

// From the outside inwards: functions that both are in at the same line, then the first where line or function differs. Counters count
// as far as both are in the same functions.
Divergence divergence_of(const RankState& a, const RankState& b);

// "step 41": the innermost loop counter of the rank's way through the user's code; empty: none is known.
std::string describe_counter(const RankState& state);

}  // namespace rankstacks
