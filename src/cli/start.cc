#include "cli/start.h"

#include <fcntl.h>
#include <malloc.h>
#include <sys/resource.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <csignal>

namespace rankstacks::cli {

void hold_standard_descriptors() {
  for (int descriptor = STDIN_FILENO; descriptor <= STDERR_FILENO; ++descriptor) {
    if (fcntl(descriptor, F_GETFD) == -1 && errno == EBADF)
      (void)::open("/dev/null", O_RDONLY | O_NOCTTY);  // the lowest one that is free
  }
}

void raise_limit_of_files() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= limit.rlim_max) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

void make_room_for_files() {
  constexpr rlim_t kFiles = 16'384;  // 128 KiB of the kernel's memory
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == 0) return;
  const int last = static_cast<int>(std::min(limit.rlim_cur, kFiles)) - 1;
  const int copy = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, last);
  if (copy >= 0) ::close(copy);
}

// glibc takes a heap's memory page by page, by a system call for each, and maps each larger block on its own. (A heap
// of another thread begins with the first step, and grows by pages after that.)
void take_memory_in_large_steps() {
  mallopt(M_TOP_PAD, 1 << 20);
  mallopt(M_TRIM_THRESHOLD, 64 << 20);
  mallopt(M_MMAP_THRESHOLD, 4 << 20);
}

void outlive_limit_of_file_size() { std::signal(SIGXFSZ, SIG_IGN); }

}  // namespace rankstacks::cli
