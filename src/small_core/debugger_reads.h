// Reads of a target what other tools read of its core, so that it is recorded (target/read_pages.h).
//
// gdb and libdwfl find the modules of a core by the dynamic linker's list (loader_list.h), and know each by its first
// page and build-id. libthread_db reads the dynamic linker's own data and each thread's descriptor. Where a module's
// file is not to be had elsewhere (it was deleted, or never was in a file system), its unwind tables and symbols are
// read as well. Everything is bounded. What cannot be read is left out.
#pragma once

#include <span>
#include <vector>

#include "target/initial_block.h"
#include "target/target.h"

namespace rankstacks::small_core {

// What read_process_memory() will read of the modules, from their files alone.
std::vector<Range> changeable_parts(const target::ModuleMap& modules);

// What a process may change, so that it has to be read while it is stopped. `expected`: changeable_parts(), and pages
// that the dynamic linker's list had before; they are fetched in one batch, as following a list costs a system call for
// each page.
void read_process_memory(const target::Target& target, const target::AuxiliaryVector& auxv,
                         std::span<const Range> expected);

// The headers and notes of modules, and more of those whose files may be gone.
void read_module_headers(const target::Target& target);

}  // namespace rankstacks::small_core
