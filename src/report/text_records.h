// What PyTorch's Flight Recorders have written down, as lines of a text.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "model/snapshot.h"
#include "report/text_style.h"

namespace rankstacks::report {

// Groups whose ranks differ in what they have called, and how long nothing has been called: who is at which number.
// Empty if there is nothing to say; else a heading, and at most `most` lines of groups, which is not 0.
std::vector<std::string> record_lines(const JobSnapshot& job, const TextStyle& style, std::size_t width,
                                      std::size_t most);

}  // namespace rankstacks::report
