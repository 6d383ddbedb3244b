// Which Python lock a thread waits for, and which thread holds it: from memory alone.
//
//   a thread in a futex call ── futex address ──> semaphore <── lock object <── value stack of its innermost Python frame
//                                                               │
//     RLock                                                     │ the thread that it names
//     Lock    a thread inside of `with lock:` has __exit__ of this lock on the value stack of that frame
//     Lock    of importlib's _ModuleLock: the `owner` of that;   of a thread that threading has started: the end of that thread
//
// Which lock it is, is certain: the object's own semaphore is what the futex call waits on. From 3.14 on locks are a byte each, and threads wait in the parking
// lot, on a semaphore of their own (Python/parking_lot.c), beside which stands the byte's address.
//
// Part of what is copied during the stop. What does not hold together is left out; nothing of this is ever a problem of the target.
#pragma once

#include <span>

#include "python/layouts.h"
#include "python/objects.h"
#include "python/python.h"

namespace rankstacks::python {

inline constexpr std::size_t kMaxLockWaits = 4096;             // threads in futex calls that are looked at
inline constexpr std::size_t kMaxHolderFramesOfThread = 256;   // the innermost: whether one is in a `with` statement of a lock
inline constexpr std::size_t kMaxHolderFrames = 65'536;        // of all threads
inline constexpr std::size_t kMaxSlotsInUse = 262'144;         // of all these frames
inline constexpr std::size_t kMaxConditionWaits = 4096;        // frames of Condition.wait that are asked which lock they have released
inline constexpr std::size_t kLongestModuleName = 200;          // characters

// Fills ThreadState::lock and ThreadState::joins. `ends`: of each of state.threads what layout.thread_on_delete_data says; 0: nothing. `codes` are those of
// state.threads' frames and have been read; they are not yet in state.codes.
void read_locks(const Target& target, const Layout& layout, std::span<const Address> ends, CodeReader& codes, State& state);

}  // namespace rankstacks::python
