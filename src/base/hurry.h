// Puts the calling thread into the real-time scheduling class. Otherwise, on a busy machine, a paused process would
// stay paused for as long as the tool waits for a processor. Needs CAP_SYS_NICE or an RLIMIT_RTPRIO; without them the
// scheduling class does not change.
#pragma once

#include <sched.h>

namespace rankstacks {
inline namespace base {

// True if this call changed the class: the thread was not real-time before and is now.
inline bool hurry() {
  const sched_param lowest{.sched_priority = sched_get_priority_min(SCHED_FIFO)};
  return sched_getscheduler(0) == SCHED_OTHER && sched_setscheduler(0, SCHED_FIFO, &lowest) == 0;
}

inline void hurry_no_more() {
  const sched_param none{.sched_priority = 0};
  if (sched_getscheduler(0) == SCHED_FIFO) sched_setscheduler(0, SCHED_OTHER, &none);
}

}  // namespace base
}  // namespace rankstacks
