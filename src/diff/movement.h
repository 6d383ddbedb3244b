// What a thread has done between two reports.
#pragma once

#include "diff/job_diff.h"

namespace rankstacks::diff {

// `seconds`: between the reports, 0 if that is not known.
ThreadChange thread_change(const Sides& sides, const ProcessPair& process, const ThreadPair& pair,
                           const analyzers::SeenThread& old, const analyzers::SeenThread& now, double seconds);

// Of a process: that of its main thread, or of the thread that shows what the rank does, whichever has moved more.
Movement movement_of(const Sides& sides, const ProcessChange& change);

}  // namespace rankstacks::diff
