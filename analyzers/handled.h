// The exceptions that threads handle, Python's (HandledException) and C++'s (HandledCxxException).
#pragma once

#include <string>

#include "model/snapshot.h"

namespace rankstacks::analyzers {

bool handles_exception(const ThreadSnapshot& thread);
// Whether the thread handles an exception that means a failure, or cleans up while a C++ exception is on its way. Not
// one that ends a loop, a generator or an attempt to take from a queue (StopIteration, GeneratorExit, queue.Empty):
// programs handle these in normal operation.
bool handles_failure(const ThreadSnapshot& thread);

// The innermost exception that the thread handles, be it Python's or C++'s: as describe_handled() or
// describe_exception(); "" if it handles none. Not sanitized.
std::string describe_innermost(const JobSnapshot& job, const ThreadSnapshot& thread, bool with_message = true);
// describe_origin() of that exception; C++'s have none.
std::string describe_origin_of_innermost(const JobSnapshot& job, const ThreadSnapshot& thread,
                                         bool with_message = true);
// Of those that mean a failure: "handles ...", the innermost with its origin, or "has raised ..."; "" if there is none.
std::string describe_failure(const JobSnapshot& job, const ThreadSnapshot& thread);

// `RuntimeError("loss is NaN") raised in step at train.py:17`; without the message: `RuntimeError raised in ...`.
// Only the first line of the message is shown, truncated. Not sanitized.
std::string describe_handled(const JobSnapshot& job, const HandledException& handled, bool with_message = true);

// An entry of a traceback: "step at train.py:17". Not sanitized.
std::string describe_entry(const Frame& frame);

// `raised from ValueError("no such shard") raised in load at data.py:7`, `raised while ValueError was handled`. Not
// sanitized.
std::string describe_chained(const JobSnapshot& job, const ChainedException& chained);
// The first of the exceptions that led to it: `raised from KeyError raised in load at data.py:7: 'shard'`, `raised
// while handling KeyError ...`, `raised after 3 others, the first: KeyError ...`; "" if there is none. Not sanitized.
std::string describe_origin(const JobSnapshot& job, const HandledException& handled, bool with_message = true);
// describe_handled(), then describe_origin().
std::string describe_with_origin(const JobSnapshot& job, const HandledException& handled);

}  // namespace rankstacks::analyzers
