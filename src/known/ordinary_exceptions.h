// Python exceptions that mean no failure: they end a loop, a generator, or an attempt to take from a queue, and
// programs handle them in normal operation.
#pragma once

#include <string_view>

namespace rankstacks::known {

// By the name of the class, with or without its module: "StopIteration", "queue.Empty".
bool is_ordinary_exception(std::string_view type);

// Whether exceptions of this type say that the other end of a connection has gone: of another rank, or of anything
// else.
bool is_lost_connection(std::string_view type);

}  // namespace rankstacks::known
