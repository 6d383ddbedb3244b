// If memory or threads cannot be had, the tool ends at once, at whatever point it is, with one line on stderr and exit
// status 2: the kernel releases what was stopped. Nothing is unwound, as that may need memory too, and no core of the
// tool is left behind. A library that calls abort() ends the tool in the same way: libdw's hash tables do if they
// cannot grow.
#pragma once

namespace rankstacks::cli {

void end_at_once_without_memory();

}  // namespace rankstacks::cli
