#include "gpu/inferior_call.h"

#include <cpuid.h>
#include <elf.h>
#include <fmt/format.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gpu/calling_thread.h"
#include "gpu/thread_code.h"
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
  std::uint64_t fpstate;  // address of the saved vector state
  std::uint64_t reserved[8];
};
struct SignalFrame {
  std::uint64_t return_address;
  std::uint64_t flags, link;
  std::uint64_t stack_pointer;  // uc_stack
  std::uint32_t stack_flags, stack_padding;
  std::uint64_t stack_size;
  SignalContext context;
  std::uint64_t mask;
  std::byte info[128];
};
static_assert(sizeof(SignalContext) == 256 && offsetof(SignalFrame, context) == 48 &&
              offsetof(SignalFrame, mask) == 304);

// UC_FP_XSTATE, UC_SIGCONTEXT_SS, UC_STRICT_RESTORE_SS
constexpr std::uint64_t kFpXstate = 1, kSigcontextSs = 2, kStrictRestoreSs = 4;
// No mode of sigaltstack: rt_sigreturn then leaves the thread's alternate stack as it is (kernel/signal.c,
// do_sigaltstack).
constexpr std::uint32_t kNoAlternateStackMode = 0x7f;
constexpr std::uint32_t kXstateMagic1 = 0x46505853, kXstateMagic2 = 0x46505845;
// Of the FXSAVE area: struct _fpx_sw_bytes; NT_X86_XSTATE has the feature mask there.
constexpr std::size_t kSoftwareBytes = 464;
struct SoftwareBytes {
  std::uint32_t magic1, extended_size;
  std::uint64_t features;
  std::uint32_t size, padding[7];
};
constexpr std::size_t kComponentsInUse = 512;  // XSTATE_BV, in the XSAVE header
constexpr std::size_t kLegacyXsave = 576;      // FXSAVE area and header
// AMX tiles: in every feature mask of a machine that has them, but in a process's frame only once the process was
// granted them.
constexpr std::uint64_t kTiles = 3ull << 17;
constexpr std::uint64_t kDirection = 0x400, kTrap = 0x100;
constexpr std::uint64_t kRedZone = 128;
// Kernel-internal results of a system call that a signal has interrupted (include/linux/errno.h): only tracers see
// them. kRestartNotOne lies in their range, but is no such result.
constexpr std::int64_t kRestartFirst = -516, kRestartLast = -512, kRestartNotOne = -515;
constexpr std::int64_t kRestartBlock = -516, kRestartNoHandler = -514;
// The signals of a thread's own faults stay unblocked: the kernel forces a blocked one, and then resets the process's
// handler for it (force_sig_info_to_task).
constexpr std::uint64_t bit(int signal) { return std::uint64_t{1} << (signal - 1); }
constexpr std::uint64_t kFaults = bit(SIGSEGV) | bit(SIGBUS) | bit(SIGILL) | bit(SIGFPE) | bit(SIGTRAP) | bit(SIGSYS);
constexpr std::uint64_t kAllButFaults = ~kFaults;
// Linux 5.13 and 6.4 (include/uapi/linux/ptrace.h); not in the headers of Debian 11.
constexpr int kGetRseqConfiguration = 0x420f, kGetUserDispatch = 0x4211;
struct RseqConfiguration {
  std::uint64_t pointer;
  std::uint32_t size, signature, flags, padding;
};
struct UserDispatch {
  std::uint64_t mode, selector, offset, length;
};
constexpr std::uint64_t kSequenceInRseq = 8;  // struct rseq: rseq_cs

constexpr auto kStopTimeout = std::chrono::milliseconds(500);
// For the way from the end of the function back to where the thread was.
constexpr auto kReturnTimeout = std::chrono::milliseconds(500);
// For how long threads are tried again if the reason against them may pass.
constexpr auto kChoiceTimeout = std::chrono::milliseconds(1000);
constexpr auto kPause = std::chrono::milliseconds(20);
// How many threads are stopped for examination at most: each stop makes a wait restart.
constexpr std::size_t kMaxStopped = 64;
constexpr std::size_t kMaxReasons = 4;

std::uint64_t word_at(const std::vector<std::byte>& bytes, std::size_t at) {
  std::uint64_t word = 0;
  std::memcpy(&word, bytes.data() + at, sizeof word);
  return word;
}

// Where the last of these components ends in XSAVE's standard format (CPUID leaf 0xd). If a frame claims to be longer
// than the process's own, the kernel restores only FXSAVE's part of it (arch/x86/kernel/fpu/signal.c,
// check_xstate_in_sigframe).
std::size_t xsave_size(std::uint64_t features) {
  std::size_t size = kLegacyXsave;
  for (unsigned i = 2; i < 63; ++i) {
    unsigned length = 0, offset = 0, c = 0, d = 0;
    if ((features >> i & 1) != 0 && __get_cpuid_count(0xd, i, &length, &offset, &c, &d) != 0)
      size = std::max<std::size_t>(size, std::size_t{offset} + length);
  }
  return size;
}

void pause_briefly() {
  const timespec pause{0, 50'000};
  nanosleep(&pause, nullptr);
}

// The thread's next stop; std::nullopt if there is none before `until`. If the thread has ended: the status of its end.
std::optional<int> next_stop(Tid tid, Clock::time_point until) {
  while (true) {
    int status = 0;
    const pid_t got = waitpid(tid, &status, __WALL | WNOHANG);
    if (got == tid) return status;
    if (got < 0 && errno != EINTR) return 0;  // not ours any more: as if it had exited with 0
    if (Clock::now() > until) return std::nullopt;
    pause_briefly();
  }
}

bool is_event_stop(int status) { return WIFSTOPPED(status) && status >> 16 == PTRACE_EVENT_STOP; }
constexpr int kSyscallStop = SIGTRAP | 0x80;  // with PTRACE_O_TRACESYSGOOD

bool is_interrupted(const user_regs_struct& r) {
  const auto result = static_cast<std::int64_t>(r.rax);
  return static_cast<std::int64_t>(r.orig_rax) >= 0 &&
         ((result >= kRestartFirst && result <= kRestartLast && result != kRestartNotOne) || result == -EINTR);
}

// An attempt on one thread: either it was refused and is untouched, or it was called, with whatever result.
struct Attempt {
  std::optional<Refused> refused;
  Result<void> called;
};

class CallingThread {
 public:
  CallingThread(const target::ProcessId& process, Tid tid) : process_(process), pid_(process.pid), tid_(tid) {}
  CallingThread(const CallingThread&) = delete;
  CallingThread& operator=(const CallingThread&) = delete;
  ~CallingThread() { let_go(); }

  Attempt call(const Candidate& candidate, ProcessCode& code, Address function, Address trampoline,
               std::chrono::milliseconds limit, const std::function<bool()>& about_to_call) {
    call_ = candidate.call;
    if (auto refused = seize(); refused || error_) return {std::move(refused), outcome()};
    if (auto refused = refusal(candidate.wait, code); refused || error_) return {std::move(refused), outcome()};
    if (about_to_call && !about_to_call())
      return {
          std::nullopt,
          fail(error(ErrorCode::kGone,
                     "it is not called: the process that asked for it has ended, or it runs another program by now"))};
    if (auto done = begin(function, trampoline); !done) return {std::nullopt, std::move(done)};
    return {std::nullopt, run(limit)};
  }

 private:
  Result<void> outcome() const { return error_ ? Result<void>(fail(*error_)) : Result<void>(); }
  std::optional<Refused> give_up_for(Error error) {
    error_ = std::move(error);
    return std::nullopt;
  }

  // Stops the thread and verifies that it is the one that was meant. Otherwise returns the reason; an error of the
  // whole process is kept in error_.
  std::optional<Refused> seize() {
    if (ptrace(PTRACE_SEIZE, tid_, nullptr, reinterpret_cast<void*>(PTRACE_O_TRACESYSGOOD)) != 0) {
      const int saved = errno;
      if (saved == ESRCH) return Refused{Refusal::kEnded, ""};
      if (const auto tracer = target::proc::tracer_of(pid_, tid_))
        return Refused{Refusal::kTraced, fmt::format("pid {}", *tracer)};
      const auto stat = target::proc::stat_of(pid_, tid_);
      if (!stat || stat->ends()) return Refused{Refusal::kEnded, ""};
      return give_up_for(target::attach_error(pid_, saved));
    }
    seized_ = true;
    // The tid of a seized thread cannot be reused. Is it a thread of this process (EPERM is returned only for one that
    // is), and is this process the one that was meant? If not, the thread is not interrupted, and is released when this
    // thread of the tool ends.
    if (syscall(SYS_tgkill, pid_, tid_, 0) != 0 && errno != EPERM) return Refused{Refusal::kEnded, ""};
    if (auto same = process_.check(); !same) return give_up_for(same.error());
    if (ptrace(PTRACE_INTERRUPT, tid_, nullptr, nullptr) != 0) return Refused{Refusal::kEnded, ""};
    switch (stop_within(kStopTimeout)) {
      case Stopped::kYes: return std::nullopt;
      case Stopped::kLate: return Refused{Refusal::kUninterruptible, ""};
      case Stopped::kEnded: break;
    }
    return Refused{Refusal::kEnded, ""};
  }

  enum class Stopped : std::uint8_t { kYes, kLate, kEnded };

  // Waits until the thread is paused with no signal under way; signals that come first are passed on.
  Stopped stop_within(std::chrono::milliseconds limit) {
    const auto until = Clock::now() + limit;
    while (true) {
      const auto status = next_stop(tid_, until);
      stopped_ = status.has_value() && WIFSTOPPED(*status);
      if (!status) return Stopped::kLate;
      if (!stopped_) return Stopped::kEnded;
      if (is_event_stop(*status)) return Stopped::kYes;
      const int signal = WSTOPSIG(*status) == kSyscallStop ? 0 : WSTOPSIG(*status);
      // Any other stop replaces the one that was requested (kernel/signal.c, ptrace_stop), so that is requested again.
      if (ptrace(PTRACE_CONT, tid_, nullptr, static_cast<long>(signal)) != 0 ||
          ptrace(PTRACE_INTERRUPT, tid_, nullptr, nullptr) != 0)
        return Stopped::kEnded;
    }
  }

  // The checks that are possible only while the thread is paused.
  std::optional<Refused> refusal(const Wait& wait, ProcessCode& code) {
    if (!read_state()) return Refused{Refusal::kUnreadable, ""};
    const target::Registers registers = target::Registers::from_user_regs(registers_);
    if (Wait::of(registers) != wait || !is_interrupted(registers_)) return Refused{Refusal::kMovedOn, ""};
    // The status as it is now: meanwhile a SIGSTOP may have come, and tracing of threads may have started or ended.
    const auto text = target::proc::read_file(fmt::format("/proc/{}/task/{}/status", pid_, tid_));
    const auto status = text ? parse_thread_status(*text) : std::nullopt;
    if (!status) return Refused{Refusal::kEnded, ""};
    if (status->has_shadow_stack) return Refused{Refusal::kShadowStack, ""};
    if (is_dispatched()) return Refused{Refusal::kUserDispatch, ""};
    if (is_in_restartable_sequence()) return Refused{Refusal::kRestartableSequence, ""};
    return refusal_of_stack(pid_, registers, code);
  }

  bool read_state() {
    iovec general{&registers_, sizeof registers_};
    if (ptrace(PTRACE_GETREGSET, tid_, reinterpret_cast<void*>(NT_PRSTATUS), &general) != 0 ||
        general.iov_len != sizeof registers_)
      return false;  // a 32-bit thread
    vector_.resize(64 * 1024);
    iovec vector{vector_.data(), vector_.size()};
    if (ptrace(PTRACE_GETREGSET, tid_, reinterpret_cast<void*>(NT_X86_XSTATE), &vector) != 0) return false;
    vector_.resize(vector.iov_len);
    return vector_.size() >= kLegacyXsave &&
           ptrace(PTRACE_GETSIGMASK, tid_, reinterpret_cast<void*>(sizeof mask_), &mask_) == 0;
  }

  // Also false if the kernel cannot say (before Linux 6.4): if the thread is dispatched all the same, SIGSYS ends the
  // call at the function's first system call.
  bool is_dispatched() const {
    UserDispatch dispatch{};
    return ptrace(static_cast<__ptrace_request>(kGetUserDispatch), tid_, sizeof dispatch, &dispatch) == 0 &&
           dispatch.mode != 0;
  }

  // A thread in a system call is in no restartable sequence, unless a sequence breaks the rules; before Linux 5.13 the
  // kernel cannot be asked.
  bool is_in_restartable_sequence() const {
    RseqConfiguration registered{};
    if (ptrace(static_cast<__ptrace_request>(kGetRseqConfiguration), tid_, sizeof registered, &registered) < 0 ||
        registered.pointer == 0)
      return false;
    std::uint64_t at = 0;
    RestartableSequence sequence;
    if (!read(registered.pointer + kSequenceInRseq, std::as_writable_bytes(std::span(&at, 1)))) return true;
    return at != 0 && (!read(at, std::as_writable_bytes(std::span(&sequence, 1))) || sequence.contains(registers_.rip));
  }

  Result<void> begin(Address function, Address trampoline) {
    // The vector state as the kernel saves it for a signal frame: size and features in the software bytes, a second
    // magic number behind it.
    std::vector<std::byte> saved = vector_;
    const std::uint64_t features = word_at(saved, kSoftwareBytes) & ~(kTiles & ~word_at(saved, kComponentsInUse));
    saved.resize(std::min(saved.size(), xsave_size(features)));
    const auto size = static_cast<std::uint32_t>(saved.size());
    const SoftwareBytes software{
        .magic1 = kXstateMagic1, .extended_size = size + 4, .features = features, .size = size, .padding = {}};
    std::memcpy(saved.data() + kSoftwareBytes, &software, sizeof software);
    saved.resize(saved.size() + 4);
    std::memcpy(saved.data() + size, &kXstateMagic2, 4);

    const Address vector_at = (registers_.rsp - kRedZone - saved.size()) & ~std::uint64_t{63};
    // As at any function's first instruction: rsp + 8 is a multiple of 16.
    frame_at_ = ((vector_at - sizeof(SignalFrame)) & ~std::uint64_t{15}) - 8;
    trampoline_ = trampoline;

    SignalFrame frame{};
    frame.return_address = trampoline;
    frame.flags = kFpXstate | kSigcontextSs | kStrictRestoreSs;
    frame.stack_flags = kNoAlternateStackMode;
    frame.mask = mask_;
    SignalContext& c = frame.context;
    const user_regs_struct& r = registers_;
    const auto cs = static_cast<std::uint16_t>(r.cs), ss = static_cast<std::uint16_t>(r.ss);
    c = {r.r8,  r.r9,  r.r10, r.r11,    r.r12, r.r13, r.r14, r.r15, r.rdi, r.rsi, r.rbp, r.rbx, r.rdx,     r.rax,
         r.rcx, r.rsp, r.rip, r.eflags, cs,    0,     0,     ss,    0,     0,     0,     0,     vector_at, {}};
    if (static_cast<std::int64_t>(r.rax) != -EINTR && call_) {
      c.rax = static_cast<std::uint64_t>(*call_);  // what the kernel itself does before it restarts a system call
      c.rip = r.rip - 2;                           // the `syscall` instruction
    } else {
      c.rax = static_cast<std::uint64_t>(-EINTR);
    }
    if (!write(vector_at, saved) || !write(frame_at_, std::as_bytes(std::span(&frame, 1))))
      return fail(error(ErrorCode::kUnreadable, "cannot write to its stack", errno));

    user_regs_struct call = registers_;
    call.rip = function;
    call.rsp = frame_at_;
    call.rax = 0;
    call.orig_rax = ~0ull;  // no system call that the kernel would restart
    call.eflags &= ~(kDirection | kTrap);
    // From here on the thread is on its way into the function and back, whether this tool lives or not; so the mask,
    // which the frame restores, is set second.
    if (auto done = set(call); !done) return done;
    if (ptrace(PTRACE_SETSIGMASK, tid_, reinterpret_cast<void*>(sizeof kAllButFaults), &kAllButFaults) != 0)
      return gone();
    return {};
  }

  // Lets the thread run until it asks the kernel to restore it, and then back to where it was.
  Result<void> run(std::chrono::milliseconds limit) {
    switch (to_return(limit)) {
      case Way::kReturned: return finish();
      case Way::kEnded: return gone();
      case Way::kFault:
        return put_back(error(ErrorCode::kUnreadable, fmt::format("the call ended by signal {}", fault_)));
      case Way::kLate: break;
    }
    Error late = error(ErrorCode::kTimeout, fmt::format("the call did not come back within {} ms", limit.count()));
    ptrace(PTRACE_INTERRUPT, tid_, nullptr, nullptr);
    switch (stop_within(kStopTimeout)) {
      case Stopped::kYes: return put_back(std::move(late));
      case Stopped::kEnded: return gone();
      case Stopped::kLate: break;
    }
    late.hint = "it waits in the kernel, and comes back by itself once that wait is over";
    return fail(std::move(late));
  }

  enum class Way : std::uint8_t { kReturned, kFault, kLate, kEnded };

  // Lets the thread run to the beginning of the system call that restores it.
  Way to_return(std::chrono::milliseconds limit) {
    const auto until = Clock::now() + limit;
    long signal = 0;
    while (true) {
      if (ptrace(PTRACE_SYSCALL, tid_, nullptr, signal) != 0) return Way::kEnded;
      signal = 0;
      const auto status = next_stop(tid_, until);
      stopped_ = status.has_value() && WIFSTOPPED(*status);
      if (!status) return Way::kLate;
      if (!stopped_) return Way::kEnded;
      const int stop = WSTOPSIG(*status);
      if (stop != kSyscallStop) disturbed_ = true;
      if (is_event_stop(*status)) continue;
      if (stop != kSyscallStop) {
        // The function's own fault: no handler is to see it.
        if (stop < 64 && (bit(stop) & kFaults) != 0) {
          fault_ = stop;
          return Way::kFault;
        }
        signal = stop;
        continue;
      }
      user_regs_struct now{};
      if (!get(now)) return Way::kEnded;
      if (now.orig_rax == SYS_rt_sigreturn && now.rsp == frame_at_ + 8) return Way::kReturned;
    }
  }

  // From wherever the thread is paused. It is sent to the trampoline first: if this tool ends now, the thread comes
  // back by itself.
  Result<void> put_back(Error why) {
    disturbed_ = true;
    user_regs_struct now{};
    if (!get(now)) return gone();
    now.rip = trampoline_;
    now.rsp = frame_at_ + 8;
    now.orig_rax = ~0ull;
    now.eflags &= ~(kDirection | kTrap);
    if (auto done = set(now); !done) return done;
    if (auto done = restore(); !done) return done;
    return fail(std::move(why));
  }

  // The thread is about to have itself restored by the kernel. While this tool lives, it does better: the thread is
  // stopped before that system call, and gets back what it had. Then the kernel goes on as after any stop: it restarts
  // the interrupted call or, if a signal has come meanwhile whose handler runs first, lets it return EINTR. (Restored
  // by the frame, the call would be restarted even after a handler.)
  Result<void> finish() {
    user_regs_struct now{};
    if (!get(now)) return gone();
    now.rip = trampoline_;
    now.orig_rax = ~0ull;  // this system call is left out
    if (auto done = set(now); !done) return done;
    if (ptrace(PTRACE_INTERRUPT, tid_, nullptr, nullptr) != 0 || ptrace(PTRACE_CONT, tid_, nullptr, 0) != 0)
      return gone();
    switch (stop_within(kReturnTimeout)) {
      case Stopped::kYes: return restore();
      case Stopped::kEnded: return gone();
      case Stopped::kLate: break;
    }
    return {};  // it gets no processor time: it comes back by itself
  }

  // Restores what the thread had, in a stop after which the kernel handles the result of an interrupted system call.
  // The registers are written last, in one step: until then the thread is at the trampoline, and the frame is whole.
  Result<void> restore() {
    iovec vector{vector_.data(), vector_.size()};
    if (ptrace(PTRACE_SETREGSET, tid_, reinterpret_cast<void*>(NT_X86_XSTATE), &vector) != 0) return gone();
    if (ptrace(PTRACE_SETSIGMASK, tid_, reinterpret_cast<void*>(sizeof mask_), &mask_) != 0) return gone();
    user_regs_struct was = registers_;
    if (static_cast<std::int64_t>(was.rax) == kRestartBlock) {
      // The kernel remembers one such call to continue, and another one that was interrupted meanwhile has replaced it.
      // So the call is restarted from its beginning, with its original arguments; only if its number is not known, the
      // remembered one is continued.
      if (call_) {
        was.orig_rax = static_cast<std::uint64_t>(*call_);
        was.rax = static_cast<std::uint64_t>(kRestartNoHandler);
      } else if (disturbed_) {
        was.orig_rax = ~0ull;
        was.rax = static_cast<std::uint64_t>(-EINTR);
      }
    }
    return set(was);
  }

  Error error(ErrorCode code, std::string what, int os_errno = 0) const {
    return {.code = code,
            .subject = fmt::format("pid {} tid {}", pid_, tid_),
            .what = std::move(what),
            .where = {},
            .os_errno = os_errno,
            .hint = {}};
  }
  Result<void> gone() const { return fail(error(ErrorCode::kGone, "it ended meanwhile")); }
  bool get(user_regs_struct& into) const {
    iovec vector{&into, sizeof into};
    return ptrace(PTRACE_GETREGSET, tid_, reinterpret_cast<void*>(NT_PRSTATUS), &vector) == 0;
  }
  Result<void> set(user_regs_struct& from) const {
    iovec vector{&from, sizeof from};
    if (ptrace(PTRACE_SETREGSET, tid_, reinterpret_cast<void*>(NT_PRSTATUS), &vector) != 0)
      return fail(error(ErrorCode::kGone, "cannot set its registers", errno));
    return {};
  }
  bool read(Address at, std::span<std::byte> into) const { return target::proc::read_memory(pid_, at, into); }
  bool write(Address at, std::span<const std::byte> bytes) const {
    const iovec local{const_cast<std::byte*>(bytes.data()), bytes.size()},
        remote{reinterpret_cast<void*>(at), bytes.size()};
    return process_vm_writev(pid_, &local, 1, &remote, 1, 0) == static_cast<ssize_t>(bytes.size());
  }

  void let_go() {
    // Detaching needs a stopped thread; one that could not be stopped runs on and is released when this thread of the
    // tool ends.
    if (seized_) ptrace(PTRACE_DETACH, tid_, nullptr, nullptr);
    seized_ = false;
  }

  const target::ProcessId process_;
  const Pid pid_;
  const Tid tid_;
  bool seized_ = false, stopped_ = false;
  bool disturbed_ = false;            // the function was interrupted, perhaps in a system call of its own
  std::optional<std::int64_t> call_;  // Candidate::call
  std::optional<Error> error_;        // of the whole process: no other thread of it need be tried
  user_regs_struct registers_{};
  std::vector<std::byte> vector_;
  std::uint64_t mask_ = 0;
  Address frame_at_ = 0, trampoline_ = 0;
  int fault_ = 0;
};

Error no_thread_can_call(Pid pid, const std::map<Tid, Refused>& refused) {
  std::map<std::string, std::pair<std::size_t, Refusal>> reasons;
  for (const auto& [tid, why] : refused) {
    auto& [count, refusal] = reasons[words_of({why.why, ""})];
    ++count;
    refusal = why.why;
  }
  std::vector<std::pair<std::string, std::pair<std::size_t, Refusal>>> sorted(reasons.begin(), reasons.end());
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const auto& a, const auto& b) { return a.second.first > b.second.first; });
  std::string list;
  std::size_t listed = 0;
  for (const auto& [text, reason] : sorted) {
    if (listed == kMaxReasons) break;
    list += fmt::format("{}{} {}", listed == 0 ? "" : ", ", reason.first, text);
    ++listed;
  }
  if (listed < sorted.size()) list += fmt::format(", {} more reasons", sorted.size() - listed);
  // The advice follows from the most frequent reason other than the main thread's, which every process has.
  const auto decisive = std::find_if(sorted.begin(), sorted.end(),
                                     [](const auto& reason) { return reason.second.second != Refusal::kMainThread; });
  return {.code = ErrorCode::kUnsupported,
          .subject = fmt::format("pid {}", pid),
          .what = fmt::format("no thread of it can make the call that this driver needs: of {} threads {}",
                              refused.size(), list),
          .where = {},
          .os_errno = 0,
          .hint = hint_of(decisive != sorted.end() ? decisive->second.second : Refusal::kMainThread)};
}

Result<Address> trampoline_in(Pid pid, ProcessCode& code) {
  if (const auto found = code.signal_trampoline()) return *found;
  return fail({.code = ErrorCode::kUnsupported,
               .subject = fmt::format("pid {}", pid),
               .what = "no signal trampoline was found in its C library",
               .where = {},
               .os_errno = 0,
               .hint = "a statically linked program, or another C library than glibc or musl, cannot be called into"});
}

// Threads that were stopped for examination: what they waited in, and why they were refused. No thread is stopped twice
// in the same wait.
using LookedAt = std::map<Tid, std::pair<Wait, Refused>>;

// Tries every thread once, and makes the call on the first that can make it. std::nullopt if all were refused.
std::optional<Result<InferiorCall>> one_pass(const target::ProcessId& process, std::optional<Tid> only,
                                             Address function, std::chrono::milliseconds limit,
                                             const std::function<bool()>& about_to_call, LookedAt& looked_at,
                                             std::map<Tid, Refused>& refused) {
  if (auto same = process.check(); !same) return fail(same.error());
  auto code = ProcessCode::read(process.pid);
  if (!code) return fail(code.error());
  const auto trampoline = trampoline_in(process.pid, *code);
  if (!trampoline) return fail(trampoline.error());
  Candidates candidates = candidates_of(process.pid);
  refused = std::move(candidates.refused);
  for (const Candidate& candidate : candidates.threads) {
    if (only && candidate.tid != *only) continue;
    if (const auto before = looked_at.find(candidate.tid);
        before != looked_at.end() && before->second.first.is_at_the_place_of(candidate.wait)) {
      refused[candidate.tid] = before->second.second;
      continue;
    }
    if (looked_at.size() >= kMaxStopped) break;
    const auto start = Clock::now();
    Attempt attempt;
    {
      CallingThread thread(process, candidate.tid);
      attempt = thread.call(candidate, *code, function, *trampoline, limit, about_to_call);
    }
    if (attempt.refused) {
      refused[candidate.tid] = *attempt.refused;
      if (attempt.refused->why != Refusal::kMovedOn) looked_at[candidate.tid] = {candidate.wait, *attempt.refused};
      continue;
    }
    if (!attempt.called) return fail(attempt.called.error());
    return InferiorCall{candidate.tid, std::chrono::duration<double, std::milli>(Clock::now() - start).count()};
  }
  return std::nullopt;
}

// Runs `work` on a thread of the tool's own, which ends with it: the kernel then releases whatever could not be
// released in order.
template <class F>
auto on_a_thread_of_its_own(const F& work) {
  std::optional<decltype(work())> result;
  std::thread([&] { result.emplace(work()); }).join();
  return std::move(*result);
}

Result<InferiorCall> call_in_a_thread(const target::ProcessId& process, std::optional<Tid> only, Address function,
                                      std::chrono::milliseconds limit, const std::function<bool()>& about_to_call) {
  LookedAt looked_at;
  std::map<Tid, Refused> refused;
  for (const auto start = Clock::now(); Clock::now() - start < kChoiceTimeout; std::this_thread::sleep_for(kPause)) {
    if (auto done = one_pass(process, only, function, limit, about_to_call, looked_at, refused))
      return std::move(*done);
    if (only) std::erase_if(refused, [&](const auto& r) { return r.first != *only; });
    if (std::none_of(refused.begin(), refused.end(), [](const auto& r) { return is_passing(r.second.why); })) break;
  }
  if (!only) return fail(no_thread_can_call(process.pid, refused));
  const auto why = refused.find(*only);
  const Refused reason = why != refused.end() ? why->second : Refused{Refusal::kEnded, ""};
  return fail({.code = reason.why == Refusal::kEnded ? ErrorCode::kGone : ErrorCode::kUnsupported,
               .subject = fmt::format("pid {} tid {}", process.pid, *only),
               .what = "cannot be used for the call: " + words_of(reason),
               .where = {},
               .os_errno = 0,
               .hint = hint_of(reason.why)});
}

}  // namespace

Result<InferiorCall> make_inferior_call(const target::ProcessId& process, Address function,
                                        std::chrono::milliseconds limit, const std::function<bool()>& about_to_call) {
  return on_a_thread_of_its_own(
      [&] { return call_in_a_thread(process, std::nullopt, function, limit, about_to_call); });
}

Result<InferiorCall> call_in(const target::ProcessId& process, Tid tid, Address function,
                             std::chrono::milliseconds limit) {
  return on_a_thread_of_its_own([&] { return call_in_a_thread(process, tid, function, limit, {}); });
}

}  // namespace rankstacks::gpu
