// One look at a job for all programs of this user that ask within a few seconds: the watchdogs of eight ranks fire
// together, and each of them calls the tool.
//
//     the first      takes the job's lock ── looks at all ranks ── writes the report ── releases the lock
//     the others     wait for the lock ─────────────────────────────────────────────── read that report
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
  std::string path;     // of its report, which is JSON; empty: it could not be written
  int not_written = 0;  // then, the errno
};

// A report that is older than this at the time of the call is of another moment.
inline constexpr std::chrono::seconds kShared{5};

// `key` names the job: letters and digits. `look` is called with the lock held. kTimeout: another call's look was not
// done by the deadline.
Result<Look> look_together(const PrivateDirectory& directory, const std::string& key, const Deadline& deadline,
                           const std::function<Look()>& look);

}  // namespace rankstacks::cli
