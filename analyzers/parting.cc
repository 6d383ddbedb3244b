#include "analyzers/parting.h"

#include <algorithm>

#include <fmt/format.h>


namespace rankstacks {

Parting parting_of(const Standing& a, const Standing& b) {
  Parting parting;
  for (std::size_t i = 0; i < std::min(a.path.size(), b.path.size()); ++i) {
    const CodePlace &x = a.path[i], &y = b.path[i];
    if (x.function != y.function || x.file != y.file) break;
    for (const auto& [name, count] : x.numbers) {
      if (!parting.counter.empty()) break;
      const auto other = std::find_if(y.numbers.begin(), y.numbers.end(), [&, n = name](const auto& number) { return number.first == n; });
      if (other == y.numbers.end() || other->second == count) continue;
      parting.counter = name;
      parting.count_a = count;
      parting.count_b = other->second;
      const auto may_be_done = [](const CodePlace& one, const CodePlace& two) { return one.line > two.line && (one.loops == 0 || one.loops < two.loops); };
      parting.a_may_be_done = may_be_done(x, y);
      parting.b_may_be_done = may_be_done(y, x);
      parting.a_may_count_another = x.loops > y.loops;
    }
    if (x.line != y.line) break;
  }
  return parting;
}

std::string describe_counter(const Standing& standing) {
  for (auto place = standing.path.rbegin(); place != standing.path.rend(); ++place)
    if (!place->numbers.empty()) return fmt::format("{} {}", place->numbers.front().first, place->numbers.front().second);
  return "";
}

}  // namespace rankstacks
