// Words for what the threads of a cluster have in common, and for the model's enumerations.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "model/snapshot.h"

namespace rankstacks {

// "blocked in futex", "blocked in read(fd 5 -> pipe:[123])"; where members differ the calls' names only; who holds or waits for the GIL.
// Not sanitized.
std::string describe_members(const JobSnapshot& job, const std::vector<std::pair<std::size_t, std::size_t>>& members);

// "handles KeyError("x") raised in load at data.py:7", "2 of 4 handle KeyError raised in load at data.py:7"; "" where none of them handles an exception. Not sanitized.
std::string describe_handled_by(const JobSnapshot& job, const std::vector<std::pair<std::size_t, std::size_t>>& members);

std::string_view end_in_words(StackEnd end);
std::string_view origin_in_words(FrameOrigin origin);

}  // namespace rankstacks
