#include "cli/saved_reports.h"

#include <sys/stat.h>
#include <algorithm>
#include <cstddef>
#include <memory>
#include <optional>
#include <ostream>
#include <utility>

#include <fmt/format.h>

#include "analyzers/motion.h"
#include "base/unattended.h"
#include "cli/messages.h"
#include "cli/saved_flight_records.h"
#include "dumps/dump.h"
#include "report/report.h"
#include "report/report_file.h"
#include "report/sanitize.h"
#include "versions/stated_in_frames.h"

namespace rankstacks::cli {
namespace {

constexpr std::size_t kFilesAtOnce = 64;  // whose texts are in memory

// What a tool leaves that was to dump a process and has failed; std::nullopt if it is something else.
std::optional<std::string> failed_dump(const std::string& text) {
  if (text.find_first_not_of(" \t\r\n") == std::string::npos)
    return "the file is empty: the tool that was to write it has failed";
  // pystack, where a thread has begun and has called nothing yet.
  if (text.starts_with("The frame stack for thread ") && text.find("is empty") != std::string::npos &&
      !dumps::is_dump(text))
    return "pystack has failed at a thread without frames, and shows none of the others";
  return std::nullopt;
}

// A saved report, or the dump of another tool.
Result<JobSnapshot> read_report_or_dump(const std::string& text, const std::string& path, const FileRanks& ranks) {
  const auto stated = ranks.find(path);
  if (auto failed = failed_dump(text))
    return fail(
        {.code = ErrorCode::kMalformed, .subject = path, .what = std::move(*failed), .hint = "dump it once more"});
  if (dumps::is_dump(text))
    return dumps::read_dump(text, path, stated != ranks.end() ? stated->second : dumps::rank_from_dump_name(path));
  auto report = report::read_json_report(text, path);
  if (!report)
    if (auto record =
            read_flight_record(text, path, stated != ranks.end() ? std::optional(stated->second) : std::nullopt))
      return *std::move(record);
  if (!report && report.error().hint.empty())
    report.error().hint = fmt::format(
        "a report of --format json, the output of {}, or a dump of torch's Flight Recorder", dumps::kToolNames);
  return report;
}

Result<JobSnapshot> read_saved(const std::string& text, const std::string& path, const FileRanks& ranks) {
  auto job = read_report_or_dump(text, path, ranks);
  if (job) versions::add_modules_of_frames(*job);
  return job;
}

}  // namespace

std::vector<Result<std::string>> read_files(const std::vector<std::string>& paths,
                                            std::chrono::steady_clock::duration limit,
                                            Result<std::string> (*read)(const std::string&)) {
  struct Work {
    std::vector<std::string> paths;
    std::vector<std::optional<Result<std::string>>> texts;  // std::nullopt: not a regular file
  };
  const auto work = std::make_shared<Work>(Work{paths, std::vector<std::optional<Result<std::string>>>(paths.size())});
  const auto outcomes = Unattended{[work, read](std::size_t i) {
                                     struct stat status {};
                                     const std::string& path = work->paths[i];
                                     if (path != "-" && stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode))
                                       work->texts[i] = read(path);
                                   },
                                   std::max<std::chrono::steady_clock::duration>(limit, kMinTimeout)}
                            .run(paths.size());
  std::vector<Result<std::string>> texts;
  for (std::size_t i = 0; i < paths.size(); ++i) {
    if (!outcomes[i].came_back)
      texts.push_back(fail({.code = ErrorCode::kTimeout,
                            .subject = paths[i],
                            .what = "does not answer",
                            .hint = "the server of that file system (NFS, FUSE) is gone or slow"}));
    else if (work->texts[i]) texts.push_back(std::move(*work->texts[i]));
    else texts.push_back(read(paths[i]));
  }
  return texts;
}

Result<JobSnapshot> read_snapshots(const std::vector<std::string>& paths, const FileRanks& ranks,
                                   std::chrono::steady_clock::duration limit, std::ostream& err, bool& all_read) {
  report::JobMerger merger;
  std::optional<Error> first;
  bool any = false;
  const auto until = std::chrono::steady_clock::now() + limit;
  for (std::size_t begin = 0; begin < paths.size(); begin += kFilesAtOnce) {
    const std::vector<std::string> some(
        paths.begin() + static_cast<std::ptrdiff_t>(begin),
        paths.begin() + static_cast<std::ptrdiff_t>(std::min(begin + kFilesAtOnce, paths.size())));
    std::vector<Result<std::string>> texts =
        read_files(some, until - std::chrono::steady_clock::now(),
                   [](const std::string& path) { return report::read_report_file(path); });
    for (std::size_t i = 0; i < some.size(); ++i) {
      const std::string subject = some[i] == "-" ? "standard input" : some[i];
      auto& text = texts[i];
      auto snapshot = text ? read_saved(*text, subject, ranks) : Result<JobSnapshot>(fail(text.error()));
      if (text) text->clear(), text->shrink_to_fit();
      if (snapshot && snapshot->ranks.empty() && snapshot->nodes.empty())
        snapshot = fail(
            {.code = ErrorCode::kMalformed, .subject = subject, .what = "a report without ranks: nothing to look at"});
      if (snapshot) {
        merger.add(*std::move(snapshot));
        any = true;
        continue;
      }
      all_read = false;
      print_error(err, report::sanitize(snapshot.error().message()), snapshot.error().hint);
      if (!first) first = snapshot.error();
    }
  }
  if (!any) return fail(*first);
  JobSnapshot job = merger.take();
  std::vector<RankSnapshot> records = take_flight_records(job);
  analyzers::fold_earlier(job, dumps::keep_one_dump_of_each(job));
  fold_flight_records(job, std::move(records));
  return job;
}

}  // namespace rankstacks::cli
