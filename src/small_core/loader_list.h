// The dynamic linker's list of modules, by which gdb and libdwfl find those of a core:
//
//     AT_PHDR -> the program's PT_DYNAMIC -> DT_DEBUG -> r_debug -> link_map -> link_map -> ...
//                                                                      | l_name, l_ld
#pragma once

#include <functional>
#include <span>

#include "base/types.h"
#include "target/initial_block.h"

namespace rankstacks::small_core {

// Whether all bytes could be read.
using ReadMemory = std::function<bool(Address, std::span<std::byte>)>;

// Reads all of it by `read`, which takes note of the pages. Bounded: a hostile list may be a circle.
void read_loader_list(const ReadMemory& read, const target::AuxiliaryVector& auxv);

}  // namespace rankstacks::small_core
