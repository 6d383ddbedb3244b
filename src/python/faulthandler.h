// Whether Python's faulthandler is enabled, and for which signals it was called.
//
// Modules/faulthandler.c keeps its handlers of fatal signals in a static array, which is the same from CPython 3.6 to
// 3.15:
//
//     static fault_handler_t faulthandler_handlers[] = {   // 176 bytes each
//         {SIGBUS, 0, "Bus error"}, {SIGILL, ...}, {SIGFPE, ...}, {SIGABRT, ...}, {SIGSEGV, ...}};
//     struct { int signum; int enabled; const char* name; struct sigaction previous; int all_threads; }
//
// It has no symbol in a stripped interpreter, but its first contents in the file's data are like nothing else's.
// faulthandler.enable() installs all five. A handler that is called restores the one before it, and its `enabled` is 0
// from then on.
#pragma once

#include <optional>
#include <span>

#include "elf/image.h"
#include "python/layouts.h"

namespace rankstacks::python {

// The address of faulthandler_handlers; std::nullopt if the file's data has no such array, or more than one.
std::optional<Vaddr> find_faulthandler(const elf::Image& image);

// std::nullopt if it is not known where the array is, or if it cannot be read. `interpreters`: those of the process;
// the descriptor is believed only if the structure that has it names one of them.
std::optional<Faulthandler> read_faulthandler(const target::Target& target, const Layout& layout,
                                              const RuntimeCandidate& runtime, std::span<const Address> interpreters);

}  // namespace rankstacks::python
