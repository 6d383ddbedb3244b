#include "report/html_data.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "analyzers/coordinates.h"
#include "analyzers/deaths.h"
#include "analyzers/difference_words.h"
#include "analyzers/flight_records.h"
#include "analyzers/gpu_health.h"
#include "analyzers/gpu_state.h"
#include "analyzers/node_words.h"
#include "analyzers/place.h"
#include "analyzers/whole_hosts.h"
#include "model/families.h"
#include "model/rank_set.h"
#include "report/html_tables.h"
#include "report/json_words.h"
#include "report/problem_groups.h"
#include "report/sanitize.h"
#include "report/text_chains.h"
#include "report/text_gpus.h"
#include "report/text_members.h"
#include "report/text_summary.h"
#include "report/text_versions.h"
#include "report/thread_notes.h"
#include "report/wait_groups.h"

namespace rankstacks::report {
namespace {

constexpr int kNone = HtmlTables::kNone;
constexpr std::size_t kMaxWaitGroups = 80;  // more could not be read on a screen
constexpr std::size_t kGpuColumns = 200;
// In larger jobs threads have no numbers of their own in the page, which they would make several times as large.
constexpr std::size_t kMaxProcessesWithThreads = 16384;

// The indices of the texts that are not empty.
std::vector<int> texts(HtmlTables& tables, const std::vector<std::string>& lines) {
  std::vector<int> ids;
  for (const std::string& line : lines)
    if (!line.empty()) ids.push_back(tables.text(line));
  return ids;
}

class HtmlData {
 public:
  HtmlData(const JobSnapshot& job, const analyzers::Analysis& analysis)
      : job_(job), analysis_(analysis), families_(job), hosts_(job), tables_(job), json_(1 << 20) {}

  std::string write(bool redacted) {
    json_.open('{', true);
    json_.key("format"), json_.number(2);
    text("version", job_.tool_version);
    text("captured_at", job_.captured_at);
    json_.key("redacted"), json_.boolean(redacted);
    text("totals", totals(job_));
    if (job_.nccl) {
      constexpr std::size_t kMaxCommunicators = 20;
      const auto said = communicator_lines(job_, kMaxCommunicators);
      text("nccl", fmt::format("{}{}{}", job_.nccl->version, said.empty() ? "" : "; ", fmt::join(said, "; ")));
    }
    text("versions", analyzers::describe_versions(job_));
    text_list("environment", environment_lines(job_));
    verdict();
    clusters();
    ranks();
    kinds("rank_kinds", rank_kinds_);
    kinds("thread_kinds", thread_kinds_);
    waits();
    gpus();
    flight_recorder();
    differences();
    problems();
    not_looked_at();
    words_of_roles();
    tables_.write(json_);
    json_.close();
    return json_.take();
  }

 private:
  // A member that is the index of a text; none if it is empty.
  void text(std::string_view name, std::string_view value) {
    if (!value.empty()) json_.key(name), json_.number(tables_.text(value));
  }
  void text_list(std::string_view name, const std::vector<std::string>& lines) {
    if (const std::vector<int> ids = texts(tables_, lines); !ids.empty()) json_.key(name), json_.raw(json_numbers(ids));
  }
  void hundredths(std::string_view name, const std::optional<double>& value) {
    if (value) json_.key(name), json_.number(std::round(*value * 100) / 100);
  }
  void rank_set(const std::vector<std::size_t>& ascending) { json_.key("ranks"), json_.raw(json_ranges(ascending)); }

  void verdict() {
    const analyzers::Verdict& verdict = analysis_.verdict;
    json_.key("verdict");
    json_.open('{', true);
    text("status", analyzers::to_string(verdict.status));
    text("summary", verdict.summary);
    text("reference", verdict.reference);
    json_.key("suspects");
    json_.open('[', true);
    for (const analyzers::Suspect& suspect : verdict.suspects) this->suspect(suspect);
    json_.close();
    json_.key("candidates");
    json_.open('[', true);
    for (const analyzers::Candidate& candidate : verdict.candidates) {
      json_.open('{');
      json_.key("rank"), json_.number(candidate.rank);
      text("summary", candidate.summary);
      text("would_decide", candidate.would_decide);
      json_.close();
    }
    json_.close();
    json_.close();
  }

  void suspect(const analyzers::Suspect& suspect) {
    json_.open('{');
    text("name",
         suspect.missing_rank >= 0 ? fmt::format("rank {}", suspect.missing_rank) : name_ranks(job_, {suspect.rank}));
    if (suspect.missing_rank < 0) json_.key("rank"), json_.number(suspect.rank);
    text("reason", analyzers::to_string(suspect.reason));
    json_.key("confidence"), json_.number(suspect.confidence);
    text("summary", suspect.summary);
    text("advice", suspect.advice);
    json_.key("evidence");
    json_.open('[');
    for (const analyzers::Evidence& evidence : suspect.evidence)
      json_.raw(fmt::format("[{},{}]", evidence.rank, evidence.thread));
    json_.close();
    json_.close();
  }

  void clusters() {
    json_.key("clusters");
    json_.open('[', true);
    for (const analyzers::Cluster& cluster : analysis_.clusters) {
      const auto& [r, t] = cluster.members.front();
      const ThreadSnapshot& thread = job_.ranks[r].threads[t];
      json_.open('{');
      json_.key("role"), json_.number(static_cast<int>(cluster.role));
      json_.key("end"), json_.number(tables_.tree(thread));
      if (cluster.odd) json_.key("odd"), json_.boolean(true);
      text_list("notes", {describe_members(job_, cluster.members), describe_handled_by(job_, cluster.members),
                          describe_origin_by(job_, cluster.members),
                          thread.stack_end == StackEnd::kComplete
                              ? ""
                              : fmt::format("outer frames are missing: {}", end_in_words(thread.stack_end))});
      if (job_.ranks[r].kind == RankKind::kRank) {
        const std::string stages = analyzers::whole_stages(job_, cluster.ranks);
        text("stages", stages.empty() ? hosts_.describe(cluster.ranks) : stages);
      }
      json_.close();
    }
    json_.close();
  }

  // The index of what a thread has in common with other threads: all but its number and its time.
  int thread_kind(std::size_t r, std::size_t t) {
    const ThreadSnapshot& thread = job_.ranks[r].threads[t];
    std::vector<std::string> notes = thread_notes(job_, r, t);
    for (auto* more : {raised_notes, handled_notes})
      for (std::string& note : more(job_, thread)) notes.push_back(std::move(note));
    if (std::string note = handled_cxx_note(thread); !note.empty()) notes.push_back(std::move(note));
    for (const FrameVariables& variables : thread.variables) {
      std::string values;
      for (const auto& [name, value] : variables.numbers)
        values += fmt::format("{}{} = {}", values.empty() ? "" : ", ", name, value);
      if (!values.empty() && variables.frame < thread.frames.size())
        notes.push_back(fmt::format("in {}: {}", frame_title(thread.frames[variables.frame]), values));
    }
    if (thread.kernel_place && !thread.kernel_place->stack.empty()) {
      std::string kernel;
      for (const std::string& line : thread.kernel_place->stack)
        kernel += (kernel.empty() ? "in the kernel: " : " < ") + line;
      notes.push_back(std::move(kernel));
    }
    const std::string state = thread.state ? std::string(1, *thread.state) : "";
    const std::string row =
        fmt::format("[{},{},{},{},{},{},{}]", tables_.text(thread.name), static_cast<int>(analysis_.roles[r][t]),
                    analysis_.cluster_of[r][t], tables_.stack(thread), tables_.text(state),
                    tables_.text(analyzers::describe_place(job_, thread)), json_numbers(texts(tables_, notes)));
    const auto [it, is_new] = thread_kind_index_.try_emplace(row, static_cast<int>(thread_kinds_.size()));
    if (is_new) thread_kinds_.push_back(row);
    return it->second;
  }

  std::string frame_title(FrameId id) const {
    const Frame& frame = job_.frames[id];
    return frame.qualname.value_or(frame.function.value_or("?"));
  }

  void kinds(std::string_view name, const std::vector<std::string>& rows) {
    json_.key(name);
    json_.open('[', true);
    for (const std::string& row : rows) json_.raw(row);
    json_.close();
  }

  void ranks() {
    json_.key("ranks");
    json_.open('[', true);
    for (std::size_t r = 0; r < job_.ranks.size(); ++r) rank(r);
    json_.close();
  }

  // What a process has for itself; the rest is in the row of `rank_kinds` that `like` names.
  void rank(std::size_t r) {
    const RankSnapshot& rank = job_.ranks[r];
    json_.open('{');
    json_.key("like"), json_.number(rank_kind(r));
    if (rank.rank) json_.key("number"), json_.number(*rank.rank);
    if (const std::string label = rank_label(rank); !rank.rank || label != std::to_string(*rank.rank))
      text("label", label);
    if (rank.kind == RankKind::kChild) json_.key("child_of"), json_.number(parent_of(r));
    text("host", rank.host);
    json_.key("pid"), json_.number(rank.pid);
    text("path", rank.path.value_or(""));
    text("coordinates", analyzers::describe_coordinates(job_, r));
    hundredths("stopped_ms", rank.stopped_ms);
    hundredths("offset_ms", rank.captured_offset_ms);
    if (job_.ranks.size() <= kMaxProcessesWithThreads) threads(rank);
    json_.close();
  }

  // The index of what a process has in common with others.
  int rank_kind(std::size_t r) {
    const RankSnapshot& rank = job_.ranks[r];
    JsonText page = std::exchange(json_, JsonText(512));
    json_.open('{');
    text("source", word_of(kSourceWords, rank.source));
    text("status", word_of(kStatusWords, rank.status));
    if (rank.python_version) text("python", rank.python_version->empty() ? "?" : *rank.python_version);
    if (rank.threads_stopped) json_.key("threads_stopped"), json_.number(*rank.threads_stopped);
    std::string command;
    for (const std::string& word : rank.command) command += (command.empty() ? "" : " ") + word;
    text("command", command);
    text_list("death", death_of(rank));
    activity(r);
    std::vector<int> kinds;
    for (std::size_t t = 0; t < rank.threads.size(); ++t) kinds.push_back(thread_kind(r, t));
    json_.key("threads"), json_.raw(json_numbers(kinds));
    text_list("gpus", gpu_detail_lines(job_, r, style_));
    json_.close();
    const std::string row = std::exchange(json_, std::move(page)).take();
    const auto [it, is_new] = rank_kind_index_.try_emplace(row, static_cast<int>(rank_kinds_.size()));
    if (is_new) rank_kinds_.push_back(row);
    return it->second;
  }

  // The index of the rank that the process belongs to; kNone if that is not in the report.
  int parent_of(std::size_t r) const {
    for (const std::size_t parent : families_.parents_of(r))
      if (job_.ranks[parent].kind == RankKind::kRank) return static_cast<int>(parent);
    return kNone;
  }

  std::vector<std::string> death_of(const RankSnapshot& rank) const {
    std::vector<std::string> lines;
    if (rank.signal) {
      std::string line = fmt::format("{} in thread {}", rank.signal->name, rank.signal->tid);
      for (const std::string& more : {analyzers::describe_fault(*rank.signal), analyzers::describe_sender(job_, rank)})
        if (!more.empty()) line += ", " + more;
      if (const std::string again = analyzers::describe_reraise(rank); !again.empty()) line += ", " + again;
      lines.push_back(std::move(line));
    }
    if (rank.abort_message) lines.push_back("the C library said: " + *rank.abort_message);
    if (const std::string text = analyzers::describe_faulthandler(rank); !text.empty()) lines.push_back(text);
    return lines;
  }

  void activity(std::size_t r) {
    const auto& activity = analysis_.activities[r];
    if (!activity) return;
    json_.key("activity");
    json_.open('{');
    text("kind", activity->kind);
    text("summary", activity->summary);
    if (activity->moves) json_.key("moves"), json_.boolean(*activity->moves);
    json_.key("thread"), json_.number(activity->evidence.thread);
    json_.close();
  }

  // The threads' numbers, each less the one before it and the first less the pid, and their processor times.
  void threads(const RankSnapshot& rank) {
    std::vector<std::int64_t> tids;  // the difference of two tids of a saved report may be any
    std::vector<int> times;
    std::int64_t before = rank.pid;
    bool timed = false;
    for (const ThreadSnapshot& thread : rank.threads) {
      tids.push_back(thread.tid - before);
      before = thread.tid;
      constexpr double kMax = 2e9;
      times.push_back(thread.cpu_ms ? static_cast<int>(std::clamp(std::round(*thread.cpu_ms), 0.0, kMax)) : kNone);
      timed = timed || thread.cpu_ms;
    }
    json_.key("tids"), json_.raw(json_numbers(tids));
    if (timed) json_.key("cpu_ms"), json_.raw(json_numbers(times));
  }

  void waits() {
    const WaitGroups waits = group_waits(job_, analysis_, kMaxWaitGroups);
    json_.key("waits");
    json_.open('{', true);
    json_.key("left_out"), json_.number(waits.left_out);
    json_.key("groups");
    json_.open('[', true);
    for (const WaitGroup& group : waits.groups) {
      json_.open('{');
      text("kind", analyzers::to_string(group.kind));
      text("label", group.label);
      rank_set(group.ranks);
      if (!group.threads.empty())
        json_.key("thread"),
            json_.raw(fmt::format("[{},{}]", group.threads.front().first, group.threads.front().second));
      if (group.suspect) json_.key("suspect"), json_.boolean(true);
      if (group.in_chain) json_.key("chain"), json_.boolean(true);
      json_.close();
    }
    json_.close();
    json_.key("edges");
    json_.open('[', true);
    for (const WaitGroupEdge& edge : waits.edges)
      json_.raw(fmt::format("[{},{},{},{},{}]", edge.from, edge.to, tables_.text(analyzers::to_string(edge.evidence)),
                            tables_.text(analyzers::to_string(edge.certainty)), edge.in_chain ? 1 : 0));
    json_.close();
    chains(waits);
    json_.close();
  }

  // Each link: [text, evidence, group, rank, thread], kNone where there is none.
  void chains(const WaitGroups& waits) {
    json_.key("chains");
    json_.open('[', true);
    for (std::size_t c = 0; c < analysis_.verdict.chains.size(); ++c) {
      const analyzers::WaitChain& chain = analysis_.verdict.chains[c];
      if (chain.links.size() < 2) continue;  // the suspect alone
      json_.open('{');
      json_.key("suspect"), json_.number(chain.suspect);
      json_.key("links");
      json_.open('[');
      std::optional<std::size_t> before;
      for (std::size_t l = 0; l < chain.links.size(); ++l) {
        const analyzers::WaitNode& node = analysis_.waits.nodes()[chain.links[l].node];
        std::string label = describe_link(job_, node, before);
        if (label.empty()) label = analyzers::to_string(node.kind);
        const auto evidence = chain.links[l].evidence;
        const std::size_t group = waits.chain_groups[c][l];
        json_.raw(fmt::format(
            "[{},{},{},{},{}]", tables_.text(label), evidence ? tables_.text(analyzers::to_string(*evidence)) : kNone,
            group == SIZE_MAX ? kNone : static_cast<int>(group), node.rank ? static_cast<int>(*node.rank) : kNone,
            node.thread ? static_cast<int>(*node.thread) : kNone));
        if (node.rank) before = node.rank;
      }
      json_.close();
      json_.close();
    }
    json_.close();
  }

  void gpus() {
    std::vector<std::string> lines = gpu_lines(job_, style_, kGpuColumns, SIZE_MAX);
    if (lines.empty()) return;
    lines.erase(lines.begin());  // the heading
    text_list("gpu_summary", lines);
    std::map<std::pair<std::size_t, std::size_t>, analyzers::GpuCondition> conditions;
    for (analyzers::GpuCondition& condition : analyzers::gpu_conditions(job_))
      conditions.emplace(std::pair(condition.rank, condition.gpu), std::move(condition));
    json_.key("gpus");
    json_.open('[', true);
    for (std::size_t r = 0; r < job_.ranks.size(); ++r)
      for (std::size_t g = 0; g < job_.ranks[r].gpus.size(); ++g) {
        const auto found = conditions.find({r, g});
        gpu(r, job_.ranks[r].gpus[g], found == conditions.end() ? nullptr : &found->second);
      }
    json_.close();
  }

  template <class T>
  void figure(std::string_view name, const std::optional<T>& value) {
    if (value) json_.key(name), json_.number(*value);
  }

  void gpu(std::size_t rank, const GpuSnapshot& gpu, const analyzers::GpuCondition* condition) {
    json_.open('{');
    json_.key("rank"), json_.number(rank);
    text("name", gpu.name);
    text("pci", gpu.pci);
    figure("index", gpu.index);
    if (gpu.health) {
      figure("utilization", gpu.health->utilization_mean);
      figure("memory_used", gpu.health->memory_used);
      figure("memory_total", gpu.health->memory_total);
      figure("power_w", gpu.health->power_w);
      figure("temperature_c", gpu.health->temperature_c);
      figure("sm_clock", gpu.health->sm_clock);
    }
    if (condition) {
      text_list("notes", condition->notes);
      if (condition->differs) json_.key("differs"), json_.boolean(true);
    }
    if (gpu.execution) {
      std::vector<std::string> running;
      for (const GpuException& exception : gpu.execution->exceptions)
        running.push_back("exception: " + analyzers::describe_exception(exception));
      for (const GpuKernel& kernel : gpu.execution->kernels) running.push_back(analyzers::describe_kernel(kernel));
      if (running.empty()) running.push_back("no kernel");
      text_list("runs", running);
    }
    json_.close();
  }

  void flight_recorder() {
    const auto differences = analyzers::recorded_differences(job_);
    if (differences.empty()) return;
    json_.key("flight_recorder");
    json_.open('[', true);
    for (const analyzers::RecordedDifference& difference : differences)
      for (const analyzers::RecordedPosition& position : difference.positions) {
        json_.open('{');
        text("group", difference.group);
        rank_set(position.ranks);
        text("text", position.text);
        json_.close();
      }
    json_.close();
  }

  void differences() {
    if (analysis_.differences.empty()) return;
    json_.key("differences");
    json_.open('[', true);
    for (const analyzers::Difference& difference : analysis_.differences) {
      json_.open('{');
      text("kind", analyzers::to_string(difference.kind));
      text("summary", analyzers::describe(job_, difference));
      if (difference.concerns_communication) json_.key("communication"), json_.boolean(true);
      json_.key("sides");
      json_.open('[');
      for (const analyzers::DifferenceSide& side : difference.sides) {
        json_.open('{');
        if (side.value) text("value", side.value->empty() ? "\"\"" : *side.value);
        rank_set(side.ranks);
        json_.close();
      }
      json_.close();
      json_.close();
    }
    json_.close();
  }

  void problems() {
    json_.key("problems");
    json_.open('[', true);
    for (const ProblemGroup& group : problem_groups(job_)) {
      json_.open('{');
      text("code", word_of(kProblemCodeWords, group.problem->code));
      text("message", group.message);
      text("hint", group.hint);
      rank_set(group.ranks);
      json_.close();
    }
    json_.close();
  }

  void not_looked_at() {
    std::vector<std::string> lines;
    for (const UnseenRank& rank : job_.not_looked_at)
      lines.push_back(fmt::format("rank {} (pid {} on {})", rank.rank, rank.pid, rank.host));
    for (const analyzers::NodeGroup& group : analyzers::node_groups(job_))
      lines.push_back(analyzers::describe_nodes(job_, group));
    text_list("not_looked_at", lines);
  }

  void words_of_roles() {
    std::vector<int> words;
    for (int role = 0; role <= static_cast<int>(known::Role::kNative); ++role)
      words.push_back(tables_.text(known::to_string(static_cast<known::Role>(role))));
    json_.key("roles"), json_.raw(json_numbers(words));
  }

  const JobSnapshot& job_;
  const analyzers::Analysis& analysis_;
  const Families families_;
  const analyzers::WholeHosts hosts_;
  const TextStyle style_{false};
  HtmlTables tables_;
  JsonText json_;
  std::vector<std::string> rank_kinds_, thread_kinds_;  // rows, as JSON
  std::unordered_map<std::string, int> rank_kind_index_, thread_kind_index_;
};

}  // namespace

std::string html_data(const JobSnapshot& job, const analyzers::Analysis& analysis, bool redacted) {
  const std::string json = HtmlData(job, analysis).write(redacted);
  std::string text;
  text.reserve(json.size() + json.size() / 64);
  for (const char c : json) {  // "<" is in strings alone
    if (c == '<') text += "\\u003c";
    else text += c;
  }
  return text;
}

}  // namespace rankstacks::report
