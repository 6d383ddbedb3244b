// What the tables of rules speak of: as values, with the words that stand for them in reports and in files of rules (docs/rules.md).
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "base/word_table.h"

namespace rankstacks {

// What a thread is there for. In the order in which reports list them.
enum class Role {
  kMain, kPython, kAutograd, kNcclWatchdog, kNcclHeartbeat, kNcclMonitor, kNcclProxy, kNcclRas, kNcclService, kGlooLoop, kGlooWorker,
  kTcpStore, kDataLoader, kCheckpoint, kCuda, kOpenmp, kJitCompile, kGrpc, kProfiler, kRpc, kMpi, kXla,
  kElastic, kLogging, kIdlePool, kNative,
};
const char* to_string(Role role);   // "nccl-watchdog"
std::optional<Role> role_of_word(std::string_view word);

// What a thread does.
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
// A wait for other ranks.
constexpr bool waits_for_ranks(Activity a) { return a == Activity::kCollective || a == Activity::kPointToPoint || a == Activity::kStoreWait || a == Activity::kPeerWait; }

// NCCL's words. In the order of their names, which is the order in which reports list them.
enum class Collective : std::uint8_t {
  kUnknown,        // a collective, which one is not known
  kAllGather,
  kAllReduce,
  kAllToAll,
  kBarrier,
  kBroadcast,
  kGather,
  kReduce,
  kReduceScatter,
  kScatter,
  kSendRecv,       // NCCL's kernel for sends and receives, of which all-to-all, gather and scatter are made as well
};
std::string_view to_string(Collective collective);   // "AllReduce"; "" of kUnknown

enum class OperationKind : std::uint8_t {
  kNone,
  kCollective,
  kSetUp,          // of a communicator or its connections: a collective before the first one
  kMessage,        // a send or a receive, or several
  kStore,          // the rendezvous store
  kProcessQueue,   // between processes of one machine (multiprocessing)
  kProcessPipe,
  kProcessLock,
  kRemoteCall,     // an answer from another process (RPC)
  kUnnamed,        // a wait that most ranks are in, by a frame that no table names
  kEventLoop,      // an event loop that has nothing to do (asyncio, libuv)
  kLockedDatabase, // another process to leave an SQLite database
  kFileBaton,      // another process's build
  kTeardown,       // what the interpreter or the C library runs when the main program has ended: atexit's functions, its threads' end
};

// The words of files of rules. Those of activities are the verdict's reasons where there is one.
inline constexpr WordTable<Activity, 19> kActivityWords = {{{Activity::kCollective, "collective"},
                                                        {Activity::kPointToPoint, "point-to-point"},
                                                        {Activity::kStoreWait, "store-wait"},
                                                        {Activity::kPeerWait, "peer-wait"},
                                                        {Activity::kAutograd, "autograd"},
                                                        {Activity::kDataLoading, "data-loading"},
                                                        {Activity::kCheckpointIo, "checkpoint-io"},
                                                        {Activity::kFileIo, "file-io"},
                                                        {Activity::kNetworkIo, "network-io"},
                                                        {Activity::kSubprocess, "subprocess"},
                                                        {Activity::kDebugger, "debugger"},
                                                        {Activity::kCompiling, "compiling"},
                                                        {Activity::kGpuWait, "gpu-wait"},
                                                        {Activity::kGarbageCollection, "garbage-collection"},
                                                        {Activity::kException, "exception"},
                                                        {Activity::kPythonLock, "python-lock"},
                                                        {Activity::kNativeLock, "native-lock"},
                                                        {Activity::kUserCode, "user-code"},
                                                        {Activity::kUnknown, "none"}}};   // such a frame tells nothing, whatever a later rule says of it

inline constexpr WordTable<OperationKind, 7> kOperationKindWords = {{{OperationKind::kCollective, "collective"},
                                                                 {OperationKind::kSetUp, "set-up"},
                                                                 {OperationKind::kMessage, "message"},
                                                                 {OperationKind::kStore, "store"},
                                                                 {OperationKind::kRemoteCall, "remote-call"},
                                                                 {OperationKind::kFileBaton, "build-lock"},
                                                                 {OperationKind::kTeardown, "teardown"}}};

inline constexpr WordTable<Collective, 10> kCollectiveWords = {{{Collective::kAllGather, "AllGather"},
                                                            {Collective::kAllReduce, "AllReduce"},
                                                            {Collective::kAllToAll, "AllToAll"},
                                                            {Collective::kBarrier, "Barrier"},
                                                            {Collective::kBroadcast, "Broadcast"},
                                                            {Collective::kGather, "Gather"},
                                                            {Collective::kReduce, "Reduce"},
                                                            {Collective::kReduceScatter, "ReduceScatter"},
                                                            {Collective::kScatter, "Scatter"},
                                                            {Collective::kSendRecv, "SendRecv"}}};

}  // namespace rankstacks
