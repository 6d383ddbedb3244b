#include "report/folded.h"

#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "report/frame_text.h"
#include "report/sanitize.h"

namespace rankstacks::report {
namespace {

// One element of a line.
std::string element(std::string text) {
  std::replace(text.begin(), text.end(), ';', ':');
  return text.empty() ? "?" : text;
}

std::string process_name(const RankSnapshot& rank) {
  if (rank.kind == RankKind::kChild)
    return fmt::format("child {} of pid {}", rank_label(rank), rank.parent ? std::to_string(*rank.parent) : "?");
  return "rank " + rank_label(rank);
}

std::string frame_element(const Frame& frame) {
  const std::string place = frame_place(frame);
  return element(place.empty() ? full_frame_name(frame) : fmt::format("{} ({})", full_frame_name(frame), place));
}

}  // namespace

std::string folded_report(const JobSnapshot& job, const analyzers::Analysis& analysis,
                          const std::vector<std::size_t>& ranks) {
  std::vector<std::string> elements(job.frames.size());
  std::string text;
  for (const std::size_t r : ranks) {
    const RankSnapshot& rank = job.ranks[r];
    std::map<std::string, std::size_t> stacks;
    for (std::size_t t = 0; t < rank.threads.size(); ++t) {
      const ThreadSnapshot& thread = rank.threads[t];
      std::string line = element(sanitize(process_name(rank))) + ";" + known::to_string(analysis.roles[r][t]);
      for (std::size_t f = thread.frames.size(); f-- > 0;) {
        std::string& name = elements[thread.frames[f]];
        if (name.empty()) name = frame_element(job.frames[thread.frames[f]]);
        if (thread.omitted && thread.omitted->at == f + 1)
          line += fmt::format(";... {} frames left out here", thread.omitted->count);
        line += ";" + name;
      }
      if (thread.frames.empty()) line += ";no frames";
      ++stacks[line];
    }
    if (rank.threads.empty()) ++stacks[element(sanitize(process_name(rank))) + ";could not be read"];
    for (const auto& [line, count] : stacks) text += fmt::format("{} {}\n", line, count);
  }
  return text;
}

}  // namespace rankstacks::report
