// What of RAS's answers concerns the processes that are looked at.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "model/snapshot.h"

namespace rankstacks {

// A process that is looked at, under both of its names.
struct NcclProcess {
  NcclMember::Process process;             // as its RankSnapshot
  Pid own_pid = 0;                         // as it sees itself: in its own pid namespace; what NCCL tells the others
};

// Tells the members which process they are, and leaves out communicators in which none of the processes takes part: those of another job on the
// machine. Pids of other machines and of other containers may be the same, so a member counts only with one of `addresses` as its host.
void keep_own_communicators(NcclStatus& status, const std::vector<NcclProcess>& processes, const std::vector<std::string>& addresses);

// What the machine has under a pid that RAS names.
enum class LocalProcess {
  kNone,        // no process has it
  kNotOfNccl,   // those that have it have no NCCL loaded
  kPossible,    // some process with NCCL has it, or one that may not be looked into
};

// Why an answer cannot be true of this machine: "it names pid 7 on this machine, which no process has". Nothing: it may
// be. Looked at are the members that answered; of those missing nothing is claimed. `look` is asked for the pids on
// this machine that are none of `processes`. The numbers of ranks are compared with each other alone: which number a
// process has in a communicator is up to the program.
std::optional<std::string> contradiction_in(const NcclStatus& status, const std::vector<NcclProcess>& processes,
                                            const std::vector<std::string>& addresses,
                                            const std::function<LocalProcess(Pid own_pid)>& look);

// counts_move of the first answer's members, by what the second says. A member that is missing in the second moves not.
void compare_counts(NcclStatus& first, const NcclStatus& second);

}  // namespace rankstacks
