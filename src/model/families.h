// Which process of a job is the child of which.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "model/process_index.h"
#include "model/snapshot.h"

namespace rankstacks {
inline namespace model {

// Made from a job, and true as long as its processes stay as they are. All numbers are indices into JobSnapshot::ranks.
class Families {
 public:
  explicit Families(const JobSnapshot& job) : Families(job, ProcessIndex(job)) {}
  Families(const JobSnapshot& job, const ProcessIndex& processes);
  // The processes of kind kChild whose parent this one is, as is_parent() says. Ascending.
  std::span<const std::size_t> children_of(std::size_t process) const { return of(children_, process); }
  // Of a process of kind kChild: its parent. More than one if two have the same number, as far as is known of them;
  // ascending. Of others: none.
  std::span<const std::size_t> parents_of(std::size_t child) const { return of(parents_, child); }

 private:
  // What belongs to process i is from first[i] up to first[i + 1].
  struct Lists {
    std::vector<std::size_t> first, of_all;
  };
  static std::span<const std::size_t> of(const Lists& lists, std::size_t process) {
    return {lists.of_all.data() + lists.first[process], lists.of_all.data() + lists.first[process + 1]};
  }

  Lists children_, parents_;
};

}  // namespace model
}  // namespace rankstacks
