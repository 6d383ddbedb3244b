#include "gpu/borrowed_thread.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cpuid.h>
#include <csignal>
#include <cstring>
#include <elf.h>
#include <fmt/format.h>
#include <span>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <time.h>
#include <vector>

#include "target/live_target.h"
#include "target/proc.h"

namespace rankstacks::gpu {
namespace {

using Clock = std::chrono::steady_clock;

// Linux arch/x86/include/uapi/asm/{ucontext,sigcontext}.h: what rt_sigreturn reads.
struct SignalContext {
  std::uint64_t r8, r9, r10, r11, r12, r13, r14, r15, rdi, rsi, rbp, rbx, rdx, rax, rcx, rsp, rip, rflags;
  std::uint16_t cs, gs, fs, ss;
  std::uint64_t error, trap, old_mask, cr2;
  std::uint64_t fpstate;                   // address of the saved vector state
  std::uint64_t reserved[8];
};
struct SignalFrame {
  std::uint64_t return_address;
  std::uint64_t flags, link;
  std::uint64_t stack_pointer;             // uc_stack
  std::uint32_t stack_flags, stack_padding;
  std::uint64_t stack_size;
  SignalContext context;
  std::uint64_t mask;
  std::byte info[128];
};
static_assert(sizeof(SignalContext) == 256 && offsetof(SignalFrame, context) == 48 && offsetof(SignalFrame, mask) == 304);

constexpr std::uint64_t kFpXstate = 1, kSigcontextSs = 2, kStrictRestoreSs = 4;   // UC_FP_XSTATE, UC_SIGCONTEXT_SS, UC_STRICT_RESTORE_SS
// No mode of sigaltstack: rt_sigreturn then leaves the thread's alternate stack as it is (kernel/signal.c, do_sigaltstack).
constexpr std::uint32_t kNoAlternateStackMode = 0x7f;
constexpr std::uint32_t kXstateMagic1 = 0x46505853, kXstateMagic2 = 0x46505845;
constexpr std::size_t kSoftwareBytes = 464;   // of the FXSAVE area: struct _fpx_sw_bytes; NT_X86_XSTATE has the feature mask there
struct SoftwareBytes {
  std::uint32_t magic1, extended_size;
  std::uint64_t features;
  std::uint32_t size, padding[7];
};
constexpr std::size_t kComponentsInUse = 512;   // XSTATE_BV, in the XSAVE header
constexpr std::size_t kLegacyXsave = 576;       // FXSAVE area and header
// AMX tiles: in every feature mask of a machine that has them, but in the frame of a process only once it was given them.
constexpr std::uint64_t kTiles = 3ull << 17;
constexpr std::uint64_t kDirection = 0x400, kTrap = 0x100;
constexpr std::uint64_t kRedZone = 128;
// Kernel-internal results of a system call that a signal has interrupted (include/linux/errno.h): seen by tracers alone.
constexpr std::int64_t kRestartFirst = -516, kRestartLast = -512, kRestartNotOne = -515;

Error failed(Pid pid, Tid tid, ErrorCode code, std::string what, int os_errno = 0) {
  return {.code = code, .subject = fmt::format("pid {} tid {}", pid, tid), .what = std::move(what), .os_errno = os_errno};
}

std::uint64_t word_at(const std::vector<std::byte>& bytes, std::size_t at) {
  std::uint64_t word = 0;
  std::memcpy(&word, bytes.data() + at, sizeof word);
  return word;
}

// Where the last of these components ends in XSAVE's standard format (CPUID leaf 0xd). The kernel restores nothing but FXSAVE's part of a frame that
// claims to be longer than the process's (arch/x86/kernel/fpu/signal.c, check_xstate_in_sigframe).
std::size_t xsave_size(std::uint64_t features) {
  std::size_t size = kLegacyXsave;
  for (unsigned i = 2; i < 63; ++i) {
    unsigned length = 0, offset = 0, c = 0, d = 0;
    if ((features >> i & 1) != 0 && __get_cpuid_count(0xd, i, &length, &offset, &c, &d) != 0) size = std::max<std::size_t>(size, std::size_t{offset} + length);
  }
  return size;
}

void pause_briefly() {
  const timespec pause{0, 50'000};
  nanosleep(&pause, nullptr);
}

// The thread's next stop; nothing once `until` has passed. An ended thread: status of its end.
std::optional<int> next_stop(Tid tid, Clock::time_point until) {
  while (true) {
    int status = 0;
    const pid_t got = waitpid(tid, &status, __WALL | WNOHANG);
    if (got == tid) return status;
    if (got < 0 && errno != EINTR) return 0;   // not ours any more: as if it had exited with 0
    if (Clock::now() > until) return std::nullopt;
    pause_briefly();
  }
}

bool is_event_stop(int status) { return WIFSTOPPED(status) && status >> 16 == PTRACE_EVENT_STOP; }
constexpr int kSyscallStop = SIGTRAP | 0x80;   // with PTRACE_O_TRACESYSGOOD

class Borrowed {
 public:
  Borrowed(Pid pid, Tid tid) : pid_(pid), tid_(tid) {}
  Borrowed(const Borrowed&) = delete;
  Borrowed& operator=(const Borrowed&) = delete;
  ~Borrowed() { let_go(); }

  Result<void> seize() {
    if (ptrace(PTRACE_SEIZE, tid_, nullptr, reinterpret_cast<void*>(PTRACE_O_TRACESYSGOOD)) != 0) return fail(attach_error(pid_, errno));
    held_ = true;
    if (ptrace(PTRACE_INTERRUPT, tid_, nullptr, nullptr) != 0) return fail(failed(pid_, tid_, ErrorCode::kGone, "cannot be interrupted", errno));
    return stop_within(std::chrono::milliseconds(500));
  }

  // Until it stands still with no signal under way; signals that come first are passed on.
  Result<void> stop_within(std::chrono::milliseconds limit) {
    const auto until = Clock::now() + limit;
    while (true) {
      const auto status = next_stop(tid_, until);
      if (!status) return fail(failed(pid_, tid_, ErrorCode::kTimeout, fmt::format("did not stop within {} ms", limit.count())));
      if (!WIFSTOPPED(*status)) return gone();
      if (is_event_stop(*status)) return {};
      const int signal = WSTOPSIG(*status) == kSyscallStop ? 0 : WSTOPSIG(*status);
      // Any other stop takes the place of the one that was asked for (kernel/signal.c, ptrace_stop): it is asked for again.
      if (ptrace(PTRACE_CONT, tid_, nullptr, static_cast<long>(signal)) != 0 || ptrace(PTRACE_INTERRUPT, tid_, nullptr, nullptr) != 0) return gone();
    }
  }

  Result<void> read_state() {
    iovec general{&registers_, sizeof registers_};
    if (ptrace(PTRACE_GETREGSET, tid_, reinterpret_cast<void*>(NT_PRSTATUS), &general) != 0) return state_error("registers");
    if (general.iov_len != sizeof registers_) return fail(failed(pid_, tid_, ErrorCode::kUnsupported, "is a 32-bit thread"));
    vector_.resize(64 * 1024);
    iovec vector{vector_.data(), vector_.size()};
    if (ptrace(PTRACE_GETREGSET, tid_, reinterpret_cast<void*>(NT_X86_XSTATE), &vector) != 0) return state_error("vector registers");
    vector_.resize(vector.iov_len);
    if (vector_.size() < kLegacyXsave) return fail(failed(pid_, tid_, ErrorCode::kUnsupported, "has no XSAVE state"));
    if (ptrace(PTRACE_GETSIGMASK, tid_, reinterpret_cast<void*>(sizeof mask_), &mask_) != 0) return state_error("signal mask");
    return {};
  }

  Result<void> begin(Address function, Address trampoline) {
    // The vector state as the kernel lays it below a signal frame: its size and features in the software bytes, a second magic behind it.
    std::vector<std::byte> saved = vector_;
    const std::uint64_t features = word_at(saved, kSoftwareBytes) & ~(kTiles & ~word_at(saved, kComponentsInUse));
    saved.resize(std::min(saved.size(), xsave_size(features)));
    const auto size = static_cast<std::uint32_t>(saved.size());
    const SoftwareBytes software{.magic1 = kXstateMagic1, .extended_size = size + 4, .features = features, .size = size, .padding = {}};
    std::memcpy(saved.data() + kSoftwareBytes, &software, sizeof software);
    saved.resize(saved.size() + 4);
    std::memcpy(saved.data() + size, &kXstateMagic2, 4);

    const Address vector_at = (registers_.rsp - kRedZone - saved.size()) & ~std::uint64_t{63};
    frame_at_ = ((vector_at - sizeof(SignalFrame)) & ~std::uint64_t{15}) - 8;   // as at any function's first instruction: rsp + 8 is a multiple of 16
    trampoline_ = trampoline;

    SignalFrame frame{};
    frame.return_address = trampoline;
    frame.flags = kFpXstate | kSigcontextSs | kStrictRestoreSs;
    frame.stack_flags = kNoAlternateStackMode;
    frame.mask = mask_;
    SignalContext& c = frame.context;
    const user_regs_struct& r = registers_;
    c = {r.r8, r.r9, r.r10, r.r11, r.r12, r.r13, r.r14, r.r15, r.rdi, r.rsi, r.rbp, r.rbx, r.rdx, r.rax, r.rcx, r.rsp, r.rip, r.eflags,
         static_cast<std::uint16_t>(r.cs), 0, 0, static_cast<std::uint16_t>(r.ss), 0, 0, 0, 0, vector_at, {}};
    const auto result = static_cast<std::int64_t>(r.rax);
    if (static_cast<std::int64_t>(r.orig_rax) >= 0 && result >= kRestartFirst && result <= kRestartLast && result != kRestartNotOne) {
      c.rax = r.orig_rax;                  // what the kernel does itself before a system call is begun again
      c.rip = r.rip - 2;                   // the `syscall` instruction
    }
    if (!write(vector_at, saved) || !write(frame_at_, std::as_bytes(std::span(&frame, 1)))) return fail(failed(pid_, tid_, ErrorCode::kUnreadable, "cannot write to its stack", errno));

    user_regs_struct call = registers_;
    call.rip = function;
    call.rsp = frame_at_;
    call.rax = 0;
    call.orig_rax = ~0ull;                 // no system call that the kernel would begin again
    call.eflags &= ~(kDirection | kTrap);
    return set(call);
  }

  // Runs until it asks the kernel to restore it.
  Result<void> run(std::chrono::milliseconds limit) {
    const auto until = Clock::now() + limit;
    long signal = 0;
    while (true) {
      if (ptrace(PTRACE_SYSCALL, tid_, nullptr, signal) != 0) return gone();
      signal = 0;
      const auto status = next_stop(tid_, until);
      if (!status) return give_up(fmt::format("the call did not come back within {} ms", limit.count()));
      if (!WIFSTOPPED(*status)) return gone();
      const int stop = WSTOPSIG(*status);
      if (is_event_stop(*status)) continue;
      if (stop != kSyscallStop) {
        // Its own fault: nobody's handler is to see it. Other signals are the program's, and their handlers run as they would have.
        if (stop == SIGSEGV || stop == SIGBUS || stop == SIGILL || stop == SIGFPE) return put_back(fmt::format("the call ended by signal {}", stop), ErrorCode::kUnreadable);
        signal = stop;
        continue;
      }
      user_regs_struct now{};
      if (!get(now)) return gone();
      if (now.orig_rax == SYS_rt_sigreturn && now.rsp == frame_at_ + 8) return {};
    }
  }

 private:
  Result<void> gone() { return fail(failed(pid_, tid_, ErrorCode::kGone, "it ended meanwhile")); }
  Result<void> state_error(const char* what) { return fail(failed(pid_, tid_, ErrorCode::kGone, fmt::format("cannot read its {}", what), errno)); }
  bool get(user_regs_struct& into) const {
    iovec vector{&into, sizeof into};
    return ptrace(PTRACE_GETREGSET, tid_, reinterpret_cast<void*>(NT_PRSTATUS), &vector) == 0;
  }
  Result<void> set(user_regs_struct& from) {
    iovec vector{&from, sizeof from};
    if (ptrace(PTRACE_SETREGSET, tid_, reinterpret_cast<void*>(NT_PRSTATUS), &vector) != 0) return fail(failed(pid_, tid_, ErrorCode::kGone, "cannot set its registers", errno));
    return {};
  }
  bool write(Address at, std::span<const std::byte> bytes) const {
    const iovec local{const_cast<std::byte*>(bytes.data()), bytes.size()}, remote{reinterpret_cast<void*>(at), bytes.size()};
    return process_vm_writev(pid_, &local, 1, &remote, 1, 0) == static_cast<ssize_t>(bytes.size());
  }

  Result<void> give_up(std::string why) {
    ptrace(PTRACE_INTERRUPT, tid_, nullptr, nullptr);
    if (auto stopped = stop_within(std::chrono::milliseconds(500)); !stopped) return stopped;
    return put_back(std::move(why), ErrorCode::kTimeout);
  }

  // To the trampoline, from wherever it is.
  Result<void> put_back(std::string why, ErrorCode code) {
    user_regs_struct now{};
    if (!get(now)) return gone();
    now.rip = trampoline_;
    now.rsp = frame_at_ + 8;
    now.orig_rax = ~0ull;
    if (auto done = set(now); !done) return done;
    return fail(failed(pid_, tid_, code, std::move(why)));
  }

  void let_go() {
    if (!held_) return;
    // Detaching needs a stop; a thread that could not be stopped runs on and is let go when this thread ends.
    ptrace(PTRACE_DETACH, tid_, nullptr, nullptr);
    held_ = false;
  }

  Pid pid_;
  Tid tid_;
  bool held_ = false;
  user_regs_struct registers_{};
  std::vector<std::byte> vector_;
  std::uint64_t mask_ = 0;
  Address frame_at_ = 0, trampoline_ = 0;
};

// How well a thread can be borrowed, by the system call that it waits in. 0: not at all.
int suitability(const Registers& waiting) {
  static constexpr std::array kWaits{SYS_poll, SYS_ppoll, SYS_epoll_wait, SYS_epoll_pwait, SYS_select, SYS_pselect6, SYS_accept, SYS_accept4, SYS_nanosleep, SYS_clock_nanosleep,
                                     SYS_pause, SYS_rt_sigsuspend, SYS_rt_sigtimedwait, SYS_wait4, SYS_waitid, SYS_read, SYS_recvfrom, SYS_recvmsg};
  const std::int64_t number = waiting.orig_rax;
  if (std::find(kWaits.begin(), kWaits.end(), number) != kWaits.end()) return 2;
  if (number != SYS_futex) return 0;
  // Condition variables, semaphores and joins wait with a bit set (glibc 2.25 and later). Locks, malloc's among them, do not.
  const auto operation = waiting[kRsi] & 0x7f;
  return operation == 9 ? 1 : 0;           // FUTEX_WAIT_BITSET
}

// Where the driver and its debug engine have their code.
std::vector<Range> driver_code(Pid pid) {
  std::vector<Range> code;
  const auto maps = proc::read_file(fmt::format("/proc/{}/maps", pid));
  if (!maps) return code;
  for (const Mapping& mapping : proc::parse_maps(*maps))
    if (mapping.executable && mapping.path.find("/libcuda") != std::string::npos && mapping.path.find("/libcudart") == std::string::npos) code.push_back(mapping.range);
  return code;
}

// A thread of the driver's, or one that is in a call of it: return addresses into it lie near the top of its stack.
bool is_in_driver(Pid pid, Address sp, std::span<const Range> code) {
  std::array<Address, 1024> stack{};
  const iovec local{stack.data(), sizeof stack}, remote{reinterpret_cast<void*>(sp), sizeof stack};
  const ssize_t got = process_vm_readv(pid, &local, 1, &remote, 1, 0);
  if (got <= 0) return true;
  const std::span<const Address> words(stack.data(), static_cast<std::size_t>(got) / sizeof(Address));
  return std::any_of(words.begin(), words.end(), [&](Address word) { return std::any_of(code.begin(), code.end(), [&](const Range& r) { return word >= r.start && word < r.end; }); });
}

}  // namespace

Tid thread_to_borrow(Pid pid) {
  const std::vector<Range> code = driver_code(pid);
  Tid best = pid;
  int best_yet = 0;
  for (const Tid tid : proc::tasks_of(pid)) {
    const auto waiting = proc::waiting_registers(pid, tid);
    const int fit = waiting ? suitability(*waiting) : 0;
    if (fit <= best_yet) continue;
    // The driver's own threads and its debug engine's, whose names are any thread's: attaching waits for them to go on.
    if (is_in_driver(pid, waiting->sp(), code)) continue;
    best = tid;
    best_yet = fit;
  }
  return best;
}

Result<Address> signal_trampoline_of(Pid pid) {
  static constexpr std::array<unsigned char, 9> kGlibc{0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05};   // mov $15,%rax; syscall
  static constexpr std::array<unsigned char, 7> kMusl{0xb8, 0x0f, 0, 0, 0, 0x0f, 0x05};                // mov $15,%eax; syscall
  const auto maps = proc::read_file(fmt::format("/proc/{}/maps", pid));
  if (!maps) return fail(maps.error());
  for (const Mapping& mapping : proc::parse_maps(*maps)) {
    if (!mapping.executable || (mapping.path.find("/libc.so") == std::string::npos && mapping.path.find("/libc-2") == std::string::npos &&
                                mapping.path.find("/ld-musl") == std::string::npos && mapping.path.find("/libpthread") == std::string::npos))
      continue;
    std::vector<unsigned char> code(std::min<std::uint64_t>(mapping.range.end - mapping.range.start, 8u << 20));
    const iovec local{code.data(), code.size()}, remote{reinterpret_cast<void*>(mapping.range.start), code.size()};
    const ssize_t got = process_vm_readv(pid, &local, 1, &remote, 1, 0);
    if (got <= 0) continue;
    code.resize(static_cast<std::size_t>(got));
    for (const std::span<const unsigned char> pattern : {std::span<const unsigned char>(kGlibc), std::span<const unsigned char>(kMusl)}) {
      const auto at = std::search(code.begin(), code.end(), pattern.begin(), pattern.end());
      if (at != code.end()) return mapping.range.start + static_cast<Address>(at - code.begin());
    }
  }
  return fail({.code = ErrorCode::kUnsupported, .subject = fmt::format("pid {}", pid), .what = "no signal trampoline was found in its C library"});
}

Result<BorrowedCall> call_in(Pid pid, Tid tid, Address function, Address trampoline, std::chrono::milliseconds limit) {
  const auto start = Clock::now();
  {
    Borrowed thread(pid, tid);
    if (auto done = thread.seize(); !done) return fail(done.error());
    if (auto done = thread.read_state(); !done) return fail(done.error());
    if (auto done = thread.begin(function, trampoline); !done) return fail(done.error());
    if (auto done = thread.run(limit); !done) return fail(done.error());
  }
  return BorrowedCall{std::chrono::duration<double, std::milli>(Clock::now() - start).count()};
}

}  // namespace rankstacks::gpu
