#include "cli/look_as_needed.h"

#include <algorithm>
#include <chrono>
#include <string>

#include "analyzers/motion.h"
#include "capture/capture_job.h"
#include "cli/options.h"

namespace rankstacks {
namespace {

using Duration = std::chrono::steady_clock::duration;

// All looks as one snapshot.
JobSnapshot look_at(const LiveRequest& request, const CaptureOptions& options) {
  LiveCapture capture = capture_live(request, options);
  const auto ran = [&](Tid tid) {
    const auto found = capture.ran.find(tid);
    return found == capture.ran.end() ? Ran{} : Ran{found->second.cpu_ms, found->second.runs};
  };
  fold_looks(capture.job, capture.later, ran, std::chrono::duration<double, std::milli>(capture.between).count());
  return std::move(capture.job);
}

// A thread of the program's own that woke up again and again between the looks: a poller, or one that takes short steps.
bool some_own_thread_wakes(const JobSnapshot& job, const Analysis& analysis) {
  constexpr double kRunsPerSecond = 20;
  for (std::size_t r = 0; r < job.ranks.size(); ++r)
    for (std::size_t t = 0; t < job.ranks[r].threads.size(); ++t) {
      const auto& motion = job.ranks[r].threads[t].motion;
      const Role role = analysis.roles[r][t];
      const bool own = role == Role::kMain || role == Role::kPython || role == Role::kNative;
      if (own && motion && static_cast<double>(motion->runs) * 1000 > kRunsPerSecond * motion->span_ms) return true;
    }
  return false;
}

// Ranks at work, and nobody seen to get on: a few looks hit the same place by chance.
bool is_left_open(const JobSnapshot& job, const Analysis& analysis) {
  if (analysis.verdict.status == VerdictStatus::kSymmetric) return some_own_thread_wakes(job, analysis);
  if (analysis.verdict.status != VerdictStatus::kUndecided) return false;
  return std::any_of(analysis.activities.begin(), analysis.activities.end(), [&](const std::optional<RankActivity>& activity) {
    return activity && (activity->moves.value_or(false) || job.ranks[activity->evidence.rank].threads[activity->evidence.thread].state == 'R');
  });
}

LiveRequest longer(const LiveRequest& request, const JobSnapshot& job, int samples, Duration interval) {
  LiveRequest more = request;
  // A look at thousands of threads takes longer.
  std::size_t threads = 0;
  for (const RankSnapshot& rank : job.ranks) threads += rank.threads.size();
  constexpr std::size_t kMany = 1000;
  const bool many = threads > kMany;
  constexpr int kFewer = 5, kOf = 2;
  more.samples = many ? std::max(3, samples * kOf / kFewer) : samples;
  more.interval = many ? interval * kFewer / kOf : interval;
  more.glances = true;
  return more;
}

}  // namespace

JobSnapshot look_as_needed(const Options& options, std::optional<Analysis>& analysis) {
  JobSnapshot job = look_at(options.live, options.capture);
  if (!options.looks_as_needed || job.ranks.empty()) return job;
  analysis = analyze(job);
  // Two seconds of looks: the more of them, the rarer that all hit one place of a job that moves.
  constexpr int kLooks = 20;
  constexpr std::chrono::milliseconds kInterval{100};
  if (is_left_open(job, *analysis)) {
    analysis.reset();
    job = look_at(longer(options.live, job, kLooks, kInterval), options.capture);
    analysis = analyze(job);
  }
  // A step of the job may take longer than all of these: each time twice as long, until something moved or the time for it is over.
  Duration left = options.max_wait, span = std::chrono::seconds(3);
  constexpr int kLaterLooks = 8;
  while (analysis->verdict.doubt != Doubt::kNone && left >= std::chrono::seconds(1)) {
    span = std::min(span, left);
    job = look_at(longer(options.live, job, kLaterLooks, span / (kLaterLooks - 1)), options.capture);
    analysis = analyze(job);
    left -= span;
    span *= 2;
  }
  return job;
}

}  // namespace rankstacks
