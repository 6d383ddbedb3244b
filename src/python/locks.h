// Finds which Python lock a thread waits for, and which thread holds that lock, from memory alone.
//
//   a thread in a futex call ── futex address ──> semaphore <── lock object <── value stack of its innermost Python
//   frame
//                                                               │
//     RLock                                                     │ the thread that it names
//     Lock    a thread inside of `with lock:` has __exit__ of this lock on the value stack of that frame
//     Lock    of importlib's _ModuleLock: its `owner`;   of a thread that threading has started: released at its end
//
// The identity of the lock is certain: the futex call waits on the semaphore of that very object. From 3.14 on a lock
// is one byte, and threads wait in the parking lot (Python/parking_lot.c), on a semaphore of their own next to which
// the byte's address is stored.
//
// This is copied during the stop. Inconsistent data is left out and is never reported as a problem of the target.
#pragma once

#include <span>

#include "python/layouts.h"
#include "python/objects.h"
#include "python/python.h"

namespace rankstacks::python {

inline constexpr std::size_t kMaxLockWaits = 4096;  // threads in futex calls that are examined
// The innermost frames, searched for a `with` statement of a lock.
inline constexpr std::size_t kMaxHolderFramesOfThread = 256;
inline constexpr std::size_t kMaxHolderFrames = 65'536;  // of all threads
inline constexpr std::size_t kMaxSlotsInUse = 262'144;   // of all these frames
// Frames of Condition.wait that are examined for the lock that they have released.
inline constexpr std::size_t kMaxConditionWaits = 4096;
inline constexpr std::size_t kLongestModuleName = 200;  // characters

// Fills ThreadState::lock and ThreadState::joins. `ends` holds the field layout.thread_on_delete_data of each of
// state.threads (0 if it has none). `codes` holds the code objects of state.threads' frames; they have been read, but
// are not yet in state.codes.
void read_locks(const target::Target& target, const Layout& layout, std::span<const Address> ends, CodeReader& codes,
                State& state);

}  // namespace rankstacks::python
