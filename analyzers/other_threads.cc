#include "analyzers/other_threads.h"

#include <vector>

#include "analyzers/local_waits.h"
#include "analyzers/names.h"
#include "analyzers/thread_waits.h"

namespace rankstacks::analyzers {

OtherThreads other_threads(const JobSnapshot& job, const RankSnapshot& rank, std::size_t waiting) {
  OtherThreads others;
  std::vector<std::size_t> in_user_code;
  for (std::size_t t = 0; t < rank.threads.size(); ++t) {
    const ThreadSnapshot& thread = rank.threads[t];
    if (t == waiting) continue;
    if (thread.stack_end != StackEnd::kComplete) {
      others.any_python = true;  // as far as is known
      continue;
    }
    bool user_code = false;
    for (const FrameId id : thread.frames) {
      const Frame& frame = job.frames[id];
      if (frame.kind != FrameKind::kPython) continue;
      others.any_python = true;
      user_code |= !known::is_library_file(frame.file.value_or("<unknown>"));
    }
    if (user_code) in_user_code.push_back(t);
  }
  if (in_user_code.size() == 1) others.in_user_code = in_user_code.front();
  return others;
}

std::optional<std::size_t> awaited_other_thread(const JobSnapshot& job, const RankState& state) {
  const RankSnapshot& rank = job.ranks[state.rank];
  if (state.doing.activity != known::Activity::kPythonLock || rank.status != Status::kComplete ||
      thread_wait_of(rank, state.doing.thread))
    return std::nullopt;
  const auto wait = local_wait_of(job, state, Reason::kPythonLock);
  if (wait && is_between_processes(wait->kind)) return std::nullopt;
  return other_threads(job, rank, state.doing.thread).in_user_code;
}

}  // namespace rankstacks::analyzers
