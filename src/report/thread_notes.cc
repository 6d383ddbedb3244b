#include "report/thread_notes.h"

#include <utility>

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
  if (thread.raises_cxx) notes.push_back("has raised " + analyzers::describe_exception(thread.raises_cxx->exception));
  if (thread.raises) notes.push_back("has raised " + analyzers::describe_handled(job, *thread.raises));
  if (thread.kernel_place && !thread.kernel_place->wchan.empty())
    notes.push_back("wchan " + thread.kernel_place->wchan);
  return notes;
}

namespace {

// "traceback: <module> at train.py:30 > ... 17 more ... > load at data.py:7", of one of more than two entries: both
// ends are shown anyway.
std::string describe_traceback(const JobSnapshot& job, const HandledException& exception) {
  constexpr std::size_t kOuter = 4, kInner = 12;
  const std::size_t count = exception.traceback.size();
  if (count <= 2) return "";
  std::string text = "traceback:";
  std::size_t left_out = 0;
  for (std::size_t i = 0; i < count; ++i) {
    if (exception.traceback_omitted && exception.traceback_omitted->at == i)
      left_out += exception.traceback_omitted->count;
    if (i >= kOuter && i + kInner < count) {
      ++left_out;
      continue;
    }
    if (left_out > 0) text += fmt::format(" > ... {} more ...", std::exchange(left_out, 0));
    text += (i == 0 ? " " : " > ") + analyzers::describe_entry(job.frames[exception.traceback[i]]);
  }
  return text;
}

void add_details(const JobSnapshot& job, const HandledException& exception, std::vector<std::string>& notes) {
  for (const ChainedException& chained : exception.chain) notes.push_back(analyzers::describe_chained(job, chained));
  if (std::string traceback = describe_traceback(job, exception); !traceback.empty())
    notes.push_back(std::move(traceback));
}

}  // namespace

std::vector<std::string> handled_notes(const JobSnapshot& job, const ThreadSnapshot& thread) {
  if (!thread.handles) return {};
  std::vector<std::string> notes = {"handles " + analyzers::describe_handled(job, *thread.handles)};
  add_details(job, *thread.handles, notes);
  return notes;
}

std::string handled_cxx_note(const ThreadSnapshot& thread) {
  return thread.handles_cxx ? "handles " + analyzers::describe_exception(thread.handles_cxx->exception) : "";
}

std::vector<std::string> raised_notes(const JobSnapshot& job, const ThreadSnapshot& thread) {
  std::vector<std::string> notes;
  if (thread.raises) add_details(job, *thread.raises, notes);
  return notes;
}

}  // namespace rankstacks::report
