// Two ranks that run the same program: where their call paths diverge, and which of them is behind.
#pragma once

#include <optional>
#include <string>

#include "analyzers/rank_state.h"

namespace rankstacks::analyzers {

struct Divergence {
  // The outermost loop counter that differs; empty if none does, or none is known.
  std::string counter;
  std::int64_t count_a = 0, count_b = 0;
  // The rank is further down in the counter's function, and is seen in no loop there, or in fewer loops.
  bool a_may_be_done = false, b_may_be_done = false;

  // Rank a is in more loops there than b: the counter may be of a loop of its own, with the same name.
  bool a_may_count_another = false;

  // Rank a is further down than b where their paths diverge, or in another call at the same line.
  bool a_is_further_down = false;

  // Rank a is one step back, and further down in its step than b is in the next one: it has made all calls that b has
  // made, and is in one that b has left out. (Whoever began one step back is two steps back there, because the calls of
  // each of its steps went with those of the others' next step.)
  bool a_keeps_step() const { return !counter.empty() && count_a + 1 == count_b && a_is_further_down; }

  // The rank with the lower count is behind, unless it may have left the loop, in which case its counter is a
  // leftover.
  bool a_is_behind() const { return !counter.empty() && count_a < count_b && !a_may_be_done; }
  bool b_is_behind() const { return !counter.empty() && count_b < count_a && !b_may_be_done; }
  // The rank has been where the other is (which may have left the loop since).
  bool a_is_past() const { return !counter.empty() && count_a > count_b && !a_may_count_another; }
};

// Goes from the outermost frame inwards through the functions in which both ranks are at the same line, up to the
// first one where line or function differs. Counters count as long as both ranks are in the same functions.
Divergence divergence_of(const RankState& a, const RankState& b);

// Rank a is in the same round of the same loops as b, at a later line of the Python function in which their paths
// diverge: it has been where b is, or has left that out.
bool has_passed(const JobSnapshot& job, const RankState& a, const RankState& b);

// "step 41": the innermost loop counter on the rank's path through the user's code. Empty if none is known.
std::string describe_counter(const RankState& state);

}  // namespace rankstacks::analyzers
