// The exceptions that a target's threads handle: what sys.exc_info() would say in each of them.
//
//   thread state -> item -> item -> ... -> the thread's own item      one for each generator that runs, innermost first
//                    |
//                    `-> exception -> args, traceback -> entry -> ... -> entry
//                                                 where it is handled    where it was raised
//
// Part of what is copied during the stop. What does not hold together is left out; nothing of this is ever a problem of
// the target.
#pragma once

#include <span>

#include "python/layouts.h"
#include "python/python.h"

namespace rankstacks::python {

inline constexpr std::size_t kMaxExcItems = 4096, kMaxExcItemsInAll = 65'536;
// Python's recursion limit, which bounds most tracebacks, is 1000.
inline constexpr std::size_t kMaxTracebackEntries = 2048, kMaxTracebackEntriesInAll = 65'536;
inline constexpr std::size_t kLongestMessage = 200;   // characters

// Fills ThreadState::handles. `items`: of each of state.threads the first item; in 3.6, where thread states hold what
// later an item holds, the thread state itself.
void read_handled_exceptions(const Target& target, const Layout& layout, std::span<const Address> items, State& state);

}  // namespace rankstacks::python
