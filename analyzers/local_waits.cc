#include "analyzers/local_waits.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "analyzers/blocking_calls.h"
#include "analyzers/names.h"
#include "analyzers/native_waits.h"
#include "base/text.h"
#include "model/process_key.h"

namespace rankstacks::analyzers {
namespace {

// No thread holds these: another one has to fill, set or notify them.
constexpr std::string_view kNobodyHolds =
    "nobody holds it, another thread of this rank has to come: it may have ended, or be stuck itself; --threads all "
    "--rank shows them";
constexpr std::string_view kOtherThread =
    "find what that thread or task does: --threads all --rank shows every thread of this rank";
constexpr std::string_view kImport =
    "find the thread that imports this module and what keeps it: --threads all --rank shows every thread of this rank";

constexpr LocalWait kGil{LocalWaitKind::kGil, "waits for the GIL",
                         "find the thread that holds it: --threads all --rank shows every thread of this rank"};
constexpr LocalWait kQueueGet{LocalWaitKind::kQueue, "waits for a queue to be filled", kNobodyHolds};
constexpr LocalWait kQueuePut{LocalWaitKind::kQueue, "waits for room in a queue", kNobodyHolds};
constexpr LocalWait kQueueJoin{LocalWaitKind::kQueue, "waits for a queue's tasks to be done", kNobodyHolds};
constexpr LocalWait kBarrier{LocalWaitKind::kBarrier, "waits at a barrier of its own threads", kNobodyHolds};
constexpr LocalWait kEvent{LocalWaitKind::kEvent, "waits for an event of its own threads", kNobodyHolds};
constexpr LocalWait kCondition{LocalWaitKind::kCondition, "waits for a condition of its own threads", kNobodyHolds};
constexpr LocalWait kSemaphore{LocalWaitKind::kSemaphore, "waits for a semaphore of its own threads", kNobodyHolds};
constexpr LocalWait kThreadEnd{LocalWaitKind::kThreadEnd, "waits for a thread to end", kOtherThread};
constexpr LocalWait kTask{LocalWaitKind::kTask, "waits for a task's result", kOtherThread};
constexpr LocalWait kProcessLock{
    LocalWaitKind::kProcessLock, "waits for a lock between processes",
    "find the process that holds it: it may have ended without a release; look at the children of this rank"};
constexpr LocalWait kPool{
    LocalWaitKind::kPool, "waits for its pool of processes",
    "look at the pool's workers, children of this rank: one that has died or hangs never answers"};
constexpr LocalWait kModule{LocalWaitKind::kImport, "waits for another thread's import", kImport};
constexpr LocalWait kFileLock{LocalWaitKind::kFileLock, "waits for a file lock",
                              "find the process that holds the lock: lslocks, or fuser on the path shown"};
constexpr LocalWait kDatabase{
    LocalWaitKind::kDatabase, "waits for a locked SQLite database",
    "another process holds a transaction open: fuser on the database's file shows which have it open"};
constexpr LocalWait kOutput{LocalWaitKind::kOutput, "cannot write its output",
                            "nobody takes what it writes: look at the reader of that pipe (a log collector, tee, a "
                            "parent process), or let the terminal go on (Ctrl-Q)"};
constexpr LocalWait kChildOutput{LocalWaitKind::kChildOutput, "waits for the output of a child that has ended",
                                 "what that child has started, and left behind, still has its output open: lsof on the "
                                 "pipe shown names it"};
constexpr LocalWait kHooksFuture{LocalWaitKind::kHooksFuture,
                                 "waits for the future that DDP's communication hook has returned",
                                 "no collective completes it: look at the hook, and at the thread or task that it has "
                                 "handed the bucket to; --threads all --rank shows every thread of this rank"};
constexpr LocalWait kNativeThread{LocalWaitKind::kNativeThread, "waits for another thread in native code",
                                  "find what its other threads do, and which of them should wake it: --threads all "
                                  "--rank shows every thread of this rank"};
constexpr LocalWait kConnection{
    LocalWaitKind::kConnection, "waits for the other end of a connection",
    "find out which process is at the other end, a child or another rank, and what it does"};
constexpr LocalWait kLoop{LocalWaitKind::kEventLoop, "waits in its event loop",
                          "what its tasks await is on no stack: look at their list (asyncio.all_tasks), its sockets "
                          "(ss -tnp) and their timeouts"};

constexpr LocalWait kOwnLoop{LocalWaitKind::kEventLoop, "waits in its event loop, which watches no socket",
                             "what its tasks await has to come from this program: a future, a queue, a task that has "
                             "ended; look at their list (asyncio.all_tasks) and their timeouts"};

// What a thread with a frame at one of these places waits for.
constexpr std::pair<known::Place, LocalWait> kByPlace[] = {{known::Place::kQueueGet, kQueueGet},
                                                           {known::Place::kQueuePut, kQueuePut},
                                                           {known::Place::kQueueJoin, kQueueJoin},
                                                           {known::Place::kThreadingBarrier, kBarrier},
                                                           {known::Place::kThreadingAcquire, kSemaphore},
                                                           {known::Place::kThreadingJoin, kThreadEnd},
                                                           {known::Place::kPool, kPool},
                                                           {known::Place::kFutures, kTask},
                                                           {known::Place::kImportWait, kModule}};

// For a wait in threading, queue or concurrent.futures: the outermost of their frames, next to the caller. CPython
// 3.6 to 3.15.
std::optional<LocalWait> python_wait(const JobSnapshot& job, const ThreadSnapshot& thread) {
  std::optional<LocalWait> found;
  int waits = 0;
  for (const FrameId id : thread.frames) {
    const Frame& frame = job.frames[id];
    if (is_process_lock(frame)) return kProcessLock;
    if (frame.kind != FrameKind::kPython) continue;
    const auto of_place = std::find_if(std::begin(kByPlace), std::end(kByPlace),
                                       [&](const auto& one) { return is_place(frame, one.first); });
    if (is_place(frame, known::Place::kThreadingWait)) {
      if (waits++ == 0) found = kCondition;
      else if (found && found->kind == LocalWaitKind::kCondition) found = kEvent;
    } else if (of_place != std::end(kByPlace)) {
      found = of_place->second;
    } else if (!is_place(frame, known::Place::kQueue) && !is_place(frame, known::Place::kThreading) &&
               !is_place(frame, known::Place::kImport)) {
      break;
    }
  }
  return found;
}

bool takes_mutex(const JobSnapshot& job, const ThreadSnapshot& thread) {
  for (const FrameId id : thread.frames) {
    const Frame& frame = job.frames[id];
    if (frame.kind != FrameKind::kNative || !is_opaque(frame.module)) return false;
    if (frame.function && is_one_of(public_libc_name(*frame.function), kMutexCalls)) return true;
  }
  return false;
}

std::optional<LocalWait> native_wait(const JobSnapshot& job, const ThreadSnapshot& thread) {
  switch (native_wait_of(job, thread)) {
    case NativeWait::kCondition: return kCondition;
    case NativeWait::kSemaphore: return kSemaphore;
    case NativeWait::kBarrier: return kBarrier;
    case NativeWait::kThreadEnd: return kThreadEnd;
    case NativeWait::kNone: break;
  }
  return stands_in_futex(job, thread) && !takes_mutex(job, thread) ? std::optional(kNativeThread) : std::nullopt;
}

}  // namespace

std::optional<LocalWait> local_wait_of(const JobSnapshot& job, const RankState& state, Reason reason) {
  if (state.gpu_only || state.recorded_only || state.known_from_child || state.dead_child) return std::nullopt;
  const ThreadSnapshot& thread = job.ranks[state.rank].threads[state.doing.thread];
  if (state.doing.operation.kind == known::OperationKind::kEventLoop) {
    if (reason == Reason::kNetworkIo) return kLoop;
    if (reason == Reason::kUserCode) return kOwnLoop;
  }
  // It has got what it waited for before: an event is set, a lock free.
  if (reason == Reason::kPythonLock && thread.gil == Gil::kWaits) return kGil;
  if (reason == Reason::kPythonLock) return python_wait(job, thread);
  if (reason == Reason::kNativeLock && state.doing.operation.kind == known::OperationKind::kHooksFuture)
    return kHooksFuture;
  if (reason == Reason::kNativeLock && !thread.lock_owner) return native_wait(job, thread);
  if (reason == Reason::kSubprocess && state.reads_after_end) return kChildOutput;
  if (reason == Reason::kSubprocess && is_at_unknown_connection(job, state)) return kConnection;
  if (reason != Reason::kFileIo) return std::nullopt;
  if (state.doing.operation.kind == known::OperationKind::kLockedDatabase) return kDatabase;
  if (writes_output(thread)) return kOutput;
  const std::string call = blocking_call(job, thread);
  if (call == "flock" || call == "fcntl" || call == "lockf") return kFileLock;
  return std::nullopt;
}

bool is_at_unknown_connection(const JobSnapshot& job, const RankState& state) {
  const RankSnapshot& rank = job.ranks[state.rank];
  if (!state.readable || state.doing.activity != known::Activity::kSubprocess || rank.source != Source::kCore ||
      state.known_from_child || state.dead_child)
    return false;
  // A queue's and a pool's pipes lead to children.
  const std::vector<FrameId>& frames = rank.threads[state.doing.thread].frames;
  bool in_connection = false;
  for (std::size_t i = state.doing.frame; i < frames.size(); ++i) {
    const Frame& frame = job.frames[frames[i]];
    if (frame.kind != FrameKind::kPython) continue;
    if (!is_place(frame, known::Place::kProcessPipe)) {
      if (!in_connection || !is_users_code(frame)) return false;
      break;
    }
    in_connection = true;
  }
  if (!in_connection) return false;
  return std::none_of(job.ranks.begin(), job.ranks.end(),
                      [&](const RankSnapshot& child) { return is_parent(rank, child); });
}

bool waits_for_unknown_holder(const JobSnapshot& job, const RankState& state) {
  const auto wait = local_wait_of(job, state, reason_for(state));
  if (!wait || (wait->kind != LocalWaitKind::kFileLock && wait->kind != LocalWaitKind::kDatabase)) return false;
  const auto& call = job.ranks[state.rank].threads[state.doing.thread].syscall;
  return !call || call->others.empty();
}

}  // namespace rankstacks::analyzers
