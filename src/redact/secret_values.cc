#include "redact/secret_values.h"

#include <algorithm>

#include "redact/secrets.h"

namespace rankstacks::redact {

// By the words between, which are in both.
void add_hidden(std::string_view text, std::string_view redacted, std::set<std::string>& values) {
  while (true) {
    const std::size_t next = redacted.find(kSecret);
    if (next == std::string_view::npos || !text.starts_with(redacted.substr(0, next))) return;
    text.remove_prefix(next);
    redacted.remove_prefix(next + kSecret.size());
    const std::size_t another = redacted.find(kSecret);
    const std::string_view between = redacted.substr(0, another);
    const bool is_last = another == std::string_view::npos;
    if (is_last && !text.ends_with(between)) return;
    const std::size_t end = is_last ? text.size() - between.size() : between.empty() ? text.size() : text.find(between);
    if (end == std::string_view::npos) return;
    if (end > 0) values.emplace(text.substr(0, end));
    text.remove_prefix(end);
  }
}

std::vector<std::string> secret_values(const std::map<std::string, std::string>& environment,
                                       const std::vector<std::string>& command) {
  std::set<std::string> values;
  for (const auto& [name, value] : environment) {
    if (names_a_secret(name, value)) values.insert(value);
    else add_hidden(value, without_secrets(value, Text::kWords), values);
  }
  const std::vector<std::string> redacted = without_secrets(command);
  for (std::size_t i = 0; i < std::min(command.size(), redacted.size()); ++i)
    add_hidden(command[i], redacted[i], values);
  std::vector<std::string> sorted(values.begin(), values.end());
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const std::string& a, const std::string& b) { return a.size() > b.size(); });
  return sorted;
}

}  // namespace rankstacks::redact
