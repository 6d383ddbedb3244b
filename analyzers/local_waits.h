// What a rank waits for that is not another rank, if its frames show more than the reason says: a queue, a thread's
// end, a paused terminal.
#pragma once

#include <optional>
#include <string>

#include "analyzers/rank_state.h"

namespace rankstacks::analyzers {

enum class LocalWaitKind {
  kGil,
  kQueue,
  kBarrier,
  kEvent,
  kCondition,
  kSemaphore,
  kThreadEnd,
  kTask,
  kImport,
  kEventLoop,
  kProcessLock,
  kPool,
  kFileLock,
  kDatabase,
  kOutput,
  kChildOutput,
  kHooksFuture,
  kNativeThread,
  kConnection
};

struct LocalWait {
  LocalWaitKind kind;
  std::string_view verb, advice;  // as in the table of words by reason
};

// Another process, not a thread of this one, has to end the wait.
constexpr bool is_between_processes(LocalWaitKind kind) {
  return kind == LocalWaitKind::kProcessLock || kind == LocalWaitKind::kPool;
}

// Whether it waits for a lock of a file or of a database, and the kernel has not shown who holds it, as in a core: any
// other rank may.
bool waits_for_unknown_holder(const JobSnapshot& job, const RankState& state);

// Whether it waits at a connection of multiprocessing, as that to a child is, in a core, where the other end may as
// well be another rank.
bool is_at_unknown_connection(const JobSnapshot& job, const RankState& state);

// std::nullopt if there is nothing to add to the words of the reason.
std::optional<LocalWait> local_wait_of(const JobSnapshot& job, const RankState& state, Reason reason);

}  // namespace rankstacks::analyzers
