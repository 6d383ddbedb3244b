// Which thread of a process can make an inferior call, and why the others cannot. This is decided from what /proc shows
// without stopping anything, and from what a paused thread shows.
//
// A thread can make the call if it waits in the kernel, in the middle of nothing that the call needs: in poll, a sleep,
// a read or on a condition variable; on its own stack, with room below; outside of the driver, the loader and the
// allocator; and with no rule of the kernel that would end the call.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/types.h"
#include "gpu/thread_code.h"
#include "target/modules.h"
#include "target/registers.h"

namespace rankstacks::gpu {

// Why a thread is not used for the call.
enum class Refusal : std::uint8_t {
  kMainThread,  // the kernel gives it the process's signals first, its stack grows, and it may be anywhere in the
                // program
  kEnded,
  kFrozen,   // by its control group: it would not run the call until it is thawed
  kStopped,  // by SIGSTOP or a tracer: the driver's own threads are stopped as well
  kTraced,
  kRunning,
  kUninterruptible,
  kOtherCall,  // a system call during which a lock of the C library may be held
  kLock,
  kShadowStack,   // a return without a matching call is a fault there
  kSeccomp,       // a filter that other threads of the process lack may end the process for a system call of the driver
  kUserDispatch,  // PR_SET_SYSCALL_USER_DISPATCH: the driver's system calls would become signals
  kRestartableSequence,
  kOtherStack,  // a signal stack, a coroutine's
  kLittleRoom,
  kDeepStack,  // more of it is in use than is scanned
  kDriver,
  kLoader,
  kAllocator,
  kSignalHandler,
  kUnknownCode,
  kMovedOn,  // between the choice and the stop
  kUnreadable,
};

struct Refused {
  Refusal why = Refusal::kMovedOn;
  std::string detail;  // "malloc of libc.so.6"; may be empty
};

// "waiting for a lock", "in the memory allocator (malloc of libc.so.6)": what the thread is or does.
std::string words_of(const Refused& refused);
// What a user can do about it.
const char* hint_of(Refusal refusal);
// Whether the reason may be gone a moment later.
bool is_passing(Refusal refusal);

// The fields of /proc/PID/task/TID/status on which the decision depends.
struct ThreadStatus {
  char state = 0;
  Pid process = 0, tracer = 0;
  int seccomp = 0;          // 0 none, 1 strict, 2 filters
  int seccomp_filters = 0;  // number of filters; 1 where an older kernel does not count them
  bool has_shadow_stack = false;
};
std::optional<ThreadStatus> parse_thread_status(std::string_view text);

// What a thread waits in, as /proc/PID/task/TID/syscall showed it. It is the same wait if all fields are the same after
// the thread was stopped.
//
// Waits of poll and sleep, and futex waits with a time-out, become restart_syscall once a stop has interrupted them, as
// this tool's own samples do. Which call it was is known from the instruction that put the number into eax, if that is
// right before the system call (it is not in glibc 2.41 and newer, which make all such calls at one place).
struct Wait {
  std::int64_t call = -1;
  Address sp = 0, pc = 0;
  std::uint64_t first = 0, second = 0;  // arguments
  friend bool operator==(const Wait&, const Wait&) = default;
  static Wait of(const target::Registers& r) { return {r.orig_rax, r.sp(), r.pc(), r[target::kRdi], r[target::kRsi]}; }
  bool is_at_the_place_of(const Wait& o) const {
    return sp == o.sp && pc == o.pc && first == o.first && second == o.second;
  }
};

struct Candidate {
  Tid tid = 0;
  int suitability = 0;  // higher is better
  Wait wait;
  std::optional<std::int64_t> call{};  // the call to restart; std::nullopt: restart_syscall, original call unknown
};
struct Candidates {
  std::vector<Candidate> threads;  // the most suitable first
  std::map<Tid, Refused> refused;
};
inline constexpr std::size_t kMaxThreads = 4096;  // that are examined, at some 40 us each
Candidates candidates_of(Pid pid);

// Room below the red zone for the call: the vector state and the signal frame take 3 KiB, with AMX's tiles 12 KiB. The
// driver's function loads a library; for that the loader takes up to 20 KiB, and the C library's file and name
// functions take up to 64 KiB. kRoom is twice these 64 KiB.
inline constexpr std::uint64_t kRoom = 128 * 1024;
inline constexpr std::uint64_t kMaxStack = 1024 * 1024;  // scanned at most, while the thread is paused

// The part of a thread's own stack that it may use, up to its thread control block, which lies on top. The control
// block is glibc's struct pthread; `words` are its contents, which give the stack's block and the size of the guard at
// its lower end (nptl/descr.h: stackblock, stackblock_size, guardsize). Without such words it is the mapping that
// contains the control block. std::nullopt if the thread has none.
std::optional<Range> own_stack(Address control_block, std::span<const std::uint64_t> words,
                               std::span<const target::Mapping> mappings);

// For a paused thread. `registers` must include fs_base.
std::optional<Refused> refusal_of_stack(Pid pid, const target::Registers& registers, ProcessCode& code);

// Whether `pc` is inside the restartable sequence whose `struct rseq_cs` is given (linux/rseq.h).
struct RestartableSequence {
  std::uint32_t version = 0, flags = 0;
  std::uint64_t start = 0, length = 0, abort = 0;
  bool contains(Address pc) const { return pc - start < length; }
};

}  // namespace rankstacks::gpu
