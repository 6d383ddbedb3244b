#include "cli/sudden_end.h"

#include <unistd.h>
#include <csignal>
#include <cstring>
#include <exception>
#include <filesystem>
#include <new>
#include <string_view>
#include <system_error>

namespace rankstacks::cli {
namespace {

// Uses write() alone: streams allocate.
void say(std::string_view text) { (void)!write(STDERR_FILENO, text.data(), text.size()); }

[[noreturn]] void out_of_memory() {
  say("rankstacks: out of memory\nhint: --memory, a limit on this shell (ulimit -v) or on this container leaves too "
      "little; look at fewer ranks at once\n");
  _exit(2);
}

[[noreturn]] void uncaught() {
  if (const auto exception = std::current_exception()) {
    try {
      std::rethrow_exception(exception);
    } catch (const std::bad_alloc&) {
      out_of_memory();
    } catch (const std::filesystem::filesystem_error& e) {
      say("rankstacks: cannot go on: ");
      say(e.what());
      say("\n");
    } catch (const std::system_error& e) {
      // Otherwise only std::thread's constructor throws these: no stack, or no process, can be had.
      say("rankstacks: cannot start a thread: ");
      say(e.what());
      say("\nhint: a limit is reached: of memory (ulimit -v), of processes (ulimit -u, the container's pids), or a "
          "system call filter refuses clone3\n");
    } catch (const std::exception& e) {
      say("rankstacks: cannot go on: ");
      say(e.what());
      say("\n");
    } catch (...) {
      say("rankstacks: cannot go on\n");
    }
  }
  _exit(2);
}

// abort() makes this process send the signal to itself; if another process sends it, it ends the tool as usual.
void aborted(int signal, siginfo_t* info, void*) {
  if (info->si_pid != getpid()) {
    std::signal(signal, SIG_DFL);
    raise(signal);
    return;
  }
  say("rankstacks: cannot go on: a library has called abort(); what it says of that is above\n"
      "hint: \"Unexpected error\" and failed assertions are how one runs out of memory: --memory, a limit on this "
      "shell (ulimit -v) or on this container leaves too little\n");
  _exit(2);
}

}  // namespace

void end_at_once_without_memory() {
  std::set_new_handler(out_of_memory);
  std::set_terminate(uncaught);
  struct sigaction action {};
  action.sa_sigaction = aborted;
  action.sa_flags = SA_SIGINFO;
  sigemptyset(&action.sa_mask);
  sigaction(SIGABRT, &action, nullptr);
}

}  // namespace rankstacks::cli
