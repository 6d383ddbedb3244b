// Ranks that all wait, grouped by where they do: those that wait alike are one side. deadlock.h decides between the
// sides.
#pragma once

#include <string>
#include <vector>

#include "analyzers/facts.h"

namespace rankstacks::analyzers {

using Side = std::vector<std::size_t>;  // indices of states that wait alike

// The ranks that wait in operations, grouped by place and process group. Each side is in order, and so are the sides.
std::vector<Side> sides_by_place(const Facts& facts);

// All are at one place, but some of them at another step: a counter with two values, one of which has the majority.
// Counters with more values count something that differs by rank anyway. Returns the side with the lower value and the
// one with the higher; empty if there is no such counter.
std::vector<Side> split_by_counter(const JobSnapshot& job, const std::vector<RankState>& states, const Side& all);

// Collectives match by their order, whatever line calls them. If places have no majority, the calls may have one,
// provided that the group is known. Returns the sides by their calls; empty if each side is in another call, or if all
// are in the same one.
std::vector<Side> merge_same_calls(const std::vector<RankState>& states, const std::vector<Side>& sides);

// The smaller of two sides; both if they are of equal size, then `equal` is set.
Side smaller_side(const Side& a, const Side& b, bool& equal);

// Of two sides that wait in two groups: only a rank that belongs to both groups can be in the wrong one. Returns those
// of the side that has fewer of these ranks; empty if both have as many, or if a group is not known.
Side smaller_side_of_shared(const JobSnapshot& job, const std::vector<RankState>& states, const Side& a, const Side& b);

// "ranks 0-1,3"
std::string name_side(const JobSnapshot& job, const std::vector<RankState>& states, const Side& members);

// "ranks 0-1,3 wait in all_reduce (step at train.py:17)"
std::string describe_side(const JobSnapshot& job, const std::vector<RankState>& states, const Side& members);

}  // namespace rankstacks::analyzers
