#include "report/text_members.h"

#include <algorithm>
#include <map>
#include <set>

#include <fmt/format.h>

#include "analyzers/activity.h"
#include "analyzers/handled.h"
#include "model/rank_set.h"

namespace rankstacks::report {
namespace {

std::string join(const std::set<std::string>& words, std::string_view between) {
  constexpr std::size_t kMax = 3;
  std::string text;
  std::size_t n = 0;
  for (const std::string& word : words) {
    if (n == kMax) return text + fmt::format("{}{} more", between, words.size() - kMax);
    if (n++ > 0) text += between;
    text += word;
  }
  return text;
}

// "rank 2 handles ValueError raised in step at x.py:7, ranks 0-1,3 handle RuntimeError": the exception that the fewest
// ranks handle comes first.
std::string describe_who_handles(const JobSnapshot& job, std::map<std::string, std::vector<std::size_t>>& ranks_of) {
  constexpr std::size_t kMax = 3;
  std::vector<std::pair<std::string, std::vector<std::size_t>>> all;
  for (auto& [exception, ranks] : ranks_of) {
    ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
    all.emplace_back(exception, std::move(ranks));
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
  std::string text;
  for (std::size_t i = 0; i < std::min(all.size(), kMax); ++i)
    text += fmt::format("{}{} {} {}", i == 0 ? "" : ", ", name_ranks(job, all[i].second, 6),
                        all[i].second.size() == 1 ? "handles" : "handle", all[i].first);
  return all.size() > kMax ? fmt::format("{}, {} more", text, all.size() - kMax) : text;
}

}  // namespace

std::string describe_members(const JobSnapshot& job, const std::vector<std::pair<std::size_t, std::size_t>>& members) {
  // Of threads that differ only the calls are named, so it need not be known what all of them are blocked in.
  constexpr std::size_t kDiffer = 2;
  std::set<std::string> blocks, calls;
  std::size_t holds = 0, waits = 0;
  for (const auto& [r, t] : members) {
    const ThreadSnapshot& thread = job.ranks[r].threads[t];
    holds += thread.gil == Gil::kHolds;
    waits += thread.gil == Gil::kWaits;
    const bool in_call = analyzers::run_state_of(job, thread) == analyzers::RunState::kInCall;
    if (in_call) calls.insert("blocked in " + thread.syscall->name);
    if (in_call && blocks.size() >= kDiffer) continue;
    std::string block = analyzers::describe_block(job, thread);
    if (!in_call) calls.insert(block);
    blocks.insert(std::move(block));
  }
  std::string text;
  calls.erase("");
  if (blocks.size() == 1) text = *blocks.begin();
  else text = join(calls, ", ");
  auto add = [&](const std::string& more) { text += (text.empty() ? "" : "; ") + more; };
  const bool one = members.size() == 1;
  if (waits > 0) add(one ? "waits for the GIL" : fmt::format("{} wait for the GIL", waits));
  if (holds > 0) add(one ? "holds the GIL" : fmt::format("{} hold their GIL", holds));
  return text;
}

std::string describe_handled_by(const JobSnapshot& job,
                                const std::vector<std::pair<std::size_t, std::size_t>>& members) {
  std::set<std::string> whole;
  std::map<std::string, std::vector<std::size_t>> brief;  // to the ranks
  std::size_t handle = 0;
  for (const auto& [r, t] : members) {
    const ThreadSnapshot& thread = job.ranks[r].threads[t];
    if (!analyzers::handles_exception(thread)) continue;
    ++handle;
    whole.insert(analyzers::describe_innermost(job, thread));
    brief[analyzers::describe_innermost(job, thread, false)].push_back(r);
  }
  if (handle == 0) return "";
  if (brief.size() > 1) return describe_who_handles(job, brief);
  const std::string& what = whole.size() == 1 ? *whole.begin() : brief.begin()->first;
  if (members.size() == 1) return "handles " + what;
  return fmt::format("{} handle {}", handle == members.size() ? "all" : fmt::format("{} of {}", handle, members.size()),
                     what);
}

std::string describe_origin_by(const JobSnapshot& job,
                               const std::vector<std::pair<std::size_t, std::size_t>>& members) {
  std::set<std::string> exceptions, whole, brief;
  for (const auto& [r, t] : members) {
    const ThreadSnapshot& thread = job.ranks[r].threads[t];
    if (!analyzers::handles_exception(thread)) continue;
    exceptions.insert(analyzers::describe_innermost(job, thread, false));
    whole.insert(analyzers::describe_origin_of_innermost(job, thread));
    brief.insert(analyzers::describe_origin_of_innermost(job, thread, false));
  }
  if (exceptions.size() != 1 || brief.size() != 1) return "";
  return whole.size() == 1 ? *whole.begin() : *brief.begin();
}

std::string_view end_in_words(StackEnd end) {
  switch (end) {
    case StackEnd::kComplete: return "complete";
    case StackEnd::kNoUnwindInfo: return "no unwind information";
    case StackEnd::kMemoryUnavailable: return "memory not available";
    case StackEnd::kRepeatedFrame: return "the same frame again";
    case StackEnd::kDepthLimit: return "depth limit";
    case StackEnd::kRegistersUnknown: return "registers not known";
  }
  return "";
}

std::string_view origin_in_words(FrameOrigin origin) {
  switch (origin) {
    case FrameOrigin::kNormal: return "";
    case FrameOrigin::kFramePointer: return "by frame pointer";
    case FrameOrigin::kReturnSlot: return "by return slot";
    case FrameOrigin::kSeparate: return "place in stack unknown";
  }
  return "";
}

}  // namespace rankstacks::report
