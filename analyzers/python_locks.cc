#include "analyzers/python_locks.h"

#include <algorithm>

#include <fmt/format.h>

#include "analyzers/place.h"

namespace rankstacks {
namespace {

// By its name, where that is not the one that all threads have.
std::string name_of(const ThreadSnapshot& thread, const ThreadSnapshot& waiting) {
  return thread.name.empty() || thread.name == waiting.name ? std::to_string(thread.tid) : thread.name;
}

// "in write_report at train.py:9 (sleeping)"
std::string where(const JobSnapshot& job, const ThreadSnapshot& thread) {
  const std::string place = describe_place(job, thread), block = describe_block(job, thread);
  return (place.empty() ? "" : "in " + place) + (place.empty() || block.empty() ? block : fmt::format(" ({})", block));
}

}  // namespace

std::optional<std::size_t> thread_with(const RankSnapshot& rank, Tid tid) {
  const auto it = std::find_if(rank.threads.begin(), rank.threads.end(), [&](const ThreadSnapshot& t) { return t.tid == tid; });
  return it == rank.threads.end() ? std::nullopt : std::optional(static_cast<std::size_t>(it - rank.threads.begin()));
}

std::optional<std::size_t> awaited_thread(const RankSnapshot& rank, const ThreadSnapshot& waiting) {
  if (waiting.python_lock && waiting.python_lock->owner) return thread_with(rank, *waiting.python_lock->owner);
  return waiting.joins ? thread_with(rank, *waiting.joins) : std::nullopt;
}

std::string describe_lock(const PythonLock& lock) {
  switch (lock.kind) {
    case PythonLockKind::kLock: return "a Python lock";
    case PythonLockKind::kRLock: return "an RLock";
    case PythonLockKind::kModule: return lock.name ? "the import of " + *lock.name : "the import of a module";
    case PythonLockKind::kCondition: return "a condition";
  }
  return "";
}

std::optional<PythonWait> describe_python_wait(const JobSnapshot& job, const RankSnapshot& rank, const ThreadSnapshot& waiting) {
  const auto index = awaited_thread(rank, waiting);
  if (!index) return std::nullopt;
  const ThreadSnapshot& thread = rank.threads[*index];
  const std::string name = name_of(thread, waiting), place = where(job, thread);
  if (!waiting.python_lock || !waiting.python_lock->owner) return PythonWait{fmt::format("waits for its thread {} to end", name), place.empty() ? "" : ", which is " + place};
  const std::string verb = "waits for " + describe_lock(*waiting.python_lock);
  if (thread.tid == waiting.tid) return PythonWait{verb + " that it holds itself", ""};
  const std::string_view does = waiting.python_lock->kind == PythonLockKind::kModule ? "does" : "holds";
  return PythonWait{verb, fmt::format(", which its thread {} {}{}{}", name, does, place.empty() ? "" : ", ", place)};
}

}  // namespace rankstacks
