// Formats the threads that are not main threads, and the child processes: one line for each cluster, innermost frames
// first.
#include <algorithm>
#include <map>
#include <optional>
#include <span>

#include <fmt/format.h>

#include "analyzers/activity.h"
#include "analyzers/names.h"
#include "analyzers/normalize.h"
#include "base/text.h"
#include "model/rank_set.h"
#include "report/frame_text.h"
#include "report/sanitize.h"
#include "report/text_clusters.h"
#include "report/text_members.h"

namespace rankstacks::report {
namespace {

constexpr std::size_t kRoleColumn = 15, kRanksColumn = 26;

std::string pad(std::string text, std::size_t columns) {
  const std::size_t has = columns_of(text);
  return has < columns ? text + std::string(columns - has, ' ') : text;
}

// One line of the report: it is written only if it is shown, as there may be thousands.
struct Line {
  const analyzers::Cluster* cluster;
  // Of a cluster of child processes: the ranks that have started them.
  std::optional<std::vector<std::size_t>> parents;

  const std::vector<std::size_t>& ranks() const { return parents ? *parents : cluster->ranks; }
};

std::vector<const analyzers::Cluster*> clusters_of(const ClusterView& view, RankKind kind) {
  std::vector<const analyzers::Cluster*> found;
  for (const analyzers::Cluster& c : view.analysis.clusters)
    if (view.job.ranks[c.ranks.front()].kind == kind) found.push_back(&c);
  // By role, odd ones first within it.
  std::stable_sort(found.begin(), found.end(),
                   [](const analyzers::Cluster* a, const analyzers::Cluster* b) { return a->role < b->role; });
  return found;
}

// "! main            2 (1 rank)                 Blocked.__getitem__ train.py:9 < main train.py:15"
std::string line_of_ranks(const ClusterView& view, const analyzers::Cluster& c) {
  std::string ranks = sanitize(format_rank_set(view.job, c.ranks, 6));
  ranks += c.members.size() == c.ranks.size()
               ? fmt::format(" ({})", counted(c.ranks.size(), "rank"))
               : fmt::format(" ({}, {})", counted(c.ranks.size(), "rank"), counted(c.members.size(), "thread"));
  std::string text = fmt::format("{} {} {} ", c.odd ? "!" : " ", pad(known::to_string(c.role), kRoleColumn),
                                 pad(cut_end(ranks, view.width / 2), kRanksColumn));
  const auto& [r, t] = c.members.front();
  text += stack_in_a_line(view.job, view.job.ranks[r].threads[t], view.frames,
                          view.width - std::min(view.width, columns_of(text)));
  return text;
}

// "  data-loader     of 0-3 (8 processes)      Queue.get queues.py:113 < _worker_loop; blocked in poll"
std::string line_of_children(const ClusterView& view, const analyzers::Cluster& c,
                             const std::vector<std::size_t>& parents) {
  std::string of = parents.empty() ? "of no rank seen" : "of " + sanitize(format_rank_set(view.job, parents, 6));
  of += c.ranks.size() == 1 ? fmt::format(" (pid {})", view.job.ranks[c.ranks.front()].pid)
                            : fmt::format(" ({} processes)", c.ranks.size());
  std::string text = fmt::format("  {} {} ", pad(known::to_string(c.role), kRoleColumn),
                                 pad(cut_end(of, view.width / 2), kRanksColumn));
  const auto& [r, t] = c.members.front();
  const ThreadSnapshot& thread = view.job.ranks[r].threads[t];
  const std::string block = sanitize(describe_members(view.job, c.members));
  const std::size_t room = view.width - std::min(view.width, columns_of(text));
  std::string stack = stack_in_a_line(view.job, thread, view.frames, room);
  if (!block.empty() && columns_of(stack) + columns_of(block) + 2 <= room) stack += "; " + block;
  return text + stack;
}

std::string line_of(const ClusterView& view, const Line& line) {
  return line.parents ? line_of_children(view, *line.cluster, *line.parents) : line_of_ranks(view, *line.cluster);
}

// "  data-loader     12 more stacks, 96 threads, 0-7": those of the lines that have the role.
std::string line_of_rest(const ClusterView& view, known::Role role, std::span<const Line> lines, bool some_shown) {
  std::size_t threads = 0, stacks = 0;
  std::vector<bool> has(view.job.ranks.size());
  for (const Line& line : lines) {
    if (line.cluster->role != role) continue;
    ++stacks;
    threads += line.cluster->members.size();
    for (const std::size_t rank : line.ranks()) has[rank] = true;
  }
  std::vector<std::size_t> ranks;
  for (std::size_t rank = 0; rank < has.size(); ++rank)
    if (has[rank]) ranks.push_back(rank);
  const std::string what = counted(stacks, some_shown ? "more stack" : "stack");
  return cut_end(fmt::format("  {} {}, {}, {}", pad(known::to_string(role), kRoleColumn), what,
                             counted(threads, "thread"), sanitize(format_rank_set(view.job, ranks))),
                 view.width);
}

// The lines, or, if there are too many, the odd ones and one line for the rest of each role.
std::vector<std::string> sum_up(const ClusterView& view, const std::vector<Line>& lines, std::size_t most) {
  std::map<known::Role, std::size_t> per_role;
  for (const Line& line : lines) ++per_role[line.cluster->role];
  // The number of lines kept per role, lowered until all fit.
  std::size_t keep = lines.size();
  auto total = [&] {
    std::size_t n = 0;
    for (const auto& [role, count] : per_role) n += count <= keep ? count : keep + 1;
    return n;
  };
  while (keep > 0 && total() > most) --keep;

  std::vector<std::string> out;
  std::map<known::Role, std::size_t> shown;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const known::Role role = lines[i].cluster->role;
    std::size_t& of_role = shown[role];
    if (per_role[role] <= keep || of_role < keep) {
      std::string text = line_of(view, lines[i]);
      out.push_back(lines[i].cluster->odd ? view.style.alarm(text) : std::move(text));
    } else if (of_role == keep) {
      out.push_back(line_of_rest(view, role, std::span(lines).subspan(i), keep > 0));
    }
    ++of_role;
  }
  return out;
}

}  // namespace

std::string stack_in_a_line(const JobSnapshot& job, const ThreadSnapshot& thread,
                            const analyzers::NormalizedFrames& frames, std::size_t room) {
  std::vector<analyzers::StackItem> stack = analyzers::normalized_stack(thread, frames);
  const std::size_t own = analyzers::own_frames(job.frames, thread);
  auto starts_a_thread = [&](const analyzers::StackItem& item) {
    return analyzers::is_place(job.frames[thread.frames[item.index]], known::Place::kThreadStart);
  };
  while (stack.size() > 1 && (stack.back().index >= own || starts_a_thread(stack.back()))) stack.pop_back();
  if (stack.empty()) return "no frames";
  auto class_at = [&](std::size_t i) { return frames.frame_class(thread.frames[stack[i].index]); };
  std::size_t first = 0;
  const auto deciding = analyzers::deciding_frame(job, thread);
  if (deciding && class_at(0) != analyzers::FrameClass::kPython &&
      job.frames[thread.frames[*deciding]].kind == FrameKind::kPython) {
    while (first + 1 < stack.size() && stack[first].index < *deciding) ++first;
  } else {
    while (first + 1 < stack.size() && (class_at(first) == analyzers::FrameClass::kOpaque ||
                                        class_at(first) == analyzers::FrameClass::kInterpreter))
      ++first;
  }
  std::vector<std::string> names;
  for (std::size_t i = first; i < stack.size(); ++i) {
    const Frame& frame = job.frames[thread.frames[stack[i].index]];
    std::string name = brief_frame_name(frame);
    if (frame.kind == FrameKind::kPython)
      name += fmt::format(" {}{}", sanitize(analyzers::base_name(frame.file.value_or("?"))),
                          frame.line ? fmt::format(":{}", *frame.line) : "");
    names.push_back(std::move(name));
  }
  std::string text = names.front();
  const std::string& entry = names.back();
  for (std::size_t i = 1; i < names.size(); ++i) {
    const bool last = i + 1 == names.size();
    const std::size_t tail = last ? 0 : columns_of(entry) + 5;
    if (columns_of(text) + 3 + columns_of(names[i]) + tail <= room) {
      text += " < " + names[i];
      continue;
    }
    if (columns_of(text) + 5 + columns_of(entry) <= room) text += std::string(last ? " < " : " < … < ") + entry;
    break;
  }
  return cut_end(text, room);
}

std::vector<std::string> other_thread_lines(const ClusterView& view, std::size_t most) {
  std::vector<Line> lines;
  for (const analyzers::Cluster* c : clusters_of(view, RankKind::kRank))
    if (c->role != known::Role::kMain) lines.push_back({c, {}});
  if (lines.empty()) return {};
  std::vector<std::string> out = {view.style.strong("Other threads, by role")};
  for (std::string& line : sum_up(view, lines, most)) out.push_back(std::move(line));
  return out;
}

std::vector<std::string> brief_main_thread_lines(const ClusterView& view) {
  std::vector<std::string> out;
  for (const analyzers::Cluster* c : clusters_of(view, RankKind::kRank))
    if (c->role == known::Role::kMain) out.push_back(line_of_ranks(view, *c));
  if (!out.empty()) out.insert(out.begin(), view.style.strong("Main threads"));
  return out;
}

std::vector<std::string> child_lines(const ClusterView& view, std::size_t most) {
  const auto processes = static_cast<std::size_t>(
      std::count_if(view.job.ranks.begin(), view.job.ranks.end(),
                    [](const RankSnapshot& process) { return process.kind == RankKind::kChild; }));
  if (processes == 0) return {};
  std::vector<Line> lines;
  for (const analyzers::Cluster* c : clusters_of(view, RankKind::kChild)) {
    // There are many children: their main threads have a line, their other threads are in --threads all.
    const bool main = std::any_of(c->members.begin(), c->members.end(), [&](const auto& m) {
      return view.job.ranks[m.first].threads[m.second].tid == view.job.ranks[m.first].pid;
    });
    if (!main) continue;
    std::vector<std::size_t> parents;
    for (const std::size_t child : c->ranks)
      for (const std::size_t parent : view.families.parents_of(child))
        if (view.job.ranks[parent].kind == RankKind::kRank) parents.push_back(parent);
    std::sort(parents.begin(), parents.end());
    parents.erase(std::unique(parents.begin(), parents.end()), parents.end());
    lines.push_back({c, std::move(parents)});
  }
  std::vector<std::string> out = {
      view.style.strong(fmt::format("Child {}", processes == 1 ? "process" : fmt::format("processes: {}", processes)))};
  for (std::string& line : sum_up(view, lines, most)) out.push_back(std::move(line));
  return out;
}

}  // namespace rankstacks::report
