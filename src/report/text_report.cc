// The text report: the verdict first, then the main threads' stacks, one line for each of the other threads, and the
// problems. Frames are folded step by step until all of it fits on one screen, if that is possible.
#include <algorithm>
#include <map>
#include <set>

#include <fmt/format.h>

#include "analyzers/communicator_errors.h"
#include "analyzers/coordinates.h"
#include "analyzers/difference_words.h"
#include "analyzers/node_words.h"
#include "base/text.h"
#include "model/rank_set.h"
#include "report/problem_groups.h"
#include "report/report.h"
#include "report/sanitize.h"
#include "report/text_chains.h"
#include "report/text_clusters.h"
#include "report/text_gpus.h"
#include "report/text_lines.h"
#include "report/text_records.h"
#include "report/text_summary.h"
#include "report/text_threads.h"
#include "report/text_versions.h"

namespace rankstacks::report {
namespace {

constexpr std::size_t kScreenLines = 40;

using Lines = std::vector<std::string>;

std::string milliseconds(double ms) {
  if (ms >= 10'000) return fmt::format("{:.1f} s", ms / 1000);
  return ms >= 100 ? fmt::format("{:.0f} ms", ms) : fmt::format("{:.1f} ms", ms);
}

}  // namespace

std::string totals(const JobSnapshot& job) {
  std::size_t ranks = 0, children = 0, threads = 0, failed = 0, cores = 0;
  std::set<std::string> hosts;  // that are known
  std::set<int> numbers;
  std::optional<double> first, last, stop;
  std::optional<std::size_t> stopped;
  int world = 0;
  for (const RankSnapshot& rank : job.ranks) {
    (rank.kind == RankKind::kRank ? ranks : children) += 1;
    if (rank.kind == RankKind::kRank && rank.rank) numbers.insert(*rank.rank);
    threads += rank.threads.size();
    failed += rank.status == Status::kFailed;
    cores += rank.source == Source::kCore;
    if (rank.host != "unknown") hosts.insert(rank.host);
    world = std::max(world, rank.world_size.value_or(0));
    if (rank.captured_offset_ms && rank.status != Status::kFailed) {
      first = std::min(first.value_or(*rank.captured_offset_ms), *rank.captured_offset_ms);
      last = std::max(last.value_or(*rank.captured_offset_ms), *rank.captured_offset_ms);
    }
    if (rank.stopped_ms) stop = std::max(stop.value_or(0), *rank.stopped_ms);
    if (rank.threads_stopped) stopped = stopped.value_or(0) + *rank.threads_stopped;
  }
  std::string text = counted(ranks, "rank");
  if (world > 0 && static_cast<std::size_t>(world) != ranks)
    text = fmt::format("{} of {} ranks", numbers.size(), world);
  if (world > 0 && numbers.size() < ranks && static_cast<std::size_t>(world) != ranks)
    text += fmt::format(" and {}", counted(ranks - numbers.size(), "other process", "es"));
  if (children > 0) text += fmt::format(" and {}", counted(children, "child process", "es"));
  if (cores == job.ranks.size() && cores > 0) text += " (cores)";
  text +=
      fmt::format(" on {}, {}", hosts.empty() && !job.ranks.empty() ? "an unknown host" : counted(hosts.size(), "host"),
                  counted(threads, "thread"));
  if (failed > 0) text += fmt::format(", {} could not be read", failed);
  int samples = 0;
  double span = 0;
  for (const RankSnapshot& rank : job.ranks)
    for (const ThreadSnapshot& thread : rank.threads)
      if (thread.motion && thread.motion->samples > samples)
        samples = thread.motion->samples, span = thread.motion->span_ms;
  if (const std::string source = analyzers::coordinates_source(job); !source.empty())
    text += fmt::format("; coordinates: {}", sanitize(source));
  std::string figures;
  auto add = [&](const std::string& figure) { figures += (figures.empty() ? "" : ", ") + figure; };
  if (first && ranks + children > 1) add("skew " + milliseconds(*last - *first));
  std::size_t late = 0;
  double latest = 0;
  for (const NodeSnapshot& node : job.nodes) {
    late += node.late_ms.value_or(0) > 0;
    latest = std::max(latest, node.late_ms.value_or(0));
  }
  if (late > 0)
    add(fmt::format("{} of {} nodes began up to {} after the others", late, job.nodes.size(), milliseconds(latest)));
  if (stopped == 0) add("no thread stopped");
  else if (stop) add("longest stop " + milliseconds(*stop));
  if (stopped.value_or(0) > 0 && *stopped < threads) add(counted(*stopped, "thread") + " stopped");
  if (samples > 1) add(fmt::format("{} samples in {}", samples, milliseconds(span)));
  if (job.elapsed_ms) add(milliseconds(*job.elapsed_ms) + " in all");
  return figures.empty() ? text : text + "; " + figures;
}

Lines communicator_lines(const JobSnapshot& job, std::size_t most) {
  Lines lines = analyzers::describe_communicator_errors(job);
  if (lines.size() > most) {
    const std::size_t left_out = lines.size() - most;
    lines.resize(most);
    lines.push_back(fmt::format("... and {} more in the JSON report", left_out));
  }
  for (std::string& line : lines) line = sanitize(line);
  return lines;
}

namespace {

Lines headline(const JobSnapshot& job, const analyzers::Analysis& analysis, const TextStyle& style, std::size_t width,
               bool with_versions = true) {
  const analyzers::Verdict& verdict = analysis.verdict;
  std::string status(analyzers::to_string(verdict.status));
  std::transform(status.begin(), status.end(), status.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  Lines lines = wrap(status + ": " + sanitize(verdict.summary) + ".", width, 2);
  lines.front().replace(0, status.size(),
                        verdict.status == analyzers::VerdictStatus::kCulprit   ? style.alarm(status)
                        : verdict.status == analyzers::VerdictStatus::kHealthy ? style.good(status)
                                                                               : style.strong(status));
  if (!verdict.suspects.empty()) {
    const analyzers::Suspect& first = verdict.suspects.front();
    // Groups and peers can be seen in the stacks that are shown. A comparison of ranks by their stage, or for lack of
    // anything better by their number, cannot, so it is mentioned.
    const bool plain = verdict.reference.empty() || verdict.reference == analyzers::kFromGroups ||
                       verdict.reference == analyzers::kAllRanks;
    const std::string reference = plain ? "" : fmt::format("; who should be alike: {}", sanitize(verdict.reference));
    const std::string advice =
        fmt::format("-> {} (confidence {:.2f}{})", sanitize(first.advice), first.confidence, reference);
    for (std::string& line : wrap(advice, width - 2, 3)) lines.push_back("  " + line);
  }
  for (const std::string& more : {describe_chain(job, analysis), describe_candidates(job, verdict)})
    for (std::string& line : wrap(more, width - 2, 3)) lines.push_back("  " + line);
  for (std::string& line : wrap(totals(job), width, 2)) lines.push_back(std::move(line));
  constexpr std::size_t kMaxCommunicators = 4;
  for (const std::string& said : communicator_lines(job, kMaxCommunicators))
    for (std::string& line : wrap("NCCL: " + said, width, 2)) lines.push_back(std::move(line));
  if (const std::string versions = sanitize(analyzers::describe_versions(job)); with_versions && !versions.empty())
    for (std::string& line : wrap("versions: " + versions, width, 2)) lines.push_back(std::move(line));
  constexpr std::size_t kMaxDifferences = 6;
  for (const std::string& difference : difference_lines(job, analysis, kMaxDifferences))
    for (std::string& line : wrap("differs: " + difference, width, 4)) lines.push_back(std::move(line));
  return lines;
}

}  // namespace

Lines problem_lines(const JobSnapshot& job, const TextStyle& style, std::size_t width) {
  const std::vector<ProblemGroup> problems = problem_groups(job);
  const std::vector<analyzers::NodeGroup> nodes = analyzers::node_groups(job);
  if (problems.empty() && nodes.empty()) return {};
  Lines lines = {style.strong("Problems")};
  for (const analyzers::NodeGroup& group : nodes) {
    for (std::string& line : wrap(sanitize(analyzers::describe_nodes(job, group)), width - 2, 2))
      lines.push_back("  " + line);
    if (!group.first->hint.empty())
      for (std::string& line : wrap("hint: " + sanitize(group.first->hint), width - 4, 2))
        lines.push_back("    " + line);
  }
  for (const auto& [problem, message, hint, ranks] : problems) {
    for (std::string& line :
         wrap(fmt::format("{}: {}", sanitize(name_ranks(job, ranks)), sanitize(message)), width - 2, 2))
      lines.push_back("  " + line);
    if (!hint.empty())
      for (std::string& line : wrap("hint: " + sanitize(hint), width - 4, 2)) lines.push_back("    " + line);
  }
  return lines;
}

namespace {

void append(Lines& to, Lines from) {
  to.insert(to.end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
}

}  // namespace

std::string text_report(const JobSnapshot& job, const analyzers::Analysis& analysis, const TextOptions& options) {
  const TextStyle style(options.color);
  const std::size_t width = static_cast<std::size_t>(std::clamp(options.width, 40, 1000));
  const analyzers::NormalizedFrames frames(job.frames);
  const Families families(job);
  const analyzers::WholeHosts hosts(job);
  const ClusterView view{job, families, hosts, analysis, frames, style, width};

  Lines head = headline(job, analysis, style, width);
  const Lines records = record_lines(job, style, width, 8);
  head.insert(head.end(), records.begin(), records.end());
  const Lines problems = problem_lines(job, style, width);
  // With nothing folded, the other threads may take as many lines as they need; otherwise they get a third of the
  // screen.
  constexpr std::size_t kAll = SIZE_MAX, kOthers = 10, kChildren = 5, kGpus = 6, kLeastClusters = 3;
  Lines body, others;
  bool fits = false;
  for (int step = 0; step <= kFolds; ++step) {
    const Fold fold = static_cast<Fold>(std::min(step, kFolds - 1));
    const bool last = step == kFolds;
    if (step <= 1) {
      others = gpu_lines(job, style, width, step == 0 ? kAll : kGpus);
      append(others, other_thread_lines(view, step == 0 ? kAll : kOthers));
      append(others, child_lines(view, step == 0 ? kAll : kChildren));
    }
    Lines main = main_thread_lines(view, fold, kAll);
    const std::size_t used = head.size() + others.size() + problems.size();
    if (last)  // nothing more to fold: show fewer clusters, but keep the odd ones
      for (std::size_t most = std::min(analysis.clusters.size(), kScreenLines);
           used + main.size() > kScreenLines && most-- > kLeastClusters;)
        main = main_thread_lines(view, fold, most);
    fits = used + main.size() <= kScreenLines;
    body = std::move(main);
    append(body, others);
    if (fits) break;
  }
  // Stacks tell more than versions that frames' paths state.
  if (!fits && analyzers::versions_are_of_names_alone(job)) {
    head = headline(job, analysis, style, width, false);
    append(head, records);
  }

  Lines lines = head;
  append(lines, std::move(body));
  append(lines, problems);
  if (options.all_threads || !options.ranks.empty())
    append(lines, thread_lines(job, analysis, selected_ranks(job, options.ranks), style));
  std::string text;
  for (const std::string& line : lines) text += line + '\n';
  return text;
}

}  // namespace rankstacks::report
