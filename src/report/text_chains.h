// The explanation of a verdict in one sentence each: how a rank depends on the first suspect, and which rank to look at
// if nothing is decided. Sanitized; "" if there is nothing to add.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "analyzers/analysis.h"

namespace rankstacks::report {

// "chain: rank 0 in all_reduce <- rank 1 in step at train.py:9 <- a native lock held by thread 7 <- its thread reporter
// in flush at log.py:3, sleeping". The summary already says it if there is only one lock or process in the chain, no
// other thread of the rank that waits (autograd's), and an operation that its frames name: then only on demand.
std::string describe_chain(const JobSnapshot& job, const analyzers::Analysis& analysis, bool even_if_short = false);

// One node of the graph of waits: "rank 0 in all_reduce". `rank_before`: the rank of the link before it, if any. Not
// sanitized.
std::string describe_link(const JobSnapshot& job, const analyzers::WaitNode& node,
                          std::optional<std::size_t> rank_before);

// "if it hangs, look at rank 1 first: it runs its own code (step at train.py:9); what would decide: --gpu"
std::string describe_candidates(const JobSnapshot& job, const analyzers::Verdict& verdict);

}  // namespace rankstacks::report
