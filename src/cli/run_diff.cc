#include "cli/run_diff.h"

#include <algorithm>
#include <optional>
#include <ostream>
#include <utility>
#include <vector>

#include "analyzers/analysis.h"
#include "cli/messages.h"
#include "cli/saved_reports.h"
#include "cli/terminal.h"
#include "diff/diff_json.h"
#include "diff/diff_text.h"
#include "redact/redact.h"
#include "redact/secrets.h"
#include "report/sanitize.h"

namespace rankstacks::cli {
namespace {

// std::nullopt, after a message, if it cannot be read: a comparison needs both.
std::optional<redact::Report> read_side(const Options& options, const std::string& path, std::ostream& err) {
  bool all_read = true;
  auto job = read_snapshots({path}, {}, options.capture.timeout, err, all_read);
  if (!job) return std::nullopt;
  analyzers::Analysis analysis = analyzers::analyze(*job);
  return redact::Report{std::move(*job), std::move(analysis)};
}

// A path as the report shows it: it may name its owner's home, and hold a secret.
std::string shown_path(const Options& options, const std::string& path) {
  if (options.redact) return path.substr(path.rfind('/') + 1);
  return options.with_secrets ? path : redact::without_secrets(path, redact::Text::kPath);
}

}  // namespace

int run_diff(const Options& options, std::ostream& out, std::ostream& err) {
  std::vector<redact::Report> reports;
  bool both = true;
  for (const std::string& path : options.paths) {
    auto side = read_side(options, path, err);
    both = both && side.has_value();
    if (side) reports.push_back(std::move(*side));
  }
  if (!both) return 2;
  redact::RedactedReports shown =
      redact::redact_together(std::move(reports), {.names = options.redact, .secrets = !options.with_secrets});
  if (!options.redact_map.empty()) {
    if (const auto written = redact::write_map(options.redact_map, shown.names); !written) {
      print_error(err, report::sanitize(written.error().message()), written.error().hint);
      return 2;
    }
  }
  redact::Report &old = shown.reports.front(), &now = shown.reports.back();
  // Each may have failed ranks: then there was a report of each, and there is one of both.
  const int status = std::max(report_problems(old.job, err, "OLD: "), report_problems(now.job, err, "NEW: "));
  const diff::Sides sides = diff::with_common_frames({std::move(old.job), std::move(old.analysis)},
                                                     {std::move(now.job), std::move(now.analysis)});
  const diff::JobDiff changes = diff::diff_jobs(sides);
  if (changes.outcome == diff::Outcome::kUnrelated)
    print_error(err, "no process and no rank of the old report is in the new one",
                "name two reports of one job, the earlier first");
  else if (changes.between_ms && *changes.between_ms < 0)
    print_error(err, "the old report is the later one", "name the earlier first");
  const std::string text =
      options.format == Format::kJson
          ? diff::diff_json(sides, changes, shown_path(options, options.paths[0]),
                            shown_path(options, options.paths[1]))
          : diff::diff_text(
                sides, changes,
                {.color = use_color(options), .all_threads = options.all_threads, .width = report_width(options)});
  if (!write_report(options, text, out, err)) return 2;
  return std::min(status, 1);
}

}  // namespace rankstacks::cli
