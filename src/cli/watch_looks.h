// What `rankstacks watch` does in forked processes: finding the ranks, and looking at them.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "analyzers/analysis.h"
#include "cli/forked_work.h"
#include "cli/options.h"
#include "watch/decision.h"
#include "watch/process_reader.h"
#include "watch/report_store.h"

namespace rankstacks::cli {

struct FoundRanks {
  std::vector<watch::WatchedProcess> ranks;
  std::chrono::seconds timeout{};  // of the job's own watchdog
  std::string timeout_from;        // who says so
  bool several_jobs = false;       // --job does not say which one is meant; then there are no ranks
};
// std::nullopt: it could not be found out in time.
std::optional<FoundRanks> find_ranks(const Options& options, const WorkLimit& limit);

enum class LookKind {
  kLight,  // two samples, or as many as a loop needs; nothing is written
  kFull,   // as many as `attach` takes; the reports are written
  kShort,  // three, where there is little time; the reports are written
};

struct LookResult {
  watch::Seen seen = watch::Seen::kUndecided;
  analyzers::VerdictStatus verdict = analyzers::VerdictStatus::kUndecided;
  std::optional<std::size_t> places;  // Decision::looked()
  std::size_t ranks = 0;              // that were read
  int not_written = 0;                // the errno, if the reports could not be written
};

struct Look {
  std::optional<LookResult> result;  // std::nullopt: it was not done in time
  watch::Seconds cost{0};            // the processor time that it took
};

// `name`: of the reports, without ending. A full look that finds the job healthy writes nothing if `unless_healthy`.
Look look_at_ranks(const Options& options, LookKind kind, const watch::ReportStore& store, const std::string& name,
                   bool unless_healthy, const WorkLimit& limit);

}  // namespace rankstacks::cli
