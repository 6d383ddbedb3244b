#include "model/host_set.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <tuple>

#include <fmt/format.h>

#include "base/text.h"

namespace rankstacks {
inline namespace model {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Names that are equal but for their last number. `width`: of numbers with leading zeros; 0: none have.
struct Family {
  std::string before, after;
  std::size_t width = 0;
  auto operator<=>(const Family&) const = default;
};

struct Folded {
  std::map<Family, std::vector<unsigned long>> numbered;
  std::vector<std::string> plain;
};

Folded fold(const std::vector<std::string>& hosts) {
  Folded folded;
  for (const std::string& host : hosts) {
    const auto last = std::find_if(host.rbegin(), host.rend(), is_digit).base();
    auto first = last;
    while (first != host.begin() && is_digit(*(first - 1))) --first;
    const std::string digits(first, last);
    unsigned long number = 0;
    // Numbers of addresses are no numbers of nodes.
    const bool is_address = host.find_first_not_of("0123456789.") == std::string::npos || contains(host, ':');
    if (digits.empty() || digits.size() > 9 || is_address ||
        std::from_chars(digits.data(), digits.data() + digits.size(), number).ec != std::errc()) {
      folded.plain.push_back(host);
      continue;
    }
    const std::size_t width = digits.size() > 1 && digits.front() == '0' ? digits.size() : 0;
    folded.numbered[{std::string(host.begin(), first), std::string(last, host.end()), width}].push_back(number);
  }
  return folded;
}

// "01" and "10" are of one range, which is written with the width of "01".
void join_widths(Folded& folded) {
  for (auto it = folded.numbered.begin(); it != folded.numbered.end();) {
    const Family& family = it->first;  // clang 14 captures no structured binding
    const std::vector<unsigned long>& numbers = it->second;
    const auto wider = family.width != 0 ? folded.numbered.end()
                                         : std::find_if(folded.numbered.begin(), folded.numbered.end(), [&](auto& o) {
                                             return o.first.width != 0 && o.first.before == family.before &&
                                                    o.first.after == family.after;
                                           });
    const bool fits = wider != folded.numbered.end() &&
                      std::all_of(numbers.begin(), numbers.end(),
                                  [&](unsigned long n) { return std::to_string(n).size() >= wider->first.width; });
    if (!fits) {
      ++it;
      continue;
    }
    wider->second.insert(wider->second.end(), numbers.begin(), numbers.end());
    it = folded.numbered.erase(it);
  }
}

}  // namespace

std::string format_host_set(std::vector<std::string> hosts, std::size_t limit) {
  Folded folded = fold(hosts);
  join_widths(folded);
  std::string text;
  std::size_t items = 0, left_out = 0;
  const auto room = [&](std::size_t names) {
    if (items++ < limit) return true;
    left_out += names;
    return false;
  };
  std::sort(folded.plain.begin(), folded.plain.end());
  for (const std::string& name : folded.plain)
    if (room(1)) text += (text.empty() ? "" : ",") + name;
  for (auto& [family, numbers] : folded.numbered) {
    std::sort(numbers.begin(), numbers.end());
    numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
    std::string ranges;
    std::size_t shown = 0;
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      const std::size_t first = i;
      while (i + 1 < numbers.size() && numbers[i + 1] == numbers[i] + 1) ++i;
      if (!room(i - first + 1)) continue;
      shown += i - first + 1;
      ranges += fmt::format("{}{:0{}}", ranges.empty() ? "" : ",", numbers[first], family.width);
      if (i > first) ranges += fmt::format("-{:0{}}", numbers[i], family.width);
    }
    if (shown == 0) continue;
    if (shown > 1) ranges = "[" + ranges + "]";
    text += (text.empty() ? "" : ",") + family.before + ranges + family.after;
  }
  return left_out == 0 ? text : fmt::format("{} and {} more", text, left_out);
}

}  // namespace model
}  // namespace rankstacks
