// systemd-coredump (src/coredump/coredumpctl.c, print_info; src/shared/elf-util.c):
//
//                PID: 4711 (python3)
//             Signal: 6 (ABRT)
//       Command Line: python3 train.py
//         Executable: /usr/bin/python3.11
//           Hostname: node-a
//            Message: Process 4711 (python3) of user 1000 dumped core.
//
//                     Stack trace of thread 4711:
//                     #0  0x00007f8d8c1a9e3c pthread_kill (libc.so.6 + 0x8ae3c)
//                     #1  0x00007f8d8c15afb2 n/a (libfoo.so + 0x3bfb2)
#include "base/text.h"
#include "dumps/native_frame.h"
#include "dumps/readers.h"

namespace rankstacks::dumps {
namespace {

bool begin_process(std::string_view line, Draft& draft) {
  Cursor cursor(line);
  if (cursor.take("PID: ")) {
    const auto pid = cursor.number<Pid>();
    if (pid) draft.begin_process(*pid);
    return pid.has_value();
  }
  const std::size_t at = line.find("Process ");
  if (at == std::string_view::npos || !contains(line, "dumped core")) return false;
  const auto pid = Cursor(line.substr(at + 8)).number<Pid>();
  if (pid && (!draft.has_process() || draft.process().pid != *pid)) draft.begin_process(*pid);
  return pid.has_value();
}

bool describe(std::string_view line, RankSnapshot& rank) {
  Cursor cursor(line);
  if (cursor.take("Command Line: ")) return rank.command = {kept(cursor.rest())}, true;
  if (cursor.take("Executable: ")) return rank.executable = kept(cursor.rest()), true;
  if (cursor.take("Hostname: ")) return rank.host = kept(cursor.rest()), true;
  if (!cursor.take("Signal: ")) return false;
  const auto number = cursor.number<int>();
  if (number && cursor.take(" (") && cursor.rest().ends_with(')'))
    rank.signal = SignalInfo{
        .number = *number, .name = "SIG" + kept(cursor.rest().substr(0, cursor.rest().size() - 1)), .tid = rank.pid};
  return true;
}

bool begin_thread(std::string_view line, Draft& draft) {
  Cursor cursor(line);
  if (!cursor.take("Stack trace of thread ")) return false;
  const auto tid = cursor.number<Tid>();
  if (!tid) return false;
  // The thread that has received the signal comes first.
  RankSnapshot& rank = draft.process();
  if (rank.threads.empty() && rank.signal) rank.signal->tid = *tid;
  draft.begin_thread(*tid);
  return true;
}

std::optional<Frame> frame_of(std::string_view line) {
  Cursor cursor(line);
  if (!take_frame_number(cursor)) return std::nullopt;
  const auto address = cursor.hex();
  if (!address) return std::nullopt;
  Frame frame;
  frame.address = *address;
  std::string_view function = trimmed(cursor.rest());
  if (const std::size_t open = function.rfind(" ("); open != std::string_view::npos) {
    Cursor where(function.substr(open + 2));
    if (const auto module = where.until(" + ")) {
      frame.module = kept(*module);
      frame.offset = where.hex();
    }
    function = function.substr(0, open);
  }
  if (!function.empty() && function != "n/a") frame.function = kept(function);
  return frame;
}

}  // namespace

void read_coredumpctl(std::string_view text, Draft& draft) {
  each_line(text, [&](std::string_view line) {
    const std::string_view bare = trimmed(line);
    if (bare.empty() || begin_process(bare, draft) || begin_thread(bare, draft)) return;
    if (const auto frame = frame_of(bare); frame && draft.add(*frame)) return;
    if (draft.thread() == nullptr && draft.has_process()) describe(bare, draft.process());
    else if (draft.thread() != nullptr && bare.front() == '#') draft.not_understood();
  });
}

}  // namespace rankstacks::dumps
