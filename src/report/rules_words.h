// The keys and words of a rules file: one table for each, for the reader and the writers.
#pragma once

#include <string_view>

#include "base/word_table.h"
#include "known/modules.h"
#include "known/places.h"
#include "known/rules.h"

namespace rankstacks {

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

inline constexpr MatchWord<ActivityMatch> kActivityMatchWords[] = {
    {ActivityMatch::kNative, "native", "function", true, "", false},
    {ActivityMatch::kNativePrefix, "native-prefix", "function", true, "", false},
    {ActivityMatch::kNativeOp, "native-op", "function", true, "namespace", true},
    {ActivityMatch::kPython, "python", "function", true, "file", false},
    {ActivityMatch::kPythonFile, "python-file", "", false, "file", true},
};

inline constexpr MatchWord<RoleMatch> kRoleMatchWords[] = {
    {RoleMatch::kFunction, "function", "function", true, "", false},
    {RoleMatch::kEntry, "entry", "function", true, "", false},
    {RoleMatch::kEntryModule, "entry-module", "module", true, "", false},
    {RoleMatch::kInnermost, "innermost", "function", true, "", false},
    {RoleMatch::kPolls, "polls", "module", true, "", false},
    {RoleMatch::kPython, "python", "function", true, "file", true},
    {RoleMatch::kPythonFile, "python-file", "", false, "file", true},
    {RoleMatch::kPythonEntryFile, "python-entry-file", "", false, "file", true},
    {RoleMatch::kPythonWaits, "python-waits", "function", false, "file", true},
};

inline constexpr MatchWord<IdleMatch> kIdleMatchWords[] = {
    {IdleMatch::kFunction, "function", "function", true, "", false},
    {IdleMatch::kModule, "module", "module", true, "", false},
    {IdleMatch::kOnly, "only", "module", true, "", false},
    {IdleMatch::kPython, "python", "function", false, "file", true},
};

inline constexpr WordTable<Wait, 4> kWaitWords = {{{Wait::kAny, "any"}, {Wait::kCondition, "condition"}, {Wait::kPoll, "poll"}, {Wait::kBlocks, "blocks"}}};

inline constexpr bool kOfThread = false, kOfChild = true;
inline constexpr WordTable<bool, 2> kRoleOfWords = {{{kOfThread, "thread"}, {kOfChild, "child"}}};

inline constexpr WordTable<FileMatch, 2> kFileMatchKeys = {{{FileMatch::kContains, "contains"}, {FileMatch::kSuffix, "suffix"}}};

inline constexpr WordTable<Place, kPlaces> kPlaceWords = {{{Place::kWait, "wait"},
                                                           {Place::kLock, "lock"},
                                                           {Place::kTask, "task"},
                                                           {Place::kQueue, "queue"},
                                                           {Place::kQueueGet, "queue-get"},
                                                           {Place::kQueuePut, "queue-put"},
                                                           {Place::kQueueJoin, "queue-join"},
                                                           {Place::kThreading, "threading"},
                                                           {Place::kThreadingWait, "threading-wait"},
                                                           {Place::kThreadingBarrier, "threading-barrier"},
                                                           {Place::kThreadingAcquire, "threading-acquire"},
                                                           {Place::kThreadingJoin, "threading-join"},
                                                           {Place::kPool, "pool"},
                                                           {Place::kFutures, "futures"},
                                                           {Place::kImport, "import"},
                                                           {Place::kImportWait, "import-wait"},
                                                           {Place::kProcessQueue, "process-queue"},
                                                           {Place::kProcessQueueWait, "process-queue-wait"},
                                                           {Place::kProcessPipe, "process-pipe"},
                                                           {Place::kProcessLock, "process-lock"},
                                                           {Place::kEventLoop, "event-loop"},
                                                           {Place::kServerLoop, "server-loop"},
                                                           {Place::kLoopWait, "loop-wait"},
                                                           {Place::kThreadStart, "thread-start"},
                                                           {Place::kThreadEntry, "thread-entry"},
                                                           {Place::kProcessStart, "process-start"},
                                                           {Place::kPoolWorker, "pool-worker"},
                                                           {Place::kPoolLoop, "pool-loop"},
                                                           {Place::kPoolTask, "pool-task"},
                                                           {Place::kNoWork, "no-work"},
                                                           {Place::kOperation, "operation"},
                                                           {Place::kC10d, "c10d"},
                                                           {Place::kRemoteCalls, "remote-calls"},
                                                           {Place::kRemoteCall, "remote-call"},
                                                           {Place::kLoaderLoop, "loader-loop"},
                                                           {Place::kLoaderWork, "loader-work"}}};

inline constexpr WordTable<ModuleKind, 3> kModuleKindWords = {{{ModuleKind::kCLibrary, "c-library"}, {ModuleKind::kCppLibrary, "c++-library"}, {ModuleKind::kRuntime, "runtime"}}};

// The version of the file format, under the key "rules".
inline constexpr int kRulesVersion = 1;

template <class E, std::size_t N>
const MatchWord<E>& match_word_of(const MatchWord<E> (&table)[N], E match) {
  for (const MatchWord<E>& entry : table)
    if (entry.match == match) return entry;
  return table[0];
}

}  // namespace rankstacks
