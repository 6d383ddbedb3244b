// The mappings of a process.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "target/modules.h"

namespace rankstacks::target {

// In order, as /proc/PID/maps has them; without its last line, [vsyscall], where the kernel is asked. `directory`: that
// of the process or of one of its threads, "/proc/101".
//
// Linux 6.11 and newer answer for one mapping at a time, without text (PROCMAP_QUERY, include/uapi/linux/fs.h): of
// 1700 mappings in 1.3 ms instead of 1.9, and nothing is parsed, which takes 0.5 ms more. Older kernels' text is
// parsed.
Result<std::vector<Mapping>> mappings_in(const std::string& directory);

// The two ways; for tests. std::nullopt: the kernel does not answer such a question, or not for all of them.
std::optional<std::vector<Mapping>> ask_for_mappings(const std::string& path_of_maps);
Result<std::vector<Mapping>> read_mappings_text(const std::string& path_of_maps);

}  // namespace rankstacks::target
