// Sets of ranks that are those of whole hosts: a node, or a rack of them by the names that it has, is then what the
// ranks have in common.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "model/snapshot.h"

namespace rankstacks::analyzers {

// Made from a job, which must outlive it.
class WholeHosts {
 public:
  explicit WholeHosts(const JobSnapshot& job);
  // "all ranks of node-a", "all ranks of rack2-node[01-16]". "" if the ranks (indices into JobSnapshot::ranks) are not
  // exactly those of whole hosts, or those of all; if no host has several, as a host then says no more than a rank; or
  // if not all ranks of the job were captured, or not with their hosts.
  std::string describe(std::vector<std::size_t> ranks) const;

 private:
  static constexpr std::size_t kNoHost = SIZE_MAX;

  const JobSnapshot& job_;
  std::vector<std::size_t> host_of_;   // by process; kNoHost: a child
  std::vector<std::size_t> ranks_on_;  // by host; empty: nothing can be said
};

}  // namespace rankstacks::analyzers
