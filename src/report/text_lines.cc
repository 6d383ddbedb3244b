#include "report/text_lines.h"

#include <algorithm>

#include <fmt/format.h>

#include "report/sanitize.h"

namespace rankstacks::report {

std::vector<std::string> wrap(const std::string& text, std::size_t width, std::size_t indent) {
  std::vector<std::string> lines;
  std::string line;
  std::size_t at = 0;
  while (at < text.size()) {
    std::size_t end = text.find(' ', at);
    if (end == std::string::npos) end = text.size();
    std::string word = text.substr(at, end - at);
    at = end + 1;
    if (columns_of(line) + 1 + columns_of(word) > width && !line.empty()) {
      lines.push_back(std::move(line));
      line = std::string(indent, ' ');
    }
    if (!line.empty() && line.find_first_not_of(' ') != std::string::npos) line += ' ';
    const std::size_t room = width - std::min(width - 1, columns_of(line));
    line += columns_of(word) > room ? cut_start(word, room) : word;
  }
  if (!line.empty()) lines.push_back(std::move(line));
  return lines;
}

}  // namespace rankstacks::report
