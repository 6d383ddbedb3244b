// One look at a job for all programs of this user that ask within a few seconds: the watchdogs of eight ranks fire
// together, and each of them calls the tool.
//
//     the first      takes the job's lock ── looks at all ranks ── writes the report ── releases the lock
//     the others     wait for the lock ─────────────────────────────────────────────── read that report
//
// A lock that is held for too long (by a stopped call, or by what is no call) leaves the others half of their time:
// they take turns at a second lock in the same way, and who does not get that one either looks by itself.
#pragma once

#include <functional>
#include <string>

#include "analyzers/analysis.h"
#include "base/deadline.h"
#include "base/private_directory.h"
#include "base/result.h"
#include "model/snapshot.h"

namespace rankstacks::cli {

struct Look {
  JobSnapshot job;  // without secrets
  analyzers::Analysis analysis;
  std::string path;        // of its report, which is JSON; empty: it could not be written
  int not_written = 0;     // then, the errno
  std::string waited_for;  // the lock of a call that made no report in time: this look is one of its own
};

// A report that is older than this at the time of the call is of another moment.
inline constexpr std::chrono::seconds kShared{5};

// `key` names the job: letters and digits. `look` is called with one of the locks held, or, if they are not free in
// time, without.
Result<Look> look_together(const PrivateDirectory& directory, const std::string& key, const Deadline& deadline,
                           const std::function<Look()>& look);

}  // namespace rankstacks::cli
