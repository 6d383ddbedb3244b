// Makes a report that can be shown to others: secrets are taken out, and, if asked for, what identifies people and
// machines gets pseudonyms.
//
//     JobSnapshot ──> every string of it, by what it is (host, path, command, ...) ──> JobSnapshot
//          │                                                                              │ analyze()
//          └── its Analysis: which verdict ─────────── compared ──────────────────────────┴──> Analysis
//
// This comes before any format is printed, and every string passes through one of the functions of FieldRedaction, so
// no printer can show what was meant to be hidden. The sentences of an analysis are made of the snapshot's values, so
// the analysis is made again from the redacted snapshot. If that changes the verdict (a rule that names a user's own
// directory), the first analysis stays and its sentences become the plain words of their reasons.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "analyzers/analysis.h"
#include "model/snapshot.h"
#include "redact/pseudonyms.h"

namespace rankstacks::redact {

struct Request {
  bool names = false;   // --redact: also hosts, users, paths of homes, addresses, arguments, texts
  bool secrets = true;  // not --with-secrets
};

struct Redacted {
  JobSnapshot job;
  analyzers::Analysis analysis;
  Pseudonyms names;
  std::set<std::string> hidden;  // without pseudonyms: the secrets that were taken out
};

// The ranks and threads, their order and their numbers (pids, tids, rank numbers) stay.
Redacted redact(JobSnapshot job, analyzers::Analysis analysis, const Request& request);

// The same for several reports that are shown together: what is one thing in them has one name.
struct Report {
  JobSnapshot job;
  analyzers::Analysis analysis;
};
struct RedactedReports {
  std::vector<Report> reports;
  Pseudonyms names;
  std::set<std::string> hidden;  // as in Redacted
};
RedactedReports redact_together(std::vector<Report> reports, const Request& request);

}  // namespace rankstacks::redact
