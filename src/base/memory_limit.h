// How much memory the whole tool may use: --memory, by default a share of what the machine, or the tool's container,
// has.
//
// The limit is divided among those uses that the observed processes and files could make grow without a bound
// (MemoryUse). Each use stays below its share and says what it left out. All other memory is small. If the total is
// exceeded all the same, the kernel refuses memory beyond the limit (RLIMIT_DATA), and the tool ends with status 2 and
// a hint (cli/sudden_end). Mapped files belong to the page cache and do not count.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

namespace rankstacks {
inline namespace base {

enum class MemoryUse {
  kCopies,    // copies of the memory of the processes in one sample, or of packed cores, kept while they are unwound,
              // small ones until the end
  kFrames,    // the frames of all stacks of all ranks
  kSections,  // unpacked debug sections
};

// The share of one use in bytes, where `limit` is the total.
std::size_t share_of_memory(std::size_t limit, MemoryUse use);

// Half of the machine's memory, or of the lowest limit among the control groups of this process.
std::size_t default_memory_limit();

// The lowest memory.max (v2) or memory.limit_in_bytes (v1) between the control group of the process and the root;
// std::nullopt if none is set. `proc_cgroup` and `mountinfo` are the texts of /proc/self/cgroup and
// /proc/self/mountinfo; the limit files are read below the directories that these name.
std::optional<std::size_t> control_group_limit(std::string_view proc_cgroup, std::string_view mountinfo);

// Parses "512M", "2G", "1.5T", "800000K", or bytes without a letter; the letters are powers of 1024. std::nullopt if
// the text is not a size.
std::optional<std::size_t> parse_size(std::string_view text);

// From now on the kernel refuses this process private memory beyond this many bytes, and take_memory() enforces the
// shares.
void enforce_memory_limit(std::size_t bytes);

// Takes bytes from the share of a use, until they are given back. False if less than that is left. Always true where no
// limit is in force.
bool take_memory(MemoryUse use, std::size_t bytes);
void give_back_memory(MemoryUse use, std::size_t bytes);

// For a helper process, which does not count towards the limit: raises its limit to the maximum that the tool itself
// was allowed.
void lift_memory_limit();

}  // namespace base
}  // namespace rankstacks
