// Why a rank is suspected, and the verdict on the job, as values. Their words are those of the JSON report
// (docs/json.md).
#pragma once

#include <cstdint>
#include <string_view>

namespace rankstacks::analyzers {

enum class VerdictStatus : std::uint8_t {
  kUndecided,
  kCulprit,    // some ranks hold up the others
  kSymmetric,  // no rank moves, and none differs
  kHealthy,    // nothing is stuck
};
std::string_view to_string(VerdictStatus status);  // "undecided"

// The open question in a verdict "nobody moves" or "all move", if more samples may change it.
enum class Doubt : std::uint8_t {
  kNone,
  kGpuWaits,  // the only waits seen are waits for GPUs: a step may take long
  // The rank that is waited for counts on, beyond where the others wait: it may be slow in another loop, or have left
  // out what they wait in.
  kPassedBy,
  kLoops,  // all run, each at one place: an endless loop, or a long computation
  kWorks,  // half of the ranks or more are at work in one function each: a loop without an end, or a long step
  kWakes,  // a suspect was found at one place, but has run in between: a wait that ends and begins anew, or a loop
  kRests,  // some rank moved, but one that others may wait for did not run at all: it may hold them up from now on
};

// In the order of their words; a summary lists them in this order.
enum class Reason : std::uint8_t {
  kNone,  // "": a wait for the other ranks, or the frames do not show it
  kBehind,
  kCheckpointIo,
  kCollectiveMismatch,
  kCompiling,
  kCrashed,
  kDataLoading,
  kDebugger,
  kException,
  kFileIo,
  kFrozen,  // in words of its own; in the report it is `stopped`
  kGarbageCollection,
  kGpuWait,
  kMissing,
  kNativeLock,
  kNetworkIo,
  kProcessGroupOrder,
  kPythonLock,
  kStopped,
  kStoreWait,
  kSubprocess,
  kUnmatchedP2p,
  kUserCode,
  kWorkerDead,
};
std::string_view to_string(Reason reason);  // "data-loading"

}  // namespace rankstacks::analyzers
