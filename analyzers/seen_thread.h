// One sample of one thread, reduced to what is compared with another sample of it: to tell whether it has moved between
// two samples of a capture (motion.h), or between two reports (diff/).
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "analyzers/activity.h"
#include "analyzers/normalize.h"
#include "model/snapshot.h"

namespace rankstacks::analyzers {

struct SeenThread {
  bool waits = false;        // for other ranks
  bool reads_queue = false;  // it has the lock of a multiprocessing queue, and waits for an item
  std::vector<NormId> stack;
  // The part of the stack that is a place in the program: within a wait for other ranks, or for the GPU, the frames
  // outside of it.
  std::vector<NormId> place;
  std::vector<std::string> functions;         // there
  std::vector<std::string> python_functions;  // of all Python frames
  // Variables of the frames of `place` (FrameVariables::numbers), in the order of the frames.
  std::vector<std::pair<std::string, std::int64_t>> counters;
  std::map<std::string, std::int64_t> positions;  // known::is_position_name, by function and name
};

class ThreadComparison {
 public:
  explicit ThreadComparison(const FrameTable& frames) : frames_(frames), normalized_(frames) {}

  SeenThread see(const ThreadSnapshot& thread);
  const NormalizedFrames& normalized() const { return normalized_; }

 private:
  struct Wait {
    std::size_t frames = 0;  // number of frames, from the innermost one, that belong to it: up to the outermost one
                             // that a rule names; 0: it does not wait
    bool for_ranks = false;
  };
  Wait wait_of(const ThreadSnapshot& thread);
  std::size_t queue_wait_of(const ThreadSnapshot& thread) const;

  const FrameTable& frames_;
  NormalizedFrames normalized_;
  RuleCache rules_;
};

// Whether a counter has changed at a pace that work has: a loop that counts faster does nothing else. Equal frames have
// the same counters; if the frames differ, the place does.
bool a_counter_changed(const SeenThread& before, const SeenThread& after, double seconds);

// The same of counters that are more than a flag: what was 0 and is 1 need not have counted, since a loop that waits
// may set and clear a flag (`number ^= 1`).
bool counted_on(const SeenThread& before, const SeenThread& after, double seconds);

// Whether one of the positions has gone one way from sample to sample. Names of positions say less than those of
// counters: the numbers may be those of a short loop that begins again and again, so that a few samples show nothing.
bool positions_went_on(const std::vector<SeenThread>& samples, double seconds);

}  // namespace rankstacks::analyzers
