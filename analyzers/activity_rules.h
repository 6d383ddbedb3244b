// Which frames say what a thread is doing: a table, one line per rule.
#pragma once

#include <string_view>

#include "analyzers/operation.h"
#include "model/snapshot.h"

namespace rankstacks {

enum class Activity {
  kUnknown,             // the frames do not tell
  kCollective,          // waits in (or for) a collective
  kPointToPoint,        // waits in a send or receive
  kStoreWait,           // waits in the rendezvous store
  kPeerWait,            // waits in a queue or lock between processes, which may be another rank's
  kAutograd,            // main thread waits for the autograd engine's threads: they tell
  kDataLoading,
  kCheckpointIo,
  kFileIo,
  kNetworkIo,
  kSubprocess,
  kDebugger,
  kStopped,
  kCompiling,
  kGpuWait,
  kGarbageCollection,
  kException,
  kPythonLock,
  kNativeLock,
  kUserCode,            // none of these: its own code
};

enum class ActivityMatch {
  kNative,        // the native function contains `what`
  kNativePrefix,  // it starts with `what`
  kNativeOp,      // it contains `file`, and its last component (without arguments) is `what`
  kPython,        // a Python function `what` of a file that contains `file`
  kPythonFile,    // any Python function of a file that contains `file`
};

// What stands in the frame, where the function's own name is not what the library's interface or a person calls it.
struct NamedOperation {
  std::string_view call = {};                    // Operation::call; empty: the function's own name
  std::string_view name = {};                    // Operation::name; empty: `call`
  Collective collective = Collective::kUnknown;  // kUnknown: by `call`
  OperationKind kind = OperationKind::kNone;     // kNone: by the activity
  bool generic = false;                          // many operations share it: a native frame further out names the operation better
};

struct ActivityRule {
  ActivityMatch match;
  std::string_view what;
  std::string_view file;
  Activity activity;
  NamedOperation operation = {};
};

// The first rule that holds; null: none.
const ActivityRule* activity_rule_of(const Frame& frame);

}  // namespace rankstacks
