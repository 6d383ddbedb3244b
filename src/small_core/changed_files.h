// Mapped files whose bytes the process may have changed in memory: they are left out of NT_FILE.
//
// For an address that a core does not hold, gdb reads the file that NT_FILE names, whatever the mapping's rights are
// (gdb 13, core_target::xfer_partial): of .data the values that a program began with, of the part of .bss on the same
// page whatever follows in the file. Without the entry it says "Cannot access memory". libdwfl and pystack use the
// entries to name modules, for which the others are enough.
//
//     r--p, r-xp  of a segment that is not writable: the file's own bytes     NT_FILE
//     rw-p, rw-s, and r--p of a writable segment (RELRO, which is relocated)  OwnNote::kFiles
#pragma once

#include <span>
#include <vector>

#include "target/own_notes.h"
#include "target/target.h"

namespace rankstacks::small_core {

// The notes, with a shorter NT_FILE, whose other entries are added to `left_out`, which stays sorted by address. Of a
// damaged NT_FILE nothing is taken.
std::vector<std::byte> without_changed_files(std::span<const std::byte> notes, const target::Target& target,
                                             std::vector<target::NotedFile>& left_out);

}  // namespace rankstacks::small_core
