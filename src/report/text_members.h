// Describes in words what the threads of a cluster have in common, and the enumerators of the model.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "model/snapshot.h"

namespace rankstacks::report {

// "blocked in futex", "blocked in read(fd 5 -> pipe:[123])"; if the members differ, only the names of the calls; which
// of them hold or wait for the GIL. Not sanitized.
std::string describe_members(const JobSnapshot& job, const std::vector<std::pair<std::size_t, std::size_t>>& members);

// "handles KeyError("x") raised in load at data.py:7", "2 of 4 handle KeyError raised in load at data.py:7"; "" if none
// of them handles an exception. Not sanitized.
std::string describe_handled_by(const JobSnapshot& job,
                                const std::vector<std::pair<std::size_t, std::size_t>>& members);

// The first of the exceptions that led to it (analyzers/handled.h); "" if there is none, or if the members handle
// different ones. Not sanitized.
std::string describe_origin_by(const JobSnapshot& job, const std::vector<std::pair<std::size_t, std::size_t>>& members);

std::string_view end_in_words(StackEnd end);
std::string_view origin_in_words(FrameOrigin origin);

}  // namespace rankstacks::report
