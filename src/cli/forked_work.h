// Work that is done in a forked process: what it leaves in memory, the threads that it gives up and a crash stay there,
// so a program that runs for weeks stays as small as it was. The caller must have one thread only.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "base/deadline.h"

namespace rankstacks::cli {

// How long a piece of work may take. `shortened` is asked again and again: it may bring the end nearer, as when the
// program is asked to end.
struct WorkLimit {
  Deadline deadline = Deadline::never();
  std::function<std::optional<Deadline>()> shortened = {};
};

// What `work` returns, of at most `most` bytes. std::nullopt if it was not done in time, and was killed, or has failed.
// One that does not end when it is killed, as the kernel holds it, is not waited for.
// The forked process is killed if this one ends.
std::optional<std::string> do_forked(const std::function<std::string()>& work, const WorkLimit& limit,
                                     std::size_t most = 64u << 20);

}  // namespace rankstacks::cli
