// Which process of a job has a given number: one look through all processes for each of them would take a job of
// 10,000 ranks, with eight loader workers each, minutes.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "model/snapshot.h"

namespace rankstacks {
inline namespace model {

// Made from a job, and true as long as its processes stay as they are.
class ProcessIndex {
 public:
  static constexpr std::size_t kMaxNamesakes = 64;

  explicit ProcessIndex(const JobSnapshot& job);
  // The processes that have this number where process `counted_as` has its own, as same_pids() says: indices into
  // JobSnapshot::ranks, ascending. Several if what is known of them does not distinguish these, but of a report that
  // has any number of such processes at most kMaxNamesakes.
  std::vector<std::size_t> find(std::size_t counted_as, Pid pid) const;

 private:
  // A number for each machine that counts pids: by its pid space (0: not stated), and by its host name, as two
  // processes of which one does not state its space are compared by that.
  struct Machine {
    std::size_t space = 0, host = 0;
  };
  using Key = std::pair<std::size_t, Pid>;
  using Entries = std::vector<std::pair<Key, std::size_t>>;  // sorted

  std::vector<Machine> machine_of_;  // by process
  Entries by_space_, by_host_;
};

}  // namespace model
}  // namespace rankstacks
