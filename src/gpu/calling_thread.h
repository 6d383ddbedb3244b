// Which thread of a process a function may be called on, and why the others not: from what /proc tells without stopping
// anything, and from what is seen of one that stands still.
//
// A thread can make the call that waits in the kernel in the middle of nothing that the call needs: in poll, a sleep, a
// read or on a condition variable, on its own stack with room below, outside of the driver, the loader and the
// allocator, with no rule of the kernel's that would end the call.
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
  kMainThread,   // the kernel gives it the process's signals first, its stack grows, and it may be anywhere in the
                 // program
  kEnded,
  kStopped,   // by SIGSTOP or a tracer: the driver's own threads stand still as well
  kTraced,
  kRunning,
  kUninterruptible,
  kOtherCall,   // a system call that may have a lock of the C library's held
  kLock,
  kShadowStack,   // a return to where no call was made is a fault there
  kSeccomp,   // a filter that other threads of the process do not have may end the process for a call of the driver's
  kUserDispatch,   // PR_SET_SYSCALL_USER_DISPATCH: the driver's system calls would be signals
  kRestartableSequence,
  kOtherStack,   // a signal stack, a coroutine's
  kLittleRoom,
  kDeepStack,   // more of it is in use than is looked through
  kDriver,
  kLoader,
  kAllocator,
  kSignalHandler,
  kUnknownCode,
  kMovedOn,   // between being chosen and being stopped
  kUnreadable,
};

struct Refused {
  Refusal why = Refusal::kMovedOn;
  std::string detail;   // "malloc of libc.so.6"; may be empty
};

// "waiting for a lock", "in the memory allocator (malloc of libc.so.6)": what the thread is or does.
std::string words_of(const Refused& refused);
// What a person can do; the same for all threads of a process where that is so.
const char* hint_of(Refusal refusal);
// It may be otherwise a moment later.
bool is_passing(Refusal refusal);

// What /proc/PID/task/TID/status says that decides.
struct ThreadStatus {
  char state = 0;
  Pid process = 0, tracer = 0;
  int seccomp = 0;   // 0 none, 1 strict, 2 filters
  int seccomp_filters = 0;   // how many; 1 where an older kernel does not count
  bool has_shadow_stack = false;
};
std::optional<ThreadStatus> parse_thread_status(std::string_view text);

// What a thread waits in, as /proc/PID/task/TID/syscall had it: it is the same wait if all of it is the same after the
// thread was stopped.
//
// Waits of poll and sleep, and those on a futex with a time-out, are restart_syscall once they were interrupted by a
// stop, as by this tool's own looks: what they were is told by the instruction that put the number into eax, where it
// stands right before the system call (not in glibc 2.41 and newer, which make all such calls at one place).
struct Wait {
  std::int64_t call = -1;
  Address sp = 0, pc = 0;
  std::uint64_t first = 0, second = 0;   // arguments
  friend bool operator==(const Wait&, const Wait&) = default;
  static Wait of(const Registers& r) { return {r.orig_rax, r.sp(), r.pc(), r[kRdi], r[kRsi]}; }
  bool is_at_the_place_of(const Wait& o) const {
    return sp == o.sp && pc == o.pc && first == o.first && second == o.second;
  }
};

struct Candidate {
  Tid tid = 0;
  int suitability = 0;   // more is better
  Wait wait;
  std::optional<std::int64_t> call{};   // what is to be begun again; nothing: restart_syscall, of what cannot be told
};
struct Candidates {
  std::vector<Candidate> threads;   // the most suitable first
  std::map<Tid, Refused> refused;
};
inline constexpr std::size_t kMaxThreads = 4096;   // that are asked about, at some 40 us each
Candidates candidates_of(Pid pid);

// Room below the red zone for the call: the vector state and the signal frame take 3 KiB, with AMX's tiles 12 KiB; the
// driver's function loads a library, in which the loader takes up to 20 KiB and the C library's file and name functions
// up to 64 KiB of their own. Twice that.
inline constexpr std::uint64_t kRoom = 128 * 1024;
inline constexpr std::uint64_t kMaxStack = 1024 * 1024;   // looked through while the thread stands still

// The part of a thread's own stack that it may use, up to its thread control block, which lies on top: glibc's struct
// pthread, whose words are given, says which block that is and how much of its lower end is guard (nptl/descr.h:
// stackblock, stackblock_size, guardsize). Without such words, the mapping that the control block is in. Nothing: it
// has none.
std::optional<Range> own_stack(Address control_block, std::span<const std::uint64_t> words,
                               std::span<const Mapping> mappings);

// Of a thread that stands still. `registers` with fs_base.
std::optional<Refused> refusal_of_stack(Pid pid, const Registers& registers, ProcessCode& code);

// Is `pc` inside of the restartable sequence whose `struct rseq_cs` is given (linux/rseq.h)?
struct RestartableSequence {
  std::uint32_t version = 0, flags = 0;
  std::uint64_t start = 0, length = 0, abort = 0;
  bool contains(Address pc) const { return pc - start < length; }
};

}   // namespace rankstacks::gpu
