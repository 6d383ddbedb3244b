// eu-stack of elfutils (src/stack.c, print_frame):
//
//     PID 4711 - process                                            "PID 4711 - core"
//     TID 4711:
//     #0  0x00007f044cda6545     poll - /usr/lib/x86_64-linux-gnu/libc.so.6      -v pads, -m adds the module
//         ../sysdeps/unix/sysv/linux/poll.c:29:10                                -s
//     #1  0x00000000005d64b4 - 1 PyObject_Call - /usr/bin/python3.11             -v: 1 if it is a return address
#include "base/text.h"
#include "dumps/native_frame.h"
#include "dumps/readers.h"

namespace rankstacks::dumps {
namespace {

bool begin_process(std::string_view line, Draft& draft) {
  Cursor cursor(line);
  if (!cursor.take("PID ")) return false;
  const auto pid = cursor.number<Pid>();
  if (!pid || !cursor.take(" - ")) return false;
  draft.begin_process(*pid);
  return true;
}

bool begin_thread(std::string_view line, Draft& draft) {
  Cursor cursor(line);
  if (!cursor.take("TID ")) return false;
  const auto tid = cursor.number<Tid>();
  if (!tid || !cursor.take(":")) return false;
  draft.begin_thread(*tid, trimmed(cursor.rest()));
  return true;
}

std::optional<Frame> frame_of(std::string_view line) {
  Cursor cursor(line);
  if (!take_frame_number(cursor)) return std::nullopt;
  const auto address = cursor.hex();
  if (!address) return std::nullopt;
  cursor.blanks();
  cursor.take("- 1");
  cursor.blanks();
  Frame frame;
  frame.address = *address;
  std::string_view function = cursor.rest();
  // A module's name is a path, or "[vdso]".
  for (const std::string_view mark : {"- /", "- [", "- linux-"})
    if (const std::size_t at = function.rfind(mark); at != std::string_view::npos) {
      frame.module = kept(trimmed(function.substr(at + 2)));
      function = function.substr(0, at);
      break;
    }
  function = trimmed(function);
  constexpr std::string_view kInlined = " [inlined]";
  frame.inlined = function.ends_with(kInlined);
  if (frame.inlined) function.remove_suffix(kInlined.size());
  if (!function.empty()) frame.function = kept(function);
  return frame;
}

// "    ../sysdeps/unix/sysv/linux/poll.c:29:10"
bool add_source(std::string_view line, Draft& draft) {
  if (draft.last() == nullptr || draft.last()->file || !line.starts_with("    ")) return false;
  std::string_view file = trimmed(line);
  std::optional<int> number;
  for (int part = 0; part < 2; ++part)  // the column, then the line
    if (const std::size_t colon = file.rfind(':'); colon != std::string_view::npos)
      if (const auto value = number_of<int>(file.substr(colon + 1))) number = value, file = file.substr(0, colon);
  if (!number) return false;
  Frame frame = *draft.last();
  frame.file = kept(file);
  frame.line = number;
  draft.replace_last(std::move(frame));
  return true;
}

// "    [8bc71f...]@0x7f044cce0000+0x55545"
bool is_build_id(std::string_view line) { return line.starts_with("    ") && trimmed(line).starts_with('['); }

bool ends_stack(std::string_view line, Draft& draft) {
  if (!contains(line, "dwfl_thread_getframes") || draft.thread() == nullptr) return false;
  draft.thread()->stack_end = StackEnd::kNoUnwindInfo;
  return true;
}

}  // namespace

void read_eu_stack(std::string_view text, Draft& draft) {
  each_line(text, [&](std::string_view line) {
    if (trimmed(line).empty() || begin_process(line, draft) || begin_thread(line, draft)) return;
    if (const auto frame = frame_of(line); frame && draft.add(*frame)) return;
    if (!add_source(line, draft) && !is_build_id(line) && !ends_stack(line, draft)) draft.not_understood();
  });
}

}  // namespace rankstacks::dumps
