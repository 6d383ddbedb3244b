// pystack 1.x (src/pystack/traceback_formatter.py), innermost frame last:
//
//     Core file information: ...  pid: 4711 ppid: 1 ...
//     Traceback for thread 4711 (python3) [Has the GIL] (most recent call last):
//         (C) File "../csu/libc-start.c", line 360, in __libc_start_main (/usr/lib/x86_64-linux-gnu/libc.so.6)
//         (C) File "./nptl/futex-internal.c", line 57, in futex_wait (inlined) (/usr/lib/x86_64-linux-gnu/libc.so.6)
//         (Python) File "/x/train.py", line 12, in step
//             loss.backward()
//           Locals:
#include <cctype>

#include "base/text.h"
#include "dumps/cursor.h"
#include "dumps/readers.h"

namespace rankstacks::dumps {
namespace {

constexpr std::string_view kUnknown = "???";

bool begin_thread(std::string_view line, Draft& draft) {
  Cursor cursor(line);
  if (!cursor.take("Traceback for thread ")) return false;
  const auto tid = cursor.number<Tid>();
  if (!tid) return false;
  std::string_view name;
  if (cursor.take(" (")) name = cursor.until(")").value_or(std::string_view());
  ThreadSnapshot& thread = draft.begin_thread(*tid, name);
  if (contains(cursor.rest(), "Has the GIL")) thread.gil = Gil::kHolds;
  if (contains(cursor.rest(), "Waiting for the GIL")) thread.gil = Gil::kWaits;
  thread.collecting = contains(cursor.rest(), "Garbage collecting");
  return true;
}

// "futex_wait (inlined) (/usr/lib/libc.so.6)"
Frame native_frame(std::string_view function, std::string_view file, int line) {
  Frame frame;
  if (const std::size_t module = function.rfind(" ("); module != std::string_view::npos && function.ends_with(')')) {
    frame.module = kept(function.substr(module + 2, function.size() - module - 3));
    function = function.substr(0, module);
  }
  constexpr std::string_view kInlined = " (inlined)";
  frame.inlined = function.ends_with(kInlined);
  if (frame.inlined) function.remove_suffix(kInlined.size());
  if (function != kUnknown) frame.function = kept(function);
  if (line > 0 && file != kUnknown) frame.file = kept(file), frame.line = line;
  return frame;
}

std::optional<Frame> frame_of(std::string_view text) {
  Cursor cursor(text);
  const bool python = cursor.take("(Python) File \"");
  if (!python && !cursor.take("(C) File \"") && !cursor.take("(Cython) File \"")) return std::nullopt;
  const auto file = cursor.until("\", line ");
  const auto line = cursor.number<int>();
  if (!file || !line || !cursor.take(", in ")) return std::nullopt;
  return python ? python_frame(cursor.rest(), *file, *line) : native_frame(cursor.rest(), *file, *line);
}

// Whether a line of Python source calls what a thread sleeps in. None of these is written in Python: a thread whose
// innermost Python frame is at such a line is in that call.
bool calls_a_wait(std::string_view line) {
  for (const std::string_view call :
       {"sleep(", "acquire(", "recv(", "recv_into(", "recvfrom(", "accept(", "connect(", "flock(", "lockf(", "select(",
        "poll(", "read(", "readline(", "waitpid(", "input("}) {
    for (std::size_t at = line.find(call); at != std::string_view::npos; at = line.find(call, at + 1)) {
      const char before = at == 0 ? ' ' : line[at - 1];
      if (std::isalnum(static_cast<unsigned char>(before)) == 0 && before != '_') return true;
    }
  }
  return false;
}

// "state: t zombie: True niceness: 0\npid: 4711 ppid: 1 sid: 2"
bool begin_core(std::string_view text, Draft& draft) {
  Cursor cursor(text);
  if (!cursor.take("pid: ")) return false;
  const auto pid = cursor.number<Pid>();
  if (pid && contains(cursor.rest(), "ppid: ")) draft.begin_process(*pid);
  return pid.has_value();
}

}  // namespace

void read_pystack(std::string_view text, Draft& draft) {
  bool source_follows = false;
  each_line(text, [&](std::string_view line) {
    const std::string_view bare = trimmed(line);
    if (bare.empty() || begin_thread(bare, draft)) return;
    if (const auto frame = frame_of(bare)) {
      if (frame->kind == FrameKind::kPython) draft.process().python_version = "";
      if (!draft.add(*frame)) draft.not_understood();
      if (draft.thread() != nullptr) draft.thread()->state.reset();
      source_follows = frame->kind == FrameKind::kPython;
      return;
    }
    // Below a frame stand its line of the source and its variables; before the first thread, what the core says.
    if (source_follows && draft.thread() != nullptr && calls_a_wait(bare)) draft.thread()->state = 'S';
    source_follows = false;
    if (begin_core(bare, draft) || draft.last() != nullptr || draft.thread() == nullptr) return;
    draft.not_understood();
  });
  draft.reverse_frames();
}

}  // namespace rankstacks::dumps
