// Decides, from one reading of the counters after the other, when a job is looked at. It knows no process and no clock,
// and uses only what it is given.
//
//     watching ── stands for longer than its rhythm ──> light look ── healthy ──> watching, looks less often
//        ^                                                  └── it stands ──> full looks, report ──> hung
//        └──────────────── it moves again ──────────────────────────────────────────────────────────┘  └─> one look
//                                                                                                just before the timeout
//
// Where no rhythm is known yet, the light looks come before the time at which it is called one that hangs: what the
// last of them has shown counts then.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <vector>

#include "watch/reading.h"
#include "watch/rhythm.h"

namespace rankstacks::watch {

enum class Action {
  kNone,
  kLightLook,      // two samples: does it stand?
  kFullLooks,      // it does: three looks, and the reports. Follows from a light look, at once or some readings later
  kBeforeTimeout,  // it still does, and its own watchdog is about to end it
  kRankEnded,      // a rank has ended while others live
  kAllEnded,
};

// What a light look has shown.
enum class Seen {
  kHealthy,  // or somebody is at work, as in a long checkpoint
  kStands,   // a culprit, or all ranks wait alike
  kUndecided,
};

struct DecisionSettings {
  Seconds period{5};
  Seconds timeout{600};  // of the job's own watchdog
};

class Decision {
 public:
  explicit Decision(const DecisionSettings& settings);

  // What follows from this reading.
  Action next(const Reading& reading);
  // A rank has ended, which the kernel reports between two readings.
  Action ended(std::size_t rank);
  // What follows from the light look that was asked for, and from the first full look: kFullLooks, the job hangs, or
  // kNone. `places`: what is equal for two looks between which no rank has got further; std::nullopt: that is not known
  // of this one. The first undecided looks, and of a job whose rhythm is not known all first ones, are repeated soon,
  // and a job whose ranks are all where they were in an undecided look before stands. `cost`: the processor time that
  // the look took; looks that cost much and show no hang are rarer.
  Action looked(Seen seen, std::optional<std::size_t> places = std::nullopt, Seconds cost = Seconds(0));

  // Something stands: the caller has to know all children of the ranks, whose work is theirs.
  bool is_suspicious() const { return stillness_ >= Stillness::kPartly; }
  bool is_hung() const { return hung_since_.has_value(); }
  // For how long it has stood, at the last reading; if it is hung, for how long it has been.
  Seconds stood_for() const;
  // How long it may stand as it does now until it is looked at.
  Seconds time_until_look(Stillness stillness) const;

 private:
  static constexpr std::size_t kStillnessLevels = 4;

  Action on_ended(const std::vector<Rates>& rates);
  void learn(const std::vector<Rates>& rates);
  void go_on();
  // The job has not yet stood for as long as any may before its rhythm is known.
  bool is_early() const;
  bool is_time_for_look(Seconds stood) const;
  bool can_afford_look(Seconds now) const;
  // However dear it is. `was_healthy`: twice in a row, without a move in between.
  Seconds longest_without_look(bool was_healthy) const;
  Seconds margin() const;

  const DecisionSettings settings_;
  std::optional<Reading> before_;
  Seconds begun_{0};  // the first reading
  Seconds cost_of_looks_{0};
  std::vector<Rhythm> ranks_;
  std::vector<bool> ended_;
  Stillness stillness_ = Stillness::kMoving;
  // Since when each period was at least that still; of a stillness that it is not in, the time of the last reading.
  std::array<Seconds, kStillnessLevels> since_{};
  bool is_start_ = true;     // it has not moved as it usually does, nor been looked at but for early looks
  bool has_rhythm_ = false;  // it has moved as it usually does
  // The longest time that the job has stood and then gone on by itself, or was found healthy.
  Seconds longest_pause_{0};
  int healthy_looks_ = 0;              // in a row, without a move in between; neither early nor repeated ones
  int healthy_in_a_row_ = 0;           // looks of any kind
  int repeated_ = 0;                   // looks that were followed by one soon, the same
  bool repeats_ = false;               // the next look comes soon
  std::optional<std::size_t> places_;  // of the last look, if that was undecided
  bool may_move_ = false;              // by the last reading, some rank whose rhythm is not known
  std::size_t early_looks_ = 0;        // since it last moved, or may have
  // How still it was at the last look, if that was an early one and found that it hangs.
  std::optional<Stillness> found_hung_;
  std::optional<Seconds> last_look_;   // of any kind
  std::optional<Seconds> looked_at_;   // the last light look that was not early and did not end in a report
  std::optional<Seconds> hung_since_;  // while it is hung: since when it stands
  bool announced_timeout_ = false;
};

}  // namespace rankstacks::watch
