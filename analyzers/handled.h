// The Python exceptions that threads handle (HandledException).
#pragma once

#include <string>

#include "model/snapshot.h"

namespace rankstacks {

bool handles_exception(const ThreadSnapshot& thread);
// One that something went wrong with: not what ends a loop, a generator, or a look into a queue (StopIteration, GeneratorExit, queue.Empty), which programs handle as they go.
bool handles_failure(const ThreadSnapshot& thread);

// `RuntimeError("loss is NaN") raised in step at train.py:17`; without the message: `RuntimeError raised in ...`. Of
// the message its first line, cut. Not sanitized.
std::string describe_handled(const JobSnapshot& job, const HandledException& handled, bool with_message = true);

}  // namespace rankstacks
