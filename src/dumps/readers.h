// A reader for each tool's text. Each reads the text from its first to its last line, adds what it understands to the
// draft and counts the lines that it does not. None fails.
#pragma once

#include <string_view>

#include "dumps/draft.h"

namespace rankstacks::dumps {

// py-spy dump, with --native, --locals, --subprocesses; py-spy dump --json.
void read_py_spy(std::string_view text, Draft& draft);
void read_py_spy_json(std::string_view text, Draft& draft);
// pystack remote, pystack core, with --native, --native-all, --locals.
void read_pystack(std::string_view text, Draft& draft);
// gdb's bt, thread apply all bt, bt full.
void read_gdb(std::string_view text, Draft& draft);
// eu-stack -p, --core, with -i, -m, -b, -s, -v, -r.
void read_eu_stack(std::string_view text, Draft& draft);
// Python's faulthandler, anywhere in a log. Of several dumps the last one is kept.
void read_faulthandler(std::string_view text, Draft& draft);
// systemd-coredump: coredumpctl info, and its message in the journal.
void read_coredumpctl(std::string_view text, Draft& draft);

// Calls f with each line, without its end.
template <class F>
void each_line(std::string_view text, F&& f) {
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    if (line.ends_with('\r')) line.remove_suffix(1);
    f(line);
    if (end == std::string_view::npos) return;
    text.remove_prefix(end + 1);
  }
}

}  // namespace rankstacks::dumps
