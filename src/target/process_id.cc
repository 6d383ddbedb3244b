#include "target/process_id.h"

#include <fmt/format.h>

#include "target/proc.h"

namespace rankstacks::target {
namespace {

Error gone(Pid pid, const char* what) {
  return {.code = ErrorCode::kGone, .subject = fmt::format("pid {}", pid), .what = what};
}

}  // namespace

Result<ProcessId> ProcessId::of(Pid pid) {
  const auto stat = proc::stat_of(pid);
  if (!stat) return fail(gone(pid, "it has ended"));
  return ProcessId{pid, stat->start_ticks};
}

Result<void> ProcessId::check() const {
  const auto stat = proc::stat_of(pid);
  if (!stat) return fail(gone(pid, "it has ended"));
  if (stat->start_ticks != start_ticks)
    return fail(gone(pid, "it has ended, and its pid belongs to another process now"));
  return {};
}

}  // namespace rankstacks::target
