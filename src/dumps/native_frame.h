// What the native debuggers' lines have in common.
#pragma once

#include <optional>
#include <string_view>

#include "dumps/cursor.h"
#include "dumps/draft.h"

namespace rankstacks::dumps {

// Takes "#12 " from the beginning; std::nullopt, and nothing taken, if the line begins otherwise.
inline std::optional<int> take_frame_number(Cursor& cursor) {
  const Cursor before = cursor;
  if (cursor.take("#"))
    if (const auto number = cursor.number<int>(); number && (cursor.rest().empty() || cursor.rest().front() == ' ')) {
      cursor.blanks();
      return number;
    }
  cursor = before;
  return std::nullopt;
}

// gdb and eu-stack do not name the module of every frame, and the analyzers have to know which frames are the C
// library's and the interpreter's. A frame without a module gets one by its source file ("../sysdeps/...") or by its
// function (poll, pthread_..., Py...), and then, by its address, if the next known frames of the same process below and
// above it are of one module. Sets python_version to "" where frames of an interpreter are found.
void name_modules(FrameTable& frames, RankSnapshot& rank);

}  // namespace rankstacks::dumps
