#include "cli/start.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>
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

void outlive_limit_of_file_size() { std::signal(SIGXFSZ, SIG_IGN); }

}  // namespace rankstacks::cli
