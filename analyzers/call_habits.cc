#include "analyzers/call_habits.h"

#include <algorithm>
#include <vector>

namespace rankstacks::analyzers {

std::optional<Habit> habit_of(const FlightRecord& record, std::size_t between, std::size_t counted) {
  constexpr std::size_t kFewest = 3;  // the last time included
  std::vector<std::size_t> counts;    // of each time between two calls
  bool begun = false;
  std::size_t count = 0;
  for (const std::uint32_t group : record.recent_calls) {
    if (group == counted) ++count;
    if (group != between) continue;
    if (begun) counts.push_back(count);
    begun = true;
    count = 0;
  }
  if (counts.size() < kFewest) return std::nullopt;
  const std::size_t last = counts.back(), usual = counts.front();
  if (usual == 0 || std::any_of(counts.begin(), counts.end() - 1, [&](std::size_t n) { return n != usual; }))
    return std::nullopt;
  return last < usual ? Habit::kLess : last > usual ? Habit::kMore : Habit::kKept;
}

}  // namespace rankstacks::analyzers
