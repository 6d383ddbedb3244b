#include "base/sibling_process.h"

#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cerrno>
#include <csignal>
#include <cstdint>

namespace rankstacks {
inline namespace base {
namespace {

struct Sibling {
  const std::function<void()>& work;
  pid_t tool = getpid();
  bool ended_well = false;
};

int live(void* argument) noexcept {
  Sibling& sibling = *static_cast<Sibling*>(argument);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() == sibling.tool) sibling.work();  // otherwise the tool has ended already
  sibling.ended_well = true;
  _exit(0);
}

// clone(2) without the C library: before glibc 2.24 its clone() loses the ids of the calling thread where memory is
// shared, and joining that thread then fails (sourceware.org bug 19957).
pid_t clone_sibling(void* stack_top, Sibling* sibling) {
  constexpr long kFlags = CLONE_VM | CLONE_VFORK | CLONE_FILES | CLONE_FS | CLONE_SIGHAND;
  long result = SYS_clone;
  register long no_parent_tid asm("rdx") = 0;
  register long no_child_tid asm("r10") = 0;
  register long no_tls asm("r8") = 0;
  register int (*begin)(void*) noexcept asm("r12") = &live;
  register void* argument asm("r13") = sibling;
  asm volatile(
      "syscall\n\t"
      "testq %%rax, %%rax\n\t"
      "jnz 1f\n\t"
      "xorl %%ebp, %%ebp\n\t"
      "movq %%r13, %%rdi\n\t"
      "call *%%r12\n\t"
      "hlt\n"
      "1:"
      : "+a"(result)
      : "D"(kFlags), "S"(stack_top), "r"(no_parent_tid), "r"(no_child_tid), "r"(no_tls), "r"(begin), "r"(argument)
      : "rcx", "r11", "memory", "cc");
  return result < 0 ? -1 : static_cast<pid_t>(result);
}

// Blocks the terminal's stop signals in the sibling. If the sibling were stopped by the terminal, this thread could not
// stop with the tool, and the shell would not notice the stop.
class NoTerminalStops {
 public:
  NoTerminalStops() {
    sigset_t stops;
    sigemptyset(&stops);
    for (const int number : {SIGTSTP, SIGTTIN, SIGTTOU}) sigaddset(&stops, number);
    pthread_sigmask(SIG_BLOCK, &stops, &before_);
  }
  ~NoTerminalStops() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  NoTerminalStops(const NoTerminalStops&) = delete;
  NoTerminalStops& operator=(const NoTerminalStops&) = delete;

 private:
  sigset_t before_;
};

}  // namespace

void in_sibling_process(const std::function<void()>& work) {
  Sibling sibling{.work = work};
  const NoTerminalStops none;
  // This thread's own frames continue below this point once the sibling has ended, in the space left free between the
  // two.
  constexpr std::uintptr_t kKeptForThisThread = 64u << 10;
  auto* top = reinterpret_cast<void*>(
      (reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0)) - kKeptForThisThread) & ~std::uintptr_t{63});
  const pid_t process = clone_sibling(top, &sibling);
  if (process < 0) {  // a limit on processes, or a system call filter
    work();
    return;
  }
  int status = 0;
  pid_t waited = 0;
  do waited = waitpid(process, &status, __WALL);
  while (waited < 0 && errno == EINTR);
  const bool known = waited == process;
  if (sibling.ended_well) return;
  // The work ended the process (out of memory), or crashed: the tool does the same.
  if (known && WIFSIGNALED(status)) {
    std::signal(WTERMSIG(status), SIG_DFL);
    raise(WTERMSIG(status));
  }
  _exit(known && WIFEXITED(status) ? WEXITSTATUS(status) : 2);
}

}  // namespace base
}  // namespace rankstacks
