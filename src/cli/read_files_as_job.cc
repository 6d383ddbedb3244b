#include "cli/read_files_as_job.h"

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "capture/capture_job.h"
#include "cli/captured_facts.h"
#include "cli/file_kind.h"
#include "cli/messages.h"
#include "cli/saved_reports.h"
#include "cli/unpacked_archive.h"
#include "report/report.h"
#include "report/sanitize.h"

namespace rankstacks::cli {
namespace {

struct SortedFiles {
  std::vector<std::string> cores, saved;
  std::vector<UnpackedArchive> archives;
  std::map<std::string, std::string> shown;  // the names of the archives' members, by where they were unpacked to
  std::optional<Error> first_error;
};

void add_archive(const std::string& path, const Options& options, std::ostream& err, SortedFiles& files) {
  auto archive = UnpackedArchive::open(path, Deadline::after(options.capture.timeout));
  if (!archive) {
    print_error(err, report::sanitize(archive.error().message()), archive.error().hint);
    if (!files.first_error) files.first_error = archive.error();
    return;
  }
  for (const UnpackedArchive::Member& member : archive->members()) {
    files.cores.push_back(member.path);
    files.shown.emplace(member.path, member.shown);
  }
  files.archives.push_back(std::move(*archive));
}

SortedFiles sort_files(const std::vector<std::string>& paths, const Options& options, std::ostream& err) {
  const bool cores_by_default = options.command != Options::Command::kReport;
  SortedFiles files;
  std::set<std::string> taken;  // two patterns may name a file twice
  for (const std::string& path : paths) {
    if (!taken.insert(path).second) continue;
    switch (kind_of_file(path, options.capture.timeout)) {
      case FileKind::kArchive: add_archive(path, options, err, files); break;
      case FileKind::kJson: files.saved.push_back(path); break;
      case FileKind::kCore: files.cores.push_back(path); break;
      case FileKind::kOther: (cores_by_default ? files.cores : files.saved).push_back(path); break;
    }
  }
  return files;
}

// Messages name a member of an archive by where it was unpacked to.
void show_names(JobSnapshot& job, const std::map<std::string, std::string>& shown) {
  for (RankSnapshot& rank : job.ranks) {
    const auto name = rank.path ? shown.find(*rank.path) : shown.end();
    if (name == shown.end()) continue;
    for (Problem& problem : rank.problems)
      if (problem.message.starts_with(name->first)) problem.message.replace(0, name->first.size(), name->second);
    rank.path = name->second;
  }
}

}  // namespace

Result<JobSnapshot> read_files_as_job(const std::vector<std::string>& paths, const Options& options, std::ostream& err,
                                      bool& all_read) {
  SortedFiles files = sort_files(paths, options, err);
  if (files.first_error) all_read = false;
  std::vector<JobSnapshot> jobs;
  if (!files.cores.empty()) {
    capture::NotedReports noted;
    JobSnapshot cores = capture::capture_cores(files.cores, options.core, options.capture, &noted);
    jobs = join_facts(std::move(cores), noted);
    for (JobSnapshot& job : jobs) show_names(job, files.shown);
    if (options.capture.kept) options.capture.kept->rename(files.shown);
  }
  if (!files.saved.empty()) {
    auto saved = read_snapshots(files.saved, options.file_ranks, options.capture.timeout, err, all_read);
    if (saved) jobs.push_back(std::move(*saved));
    else if (!files.first_error) files.first_error = saved.error();
  }
  if (jobs.empty()) return fail(*files.first_error);
  return report::merge_snapshots(std::move(jobs));
}

}  // namespace rankstacks::cli
