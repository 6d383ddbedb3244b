// Logs of several ranks in one file, each line with the rank that has written it, as launchers mark them.
#pragma once

#include <map>
#include <string>
#include <string_view>

namespace rankstacks::dumps {

// The text of each rank without the prefixes, if more than half of the lines that are not empty have the prefix of one
// launcher; else empty. "[rank3]: " of torch, "[default3]:" and other roles of torchrun with one machine (the number is
// the rank on its machine), "3: " of srun --label, "[1,3]<stderr>:" of mpirun --tag-output.
std::map<int, std::string> split_by_rank(std::string_view text);

}  // namespace rankstacks::dumps
