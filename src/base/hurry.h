// The calling thread in the real-time class: while a process stands still, on a busy machine it would do so for as long as the tool waits for a processor.
// Needs CAP_SYS_NICE or an RLIMIT_RTPRIO; without, the class stays what it is.
#pragma once

#include <sched.h>

namespace rankstacks {

// Whether it is of the class from now on, and was not before.
inline bool hurry() {
  const sched_param lowest{.sched_priority = sched_get_priority_min(SCHED_FIFO)};
  return sched_getscheduler(0) == SCHED_OTHER && sched_setscheduler(0, SCHED_FIFO, &lowest) == 0;
}

inline void hurry_no_more() {
  const sched_param none{.sched_priority = 0};
  if (sched_getscheduler(0) == SCHED_FIFO) sched_setscheduler(0, SCHED_OTHER, &none);
}

}  // namespace rankstacks
