// Python exceptions that mean no failure: they end a loop, a generator, or an attempt to take from a queue, and
// programs handle them in normal operation.
#pragma once

#include <string_view>

namespace rankstacks::known {

// By the name of the class, with or without its module: "StopIteration", "queue.Empty".
bool is_ordinary_exception(std::string_view type);

}  // namespace rankstacks::known
