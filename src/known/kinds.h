// The kinds that the tables of rules distinguish: as enumerations, with the words that reports and rules files use for
// them (docs/rules.md).
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "base/word_table.h"

namespace rankstacks::known {

// The purpose of a thread. In the order in which reports list them.
enum class Role {
  kMain,
  kPython,
  kAutograd,
  kNcclWatchdog,
  kNcclHeartbeat,
  kNcclMonitor,
  kNcclProxy,
  kNcclRas,
  kNcclService,
  kGlooLoop,
  kGlooWorker,
  kTcpStore,
  kDataLoader,
  kCheckpoint,
  kCuda,
  kOpenmp,
  kJitCompile,
  kGrpc,
  kProfiler,
  kRpc,
  kMpi,
  kXla,
  kElastic,
  kLogging,
  kFaulthandler,
  kIdlePool,
  kNative,
};
const char* to_string(Role role);  // "nccl-watchdog"
std::optional<Role> role_of_word(std::string_view word);

// What a thread does.
enum class Activity {
  kUnknown,       // the frames do not show it
  kCollective,    // waits in (or for) a collective
  kPointToPoint,  // waits in a send or receive
  kStoreWait,     // waits in the rendezvous store
  kPeerWait,      // waits in a queue or lock shared between processes, which another rank may hold
  kAutograd,      // the main thread waits for the threads of autograd or XLA; their stacks show what is going on
  kDataLoading,
  kCheckpointIo,
  kFileIo,
  kNetworkIo,
  kSubprocess,
  kDebugger,
  kStopped,
  kFrozen,  // by its control group
  kCompiling,
  kGpuWait,
  kGarbageCollection,
  kException,
  kPythonLock,
  kNativeLock,
  kUserCode,  // none of these: the program's own code
  // Is in a call of the GPU's driver that the kernel does not interrupt. It may wait for the driver's lock, which
  // another process holds, or for the device: that says nothing of the program.
  kDriverCall,
};
// Whether the activity is a wait for other ranks.
constexpr bool waits_for_ranks(Activity a) {
  return a == Activity::kCollective || a == Activity::kPointToPoint || a == Activity::kStoreWait ||
         a == Activity::kPeerWait;
}

// Whether somebody else keeps the thread from running, whatever it waits for.
constexpr bool is_held(Activity a) { return a == Activity::kStopped || a == Activity::kFrozen; }

// The collectives, by NCCL's names. In alphabetical order, which is the order in which reports list them.
enum class Collective : std::uint8_t {
  kUnknown,  // a collective that could not be identified
  kAllGather,
  kAllReduce,
  kAllToAll,
  kBarrier,
  kBroadcast,
  kGather,
  kReduce,
  kReduceScatter,
  kScatter,
  kSendRecv,  // NCCL's kernel for sends and receives, which all-to-all, gather and scatter also consist of
};
std::string_view to_string(Collective collective);  // "AllReduce"; "" of kUnknown

enum class OperationKind : std::uint8_t {
  kNone,
  kCollective,
  kSetUp,          // set-up of a communicator or its connections: a collective before the first one
  kMessage,        // one or more sends or receives
  kPolledMessage,  // asks again and again, in a loop of the program, whether a message has come or gone
  kStore,          // the rendezvous store
  kStoreGreeting,  // of kStore: the first answer of its server, which waits for no rank
  kProcessQueue,   // between processes of one machine (multiprocessing)
  kProcessPipe,
  kProcessLock,
  kRemoteCall,      // waits for an answer from another process (RPC)
  kWork,            // a server's or worker's loop that waits for the next request or task: there is none
  kUnnamed,         // a wait that most ranks are in, at a frame that no table names
  kEventLoop,       // an event loop that has nothing to do (asyncio, libuv)
  kLockedDatabase,  // waits for another process to release an SQLite database
  kFileBaton,       // waits for another process's build
  kHooksFuture,     // waits for a future that a communication hook of DistributedDataParallel has made
  // What the interpreter or the C library does after the main program has ended: atexit's functions, the end of its
  // threads.
  kTeardown,
};

// The words of rules files. Those of activities are also the verdict's reasons, where there is one.
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
                                                            // A frame with this activity says nothing about its thread,
                                                            // even if a later rule names an activity for it.
                                                            {Activity::kUnknown, "none"}}};

inline constexpr WordTable<OperationKind, 11> kOperationKindWords = {{{OperationKind::kCollective, "collective"},
                                                                      {OperationKind::kSetUp, "set-up"},
                                                                      {OperationKind::kMessage, "message"},
                                                                      {OperationKind::kPolledMessage, "polled-message"},
                                                                      {OperationKind::kStore, "store"},
                                                                      {OperationKind::kStoreGreeting, "store-greeting"},
                                                                      {OperationKind::kProcessLock, "process-lock"},
                                                                      {OperationKind::kRemoteCall, "remote-call"},
                                                                      {OperationKind::kWork, "work"},
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

}  // namespace rankstacks::known
