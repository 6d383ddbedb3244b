// The names that Python's threading module has given to the threads: "MainThread", "Thread-1 (run)", "pin-memory".
//
//     sys.modules -> threading -> _active: {pthread_self(): Thread} -> its attribute _name
//
// This is copied during the stop. What is inconsistent is left out: then a thread has no name.
#pragma once

#include "python/python.h"
#include "python/running.h"

namespace rankstacks::python {

inline constexpr std::size_t kMaxNamedThreads = 16'384;
inline constexpr std::size_t kLongestThreadName = 256;  // characters; a longer one is cut

// Fills ThreadState::name of state.threads. Of a program that has not imported threading, no thread has a name.
void read_thread_names(const target::Target& target, const Runtime& runtime, State& state);

}  // namespace rankstacks::python
