#include "watch/rhythm.h"

#include <algorithm>

namespace rankstacks::watch {
namespace {

// A rate below this part of the usual one is down.
constexpr double kDown = 0.1;
// What threads in the background do in a rank that makes no progress: PyTorch's watchdog of NCCL wakes ten times a
// second. In processors, and times a second.
constexpr std::array<double, 4> kBackground = {0.02, 15, 0.5, 0.5};
// Below these a median is not compared: a period without it says nothing.
constexpr std::array<double, 4> kComparable = {0.05, 30, 1, 0.2};
// A rank that moves this much a second is at work, whatever is usual: it loads data, or saves a checkpoint.
constexpr double kMuchData = 1e6;
// Less processor time than this is no loop that polls, not even on a machine whose processors are busy.
constexpr double kSpinning = 0.1;
// A rank whose threads were ready for half of the time, and were given no processor, does not wait for other ranks:
// its machine has too few. The kernel counts such a time when it is over; until then it shows that a thread is ready.
constexpr double kStarved = 0.5;

}  // namespace

std::array<double, Rhythm::kFeatures> Rhythm::features_of(const Rates& rates) {
  return {rates.cpu, rates.runs, rates.reads, rates.writes};
}

std::optional<double> Rhythm::usual(Feature feature) const { return usual_[feature]; }

bool Rhythm::is_down(Feature feature, double rate) const {
  return rate < std::max(kDown * usual(feature).value_or(0), kBackground[feature]);
}

// Switches tell of work where processor time cannot. Threads with a timer are given a processor as often in a hang as
// before it: each event loop of Gloo wakes a hundred times a second, and takes nearly no processor time.
bool Rhythm::is_quiet(const Rates& rates) const {
  if (is_down(kRuns, rates.runs) || usual(kCpu)) return true;
  return !is_known() && !may_move(rates);
}

bool Rhythm::may_move(const Rates& rates) const {
  return !is_known() && !(is_down(kReads, rates.reads) && is_down(kWrites, rates.writes));
}

Activity Rhythm::activity(const Rates& rates) const {
  const auto features = features_of(rates);
  if (rates.bytes >= kMuchData) return Activity::kMoves;
  bool compared = false;
  for (const Feature feature : {kReads, kWrites}) {
    if (!usual(feature)) continue;
    if (!is_down(feature, features[feature])) return Activity::kMoves;
    compared = true;
  }
  if (is_down(kCpu, rates.cpu) && is_quiet(rates))
    return rates.waited >= kStarved || rates.is_ready ? Activity::kUnclear : Activity::kStands;
  if (compared && rates.cpu >= kSpinning) return Activity::kSpins;
  return Activity::kUnclear;
}

void Rhythm::learn(const Rates& rates) {
  const auto features = features_of(rates);
  for (std::size_t f = 0; f < kFeatures; ++f) {
    std::vector<double>& periods = periods_[f];
    if (periods.size() == kMax) periods[learned_ % kMax] = features[f];
    else periods.push_back(features[f]);
    std::vector<double> sorted = periods;
    const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
    std::nth_element(sorted.begin(), middle, sorted.end());
    usual_[f] = learned_ + 1 >= kLeast && *middle >= kComparable[f] ? std::optional(*middle) : std::nullopt;
  }
  ++learned_;
}

Stillness stillness_of(const std::vector<Activity>& ranks) {
  std::size_t still = 0;
  for (const Activity activity : ranks) {
    if (activity == Activity::kMoves) return Stillness::kMoving;
    still += activity == Activity::kStands || activity == Activity::kSpins;
  }
  if (still == ranks.size()) return Stillness::kAll;
  return 2 * still >= ranks.size() ? Stillness::kPartly : Stillness::kUnclear;
}

}  // namespace rankstacks::watch
