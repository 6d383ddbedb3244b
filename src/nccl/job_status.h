// The part of RAS's answers that concerns the sampled processes.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "model/snapshot.h"

namespace rankstacks::nccl {

// A sampled process, under both of its numbers.
struct NcclProcess {
  NcclMember::Process process;  // as in its RankSnapshot
  Pid own_pid = 0;              // in its own pid namespace: the number that NCCL gives to the other ranks
};

// Records in the members which process they are, and leaves out communicators in which none of the processes takes
// part: those of another job on the machine. Processes on other machines and in other containers may have the same
// pids, so a member counts only if its host is one of `addresses`.
void keep_own_communicators(NcclStatus& status, const std::vector<NcclProcess>& processes,
                            const std::vector<std::string>& addresses);

// What is known of a pid that RAS names on this machine.
enum class LocalProcess {
  kNone,       // no process has this pid
  kNotOfNccl,  // the processes that have it have no NCCL loaded
  kPossible,   // a process with NCCL has it, or one that may not be inspected
};

// Why an answer cannot be true of this machine: "it names pid 7 on this machine, which no process has". std::nullopt if
// it may be true. Only the members that answered are checked; nothing is claimed about those that are missing.
// `look_up` is called for the pids on this machine that are none of `processes`. The numbers of ranks are compared only
// with each other: which number a process has in a communicator is up to the program.
std::optional<std::string> contradiction_in(const NcclStatus& status, const std::vector<NcclProcess>& processes,
                                            const std::vector<std::string>& addresses,
                                            const std::function<LocalProcess(Pid own_pid)>& look_up);

// Sets counts_move of the first answer's members, by comparison with the second. A member that is missing in the second
// does not move.
void compare_counts(NcclStatus& first, const NcclStatus& second);

}  // namespace rankstacks::nccl
