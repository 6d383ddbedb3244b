#include "model/rank_set.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/text.h"

namespace rankstacks {
inline namespace model {
namespace {

std::vector<std::string> ranges_of(std::vector<int> numbers) {
  std::sort(numbers.begin(), numbers.end());
  numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
  std::vector<std::string> items;
  for (std::size_t i = 0; i < numbers.size();) {
    std::size_t last = i;
    while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) ++last;
    items.push_back(last == i ? fmt::format("{}", numbers[i]) : fmt::format("{}-{}", numbers[i], numbers[last]));
    i = last + 1;
  }
  return items;
}

}  // namespace

std::string format_numbers(std::vector<int> numbers, std::size_t limit) {
  return joined(ranges_of(std::move(numbers)), ",", limit);
}

std::string format_rank_set(const JobSnapshot& job, const std::vector<std::size_t>& ranks, std::size_t limit) {
  std::vector<int> numbers;
  std::vector<std::string> labels;
  for (const std::size_t r : ranks) {
    const RankSnapshot& rank = job.ranks[r];
    if (rank.rank && rank.kind == RankKind::kRank) numbers.push_back(*rank.rank);
    else labels.push_back(rank_label(rank));
  }
  std::vector<std::string> items = ranges_of(std::move(numbers));
  items.insert(items.end(), labels.begin(), labels.end());
  return joined(items, ",", limit);
}

std::string name_ranks(const JobSnapshot& job, const std::vector<std::size_t>& ranks, std::size_t limit) {
  return fmt::format("rank{} {}", plural(ranks.size()), format_rank_set(job, ranks, limit));
}

}  // namespace model
}  // namespace rankstacks
