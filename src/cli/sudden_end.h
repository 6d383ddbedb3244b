// When memory or threads cannot be had, the tool ends at once, with one line on stderr and exit status 2, at whatever point it is: the kernel
// lets go what was stopped. Nothing is unwound, as that may need memory too, and no core of the tool is left behind. A library that calls abort() ends it
// likewise: libdw's hash tables do where they cannot grow.
#pragma once

namespace rankstacks {

void end_at_once_without_memory();

}  // namespace rankstacks
