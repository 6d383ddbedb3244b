#include "diff/diff_text.h"

#include <algorithm>
#include <cctype>
#include <functional>
#include <map>
#include <string_view>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "analyzers/difference_words.h"
#include "analyzers/place.h"
#include "base/text.h"
#include "diff/diff_words.h"
#include "model/rank_set.h"
#include "report/sanitize.h"
#include "report/text_clusters.h"
#include "report/text_lines.h"
#include "report/text_style.h"

namespace rankstacks::diff {
namespace {

using Lines = std::vector<std::string>;
using report::sanitize;

constexpr std::size_t kMaxLines = 8;  // of a section whose whole is in the JSON form
constexpr std::size_t kWordColumn = 11, kRoleColumn = 15, kRanksColumn = 22;

std::string padded(std::string text, std::size_t columns) {
  const std::size_t used = report::columns_of(text);
  return text + std::string(used < columns ? columns - used : 1, ' ');
}

class Text {
 public:
  Text(const Sides& sides, const JobDiff& diff, const TextOptions& options)
      : sides_(sides),
        diff_(diff),
        style_(options.color),
        all_threads_(options.all_threads),
        width_(static_cast<std::size_t>(std::clamp(options.width, 40, 1000))),
        frames_(sides.now.job.frames) {}

  std::string write() {
    headline();
    main_threads();
    other_threads();
    children();
    clusters();
    counters();
    settings();
    differences();
    if (all_threads_) threads();
    std::string text;
    for (const std::string& line : lines_) text += line + '\n';
    return text;
  }

 private:
  void add(const std::string& line) { lines_.push_back(report::cut_end(line, width_)); }
  void add_wrapped(const std::string& text, std::size_t before) {
    for (const std::string& line : report::wrap(text, width_ - before, before + 2))
      lines_.push_back(std::string(before, ' ') + line);
  }
  void title(const std::string& text) { lines_.push_back(style_.strong(text)); }

  // At most kMaxLines lines of a section.
  void section(const std::string& name, Lines lines) {
    if (lines.empty()) return;
    title(name);
    const std::size_t shown = lines.size() > kMaxLines && !all_threads_ ? kMaxLines - 1 : lines.size();
    for (std::size_t i = 0; i < shown; ++i) add(lines[i]);
    if (shown < lines.size()) add(fmt::format("  ... and {}", counted(lines.size() - shown, "more line")));
  }

  bool is_rank(const ProcessChange& process) const {
    return sides_.now.job.ranks[process.pair.now].kind == RankKind::kRank;
  }

  void headline() {
    std::string word(to_string(diff_.outcome));
    std::replace(word.begin(), word.end(), '-', ' ');
    std::transform(word.begin(), word.end(), word.begin(),
                   [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
    Lines lines = report::wrap(word + ": " + sanitize(summary_of(sides_, diff_)) + ".", width_, 2);
    lines.front().replace(0, word.size(),
                          diff_.outcome == Outcome::kMoved   ? style_.good(word)
                          : diff_.outcome == Outcome::kStood ? style_.alarm(word)
                                                             : style_.strong(word));
    lines_ = std::move(lines);
    side("OLD", sides_.old);
    if (diff_.verdict.same)
      add_wrapped(fmt::format("NEW {}, {}: the same verdict", sanitize(sides_.now.job.captured_at), later()), 2);
    else side("NEW", sides_.now, later());
    if (!diff_.verdict.same) suspects();
  }

  std::string later() const {
    if (!diff_.between_ms) return "at an unknown distance";
    return duration_text(*diff_.between_ms) + (*diff_.between_ms < 0 ? " BEFORE it" : " later");
  }

  void side(const std::string& name, const Side& side, const std::string& when = "") {
    add_wrapped(
        fmt::format("{} {}{}: {}: {}", name, sanitize(side.job.captured_at), when.empty() ? "" : ", " + when,
                    analyzers::to_string(side.analysis.verdict.status), sanitize(side.analysis.verdict.summary)),
        2);
  }

  std::string name_of(const JobSnapshot& job, const analyzers::Suspect& suspect) const {
    return suspect.missing_rank >= 0 ? fmt::format("rank {}", suspect.missing_rank)
                                     : sanitize(name_ranks(job, {suspect.rank}));
  }

  void suspects() {
    const auto &old = sides_.old.analysis.verdict.suspects, &now = sides_.now.analysis.verdict.suspects;
    for (const SuspectChange& change : diff_.verdict.suspects) {
      const auto reason = [](const analyzers::Suspect& s) { return std::string(analyzers::to_string(s.reason)); };
      if (change.old && change.now) {
        const std::string was = reason(old[*change.old]), is = reason(now[*change.now]);
        add(fmt::format("    {} is still a suspect: {}", name_of(sides_.now.job, now[*change.now]),
                        was == is ? is : was + " -> " + is));
      } else if (change.now) {
        add(fmt::format("    {} is a suspect now: {}", name_of(sides_.now.job, now[*change.now]),
                        reason(now[*change.now])));
      } else {
        add(fmt::format("    {} is no suspect any more: {}", name_of(sides_.old.job, old[*change.old]),
                        reason(old[*change.old])));
      }
    }
  }

  std::string place(const Side& side, std::size_t process, std::size_t thread) const {
    return sanitize(analyzers::describe_place(side.job, side.job.ranks[process].threads[thread]));
  }

  // "step 12 -> 20 at main at train.py:17", "main at train.py:17 -> save at io.py:9"
  std::string change_text(const ProcessPair& process, const ThreadChange& thread) const {
    const std::string now = place(sides_.now, process.now, thread.pair.now);
    if (thread.moved_by == MovedBy::kSamples) return now + " (moved between the samples)";
    if (thread.moved_by == MovedBy::kCounter) {
      std::string counters;
      for (const Counter& one : thread.counters)
        counters += fmt::format("{}{} {} -> {}", counters.empty() ? "" : ", ", sanitize(one.name), one.old, one.now);
      return fmt::format("{} ({})", now, counters);
    }
    const bool elsewhere = thread.moved_by == MovedBy::kPlace || thread.movement == Movement::kElsewhere;
    if (!elsewhere) return now;
    const std::string old = place(sides_.old, process.old, thread.pair.old);
    return old == now ? now + " (by another path)" : old + " -> " + now;
  }

  // Ranks whose main threads have done the same, one line for each.
  void main_threads() {
    std::map<std::tuple<int, std::string>, std::vector<std::size_t>> groups;
    std::map<std::tuple<int, std::string>, Movement> movements;
    for (const ProcessChange& process : diff_.processes) {
      if (!is_rank(process) || process.threads.empty()) continue;
      const ThreadChange& main = process.threads.front();
      const auto key = std::tuple(order_of(main.movement), change_text(process.pair, main));
      groups[key].push_back(process.pair.now);
      movements[key] = main.movement;
    }
    Lines lines;
    for (const auto& [key, ranks] : groups) {
      const std::string count =
          fmt::format("{} ({})", sanitize(format_rank_set(sides_.now.job, ranks, 6)), counted(ranks.size(), "rank"));
      lines.push_back("  " + padded(words(movements[key]), kWordColumn) + padded(count, kRanksColumn) +
                      std::get<1>(key));
    }
    section("Main threads", std::move(lines));
  }

  static std::string words(Movement movement) {
    std::string word(to_string(movement));
    std::replace(word.begin(), word.end(), '-', ' ');
    return word;
  }

  // What stands comes first: that is what is looked for.
  static int order_of(Movement movement) {
    switch (movement) {
      case Movement::kStood:
      case Movement::kSamePlace: return 0;
      case Movement::kRan: return 1;
      case Movement::kMoved:
      case Movement::kElsewhere: return 2;
      case Movement::kUnknown: break;
    }
    return 3;
  }

  struct RoleCounts {
    std::vector<std::size_t> ranks;
    std::map<std::string, std::size_t> counts;  // by word
  };

  static void count(RoleCounts& of, std::size_t process, const std::string& word) {
    if (of.ranks.empty() || of.ranks.back() != process) of.ranks.push_back(process);
    ++of.counts[word];
  }

  void other_threads() {
    std::map<known::Role, RoleCounts> roles;
    const auto of = [](const Side& side, std::size_t process, std::size_t thread) {
      return side.analysis.roles[process][thread];
    };
    for (const ProcessChange& process : diff_.processes) {
      if (!is_rank(process)) continue;
      const ProcessPair& pair = process.pair;
      for (std::size_t i = 1; i < process.threads.size(); ++i)
        count(roles[of(sides_.now, pair.now, process.threads[i].pair.now)], pair.now,
              words(process.threads[i].movement));
      for (const std::size_t t : pair.begun) count(roles[of(sides_.now, pair.now, t)], pair.now, "began");
      for (const std::size_t t : pair.ended) count(roles[of(sides_.old, pair.old, t)], pair.now, "ended");
    }
    Lines lines;
    for (const auto& [role, counts] : roles)
      lines.push_back("  " + padded(known::to_string(role), kRoleColumn) +
                      padded(sanitize(format_rank_set(sides_.now.job, counts.ranks, 6)), kRanksColumn) +
                      in_words(counts));
    section("Other threads, by role", std::move(lines));
  }

  static std::string in_words(const RoleCounts& counts) {
    std::string text;
    for (const auto& [word, n] : counts.counts) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", n, word);
    return text;
  }

  void children() {
    RoleCounts counts;
    for (const ProcessChange& process : diff_.processes)
      if (!is_rank(process)) count(counts, process.pair.now, words(process.movement));
    for (const LoneProcess& one : diff_.gone)
      if (sides_.old.job.ranks[one.index].kind == RankKind::kChild) ++counts.counts["gone"];
    for (const LoneProcess& one : diff_.joined)
      if (sides_.now.job.ranks[one.index].kind == RankKind::kChild) ++counts.counts["new"];
    if (!counts.counts.empty()) add("Child processes: " + in_words(counts));
  }

  std::string cluster_line(const ClusterChange& change) const {
    const Side& side = change.now ? sides_.now : sides_.old;
    const analyzers::Cluster& cluster = side.analysis.clusters[change.now ? *change.now : *change.old];
    const auto& [rank, thread] = cluster.members.front();
    const char sign = change.fate == ClusterFate::kCame ? '+' : change.fate == ClusterFate::kWent ? '-' : '=';
    std::string line = fmt::format("  {} {}", sign, padded(known::to_string(cluster.role), kRoleColumn)) +
                       padded(sanitize(format_rank_set(side.job, cluster.ranks, 6)), kRanksColumn);
    if (!change.joined.empty())
      line += fmt::format("joined by {}; ", sanitize(format_rank_set(sides_.now.job, change.joined, 6)));
    if (!change.left.empty())
      line += fmt::format("left by {}; ", sanitize(format_rank_set(sides_.old.job, change.left, 6)));
    const std::size_t used = report::columns_of(line);
    return line + report::stack_in_a_line(side.job, side.job.ranks[rank].threads[thread], frames_,
                                          width_ - std::min(width_, used));
  }

  void clusters() {
    std::map<ClusterFate, std::size_t> fates;
    Lines lines;
    for (const ClusterChange& change : diff_.clusters) {
      ++fates[change.fate];
      if (change.fate != ClusterFate::kStayed || !change.joined.empty() || !change.left.empty())
        lines.push_back(cluster_line(change));
    }
    const std::string name = fmt::format("Clusters: {} came, {} went, {} stayed", fates[ClusterFate::kCame],
                                         fates[ClusterFate::kWent], fates[ClusterFate::kStayed]);
    if (lines.empty()) title(name);
    else section(name, std::move(lines));
  }

  static std::string counter_name(const RankCounter& counter) {
    switch (counter.kind) {
      case CounterKind::kNcclLaunches: return "NCCL's launches on " + counter.group;
      case CounterKind::kRecordedEnqueued: return "Flight Recorder, group " + counter.group + ", last enqueued";
      case CounterKind::kRecordedCompleted: break;
    }
    return "Flight Recorder, group " + counter.group + ", last completed";
  }

  void counters() {
    std::map<std::tuple<std::string, std::int64_t, std::int64_t>, std::vector<std::size_t>> groups;
    for (const RankCounter& counter : diff_.counters)
      groups[{counter_name(counter), counter.old, counter.now}].push_back(counter.now_rank);
    Lines lines;
    for (const auto& [key, ranks] : groups) {
      const auto& [name, old, now] = key;
      lines.push_back(fmt::format("  {}: {}: {}", sanitize(name), sanitize(format_rank_set(sides_.now.job, ranks, 6)),
                                  old == now ? fmt::format("stayed at {}", now) : fmt::format("{} -> {}", old, now)));
    }
    section("Operations", std::move(lines));
  }

  static std::vector<std::string_view> words_of(std::string_view text) {
    std::vector<std::string_view> words;
    while (!text.empty()) {
      const std::size_t end = std::min(text.find(' '), text.size());
      words.push_back(text.substr(0, end));
      text.remove_prefix(std::min(end + 1, text.size()));
    }
    return words;
  }

  // Without the words that both have at their beginning and end: commands are long, and differ in few.
  static std::pair<std::string, std::string> differing_words(const std::string& old, const std::string& now) {
    const auto before = words_of(old), after = words_of(now);
    const std::size_t least = std::min(before.size(), after.size());
    std::size_t first = 0, last = 0;
    while (first < least && before[first] == after[first]) ++first;
    while (first + last < least && before[before.size() - 1 - last] == after[after.size() - 1 - last]) ++last;
    const auto part = [&](const std::vector<std::string_view>& words) {
      if (first + last == words.size()) return std::string();
      const auto begin = words.begin() + static_cast<std::ptrdiff_t>(first);
      const auto end = words.end() - static_cast<std::ptrdiff_t>(last);
      return fmt::format("{}{}{}", first > 0 ? "… " : "", fmt::join(begin, end, " "), last > 0 ? " …" : "");
    };
    return {part(before), part(after)};
  }

  void settings() {
    Lines lines;
    for (SettingChange change : diff_.settings) {
      if (change.setting == Setting::kCommand && !change.old.empty() && !change.now.empty())
        std::tie(change.old, change.now) = differing_words(change.old, change.now);
      const auto shown = [&](const std::string& value) {
        if (value.empty()) return std::string("none");
        constexpr std::size_t kOfBuild = 12;  // as much as tells builds apart
        return sanitize(change.setting == Setting::kBuild ? value.substr(0, kOfBuild) : value);
      };
      const std::string before = fmt::format("  {}: ", what_changed(change));
      const std::string ranks =
          change.ranks.empty() ? "" : fmt::format(" ({})", sanitize(name_ranks(sides_.now.job, change.ranks, 6)));
      const auto [old, now] = fitting(shown(change.old), shown(change.now), before + " -> " + ranks);
      lines.push_back(fmt::format("{}{} -> {}{}", before, old, now, ranks));
    }
    section("Settings", std::move(lines));
  }

  // Two values, cut so that they are on one line with `rest`: a short one leaves its room to the other.
  std::pair<std::string, std::string> fitting(std::string old, std::string now, const std::string& rest) const {
    constexpr std::size_t kLeast = 12;
    const std::size_t used = report::columns_of(rest), most = width_ > used ? width_ - used : 0;
    const std::size_t half = std::max(kLeast, most / 2), of_old = report::columns_of(old),
                      of_now = report::columns_of(now);
    if (of_old + of_now <= most) return {std::move(old), std::move(now)};
    const auto room = [&](std::size_t other) { return std::max(half, most - std::min({most, other, half})); };
    return {report::cut_end(old, room(of_now)), report::cut_end(now, room(of_old))};
  }

  // "python", "NCCL_ALGO", "version of torch"
  static std::string what_changed(const SettingChange& change) {
    if (change.name.empty()) return std::string(to_string(change.setting));
    if (change.setting == Setting::kVariable) return sanitize(change.name);
    return fmt::format("{} of {}", to_string(change.setting), sanitize(change.name));
  }

  void differences() {
    Lines lines;
    for (const DifferenceChange& change : diff_.differences) {
      const bool came = change.fate == DifferenceFate::kCame;
      const Side& side = came ? sides_.now : sides_.old;
      lines.push_back("  " + padded(came ? "came" : "went", kWordColumn) +
                      sanitize(analyzers::describe(side.job, side.analysis.differences[change.index])));
    }
    section("Differences between ranks", std::move(lines));
  }

  void threads() {
    for (const ProcessChange& process : diff_.processes) {
      const ProcessPair& pair = process.pair;
      lines_.emplace_back();
      title(sanitize(
          fmt::format("{} {}", is_rank(process) ? "rank" : "child", rank_label(sides_.now.job.ranks[pair.now]))));
      const auto line = [&](const Side& side, std::size_t of, std::size_t t, const std::string& word,
                            const std::string& text) {
        const ThreadSnapshot& thread = side.job.ranks[of].threads[t];
        add("  " + padded(word, kWordColumn) + padded(std::to_string(thread.tid), 9) +
            padded(known::to_string(side.analysis.roles[of][t]), kRoleColumn) + text);
      };
      for (const ThreadChange& one : process.threads) {
        std::string text = change_text(pair, one);
        if (one.ran_ms && *one.ran_ms > 0) text += fmt::format(" (ran {:.0f} ms)", *one.ran_ms);
        line(sides_.now, pair.now, one.pair.now, words(one.movement), text);
      }
      for (const std::size_t t : pair.begun) line(sides_.now, pair.now, t, "began", place(sides_.now, pair.now, t));
      for (const std::size_t t : pair.ended) line(sides_.old, pair.old, t, "ended", place(sides_.old, pair.old, t));
    }
  }

  const Sides& sides_;
  const JobDiff& diff_;
  const report::TextStyle style_;
  const bool all_threads_;
  const std::size_t width_;
  const analyzers::NormalizedFrames frames_;
  Lines lines_;
};

}  // namespace

std::string diff_text(const Sides& sides, const JobDiff& diff, const TextOptions& options) {
  return Text(sides, diff, options).write();
}

}  // namespace rankstacks::diff
