// Captures a job: the processes or cores named on the command line, as a JobSnapshot. A capture never fails as a whole:
// a process or core that cannot be read becomes a rank with status failed.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "capture/job_choice.h"
#include "capture/leftovers.h"
#include "capture/rank_stacks.h"
#include "gpu/nvml_query.h"
#include "model/snapshot.h"
#include "small_core/kept_jobs.h"
#include "symbolizers/symbolizer.h"
#include "target/core_target.h"
#include "target/run_time.h"
#include "target/stop_choice.h"

namespace rankstacks::capture {

struct CaptureOptions {
  UnwinderChoice unwinder = UnwinderChoice::kAuto;
  symbolizers::SymbolizerOptions symbols;
  bool libc_lines = false;  // --libc-lines: also the lines of the C library's own frames
  // --timeout: for reading and unwinding one rank, and for looking up the functions of one file. If it cuts something
  // short, the report says so, and the rank is partial.
  std::chrono::steady_clock::duration timeout = kDefaultTimeout;
  static constexpr std::chrono::seconds kDefaultTimeout{60};
  // For each wait for a file system, or for a process's memory, before the processes are stopped (Unattended::silence).
  std::chrono::steady_clock::duration silence = std::chrono::steady_clock::duration::max();
  // --memory: for the whole tool. What does not fit is left out, the report says so, and the ranks are partial.
  std::size_t memory = kDefaultMemory;
  // `dump --locals`: the longest repr of a local variable of Python's, in characters; 0: they are not read.
  std::size_t locals = 0;
  std::vector<std::string> flight_recorder;  // --flight-recorder: dumps, or directories of dumps
  // `rankstacks capture`: receives what the small cores of the processes hold; nullptr: none are made.
  std::shared_ptr<small_core::KeptJobs> kept;
  // Keeps what a live look leaves until the next one.
  std::shared_ptr<Leftovers> leftovers = std::make_shared<Leftovers>();
  // Used if the machine's memory was not determined.
  static constexpr std::size_t kDefaultMemory = std::size_t{4} << 30;
};

struct LiveRequest {
  std::vector<Pid> pids;
  std::optional<JobChoice> job;  // --job: which of the machine's jobs; `pids` is empty then
  bool alone = false;            // `pids` stand for themselves: no children, and no ranks of a launcher
  // Other processes that run this very program are no ranks and no children, unless they are among `pids`: watchdogs in
  // the ranks call it, at the same time, with a rank's variables.
  bool without_tools = false;
  // With `job`: only these processes, their ancestors and descendants are planned, because the others of the machine
  // are known not to belong to it. Empty: any process.
  std::vector<Pid> among;
  int samples = 3;  // number of samples; 1 shows where the ranks are, several also show what moves
  // From one sample to the next: three samples take less than a second.
  std::chrono::steady_clock::duration interval = std::chrono::milliseconds(450);
  // Whether native threads that wake up often are glanced at between the samples (target/glances.h).
  bool glances = false;
  target::StopPolicy stop = target::StopPolicy::kAuto;  // --stop
  gpu::NvmlRequest nvml;                                // refers to a simulated machine in tests only
};

// A job as it is listed where --job does not say which one is meant.
struct ListedJob {
  std::string id;            // what --job takes
  std::string user;          // its name, or its number; empty: unknown
  std::vector<int> numbers;  // of the ranks that are on this machine, ascending
  std::optional<int> world_size;
  std::vector<Pid> pids;                          // of the ranks, ascending
  std::chrono::system_clock::time_point started;  // the first of them
  std::vector<std::string> command;               // of the rank with the lowest number; empty: it does not answer
};

struct NotChosen {
  JobChoice choice;
  WhyNoJob why = WhyNoJob::kNoRank;
  std::vector<ListedJob> jobs;  // of which one can be chosen
};

// Several samples of the same processes. The first is the job as it is shown; the later ones show what moves.
struct LiveCapture {
  JobSnapshot job;
  // Set if no job could be chosen (LiveRequest::job): nothing was stopped, and everything else is empty.
  std::optional<NotChosen> not_chosen = {};
  // Later samples of the processes that could be captured again; their FrameIds refer to job.frames.
  std::vector<std::vector<RankSnapshot>> later = {};
  std::unordered_map<Tid, target::RunTime> ran =
      {};  // run times between the samples, by thread id, which is unique on a machine
  std::chrono::steady_clock::duration between{};  // the time that `ran` covers
  std::shared_ptr<void> leftovers = {};           // for CaptureOptions::leftovers
};
LiveCapture capture_live(const LiveRequest& request, const CaptureOptions& options);

// What captures among the cores note in addition to their memory, by their paths.
struct NotedReport {
  std::string json;
  bool has_all_symbols = false;  // no file is missed
};
using NotedReports = std::map<std::string, NotedReport>;

// `noted`: receives them; nullptr: they are not asked for.
JobSnapshot capture_cores(const std::vector<std::string>& paths, const target::CoreOptions& core_options,
                          const CaptureOptions& options, NotedReports* noted = nullptr);

}  // namespace rankstacks::capture
