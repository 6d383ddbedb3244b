// What a rank waits for that is no other rank, where its frames tell more than its reason does: a queue, a thread's end, a paused terminal.
#pragma once

#include <optional>
#include <string>

#include "analyzers/rank_state.h"

namespace rankstacks {

enum class LocalWaitKind { kQueue, kBarrier, kEvent, kCondition, kSemaphore, kThreadEnd, kTask, kImport, kEventLoop, kProcessLock, kPool, kFileLock, kDatabase, kOutput };

struct LocalWait {
  LocalWaitKind kind;
  std::string_view verb, advice;   // as in the table of words by reason
};

// Another process has to come, and no thread of this one.
constexpr bool is_between_processes(LocalWaitKind kind) { return kind == LocalWaitKind::kProcessLock || kind == LocalWaitKind::kPool; }

// Nothing: the words of the reason are all there is to say.
std::optional<LocalWait> local_wait_of(const JobSnapshot& job, const RankState& state, Reason reason);

}  // namespace rankstacks
