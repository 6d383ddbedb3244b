#include "nodes/host_list.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <unordered_set>

#include <fmt/format.h>

#include "base/text.h"

namespace rankstacks::nodes {
namespace {

constexpr std::string_view kBlank = " \t\r\n\v\f";
constexpr std::size_t kMaxName = 255;  // a name in DNS (RFC 1035, 2.3.4)

tl::unexpected<Error> refused(std::string what) {
  return fail({.code = ErrorCode::kUsage, .subject = "host list", .what = std::move(what)});
}

tl::unexpected<Error> too_many() { return refused(fmt::format("more than {} hosts", kMaxHosts)); }

// The characters of names, IPv4 and IPv6 addresses and users. A name that begins with "-" would be taken for an option
// by the engine.
bool is_host(std::string_view name) {
  return !name.empty() && name.size() <= kMaxName && name.front() != '-' &&
         std::all_of(name.begin(), name.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '.' ||
                  c == '_' || c == ':' || c == '@';
         });
}

// "1-64,070-099"
Result<std::vector<std::string>> expand_ranges(std::string_view text) {
  std::vector<std::string> words;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t comma = std::min(text.find(',', at), text.size());
    const std::string_view range = text.substr(at, comma - at);
    at = comma + 1;
    const std::size_t dash = std::min(range.find('-'), range.size());
    const std::string_view first = range.substr(0, dash);
    const std::string_view last = dash < range.size() ? range.substr(dash + 1) : first;
    unsigned long from = 0, to = 0;
    const auto number = [](std::string_view digits, unsigned long& value) {
      const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
      return !digits.empty() && digits.size() <= 9 && error == std::errc() && end == digits.data() + digits.size();
    };
    if (!number(first, from) || !number(last, to) || to < from)
      return refused(fmt::format("\"[{}]\": numbers and ranges are expected, as [1-64,70]", text));
    if (to - from >= kMaxHosts - words.size()) return too_many();
    const std::size_t width = first.size() > 1 && first.front() == '0' ? first.size() : 0;
    for (unsigned long n = from; n <= to; ++n) words.push_back(fmt::format("{:0{}}", n, width));
  }
  return words;
}

// One name with its brackets.
Result<std::vector<std::string>> expand(std::string_view word) {
  std::vector<std::string> names = {""};
  while (!word.empty()) {
    const std::size_t open = std::min(word.find('['), word.size());
    for (std::string& name : names) name += word.substr(0, open);
    if (open == word.size()) break;
    const std::size_t close = word.find(']', open);
    if (close == std::string_view::npos) return refused(fmt::format("\"{}\": a bracket is not closed", word));
    const auto numbers = expand_ranges(word.substr(open + 1, close - open - 1));
    if (!numbers) return fail(numbers.error());
    if (numbers->size() * names.size() > kMaxHosts) return too_many();
    std::vector<std::string> longer;
    longer.reserve(numbers->size() * names.size());
    for (const std::string& name : names)
      for (const std::string& number : *numbers) longer.push_back(name + number);
    names = std::move(longer);
    word.remove_prefix(close + 1);
  }
  return names;
}

// The words between commas and blanks outside of brackets.
std::vector<std::string_view> split(std::string_view text) {
  std::vector<std::string_view> words;
  int depth = 0;
  std::size_t start = 0;
  const auto end_word = [&](std::size_t end) {
    if (end > start) words.push_back(text.substr(start, end - start));
    start = end + 1;
  };
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '[') ++depth;
    if (text[i] == ']' && depth > 0) --depth;
    if (depth == 0 && (text[i] == ',' || contains(kBlank, text[i]))) end_word(i);
  }
  end_word(text.size());
  return words;
}

}  // namespace

Result<std::vector<std::string>> parse_host_list(std::string_view text) {
  std::vector<std::string> hosts;
  std::unordered_set<std::string> seen;
  for (const std::string_view word : split(text)) {
    auto names = expand(word);
    if (!names) return fail(names.error());
    for (std::string& name : *names) {
      if (!is_host(name)) return refused(fmt::format("\"{}\" is no name of a host", name));
      if (!seen.insert(name).second) continue;
      if (hosts.size() == kMaxHosts) return too_many();
      hosts.push_back(std::move(name));
    }
  }
  if (hosts.empty()) return refused("no host is named");
  return hosts;
}

Result<std::vector<std::string>> parse_hostfile(std::string_view text, const std::string& subject) {
  std::string list;
  std::size_t number = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    std::string_view line = text.substr(at, end - at);
    at = end + 1;
    ++number;
    line = line.substr(0, line.find('#'));
    const std::size_t start = line.find_first_not_of(kBlank);
    if (start == std::string_view::npos) continue;
    line.remove_prefix(start);
    std::string_view name = line.substr(0, line.find_first_of(kBlank));
    if (const std::size_t user = name.find('@'); user != std::string_view::npos) name.remove_prefix(user + 1);
    // "node-1:8" is MPICH's count of processes; "fe80::1" is an address.
    const std::size_t colon = name.find(':');
    if (colon != std::string_view::npos && name.find(':', colon + 1) == std::string_view::npos)
      name = name.substr(0, colon);
    auto hosts = parse_host_list(name);
    if (!hosts) {
      hosts.error().subject = fmt::format("{}:{}", subject, number);
      return fail(hosts.error());
    }
    for (const std::string& host : *hosts) {
      if (!list.empty()) list += ',';
      list += host;
    }
  }
  auto hosts = parse_host_list(list);
  if (!hosts) hosts.error().subject = subject;
  return hosts;
}

}  // namespace rankstacks::nodes
