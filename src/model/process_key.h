// Which process a snapshot is of. A host's name and a pid do not say it: containers of one machine may have the same
// host name, and each numbers its processes by itself; and a pid is given to another process when its own has ended.
#pragma once

#include <compare>
#include <optional>
#include <string>

#include "model/snapshot.h"

namespace rankstacks {
inline namespace model {

// A process within one snapshot.
struct ProcessKey {
  std::string host;  // "" where the space is known: it says more
  PidSpace space;
  Pid pid = 0;
  auto operator<=>(const ProcessKey&) const = default;
};
// The process that has this number where `counted_as` has its own: its parent, the other end of its pipe.
ProcessKey process_key(const RankSnapshot& counted_as, Pid pid);
ProcessKey process_key(const RankSnapshot& process);
ProcessKey process_key(const UnseenRank& process);
ProcessKey process_key(const NcclMember::Process& process);

// Whether one number means one process in both.
bool same_pids(const RankSnapshot& a, const RankSnapshot& b);
// Whether `rank` has the pid that `child` names as its parent's.
bool is_parent(const RankSnapshot& rank, const RankSnapshot& child);

// Whether two snapshots, of two captures perhaps, are of one process; also if one was taken from inside of a container
// and the other from outside. std::nullopt: that is not known, as at least one does not state its pid space.
std::optional<bool> same_process(const RankSnapshot& a, const RankSnapshot& b);

// Gives processes that have the same host and pid, and are known to be several, names that differ
// (RankSnapshot::name_suffix).
void name_apart(JobSnapshot& job);

}  // namespace model
}  // namespace rankstacks
