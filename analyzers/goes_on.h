// Whether a job goes on by itself, as far as a verdict about it tells: for who looks without being asked (watch).
#pragma once

#include <optional>
#include <string>

#include "analyzers/analysis.h"
#include "model/snapshot.h"

namespace rankstacks::analyzers {

enum class GoesOn { kYes, kNotKnown, kNo };

// kYes: it is healthy, or each suspect gets on with what takes long by its nature: a checkpoint, a compilation, its
// data. kNotKnown: the verdict is undecided; or only a longer look shows whether a rank that counts has passed by what
// the others wait in; or a thread of a suspect is ready to run and had hardly any time on a processor between the
// samples, so that it could not have moved: a machine with more work than processors; or all ranks do the same, and
// that is so of any of them, or some_own_thread_wakes().
GoesOn goes_on(const JobSnapshot& job, const Analysis& analysis);

// Whether a thread of the program's own woke up again and again between the samples: a poller, or a thread that takes
// short steps, which a few samples may all find at one place.
bool some_own_thread_wakes(const JobSnapshot& job, const Analysis& analysis);

// Where all ranks are, as a text to compare: two looks between which no rank has got further have the same.
// std::nullopt: a rank moves, or its frames do not show where it is, or it lacks a processor as above.
std::optional<std::string> standing_places(const JobSnapshot& job, const Analysis& analysis);

}  // namespace rankstacks::analyzers
