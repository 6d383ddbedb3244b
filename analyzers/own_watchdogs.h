// Watchdogs that a program has of its own: a thread that looks whether its rank gets on, and aborts the process if it
// does not. As those of NCCL (watchdog_reporters.h) they report what another rank did, or did not do.
#pragma once

#include <vector>

#include "analyzers/analysis.h"
#include "analyzers/rank_state.h"

namespace rankstacks::analyzers {

// What a watchdog of the program's own has reported by the end of its process.
struct OwnWatchdog {
  std::size_t state = 0;   // index of the rank's state
  std::size_t thread = 0;  // that ended the process
};

struct OwnWatchdogs {
  std::vector<OwnWatchdog> reporters;  // in the order of the ranks
  // Of the rank states: those that are where no reporter's main thread is, and which did not end themselves. Empty if
  // `reporters` is.
  std::vector<std::size_t> elsewhere;
  // The reporters' main threads are in waits that a rule knows as waits for other ranks. Else they are where most ranks
  // are, in one wait for the network or for a thread.
  bool waits_are_known = false;
};

// A thread other than the main thread has aborted its process by a call of its own, with nothing that says of an error
// of this process (a text of the C library, an exception), while the main thread was in the same wait as other ranks
// that have not ended so, and some rank is elsewhere. And it is a watchdog: by its name (known/watchdog_names.h), or as
// the same thread of another rank sleeps until a time that it has set. Likewise if the process has sent the signal to
// itself by kill(), so that the main thread got it, and has a thread of such a name.
OwnWatchdogs find_own_watchdogs(const JobSnapshot& job, const std::vector<RankState>& states);

// "rank 0 was ended by its own watchdog (collective_watchdog at train.py:7), which only reports it"; "" without any.
std::string describe_own_watchdogs(const JobSnapshot& job, const std::vector<RankState>& states,
                                   const OwnWatchdogs& watchdogs);

}  // namespace rankstacks::analyzers
