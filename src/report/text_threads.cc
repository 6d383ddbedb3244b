#include "report/text_threads.h"

#include <algorithm>

#include <fmt/format.h>

#include "analyzers/deaths.h"
#include "model/families.h"
#include "report/frame_text.h"
#include "report/json_words.h"
#include "report/sanitize.h"
#include "report/text_gpus.h"
#include "report/text_members.h"
#include "report/thread_notes.h"

namespace rankstacks::report {
namespace {

std::string heading_of(const JobSnapshot& job, const RankSnapshot& rank) {
  std::string text;
  if (rank.kind == RankKind::kChild)
    text =
        fmt::format("child {}:{}{}", rank.host, rank.pid, rank.parent ? fmt::format(" of pid {}", *rank.parent) : "");
  else
    text =
        fmt::format("rank {}{}", rank_label(rank), rank.rank ? fmt::format("  pid {} on {}", rank.pid, rank.host) : "");
  if (rank.coordinates) {
    std::string place;
    for (const auto& [axis, n] : rank.coordinates->axes)
      place += fmt::format("{}{} {}", place.empty() ? "" : ", ", axis, n);
    text += fmt::format("  {} ({})", place, rank.coordinates->from);
  }
  text += fmt::format("  {}", word_of(kSourceWords, rank.source));
  if (rank.path) text += " " + *rank.path;
  if (rank.python_version) text += "  Python" + (rank.python_version->empty() ? "" : " " + *rank.python_version);
  if (rank.status != Status::kComplete) text += fmt::format("  {}", word_of(kStatusWords, rank.status));
  if (rank.signal) {
    text += fmt::format("  {} in thread {}", rank.signal->name, rank.signal->tid);
    if (const std::string fault = analyzers::describe_fault(*rank.signal); !fault.empty()) text += " " + fault;
    if (const std::string code = analyzers::describe_instruction(*rank.signal); !code.empty()) text += ", in " + code;
    if (const std::string again = analyzers::describe_reraise(rank); !again.empty()) text += ", " + again;
    if (const std::string sender = analyzers::describe_sender(job, rank); !sender.empty()) text += ", " + sender;
  }
  return text;
}

std::string heading_of(const JobSnapshot& job, const analyzers::Analysis& analysis, std::size_t r, std::size_t t) {
  const ThreadSnapshot& thread = job.ranks[r].threads[t];
  std::string text =
      fmt::format("thread {} \"{}\"  {}", thread.tid, thread.name, known::to_string(analysis.roles[r][t]));
  const int cluster = analysis.cluster_of[r][t];
  if (cluster >= 0)
    text += fmt::format("  cluster {}{}", cluster,
                        analysis.clusters[static_cast<std::size_t>(cluster)].odd ? " (odd)" : "");
  if (thread.state) text += fmt::format("  {}", *thread.state);
  for (const std::string& note : thread_notes(job, r, t)) text += "  " + note;
  return text;
}

std::string line_of(const Frame& frame, std::size_t number, const TextStyle& style) {
  const bool native = frame.kind == FrameKind::kNative;
  std::string text = fmt::format("    #{:<3} ", number);
  if (native && !frame.inlined) text += fmt::format("{:#018x} ", frame.address);
  text += full_frame_name(frame);
  if (frame.inlined) text += " [inlined]";
  if (frame.origin != FrameOrigin::kNormal) text += fmt::format(" [{}]", origin_in_words(frame.origin));
  const std::string place = full_frame_place(frame);
  if (!place.empty()) text += "  " + place;
  if (native && frame.file && !frame.module.empty())
    text += frame.offset ? fmt::format(" ({}+{:#x})", sanitize(frame.module), *frame.offset)
                         : fmt::format(" ({})", sanitize(frame.module));
  return native ? style.faint(text) : text;
}

void add_thread(const JobSnapshot& job, const analyzers::Analysis& analysis, std::size_t r, std::size_t t,
                const TextStyle& style, std::vector<std::string>& lines) {
  const ThreadSnapshot& thread = job.ranks[r].threads[t];
  lines.push_back("  " + style.strong(sanitize(heading_of(job, analysis, r, t))));
  auto omitted = [&](std::size_t at) {
    if (thread.omitted && thread.omitted->at == at)
      lines.push_back(fmt::format("    ... {} frames left out here", thread.omitted->count));
  };
  auto handles = [&](std::optional<std::size_t> at) {
    if (thread.handles_cxx && thread.handles_cxx->frame == at)
      lines.push_back("         " + sanitize(handled_cxx_note(thread)));
    if (!thread.handles || thread.handles->frame != at) return;
    std::string_view indent = "         ";
    for (const std::string& note : handled_notes(job, thread)) {
      lines.push_back(std::string(indent) + sanitize(note));
      indent = "           ";
    }
  };
  for (const std::string& note : raised_notes(job, thread)) lines.push_back("         " + sanitize(note));
  handles(std::nullopt);
  for (std::size_t f = 0; f < thread.frames.size(); ++f) {
    omitted(f);
    lines.push_back(line_of(job.frames[thread.frames[f]], f, style));
    handles(f);
  }
  omitted(thread.frames.size());
  if (thread.stack_end != StackEnd::kComplete)
    lines.push_back(fmt::format("    the stack ends here: {}", end_in_words(thread.stack_end)));
  if (thread.kernel_place && !thread.kernel_place->stack.empty()) {
    lines.push_back("    in the kernel:");
    for (const std::string& line : thread.kernel_place->stack) lines.push_back("      " + sanitize(line));
  }
}

}  // namespace

std::vector<std::size_t> selected_ranks(const JobSnapshot& job, const std::vector<std::string>& wanted) {
  std::vector<bool> chosen(job.ranks.size(), wanted.empty());
  for (std::size_t r = 0; r < job.ranks.size(); ++r) {
    const RankSnapshot& rank = job.ranks[r];
    for (const std::string& name : wanted)
      if (name == rank_label(rank) || name == fmt::format("{}:{}", rank.host, rank.pid)) chosen[r] = true;
  }
  // A number that is not a rank may be a pid.
  for (const std::string& name : wanted) {
    const bool is_rank =
        std::any_of(job.ranks.begin(), job.ranks.end(), [&](const RankSnapshot& r) { return name == rank_label(r); });
    for (std::size_t r = 0; r < job.ranks.size(); ++r)
      if (!is_rank && name == std::to_string(job.ranks[r].pid)) chosen[r] = true;
  }
  const Families families(job);
  for (std::size_t r = 0; r < job.ranks.size(); ++r)
    if (chosen[r] && job.ranks[r].kind == RankKind::kRank)
      for (const std::size_t child : families.children_of(r)) chosen[child] = true;
  std::vector<std::size_t> ranks;
  for (std::size_t r = 0; r < chosen.size(); ++r)
    if (chosen[r]) ranks.push_back(r);
  return ranks;
}

std::vector<std::string> thread_lines(const JobSnapshot& job, const analyzers::Analysis& analysis,
                                      const std::vector<std::size_t>& ranks, const TextStyle& style) {
  std::vector<std::string> lines;
  for (const std::size_t r : ranks) {
    lines.push_back("");
    lines.push_back(style.strong(sanitize(heading_of(job, job.ranks[r]))));
    if (!job.ranks[r].command.empty()) {
      std::string command;
      for (const std::string& word : job.ranks[r].command) command += (command.empty() ? "" : " ") + word;
      lines.push_back("  " + cut_end(sanitize(command), 200));
    }
    if (job.ranks[r].abort_message)
      lines.push_back("  the C library said: " + cut_end(sanitize(*job.ranks[r].abort_message), 400));
    if (const std::string text = analyzers::describe_faulthandler(job.ranks[r]); !text.empty())
      lines.push_back("  " + cut_end(sanitize(text), 400));
    for (std::size_t t = 0; t < job.ranks[r].threads.size(); ++t) add_thread(job, analysis, r, t, style, lines);
    for (std::string& line : gpu_detail_lines(job, r, style)) lines.push_back(std::move(line));
  }
  return lines;
}

}  // namespace rankstacks::report
