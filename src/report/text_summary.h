// The parts of the text report that other formats show as well.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "model/snapshot.h"
#include "report/text_style.h"

namespace rankstacks::report {

// "8 ranks of 8 on 1 host, 48 threads; skew 0.4 ms, longest stop 1.8 ms, 210 ms in all"
std::string totals(const JobSnapshot& job);

// What NCCL says of its communicators: errors, and who has aborted or finalized them; at most `most`, then how many
// more there are. Empty if there is nothing. Sanitized.
std::vector<std::string> communicator_lines(const JobSnapshot& job, std::size_t most);

// Each problem once, with the ranks that have it. Empty if there are none. Sanitized.
std::vector<std::string> problem_lines(const JobSnapshot& job, const TextStyle& style, std::size_t width);

}  // namespace rankstacks::report
