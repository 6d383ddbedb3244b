#include "dumps/gdb_frame.h"

#include <algorithm>

#include "base/text.h"
#include "dumps/draft.h"
#include "dumps/native_frame.h"

namespace rankstacks::dumps {
namespace {

// The '(' of the arguments, which end with the text; strings among them may hold brackets.
std::size_t arguments_begin(std::string_view text) {
  int depth = 0;
  bool quoted = false;
  for (std::size_t i = text.size(); i-- > 0;) {
    if (text[i] == '"' && (i == 0 || text[i - 1] != '\\')) quoted = !quoted;
    if (quoted) continue;
    if (text[i] == ')') ++depth;
    if (text[i] == '(' && --depth == 0) return i;
  }
  return std::string_view::npos;
}

}  // namespace

std::string_view without_arguments(std::string_view text) {
  text = trimmed(text);
  return text.ends_with(')') ? trimmed(text.substr(0, std::min(arguments_begin(text), text.size()))) : text;
}

bool gdb_place(std::string_view text, Frame& frame) {
  Cursor cursor(text);
  if (cursor.take("from ")) return frame.module = kept(cursor.rest()), true;
  if (!cursor.take("at ")) return false;
  // cuda-gdb: "at prims_simple.h:128 in Primitives::wait inlined from all_reduce.h:227"
  std::string_view where = cursor.rest();
  if (const std::size_t inlined = where.find(" in "); contains(where, " inlined from "))
    where = where.substr(0, inlined);
  const std::size_t colon = where.rfind(':');
  const auto line = colon == std::string_view::npos ? std::nullopt : number_of<int>(where.substr(colon + 1));
  frame.file = kept(line ? where.substr(0, colon) : where);
  frame.line = line;
  return true;
}

Frame gdb_frame_without_number(std::string_view text) {
  Cursor cursor(text);
  Frame frame;
  if (const auto address = cursor.hex()) {
    frame.address = *address;
    cursor.take(" in ");
  } else if (cursor.take("<unavailable>")) {
    cursor.take(" in ");
  }
  std::string_view function = cursor.rest();
  for (const std::string_view mark : {") from ", ") at "})
    if (const std::size_t end = function.rfind(mark);
        end != std::string_view::npos && gdb_place(function.substr(end + 2), frame)) {
      function = function.substr(0, end + 1);
      break;
    }
  // A narrow terminal has the rest of the arguments in the next line.
  const std::size_t open = function.ends_with(')') ? std::string_view::npos : function.find(" (");
  function = open == std::string_view::npos ? without_arguments(function) : trimmed(function.substr(0, open));
  if (function != "??" && !function.empty()) frame.function = kept(function);
  return frame;
}

std::optional<Frame> gdb_frame(std::string_view line) {
  Cursor cursor(line);
  if (!take_frame_number(cursor)) return std::nullopt;
  return gdb_frame_without_number(cursor.rest());
}

}  // namespace rankstacks::dumps
