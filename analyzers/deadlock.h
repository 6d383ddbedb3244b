// All ranks wait, but not alike: finds the ranks that cause this. deadlock.cc has the order of the rules, and those
// about groups; the others are in collective_roots.h, unmatched_messages.h, gpu_sides.h and between_sides.h.
//
//     another operation under one number of a group, or a rank     decided by PyTorch's Flight Recorder, the most precise
//     that has not called it                                       evidence (flight_records.h); then by the watchdogs'
//                                                                   texts (watchdog_text.h)
//     sends and receives without a matching call of the peer        unmatched-p2p
//     groups whose members wait for each other in a circle          process-group-order (if one of them is the
//                                                                   group of all ranks: collective-mismatch)
//     the same code at an earlier step                              behind
//     ranks that all wait for their GPUs                            decided by NCCL's counts (launches.h)
//     another collective, or another group                          collective-mismatch; store-wait for those in
//                                                                   the store
//     nothing of this, and NCCL was sent more than a call takes     collective-mismatch of both of two ranks, else
//                                                                   undecided (communicator_errors.h)
//
// If no group is known that all ranks share, but the pipeline's stages are known, ranks are compared within each
// stage, because stages differ by design. The smaller side is accused. If there are two sides of equal size, both are
// accused, since neither is the odd one.
#pragma once

#include <optional>

#include "analyzers/accusation.h"
#include "analyzers/facts.h"

namespace rankstacks::analyzers {

// std::nullopt if they all wait alike.
std::optional<Deadlock> explain_deadlock(const Facts& facts);

}  // namespace rankstacks::analyzers
