#include "analyzers/reason.h"

namespace rankstacks::analyzers {

std::string_view to_string(VerdictStatus status) {
  switch (status) {
    case VerdictStatus::kUndecided: return "undecided";
    case VerdictStatus::kCulprit: return "culprit";
    case VerdictStatus::kSymmetric: return "symmetric";
    case VerdictStatus::kHealthy: return "healthy";
  }
  return "";
}

std::string_view to_string(Reason reason) {
  switch (reason) {
    case Reason::kNone: return "";
    case Reason::kBehind: return "behind";
    case Reason::kCheckpointIo: return "checkpoint-io";
    case Reason::kCollectiveMismatch: return "collective-mismatch";
    case Reason::kCompiling: return "compiling";
    case Reason::kCrashed: return "crashed";
    case Reason::kDataLoading: return "data-loading";
    case Reason::kDebugger: return "debugger";
    case Reason::kException: return "exception";
    case Reason::kFileIo: return "file-io";
    case Reason::kFrozen: return "stopped";
    case Reason::kGarbageCollection: return "garbage-collection";
    case Reason::kGpuWait: return "gpu-wait";
    case Reason::kMissing: return "missing";
    case Reason::kNativeLock: return "native-lock";
    case Reason::kNetworkIo: return "network-io";
    case Reason::kProcessGroupOrder: return "process-group-order";
    case Reason::kPythonLock: return "python-lock";
    case Reason::kStopped: return "stopped";
    case Reason::kStoreWait: return "store-wait";
    case Reason::kSubprocess: return "subprocess";
    case Reason::kUnmatchedP2p: return "unmatched-p2p";
    case Reason::kUserCode: return "user-code";
    case Reason::kWorkerDead: return "worker-dead";
  }
  return "";
}

}  // namespace rankstacks::analyzers
