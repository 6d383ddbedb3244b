#include "cli/watch_looks.h"

#include <sys/resource.h>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <sstream>

#include <fmt/format.h>

#include "analyzers/goes_on.h"
#include "capture/found_job.h"
#include "cli/run_capture.h"
#include "cli/sample_as_needed.h"
#include "known/timeouts.h"
#include "redact/redact.h"
#include "report/packed.h"
#include "report/report.h"
#include "target/proc.h"

namespace rankstacks::cli {
namespace {

// On a busy machine a thread that runs is given a processor within this time.
constexpr std::chrono::seconds kBetweenLightSamples{2};

// NVIDIA's driver makes one device file for each GPU; a process without one open does not use NCCL.
bool uses_gpu(Pid pid) {
  constexpr std::string_view kDevice = "/dev/nvidia";
  for (const int descriptor : target::proc::descriptors_of(pid)) {
    const auto file = target::proc::read_link(fmt::format("/proc/{}/fd/{}", pid, descriptor));
    if (file && file->starts_with(kDevice) && file->size() > kDevice.size() &&
        std::isdigit(file->at(kDevice.size())) != 0)
      return true;
  }
  return false;
}

// One line for each rank, then one for the timeout; the other end is this same program.
std::string find_ranks_here(const Options& options) {
  const capture::FoundJob job = capture::find_job(options.live, std::chrono::seconds(5));
  if (job.not_chosen && job.not_chosen->why == capture::WhyNoJob::kSeveral) return "several\n";
  std::string lines;
  std::optional<known::JobTimeout> shortest;
  for (const capture::FoundProcess& process : job.processes) {
    if (process.kind != RankKind::kRank || process.start_ticks == 0) continue;  // 0: there is no such process
    lines += fmt::format("rank {} {}\n", process.pid, process.start_ticks);
    const known::JobTimeout timeout = known::job_timeout(process.environment, process.command, uses_gpu(process.pid));
    if (!shortest || timeout.limit < shortest->limit) shortest = timeout;
  }
  if (shortest)
    lines += fmt::format("timeout {} {}\n", shortest->limit.count(),
                         shortest->name.empty() ? shortest->source : shortest->name);
  return lines;
}

// Of those that have ended, and of theirs. A process that ends still takes time: the kernel takes back its memory.
watch::Seconds processor_time_of_children() {
  rusage usage{};
  getrusage(RUSAGE_CHILDREN, &usage);
  watch::Seconds all{0};
  for (const timeval& time : {usage.ru_utime, usage.ru_stime})
    all += std::chrono::seconds(time.tv_sec) + std::chrono::microseconds(time.tv_usec);
  return all;
}

watch::Seen seen_of(const JobSnapshot& job, const analyzers::Analysis& analysis) {
  switch (analyzers::goes_on(job, analysis)) {
    case analyzers::GoesOn::kYes: return watch::Seen::kHealthy;
    case analyzers::GoesOn::kNotKnown: return watch::Seen::kUndecided;
    case analyzers::GoesOn::kNo: break;
  }
  return watch::Seen::kStands;
}

// A capture of each process next to the reports: NAME.rank-0.core.zst, ...
int write_small_cores(const watch::ReportStore& store, const std::string& name, JobSnapshot job,
                      analyzers::Analysis analysis, small_core::KeptJobs& kept) {
  const Captures captures = make_captures(std::move(job), std::move(analysis), kept, false);
  for (const small_core::NamedCore& core : captures.cores) {
    const auto packed = report::pack({reinterpret_cast<const char*>(core.bytes.data()), core.bytes.size()},
                                     report::Packing::kZstd, core.name);
    if (!packed) return ENOMEM;
    if (const int why = store.write(fmt::format("{}.{}.zst", name, core.name), *packed); why != 0) return why;
  }
  return 0;
}

// The text first: where there is no room for all, it is the smallest one.
int write_reports(const watch::ReportStore& store, const std::string& name, JobSnapshot job,
                  analyzers::Analysis analysis, small_core::KeptJobs* kept) {
  std::optional<std::pair<JobSnapshot, analyzers::Analysis>> captured;
  if (kept != nullptr) captured.emplace(job, analysis);
  const redact::Redacted shown = redact::redact(std::move(job), std::move(analysis), {.names = false, .secrets = true});
  if (const int why = store.write(name + ".txt", report::text_report(shown.job, shown.analysis, {})); why != 0)
    return why;
  const auto packed = report::pack(report::json_report(shown.job, shown.analysis), report::Packing::kZstd, name);
  if (!packed) return ENOMEM;
  const int why = store.write(name + ".json.zst", *packed);
  if (why != 0 || !captured) return why;
  return write_small_cores(store, name, std::move(captured->first), std::move(captured->second), *kept);
}

std::string look_here(const Options& options, LookKind kind, const watch::ReportStore& store, const std::string& name,
                      bool unless_healthy) {
  Options asked = options;
  // Two samples do not show whether a loop ends.
  asked.samples_as_needed = kind != LookKind::kShort;
  if (kind == LookKind::kLight) {
    asked.live.samples = 2;
    asked.live.interval = kBetweenLightSamples;
  }
  if (options.watch.captures && kind != LookKind::kLight)
    asked.capture.kept = std::make_shared<small_core::KeptJobs>(false);
  std::optional<analyzers::Analysis> analyzed;
  auto sampled = sample_as_needed(asked, analyzed);
  LookResult result;
  if (sampled && !sampled->ranks.empty()) {
    JobSnapshot& job = *sampled;
    analyzers::Analysis analysis = analyzed ? std::move(*analyzed) : analyzers::analyze(job);
    result.seen = seen_of(job, analysis);
    result.verdict = analysis.verdict.status;
    if (const auto places = analyzers::standing_places(job, analysis))
      result.places = std::hash<std::string>()(*places);
    for (const RankSnapshot& rank : job.ranks)
      result.ranks += rank.kind == RankKind::kRank && rank.status != Status::kFailed;
    if (kind != LookKind::kLight && result.ranks > 0 && !(unless_healthy && result.seen == watch::Seen::kHealthy))
      result.not_written = write_reports(store, name, std::move(job), std::move(analysis), asked.capture.kept.get());
  }
  static_assert(std::is_trivially_copyable_v<LookResult>);
  std::string bytes(sizeof result, '\0');
  std::memcpy(bytes.data(), &result, sizeof result);
  return bytes;
}

}  // namespace

std::optional<FoundRanks> find_ranks(const Options& options, const WorkLimit& limit) {
  const auto lines = do_forked([&] { return find_ranks_here(options); }, limit);
  if (!lines) return std::nullopt;
  FoundRanks found;
  std::istringstream in(*lines);
  for (std::string word; in >> word;) {
    if (word == "several") found.several_jobs = true;
    watch::WatchedProcess rank;
    if (word == "rank" && in >> rank.pid >> rank.start_ticks) found.ranks.push_back(rank);
    long seconds = 0;
    if (word == "timeout" && in >> seconds && std::getline(in >> std::ws, found.timeout_from))
      found.timeout = std::chrono::seconds(seconds);
  }
  return found;
}

Look look_at_ranks(const Options& options, LookKind kind, const watch::ReportStore& store, const std::string& name,
                   bool unless_healthy, const WorkLimit& limit) {
  const watch::Seconds before = processor_time_of_children();
  const auto bytes = do_forked([&] { return look_here(options, kind, store, name, unless_healthy); }, limit);
  Look look{.result = std::nullopt, .cost = processor_time_of_children() - before};
  if (bytes && bytes->size() == sizeof(LookResult))
    std::memcpy(&look.result.emplace(), bytes->data(), sizeof(LookResult));
  return look;
}

}  // namespace rankstacks::cli
