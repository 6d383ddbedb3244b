#include "report/text_records.h"

#include <utility>

#include <fmt/format.h>

#include "analyzers/flight_records.h"
#include "analyzers/recorded_times.h"
#include "base/text.h"
#include "model/rank_set.h"
#include "report/sanitize.h"
#include "report/text_lines.h"

namespace rankstacks::report {

std::vector<std::string> record_lines(const JobSnapshot& job, const TextStyle& style, std::size_t width,
                                      std::size_t most) {
  std::vector<std::string> lines;
  for (const analyzers::RecordedDifference& difference : analyzers::recorded_differences(job))
    for (const analyzers::RecordedPosition& position : difference.positions)
      lines.push_back(cut_end(
          "  " + sanitize(fmt::format("{}: {} {}", difference.group, name_ranks(job, position.ranks), position.text)),
          width));
  if (lines.size() > most) {
    const std::size_t left_out = lines.size() - (most - 1);
    lines.resize(most - 1);
    lines.push_back(fmt::format("  ... and {} in the JSON report", counted(left_out, "more line")));
  }
  if (const std::string silence = analyzers::describe_silence(job); !silence.empty())
    for (std::string& line : wrap(sanitize(silence), width - 2, 2)) lines.push_back("  " + std::move(line));
  if (lines.empty()) return lines;
  lines.insert(lines.begin(), style.strong("Flight Recorder"));
  return lines;
}

}  // namespace rankstacks::report
