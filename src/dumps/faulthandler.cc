// Python's faulthandler (Python/traceback.c, _Py_DumpTracebackThreads), newest thread first:
//
//     Fatal Python error: Segmentation fault                        or: Timeout (0:05:00)!
//
//     Thread 0x00007f0429890640 (most recent call first):           3.14: Thread 0x... [worker] (most recent call first):
//       File "/x/train.py", line 12 in step
//       <no Python frame>
//
//     Current thread 0x00007f044ccd6040 (most recent call first):
//       Garbage-collecting
//       File "/x/train.py", line 30 in <module>
#include <unordered_set>

#include "base/text.h"
#include "dumps/cursor.h"
#include "dumps/readers.h"

namespace rankstacks::dumps {
namespace {

constexpr std::string_view kCallOrder = "(most recent call first):";

class Reader {
 public:
  explicit Reader(Draft& draft) : draft_(draft) {}

  void read(std::string_view line) {
    const std::string_view bare = trimmed(line);
    if (bare.empty()) return;
    if (begin_thread(bare)) return;
    if (in_stack_ && line.starts_with(' ') && read_frame(bare)) return;
    // Another line of the log.
    in_stack_ = false;
    draft_.end_thread();
    if (bare.starts_with("Timeout (") || bare.starts_with("Fatal Python error: ")) dump_ends_ = true;
  }

 private:
  bool begin_thread(std::string_view line) {
    if (!line.ends_with(kCallOrder)) return false;
    Cursor cursor(line);
    const bool stack_of_c = contains(line, "C stack trace");
    const bool one_only = cursor.take("Stack ");
    const bool thread = !stack_of_c && (cursor.take("Current thread ") || cursor.take("Thread "));
    if (!one_only && !thread) return stack_of_c;
    const std::uint64_t id = cursor.hex().value_or(0);
    // The same thread again: a later dump (dump_traceback_later with repeat=True, a signal that was sent twice).
    if (dump_ends_ || one_only || !seen_.insert(id).second) begin_dump(id);
    std::string_view name;
    if (cursor.take(" [")) name = cursor.until("]").value_or(std::string_view());
    draft_.process().python_version = "";
    draft_.begin_thread(0, name);
    return in_stack_ = true;
  }

  void begin_dump(std::uint64_t id) {
    draft_.begin_again();
    seen_ = {id};
    dump_ends_ = false;
  }

  bool read_frame(std::string_view line) {
    Cursor cursor(line);
    if (line == "Garbage-collecting") {
      if (draft_.thread() != nullptr) draft_.thread()->collecting = true;
      return true;
    }
    if (line == "...") {  // faulthandler prints 100 frames
      if (draft_.thread() != nullptr) draft_.thread()->stack_end = StackEnd::kDepthLimit;
      return true;
    }
    if (line == "<no Python frame>" || line == "<tstate is freed>") return true;
    if (!cursor.take("File \"")) return false;
    const auto file = cursor.until("\", line ");
    if (!file) return false;
    const auto number = cursor.number<int>();
    cursor.take("???");
    if (!cursor.take(" in ")) return false;
    draft_.add(python_frame(cursor.rest(), *file, number));
    return true;
  }

  Draft& draft_;
  std::unordered_set<std::uint64_t> seen_;
  bool in_stack_ = false, dump_ends_ = false;
};

}  // namespace

void read_faulthandler(std::string_view text, Draft& draft) {
  Reader reader(draft);
  each_line(text, [&](std::string_view line) { reader.read(line); });
}

}  // namespace rankstacks::dumps
