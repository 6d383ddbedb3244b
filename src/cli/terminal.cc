#include "cli/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>
#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <optional>
#include <string_view>

#include "report/report.h"

namespace rankstacks::cli {
namespace {

bool is_on_terminal(const Options& options) { return options.output.empty() && isatty(STDOUT_FILENO) != 0; }

// The user's own setting, as other programs take it: only a number above 0 counts.
std::optional<int> stated_columns() {
  const char* text = std::getenv("COLUMNS");
  if (text == nullptr) return std::nullopt;
  const std::string_view number = text;
  int columns = 0;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), columns);
  if (error != std::errc() || end != number.data() + number.size() || columns <= 0) return std::nullopt;
  return columns;
}

std::optional<int> terminal_columns() {
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return std::nullopt;
  return size.ws_col;
}

}  // namespace

bool use_color(const Options& options) {
  if (options.color != Color::kAuto) return options.color == Color::kAlways;
  const char* no_color = std::getenv("NO_COLOR");
  const char* term = std::getenv("TERM");
  return is_on_terminal(options) && (no_color == nullptr || *no_color == '\0') &&
         (term == nullptr || std::string_view(term) != "dumb");
}

int report_width(const Options& options) {
  const int kFixed = report::TextOptions().width;
  // Below this a stack's functions and files are cut to nothing; above it the eye loses the line.
  constexpr int kLeast = 60, kMax = 200;
  if (!is_on_terminal(options)) return kFixed;
  auto columns = stated_columns();
  if (!columns) columns = terminal_columns();
  return columns ? std::clamp(*columns, kLeast, kMax) : kFixed;
}

}  // namespace rankstacks::cli
