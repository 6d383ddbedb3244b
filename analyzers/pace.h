// How ranks move between several looks.
#pragma once

#include <vector>

#include "analyzers/standing.h"

namespace rankstacks {

// On a processor for a good part of the looks: it works or spins, rather than waking up now and then.
bool is_busy(const Motion& motion);

// Standing::pace, counts, left_wait, travels and busy, by the motion of the threads that tell for it.
void tell_pace(const JobSnapshot& job, const std::vector<std::vector<Role>>& roles, Standing& standing);

}  // namespace rankstacks
