#include "dumps/dump.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <map>

#include <fmt/format.h>

#include "base/text.h"
#include "dumps/cursor.h"
#include "dumps/headings.h"
#include "dumps/native_frame.h"
#include "dumps/prefixes.h"
#include "dumps/readers.h"
#include "model/captured_at.h"
#include "model/file_rank.h"

namespace rankstacks::dumps {
namespace {

// A tool, and a line that no other text has.
struct Tool {
  std::string_view name;
  bool (*begins)(std::string_view line);
  void (*read)(std::string_view text, Draft& draft);
};

bool begins_with_number(std::string_view line, std::string_view word, std::string_view behind) {
  Cursor cursor(line);
  return cursor.take(word) && cursor.number<int>() && cursor.take(behind);
}

bool begins_py_spy(std::string_view line) {
  Cursor cursor(line);
  return cursor.take("Thread ") && (cursor.hex() || cursor.number<int>()) &&
         (cursor.take(" (idle") || cursor.take(" (active"));
}
bool begins_pystack(std::string_view line) { return begins_with_number(line, "Traceback for thread ", " "); }
bool begins_gdb(std::string_view line) {
  if (begins_with_number(line, "Thread ", " (Thread 0x") || begins_with_number(line, "Thread ", " (LWP ") ||
      begins_with_number(line, "Thread ", " (process "))
    return true;
  Cursor cursor(line);
  if (take_frame_number(cursor) != 0) return false;
  const bool has_address = cursor.hex().has_value();
  return has_address ? cursor.take(" in ") : contains(cursor.rest(), " (") && contains(cursor.rest(), ") at ");
}
bool begins_cuda_gdb(std::string_view line) {
  if (line.starts_with("(cuda-gdb)") || line == "No CUDA kernels.") return true;
  for (const std::string_view begin : {"[Current focus set to CUDA kernel ", "[Switching focus to CUDA kernel ",
                                       "Opening GPU coredump: ", "CUDA Exception: "})
    if (line.starts_with(begin)) return true;
  return line.starts_with("Kernel ") && contains(line, " GridDim ") && contains(line, " BlockDim ");
}
bool begins_eu_stack(std::string_view line) {
  return begins_with_number(line, "PID ", " - ") || begins_with_number(line, "TID ", ":");
}
bool begins_faulthandler(std::string_view line) {
  return line.ends_with("(most recent call first):") &&
         (line.starts_with("Current thread 0x") || line.starts_with("Thread 0x") || line.starts_with("Stack "));
}
bool begins_coredumpctl(std::string_view line) {
  return begins_with_number(line, "Stack trace of thread ", ":") ||
         (line.starts_with("Process ") && line.ends_with(" dumped core."));
}

constexpr std::array<Tool, 7> kTools = {{{"coredumpctl", begins_coredumpctl, read_coredumpctl},
                                         {"py-spy", begins_py_spy, read_py_spy},
                                         {"pystack", begins_pystack, read_pystack},
                                         {"cuda-gdb", begins_cuda_gdb, read_gdb},
                                         {"gdb", begins_gdb, read_gdb},
                                         {"eu-stack", begins_eu_stack, read_eu_stack},
                                         {"faulthandler", begins_faulthandler, read_faulthandler}}};
constexpr Tool kPySpyJson{"py-spy", nullptr, read_py_spy_json};

bool is_py_spy_json(std::string_view text) {
  text = text.substr(0, 4096);
  const std::size_t begin = text.find_first_not_of(" \t\r\n");
  return begin != std::string_view::npos && text[begin] == '[' && contains(text, "\"thread_id\"");
}

const Tool* recognised(std::string_view text) {
  if (is_py_spy_json(text)) return &kPySpyJson;
  const Tool* found = nullptr;
  each_line(text, [&](std::string_view line) {
    if (found != nullptr) return;
    const std::string_view bare = trimmed(line);
    for (const Tool& tool : kTools)
      if (found == nullptr && tool.begins(bare)) found = &tool;
  });
  return found;
}

bool has_frames(const FrameTable& frames, const RankSnapshot& rank, FrameKind kind) {
  for (const ThreadSnapshot& thread : rank.threads)
    for (const FrameId id : thread.frames)
      if (frames[id].kind == kind) return true;
  return false;
}

constexpr std::string_view kOneSample = "one sample";

// What the text cannot tell.
std::string shortcomings(const FrameTable& frames, const RankSnapshot& rank) {
  std::string message = fmt::format("read from the output of {}: ", *rank.dumped_by);
  if (rank.threads.empty()) return fmt::format("{}no stacks of its threads, {}", message, kOneSample);
  if (!has_frames(frames, rank, FrameKind::kNative)) message += "no native frames, ";
  if (rank.python_version && !has_frames(frames, rank, FrameKind::kPython)) message += "no Python frames, ";
  const bool has_states = std::any_of(rank.threads.begin(), rank.threads.end(),
                                      [](const ThreadSnapshot& t) { return t.state.has_value(); });
  // pystack prints no states; some are known from the source lines that it prints.
  if (!has_states || rank.dumped_by == "pystack") message += "no states, ";
  return fmt::format("{}no system calls, {}", message, kOneSample);
}

void describe(const FrameTable& frames, const Draft& draft, RankSnapshot& rank) {
  rank.problems.push_back({shortcomings(frames, rank),
                           "rankstacks attach, or its report with --format json, tells more",
                           ProblemCode::kFromOtherTool});
  if (draft.lines_not_understood() > 0)
    rank.problems.push_back(
        {fmt::format("{} line{} of the text {} not understood", draft.lines_not_understood(),
                     plural(draft.lines_not_understood()), draft.lines_not_understood() == 1 ? "was" : "were"),
         std::nullopt, ProblemCode::kMalformed});
  if (draft.cut())
    rank.problems.push_back({"the text has more than is read: processes, threads or frames are missing", std::nullopt,
                             ProblemCode::kLimit});
}

// Adds the processes of one rank's text to the job.
void add_processes(std::string_view text, const std::string& path, std::optional<int> number, JobSnapshot& job) {
  const Tool* tool = recognised(text);
  if (tool == nullptr) return;
  Draft draft(job.frames);
  tool->read(text, draft);
  std::vector<RankSnapshot> ranks = draft.finish();
  for (RankSnapshot& rank : ranks) {
    if (ranks.size() == 1) rank.rank = number;
    rank.path = path;
    rank.dumped_by = rank.gpus.empty() ? std::string(tool->name) : "cuda-gdb";  // it may look like gdb's at first
    name_modules(job.frames, rank);
    describe(job.frames, draft, rank);
    job.ranks.push_back(std::move(rank));
  }
}

// A rank that torch's debug server has asked, and that has not answered.
RankSnapshot silent_rank(const std::string& error) {
  RankSnapshot rank;
  rank.source = Source::kDump;
  rank.status = Status::kFailed;
  rank.dumped_by = "torch";
  const bool late = contains(error, "Timeout") || error == "Error: 408";
  rank.problems.push_back(
      {fmt::format("it did not answer torch's debug server ({})", error),
       late ? "its process is stopped, or holds the GIL in native code: look at it by rankstacks attach"
            : "its process may have ended: look at what it has logged last",
       late ? ProblemCode::kTimeout : ProblemCode::kUnreadable});
  return rank;
}

void add_answers(const RankAnswers& answers, const std::string& path, JobSnapshot& job) {
  for (const auto& [number, answer] : answers.of_rank) {
    const std::size_t before = job.ranks.size();
    add_processes(answer.text, path, number, job);
    if (answer.error && before == job.ranks.size()) {
      RankSnapshot& rank = job.ranks.emplace_back(silent_rank(*answer.error));
      rank.rank = number;
      rank.path = path;
    }
    for (std::size_t r = before; r < job.ranks.size(); ++r) {
      job.ranks[r].host = answer.host.empty() ? "unknown" : answer.host;
      job.ranks[r].world_size = answers.world_size;
    }
  }
}

bool has_stacks(const RankAnswers& answers) {
  return std::any_of(answers.of_rank.begin(), answers.of_rank.end(),
                     [](const auto& one) { return recognised(one.second.text) != nullptr; });
}

}  // namespace

std::string_view tool_of(std::string_view text) {
  const Tool* tool = recognised(text);
  return tool == nullptr ? std::string_view() : tool->name;
}

bool is_dump(std::string_view text) {
  // A saved report: of hundreds of megabytes no line is searched.
  if (const std::size_t begin = text.find_first_not_of(" \t\r\n");
      begin == std::string_view::npos || text[begin] == '{')
    return false;
  if (!tool_of(text).empty() || has_stacks(split_by_heading(text))) return true;
  const auto texts = split_by_rank(text);
  return std::any_of(texts.begin(), texts.end(), [](const auto& one) { return !tool_of(one.second).empty(); });
}

Result<JobSnapshot> read_dump(std::string_view text, const std::string& path, std::optional<int> rank) {
  JobSnapshot job;
  job.tool_version = RANKSTACKS_VERSION;
  job.captured_at = captured_at_text(std::chrono::system_clock::now());
  const auto by_rank = split_by_rank(text);
  const RankAnswers answers = split_by_heading(text);
  for (const auto& [number, of_rank] : by_rank) add_processes(of_rank, path, number, job);
  if (by_rank.empty() && has_stacks(answers)) add_answers(answers, path, job);
  else if (by_rank.empty()) add_processes(text, path, rank, job);
  if (job.ranks.empty())
    return fail({.code = ErrorCode::kMalformed, .subject = path, .what = "a dump of another tool without any stack"});
  return job;
}

std::optional<int> rank_from_dump_name(const std::string& path) {
  if (const auto rank = rank_from_file_name(path)) return rank;
  std::string_view name = std::string_view(path).substr(path.rfind('/') + 1);
  const auto number_behind_dot = [&]() -> std::optional<int> {
    const std::size_t dot = name.rfind('.');
    if (dot == std::string_view::npos) return std::nullopt;
    const auto number = number_of<int>(name.substr(dot + 1));
    name = name.substr(0, dot);
    return number && *number >= 0 && *number <= kMaxRank ? number : std::nullopt;
  };
  if (const auto rank = number_behind_dot()) return rank;
  return number_behind_dot();
}

namespace {

// How much a dump tells.
int worth(const FrameTable& frames, const RankSnapshot& rank) {
  const bool python = has_frames(frames, rank, FrameKind::kPython);
  const bool native = has_frames(frames, rank, FrameKind::kNative);
  return !rank.python_version ? native : 2 * python + (python && native);
}

// The dump says that it is one of several.
void count_samples(RankSnapshot& rank, std::size_t earlier) {
  for (Problem& problem : rank.problems) {
    const std::size_t at = problem.message.rfind(kOneSample);
    if (problem.code == ProblemCode::kFromOtherTool && at != std::string::npos)
      problem.message.replace(at, kOneSample.size(), fmt::format("{} samples", earlier + 1));
  }
}

}  // namespace

std::map<std::size_t, std::vector<RankSnapshot>> keep_one_dump_of_each(JobSnapshot& job) {
  std::map<std::pair<int, Pid>, std::vector<std::size_t>> of_process;
  for (std::size_t r = 0; r < job.ranks.size(); ++r) {
    const RankSnapshot& rank = job.ranks[r];
    if (rank.source == Source::kDump && (rank.rank || rank.pid != 0))
      of_process[{rank.rank.value_or(-1), rank.pid}].push_back(r);
  }
  // A text without a pid (faulthandler's) is of the only process that has its rank.
  for (auto& [key, dumps] : of_process) {
    if (key.first < 0 || key.second != 0) continue;
    const auto next = of_process.upper_bound(key);
    const auto last = of_process.upper_bound({key.first, INT32_MAX});
    if (next == last || std::next(next) != last) continue;
    next->second.insert(next->second.end(), dumps.begin(), dumps.end());
    dumps.clear();
  }
  std::vector<bool> left_out(job.ranks.size());
  std::map<std::size_t, std::vector<std::size_t>> samples;  // of the one that is kept: those before it
  for (auto& [key, dumps] : of_process) {
    if (dumps.size() < 2) continue;
    // Of equal ones the last: the files of a tool that dumps again and again are named by the time.
    std::size_t best = dumps.front();
    for (const std::size_t r : dumps)
      if (worth(job.frames, job.ranks[r]) >= worth(job.frames, job.ranks[best])) best = r;
    for (const std::size_t r : dumps) {
      if (r == best) continue;
      left_out[r] = true;
      const bool is_sample = r < best && job.ranks[r].dumped_by == job.ranks[best].dumped_by &&
                             worth(job.frames, job.ranks[r]) == worth(job.frames, job.ranks[best]);
      if (is_sample) samples[best].push_back(r);
      // cuda-gdb's shows what no other does.
      const bool has_gpus = job.ranks[best].gpus.empty() && !job.ranks[r].gpus.empty();
      if (has_gpus) job.ranks[best].gpus = std::move(job.ranks[r].gpus);
      if (is_sample || (job.ranks[r].threads.empty() && job.ranks[r].gpus.empty())) continue;  // nothing is left out
      job.ranks[best].problems.push_back({fmt::format("another dump of this process was left out{}: {}, of {}",
                                                      has_gpus ? ", except for what runs on its GPUs" : "",
                                                      *job.ranks[r].path, job.ranks[r].dumped_by.value_or("")),
                                          std::nullopt, ProblemCode::kMismatch});
    }
  }
  std::vector<RankSnapshot> ranks;
  std::map<std::size_t, std::vector<RankSnapshot>> earlier;
  for (std::size_t r = 0; r < job.ranks.size(); ++r) {
    if (left_out[r]) continue;
    if (const auto before = samples.find(r); before != samples.end()) {
      count_samples(job.ranks[r], before->second.size());
      for (const std::size_t sample : before->second) earlier[ranks.size()].push_back(std::move(job.ranks[sample]));
    }
    ranks.push_back(std::move(job.ranks[r]));
  }
  job.ranks = std::move(ranks);
  return earlier;
}

}  // namespace rankstacks::dumps
