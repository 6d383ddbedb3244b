// Why a rank is suspected, and what a verdict says of the job: as values; their words are those of the JSON report (docs/json.md).
#pragma once

#include <cstdint>
#include <string_view>

namespace rankstacks {

enum class VerdictStatus : std::uint8_t {
  kUndecided,
  kCulprit,        // some ranks hold up the others
  kSymmetric,      // nobody moves, and no rank differs
  kHealthy,        // nothing is stuck
};
std::string_view to_string(VerdictStatus status);   // "undecided"

// What a verdict that nobody moves, or that all do, rests on, where a longer look may tell otherwise.
enum class Doubt : std::uint8_t {
  kNone,
  kGpuWaits,       // all that is seen is waits for GPUs: a step may be long
  kPassedBy,       // who is waited for counts on, beyond where the others wait: it may be slow in another loop, or have left out what they wait in
  kLoops,          // all run, each at one place: an endless loop, or a long computation
};

// In the order of their words, which is the order in which a summary lists them.
enum class Reason : std::uint8_t {
  kNone,           // "": a wait for the other ranks, or the frames do not tell
  kBehind,
  kCheckpointIo,
  kCollectiveMismatch,
  kCompiling,
  kCrashed,
  kDataLoading,
  kDebugger,
  kException,
  kFileIo,
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
std::string_view to_string(Reason reason);          // "data-loading"

}  // namespace rankstacks
