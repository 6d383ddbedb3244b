#include "report/thread_notes.h"

#include <fmt/format.h>

#include "analyzers/handled.h"
#include "analyzers/place.h"
#include "analyzers/python_locks.h"
#include "analyzers/thread_waits.h"
#include "analyzers/watchdog_reporters.h"

namespace rankstacks::report {

std::vector<std::string> thread_notes(const JobSnapshot& job, std::size_t r, std::size_t t) {
  const ThreadSnapshot& thread = job.ranks[r].threads[t];
  std::vector<std::string> notes;
  if (std::string block = analyzers::describe_block(job, thread); !block.empty()) notes.push_back(std::move(block));
  if (thread.gil) notes.push_back(*thread.gil == Gil::kHolds ? "holds the GIL" : "waits for the GIL");
  if (thread.python_lock && thread.python_lock->owner) {
    const auto owner = analyzers::thread_with(job.ranks[r], *thread.python_lock->owner);
    const std::string name = owner ? job.ranks[r].threads[*owner].name : "";
    notes.push_back(fmt::format("waits for {} held by thread {}{}", analyzers::describe_lock(*thread.python_lock),
                                *thread.python_lock->owner, name.empty() ? "" : fmt::format(" ({})", name)));
  }
  if (thread.joins) notes.push_back(fmt::format("waits for the end of thread {}", *thread.joins));
  if (thread.exception) notes.push_back("terminates with " + analyzers::describe_exception(*thread.exception));
  if (thread.raises) notes.push_back("has raised " + analyzers::describe_handled(job, *thread.raises));
  if (!thread.wchan.empty()) notes.push_back("wchan " + thread.wchan);
  return notes;
}

std::vector<std::string> handled_notes(const JobSnapshot& job, const ThreadSnapshot& thread) {
  if (!thread.handles) return {};
  std::vector<std::string> notes = {"handles " + analyzers::describe_handled(job, *thread.handles)};
  for (const ChainedException& chained : thread.handles->chain) notes.push_back(analyzers::describe_chained(chained));
  return notes;
}

}  // namespace rankstacks::report
