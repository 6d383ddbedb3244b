// What is known of a thread in addition to its stack, in words.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "model/snapshot.h"

namespace rankstacks::report {

// "blocked in read(fd 5 -> pipe:[123])", "waits for the GIL", "waits for a Lock held by thread 4712 (loader)": each
// note by itself. Not sanitized.
std::vector<std::string> thread_notes(const JobSnapshot& job, std::size_t rank, std::size_t thread);

// "handles KeyError("x") raised in load at data.py:7", then the exceptions that led to it, the nearest first, and its
// traceback, of a Python exception; empty if the thread handles none. Not sanitized.
std::vector<std::string> handled_notes(const JobSnapshot& job, const ThreadSnapshot& thread);
// "handles std::runtime_error: no such shard", of a C++ exception; "" if the thread handles none. Not sanitized.
std::string handled_cxx_note(const ThreadSnapshot& thread);
// The same of the Python exception that it has raised, which thread_notes() names.
std::vector<std::string> raised_notes(const JobSnapshot& job, const ThreadSnapshot& thread);

}  // namespace rankstacks::report
