// What threads are there for, and which of them are without work.
#pragma once

#include <cstddef>
#include <vector>

#include "analyzers/analysis.h"
#include "known/rules.h"

namespace rankstacks {

// Whether a thread of this role is as it is when it has nothing to do: a watchdog in its loop's timed wait, a pool's thread without a task. Such a
// thread is evidence of nothing. False where that is not known for certain: a watchdog that aborts, a loader's worker in the user's code, any main
// thread; also a thread that waits for other ranks.
bool is_idle(const JobSnapshot& job, const ThreadSnapshot& thread, Role role);

// Whether a process with threads of these roles uses NCCL.
bool has_nccl(const std::vector<Role>& roles);

// The rule that gave a thread its role, and the first that says of one of this role that it is without work. Null: no rule did.
const RoleRule* role_rule_of(const JobSnapshot& job, std::size_t rank, std::size_t thread);
const IdleRule* idle_rule_of(const JobSnapshot& job, const ThreadSnapshot& thread, Role role);

}  // namespace rankstacks
