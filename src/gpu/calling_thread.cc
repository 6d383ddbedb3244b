#include "gpu/calling_thread.h"

#include <fmt/format.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <algorithm>
#include <array>
#include <charconv>

#include "target/freezer.h"
#include "target/proc.h"
#include "target/syscalls.h"

namespace rankstacks::gpu {
namespace {

struct Words {
  Refusal why;
  const char* text;
  bool passing;
};
constexpr std::array kWords{
    Words{Refusal::kMainThread, "the main thread", false},
    Words{Refusal::kEnded, "ended", false},
    Words{Refusal::kFrozen, "frozen", false},
    Words{Refusal::kStopped, "stopped", false},
    Words{Refusal::kTraced, "traced by another process", false},
    Words{Refusal::kRunning, "running", true},
    Words{Refusal::kUninterruptible, "in an uninterruptible wait", true},
    Words{Refusal::kOtherCall, "in a system call that is no plain wait", true},
    Words{Refusal::kLock, "waiting for a lock", true},
    Words{Refusal::kShadowStack, "with a shadow stack", false},
    Words{Refusal::kSeccomp, "under a seccomp filter of its own", false},
    Words{Refusal::kUserDispatch, "with its system calls dispatched to user space", false},
    Words{Refusal::kRestartableSequence, "in a restartable sequence", true},
    Words{Refusal::kOtherStack, "on another stack than its own", true},
    Words{Refusal::kLittleRoom, "with less than 128 KiB left of its stack", false},
    Words{Refusal::kDeepStack, "with more than 1 MiB of its stack in use", false},
    Words{Refusal::kDriver, "in the GPU's driver", true},
    Words{Refusal::kLoader, "in the dynamic loader", true},
    Words{Refusal::kAllocator, "in the memory allocator", true},
    Words{Refusal::kSignalHandler, "in a signal handler", true},
    Words{Refusal::kUnknownCode, "in code whose file cannot be read", false},
    Words{Refusal::kMovedOn, "gone on before it was stopped", true},
    Words{Refusal::kUnreadable, "not to be read", false},
};
static_assert(kRoom == 128 * 1024 && kMaxStack == 1024 * 1024, "the words above name them");

const Words& line_of(Refusal why) {
  return *std::find_if(kWords.begin(), kWords.end(), [&](const Words& w) { return w.why == why; });
}

// How well a wait can be interrupted for a call and restarted. 0: not at all.
int suitability_of(std::int64_t call, std::uint64_t futex_operation) {
  // Restarted by the kernel itself.
  static constexpr std::array kRestarted{SYS_poll,      SYS_ppoll,           SYS_select, SYS_pselect6,
                                         SYS_nanosleep, SYS_clock_nanosleep, SYS_pause,  SYS_rt_sigsuspend,
                                         SYS_wait4,     SYS_waitid,          SYS_read,   SYS_accept,
                                         SYS_accept4,   SYS_recvfrom,        SYS_recvmsg};
  // The program sees EINTR (signal(7)).
  static constexpr std::array kInterrupted{SYS_epoll_wait, SYS_epoll_pwait, SYS_rt_sigtimedwait};
  if (std::find(kRestarted.begin(), kRestarted.end(), call) != kRestarted.end()) return 3;
  if (std::find(kInterrupted.begin(), kInterrupted.end(), call) != kInterrupted.end()) return 1;
  // Condition variables, semaphores and joins wait with a bit set (glibc 2.25 and later). Mutexes, malloc's and the
  // loader's among them, do not.
  constexpr std::uint64_t kWaitBitset = 9;
  return call == SYS_futex && (futex_operation & 0x7f) == kWaitBitset ? 2 : 0;
}

// The number in "mov $NUMBER,%eax; syscall" before `pc`, if it is one of the calls that the kernel restarts as
// restart_syscall.
std::optional<std::int64_t> restarted_call(Pid pid, Address pc) {
  struct [[gnu::packed]] {
    std::uint8_t mov;
    std::uint32_t number;
    std::uint16_t syscall;
  } code{};
  static_assert(sizeof code == 7);
  const iovec local{&code, sizeof code}, remote{reinterpret_cast<void*>(pc - sizeof code), sizeof code};
  if (process_vm_readv(pid, &local, 1, &remote, 1, 0) != static_cast<ssize_t>(sizeof code) || code.mov != 0xb8 ||
      code.syscall != 0x050f)
    return std::nullopt;
  const auto number = static_cast<std::int64_t>(code.number);
  if (number != SYS_poll && number != SYS_nanosleep && number != SYS_clock_nanosleep && number != SYS_futex)
    return std::nullopt;
  return number;
}

// How suitable the wait is; `call` as in Candidate. Without it, a wait of poll or a sleep counts as a plain wait, and a
// wait for a lock shows on the stack.
int suitability_of(const target::Registers& waiting, std::optional<std::int64_t> call) {
  return call ? suitability_of(*call, waiting[target::kRsi]) : 1;
}

std::optional<Refused> refusal_of(const ThreadStatus& status, const std::optional<target::Registers>& waiting,
                                  std::optional<std::int64_t> call) {
  if (status.tracer != 0) return Refused{Refusal::kTraced, fmt::format("pid {}", status.tracer)};
  if (status.state == 'T' || status.state == 't') return Refused{Refusal::kStopped, ""};
  if (status.state == 'Z' || status.state == 'X') return Refused{Refusal::kEnded, ""};
  if (status.state == 'D') return Refused{Refusal::kUninterruptible, ""};
  if (status.has_shadow_stack) return Refused{Refusal::kShadowStack, ""};
  if (status.seccomp == 1) return Refused{Refusal::kSeccomp, "strict"};
  if (!waiting || status.state != 'S') return Refused{Refusal::kRunning, ""};
  if (suitability_of(*waiting, call) != 0) return std::nullopt;
  if (call == SYS_futex) return Refused{Refusal::kLock, ""};
  const char* name = target::syscall_name(static_cast<int>(*call));
  return Refused{Refusal::kOtherCall, name != nullptr ? name : std::to_string(*call)};
}

// Returns how many bytes can be read there without a gap.
std::size_t read_stack(Pid pid, Address from, std::span<std::uint64_t> into) {
  const iovec local{into.data(), into.size_bytes()}, remote{reinterpret_cast<void*>(from), into.size_bytes()};
  const ssize_t got = process_vm_readv(pid, &local, 1, &remote, 1, 0);
  return got > 0 ? static_cast<std::size_t>(got) : 0;
}

// Reads one byte of every page of the range: guard pages of glibc 2.42 and newer (MADV_GUARD_INSTALL) lie inside a
// mapping.
bool all_pages_are_there(Pid pid, Range range) {
  constexpr std::uint64_t kPage = 4096;
  std::vector<iovec> remote;
  for (Address page = range.start & ~(kPage - 1); page < range.end; page += kPage)
    remote.push_back({reinterpret_cast<void*>(std::max(page, range.start)), 1});
  std::vector<std::byte> bytes(remote.size());
  const iovec local{bytes.data(), bytes.size()};
  return process_vm_readv(pid, &local, 1, remote.data(), remote.size(), 0) == static_cast<ssize_t>(bytes.size());
}

const target::Mapping* writable_mapping_of(Address a, std::span<const target::Mapping> mappings) {
  const auto it =
      std::find_if(mappings.begin(), mappings.end(), [&](const target::Mapping& m) { return m.range.contains(a); });
  return it != mappings.end() && it->readable && it->writable ? &*it : nullptr;
}

}  // namespace

std::string words_of(const Refused& refused) {
  const char* text = line_of(refused.why).text;
  return refused.detail.empty() ? text : fmt::format("{} ({})", text, refused.detail);
}

bool is_passing(Refusal refusal) { return line_of(refusal).passing; }

const char* hint_of(Refusal refusal) {
  switch (refusal) {
    case Refusal::kShadowStack:
      return "start it without shadow stacks (GLIBC_TUNABLES=glibc.cpu.x86_shstk=off), or use a driver since 590, "
             "which needs no thread";
    case Refusal::kFrozen: return "thaw its control group, then look again";
    case Refusal::kStopped: return "let it go on (SIGCONT), then look again";
    case Refusal::kTraced: return "a thread takes one tracer: end or detach the other one first";
    case Refusal::kMainThread:
      return "the process needs a thread of its own in addition to the main thread that waits, as torch's and NCCL's "
             "do; "
             "drivers since 590 need none";
    default:
      return "look again: it takes one thread, not the main thread, that waits in poll, a sleep, a read or on a "
             "condition variable; drivers since 590 need none";
  }
}

std::optional<ThreadStatus> parse_thread_status(std::string_view text) {
  ThreadStatus status;
  bool found = false, counted = false;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    const auto colon = line.find(':');
    if (colon == std::string_view::npos) continue;
    const std::string_view field = line.substr(0, colon);
    std::string_view value = line.substr(colon + 1);
    value.remove_prefix(std::min(value.size(), value.find_first_not_of(" \t")));
    const auto number = [&](auto& into) {
      return std::from_chars(value.data(), value.data() + value.size(), into).ec == std::errc();
    };
    if (field == "State" && !value.empty()) status.state = value.front();
    else if (field == "Tgid") found = number(status.process);
    else if (field == "TracerPid") number(status.tracer);
    else if (field == "Seccomp") number(status.seccomp);
    else if (field == "Seccomp_filters") counted = number(status.seccomp_filters);
    else if (field == "x86_Thread_features") {
      // "shstk wrss": words, each followed by a space (arch/x86/kernel/cpu/proc.c, dump_x86_features).
      while (!value.empty()) {
        const std::string_view word = value.substr(0, value.find(' '));
        status.has_shadow_stack = status.has_shadow_stack || word == "shstk";
        value.remove_prefix(std::min(value.size(), word.size() + 1));
      }
    }
  }
  if (!found || status.state == 0) return std::nullopt;
  if (!counted && status.seccomp == 2) status.seccomp_filters = 1;
  return status;
}

Candidates candidates_of(Pid pid) {
  Candidates found;
  std::vector<Tid> tids = target::proc::tasks_of(pid);
  if (tids.size() > kMaxThreads) tids.resize(kMaxThreads);
  const bool is_frozen = target::freeze_of(pid, pid).has_value();
  std::map<Tid, int> filters;
  int fewest = -1;
  for (const Tid tid : tids) {
    const auto text = target::proc::read_file(fmt::format("/proc/{}/task/{}/status", pid, tid));
    const auto status = text ? parse_thread_status(*text) : std::nullopt;
    if (!status) {
      found.refused[tid] = {Refusal::kEnded, ""};
      continue;
    }
    filters[tid] = status->seccomp_filters;
    if (fewest < 0 || status->seccomp_filters < fewest) fewest = status->seccomp_filters;
    if (tid == pid) {
      found.refused[tid] = {Refusal::kMainThread, ""};
      continue;
    }
    if (is_frozen) {
      found.refused[tid] = {Refusal::kFrozen, ""};
      continue;
    }
    const auto waiting = target::proc::waiting_registers(pid, tid);
    std::optional<std::int64_t> call;
    if (waiting)
      call = waiting->orig_rax == SYS_restart_syscall ? restarted_call(pid, waiting->pc())
                                                      : std::optional(waiting->orig_rax);
    if (const auto refused = refusal_of(*status, waiting, call)) found.refused[tid] = *refused;
    else found.threads.push_back({tid, suitability_of(*waiting, call), Wait::of(*waiting), call});
  }
  // New threads inherit filters, and filters are never removed: a thread that has more than another has sandboxed
  // itself.
  std::erase_if(found.threads, [&](const Candidate& c) {
    if (filters[c.tid] <= fewest) return false;
    found.refused[c.tid] = {Refusal::kSeccomp, fmt::format("{} filters, others have {}", filters[c.tid], fewest)};
    return true;
  });
  std::stable_sort(found.threads.begin(), found.threads.end(),
                   [](const Candidate& a, const Candidate& b) { return a.suitability > b.suitability; });
  return found;
}

std::optional<Range> own_stack(Address control_block, std::span<const std::uint64_t> words,
                               std::span<const target::Mapping> mappings) {
  // The control block and what is rounded up above it (glibc 2.36: 2,304 bytes and a page).
  constexpr std::uint64_t kMaxAbove = 64 * 1024, kLeastStack = 16 * 1024;  // PTHREAD_STACK_MIN
  const target::Mapping* mapping = writable_mapping_of(control_block, mappings);
  if (mapping == nullptr) return std::nullopt;
  for (std::size_t i = 0; i + 2 < words.size(); ++i) {
    const std::uint64_t start = words[i], size = words[i + 1], guard = words[i + 2];
    const std::uint64_t end = start + size;
    if (start == 0 || start >= control_block || end < start || end <= control_block ||
        end - control_block > kMaxAbove || size < kLeastStack || guard >= size)
      continue;
    if (start + guard >= control_block) continue;
    return Range{std::max(start + guard, mapping->range.start), control_block};
  }
  return Range{mapping->range.start, control_block};
}

std::optional<Refused> refusal_of_stack(Pid pid, const target::Registers& registers, ProcessCode& code) {
  std::array<std::uint64_t, 512> block{};  // struct pthread: 2,304 bytes in glibc 2.36, 1,808 in 2.17
  const std::size_t got = read_stack(pid, registers.fs_base, block) / sizeof(std::uint64_t);
  const auto stack = own_stack(registers.fs_base, std::span(block).first(got), code.mappings());
  const Address sp = registers.sp();
  if (!stack || !stack->contains(sp)) return Refused{Refusal::kOtherStack, ""};
  // The red zone is the thread's own.
  constexpr std::uint64_t kRedZone = 128;
  if (sp - stack->start < kRoom + kRedZone || !all_pages_are_there(pid, {sp - kRedZone - kRoom, sp}))
    return Refused{Refusal::kLittleRoom, ""};
  if (stack->end - sp > kMaxStack) return Refused{Refusal::kDeepStack, ""};
  std::vector<std::uint64_t> words((stack->end - sp) / sizeof(std::uint64_t));
  if (read_stack(pid, sp, words) != words.size() * sizeof(std::uint64_t)) return Refused{Refusal::kUnreadable, ""};
  const auto found = code.find(words, registers.pc());
  if (!found) return std::nullopt;
  switch (found->part) {
    case CodePart::kDriver: return Refused{Refusal::kDriver, found->where};
    case CodePart::kLoader: return Refused{Refusal::kLoader, found->where};
    case CodePart::kAllocator: return Refused{Refusal::kAllocator, found->where};
    case CodePart::kLock: return Refused{Refusal::kLock, found->where};
    case CodePart::kSignalHandler: return Refused{Refusal::kSignalHandler, ""};
    case CodePart::kUnknown: return Refused{Refusal::kUnknownCode, found->where};
  }
  return Refused{Refusal::kUnreadable, ""};
}

}  // namespace rankstacks::gpu
