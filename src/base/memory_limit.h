// How much memory the whole tool takes: --memory, by default a share of what the machine, or the container that it runs in, has.
//
// It is divided among the uses that what is looked at could let grow without a bound (MemoryUse); each stays below its share and says what it left out. All
// else is small. Should the sum not hold all the same, the kernel refuses memory beyond the limit (RLIMIT_DATA), and the tool ends with status 2
// and a hint (cli/sudden_end). Files that are mapped are the page cache's, and do not count.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

namespace rankstacks {

enum class MemoryUse {
  kCopies,     // of the processes of one look, while they are unwound
  kFrames,     // of all stacks of all ranks
  kSections,   // unpacked debug sections and cores
};

// In bytes, of a limit of so many bytes in all.
std::size_t share_of_memory(std::size_t limit, MemoryUse use);

// Half of the machine's memory, or of the least limit of the control groups that this process is in.
std::size_t default_memory_limit();

// The least memory.max (v2) or memory.limit_in_bytes (v1) from the process's control group up to the root; nothing: none is set. `proc_cgroup` and
// `mountinfo`: the texts of /proc/self/cgroup and /proc/self/mountinfo; the files are read below the directories that they name.
std::optional<std::size_t> control_group_limit(std::string_view proc_cgroup, std::string_view mountinfo);

// "512M", "2G", "1.5T", "800000K", bytes without a letter; powers of 1024. Nothing: it is no size.
std::optional<std::size_t> parse_size(std::string_view text);

// From now on the kernel refuses this process private memory beyond so many bytes, and take_memory() goes by them.
void enforce_memory_limit(std::size_t bytes);

// Takes from the share of a use, for as long as the tool runs. False: it has not that much left. Everything is there where no limit is in force.
bool take_memory(MemoryUse use, std::size_t bytes);

// For a helper process, which is no part of the limit: as much as the tool itself was allowed at most.
void lift_memory_limit();

}  // namespace rankstacks
