#include "cli/sample_as_needed.h"

#include <algorithm>
#include <chrono>
#include <string>

#include "analyzers/goes_on.h"
#include "analyzers/gpu_motion.h"
#include "analyzers/motion.h"
#include "capture/capture_job.h"
#include "capture/ended_ranks.h"
#include "cli/options.h"

namespace rankstacks::cli {
namespace {

using Duration = std::chrono::steady_clock::duration;

using Sampled = tl::expected<JobSnapshot, capture::NotChosen>;

// All samples as one snapshot.
Sampled look_at(const capture::LiveRequest& request, const capture::CaptureOptions& options) {
  options.leftovers->release();
  capture::LiveCapture capture = capture::capture_live(request, options);
  if (capture.not_chosen) return tl::make_unexpected(std::move(*capture.not_chosen));
  const auto ran = [&](Tid tid) {
    const auto found = capture.ran.find(tid);
    return found == capture.ran.end() ? analyzers::Ran{} : analyzers::Ran{found->second.cpu_ms, found->second.runs};
  };
  analyzers::fold_samples(capture.job, capture.later, ran,
                          std::chrono::duration<double, std::milli>(capture.between).count());
  options.leftovers->keep(std::move(capture.leftovers));
  return std::move(capture.job);
}

// The same once more; elapsed_ms is then the time of all of it.
Sampled look_again(const capture::LiveRequest& request, const capture::CaptureOptions& options,
                   const JobSnapshot& before) {
  Sampled again = look_at(request, options);
  if (again && again->elapsed_ms && before.elapsed_ms) *again->elapsed_ms += *before.elapsed_ms;
  return again;
}

// Ranks are at work, and none was seen to progress: a few samples hit the same place by chance.
bool is_left_open(const JobSnapshot& job, const analyzers::Analysis& analysis) {
  if (analysis.verdict.status != analyzers::VerdictStatus::kSymmetric &&
      analysis.verdict.status != analyzers::VerdictStatus::kUndecided)
    return false;
  if (analyzers::some_own_thread_wakes(job, analysis)) return true;
  return analysis.verdict.status == analyzers::VerdictStatus::kUndecided &&
         std::any_of(analysis.activities.begin(), analysis.activities.end(),
                     [&](const std::optional<analyzers::RankActivity>& activity) {
                       return activity &&
                              (activity->moves.value_or(false) ||
                               job.ranks[activity->evidence.rank].threads[activity->evidence.thread].state == 'R');
                     });
}

// The job that was sampled, by one of its processes: another job may have begun since, which may even have its name.
std::optional<capture::JobChoice> same_job(const capture::LiveRequest& request, const JobSnapshot& job) {
  if (!request.job) return std::nullopt;
  for (const RankSnapshot& rank : job.ranks)
    if (rank.kind == RankKind::kRank && rank.status != Status::kFailed)
      return capture::JobChoice::of_process(rank.pid, rank.start_ticks);
  return request.job;
}

// `samples` samples over that time; fewer for a job with so many threads that a sample takes long.
capture::LiveRequest longer(const capture::LiveRequest& request, const JobSnapshot& job, int samples, Duration span) {
  capture::LiveRequest more = request;
  more.job = same_job(request, job);
  std::size_t threads = 0;
  for (const RankSnapshot& rank : job.ranks) threads += rank.threads.size();
  constexpr std::size_t kMany = 1000;
  constexpr int kLeast = 4;
  more.samples = threads > kMany ? std::max(kLeast, samples * 2 / 5) : samples;
  more.interval = span / (more.samples - 1);
  return more;
}

// Whether a rank that could be read before is gone, or is another process by now: the job ended, or was restarted,
// while it was sampled. Also true of a rank that ended amid these samples, of which the first still found it.
bool lost_a_rank(const JobSnapshot& before, const JobSnapshot& after) {
  return std::any_of(before.ranks.begin(), before.ranks.end(), [&](const RankSnapshot& rank) {
    if (rank.kind != RankKind::kRank || rank.status == Status::kFailed) return false;
    return std::none_of(after.ranks.begin(), after.ranks.end(), [&](const RankSnapshot& other) {
      return other.pid == rank.pid && other.start_ticks == rank.start_ticks && other.status != Status::kFailed &&
             capture::is_alive(other);
    });
  });
}

// The job as it was seen last while all of it was there.
class Sampling {
 public:
  Sampling(JobSnapshot job, const capture::CaptureOptions& options)
      : job_(std::move(job)), analysis_(analyzers::analyze(job_)), options_(options) {}

  const JobSnapshot& job() const { return job_; }
  const analyzers::Analysis& analysis() const { return analysis_; }
  // Returns false if the job is not what it was; what was seen before is kept, and which ranks have ended since.
  bool sample_again(const capture::LiveRequest& request) {
    Sampled again = look_again(request, options_, job_);
    if (!again || lost_a_rank(job_, *again)) {
      capture::note_ended(job_);
      analysis_ = analyzers::analyze(job_);
      return false;
    }
    job_ = std::move(*again);
    analysis_ = analyzers::analyze(job_);
    return true;
  }

  JobSnapshot take(std::optional<analyzers::Analysis>& analysis) {
    analysis = std::move(analysis_);
    return std::move(job_);
  }

 private:
  JobSnapshot job_;
  analyzers::Analysis analysis_;
  const capture::CaptureOptions& options_;
};

// Half of the ranks or more are at work: long enough to see a step end.
constexpr std::chrono::milliseconds kLongerThanSteps{4500};
constexpr int kSamplesOfSteps = 8;

// With --gpu the GPUs themselves are asked whether they work; what a CPU does is only in samples.
bool needs_samples(analyzers::Doubt doubt, bool asks_gpus) {
  switch (doubt) {
    case analyzers::Doubt::kNone: return false;
    case analyzers::Doubt::kWorks:
    case analyzers::Doubt::kWakes:
    case analyzers::Doubt::kRests: return true;
    default: return !asks_gpus;
  }
}

// A step of the job may take longer than all samples before: each span is twice as long as the last, until something
// moved or the time for it is over. Samples that are too short to show that a step ended say nothing of a job that
// runs, or of a rank that counts: on a machine so busy that little time is left for the last ones, these may overrun
// it.
void sample_on(Sampling& sampling, const Options& options) {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::seconds kShortest{1};
  const auto begun = Clock::now();
  Duration longest{};
  for (Duration span = std::chrono::seconds(3); needs_samples(sampling.analysis().verdict.doubt, options.gpu.sessions);
       span *= 2) {
    const analyzers::Doubt doubt = sampling.analysis().verdict.doubt;
    const bool runs =
        doubt == analyzers::Doubt::kWorks || doubt == analyzers::Doubt::kLoops || doubt == analyzers::Doubt::kPassedBy;
    const bool may_overrun = runs && longest < kLongerThanSteps && options.max_wait >= kLongerThanSteps;
    if (doubt == analyzers::Doubt::kWorks) span = std::max<Duration>(span, kLongerThanSteps);
    const Duration left = options.max_wait - (Clock::now() - begun);
    if (left < std::max<Duration>(kShortest, longest) && !may_overrun) return;  // it would show less than the last ones
    if (left < 2 * span)  // the rest after it would be too short to show anything new
      span = may_overrun ? std::max<Duration>(left, kLongerThanSteps) : left;
    longest = std::max(longest, span);
    if (!sampling.sample_again(longer(options.live, sampling.job(), kSamplesOfSteps, span))) return;
  }
}

}  // namespace

tl::expected<JobSnapshot, capture::NotChosen> sample_as_needed(const Options& options,
                                                               std::optional<analyzers::Analysis>& analysis) {
  Sampled first = look_at(options.live, options.capture);
  if (!first || !options.samples_as_needed || first->ranks.empty()) return first;
  Sampling sampling(std::move(*first), options.capture);
  if (is_left_open(sampling.job(), sampling.analysis())) {
    // The more samples, the rarer it is that all hit one place of a job that moves.
    constexpr int kSamples = 20;
    capture::LiveRequest more = longer(options.live, sampling.job(), kSamples, std::chrono::milliseconds(1900));
    more.glances = true;
    if (!sampling.sample_again(more)) return sampling.take(analysis);
  }
  sample_on(sampling, options);
  return sampling.take(analysis);
}

JobSnapshot ask_gpus_as_needed(const Options& options, JobSnapshot job,
                               const std::function<void(JobSnapshot&)>& ask_gpus,
                               std::optional<analyzers::Analysis>& analysis) {
  analysis = analyzers::analyze(job);
  const bool open = analysis->verdict.doubt == analyzers::Doubt::kWorks;
  if (!options.samples_as_needed || !open || options.max_wait < kLongerThanSteps) return job;
  Sampled again = look_again(longer(options.live, job, kSamplesOfSteps, kLongerThanSteps), options.capture, job);
  if (!again || lost_a_rank(job, *again)) {
    capture::note_ended(job);
    analysis = analyzers::analyze(job);
    return job;
  }
  ask_gpus(*again);
  analyzers::fold_sessions(job, *again);
  analysis = analyzers::analyze(*again);
  return std::move(*again);
}

}  // namespace rankstacks::cli
