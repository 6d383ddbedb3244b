// A job whose ranks all wait, as the rules of deadlock.h see it: the facts, and the sides between which they decide.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "analyzers/accusation.h"
#include "analyzers/facts.h"
#include "analyzers/sides.h"

namespace rankstacks::analyzers {

// The owner of what the facts refer to must outlive it. `i` is an index into `states`.
struct WaitingJob {
  explicit WaitingJob(const Facts& the_facts);
  // The same job, of which only these sides are compared, or which is divided into other ones.
  WaitingJob with_sides(std::vector<Side> others) const;

  bool is_p2p(std::size_t i) const;
  bool in_store(std::size_t i) const;
  bool any_side(known::Activity activity) const;
  bool waits_for_gpu() const;    // at least one side
  bool known_from_gpus() const;  // what each side waits in
  // The stacks of at least one side show what it waits in.
  bool names_some_operation() const;
  // All wait in the same function of the user's, at different lines of it.
  bool wait_in_one_function() const;
  std::vector<std::size_t> all_members() const;  // of all sides
  std::string describe_sides() const;            // "ranks 0-1 wait in ... while rank 2 waits in ..."

  // Accuses these, and explains it by what the others wait in.
  Deadlock accuse(const std::vector<std::size_t>& members, Reason reason, double confidence) const;

  const Facts& facts;
  const JobSnapshot& job;
  const std::vector<RankState>& states;
  const std::vector<PendingOperation>& operations;
  std::vector<Side> sides;
  std::size_t ranks = 0;  // that wait in an operation
};

}  // namespace rankstacks::analyzers
