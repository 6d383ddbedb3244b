// One look at a job: the processes or cores named on the command line, as a JobSnapshot. Nothing here fails as a whole: what cannot be read is
// a rank with status failed.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <unordered_map>
#include <vector>

#include "capture/rank_stacks.h"
#include "gpu/nvml_query.h"
#include "model/snapshot.h"
#include "target/core_target.h"
#include "target/run_time.h"

namespace rankstacks {

struct CaptureOptions {
  UnwinderChoice unwinder = UnwinderChoice::kAuto;
  SymbolizerOptions symbols;
  // --timeout: for reading and unwinding one rank, and for looking up the functions of one file. What it cuts short is said, and the rank is partial.
  std::chrono::steady_clock::duration timeout = kDefaultTimeout;
  static constexpr std::chrono::seconds kDefaultTimeout{60};
  std::size_t memory = kDefaultMemory;     // --memory: of the whole tool. What does not fit is left out and said, and the ranks are partial
  static constexpr std::size_t kDefaultMemory = std::size_t{4} << 30;   // where nobody has asked how much the machine has
};

struct LiveRequest {
  std::vector<Pid> pids;
  bool whole_job = false;                  // --job: every rank on this machine
  int samples = 3;                         // samples; 1 tells where the ranks stand, several also what moves
  std::chrono::steady_clock::duration interval = std::chrono::milliseconds(450);   // from one sample to the next: three take less than a second
  bool glances = false;                    // between the samples, native threads that wake up often are glanced at (target/glances.h)
  gpu::NvmlRequest nvml;                   // of a machine that is played only in tests
};

// Several looks at the same processes. The first is the job as it is shown; the later ones tell what moves.
struct LiveCapture {
  JobSnapshot job;
  std::vector<std::vector<RankSnapshot>> later;      // the processes that could be looked at again; their FrameIds are of job.frames
  std::unordered_map<Tid, RunTime> ran;              // between the samples: thread ids are unique on a machine
  std::chrono::steady_clock::duration between{};     // the time that `ran` covers
};
LiveCapture capture_live(const LiveRequest& request, const CaptureOptions& options);

JobSnapshot capture_cores(const std::vector<std::string>& paths, const CoreOptions& core_options, const CaptureOptions& options);

}  // namespace rankstacks
