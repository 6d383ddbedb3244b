#include "analyzers/divergence.h"

#include <algorithm>

#include <fmt/format.h>

#include "analyzers/shared_rounds.h"

namespace rankstacks::analyzers {

Divergence divergence_of(const RankState& a, const RankState& b) {
  Divergence divergence;
  for (std::size_t i = 0; i < std::min(a.path.size(), b.path.size()); ++i) {
    const CodePlace &x = a.path[i], &y = b.path[i];
    if (x.function != y.function || x.file != y.file) {
      divergence.a_is_further_down = i > 0;
      break;
    }
    for (const auto& [name, count] : x.numbers) {
      if (!divergence.counter.empty()) break;
      const auto other = std::find_if(y.numbers.begin(), y.numbers.end(),
                                      [&, n = name](const auto& number) { return number.first == n; });
      if (other == y.numbers.end() || other->second == count) continue;
      divergence.counter = name;
      divergence.count_a = count;
      divergence.count_b = other->second;
      const auto may_be_done = [](const CodePlace& one, const CodePlace& two) {
        return one.line > two.line && (one.loops == 0 || one.loops < two.loops);
      };
      divergence.a_may_be_done = may_be_done(x, y);
      divergence.b_may_be_done = may_be_done(y, x);
      divergence.a_may_count_another = x.loops > y.loops;
    }
    if (x.line != y.line) {
      divergence.a_is_further_down = x.line > y.line;
      break;
    }
    if (i + 1 == std::min(a.path.size(), b.path.size())) divergence.a_is_further_down = a.path.size() != b.path.size();
  }
  return divergence;
}

bool has_passed(const JobSnapshot& job, const RankState& a, const RankState& b) {
  for (std::size_t i = 0; i < std::min(a.path.size(), b.path.size()); ++i) {
    const CodePlace &x = a.path[i], &y = b.path[i];
    const bool in_loop = x.loops > 0 || y.loops > 0, counted = !x.numbers.empty() && x.numbers == y.numbers;
    if (!x.is_python || !y.is_python || x.function != y.function || x.file != y.file ||
        (in_loop && (x.loops != y.loops || (!counted && !in_one_round(job, a, b)))))
      return false;
    if (x.line != y.line) return x.line > y.line;
  }
  return false;
}

std::string describe_counter(const RankState& state) {
  for (auto place = state.path.rbegin(); place != state.path.rend(); ++place)
    if (!place->numbers.empty())
      return fmt::format("{} {}", place->numbers.front().first, place->numbers.front().second);
  return "";
}

}  // namespace rankstacks::analyzers
