// What differs between two reports of one job, as values. Words are made of them in diff_text.h, JSON in diff_json.h.
//
//     Sides ──> JobMatch: which process and thread is which ──> ProcessChange, ThreadChange: what moved
//       │                                                    ──> RankCounter: NCCL's counts, the Flight Recorder's
//       ├────> ClusterChange: groups of equal stacks that came, went, changed their members
//       ├────> VerdictChange
//       ├────> SettingChange: versions, variables, limits, command, place in the job
//       └────> DifferenceChange: what differs between ranks now, and did not, or the other way round
//
// Indices are those of ranks and threads in the snapshot of their side.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "analyzers/reason.h"
#include "diff/job_match.h"
#include "known/kinds.h"

namespace rankstacks::diff {

// What a thread has done between the two reports (docs/diff.md has the exact rules).
enum class Movement {
  kUnknown,  // at least one of its stacks is missing
  kMoved,    // it has been somewhere else: see MovedBy
  kRan,      // nothing shows that it has moved, but it has used processor time
  kStood,    // nothing shows that it has moved, nor that it has run
  // Of threads of two processes, one after the other, which say nothing of motion:
  kSamePlace,
  kElsewhere,
};
enum class MovedBy {
  kPlace,    // its place in the program is another one
  kCounter,  // a loop counter of its frames has another value
  kSamples,  // it moved between the samples of one of the reports
};

struct Counter {
  std::string name;
  std::int64_t old = 0, now = 0;
};

struct ThreadChange {
  ThreadPair pair;
  Movement movement = Movement::kUnknown;
  std::optional<MovedBy> moved_by;  // only of kMoved
  std::optional<double> ran_ms;     // processor time between the reports; empty: not known
  std::vector<Counter> counters;    // those of its frames that changed; only where the place is the same
};

struct ProcessChange {
  ProcessPair pair;
  Movement movement = Movement::kUnknown;  // that of its main thread, and of the thread that shows its activity
  std::vector<ThreadChange> threads;       // parallel to pair.threads
};

// Why a process is in one of the reports alone.
enum class Absence {
  kGone,         // of the old report: it is not there any more. Of the new one: it was not there yet
  kNotExamined,  // the other report says that it runs (ran), and was not asked for
  kNoHost,       // the other report has no process of its host
};
struct LoneProcess {
  std::size_t index = 0;
  Absence absence = Absence::kGone;
};

// A number that NCCL or the Flight Recorder has of a rank, and that is another one now or stayed.
enum class CounterKind { kNcclLaunches, kRecordedEnqueued, kRecordedCompleted };
struct RankCounter {
  std::size_t old_rank = 0, now_rank = 0;
  CounterKind kind = CounterKind::kNcclLaunches;
  std::string group;  // the communicator's hash, the group's name
  std::int64_t old = 0, now = 0;
};

enum class ClusterFate { kCame, kWent, kStayed };
struct ClusterChange {
  ClusterFate fate = ClusterFate::kStayed;
  std::optional<std::size_t> old, now;    // indices into Analysis::clusters
  std::vector<std::size_t> joined, left;  // of kStayed: processes, of the new and of the old report
};

struct SuspectChange {
  std::optional<std::size_t> old, now;  // indices into Verdict::suspects; both: of the same rank
};
struct VerdictChange {
  bool same = false;  // status, suspects and their reasons
  std::vector<SuspectChange> suspects;
};

enum class Setting {
  kTool,
  kHost,
  kExecutable,
  kCommand,
  kPython,
  kWorldSize,
  kCoordinates,
  kStatus,
  kGpus,
  kGpuDriver,
  kNccl,
  // Those of a rank's environment (environment_changes.h); the first four have a name.
  kVersion,
  kBuild,
  kVariable,
  kLimit,
  kMemoryLimit,
  kCpuLimit,
  kProcessLimit,
  kKernel,
  kDistribution,
  kContainer,
  kCpus,
  kMemoryNodes,
  kClock,
};
struct SettingChange {
  Setting setting = Setting::kTool;
  std::string old, now;            // "": not known, or not there
  std::vector<std::size_t> ranks;  // of the new report; empty: of the job
  std::string name = {};           // of the component, variable or limit; "" where the setting says it all
};

// A difference between ranks that one report alone has.
enum class DifferenceFate { kCame, kWent };
struct DifferenceChange {
  DifferenceFate fate = DifferenceFate::kCame;
  std::size_t index = 0;  // into Analysis::differences, of the new report if it came, of the old one if it went
};

// What has become of the job, by the movements of its ranks.
enum class Outcome {
  kMoved,        // every rank whose movement is known
  kPartlyMoved,  // some have, some have not
  kStood,        // none has
  kStartedAnew,  // the ranks are other processes
  kUnknown,      // that of no rank is known
  kUnrelated,    // no process or rank of the one is in the other
};

struct JobDiff {
  Outcome outcome = Outcome::kUnknown;
  std::optional<double> between_ms;  // from the old report to the new one, negative if they were given in reverse
  std::vector<ProcessChange> processes;
  std::vector<LoneProcess> gone, joined;
  std::vector<RankCounter> counters;
  std::vector<ClusterChange> clusters;  // in the order: came, went, stayed
  VerdictChange verdict;
  std::vector<SettingChange> settings;
  std::vector<DifferenceChange> differences;
};

JobDiff diff_jobs(const Sides& sides);

}  // namespace rankstacks::diff
