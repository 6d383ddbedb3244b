#include "cli/run_capture.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <ostream>
#include <set>
#include <utility>

#include "base/text.h"
#include "base/workers.h"
#include "cli/captured_facts.h"
#include "cli/messages.h"
#include "redact/redact.h"
#include "redact/secret_values.h"
#include "report/report.h"
#include "report/sanitize.h"
#include "small_core/archive.h"
#include "small_core/core_files.h"
#include "small_core/secret_bytes.h"

namespace rankstacks::cli {
namespace {

using small_core::KeptProcess;
using small_core::NamedCore;

// A process of the job and what its core is made of.
struct Captured {
  std::size_t rank = 0;  // index into JobSnapshot::ranks
  KeptProcess* process = nullptr;
};

std::vector<Captured> pair_up(const JobSnapshot& job, std::vector<KeptProcess>& processes) {
  std::vector<Captured> pairs;
  for (std::size_t r = 0; r < job.ranks.size(); ++r)
    for (KeptProcess& process : processes)
      if (process.pid == job.ranks[r].pid && process.path == job.ranks[r].path) {
        pairs.push_back({r, &process});
        break;
      }
  return pairs;
}

// rank-0.core; HOST-PID.core where the number is not known, is another process's too, or it is a child of a rank.
std::vector<std::string> names_of(const JobSnapshot& job, const std::vector<Captured>& captured) {
  std::map<int, int> times;
  for (const RankSnapshot& rank : job.ranks)
    if (rank.kind == RankKind::kRank && rank.rank) ++times[*rank.rank];
  std::vector<std::string> names;
  std::set<std::string> taken;
  for (const Captured& one : captured) {
    const RankSnapshot& rank = job.ranks[one.rank];
    const bool numbered = rank.kind == RankKind::kRank && rank.rank && times[*rank.rank] == 1;
    const std::string base =
        numbered ? fmt::format("rank-{}", *rank.rank) : fmt::format("{}-{}", plain_name(rank.host), rank.pid);
    std::string name = base + ".core";
    for (int n = 2; !taken.insert(name).second; ++n) name = fmt::format("{}-{}.core", base, n);
    names.push_back(std::move(name));
  }
  return names;
}

// The longest first. Of "user:password" the password as well: a copy that the program has freed may have lost what
// stands before it.
std::vector<std::string> secrets_of(const KeptProcess& process, const std::set<std::string>& in_report) {
  constexpr std::size_t kShortestPassword = 8;
  std::set<std::string> values = in_report;
  for (std::string& value : redact::secret_values(process.environment, process.command))
    values.insert(std::move(value));
  std::set<std::string> passwords;
  for (const std::string& value : values)
    if (const std::size_t colon = value.find(':');
        colon != std::string::npos && value.size() > colon + kShortestPassword)
      passwords.insert(value.substr(colon + 1));
  values.merge(passwords);
  std::vector<std::string> sorted(values.begin(), values.end());
  std::stable_sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.size() > b.size(); });
  return sorted;
}

// `secrets`: those of the report, null if they stay.
NamedCore make_core(const JobSnapshot& job, const Captured& one, const std::string& name,
                    const std::set<std::string>* secrets) {
  const JobSnapshot facts = facts_of_rank(job, one.rank);
  if (secrets != nullptr) small_core::overwrite_secrets(*one.process, secrets_of(*one.process, *secrets));
  NamedCore core{name, small_core::core_bytes(*one.process, report::json_report(facts, analyzers::analyze(facts)))};
  *one.process = KeptProcess();
  return core;
}

std::string size_text(std::uint64_t bytes) {
  constexpr double kMB = 1e6;
  return fmt::format("{:.2f} MB", static_cast<double>(bytes) / kMB);
}

bool say(const Result<std::uint64_t>& size, const std::string& path, const std::string& what, std::ostream& out,
         std::ostream& err) {
  if (size) {
    out << report::sanitize(path) << ": " << size_text(*size) << ", " << what << '\n' << std::flush;
    return true;
  }
  print_error(err, report::sanitize(size.error().message()), size.error().hint);
  return false;
}

bool write_to_directory(const std::string& directory, const Captures& captures, std::ostream& out, std::ostream& err) {
  const std::vector<NamedCore>& cores = captures.cores;
  if (mkdir(directory.c_str(), S_IRWXU) != 0 && errno != EEXIST) {
    print_error(err, fmt::format("{}: cannot be made: {}", report::sanitize(directory), std::strerror(errno)), "");
    return false;
  }
  warn_if_others_write(directory, err);
  std::vector<std::string> paths;
  std::vector<Result<std::uint64_t>> sizes(cores.size());
  for (const NamedCore& core : cores) paths.push_back(directory + "/" + core.name + ".zst");
  run_in_parallel(cores.size(), [&](std::size_t i) { sizes[i] = small_core::write_core(paths[i], cores[i]); });
  bool all = true;
  for (std::size_t i = 0; i < cores.size(); ++i)
    all = say(sizes[i], paths[i], "rank " + report::sanitize(rank_label(captures.job.ranks[captures.ranks[i]])), out,
              err) &&
          all;
  return all;
}

bool is_archive(std::string_view path) { return path.ends_with(".tar.zst") || path.ends_with(".tar"); }
bool is_core(std::string_view path) { return path.ends_with(".core.zst") || path.ends_with(".core"); }

}  // namespace

std::string plain_name(std::string_view text) {
  std::string name;
  for (const char c : text.substr(0, 64))
    name +=
        (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' ? c : '-';
  return name.empty() || name[0] == '.' || name[0] == '-' ? "x" + name : name;
}

Captures make_captures(JobSnapshot job, std::optional<analyzers::Analysis> analysis, small_core::KeptJobs& kept,
                       bool with_secrets) {
  std::vector<KeptProcess> processes = kept.take(job.captured_at);
  analyzers::Analysis of_job = analysis ? std::move(*analysis) : analyzers::analyze(job);
  Captures captures;
  redact::Redacted shown =
      redact::redact(std::move(job), std::move(of_job), {.names = false, .secrets = !with_secrets});
  captures.job = std::move(shown.job);
  const std::vector<Captured> captured = pair_up(captures.job, processes);
  const std::vector<std::string> names = names_of(captures.job, captured);
  captures.cores.resize(captured.size());
  for (const Captured& one : captured) captures.ranks.push_back(one.rank);
  run_in_parallel(captured.size(), [&](std::size_t i) {
    captures.cores[i] = make_core(captures.job, captured[i], names[i], with_secrets ? nullptr : &shown.hidden);
  });
  return captures;
}

bool write_captures(const Options& options, JobSnapshot job, std::optional<analyzers::Analysis> analysis,
                    small_core::KeptJobs& kept, std::ostream& out, std::ostream& err) {
  Captures captures = make_captures(std::move(job), std::move(analysis), kept, options.with_secrets);
  if (captures.cores.empty()) {
    print_error(err, "no process could be read: there is nothing to capture", "");
    return false;
  }
  const std::vector<NamedCore>& cores = captures.cores;
  const std::string& to = options.output;
  if (is_archive(to))
    return say(small_core::write_archive(to, cores), to, counted(cores.size(), "process", "es"), out, err);
  if (!is_core(to)) return write_to_directory(to, captures, out, err);
  if (cores.size() != 1) {
    print_error(err, fmt::format("{}: {} processes do not fit into one core", report::sanitize(to), cores.size()),
                "name a directory, or an archive: -o FILE.tar.zst");
    return false;
  }
  return say(small_core::write_core(to, cores.front()), to,
             "rank " + report::sanitize(rank_label(captures.job.ranks[captures.ranks.front()])), out, err);
}

}  // namespace rankstacks::cli
