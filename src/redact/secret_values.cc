#include "redact/secret_values.h"

#include <algorithm>
#include <set>
#include <string_view>

#include "redact/secrets.h"

namespace rankstacks::redact {
namespace {

// What `text` has where `redacted` has kSecret: found by the words between, which are in both.
void add_replaced(std::string_view text, std::string_view redacted, std::set<std::string>& values) {
  while (true) {
    const std::size_t next = redacted.find(kSecret);
    if (next == std::string_view::npos || !text.starts_with(redacted.substr(0, next))) return;
    text.remove_prefix(next);
    redacted.remove_prefix(next + kSecret.size());
    const std::string_view between = redacted.substr(0, redacted.find(kSecret));
    const std::size_t end = between.empty() ? text.size() : text.find(between);
    if (end == std::string_view::npos) return;
    values.emplace(text.substr(0, end));
    text.remove_prefix(end);
  }
}

}  // namespace

std::vector<std::string> secret_values(const std::map<std::string, std::string>& environment,
                                       const std::vector<std::string>& command) {
  std::set<std::string> values;
  for (const auto& [name, value] : environment) {
    if (names_a_secret(name, value)) values.insert(value);
    else add_replaced(value, without_secrets(value, Text::kWords), values);
  }
  const std::vector<std::string> redacted = without_secrets(command);
  for (std::size_t i = 0; i < std::min(command.size(), redacted.size()); ++i)
    add_replaced(command[i], redacted[i], values);
  std::vector<std::string> sorted(values.begin(), values.end());
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const std::string& a, const std::string& b) { return a.size() > b.size(); });
  return sorted;
}

}  // namespace rankstacks::redact
