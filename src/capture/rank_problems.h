// What is recorded of a rank that could not be read completely.
#pragma once

#include <string_view>

#include "model/snapshot.h"

namespace rankstacks::capture {

inline constexpr const char* kTimeoutOption = "--timeout";

// Sets the status, unless the rank has a worse one.
void worsen(RankSnapshot& snapshot, Status status);

// The rank is partial, as the time for `what` was over. `limit`: which time limit that was.
void give_up(RankSnapshot& snapshot, std::string_view what, std::string_view limit = kTimeoutOption);

}  // namespace rankstacks::capture
