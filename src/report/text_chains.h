// What stands behind a verdict in a sentence each: how somebody depends on the first suspect; whom to look at where nothing is decided. Sanitized; "": nothing to add.
#pragma once

#include <string>

#include "analyzers/analysis.h"

namespace rankstacks {

// "chain: rank 0 in all_reduce <- rank 1 in step at train.py:9 <- a native lock held by thread 7 <- its thread reporter in flush at log.py:3, sleeping". Only where
// more than one lock or process stands behind the suspect: the summary says the rest already.
std::string describe_chain(const JobSnapshot& job, const Analysis& analysis);

// "if it hangs, look at rank 1 first: it runs its own code (step at train.py:9); --gpu would tell more"
std::string describe_candidates(const JobSnapshot& job, const Verdict& verdict);

}  // namespace rankstacks
