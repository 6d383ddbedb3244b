// Ranks that all wait, and whose collective has a root (the source of a broadcast, the destination of a gather): those
// with another root are in another call.
#pragma once

#include <optional>

#include "analyzers/waiting_job.h"

namespace rankstacks::analyzers {

// All wait at one line, and one root is not that of most of them: then it is another call. Nothing is concluded where
// some are elsewhere already, because ranks may be roots in turn, and a rank at a later turn is further on.
std::optional<Deadlock> another_root(const WaitingJob& waiting);

// Some wait at one line with different roots, and counters show that it is one step: they are not in one call,
// whatever the others do, who may have gone on, as those do that are no root of a gather. Of as many ranks with one
// root as with another, only those that have gone on know which is right: then none is accused. Where no counters
// show it, most of them are right if they cannot take turns.
std::optional<Deadlock> several_roots_in_one_step(const WaitingJob& waiting);

// They are in collectives with different roots: a rank with another root may be a turn ahead.
bool several_roots(const WaitingJob& waiting, const Side& side);

}  // namespace rankstacks::analyzers
