// The main threads' clusters as one tree, outermost frame first:
//
//     Main threads: 2 different stacks
//       <module>                          /home/u/train.py:19
//       > 2 (1 rank)  ODD
//           main                          /home/u/train.py:15
//           Blocked.__getitem__           /home/u/train.py:9
//           . read()                      libc.so.6
//           = blocked in read(fd 5 -> pipe:[123])
//       > 0-1,3-7 (7 ranks)
//           ...
#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "analyzers/activity.h"
#include "analyzers/coordinates.h"
#include "analyzers/names.h"
#include "analyzers/place.h"
#include "analyzers/tree.h"
#include "base/text.h"
#include "model/rank_set.h"
#include "report/frame_text.h"
#include "report/sanitize.h"
#include "report/text_clusters.h"
#include "report/text_members.h"

namespace rankstacks::report {
namespace {

constexpr std::size_t kIndent = 2;

// One line of a stack, before it is cut to the width.
struct Row {
  const Frame* frame = nullptr;  // null: a fold
  std::uint32_t hidden = 0;      // hidden frames outside of it, of the interpreter and of the program's start
  std::size_t folded = 0;
  std::string_view folded_what;
  bool keep = false;
};

class TreeText {
 public:
  TreeText(const ClusterView& view, Fold fold, std::size_t most) : view_(view), fold_(fold) {
    for (const analyzers::Cluster& c : view.analysis.clusters)
      if (c.role == known::Role::kMain && view.job.ranks[c.ranks.front()].kind == RankKind::kRank)
        clusters_.push_back(&c);
    // The verdict's suspects come first: a minority that only waits (another stage of a pipeline) is odd, too.
    std::stable_partition(clusters_.begin(), clusters_.end(), [&](const analyzers::Cluster* c) {
      return std::any_of(
          view.analysis.verdict.suspects.begin(), view.analysis.verdict.suspects.end(),
          [&](const analyzers::Suspect& s) { return std::binary_search(c->ranks.begin(), c->ranks.end(), s.rank); });
    });
    shown_ = std::min(most, clusters_.size());
    for (std::size_t i = 0; i < shown_; ++i) {
      const auto& [r, t] = clusters_[i]->members.front();
      const ThreadSnapshot& thread = view.job.ranks[r].threads[t];
      const std::vector<analyzers::StackItem> stack = analyzers::normalized_stack(thread, view.frames);
      const std::optional<std::size_t> deciding = analyzers::deciding_frame(view.job, thread);
      const std::uint32_t end = tree_.insert(stack, i);
      sample_.resize(tree_.size());
      std::uint32_t node = end;
      for (std::size_t k = 0; k < stack.size(); ++k, node = tree_.node(node).parent) {
        if (sample_[node].frame == nullptr) sample_[node] = row_of(thread, stack, k);
        sample_[node].keep |= stack[k].index == deciding;
      }
    }
  }

  std::vector<std::string> lines() {
    if (clusters_.empty()) return {};
    std::size_t ranks = 0;
    for (const analyzers::Cluster* c : clusters_) ranks += c->ranks.size();
    if (clusters_.size() > 1)
      lines_.push_back(view_.style.strong(fmt::format("Main threads: {} different stacks", clusters_.size())));
    else
      lines_.push_back(
          view_.style.strong(fmt::format("Main threads: {}", ranks == 1 ? "one" : fmt::format("all {} alike", ranks))));
    if (shown_ == 1) lines_.push_back(header(tree_.members_below(analyzers::StackTree::kRoot), kIndent));
    below(analyzers::StackTree::kRoot, shown_ == 1 ? 2 * kIndent : kIndent);
    if (shown_ < clusters_.size()) {
      std::size_t more = 0;
      for (std::size_t i = shown_; i < clusters_.size(); ++i) more += clusters_[i]->ranks.size();
      lines_.push_back(
          fmt::format("  ... and {} more stacks of {} ranks: --threads all", clusters_.size() - shown_, more));
    }
    return std::move(lines_);
  }

 private:
  Row row_of(const ThreadSnapshot& thread, const std::vector<analyzers::StackItem>& stack, std::size_t k) {
    Row row;
    row.frame = &view_.job.frames[thread.frames[stack[k].index]];
    row.hidden = stack[k].hidden;
    const known::ActivityRule* rule = analyzers::activity_rule_of(*row.frame);
    const bool python = row.frame->kind == FrameKind::kPython;
    any_python_ = any_python_ || python;
    const bool user = python && !known::is_library_file(row.frame->file.value_or("<>"));
    row.keep = user || (rule && (!python || rule->match == known::ActivityMatch::kPython));
    return row;
  }

  // Adds the frames of a chain without branches, then what follows: branches, or the end of a stack.
  void below(std::uint32_t node, std::size_t indent) {
    std::vector<Row> rows;
    while (tree_.node(node).children.size() == 1 && tree_.node(node).ending.empty()) {
      node = tree_.node(node).children.front();
      rows.push_back(sample_[node]);
    }
    const analyzers::StackTree::Node& last = tree_.node(node);
    if (last.children.empty() && !rows.empty()) rows.back().keep = true;  // the innermost frame
    for (const Row& row : folded(std::move(rows))) lines_.push_back(text_of(row, indent));
    if (last.children.empty()) return ends(last.ending, indent);

    struct Branch {
      std::uint32_t node;  // kRoot: the stacks that end here
      std::vector<std::size_t> clusters;
    };
    std::vector<Branch> branches;
    if (!last.ending.empty()) branches.push_back({analyzers::StackTree::kRoot, last.ending});
    for (const std::uint32_t child : last.children) branches.push_back({child, tree_.members_below(child)});
    // In the order from above: suspects, then odd ones.
    std::stable_sort(branches.begin(), branches.end(),
                     [](const Branch& a, const Branch& b) { return a.clusters.front() < b.clusters.front(); });
    for (const Branch& branch : branches) {
      lines_.push_back(header(branch.clusters, indent));
      if (branch.node == analyzers::StackTree::kRoot) ends(branch.clusters, indent + 2 * kIndent);
      else below_and_including(branch.node, indent + 2 * kIndent);
    }
  }

  void below_and_including(std::uint32_t node, std::size_t indent) {
    std::vector<Row> rows = {sample_[node]};
    while (tree_.node(node).children.size() == 1 && tree_.node(node).ending.empty()) {
      node = tree_.node(node).children.front();
      rows.push_back(sample_[node]);
    }
    if (tree_.node(node).children.empty()) {
      rows.back().keep = true;
      for (const Row& row : folded(std::move(rows))) lines_.push_back(text_of(row, indent));
      return ends(tree_.node(node).ending, indent);
    }
    for (const Row& row : folded(std::move(rows))) lines_.push_back(text_of(row, indent));
    below(node, indent);
  }

  std::string header(const std::vector<std::size_t>& clusters, std::size_t indent) const {
    std::vector<std::size_t> ranks;
    bool odd = true;
    for (const std::size_t i : clusters) {
      ranks.insert(ranks.end(), clusters_[i]->ranks.begin(), clusters_[i]->ranks.end());
      odd = odd && clusters_[i]->odd;
    }
    std::string which = ranks.size() == 1 ? analyzers::describe_coordinates(view_.job, ranks.front())
                                          : analyzers::whole_stages(view_.job, ranks);
    if (which.empty()) which = view_.hosts.describe(ranks);
    if (!which.empty()) which = (ranks.size() == 1 ? ": " : ", ") + sanitize(which);
    const std::string count = fmt::format(" ({}{})", counted(ranks.size(), "rank"), which);
    const std::size_t room = view_.width - std::min(view_.width, indent + 2 + count.size() + 5);
    const std::string text =
        "> " + cut_end(sanitize(format_rank_set(view_.job, ranks)), room) + count + (odd ? "  ODD" : "");
    return std::string(indent, ' ') + (odd ? view_.style.alarm(text) : view_.style.strong(text));
  }

  // Adds what the threads of the clusters that end here wait for, and which exceptions they handle.
  void ends(const std::vector<std::size_t>& clusters, std::size_t indent) {
    for (const std::size_t i : clusters) {
      const analyzers::Cluster& c = *clusters_[i];
      std::string text = describe_members(view_.job, c.members);
      const auto& [r, t] = c.members.front();
      const ThreadSnapshot& thread = view_.job.ranks[r].threads[t];
      if (thread.frames.empty()) text += std::string(text.empty() ? "" : "; ") + "no frames";
      if (thread.stack_end != StackEnd::kComplete)
        text += fmt::format("{}outer frames are missing: {}", text.empty() ? "" : "; ", end_in_words(thread.stack_end));
      for (const std::string& line :
           {text, describe_handled_by(view_.job, c.members), describe_origin_by(view_.job, c.members)})
        if (!line.empty())
          lines_.push_back(std::string(indent, ' ') +
                           cut_end("= " + sanitize(line), view_.width - std::min(view_.width, indent)));
    }
  }

  static bool is_native(const Row& row) { return row.frame && row.frame->kind == FrameKind::kNative; }
  static bool is_library(const Row& row) {
    return row.frame && row.frame->kind == FrameKind::kPython && known::is_library_file(row.frame->file.value_or("<>"));
  }

  // Folds runs of rows longer than `limit` for which `in_run` holds: `ends_kept` rows at each end and the marked rows
  // stay.
  static std::vector<Row> fold_runs(std::vector<Row> rows, bool (*in_run)(const Row&), std::size_t limit,
                                    std::size_t ends_kept, std::string_view what) {
    std::vector<Row> out;
    for (std::size_t i = 0; i < rows.size();) {
      std::size_t end = i;
      while (end < rows.size() && in_run(rows[end])) ++end;
      if (end == i) {
        out.push_back(rows[i++]);
        continue;
      }
      const bool too_long = end - i > limit;
      for (std::size_t k = i; k < end; ++k) {
        if (!too_long || rows[k].keep || k < i + ends_kept || k + ends_kept >= end) {
          out.push_back(rows[k]);
        } else if (!out.empty() && !out.back().frame && out.back().folded > 0 && out.back().folded_what == what) {
          ++out.back().folded;
        } else {
          Row fold;
          fold.folded = 1;
          fold.folded_what = what;
          out.push_back(fold);
        }
      }
      i = end;
    }
    // A fold of one frame saves nothing; it is only created if its neighbours were folded too.
    return out;
  }

  std::vector<Row> folded(std::vector<Row> rows) const {
    switch (fold_) {
      case Fold::kInterpreter: {
        std::vector<Row> out;
        for (Row& row : rows) {
          if (row.hidden > 0) {
            Row fold;
            fold.folded = row.hidden;
            fold.folded_what = any_python_ ? "interpreter" : "start-up";
            out.push_back(fold);
          }
          out.push_back(row);
        }
        return out;
      }
      case Fold::kLongNativeRuns: return fold_runs(std::move(rows), is_native, 4, 2, "native");
      case Fold::kNativeRuns: return fold_runs(std::move(rows), is_native, 3, 1, "native");
      case Fold::kLibraryRuns:
        return fold_runs(fold_runs(std::move(rows), is_native, 3, 1, "native"), is_library, 3, 1, "library");
      case Fold::kUserFrames:
        return fold_runs(fold_runs(std::move(rows), is_native, 1, 0, "native"), is_library, 1, 0, "library");
    }
    return rows;
  }

  std::string text_of(const Row& row, std::size_t indent) const {
    const std::string blanks(indent, ' ');
    if (!row.frame)
      return blanks +
             view_.style.faint(fmt::format("... {} {} frame{}", row.folded, row.folded_what, plural(row.folded)));
    const bool native = row.frame->kind == FrameKind::kNative;
    const std::size_t room = view_.width - std::min(view_.width, indent);
    std::string name = (native ? ". " : "") + frame_name(*row.frame);
    if (row.frame->inlined) name += " [inlined]";
    if (row.frame->origin != FrameOrigin::kNormal) name += fmt::format(" [{}]", origin_in_words(row.frame->origin));
    const std::string place = frame_place(*row.frame);
    // The place gets at least two fifths of the line; the name takes what it needs of the rest.
    const std::size_t least_place = std::min(columns_of(place), room * 2 / 5);
    name = cut_end(name, room - std::min(room, least_place + 2));
    const std::size_t column = std::max<std::size_t>(
        columns_of(name) + 2, room > kNameColumn + 20 ? kNameColumn - std::min(kNameColumn, indent) : 0);
    const std::string pad(column - columns_of(name), ' ');
    if (place.empty()) return blanks + (native ? view_.style.faint(name) : name);
    std::size_t place_room = room > column ? room - column : 0;
    std::string gap = pad;
    if (columns_of(place) > place_room) {  // for a long path: give up the alignment first
      gap = "  ";
      place_room = room - std::min(room, columns_of(name) + 2);
    }
    const std::string line = name + gap + fit_place(place, place_room);
    return blanks + (native ? view_.style.faint(line) : line);
  }

  static constexpr std::size_t kNameColumn = 46;

  const ClusterView& view_;
  const Fold fold_;
  std::vector<const analyzers::Cluster*> clusters_;
  std::size_t shown_ = 0;
  analyzers::StackTree tree_;
  std::vector<Row> sample_;  // by node
  bool any_python_ = false;
  std::vector<std::string> lines_;
};

}  // namespace

std::vector<std::string> main_thread_lines(const ClusterView& view, Fold fold, std::size_t most) {
  return TreeText(view, fold, most).lines();
}

}  // namespace rankstacks::report
