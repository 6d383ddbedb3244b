// Reads of a target what other tools read of its core, so that it is recorded (target/read_pages.h).
//
// gdb and libdwfl find the modules of a core by the dynamic linker's list (loader_list.h), and know each by its first
// page and build-id. libthread_db reads the dynamic linker's own data and each thread's descriptor. Where a module's
// file is not to be had elsewhere (it was deleted, or never was in a file system), its unwind tables and symbols are
// read as well.
#pragma once

#include <span>

#include "target/initial_block.h"
#include "target/target.h"

namespace rankstacks::small_core {

// Everything is bounded: the process may be paused. What cannot be read is left out.
// `expected`: pages that the list is known to have had before the process was stopped; they are fetched in one batch,
// as following a list costs a system call for each page.
void read_for_debuggers(const target::Target& target, const target::AuxiliaryVector& auxv,
                        std::span<const Range> expected = {});

}  // namespace rankstacks::small_core
