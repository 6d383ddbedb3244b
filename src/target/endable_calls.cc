#include "target/endable_calls.h"

#include <sys/syscall.h>
#include <unistd.h>
#include <cerrno>
#include <csetjmp>
#include <csignal>
#include <mutex>

namespace rankstacks::target {
namespace {

// Ignored by default, and sent by the kernel only for out-of-band data on sockets, which this tool never requests.
constexpr int kSignal = SIGURG;

thread_local sigjmp_buf way_out;
thread_local volatile sig_atomic_t in_call = 0;

void leave_call(int) {
  if (in_call == 0) return;
  in_call = 0;
  siglongjmp(way_out, 1);
}

void handle_signal() {
  struct sigaction action {};
  action.sa_handler = leave_call;
  // Then the jump need not restore a mask, which would cost each call one more system call.
  action.sa_flags = SA_NODEFER;
  sigemptyset(&action.sa_mask);
  sigaction(kSignal, &action, nullptr);
}

}  // namespace

EndableCalls::EndableCalls() : process_(getpid()), thread_(static_cast<pid_t>(syscall(SYS_gettid))) {
  static std::once_flag once;
  std::call_once(once, handle_signal);
  sigset_t set;  // the process that started the tool may have blocked it
  sigemptyset(&set);
  sigaddset(&set, kSignal);
  pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
}

long EndableCalls::ptrace(long request, pid_t tid, void* address, void* data) {
  if (ended_ || sigsetjmp(way_out, 0) != 0) {
    errno = EINTR;
    return -1;
  }
  in_call = 1;
  const long result = syscall(SYS_ptrace, request, static_cast<long>(tid), address, data);
  in_call = 0;
  return result;
}

void EndableCalls::end() {
  ended_ = true;
  syscall(SYS_tgkill, process_, thread_, kSignal);
}

}  // namespace rankstacks::target
