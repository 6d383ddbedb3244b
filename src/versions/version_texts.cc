#include "versions/version_texts.h"

#include <algorithm>
#include <set>

#include "base/text.h"

namespace rankstacks::versions {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

// Calls f(line) for every line, until it returns false.
template <class F>
void each_line(std::string_view text, F&& f) {
  while (!text.empty()) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (!f(line)) return;
  }
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

// "'2.3.0'" and "\"2.3.0\"" -> "2.3.0"; std::nullopt if it is not a quoted text.
std::optional<std::string_view> unquoted(std::string_view text) {
  if (text.size() < 2 || (text.front() != '\'' && text.front() != '"')) return std::nullopt;
  const std::size_t end = text.find(text.front(), 1);
  if (end == std::string_view::npos) return std::nullopt;
  return text.substr(1, end - 1);
}

// "1.17.0", "4.1.4rc2": three numbers, and perhaps letters and digits. An address has four numbers.
bool has_three_numbers(std::string_view text) {
  constexpr int kNumbers = 3;
  std::size_t at = 0;
  for (int n = 0; n < kNumbers; ++n) {
    const std::size_t start = at;
    while (at < text.size() && is_digit(text[at])) ++at;
    if (at == start || at - start > 6) return false;
    if (n + 1 < kNumbers && (at >= text.size() || text[at++] != '.')) return false;
  }
  return std::all_of(text.begin() + static_cast<std::ptrdiff_t>(at), text.end(),
                     [](char c) { return is_letter(c) || is_digit(c) || c == '-' || c == '+'; });
}

}  // namespace

std::string version_at(std::string_view text) {
  if (text.empty() || !is_digit(text.front())) return "";
  std::size_t length = 0;
  while (length < text.size() && length < kLongestVersion &&
         (is_digit(text[length]) || is_letter(text[length]) || contains("._+-~", text[length])))
    ++length;
  while (length > 0 && !is_digit(text[length - 1]) && !is_letter(text[length - 1])) --length;
  return std::string(text.substr(0, length));
}

std::string version_of_file_name(std::string_view base_name, bool one_number) {
  const std::size_t ending = base_name.find(".so.");
  if (ending == std::string_view::npos) return "";
  const std::string_view rest = base_name.substr(ending + 4);
  const bool plain = !rest.empty() && rest.size() <= kLongestVersion && is_digit(rest.front()) &&
                     is_digit(rest.back()) && !contains(rest, "..") &&
                     std::all_of(rest.begin(), rest.end(), [](char c) { return is_digit(c) || c == '.'; });
  if (!plain || (!one_number && !contains(rest, '.'))) return "";
  return std::string(rest);
}

std::string site_directory(std::string_view path) {
  for (const std::string_view name : {"/site-packages/", "/dist-packages/"})
    if (const std::size_t at = path.find(name); at != std::string_view::npos)
      return std::string(path.substr(0, at + name.size() - 1));
  return "";
}

std::string package_of_metadata_name(std::string_view name) {
  for (const std::string_view ending : {".dist-info", ".egg-info"}) {
    if (!name.ends_with(ending)) continue;
    name.remove_suffix(ending.size());
    std::string package;
    for (const char c : name.substr(0, name.find('-')))
      package += c == '.' ? '_' : c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    return package;
  }
  return "";
}

bool is_package(std::string_view package, std::string_view wanted) {
  if (wanted.empty() || !package.starts_with(wanted)) return false;
  std::string_view rest = package.substr(wanted.size());
  if (rest.empty()) return true;
  if (rest.starts_with("_cu") && !wanted.ends_with("_cu")) rest.remove_prefix(3);
  else if (!wanted.ends_with("_cu")) return false;
  return !rest.empty() && std::all_of(rest.begin(), rest.end(), is_digit);
}

std::string version_of_metadata(std::string_view text) {
  std::string version;
  each_line(text, [&](std::string_view line) {
    constexpr std::string_view kHeader = "Version:";
    if (line.empty()) return false;
    if (!line.starts_with(kHeader)) return true;
    version = version_at(trimmed(line.substr(kHeader.size())));
    return false;
  });
  return version;
}

std::string assigned_text(std::string_view text, std::string_view name) {
  std::string value;
  each_line(text, [&](std::string_view line) {
    if (!line.starts_with(name)) return true;
    std::string_view rest = line.substr(name.size());
    const std::size_t equals = rest.find('=');
    if (equals == std::string_view::npos) return true;
    const std::string_view between = trimmed(rest.substr(0, equals));
    if (!between.empty() && !between.starts_with(':')) return true;  // another name that begins with this one
    const auto quoted = unquoted(trimmed(rest.substr(equals + 1)));
    if (quoted) value = version_at(*quoted);
    return false;
  });
  return value;
}

std::string distribution_of(std::string_view os_release) {
  constexpr std::size_t kLongest = 200;
  std::string pretty, name, version;
  each_line(os_release, [&](std::string_view line) {
    const std::size_t equals = line.find('=');
    if (equals == std::string_view::npos) return true;
    std::string_view value = trimmed(line.substr(equals + 1));
    if (const auto quoted = unquoted(value)) value = *quoted;
    value = value.substr(0, kLongest);
    const std::string_view key = line.substr(0, equals);
    if (key == "PRETTY_NAME") pretty = value;
    else if (key == "NAME") name = value;
    else if (key == "VERSION_ID") version = value;
    return true;
  });
  if (!pretty.empty()) return pretty;
  return name.empty() || version.empty() ? name : (name + " " + version).substr(0, kLongest);
}

std::string version_after(std::string_view data, std::string_view marker) {
  for (std::size_t at = data.find(marker); at != std::string_view::npos; at = data.find(marker, at + 1))
    if (std::string version = version_at(data.substr(at + marker.size(), kLongestVersion + 1)); !version.empty())
      return version;
  return "";
}

std::string glibc_version(std::string_view data, std::string_view marker) {
  constexpr std::size_t kLongestBanner = 300;
  const std::size_t at = data.find(marker);
  if (at == std::string_view::npos) return "";
  const std::string_view banner = data.substr(at + marker.size(), kLongestBanner);
  const std::size_t close = banner.find(')');
  if (close == std::string_view::npos) return "";
  const std::string release = version_after(banner.substr(close), "release version ");
  const std::string_view package = banner.substr(0, close);
  const std::string of_package = version_at(package.substr(package.rfind(' ') + 1));
  return !release.empty() && of_package.starts_with(release) ? of_package : release;
}

std::string version_alone(std::string_view data, std::string_view before) {
  std::set<std::string> found;
  // Only a place between two zero bytes whose first byte fits is looked at more closely.
  const char first = before.empty() ? '\0' : before.front();
  for (std::size_t at = 0; at < data.size();) {
    const std::size_t end = std::min(data.find('\0', at), data.size());
    const std::string_view text = data.substr(at, end - at);
    at = end + 1;
    if (text.size() > kLongestVersion || text.size() < before.size() + 5 || (first != '\0' && text.front() != first))
      continue;
    if (text.starts_with(before) && has_three_numbers(text.substr(before.size())))
      found.emplace(text.substr(before.size()));
    if (found.size() > 1) return "";
  }
  return found.empty() ? "" : *found.begin();
}

std::string driver_version(std::string_view text) {
  const std::string_view line = text.substr(0, text.find('\n'));
  if (!line.starts_with("NVRM version:")) return "";
  // The version is the first word of digits and dots; "x86_64" and the date are none.
  for (std::size_t at = 0; at < line.size();) {
    const std::size_t end = std::min(line.find(' ', at), line.size());
    const std::string_view word = line.substr(at, end - at);
    at = end + 1;
    if (contains(word, '.') && word.size() <= kLongestVersion &&
        std::all_of(word.begin(), word.end(), [](char c) { return is_digit(c) || c == '.'; }))
      return std::string(word);
  }
  return "";
}

}  // namespace rankstacks::versions
