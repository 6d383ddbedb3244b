// The full looks at a job that a light look has found standing: the first one that is done decides whether it hangs,
// and the later ones show what changes. It knows no process and no clock, and uses only what it is given of each look.
//
//     undecided ── no hang ──> over, no report
//      │  ^  └── not done in time, or not written: the next look decides
//      └──┴─ written ──> hangs ── whatever the rest show ──> over after three looks
#pragma once

#include <cstddef>
#include <optional>

namespace rankstacks::watch {

// A look that was done.
struct FullLook {
  bool hangs = false;     // what the decision makes of it; of one that decides
  std::size_t ranks = 0;  // that were read
  bool written = false;   // its reports
};

enum class Found {
  kNothing,  // by this look: it decided nothing, or the job was known to hang
  kNoHang,
  kHangs,
};

class FullLooks {
 public:
  static constexpr int kMax = 3;

  // Whether there is to be another look, and its number from 1 on.
  bool goes_on() const { return !over_ && done_ < kMax; }
  int number() const { return done_ + 1; }
  // Whether that look decides if the job hangs: one that does not needs no report.
  bool next_decides() const { return !newest_; }

  // What follows from the look with that number; std::nullopt: it was not done in time. Ends the looks if the job does
  // not hang, or if no rank is left.
  Found looked(const std::optional<FullLook>& look);

  // The number of the newest look whose reports were written.
  std::optional<int> newest() const { return newest_; }

 private:
  int done_ = 0;
  bool over_ = false;
  std::optional<int> newest_;
};

}  // namespace rankstacks::watch
