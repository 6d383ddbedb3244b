// One frame of gdb's and cuda-gdb's backtraces: "#1  0x00007efd7ad1decf in gloo::run() () from /lib/libgloo.so.0".
#pragma once

#include <optional>
#include <string_view>

#include "model/snapshot.h"

namespace rankstacks::dumps {

// std::nullopt: the line does not begin with a frame's number.
std::optional<Frame> gdb_frame(std::string_view line);
// What stands behind the number: "0x00007efd7ad1decf in gloo::run() () from /lib/libgloo.so.0".
Frame gdb_frame_without_number(std::string_view text);
// Where a frame is: "at ./nptl/futex-internal.c:57", "from /lib/libgloo.so.0"; false, and nothing set, if it is
// neither.
bool gdb_place(std::string_view text, Frame& frame);
// The text without the brackets at its end, and what stands in them: "f" of "f (a=1)". Strings may hold brackets.
std::string_view without_arguments(std::string_view text);

}  // namespace rankstacks::dumps
