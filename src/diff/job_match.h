// Which process and thread of a new report is which of an old one.
//
// A process is the same if its identity says so (model/process_key.h), or, where a report lacks that (a core, a dump of
// another tool, an older report), if host, pid and rank do not contradict each other. A rank whose process is gone, and
// whose number another process has, was started anew: the two are compared as well, by the roles of their threads.
#pragma once

#include <cstddef>
#include <vector>

#include "analyzers/seen_thread.h"
#include "diff/side.h"

namespace rankstacks::diff {

enum class Match {
  kProcess,  // one process
  kRank,     // two processes, one after the other, of one rank; or children of such processes
};

// Indices into RankSnapshot::threads.
struct ThreadPair {
  std::size_t old = 0, now = 0;
};

// Indices into JobSnapshot::ranks, and of the threads of these.
struct ProcessPair {
  std::size_t old = 0, now = 0;
  Match match = Match::kProcess;
  std::vector<ThreadPair> threads;        // in the order of the new report
  std::vector<std::size_t> ended, begun;  // threads of the old, of the new report alone
};

struct JobMatch {
  std::vector<ProcessPair> pairs;         // in the order of the new report
  std::vector<std::size_t> gone, joined;  // processes of the old, of the new report alone
};

// By rank and thread: SeenThread of each of a job's threads.
using SeenJob = std::vector<std::vector<analyzers::SeenThread>>;

JobMatch match_jobs(const Sides& sides, const SeenJob& old, const SeenJob& now);

}  // namespace rankstacks::diff
