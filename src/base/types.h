// The number types that every part of the program uses, each with its own name.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace rankstacks {
inline namespace base {

// Process (thread group) id, in this tool's pid namespace; for a core: as the core's notes state it.
using Pid = std::int32_t;
using Tid = std::int32_t;       // kernel thread id, as gdb shows it
using Address = std::uint64_t;  // where a byte lies in the running target
using Vaddr = std::uint64_t;    // where a byte lies in an ELF file's own address space (p_vaddr, st_value; addr2line)
using BuildId = std::vector<std::uint8_t>;  // the descriptor of NT_GNU_BUILD_ID; empty: none

// A half-open range of addresses in the target.
struct Range {
  Address start = 0;
  Address end = 0;
  bool contains(Address a) const { return a >= start && a < end; }
  std::uint64_t size() const { return end - start; }
};

}  // namespace base
}  // namespace rankstacks
