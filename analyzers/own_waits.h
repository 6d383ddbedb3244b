// What a rank waits for that is no other rank, where its frames tell more than its reason does: a queue, a thread's end, a paused terminal.
#pragma once

#include <optional>
#include <string>

#include "analyzers/standing.h"

namespace rankstacks {

struct OwnWait {
  std::string_view verb, advice;   // as in the table of words by reason
};

// Nothing: the words of the reason are all there is to say.
std::optional<OwnWait> own_wait_of(const JobSnapshot& job, const Standing& standing, std::string_view reason);

}  // namespace rankstacks
