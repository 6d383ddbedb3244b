#include "base/sibling_process.h"

#include <csignal>
#include <cstdint>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace rankstacks {
namespace {

struct Sibling {
  const std::function<void()>& work;
  pid_t tool = getpid();
  bool ended_well = false;
};

int live(void* argument) noexcept {
  Sibling& sibling = *static_cast<Sibling*>(argument);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() == sibling.tool) sibling.work();   // else the tool has ended already
  sibling.ended_well = true;
  _exit(0);
}

}  // namespace

void in_sibling_process(const std::function<void()>& work) {
  Sibling sibling{.work = work};
  // This thread's own frames go on below here once the other has ended: in what is left free between the two.
  constexpr std::uintptr_t kKeptForThisThread = 64u << 10;
  auto* top = reinterpret_cast<void*>((reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0)) - kKeptForThisThread) & ~std::uintptr_t{63});
  const pid_t process = clone(&live, top, CLONE_VM | CLONE_VFORK | CLONE_FILES | CLONE_FS | CLONE_SIGHAND, &sibling);
  if (process < 0) {   // a limit of processes, or a system call filter
    work();
    return;
  }
  int status = 0;
  const bool known = waitpid(process, &status, __WALL) == process;
  if (sibling.ended_well) return;
  // It ended the tool (out of memory), or crashed: so does the tool.
  if (known && WIFSIGNALED(status)) {
    std::signal(WTERMSIG(status), SIG_DFL);
    raise(WTERMSIG(status));
  }
  _exit(known && WIFEXITED(status) ? WEXITSTATUS(status) : 2);
}

}  // namespace rankstacks
