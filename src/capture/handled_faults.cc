#include "capture/handled_faults.h"

#include <algorithm>

#include "target/handled_fault.h"

namespace rankstacks::capture {

void read_handled_fault(RankStacks& rank) {
  auto& signal = rank.snapshot.signal;
  if (!rank.target || !signal) return;
  const auto threads = rank.target->threads();
  for (std::size_t t = 0; t < std::min(threads.size(), rank.stacks.size()); ++t) {
    if (threads[t].tid != signal->tid) continue;
    const auto& frames = rank.stacks[t].frames;
    // A signal trampoline, and what it returns to, are both at an instruction that is about to run. A handler that was
    // installed before may have been called in turn, by the raise of the newer one.
    for (std::size_t f = 1; f + 1 < frames.size(); ++f)
      if (frames[f].exact_pc && frames[f + 1].exact_pc &&
          target::read_handled_fault(*rank.target, frames[f].sp, frames[f + 1].pc, rank.snapshot.pid, *signal))
        return;
    return;
  }
}

}  // namespace rankstacks::capture
