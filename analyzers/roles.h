// What threads exist for, and which of them have no work.
#pragma once

#include <cstddef>
#include <vector>

#include "analyzers/analysis.h"
#include "known/rules.h"

namespace rankstacks::analyzers {

// Whether a thread of this role is in the state in which it has nothing to do: a watchdog in the timed wait of its
// loop, a pool's thread without a task. Such a thread is not evidence of anything. False if that is not certain (a
// watchdog that aborts, a loader worker in the user's code), for any main thread, and for a thread that waits for
// other ranks.
bool is_idle(const JobSnapshot& job, const ThreadSnapshot& thread, known::Role role);

// Whether a process with threads of these roles uses NCCL.
bool has_nccl(const std::vector<known::Role>& roles);

// The rule that gave a thread its role, and the first rule by which a thread of this role has no work. nullptr if
// there is none.
const known::RoleRule* role_rule_of(const JobSnapshot& job, std::size_t rank, std::size_t thread);
const known::IdleRule* idle_rule_of(const JobSnapshot& job, const ThreadSnapshot& thread, known::Role role);

}  // namespace rankstacks::analyzers
