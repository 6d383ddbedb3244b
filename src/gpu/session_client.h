// The client of a GPU session: the process in which the driver's code runs, a child of the session helper's broker (session_helper.h).
//
// It has the rights of the process that is looked at, and none to trace it (target_rights.h). In order:
//
//     loaded       libcuda and libcudadebugger, by descriptors of the machine's own files, in the tool's mount namespace: what the driver asks the loader for by these
//                  names later is there already
//     closed       every descriptor but the pipe to the tool, the socket to the broker, the trace, the memory file of a core
//     entered      the process's net and mount namespaces and its root directory: the driver finds its client by pid, by sockets and by paths
//     taken on     the process's rights
//     born         into the process's pid namespace, where that is another: only now, as whoever is root in there sees it and may trace it from here on. The one that
//                  has forked it stays outside, waits, and ends like it
//     run          one session, or the release of a process from a dead one
//
// It tells the tool what it sees through its stdout (session_answer.h). A watchdog stands beside each call into the driver; one that does not come back is told to both,
// and the broker ends this process. It ends with its broker, by SIGKILL: without it the process cannot be let go.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/types.h"
#include "gpu/attach_point.h"
#include "gpu/machine.h"
#include "gpu/session_phase.h"
#include "gpu/target_rights.h"
#include "target/file_descriptor.h"

namespace rankstacks::gpu {

struct ClientTask {
  bool release = false;                    // else: look
  std::optional<Phase> died_in;            // release: how far the dead session was; nothing: not known
  Pid dead_client = 0;                     // release: its number in the process's pid namespace
  std::optional<Pid> left_by;              // look: an ended client that has not detached, which is cleared away first
  int core = -1;                           // look: memory file for a GPU core; -1: none is wanted
  std::uint64_t core_limit = 0;            // bytes
  int trace = -1;                          // RANKSTACKS_GPU_TRACE: a line for each phase and each call into the driver, with its time
};

// What is opened before anything is entered.
struct ClientSurroundings {
  const AttachPoint& point;                // its driver is loaded
  const Machine& machine;
  const TargetRights& rights;
  std::vector<FileDescriptor> namespaces;  // to enter, in this order
  const FileDescriptor& of_pids;           // its pid namespace; not open: the tool's own
  const FileDescriptor& root;              // the process's root directory
};

// Exit statuses of a client that was not killed.
inline constexpr int kClientDone = 0;      // the process is as before; an answer or an error was told
inline constexpr int kClientFailed = 3;    // release: it could not be freed

// This process ends as that one did.
[[noreturn]] void end_like(int status);

// In the child, after the fork. `socket`: to the broker.
[[noreturn]] void run_client(const ClientTask& task, const ClientSurroundings& surroundings, int socket);

}  // namespace rankstacks::gpu
