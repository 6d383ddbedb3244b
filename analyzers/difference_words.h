// The sentences about what differs between ranks, for every format.
#pragma once

#include <string>
#include <string_view>

#include "analyzers/differences.h"
#include "model/snapshot.h"

namespace rankstacks::analyzers {

// The word of the kind in JSON: "version", "variable".
std::string_view to_string(DifferenceKind kind);

// One line, not sanitized: "NCCL 2.27.3 on node-b (ranks 8-15), 2.28.9 on the 24 other ranks". The side with the fewest
// ranks comes first.
std::string describe(const JobSnapshot& job, const Difference& difference);

// "torch 2.11.0, NCCL 2.28.7, CUDA 13.0, driver 580.95.05, Python 3.12.3; Linux 6.8.0, Ubuntu 24.04": of most of the
// ranks; a '*' behind a version says that ranks differ in it. "" if nothing is known.
std::string describe_versions(const JobSnapshot& job);

// Whether nothing but the names of files says which versions the libraries have, as in dumps of other tools and old
// reports.
bool versions_are_of_names_alone(const JobSnapshot& job);

}  // namespace rankstacks::analyzers
