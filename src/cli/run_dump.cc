#include "cli/run_dump.h"

#include <unistd.h>
#include <algorithm>
#include <cstring>
#include <map>
#include <ostream>
#include <set>

#include <fmt/format.h>

#include "analyzers/reason.h"
#include "base/text.h"
#include "base/unattended.h"
#include "capture/found_job.h"
#include "cli/messages.h"
#include "cli/sample_as_needed.h"
#include "cli/shared_job.h"
#include "cli/shared_look.h"
#include "cli/time_limit.h"
#include "redact/redact.h"
#include "redact/secrets.h"
#include "report/py_spy_form.h"
#include "report/report.h"
#include "report/sanitize.h"
#include "report/text_summary.h"
#include "target/proc.h"

namespace rankstacks::cli {
namespace {

using Clock = Deadline::Clock;
using Seconds = std::chrono::duration<double>;

// A wait for a file system or for a process's memory in which nothing at all happens for this long is given up: the
// caller wants the other ranks' stacks soon. When the job is only searched for, less depends on it.
constexpr std::chrono::seconds kSilence{2}, kSilenceInSearch{1};

// `options` for a look that is to be done by the deadline; what does not answer gets a part of the time only.
Options in_time(const Options& options, const Deadline& deadline) {
  constexpr Seconds kForSamples{2.5}, kForOneSample{0.5};
  Options bounded = options;
  const Seconds left = std::min<Seconds>(deadline.left(), Seconds(options.dump.within));
  bounded.capture.timeout = std::chrono::duration_cast<Clock::duration>(left * 0.6);
  bounded.capture.silence = kSilence;
  if (left < kForOneSample) bounded.live.samples = 1;
  if (left < kForSamples) bounded.live.interval = std::chrono::duration_cast<Clock::duration>(left / 8);
  return bounded;
}

Look without_secrets(JobSnapshot job) {
  analyzers::Analysis analysis = analyzers::analyze(job);
  redact::Redacted shown = redact::redact(std::move(job), std::move(analysis), {.names = false, .secrets = true});
  return {std::move(shown.job), std::move(shown.analysis), ""};
}

Look look_now(const Options& options) {
  std::optional<analyzers::Analysis> unused;
  auto sampled = sample_as_needed(options, unused);
  return without_secrets(sampled ? std::move(*sampled) : JobSnapshot());
}

// The longest repr of a local variable: py-spy's 128 characters for each --locals.
std::size_t longest_local(const Options& options) {
  constexpr std::size_t kOfOne = 128, kMax = 1024;
  return std::min(kOfOne * static_cast<std::size_t>(std::max(options.dump.locals, 0)), kMax);
}

// The descendants of a process, parents first.
std::vector<std::pair<Pid, Pid>> descendants_of(Pid pid) {
  const capture::ProcessTable table = capture::ProcessTable::scan();
  std::vector<std::pair<Pid, Pid>> found;  // with their parents
  std::set<Pid> met = {pid};
  std::vector<Pid> parents = {pid};
  while (!parents.empty()) {
    const Pid parent = parents.back();
    parents.pop_back();
    const auto& children = table.children(parent);
    for (auto child = children.rbegin(); child != children.rend(); ++child)
      if (*child != getpid() && met.insert(*child).second) parents.push_back(*child);
    if (parent != pid) {
      const capture::ProcessEntry* entry = table.find(parent);
      found.emplace_back(parent, entry == nullptr ? 0 : entry->parent);
    }
  }
  return found;
}

// The line of the process, by its command where that can be read at once: the kernel reads it from the process's
// memory. Empty with --json, whose readers expect nothing else.
std::string heading_of(const Options& options, const std::string& name, const Deadline& deadline) {
  constexpr int kShare = 8;
  constexpr std::size_t kLongest = 4096;
  if (options.dump.json) return {};
  const auto command = unattended<std::vector<std::string>>(
      [pid = options.dump.pid] {
        const auto text = target::proc::read_file(fmt::format("/proc/{}/cmdline", pid), kLongest);
        return text ? target::proc::split_nul(*text) : std::vector<std::string>();
      },
      std::min<Clock::duration>(deadline.left() / kShare, kMinTimeout));
  const std::string shown = command && !command->empty() ? joined(redact::without_secrets(*command), " ") : name;
  return fmt::format("Process {}: {}\n", options.dump.pid, report::sanitize(shown));
}

const RankSnapshot* rank_with(const JobSnapshot& job, Pid pid) {
  const auto found = std::find_if(job.ranks.begin(), job.ranks.end(), [&](const RankSnapshot& rank) {
    return rank.pid == pid && rank.source == Source::kLive;
  });
  return found == job.ranks.end() ? nullptr : &*found;
}

// What py-spy shows of a path: the part below the outermost directory that is a Python package. The file systems are
// asked for all of them at once, and not waited for.
std::map<std::string, std::string> short_names(std::vector<std::string> files, Pid pid, Clock::duration limit) {
  constexpr std::size_t kMaxFiles = 4096;
  constexpr int kDeepest = 64;
  if (files.size() > kMaxFiles) files.resize(kMaxFiles);
  auto found = unattended<std::map<std::string, std::string>>(
      [files, pid] {
        const std::string root = pid == 0 ? std::string() : fmt::format("/proc/{}/root", pid);
        std::map<std::string, std::string> names;
        for (const std::string& file : files) {
          std::size_t end = file.rfind('/');
          for (int depth = 0; end != std::string::npos && end > 0 && depth < kDeepest; ++depth) {
            if (file.front() != '/' || access((root + file.substr(0, end) + "/__init__.py").c_str(), F_OK) != 0) break;
            end = file.rfind('/', end - 1);
          }
          names[file] = end == std::string::npos ? file : file.substr(end + 1);
        }
        return names;
      },
      limit);
  return found ? std::move(*found) : std::map<std::string, std::string>();
}

report::PySpyForm form_of(const Options& options, const JobSnapshot& job, const RankSnapshot& rank,
                          Clock::duration limit) {
  report::PySpyForm form{.native = options.dump.native, .locals = longest_local(options)};
  if (options.dump.full_filenames) return form;
  const Pid pid = rank.source == Source::kLive ? rank.pid : 0;
  auto names = std::make_shared<std::map<std::string, std::string>>(short_names(files_of(job, rank, form), pid, limit));
  form.short_name = [names](const std::string& file) {
    const auto known = names->find(file);
    return known != names->end() ? known->second : file.substr(file.rfind('/') + 1);
  };
  return form;
}

int status_of(const RankSnapshot& rank) {
  return rank.status == Status::kFailed ? 2 : rank.status == Status::kPartial ? 1 : 0;
}

// The process that was asked for, and the job that it belongs to.
class AskedProcess {
 public:
  AskedProcess(const Options& options, std::uint64_t start_ticks, TimeLimit& limit)
      : options_(options), start_ticks_(start_ticks), limit_(limit) {}

  std::uint64_t start_ticks() const { return start_ticks_; }

  // Its job's processes, or itself if it has none. Processes that do not answer most likely belong to somebody else:
  // they do not get much time.
  const std::vector<capture::FoundProcess>& find() {
    if (found_) return found_->processes;
    limit_.begins("its job was being looked for");
    capture::LiveRequest request = options_.live;
    request.job = capture::JobChoice::of_process(options_.dump.pid);
    found_ = capture::find_job(request, std::min<Clock::duration>(limit_.deadline().left() / kShareToFind, kMinTimeout),
                               kSilenceInSearch);
    if (found_->not_chosen) found_->processes = {{.pid = options_.dump.pid, .start_ticks = start_ticks_}};
    return found_->processes;
  }

  Look look() {
    find();
    limit_.begins("its job was being read");
    Options bounded = in_time(options_, limit_.deadline());
    if (found_->not_chosen) {
      bounded.live.pids = {options_.dump.pid};
    } else {
      bounded.live.job = capture::JobChoice::of_process(options_.dump.pid);
      for (const capture::FoundProcess& process : found_->processes) bounded.live.among.push_back(process.pid);
    }
    return look_now(bounded);
  }

 private:
  static constexpr int kShareToFind = 4;
  const Options& options_;
  const std::uint64_t start_ticks_;
  TimeLimit& limit_;
  std::optional<capture::FoundJob> found_;
};

Result<Look> look_at_job(const Options& options, TimeLimit& limit, std::ostream& err) {
  const auto stat = target::proc::stat_of(options.dump.pid);
  if (!stat)
    return fail(
        {.code = ErrorCode::kNotFound, .subject = fmt::format("pid {}", options.dump.pid), .what = "no such process"});
  limit.will_show(heading_of(options, stat->name, limit.deadline()));
  AskedProcess asked(options, stat->start_ticks, limit);
  const auto directory = PrivateDirectory::of_user();
  if (!directory) {
    print_error(err, report::sanitize(directory.error().message()) + ": the report is not kept",
                directory.error().hint);
    return asked.look();
  }
  limit.begins("another call's search for its job did not end");
  const std::string key = find_together(
      *directory, options.dump.pid, asked.start_ticks(),
      limit.deadline(), [&]() -> const auto& { return asked.find(); });
  limit.begins("another call's look at its job did not end");
  auto look = look_together(*directory, key, limit.deadline(), [&] { return asked.look(); });
  if (look && !look->waited_for.empty())
    print_error(err, report::sanitize(look->waited_for) + ": another process has locked it and made no report",
                "this call has looked for itself");
  return look;
}

// Processes that no rank of the job has as a child, such as a launcher, are looked at by themselves; and those whose
// local variables are shown, which no report has.
Look look_alone(const Options& options, std::vector<Pid> pids, const Deadline& deadline) {
  Options bounded = in_time(options, deadline);
  bounded.live.pids = std::move(pids);
  bounded.live.alone = true;
  bounded.live.samples = 1;
  bounded.capture.locals = longest_local(options);
  return look_now(bounded);
}

void tell_verdict(const Options& options, const Look& look, std::string& text, std::ostream& err) {
  std::string lines =
      fmt::format("rankstacks: {}\n  verdict: {}: {}\n", report::sanitize(report::totals(look.job)),
                  analyzers::to_string(look.analysis.verdict.status), report::sanitize(look.analysis.verdict.summary));
  if (!look.path.empty()) lines += fmt::format("  report: {}\n", report::sanitize(look.path));
  if (options.dump.json) err << lines;
  else text += '\n' + lines;
  if (look.not_written != 0)
    print_error(err, std::string("the report cannot be written: ") + std::strerror(look.not_written), "");
}

// The process and, with --subprocesses, its descendants, as far as they were read.
struct Shown {
  const JobSnapshot* job = nullptr;
  const RankSnapshot* rank = nullptr;
  Pid parent = 0;  // 0: the process that was asked for
};

std::string text_of(const Options& options, const std::vector<Shown>& shown, Clock::duration limit) {
  constexpr int kWidth = 80;
  std::string text;
  for (const Shown& one : shown) {
    const report::PySpyForm form = form_of(options, *one.job, *one.rank, limit);
    // As py-spy does it: --subprocesses has no effect on JSON.
    if (options.dump.json) return report::py_spy_json(*one.job, *one.rank, form);
    if (one.parent != 0) text += fmt::format("\n{:->{}}\n", "", kWidth);
    const auto parent =
        std::find_if(shown.begin(), shown.end(), [&](const Shown& other) { return other.rank->pid == one.parent; });
    text += report::py_spy_text(*one.job, *one.rank, form, parent == shown.end() ? nullptr : parent->rank);
  }
  return text;
}

int dump_process(const Options& options, TimeLimit& limit, std::ostream& out, std::ostream& err) {
  const auto look = look_at_job(options, limit, err);
  if (!look) {
    print_error(err, report::sanitize(look.error().message()), look.error().hint);
    return 2;
  }
  std::vector<std::pair<Pid, Pid>> wanted = {{options.dump.pid, 0}};
  if (options.dump.subprocesses) {
    const auto descendants = descendants_of(options.dump.pid);
    wanted.insert(wanted.end(), descendants.begin(), descendants.end());
  }
  std::vector<Pid> others;
  for (const auto& [pid, parent] : wanted)
    if (options.dump.locals > 0 || rank_with(look->job, pid) == nullptr) others.push_back(pid);
  const Look alone = others.empty() ? Look() : look_alone(options, others, limit.deadline());
  report_problems(look->job, err);
  if (!others.empty()) report_problems(alone.job, err);
  std::vector<Shown> shown;
  int status = 2;
  for (const auto& [pid, parent] : wanted) {
    const RankSnapshot* rank = rank_with(alone.job, pid);
    const JobSnapshot* job = &alone.job;
    if (const RankSnapshot* of_job = rank_with(look->job, pid);
        of_job != nullptr && (rank == nullptr || rank->status == Status::kFailed)) {
      rank = of_job;
      job = &look->job;
    }
    const int of_rank = rank == nullptr ? 2 : status_of(*rank);
    if (parent == 0) status = of_rank;
    if (status == 2) return 2;  // not even the process that was asked for
    status = std::max(status, std::min(of_rank, 1));
    if (of_rank != 2) shown.push_back({job, rank, parent});
  }
  std::string text = text_of(options, shown, std::min<Clock::duration>(limit.deadline().left() / 2, kMinTimeout));
  limit.output_begins();
  tell_verdict(options, *look, text, err);
  return write_report(options, text, out, err) ? status : 2;
}

int dump_core(const Options& options, TimeLimit& limit, std::ostream& out, std::ostream& err) {
  capture::CaptureOptions capture = options.capture;
  capture.locals = longest_local(options);
  const Look look = without_secrets(capture::capture_cores({options.dump.core}, options.core, capture));
  std::vector<Shown> shown;
  for (const RankSnapshot& rank : look.job.ranks)
    if (rank.status != Status::kFailed) shown.push_back({&look.job, &rank, 0});
  const int status = report_problems(look.job, err);
  if (shown.empty()) return 2;
  const std::string text = text_of(options, shown, kMinTimeout);
  limit.output_begins();
  return write_report(options, text, out, err) ? status : 2;
}

}  // namespace

int run_dump(const Options& options, std::ostream& out, std::ostream& err) {
  Options asked = options;
  asked.live.without_tools = true;
  const bool of_core = !options.dump.core.empty();
  TimeLimit limit(options.dump.within,
                  of_core ? report::sanitize(options.dump.core) : fmt::format("pid {}", options.dump.pid));
  if (of_core) return dump_core(in_time(asked, limit.deadline()), limit, out, err);
  if (options.dump.nonblocking) asked.live.stop = target::StopPolicy::kNever;
  return dump_process(asked, limit, out, err);
}

}  // namespace rankstacks::cli
