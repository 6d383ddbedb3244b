// Formats the threads that are not main threads, and the child processes: one line for each cluster, innermost frames
// first.
#include <algorithm>
#include <map>
#include <set>

#include <fmt/format.h>

#include "analyzers/activity.h"
#include "analyzers/names.h"
#include "analyzers/normalize.h"
#include "base/text.h"
#include "model/process_key.h"
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

struct Line {
  known::Role role;
  bool odd = false;
  std::string text;
  std::size_t threads = 0;
  std::set<std::size_t> ranks;
};

// The lines, or, if there are too many, the odd ones and one line for the rest of each role.
std::vector<std::string> sum_up(const JobSnapshot& job, const TextStyle& style, std::vector<Line> lines,
                                std::size_t most, std::size_t width) {
  std::map<known::Role, std::size_t> per_role;
  for (const Line& line : lines) ++per_role[line.role];
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
    const Line& line = lines[i];
    const std::size_t of_role = per_role[line.role];
    if (of_role <= keep || shown[line.role] < keep) {
      out.push_back(line.odd ? style.alarm(line.text) : line.text);
    } else if (shown[line.role] == keep) {
      std::size_t threads = 0, stacks = 0;
      std::set<std::size_t> ranks;
      for (std::size_t k = i; k < lines.size(); ++k)
        if (lines[k].role == line.role) {
          ++stacks;
          threads += lines[k].threads;
          ranks.insert(lines[k].ranks.begin(), lines[k].ranks.end());
        }
      const std::string what = counted(stacks, keep == 0 ? "stack" : "more stack");
      out.push_back(
          cut_end(fmt::format("  {} {}, {}, {}", pad(known::to_string(line.role), kRoleColumn), what,
                              counted(threads, "thread"), sanitize(format_rank_set(job, {ranks.begin(), ranks.end()}))),
                  width));
    }
    ++shown[line.role];
  }
  return out;
}

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
Line line_of(const ClusterView& view, const analyzers::Cluster& c) {
  std::string ranks = sanitize(format_rank_set(view.job, c.ranks, 6));
  ranks += c.members.size() == c.ranks.size()
               ? fmt::format(" ({})", counted(c.ranks.size(), "rank"))
               : fmt::format(" ({}, {})", counted(c.ranks.size(), "rank"), counted(c.members.size(), "thread"));
  std::string text = fmt::format("{} {} {} ", c.odd ? "!" : " ", pad(known::to_string(c.role), kRoleColumn),
                                 pad(cut_end(ranks, view.width / 2), kRanksColumn));
  const auto& [r, t] = c.members.front();
  text += stack_in_a_line(view.job, view.job.ranks[r].threads[t], view.frames,
                          view.width - std::min(view.width, columns_of(text)));
  return {c.role, c.odd, std::move(text), c.members.size(), {c.ranks.begin(), c.ranks.end()}};
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
    if (c->role != known::Role::kMain) lines.push_back(line_of(view, *c));
  if (lines.empty()) return {};
  std::vector<std::string> out = {view.style.strong("Other threads, by role")};
  for (std::string& line : sum_up(view.job, view.style, std::move(lines), most, view.width))
    out.push_back(std::move(line));
  return out;
}

std::vector<std::string> brief_main_thread_lines(const ClusterView& view) {
  std::vector<std::string> out;
  for (const analyzers::Cluster* c : clusters_of(view, RankKind::kRank))
    if (c->role == known::Role::kMain) out.push_back(line_of(view, *c).text);
  if (!out.empty()) out.insert(out.begin(), view.style.strong("Main threads"));
  return out;
}

std::vector<std::string> child_lines(const ClusterView& view, std::size_t most) {
  std::vector<Line> lines;
  std::set<std::size_t> processes;
  for (std::size_t r = 0; r < view.job.ranks.size(); ++r)
    if (view.job.ranks[r].kind == RankKind::kChild) processes.insert(r);
  for (const analyzers::Cluster* c : clusters_of(view, RankKind::kChild)) {
    // There are many children: their main threads have a line, their other threads are in --threads all.
    const bool main = std::any_of(c->members.begin(), c->members.end(), [&](const auto& m) {
      return view.job.ranks[m.first].threads[m.second].tid == view.job.ranks[m.first].pid;
    });
    if (!main) continue;
    std::set<std::size_t> parents;
    for (const std::size_t child : c->ranks)
      for (std::size_t r = 0; r < view.job.ranks.size(); ++r) {
        const RankSnapshot& rank = view.job.ranks[r];
        if (rank.kind == RankKind::kRank && is_parent(rank, view.job.ranks[child])) parents.insert(r);
      }
    std::string of = parents.empty() ? "of no rank seen"
                                     : "of " + sanitize(format_rank_set(view.job, {parents.begin(), parents.end()}, 6));
    of += c->ranks.size() == 1 ? fmt::format(" (pid {})", view.job.ranks[c->ranks.front()].pid)
                               : fmt::format(" ({} processes)", c->ranks.size());
    std::string text = fmt::format("  {} {} ", pad(known::to_string(c->role), kRoleColumn),
                                   pad(cut_end(of, view.width / 2), kRanksColumn));
    const auto& [r, t] = c->members.front();
    const ThreadSnapshot& thread = view.job.ranks[r].threads[t];
    const std::string block = sanitize(describe_members(view.job, c->members));
    const std::size_t room = view.width - std::min(view.width, columns_of(text));
    std::string stack = stack_in_a_line(view.job, thread, view.frames, room);
    if (!block.empty() && columns_of(stack) + columns_of(block) + 2 <= room) stack += "; " + block;
    lines.push_back({c->role, false, text + stack, c->members.size(), std::move(parents)});
  }
  if (processes.empty()) return {};
  std::vector<std::string> out = {view.style.strong(
      fmt::format("Child {}", processes.size() == 1 ? "process" : fmt::format("processes: {}", processes.size())))};
  for (std::string& line : sum_up(view.job, view.style, std::move(lines), most, view.width))
    out.push_back(std::move(line));
  return out;
}

}  // namespace rankstacks::report
