#include "analyzers/verdict_words.h"

#include <algorithm>
#include <array>
#include <set>

#include <fmt/format.h>

#include "analyzers/blocking_calls.h"
#include "analyzers/deaths.h"
#include "analyzers/divergence.h"
#include "analyzers/gpu_waits.h"
#include "analyzers/handled.h"
#include "analyzers/hook_futures.h"
#include "analyzers/local_waits.h"
#include "analyzers/names.h"
#include "analyzers/native_waits.h"
#include "analyzers/other_ends.h"
#include "analyzers/other_threads.h"
#include "analyzers/pending_operations.h"
#include "analyzers/python_locks.h"
#include "analyzers/thread_waits.h"
#include "analyzers/watchdog_reporters.h"
#include "base/text.h"
#include "model/process_key.h"
#include "model/rank_set.h"

namespace rankstacks::analyzers {
namespace {

struct Words {
  Reason reason;
  std::string_view verb, advice;
};

constexpr Words kWords[] = {
    {Reason::kDataLoading, "is in its data pipeline",
     "look at what this rank reads: its storage, this sample, its loader workers; the others only wait for it"},
    {Reason::kCheckpointIo, "saves or loads a checkpoint",
     "it may still finish: look at the file system before killing; a barrier around rank-0 work, or a longer timeout, "
     "keeps the others waiting in order"},
    {Reason::kFileIo, "is blocked in file I/O",
     "look at the file system of the path shown (mount, quota, server); in state D the kernel log says more"},
    {Reason::kNetworkIo, "waits for the network", "look at the other end of the connection; give the call a timeout"},
    {Reason::kUserCode, "runs its own code",
     "look at the line shown: does only this rank take that branch, or does it have more work than the others?"},
    {Reason::kPythonLock, "waits for a Python lock",
     "find the thread that holds it: --threads all --rank shows every thread of this rank, and who holds the GIL"},
    {Reason::kNativeLock, "waits for a lock in native code",
     "find the thread that holds it: --threads all --rank shows every thread of this rank"},
    {Reason::kSubprocess, "waits for a child process",
     "look at that child process: it may wait for input, a lock or the disk"},
    {Reason::kDebugger, "sits at a prompt",
     "somebody left a breakpoint() or input() there: continue it or take it out"},
    {Reason::kStopped, "is stopped", "continue it (kill -CONT PID), or let go of it in the debugger that holds it"},
    {Reason::kFrozen, "is frozen",
     "thaw its control group, which the problems name with the file to write to: somebody has paused the container, or "
     "suspended the job"},
    {Reason::kCompiling, "is compiling",
     "it may still finish; warm up all ranks alike, and look for a stale build lock if it stays"},
    {Reason::kGpuWait, "waits for its GPU",
     "look at that GPU (nvidia-smi, Xid errors in the kernel log) and at the kernels it runs"},
    {Reason::kGarbageCollection, "is in Python's garbage collector",
     "look at the finalizer shown, if any; gc.freeze() or collecting on all ranks at the same step keeps ranks "
     "together"},
    {Reason::kException, "has raised an exception or is shutting down",
     "read this rank's own error output: its exception came first, the others only wait"},
    {Reason::kCrashed, "crashed", "start with this core: the signal's thread and its top frames"},
    {Reason::kWorkerDead, "has lost a worker process",
     "find out why the worker died: out of memory (kernel log), /dev/shm full, a crash in the data set"},
    {Reason::kCollectiveMismatch, "calls another collective",
     "compare the two call sites: a branch that depends on the rank, or one rank an iteration ahead"},
    {Reason::kProcessGroupOrder, "waits in a group out of turn",
     "let all ranks use their groups in the same order; the call sites are in the two stacks"},
    {Reason::kUnmatchedP2p, "waits for a message that nobody sends or takes",
     "compare the two call sites: the peer does no such send or receive at this point"},
    {Reason::kBehind, "is behind the others",
     "look at what this rank did in the steps that the others have finished: less or more data, a skipped or a "
     "repeated call"},
    {Reason::kStoreWait, "waits in the rendezvous store",
     "find the rank that has not arrived at this point, and check MASTER_ADDR and MASTER_PORT"},
    {Reason::kMissing, "is not there",
     "look for its process, its log and its machine: it has ended, never started, or was not looked at"},
};

// Advice if more is known from the GPUs. Sources: CUDA programming guide, "Asynchronous Concurrent Execution"; the
// manuals of compute-sanitizer and cuda-gdb.
constexpr std::string_view kKernelAdvice =
    "look again: if this kernel is still there, a loop or a wait in it does not end (--threads all shows where it is), "
    "or it has far more work than the others";
constexpr std::string_view kIdleGpuAdvice =
    "no kernel is there to wait for: look at what its stream waits for (a copy, an event, a host function), and for "
    "Xid errors in the kernel log";
constexpr std::string_view kGpuFaultAdvice =
    "start with this kernel and thread: run that step under compute-sanitizer, or with CUDA_LAUNCH_BLOCKING=1 to see "
    "who launches it";

constexpr std::string_view kGpuFailureAdvice =
    "the text is of this rank's own GPU work: run that step under compute-sanitizer, or with CUDA_LAUNCH_BLOCKING=1 to "
    "see which kernel it is; look for Xid errors (ECC, a lost GPU) in the kernel log";

// CUDA debugger documentation, "GPU core dump support".
constexpr std::string_view kNextGpuCoreAdvice =
    "; with CUDA_ENABLE_COREDUMP_ON_EXCEPTION=1 in its environment the driver writes a GPU core, from which rankstacks "
    "core tells the kernel, the thread and the address";

constexpr std::string_view kHolderAdvice =
    "look at the thread named, and at what keeps it: --threads all --rank shows every thread of this rank";

constexpr std::string_view kCircleAdvice =
    "look at the threads named, and at the order in which they take their locks: --threads all --rank shows every "
    "thread of this rank";
constexpr std::string_view kOwnLockAdvice =
    "it has locked it before, in a frame further out or in a call that has returned: unlock it there, or let one "
    "function "
    "lock it";
constexpr std::string_view kEndedHolderAdvice =
    "that thread has ended without unlocking it: look for a way out of the code between lock and unlock (an exception, "
    "a "
    "return, pthread_exit, a cancellation), and let a lock guard unlock it";

constexpr std::string_view kUnknownPeerAdvice =
    "find out which rank it sends to or receives from, and whether that one makes the matching call: the stacks do not "
    "show it";

constexpr std::string_view kSendRecvKernelAdvice =
    "the kernel is that of sends and receives, of which all-to-all, gather and scatter consist as well: find the last "
    "such call before the line shown, and whether the other ranks make the matching one";

constexpr std::string_view kLostThreadAdvice =
    "that thread has ended: look in this rank's output for the exception that ended it";

const Words* words_of(Reason reason) {
  for (const Words& words : kWords)
    if (words.reason == reason) return &words;
  return nullptr;
}

std::string in_brackets(const std::string& place, const std::string& block) {
  if (place.empty() && block.empty()) return "";
  if (place.empty()) return fmt::format(" ({})", block);
  if (block.empty()) return fmt::format(" ({})", place);
  return fmt::format(" ({}, {})", place, block);
}

// For a rank that waits for threads of its own: what these do. ", and its thread MsgRouter is in reader at
// service.py:7 (blocked in recv)"; "" if no thread or several threads qualify.
std::string describe_other_thread(const JobSnapshot& job, const RankSnapshot& rank, std::size_t waiting,
                                  std::size_t other) {
  const ThreadSnapshot& thread = rank.threads[other];
  const std::string name =
      thread.name.empty() || thread.name == rank.threads[waiting].name ? std::to_string(thread.tid) : thread.name;
  return fmt::format(", and its thread {} is in {}", name, describe_place(job, thread)) +
         in_brackets("", describe_block(job, thread));
}

std::string describe_other_thread(const JobSnapshot& job, const RankSnapshot& rank, std::size_t waiting) {
  const OtherThreads others = other_threads(job, rank, waiting);
  if (!others.in_user_code) return others.any_python ? "" : ", and it has no other Python thread";
  return describe_other_thread(job, rank, waiting, *others.in_user_code);
}

// If what the rank waits for is a process of the job that cannot run: its index.
std::optional<std::size_t> held_process(const JobSnapshot& job, const RankState& state) {
  const RankSnapshot& rank = job.ranks[state.rank];
  if (state.gpu_only || rank.threads.empty()) return std::nullopt;
  if (state.child && !held_word(job.ranks[*state.child]).empty()) return state.child;
  const RankSnapshot& caller = state.known_from_child ? job.ranks[*state.known_from_child] : rank;
  const auto& call = caller.threads[state.known_from_child ? state.child_thread : state.doing.thread].syscall;
  return call ? held_other_end(job, caller, *call) : std::nullopt;
}

// " with SIGSEGV at 0x10, in the first page: a null pointer with offset 16 (forward at model.py:7)"
std::string describe_signal(const JobSnapshot& job, const RankSnapshot& rank) {
  std::string text = fmt::format(" with {}", rank.signal->name);
  if (rank.signal->place) text += " " + describe_fault(*rank.signal);
  if (const std::string code = describe_instruction(*rank.signal); !code.empty()) text += ", in " + code;
  const std::string message = first_line_of_abort(rank);
  for (const ThreadSnapshot& thread : rank.threads) {
    if (thread.tid != rank.signal->tid) continue;
    const std::string why = thread.exception          ? describe_exception(*thread.exception)
                            : !message.empty()        ? message
                            : thread.raises           ? "has raised " + describe_with_origin(job, *thread.raises)
                            : handles_failure(thread) ? describe_failure(job, thread)
                                                      : "";
    return text + in_brackets(describe_place(job, thread), why);
  }
  return text + in_brackets("", message);
}

std::string describe_loader_worker(const JobSnapshot& job, const RankState& state) {
  const RankSnapshot& child = job.ranks[*state.known_from_child];
  const ThreadSnapshot& worker = child.threads[state.child_thread];
  return fmt::format("waits for its data pipeline: its loader worker, pid {}, is in {}", child.pid,
                     describe_place(job, worker)) +
         in_brackets("", describe_block(job, worker));
}

// " held by thread 4711 (save at model.py:7, blocked in write)", " held by thread 4711, which has ended", " that it
// holds itself"
std::string describe_lock_owner(const JobSnapshot& job, const RankSnapshot& rank, std::size_t waiting) {
  const ThreadSnapshot& thread = rank.threads[waiting];
  std::string text = *thread.lock_owner == thread.tid ? " that it holds itself"
                                                      : fmt::format(" held by thread {}", *thread.lock_owner);
  const auto owner = thread_with(rank, *thread.lock_owner);
  if (!owner) text += ", which has ended";
  else if (*owner != waiting)
    text += in_brackets(describe_place(job, rank.threads[*owner]), describe_block(job, rank.threads[*owner]));
  return text;
}

// ", and its threads 4711 (save() in solver) and 4712 (load() in solver) wait for each other's locks"; "" if there are
// no such threads.
std::string describe_circle(const JobSnapshot& job, const RankState& state) {
  constexpr std::size_t kMax = 4;
  const RankSnapshot& rank = job.ranks[state.rank];
  const std::vector<std::size_t> circle = circle_behind_native_wait(job, state);
  if (circle.empty()) return "";
  std::string names;
  for (std::size_t i = 0; i < std::min(circle.size(), kMax); ++i) {
    const ThreadSnapshot& thread = rank.threads[circle[i]];
    names += (i == 0                   ? ""
              : i + 1 == circle.size() ? " and "
                                       : ", ") +
             std::to_string(thread.tid) + in_brackets(describe_place(job, thread), "");
  }
  if (circle.size() == 1) return fmt::format(", and its thread {} waits for a lock that it holds itself", names);
  if (circle.size() > kMax) names += fmt::format(" and {} more", circle.size() - kMax);
  return fmt::format(", and its threads {} wait for each other's locks", names);
}

// What the core does not hold, of what decides between this reason and another one.
std::string_view not_in_core(const JobSnapshot& job, const RankState& state, Reason reason) {
  const RankSnapshot& rank = job.ranks[state.rank];
  if (rank.source != Source::kCore) return "";
  static constexpr std::array<std::string_view, 4> kOfAnyKind = {"read", "readv", "write", "writev"};
  const auto& call = rank.threads[state.doing.thread].syscall;
  if (reason == Reason::kUserCode && call && is_one_of(call->name, kOfAnyKind) && call->fd && !call->fd_target)
    return "; whether at a file, a pipe or a socket is not in the core";
  if (reason == Reason::kSubprocess && is_at_unknown_connection(job, state))
    return "; whether a child or another rank is there is not in the core";
  const bool has_children = std::any_of(job.ranks.begin(), job.ranks.end(),
                                        [&](const RankSnapshot& child) { return is_parent(rank, child); });
  const bool returns_at_its_end = call && is_one_of(call->name, kWaitCalls);
  if (reason == Reason::kSubprocess && !has_children && !returns_at_its_end)
    return "; whether the child is alive is not in the core";
  return "";
}

// Whether a suspect with that reason waits for other ranks itself.
bool is_wait_for_ranks(const RankState& state, Reason reason) {
  return reason == Reason::kCollectiveMismatch || reason == Reason::kStoreWait ||
         reason == Reason::kProcessGroupOrder || reason == Reason::kUnmatchedP2p ||
         (reason == Reason::kBehind && state.waits());
}

}  // namespace

std::string describe_child(const JobSnapshot& job, std::size_t index) {
  const RankSnapshot& child = job.ranks[index];
  const auto main = std::find_if(child.threads.begin(), child.threads.end(),
                                 [&](const ThreadSnapshot& t) { return t.tid == child.pid; });
  std::string text = fmt::format(": pid {}", child.pid);
  if (child.python_version && main != child.threads.end())
    if (const std::string place = describe_place(job, *main); !place.empty())
      return text + ", in " + place + in_brackets("", describe_block(job, *main));
  constexpr std::size_t kMax = 60;
  std::string command;
  for (const std::string& word : child.command) command += (command.empty() ? "" : " ") + word;
  if (command.size() > kMax) command = command.substr(0, kMax) + "...";
  const std::string_view held = held_word(child);
  if (!held.empty()) command += fmt::format("{}{}", command.empty() ? "" : ", ", held);
  return command.empty() ? text : text + " (" + command + ")";
}

std::string advice_for(Reason reason) {
  const Words* words = words_of(reason);
  return words ? std::string(words->advice) : "";
}

std::string advice_for(const JobSnapshot& job, const RankState& state, Reason reason) {
  const bool held_itself = reason == Reason::kStopped || reason == Reason::kFrozen || reason == Reason::kCrashed;
  if (const auto held = held_itself ? std::nullopt : held_process(job, state)) {
    const RankSnapshot& process = job.ranks[*held];
    const bool frozen = held_word(process) == "frozen";
    return fmt::format(
        "pid {0} is {1}: {2}", process.pid, held_word(process),
        frozen
            ? "thaw its control group"
            : fmt::format("continue it (kill -CONT {}), or let go of it in the debugger that holds it", process.pid));
  }
  if (reason == Reason::kCrashed && state.gpu.exception) return std::string(kGpuFaultAdvice);
  if (reason == Reason::kGpuWait && state.gpu.activity == GpuActivity::kKernel) return std::string(kKernelAdvice);
  if (reason == Reason::kGpuWait && state.gpu.activity == GpuActivity::kIdle) return std::string(kIdleGpuAdvice);
  if (reason == Reason::kWorkerDead && !state.lost_thread.empty()) return std::string(kLostThreadAdvice);
  if (reason == Reason::kPythonLock && describe_python_wait(job, job.ranks[state.rank], state.doing.thread))
    return std::string(kHolderAdvice);
  if (reason == Reason::kUnmatchedP2p && state.named_by_gpu && state.gpu.only_messages())
    return std::string(kSendRecvKernelAdvice);
  if (reason == Reason::kUnmatchedP2p && !state.peer && !state.peer_process && !state.recorded_only)
    return std::string(kUnknownPeerAdvice);
  if (reason == Reason::kNativeLock && !circle_behind_native_wait(job, state).empty())
    return std::string(kCircleAdvice);
  if (const auto wait = local_wait_of(job, state, reason)) return std::string(wait->advice);
  if (reason == Reason::kNativeLock && !state.gpu_only && !state.known_from_child) {
    const ThreadSnapshot& thread = job.ranks[state.rank].threads[state.doing.thread];
    if (thread.lock_owner == thread.tid) return std::string(kOwnLockAdvice);
    if (thread.lock_owner && !thread_with(job.ranks[state.rank], *thread.lock_owner))
      return std::string(kEndedHolderAdvice);
  }
  return advice_for(reason);
}

std::string describe_suspect(const JobSnapshot& job, const RankState& state, Reason reason) {
  const RankSnapshot& rank = job.ranks[state.rank];
  const Words* words = words_of(reason);
  std::string verb(words ? words->verb : "is elsewhere");
  if (reason == Reason::kCrashed && state.gpu.exception)
    return fmt::format("{} on its GPU: {}", verb, describe_exception(*state.gpu.exception));
  if (reason == Reason::kGpuWait)
    if (std::string gpu_wait = describe_gpu_wait(state); !gpu_wait.empty()) verb = std::move(gpu_wait);
  if (state.gpu_only) return verb;
  if (state.recorded_only) return state.recorded.empty() ? verb : "waits in " + state.recorded;
  if (reason == Reason::kWorkerDead && state.dead_child)
    verb += fmt::format(" (pid {}{})", job.ranks[*state.dead_child].pid,
                        describe_kernel_kills(job, job.ranks[*state.dead_child], state.rank));
  if (reason == Reason::kCrashed && rank.signal) return verb + describe_signal(job, rank);
  const bool waits = is_wait_for_ranks(state, reason);
  if (waits)
    verb = fmt::format("waits {}", describe_wait(state, static_cast<std::size_t>(rank.world_size.value_or(0))));
  const ThreadSnapshot& thread = rank.threads[state.doing.thread];
  if (state.known_from_child) return describe_loader_worker(job, state);
  if (state.holds_by_child)
    return "has a child process that holds a lock which another rank waits for" +
           describe_child(job, *state.holds_by_child);
  std::string block = describe_block(job, thread);
  const auto local_wait = local_wait_of(job, state, reason);
  if (local_wait) verb = local_wait->verb;
  if (reason == Reason::kWorkerDead && !state.lost_thread.empty()) {
    const auto on_thread = local_wait_of(job, state, Reason::kPythonLock);
    verb = on_thread ? on_thread->verb : state.lost_trainer ? "waits for requests" : "waits for a thread";
  }
  const auto python_wait =
      reason == Reason::kPythonLock ? describe_python_wait(job, rank, state.doing.thread) : std::nullopt;
  if (python_wait) verb = python_wait->verb;
  if (reason == Reason::kSubprocess && state.child) verb += describe_child(job, *state.child);
  const RunState run_state = run_state_of(job, thread);
  if (reason == Reason::kUserCode && run_state == RunState::kSleeping) {
    verb = "sleeps in its own code";
    block.clear();
  } else if (reason == Reason::kUserCode && run_state == RunState::kInCall && !local_wait) {
    verb = "is in its own code";
  }
  if (reason == Reason::kStopped || reason == Reason::kFrozen || waits) block.clear();
  if (reason == Reason::kException && thread.exception) block = describe_exception(*thread.exception);
  else if (reason == Reason::kException && handles_failure(thread)) block = describe_failure(job, thread);
  if (reason == Reason::kNativeLock && thread.lock_owner) verb += describe_lock_owner(job, rank, state.doing.thread);
  if (waits || reason == Reason::kBehind) {
    const std::string counter = describe_counter(state);
    if (!counter.empty()) block += (block.empty() ? "" : ", ") + counter;
  }
  std::string other = python_wait ? python_wait->holder : "";
  if (reason == Reason::kWorkerDead && !state.lost_thread.empty())
    other = fmt::format(", and has no thread in {} as the other ranks have", state.lost_thread);
  if (reason == Reason::kPythonLock && !python_wait && !(local_wait && is_between_processes(local_wait->kind)) &&
      rank.status == Status::kComplete)
    other = describe_other_thread(job, rank, state.doing.thread);
  if (local_wait && local_wait->kind == LocalWaitKind::kHooksFuture)
    if (const auto setter = setter_of_hooks_future(job, rank, state.doing.thread))
      other = describe_other_thread(job, rank, state.doing.thread, *setter);
  if (reason == Reason::kNativeLock) other = other.empty() ? describe_circle(job, state) : other;
  block += not_in_core(job, state, reason);
  return verb + in_brackets(describe_place(job, thread), block) + other;
}

std::string advice_for_gpu_failure(const RankSnapshot& rank) {
  const bool has_gpu_core =
      std::any_of(rank.gpus.begin(), rank.gpus.end(), [](const GpuSnapshot& gpu) { return gpu.execution.has_value(); });
  return std::string(kGpuFailureAdvice) + std::string(has_gpu_core ? "" : kNextGpuCoreAdvice);
}

std::string describe_gpu_failure(const ThreadSnapshot& thread) {
  return "ends by an error of its own GPU work" +
         in_brackets("", thread.exception ? describe_exception(*thread.exception) : "");
}

std::string describe_waiting(const JobSnapshot& job, const std::vector<RankState>& states) {
  std::vector<std::size_t> ranks;
  std::set<std::string> operations;
  for (const RankState& s : states) {
    if (!s.waits()) continue;
    ranks.push_back(s.rank);
    operations.insert(s.timed_out                    ? describe_work(*s.timed_out)
                      : s.gpu_wait_may_be_collective ? "their GPU"
                      : s.named_by_gpu               ? s.doing.operation.name + " on the GPU"
                                                     : s.doing.operation.name);
  }
  if (ranks.empty()) return "";
  std::string text = name_ranks(job, ranks) + (ranks.size() == 1 ? " waits " : " wait ");
  if (const auto work = common_work(states)) {
    const std::string time = describe_timeout(*work);
    return text + fmt::format("in {} ({}{}{})", describe_work(*work),
                              ranks.size() == 1 ? "its watchdog" : "their watchdogs", time.empty() ? "" : ", ", time);
  }
  if (operations.size() != 1) return text + "for the other ranks";
  if (*operations.begin() == "their GPU") return text + (ranks.size() == 1 ? "for its GPU" : "for their GPUs");
  return text + "in " + *operations.begin();
}

}  // namespace rankstacks::analyzers
