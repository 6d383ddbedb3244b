// A saved report: what was read can be analysed, shown, saved and compared, and what was saved reads back as the same.
#include "analyzers/analysis.h"
#include "diff/diff_json.h"
#include "diff/diff_text.h"
#include "input.h"
#include "report/compact_form.h"
#include "report/html_data.h"
#include "report/report.h"

using namespace rankstacks;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto job = report::read_json_report({reinterpret_cast<const char*>(data), size}, "fuzz.json");
  if (!job) {
    fuzz::require(!job.error().what.empty(), "an error says what is wrong");
    return 0;
  }
  const analyzers::Analysis analysis = analyzers::analyze(*job);
  fuzz::require(report::html_data(*job, analysis, false).find('<') == std::string::npos, "nothing ends a page's data");
  report::text_report(*job, analysis, {});
  report::text_report(*job, analysis, {.color = true, .all_threads = true});
  const std::string saved = report::json_report(*job, analysis);
  const auto again = report::read_json_report(saved, "again.json");
  fuzz::require(again.has_value(), "what was saved can be read");
  fuzz::require(report::json_report(*again, analyzers::analyze(*again)) == saved, "and is the same");
  const auto compact = report::read_json_report(report::as_compact_form(saved, report::kMaxReportDepth), "compact");
  fuzz::require(compact.has_value(), "its compact form can be read");
  fuzz::require(report::json_report(*compact, analyzers::analyze(*compact)) == saved, "and is the same");
  // Compared with itself, and with itself without its first processes, so that there is something to match.
  JobSnapshot fewer = *again;
  fewer.ranks.erase(fewer.ranks.begin(), fewer.ranks.begin() + static_cast<std::ptrdiff_t>(fewer.ranks.size() / 2));
  for (const JobSnapshot& other : {*again, fewer}) {
    const diff::Sides sides = diff::with_common_frames({*job, analysis}, {other, analyzers::analyze(other)});
    const diff::JobDiff changes = diff::diff_jobs(sides);
    diff::diff_text(sides, changes, {.all_threads = true});
    diff::diff_json(sides, changes, "old.json", "new.json");
  }
  std::vector<JobSnapshot> both;
  both.push_back(*again);
  both.push_back(*job);
  const JobSnapshot merged = report::merge_snapshots(std::move(both));
  report::text_report(merged, analyzers::analyze(merged), {});
  return 0;
}
