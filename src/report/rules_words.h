// The keys and words of a rules file: one table for each, for the reader and the writers.
#pragma once

#include <string_view>

#include "base/word_table.h"
#include "known/modules.h"
#include "known/places.h"
#include "known/rules.h"

namespace rankstacks::report {

// A kind of match, and the keys for its texts. An empty key: it has no such text.
template <class E>
struct MatchWord {
  E match;
  std::string_view word;
  std::string_view what_key;
  bool needs_what;
  std::string_view file_key;
  bool needs_file;
};

inline constexpr MatchWord<known::ActivityMatch> kActivityMatchWords[] = {
    {known::ActivityMatch::kNative, "native", "function", true, "", false},
    {known::ActivityMatch::kNativePrefix, "native-prefix", "function", true, "", false},
    {known::ActivityMatch::kNativeOp, "native-op", "function", true, "namespace", true},
    {known::ActivityMatch::kPython, "python", "function", true, "file", false},
    {known::ActivityMatch::kPythonFile, "python-file", "", false, "file", true},
    {known::ActivityMatch::kPythonWaits, "python-waits", "function", true, "file", false},
};

inline constexpr MatchWord<known::RoleMatch> kRoleMatchWords[] = {
    {known::RoleMatch::kFunction, "function", "function", true, "", false},
    {known::RoleMatch::kEntry, "entry", "function", true, "", false},
    {known::RoleMatch::kEntryModule, "entry-module", "module", true, "", false},
    {known::RoleMatch::kInnermost, "innermost", "function", true, "", false},
    {known::RoleMatch::kPolls, "polls", "module", true, "", false},
    {known::RoleMatch::kPython, "python", "function", true, "file", true},
    {known::RoleMatch::kPythonFile, "python-file", "", false, "file", true},
    {known::RoleMatch::kPythonEntryFile, "python-entry-file", "", false, "file", true},
    {known::RoleMatch::kPythonWaits, "python-waits", "function", false, "file", true},
};

inline constexpr MatchWord<known::IdleMatch> kIdleMatchWords[] = {
    {known::IdleMatch::kFunction, "function", "function", true, "", false},
    {known::IdleMatch::kModule, "module", "module", true, "", false},
    {known::IdleMatch::kOnly, "only", "module", true, "", false},
    {known::IdleMatch::kPython, "python", "function", false, "file", true},
};

inline constexpr WordTable<known::Wait, 4> kWaitWords = {{{known::Wait::kAny, "any"},
                                                          {known::Wait::kCondition, "condition"},
                                                          {known::Wait::kPoll, "poll"},
                                                          {known::Wait::kBlocks, "blocks"}}};

inline constexpr bool kOfThread = false, kOfChild = true;
inline constexpr WordTable<bool, 2> kRoleOfWords = {{{kOfThread, "thread"}, {kOfChild, "child"}}};

inline constexpr WordTable<known::FileMatch, 2> kFileMatchKeys = {
    {{known::FileMatch::kContains, "contains"}, {known::FileMatch::kSuffix, "suffix"}}};

inline constexpr WordTable<known::Place, known::kPlaces> kPlaceWords = {
    {{known::Place::kWait, "wait"},
     {known::Place::kLock, "lock"},
     {known::Place::kUnlock, "unlock"},
     {known::Place::kTask, "task"},
     {known::Place::kQueue, "queue"},
     {known::Place::kQueueGet, "queue-get"},
     {known::Place::kQueuePut, "queue-put"},
     {known::Place::kQueueJoin, "queue-join"},
     {known::Place::kThreading, "threading"},
     {known::Place::kThreadingWait, "threading-wait"},
     {known::Place::kThreadingBarrier, "threading-barrier"},
     {known::Place::kThreadingAcquire, "threading-acquire"},
     {known::Place::kThreadingJoin, "threading-join"},
     {known::Place::kPool, "pool"},
     {known::Place::kFutures, "futures"},
     {known::Place::kChildOutput, "child-output"},
     {known::Place::kImport, "import"},
     {known::Place::kImportWait, "import-wait"},
     {known::Place::kProcessQueue, "process-queue"},
     {known::Place::kProcessQueueWait, "process-queue-wait"},
     {known::Place::kProcessPipe, "process-pipe"},
     {known::Place::kProcessLock, "process-lock"},
     {known::Place::kEventLoop, "event-loop"},
     {known::Place::kLoopChild, "event-loop-child"},
     {known::Place::kServerLoop, "server-loop"},
     {known::Place::kLoopWait, "loop-wait"},
     {known::Place::kThreadStart, "thread-start"},
     {known::Place::kThreadEntry, "thread-entry"},
     {known::Place::kProcessStart, "process-start"},
     {known::Place::kPoolWorker, "pool-worker"},
     {known::Place::kPoolLoop, "pool-loop"},
     {known::Place::kPoolTask, "pool-task"},
     {known::Place::kNoWork, "no-work"},
     {known::Place::kOperation, "operation"},
     {known::Place::kC10d, "c10d"},
     {known::Place::kRemoteCalls, "remote-calls"},
     {known::Place::kRemoteCall, "remote-call"},
     {known::Place::kLoaderLoop, "loader-loop"},
     {known::Place::kLoaderWork, "loader-work"}}};

inline constexpr WordTable<known::ModuleKind, 3> kModuleKindWords = {{{known::ModuleKind::kCLibrary, "c-library"},
                                                                      {known::ModuleKind::kCppLibrary, "c++-library"},
                                                                      {known::ModuleKind::kRuntime, "runtime"}}};

// The version of the file format, under the key "rules".
inline constexpr int kRulesVersion = 1;

template <class E, std::size_t N>
const MatchWord<E>& match_word_of(const MatchWord<E> (&table)[N], E match) {
  for (const MatchWord<E>& entry : table)
    if (entry.match == match) return entry;
  return table[0];
}

}  // namespace rankstacks::report
