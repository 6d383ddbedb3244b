// The exceptions that the target's threads are handling, that is, what sys.exc_info() would return in each of them; and
// those that they have raised and that nothing has caught yet: the error indicator, what PyErr_Occurred() would return.
//
//   thread state -> item -> item -> ... -> the thread's own item      one for each running generator, innermost first
//                    |
//                    `-> exception -> args, traceback -> entry -> ... -> entry
//                         |                        where it is handled    where it was raised
//                         `-> cause, else context unless it is suppressed -> ... as the interpreter prints them
//
// This is copied during the stop. Inconsistent data is left out and is never reported as a problem of the target.
#pragma once

#include <span>

#include "python/layouts.h"
#include "python/objects.h"
#include "python/python.h"
#include "python/running.h"

namespace rankstacks::python {

inline constexpr std::size_t kMaxExcItems = 4096, kMaxExcItemsInAll = 65'536;
// Python's recursion limit, which bounds most tracebacks, is 1000.
inline constexpr std::size_t kMaxTracebackEntries = 2048, kMaxTracebackEntriesInAll = 65'536;
// Places of one traceback that are kept: as many of its beginning as of its end.
inline constexpr std::size_t kMaxTracebackPlaces = 64;
inline constexpr std::size_t kMaxChain = 8, kMaxChainedInAll = 1024;

// Fills ThreadState::handles. `items` holds the first item of each of state.threads. In 3.6, where the thread state
// itself has the fields that an item has in later versions, it holds the address of the thread state.
// The error indicator of a thread state. Up to 3.11 the exception may not have been made yet: then `value` is its
// argument, or 0.
struct Raised {
  Address type = 0, value = 0, traceback = 0;  // type and traceback: up to 3.11
};
// Where a thread state keeps it, by its distance from exc_info. All 0: there is none, or the version is 3.6.
Raised raised_in(const Layout& layout, const StructCopy& thread_state);
// Fills ThreadState::raises; `raised` is parallel to state.threads.
void read_raised_exceptions(const target::Target& target, const Layout& layout, std::span<const Raised> raised,
                            State& state);

// The exception that has ended the program, in ThreadState::handles of the main thread: sys.last_value, while
// sys.excepthook, the functions of atexit, or the wait for other threads run. A prompt (IPython's, a notebook's) has
// the value as well, for as long as it likes; it is in a module that runs, and its exceptions begin elsewhere. `codes`:
// those that frames refer to.
void read_last_exception(const target::Target& target, const Runtime& runtime, std::span<const Code> codes,
                         State& state);

void read_handled_exceptions(const target::Target& target, const Layout& layout, std::span<const Address> items,
                             State& state);

}  // namespace rankstacks::python
