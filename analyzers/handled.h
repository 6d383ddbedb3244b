// The Python exceptions that threads handle (HandledException).
#pragma once

#include <string>

#include "model/snapshot.h"

namespace rankstacks::analyzers {

bool handles_exception(const ThreadSnapshot& thread);
// Whether the thread handles an exception that means a failure. Not one that ends a loop, a generator or an attempt
// to take from a queue (StopIteration, GeneratorExit, queue.Empty): programs handle these in normal operation.
bool handles_failure(const ThreadSnapshot& thread);

// `RuntimeError("loss is NaN") raised in step at train.py:17`; without the message: `RuntimeError raised in ...`.
// Only the first line of the message is shown, truncated. Not sanitized.
std::string describe_handled(const JobSnapshot& job, const HandledException& handled, bool with_message = true);

// `raised from ValueError("no such shard")`, `raised while ValueError was handled`. Not sanitized.
std::string describe_chained(const ChainedException& chained);

}  // namespace rankstacks::analyzers
