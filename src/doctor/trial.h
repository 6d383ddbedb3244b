// System calls that are tried in processes made for it: a filter may answer with a signal, and the end of the tracer is
// what releases a seized process.
#pragma once

#include "doctor/system.h"

namespace rankstacks::doctor {

Trial try_attach_to_sibling();

// PTRACE_SEIZE of a thread that goes on running: it is not interrupted, and is released before this returns. Returns an
// errno, or 0.
int try_to_seize(Tid tid);

}  // namespace rankstacks::doctor
