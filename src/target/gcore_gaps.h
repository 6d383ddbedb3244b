// Memory that gdb's gcore failed to dump.
//
// gcore copies a mapping in pieces of 1 MiB and abandons it at the first piece that cannot be read in full. glibc 2.42
// and newer put the guards of thread stacks inside mappings (MADV_GUARD_INSTALL, Linux 6.13); before, guards were
// mappings of their own. The piece with a guard cannot be read, and neighbouring stacks, which are then one mapping,
// are lost together. The program header counts their bytes all the same, and the file has zeros there:
//
//     mapping     | guard | stack of thread 3 | guard | stack of thread 2 | guard | stack of thread 1 |
//     its bytes   | 00 00000000000000000000000000000000000000000000000000000000000000000000000000000000 |
//
// Sources: gdb 13, gcore.c (gcore_copy_callback, MAX_COPY_BYTES); glibc 2.42, NEWS and nptl/allocatestack.c;
// madvise(2).
#pragma once

#include <optional>
#include <vector>

#include "model/snapshot.h"
#include "target/core_file.h"
#include "target/target.h"

namespace rankstacks::target {

struct GcoreGaps {
  std::vector<Tid> threads;  // whose stacks are lost
  std::uint64_t bytes = 0;   // the number of bytes lost with them
};

// Removes from `file` the ranges in which gcore wrote zeros instead of thread stacks, so that nothing reads them.
// Examines a few words of each thread.
GcoreGaps drop_gcore_gaps(CoreFile& file, std::span<const ThreadInfo> threads);

std::optional<Problem> describe(const GcoreGaps& gaps);

}  // namespace rankstacks::target
