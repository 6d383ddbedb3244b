// Who is inside of `with lock:`. CPython does not write down who holds a _thread.lock, but the frame that took it by a `with` statement keeps the lock's __exit__
// on its value stack until it gives the lock back: up to 3.13 as a method that is bound to the lock, from 3.14 on as __exit__ and the lock above it.
#pragma once

#include <span>

#include "python/attributes.h"
#include "python/locks.h"

namespace rankstacks::python {

struct WantedLock {
  Address lock = 0;                       // a _thread.lock
  ThreadState* waiting = nullptr;         // not looked at here
  const ThreadState* holder = nullptr;    // the one thread that is inside of such a statement; null: none is, or several are, or it may have released the lock
};

// Fills `holder` of each. One that has called Condition.wait further inside has released that condition's lock.
void find_holders(const Target& target, const Layout& layout, const CodeReader& codes, ObjectReader& objects, AttributeReader& attributes, const State& state,
                  std::span<WantedLock> wanted);

}  // namespace rankstacks::python
