#include "watch/reading.h"

#include <algorithm>
#include <map>
#include <utility>

namespace rankstacks::watch {
namespace {

template <class T>
double increase(T before, T after) {
  return std::max(0.0, static_cast<double>(after) - static_cast<double>(before));
}

}  // namespace

std::vector<Rates> rates_between(const Reading& before, const Reading& after) {
  constexpr double kShortest = 1e-3;
  const double span = std::max(kShortest, (after.at - before.at).count());
  std::map<std::pair<Pid, std::uint64_t>, const Counters*> known;
  for (const ProcessReading& process : before.processes) known[{process.pid, process.start_ticks}] = &process.counters;
  std::vector<Rates> rates(after.ranks);
  const Counters none;
  for (const ProcessReading& process : after.processes) {
    if (process.rank >= rates.size()) continue;
    Rates& of_rank = rates[process.rank];
    if (process.is_rank && process.ended) of_rank.alive = false;
    if (process.ended) continue;
    const auto found = known.find({process.pid, process.start_ticks});
    if (found == known.end() && !process.is_new) continue;
    const Counters& from = found == known.end() ? none : *found->second;
    const Counters& to = process.counters;
    of_rank.cpu += increase(from.cpu_ms, to.cpu_ms) / 1000 / span;
    of_rank.runs += increase(from.runs, to.runs) / span;
    of_rank.waited += increase(from.waited_ms, to.waited_ms) / 1000 / span;
    of_rank.is_ready |= to.is_ready && (from.is_ready || process.is_new);
    of_rank.reads += increase(from.reads, to.reads) / span;
    of_rank.writes += increase(from.writes, to.writes) / span;
    of_rank.bytes += increase(from.bytes, to.bytes) / span;
  }
  return rates;
}

}  // namespace rankstacks::watch
