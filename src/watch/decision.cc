#include "watch/decision.h"

#include <algorithm>

namespace rankstacks::watch {
namespace {

constexpr std::size_t index_of(Stillness stillness) { return static_cast<std::size_t>(stillness); }

// How long a job stands before anything is known of its rhythm: imports, the start of NCCL. What is learned in periods
// in which nothing moved may be that of a hang.
constexpr Seconds kBeforeRhythm{60};
constexpr double kPeriodsBeforeRhythm = 12;
// The parts of that time after which it is looked at already, so that what takes several looks is decided by its end;
// two in a row that find it hung are enough, and one if the next would be done too late: on a machine so busy that a
// look takes long.
constexpr std::array kEarlyLooks{1 / 6.0, 5 / 12.0, 2 / 3.0};
constexpr double kLastEarlyLook = 3 / 4.0;
// A pause that was seen once may be this much longer the next time.
constexpr double kLongerPause = 1.5;
// Where one rank works and the others wait, or nothing can be compared, there is this part of the timeout for it: a
// long checkpoint is no hang.
constexpr double kPartOfTimeout = 0.25;
// No look is put off for longer than this part of the timeout; one that costs too much, of a job that was found healthy
// twice in a row, no longer than the other, if there is that time after it.
constexpr double kMaxPartOfTimeout = 0.5;
constexpr double kMaxPartForDearLook = 0.75;
constexpr Seconds kAfterDearLook{150};
constexpr int kMaxDoublings = 5;
// How many looks are followed by one soon.
constexpr int kMaxRepeated = 2;
// What looks that show no hang may cost of a processor, for each rank: so much at once, and this part of the time.
constexpr Seconds kCostAtOnce{1};
constexpr double kPartForLooks = 0.0002;
// How much of that at once early looks may cost, after two that found the job healthy.
constexpr double kPartForEarlyLooks = 0.5;

}  // namespace

Decision::Decision(const DecisionSettings& settings) : settings_(settings) {}

Seconds Decision::stood_for() const {
  if (hung_since_) return before_->at - *hung_since_;
  return before_ && stillness_ != Stillness::kMoving ? before_->at - since_[index_of(stillness_)] : Seconds(0);
}

Seconds Decision::time_until_look(Stillness stillness) const {
  Seconds least = std::max(2 * settings_.period, kLongerPause * longest_pause_ + settings_.period);
  if (is_start_) least = std::max({least, kBeforeRhythm, kPeriodsBeforeRhythm * settings_.period});
  else if (stillness != Stillness::kAll && !repeats_) least = std::max(least, kPartOfTimeout * settings_.timeout);
  if (!repeats_) least *= static_cast<double>(1 << std::min(healthy_looks_, kMaxDoublings));
  return std::min(least, std::max(kMaxPartOfTimeout * settings_.timeout, 2 * settings_.period));
}

Seconds Decision::longest_without_look(bool was_healthy) const {
  const Seconds usual = kMaxPartOfTimeout * settings_.timeout;
  if (!was_healthy) return usual;
  return std::max(usual, std::min(kMaxPartForDearLook * settings_.timeout, settings_.timeout - kAfterDearLook));
}

// A look at many threads that run takes a second of a processor. The looks that are repeated soon are few; but of a job
// that was found healthy twice in a row they show nothing new.
bool Decision::can_afford_look(Seconds now) const {
  const bool was_healthy = healthy_in_a_row_ >= 2;
  if (repeats_ && !was_healthy) return true;
  const auto ranks = static_cast<double>(ranks_.size());
  if (is_early() && was_healthy) return cost_of_looks_ <= kPartForEarlyLooks * ranks * kCostAtOnce;
  return cost_of_looks_ <= ranks * (kCostAtOnce + kPartForLooks * (now - begun_)) ||
         now - last_look_.value_or(begun_) >= longest_without_look(was_healthy);
}

Seconds Decision::margin() const {
  constexpr Seconds kForLook{15};
  constexpr double kPeriods = 2, kPart = 0.05, kMaxPart = 0.25;
  return std::min(std::max({kPeriods * settings_.period, kForLook, kPart * settings_.timeout}),
                  kMaxPart * settings_.timeout);
}

Action Decision::ended(std::size_t rank) {
  if (rank >= ended_.size() || ended_[rank]) return Action::kNone;
  ended_[rank] = true;
  return std::all_of(ended_.begin(), ended_.end(), [](bool ended) { return ended; }) ? Action::kAllEnded
                                                                                     : Action::kRankEnded;
}

// A rank that has ended does not come back under its pid; the rhythm of the others goes on.
Action Decision::on_ended(const std::vector<Rates>& rates) {
  bool one_more = false;
  for (std::size_t r = 0; r < rates.size(); ++r)
    if (!rates[r].alive && !ended_[r]) one_more = ended_[r] = true;
  if (std::all_of(ended_.begin(), ended_.end(), [](bool ended) { return ended; })) return Action::kAllEnded;
  return one_more ? Action::kRankEnded : Action::kNone;
}

void Decision::learn(const std::vector<Rates>& rates) {
  for (std::size_t r = 0; r < rates.size(); ++r)
    if (!ended_[r]) ranks_[r].learn(rates[r]);
}

// The job goes on by itself: what it did until now was a pause.
void Decision::go_on() {
  if (!before_) return;
  const Seconds stood = before_->at - since_[index_of(stillness_)];
  longest_pause_ = std::min(std::max(longest_pause_, stood), kPartOfTimeout * settings_.timeout);
  hung_since_.reset();
  announced_timeout_ = false;
  healthy_looks_ = 0;
  healthy_in_a_row_ = 0;
  repeated_ = 0;
  repeats_ = false;
  found_hung_.reset();
  places_.reset();
}

bool Decision::is_early() const { return is_start_ && stood_for() < time_until_look(stillness_); }

bool Decision::is_time_for_look(Seconds stood) const {
  const Seconds until = time_until_look(stillness_);
  if (is_early())
    return !may_move_ && early_looks_ < kEarlyLooks.size() && stood >= kEarlyLooks.at(early_looks_) * until &&
           !(found_hung_ && stood > kLastEarlyLook * until);
  return std::min(stood, looked_at_ ? before_->at - *looked_at_ : stood) >= until;
}

Action Decision::next(const Reading& reading) {
  ranks_.resize(std::max(ranks_.size(), reading.ranks));
  ended_.resize(ranks_.size());
  const bool is_first = !before_;
  const std::vector<Rates> rates = is_first ? std::vector<Rates>(reading.ranks) : rates_between(*before_, reading);
  std::vector<Activity> activities;
  may_move_ = false;
  if (!is_first)
    for (std::size_t r = 0; r < rates.size(); ++r)
      if (rates[r].alive) {
        activities.push_back(ranks_[r].activity(rates[r]));
        may_move_ |= ranks_[r].may_move(rates[r]);
      }
  const Action ended = is_first ? Action::kNone : on_ended(rates);
  const Stillness stillness = activities.empty() ? Stillness::kMoving : stillness_of(activities);
  if (stillness < Stillness::kPartly && stillness_ >= Stillness::kPartly) go_on();
  if (stillness == Stillness::kMoving || may_move_) early_looks_ = 0;
  if (stillness == Stillness::kMoving) healthy_in_a_row_ = 0;
  if (found_hung_ && stillness < *found_hung_)
    found_hung_ = stillness == Stillness::kPartly ? std::optional(stillness) : std::nullopt;
  if (!is_first && stillness < Stillness::kPartly) learn(rates);
  // A stillness that this period does not reach begins again with it.
  const Seconds now = reading.at;
  if (is_first) {
    since_.fill(now);
    begun_ = now;
  }
  for (std::size_t s = index_of(stillness) + 1; s < kStillnessLevels; ++s) since_[s] = now;
  if (stillness == Stillness::kMoving) since_.fill(now);
  if (stillness == Stillness::kMoving && !activities.empty() &&
      std::all_of(ranks_.begin(), ranks_.end(), [](const Rhythm& rank) { return rank.is_known(); })) {
    is_start_ = false;
    has_rhythm_ = true;
  }
  stillness_ = stillness;
  before_ = reading;
  if (ended != Action::kNone) return ended;
  if (stillness == Stillness::kMoving) return Action::kNone;
  const Seconds stood = stood_for();
  if (hung_since_) {
    if (announced_timeout_ || now - *hung_since_ < settings_.timeout - margin()) return Action::kNone;
    announced_timeout_ = true;
    return Action::kBeforeTimeout;
  }
  if (found_hung_ && now - since_[index_of(*found_hung_)] >= time_until_look(*found_hung_)) {
    hung_since_ = since_[index_of(*found_hung_)];
    found_hung_.reset();
    is_start_ = false;
    return Action::kFullLooks;
  }
  return is_time_for_look(stood) && can_afford_look(now) ? Action::kLightLook : Action::kNone;
}

Action Decision::looked(Seen seen, std::optional<std::size_t> places, Seconds cost) {
  if (!before_) return Action::kNone;
  const bool is_undecided = seen == Seen::kUndecided;
  const bool is_where_it_was = is_undecided && places_ && places == places_;
  const bool hangs = seen == Seen::kStands || is_where_it_was || (is_undecided && stillness_ == Stillness::kAll);
  places_ = is_undecided ? places : std::nullopt;
  const Seconds hangs_since = hung_since_.value_or(since_[index_of(stillness_)]);  // a full look confirms a light one
  const bool found_before = found_hung_.has_value();
  found_hung_.reset();
  hung_since_.reset();
  last_look_ = before_->at;
  healthy_in_a_row_ = seen == Seen::kHealthy ? healthy_in_a_row_ + 1 : 0;
  if (is_early()) {
    early_looks_ = hangs && found_before ? kEarlyLooks.size() : early_looks_ + 1;
    if (hangs) found_hung_ = stillness_;
    cost_of_looks_ += cost;
    return Action::kNone;
  }
  is_start_ = false;
  repeats_ = (is_undecided || !has_rhythm_) && repeated_ < kMaxRepeated;
  repeated_ += repeats_;
  if (hangs) {
    hung_since_ = hangs_since;
    return Action::kFullLooks;
  }
  cost_of_looks_ += cost;
  if (!repeats_) ++healthy_looks_;
  looked_at_ = before_->at;
  return Action::kNone;
}

}  // namespace rankstacks::watch
