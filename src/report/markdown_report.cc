#include "report/markdown_report.h"

#include <algorithm>
#include <map>
#include <set>

#include <fmt/format.h>

#include "analyzers/difference_words.h"
#include "analyzers/normalize.h"
#include "base/text.h"
#include "model/rank_set.h"
#include "report/json_words.h"
#include "report/markdown_graph.h"
#include "report/markdown_sections.h"
#include "report/markdown_text.h"
#include "report/sanitize.h"
#include "report/text_chains.h"
#include "report/text_clusters.h"
#include "report/text_gpus.h"
#include "report/text_records.h"
#include "report/text_summary.h"
#include "report/text_threads.h"
#include "report/text_versions.h"

namespace rankstacks::report {
namespace {

using Lines = std::vector<std::string>;

constexpr std::size_t kWidth = 110;  // of a block of code on GitHub's pages

// Shortens one report after the other until one fits.
struct Room {
  std::size_t sentence;  // bytes
  std::size_t clusters;  // lines of the first screen
  bool graph;
  std::size_t differences;  // lines
};
constexpr Room kRooms[] = {
    {2000, 60, true, 12}, {1000, 40, true, 8}, {500, 25, false, 5}, {250, 12, false, 3}, {120, 6, false, 1}};

void append(Lines& to, Lines from) {
  to.insert(to.end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
}

std::string upper(std::string_view word) {
  std::string out(word);
  std::transform(out.begin(), out.end(), out.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return out;
}

class MarkdownText {
 public:
  MarkdownText(const JobSnapshot& job, const analyzers::Analysis& analysis, const MarkdownOptions& options)
      : job_(job),
        analysis_(analysis),
        options_(options),
        frames_(job.frames),
        families_(job),
        hosts_(job),
        view_{job, families_, hosts_, analysis, frames_, style_, kWidth} {}

  std::string write() const {
    const std::vector<MarkdownSection> sections = all_sections();
    std::string text;
    for (const Room& room : kRooms) {
      text = first_screen(room);
      const std::size_t left = options_.max_bytes - std::min(options_.max_bytes, text.size());
      constexpr std::size_t kLeastSections = 600;
      if (left >= kLeastSections || &room == std::end(kRooms) - 1) return text + markdown_sections(sections, left);
    }
    return text;
  }

 private:
  std::string sentence(std::string_view text, const Room& room) const {
    return markdown_sentence(cut_to_bytes(sanitize(text), room.sentence));
  }

  // "- **Python**: 3.11.2 (ranks 0-3)"; "" if there is none.
  std::string versions(std::string_view what, const std::map<std::string, std::set<std::size_t>>& found,
                       const Room& room) const {
    std::string text;
    for (const auto& [version, ranks] : found) {
      text += (text.empty() ? "" : ", ") + version;
      if (found.size() > 1) text += fmt::format(" ({})", name_ranks(job_, {ranks.begin(), ranks.end()}, 6));
    }
    return text.empty() ? "" : fmt::format("- **{}**: {}\n", what, sentence(text, room));
  }

  std::string all_versions(const Room& room) const {
    std::map<std::string, std::set<std::size_t>> python, gpus, drivers;
    for (std::size_t r = 0; r < job_.ranks.size(); ++r) {
      const RankSnapshot& rank = job_.ranks[r];
      if (rank.python_version && !rank.python_version->empty()) python[*rank.python_version].insert(r);
      for (const GpuSnapshot& gpu : rank.gpus) {
        if (!gpu.name.empty()) gpus[gpu.name].insert(r);
        if (gpu.health && !gpu.health->driver.empty()) drivers[gpu.health->driver].insert(r);
      }
    }
    std::string text = versions("rankstacks", {{job_.tool_version, {}}}, room);
    if (const std::string known = analyzers::describe_versions(job_); !known.empty()) {
      text += fmt::format("- **Versions**: {}\n", sentence(known, room));
    } else {
      text += versions("Python", python, room);
      if (job_.nccl) text += versions("NCCL", {{job_.nccl->version, {}}}, room);
    }
    return text + versions("GPUs", gpus, room) + versions("GPU driver", drivers, room);
  }

  std::string verdict(const Room& room) const {
    const analyzers::Verdict& verdict = analysis_.verdict;
    std::string text =
        fmt::format("**{}:** {}.\n\n", upper(analyzers::to_string(verdict.status)), sentence(verdict.summary, room));
    if (!verdict.suspects.empty()) {
      const analyzers::Suspect& first = verdict.suspects.front();
      text += fmt::format("- **To do**: {} (confidence {:.2f})\n", sentence(first.advice, room), first.confidence);
    }
    std::string chain = describe_chain(job_, analysis_, true);
    constexpr std::string_view kWord = "chain: ";
    if (chain.starts_with(kWord)) chain.erase(0, kWord.size());
    for (std::size_t at = chain.find(" <- "); at != std::string::npos; at = chain.find(" <- ", at))
      chain.replace(at, 4, " -> ");
    if (!chain.empty()) text += fmt::format("- **Chain of waits**: {}\n", sentence(chain, room));
    if (const std::string candidates = describe_candidates(job_, verdict); !candidates.empty())
      text += fmt::format("- **Not decided**: {}\n", sentence(candidates, room));
    return text;
  }

  // What NCCL says of its communicators, a line each.
  std::string communicators(const Room& room) const {
    std::string text;
    for (const std::string& line : communicator_lines(job_, room.differences))
      text += fmt::format("- **By NCCL**: {}\n", sentence(line, room));
    return text;
  }

  // What differs between ranks, a line each.
  std::string differences(const Room& room) const {
    std::string text;
    for (const std::string& line : difference_lines(job_, analysis_, room.differences))
      text += fmt::format("- **Differs**: {}\n", sentence(line, room));
    return text;
  }

  std::string first_screen(const Room& room) const {
    std::string text = verdict(room) + fmt::format("- **Job**: {}\n", sentence(totals(job_), room)) +
                       communicators(room) + all_versions(room) + differences(room);
    if (options_.redacted)
      text += "- Names of hosts, users, files of data, addresses, arguments and messages are pseudonyms.\n";
    text += "\n";
    if (room.graph) {
      const std::string graph = markdown_graph(job_, analysis_);
      if (!graph.empty()) text += graph + "\n";
    }
    Lines lines = main_thread_lines(view_, Fold::kUserFrames, std::max<std::size_t>(room.clusters / 4, 3));
    append(lines, other_thread_lines(view_, room.clusters));
    append(lines, child_lines(view_, std::max<std::size_t>(room.clusters / 4, 3)));
    if (lines.empty())
      lines = record_lines(job_, style_, kWidth, std::max<std::size_t>(room.clusters, 3));  // nothing else is known
    const std::size_t most = 3 * room.clusters;
    if (lines.size() > most) {
      const std::size_t left_out = lines.size() - most;
      lines.resize(most);
      lines.push_back(fmt::format("... {} more lines in the section of all clusters", left_out));
    }
    return text + markdown_block(lines) + "\n";
  }

  // The ranks to show in full: few, and those that tell most.
  std::vector<std::size_t> telling_ranks() const {
    if (!options_.ranks.empty()) return options_.ranks;
    constexpr std::size_t kMax = 4;
    std::vector<std::size_t> ranks;
    const auto add = [&](std::size_t rank) {
      if (rank < job_.ranks.size() && ranks.size() < kMax && std::find(ranks.begin(), ranks.end(), rank) == ranks.end())
        ranks.push_back(rank);
    };
    for (const analyzers::Suspect& suspect : analysis_.verdict.suspects) add(suspect.rank);
    for (const analyzers::Candidate& candidate : analysis_.verdict.candidates) add(candidate.rank);
    if (ranks.empty())
      for (const analyzers::Cluster& cluster : analysis_.clusters)
        if (cluster.odd && cluster.role == known::Role::kMain) add(cluster.ranks.front());
    if (ranks.empty()) add(0);
    return ranks;
  }

  // A rank's line in "How it was taken".
  std::string taken(std::size_t r) const {
    const RankSnapshot& rank = job_.ranks[r];
    std::string text =
        fmt::format("{} {}, pid {} on {}: {}, {}", rank.kind == RankKind::kChild ? "child" : "rank", rank_label(rank),
                    rank.pid, rank.host, word_of(kSourceWords, rank.source), word_of(kStatusWords, rank.status));
    if (rank.threads_stopped == 0) text += ", not stopped";
    else if (rank.threads_stopped.value_or(rank.threads.size()) < rank.threads.size())
      text += fmt::format(", {} of {} threads stopped {:.1f} ms", *rank.threads_stopped, rank.threads.size(),
                          rank.stopped_ms.value_or(0));
    else if (rank.stopped_ms) text += fmt::format(", stopped {:.1f} ms", *rank.stopped_ms);
    if (rank.captured_offset_ms) text += fmt::format(", {:.1f} ms after the first", *rank.captured_offset_ms);
    if (rank.path) text += ", " + *rank.path;
    return cut_end(sanitize(text), kWidth);
  }

  Lines how_taken() const {
    Lines lines = {sanitize(fmt::format("by rankstacks {} at {}", job_.tool_version, job_.captured_at))};
    std::map<std::string, std::vector<std::size_t>> commands;
    for (std::size_t r = 0; r < job_.ranks.size(); ++r) {
      std::string command;
      for (const std::string& word : job_.ranks[r].command) command += (command.empty() ? "" : " ") + word;
      if (!command.empty()) commands[command].push_back(r);
    }
    for (const auto& [command, ranks] : commands)
      lines.push_back(
          cut_end(sanitize(fmt::format("command of {}: {}", format_rank_set(job_, ranks, 8), command)), 4 * kWidth));
    for (std::size_t r = 0; r < job_.ranks.size(); ++r) lines.push_back(taken(r));
    return lines;
  }

  std::vector<MarkdownSection> all_sections() const {
    std::vector<MarkdownSection> sections;
    const auto add = [&](std::string title, Lines lines, std::size_t weight, Lines brief = {}) {
      if (!lines.empty()) sections.push_back({std::move(title), std::move(lines), weight, std::move(brief)});
    };
    for (const std::size_t rank : telling_ranks()) {
      Lines lines = thread_lines(job_, analysis_, {rank}, style_);
      if (!lines.empty() && lines.front().empty()) lines.erase(lines.begin());
      const bool numbered = job_.ranks[rank].rank && job_.ranks[rank].kind == RankKind::kRank;
      if (lines.size() == 1 && job_.ranks[rank].flight_record) continue;  // it has neither stacks nor GPUs
      add(numbered ? fmt::format("Rank {} in full", *job_.ranks[rank].rank)
                   : fmt::format("Process {} in full", job_.ranks[rank].pid),
          std::move(lines), 4);
    }
    Lines clusters = main_thread_lines(view_, Fold::kInterpreter, SIZE_MAX);
    Lines others = other_thread_lines(view_, SIZE_MAX);
    append(others, child_lines(view_, SIZE_MAX));
    Lines brief = brief_main_thread_lines(view_);
    append(clusters, others);
    append(brief, std::move(others));
    add("All clusters", std::move(clusters), 4, std::move(brief));
    if (!analysis_.clusters.empty()) add("Flight Recorder", record_lines(job_, style_, kWidth, SIZE_MAX), 3);
    add("GPUs", gpu_lines(job_, style_, kWidth, SIZE_MAX), 2);
    add("Versions, settings and limits", environment_lines(job_), 2);
    add("Problems", problem_lines(job_, style_, kWidth), 2);
    add("How it was taken", how_taken(), 1);
    return sections;
  }

  const JobSnapshot& job_;
  const analyzers::Analysis& analysis_;
  const MarkdownOptions& options_;
  const TextStyle style_{false};
  const analyzers::NormalizedFrames frames_;
  const Families families_;
  const analyzers::WholeHosts hosts_;
  const ClusterView view_;
};

}  // namespace

std::string markdown_report(const JobSnapshot& job, const analyzers::Analysis& analysis,
                            const MarkdownOptions& options) {
  return MarkdownText(job, analysis, options).write();
}

}  // namespace rankstacks::report
