// py-spy 0.3 and 0.4 (src/dump.rs):
//
//     Process 4711: python3 train.py
//     Python v3.11.2 (/usr/bin/python3.11)
//
//     Thread 4711 (idle): "MainThread"
//         pthread_cond_wait (libc.so.6)                 --native: no line, or one of C's
//         Trainer.step (train.py:12)
//             Arguments:                                --locals
#include "base/text.h"
#include "dumps/cursor.h"
#include "dumps/readers.h"

namespace rankstacks::dumps {
namespace {

// A launcher's prefix that ends without a blank may have taken the first one.
constexpr std::size_t kFrameIndent = 4, kMinFrameIndent = 3;

bool is_native_source(std::string_view file) {
  for (const std::string_view ending : {".c", ".cc", ".cpp", ".cxx", ".h", ".hpp", ".cu", ".cuh", ".rs", ".S", ".pyx"})
    if (file.ends_with(ending)) return true;
  return false;
}

Frame native_frame(std::string_view function, std::string_view where, std::optional<int> line) {
  Frame frame;
  Cursor address(function);
  const auto hex = address.hex();
  if (hex && address.rest().empty()) frame.address = *hex;
  else frame.function = kept(function);
  if (line) frame.file = kept(where), frame.line = line;
  else frame.module = kept(where);
  return frame;
}

// "step (train.py:12)"
std::optional<Frame> frame_of(std::string_view text) {
  const std::size_t open = text.rfind(" (");
  if (open == std::string_view::npos || open == 0 || !text.ends_with(')')) return std::nullopt;
  const std::string_view function = text.substr(0, open);
  std::string_view where = text.substr(open + 2, text.size() - open - 3);
  const std::size_t colon = where.rfind(':');
  const auto line = colon == std::string_view::npos ? std::nullopt : number_of<int>(where.substr(colon + 1));
  if (line) where = where.substr(0, colon);
  if (!line || is_native_source(where)) return native_frame(function, where, line);
  return python_frame(function, where, line);
}

bool begin_process(std::string_view line, Draft& draft) {
  Cursor cursor(line);
  if (!cursor.take("Process ")) return false;
  const auto pid = cursor.number<Pid>();
  if (!pid || !cursor.take(":")) return false;
  RankSnapshot& rank = draft.begin_process(*pid);
  rank.python_version = "";
  // How the arguments were quoted is not known: the words are those between blanks.
  for (std::string_view words = trimmed(cursor.rest()); !words.empty() && rank.command.size() < kMaxText;) {
    const std::size_t end = std::min(words.find(' '), words.size());
    rank.command.push_back(kept(words.substr(0, end)));
    words = trimmed(words.substr(end));
  }
  return true;
}

bool read_version(std::string_view line, Draft& draft) {
  Cursor cursor(line);
  if (!draft.has_process() || !cursor.take("Python v")) return false;
  const auto version = cursor.until(" (");
  if (!version) return false;
  draft.process().python_version = kept(*version);
  if (cursor.rest().ends_with(')'))
    draft.process().executable = kept(cursor.rest().substr(0, cursor.rest().size() - 1));
  return true;
}

// `Thread 4711 (active+gil): "MainThread"`; `Thread 0x7F54C5D2F740 (idle)` where the kernel's number is not known.
bool begin_thread(std::string_view line, Draft& draft) {
  Cursor cursor(line);
  if (!cursor.take("Thread ")) return false;
  Tid tid = 0;
  if (const auto pthread = cursor.hex(); !pthread) {
    const auto number = cursor.number<Tid>();
    if (!number) return false;
    tid = *number;
  }
  if (!cursor.take(" (")) return false;
  const auto state = cursor.until(")");
  if (!state) return false;
  std::string_view name;
  if (cursor.take(": \"")) name = cursor.rest().substr(0, cursor.rest().rfind('"'));
  if (tid == 0 && name == "MainThread") tid = draft.process().pid;
  ThreadSnapshot& thread = draft.begin_thread(tid, name);
  thread.state = state->starts_with("active") ? 'R' : 'S';
  if (contains(*state, "gil")) thread.gil = Gil::kHolds;
  return true;
}

}  // namespace

void read_py_spy(std::string_view text, Draft& draft) {
  each_line(text, [&](std::string_view line) {
    const std::string_view bare = trimmed(line);
    if (bare.empty() || begin_process(line, draft) || read_version(line, draft) || begin_thread(line, draft)) return;
    const std::size_t indent = line.find_first_not_of(' ');
    if (indent > kFrameIndent && draft.last() != nullptr) return;  // a variable
    const auto frame = indent >= kMinFrameIndent && indent <= kFrameIndent ? frame_of(bare) : std::nullopt;
    if (!frame || !draft.add(*frame)) draft.not_understood();
  });
}

}  // namespace rankstacks::dumps
