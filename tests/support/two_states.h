// Processes that change between two known states as often as they can, and samples of them, among which a snapshot of
// more than one moment is found.
//
// In each state a thread is inside of three functions that call each other, one_1() to one_3() or two_1() to two_3().
// Each function writes the number of the change into its own frame, and into a word of the frame of changes(), which
// calls the first: three words of different pages. So a stack with functions of both states, frames with different
// numbers, or a word that is ahead of one that is written earlier, was not read at one moment.
#pragma once

#include <string>
#include <vector>

#include "base/types.h"
#include "target/stop_choice.h"

namespace rankstacks::testing {

// What a process of two states does in each of them, before it changes to the other.
struct Behaviour {
  const char* name;
  const char* what;
  void (*body)();  // in a forked child, never returns; nullptr: a Python program
};
const std::vector<Behaviour>& behaviours();

struct Samples {
  int done = 0;          // samples in which the process was read
  int without_stop = 0;  // of these: no thread was stopped,
  int partly = 0;        // some were,
  int stopped = 0;       // all were
  int seen[2] = {0, 0};  // stacks in each of the states
  int between = 0;       // stacks in neither
  int left_out = 0;      // threads that ran, and are not shown for that reason (--stop never)
  int incomplete = 0;    // stacks that do not reach their end
  std::vector<std::string> wrong;
};

// So many samples of a new process of this kind.
Samples take_samples(const Behaviour& behaviour, target::StopPolicy policy, int times);

}  // namespace rankstacks::testing
