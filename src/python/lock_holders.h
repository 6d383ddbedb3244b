// Finds the threads that are inside of `with lock:`. CPython does not record the holder of a _thread.lock, but the
// frame that took it by a `with` statement keeps the lock's __exit__ on its value stack until it releases the lock: up
// to 3.13 as a method bound to the lock, from 3.14 on as __exit__ with the lock above it.
#pragma once

#include <span>

#include "python/attributes.h"
#include "python/locks.h"

namespace rankstacks::python {

struct WantedLock {
  Address lock = 0;                // a _thread.lock
  ThreadState* waiting = nullptr;  // not used by find_holders()
  // The only thread that is inside of such a statement. nullptr if no thread or more than one is, or if it may have
  // released the lock.
  const ThreadState* holder = nullptr;
};

// Fills `holder` of each. A thread that has called Condition.wait inside of the statement has released the lock of that
// condition.
void find_holders(const target::Target& target, const Layout& layout, const CodeReader& codes, ObjectReader& objects,
                  AttributeReader& attributes, const State& state, std::span<WantedLock> wanted);

}  // namespace rankstacks::python
