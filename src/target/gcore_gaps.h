// Memory that gdb's gcore gave up on.
//
// gcore copies a mapping in pieces of 1 MiB and leaves it at the first that cannot be read in full. glibc 2.42 and
// newer put the guards of thread stacks inside of mappings (MADV_GUARD_INSTALL, Linux 6.13) where they were mappings of
// their own before: the piece with a guard cannot be read, and neighbouring stacks, which are one mapping then, are
// lost together. The program header counts them all the same, and the file has zeros there:
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

namespace rankstacks {

struct GcoreGaps {
  std::vector<Tid> threads;  // whose stacks are lost
  std::uint64_t bytes = 0;   // what is lost with them
};

// Takes out of `file` what gcore left as zeros where threads have their stacks, so that nobody reads them. A few words
// of each thread are looked at.
GcoreGaps drop_gcore_gaps(CoreFile& file, std::span<const ThreadInfo> threads);

std::optional<Problem> describe(const GcoreGaps& gaps);

}  // namespace rankstacks
