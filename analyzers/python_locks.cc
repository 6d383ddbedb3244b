#include "analyzers/python_locks.h"

#include <fmt/format.h>

#include "analyzers/place.h"
#include "analyzers/thread_waits.h"

namespace rankstacks::analyzers {
namespace {

// The thread's name, unless all threads have the same.
std::string name_of(const ThreadSnapshot& thread, const ThreadSnapshot& waiting) {
  return thread.name.empty() || thread.name == waiting.name ? std::to_string(thread.tid) : thread.name;
}

// "in write_report at train.py:9 (sleeping)"
std::string where(const JobSnapshot& job, const ThreadSnapshot& thread) {
  const std::string place = describe_place(job, thread), block = describe_block(job, thread);
  return (place.empty() ? "" : "in " + place) + (place.empty() || block.empty() ? block : fmt::format(" ({})", block));
}

}  // namespace

std::string describe_lock(const PythonLock& lock) {
  switch (lock.kind) {
    case PythonLockKind::kLock: return "a Python lock";
    case PythonLockKind::kRLock: return "an RLock";
    case PythonLockKind::kModule: return lock.name ? "the import of " + *lock.name : "the import of a module";
    case PythonLockKind::kCondition: return "a condition";
  }
  return "";
}

std::optional<PythonWait> describe_python_wait(const JobSnapshot& job, const RankSnapshot& rank, std::size_t waiting) {
  const auto wait = thread_wait_of(rank, waiting);
  if (!wait || wait->what == ThreadWait::For::kNativeLock) return std::nullopt;
  const ThreadSnapshot& thread = rank.threads[wait->thread];
  const std::string name = name_of(thread, rank.threads[waiting]), place = where(job, thread);
  if (wait->what == ThreadWait::For::kEnd)
    return PythonWait{fmt::format("waits for its thread {} to end", name), place.empty() ? "" : ", which is " + place};
  if (wait->what == ThreadWait::For::kGil)
    return PythonWait{"waits for the GIL",
                      fmt::format(", which its thread {} holds{}{}", name, place.empty() ? "" : ", ", place)};
  const PythonLock& lock = *rank.threads[waiting].python_lock;
  const std::string verb = "waits for " + describe_lock(lock);
  if (wait->thread == waiting) return PythonWait{verb + " that it holds itself", ""};
  const std::string_view does = lock.kind == PythonLockKind::kModule ? "does" : "holds";
  return PythonWait{verb, fmt::format(", which its thread {} {}{}{}", name, does, place.empty() ? "" : ", ", place)};
}

}  // namespace rankstacks::analyzers
