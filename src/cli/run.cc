#include "cli/run.h"

#include <fmt/format.h>
#include <glob.h>
#include <algorithm>
#include <chrono>
#include <csignal>
#include <optional>
#include <ostream>

#include "analyzers/analysis.h"
#include "base/memory_limit.h"
#include "base/unattended.h"
#include "capture/ask_flight_recorders.h"
#include "capture/capture_job.h"
#include "capture/job_processes.h"
#include "cli/job_list.h"
#include "cli/messages.h"
#include "cli/options.h"
#include "cli/read_files_as_job.h"
#include "cli/run_capture.h"
#include "cli/run_core_handler.h"
#include "cli/run_diff.h"
#include "cli/run_dump.h"
#include "cli/run_job.h"
#include "cli/run_watch.h"
#include "cli/sample_as_needed.h"
#include "cli/saved_reports.h"
#include "cli/terminal.h"
#include "doctor/doctor.h"
#include "doctor/job_pids.h"
#include "doctor/real_system.h"
#include "known/known_programs.h"
#include "nodes/join_answers.h"
#include "redact/redact.h"
#include "redact/secrets.h"
#include "report/folded.h"
#include "report/html_report.h"
#include "report/markdown_report.h"
#include "report/report.h"
#include "report/report_file.h"
#include "report/rules_file.h"
#include "report/sanitize.h"
#include "report/text_threads.h"

namespace rankstacks::cli {
namespace {

// The cost is printed before the sessions are held.
void add_gpu_state(const capture::GpuRequest& request, JobSnapshot& job, std::ostream& err) {
  const auto start = std::chrono::steady_clock::now();
  const capture::GpuPlan plan = capture::plan_gpu_sessions(job, request);
  if (plan.makes_inferior_calls)
    err << "rankstacks: --gpu: this driver (before 590) has to be called inside of the ranks: one thread of each makes "
           "an inferior call of milliseconds, a training step may take 1.5 s longer, "
           "and about 125 MB of memory and 80 MiB of GPU memory stay in use in each\n"
        << std::flush;
  capture::hold_gpu_sessions(job, plan, request);
  if (job.elapsed_ms)
    *job.elapsed_ms += std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

// Returns false, after a message, if a rules file cannot be read or is not understood: a verdict without these rules
// would not be what was asked for.
bool install_rules(const Options& options, std::ostream& err) {
  const auto texts = read_files(options.rules, options.capture.timeout, report::read_rules_file);
  known::AddedPrograms added;
  for (std::size_t i = 0; i < options.rules.size(); ++i) {
    auto rules = texts[i] ? report::read_rules(*texts[i], options.rules[i])
                          : Result<known::AddedPrograms>(fail(texts[i].error()));
    if (!rules) {
      print_error(err, report::sanitize(rules.error().message()), rules.error().hint);
      return false;
    }
    added.append(std::move(*rules));
  }
  known::install_added_programs(std::move(added));
  return true;
}

int run_rules(const Options& options, std::ostream& out, std::ostream& err) {
  const std::string text =
      options.format == Format::kJson
          ? report::json_of_rules(known::known_programs())
          : report::text_of_rules(known::added_programs(), known::built_in_programs(), {.color = use_color(options)});
  return write_report(options, text, out, err) ? 0 : 2;
}

// What the doctor prints of a process or file may hold a secret as well, also a command to be copied.
void remove_secrets(doctor::Examination& examination) {
  for (doctor::Section& section : examination.sections) {
    section.name = redact::without_secrets(section.name, redact::Text::kName);
    if (section.path) *section.path = redact::without_secrets(*section.path, redact::Text::kPath);
    for (doctor::Finding& finding : section.findings) {
      finding.found = redact::without_secrets(finding.found, redact::Text::kWords);
      if (finding.core) finding.core->directory = redact::without_secrets(finding.core->directory, redact::Text::kPath);
      for (std::string& mend : finding.mends) mend = redact::without_secrets(mend, redact::Text::kPath);
    }
  }
}

// The ranks that --rank names, by names that redaction leaves as they are.
std::vector<std::size_t> ranks_named(const Options& options, const JobSnapshot& job, std::ostream& err) {
  for (const std::string& name : options.ranks)
    if (report::selected_ranks(job, {name}).empty())
      print_error(err, "--rank " + report::sanitize(name) + ": no such rank in the report",
                  "a number, host:pid or pid, as the report names them");
  return options.ranks.empty() ? std::vector<std::size_t>() : report::selected_ranks(job, options.ranks);
}

std::string report_text(const Options& options, const redact::Redacted& shown, const std::vector<std::size_t>& ranks) {
  const JobSnapshot& job = shown.job;
  switch (options.format) {
    case Format::kJson:
      return options.for_node || options.job.for_gateway ? report::json_part(job, shown.analysis)
                                                         : report::json_report(job, shown.analysis);
    case Format::kMarkdown:
      return report::markdown_report(job, shown.analysis,
                                     {.max_bytes = options.max_bytes, .ranks = ranks, .redacted = options.redact});
    case Format::kHtml: return report::html_report(job, shown.analysis, {.redacted = options.redact});
    case Format::kFolded:
      return report::folded_report(job, shown.analysis,
                                   options.ranks.empty() ? report::selected_ranks(job, {}) : ranks);
    case Format::kText: break;
  }
  // The names that the user gave are not in a redacted report.
  std::vector<std::string> names = options.ranks;
  if (options.redact && !ranks.empty()) {
    names.clear();
    for (const std::size_t r : ranks) names.push_back(fmt::format("{}:{}", job.ranks[r].host, job.ranks[r].pid));
  }
  return report::text_report(job, shown.analysis,
                             {.color = use_color(options),
                              .all_threads = options.all_threads,
                              .ranks = std::move(names),
                              .width = report_width(options)});
}

int run_doctor(const Options& options, std::ostream& out, std::ostream& err) {
  doctor::Request request{.cores = options.paths, .core_options = options.core, .root = options.host_root};
  if (options.live.job || !options.live.pids.empty()) {
    auto pids = doctor::pids_of(options.live);
    if (!pids) {
      print_not_chosen(pids.error(), options.words, err);
      return 2;
    }
    request.pids = std::move(*pids);
  }
  doctor::Examination examination = doctor::examine(doctor::RealSystem(), request);
  remove_secrets(examination);
  const std::string text =
      options.format == Format::kJson
          ? doctor::json_of(examination)
          : doctor::text_of(examination,
                            {.color = use_color(options), .width = static_cast<std::size_t>(report_width(options))});
  return write_report(options, text, out, err) ? examination.exit_status() : 2;
}

// The files of this node that match; of a name without a pattern, the file itself if there is one.
std::vector<std::string> files_of_patterns(const std::vector<std::string>& patterns) {
  std::vector<std::string> files;
  for (const std::string& pattern : patterns) {
    glob_t found{};
    if (glob(pattern.c_str(), 0, nullptr, &found) == 0)
      for (std::size_t i = 0; i < found.gl_pathc; ++i) files.emplace_back(found.gl_pathv[i]);
    globfree(&found);
  }
  return files;
}

// Adds the cores that systemd-coredump keeps. False, after a message, if there are none.
bool add_systemd_cores(const Options& options, std::vector<std::string>& paths, std::ostream& err) {
  const auto found = unattended<Result<std::vector<std::string>>>(
      [choice = *options.systemd, limit = options.capture.timeout] {
        return capture::find_systemd_cores(choice, Deadline::after(limit));
      },
      Unattended::beyond(options.capture.timeout));
  if (found && *found) {
    paths.insert(paths.end(), (*found)->begin(), (*found)->end());
    return true;
  }
  const Error error = found ? found->error()
                            : Error{.code = ErrorCode::kTimeout,
                                    .subject = options.systemd->directory,
                                    .what = "its file system does not answer",
                                    .hint = "give it more time with --timeout"};
  print_error(err, report::sanitize(error.message()), report::sanitize(error.hint));
  return false;
}

// Takes the snapshot that the command line asks for. std::nullopt, after a message: there is none. `analyzed` receives
// its analysis if one was made on the way; `all_read` becomes false if some file was not read; `status` is the exit
// status where there is none.
std::optional<JobSnapshot> take_job(const Options& options, std::optional<analyzers::Analysis>& analyzed,
                                    bool& all_read, std::ostream& out, std::ostream& err, int& status) {
  JobSnapshot job;
  if (options.command == Options::Command::kJob) return take_job_of_nodes(options, out, err, status);
  const bool is_live = options.command == Options::Command::kAttach ||
                       (options.command == Options::Command::kCapture && options.paths.empty());
  if (is_live) {
    auto sampled = sample_as_needed(options, analyzed);
    if (!sampled) {
      print_not_chosen(sampled.error(), options.words, err);
      if (options.for_node)
        status = !sampled.error().jobs.empty() ? nodes::kStatusSeveralJobs
                 : capture::may_hide_ranks()   ? nodes::kStatusHidden
                                               : nodes::kStatusNoRanks;
      return std::nullopt;
    }
    job = std::move(*sampled);
    if (options.gpu.sessions && !job.ranks.empty()) {
      const auto ask_gpus = [&](JobSnapshot& of) { add_gpu_state(options.gpu, of, err); };
      ask_gpus(job);
      job = ask_gpus_as_needed(options, std::move(job), ask_gpus, analyzed);
    }
    if (options.ask_flight_recorders) {
      capture::ask_flight_recorders(job, options.capture.timeout);
      analyzed.reset();
    }
  } else {
    std::vector<std::string> paths = options.for_node ? files_of_patterns(options.paths) : options.paths;
    if (options.systemd && !add_systemd_cores(options, paths, err)) return std::nullopt;
    if (paths.empty()) {
      print_error(err, "no file matches the pattern", "");
      status = nodes::kStatusNoRanks;
      return std::nullopt;
    }
    auto read = read_files_as_job(paths, options, err, all_read);
    if (!read) return std::nullopt;
    job = std::move(*read);
  }
  if (job.ranks.empty() && job.nodes.empty()) {
    print_error(err, "nothing to look at", "");
    return std::nullopt;
  }
  return job;
}

// Where all answers are merged, addresses are dropped, and the answer of this node is smaller without them.
bool is_of_very_many_ranks(const JobSnapshot& job) {
  constexpr auto kMaxRanks = static_cast<int>(report::JobMerger::kMaxRanksWithAddresses);
  return std::any_of(job.ranks.begin(), job.ranks.end(),
                     [](const RankSnapshot& rank) { return rank.world_size.value_or(0) > kMaxRanks; });
}

}  // namespace

int run(int argc, const char* const* argv, std::ostream& out, std::ostream& err, const gpu::Machine& machine,
        const std::shared_ptr<capture::Leftovers>& leftovers) {
  // If a reader closes the pipe, the tool ends quietly: writes then fail, which does not matter.
  std::signal(SIGPIPE, SIG_IGN);
  auto parsed = parse_command_line(argc, argv);
  if (const auto* early = std::get_if<EarlyExit>(&parsed)) {
    (early->status == 0 ? out : err) << early->text;
    return early->status;
  }
  Options& options = std::get<Options>(parsed);
  options.live.nvml.machine = options.gpu.machine = machine;
  options.capture.leftovers = leftovers;

  if (options.command == Options::Command::kDoctor) return run_doctor(options, out, err);
  if (!install_rules(options, err)) return 2;
  if (options.command == Options::Command::kRules) return run_rules(options, out, err);
  enforce_memory_limit(options.capture.memory);
  if (options.command == Options::Command::kDiff) return run_diff(options, out, err);
  if (options.command == Options::Command::kDump) return run_dump(options, out, err);
  if (options.command == Options::Command::kCoreHandler) return run_core_handler(options, err);
  if (options.command == Options::Command::kWatch) return run_watch(options, err);
  std::optional<analyzers::Analysis> analyzed;
  bool all_read = true;
  int status = 2;
  std::optional<JobSnapshot> job = take_job(options, analyzed, all_read, out, err, status);
  if (!job) return status;
  if (options.command == Options::Command::kCapture) {
    status = report_problems(*job, err);
    if (status == 2) return status;
    if (!write_captures(options, std::move(*job), std::move(analyzed), *options.capture.kept, out, err)) return 2;
    return all_read ? status : 1;
  }
  if (options.for_node && is_of_very_many_ranks(*job)) {
    report::drop_addresses(*job);
    analyzed.reset();  // it has frames by their numbers
  }
  const std::vector<std::size_t> ranks = ranks_named(options, *job, err);
  analyzers::Analysis analysis = analyzed ? std::move(*analyzed) : analyzers::analyze(*job);
  const redact::Redacted shown =
      redact::redact(std::move(*job), std::move(analysis), {.names = options.redact, .secrets = !options.with_secrets});
  if (!options.redact_map.empty()) {
    if (const auto written = redact::write_map(options.redact_map, shown.names); !written) {
      print_error(err, report::sanitize(written.error().message()), written.error().hint);
      return 2;
    }
  }
  const std::string text = report_text(options, shown, ranks);
  status = report_problems(shown.job, err);
  if (status == 0 && !all_read) status = 1;
  if (!write_report(options, text, out, err)) return 2;
  return status;
}

}  // namespace rankstacks::cli
