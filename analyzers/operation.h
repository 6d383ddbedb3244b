// What a thread waits in, as a value: the decisions compare these, and the name for people is of no weight in any.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace rankstacks {

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

// Of a function's name, in any library's spelling: all_reduce, ncclAllReduce, MPI_Allreduce, _allgather_base, broadcast_object_list.
Collective collective_of_call(std::string_view function);

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

// One operation in two ranks is equal in all but `name`.
struct Operation {
  OperationKind kind = OperationKind::kNone;
  Collective collective = Collective::kUnknown;
  bool sends = false, receives = false;    // of messages: a send-and-receive does both; of a Work or a request neither is known
  std::string call;                        // the function that was called, in the spelling of the library's interface: "all_gather_object"
  std::string name;                        // for people: "all_gather_object", "DDP's gradient all-reduce"
  bool generic = false;                    // `call` is one that many operations share: which of them it is, is not known

  bool is_none() const { return kind == OperationKind::kNone; }
  // As the key of a table.
  std::string key() const;
};
bool same_call(const Operation& a, const Operation& b);

// A collective or a message by the function that was called.
Operation operation_of_call(OperationKind kind, std::string function, std::string name = "");
// One whose kind says all: a queue, a lock, an event loop.
Operation operation_of_kind(OperationKind kind, std::string name);

}  // namespace rankstacks
