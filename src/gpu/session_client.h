// The client of a GPU session: the process in which the driver's code runs, a child of the session helper's broker
// (session_helper.h).
//
// It has the rights of the target process, and none to trace it (target_rights.h). It goes through these steps, in
// order:
//
//     loaded     libcuda and libcudadebugger are loaded, by descriptors of the machine's own files, in the tool's mount
//                namespace: when the driver asks the loader for these names later, they are there already
//     closed     all descriptors are closed but the pipe to the tool, the socket to the broker, the trace, and the
//                memory file of a core
//     entered    it enters the process's net and mount namespaces and its root directory: the driver finds its client
//                by pid, by sockets and by paths
//     taken on   it takes on the process's rights
//     born       it is forked into the process's pid namespace, if that is another. This comes so late because the root
//                user of that namespace sees the client and may trace it from then on. The parent stays outside, waits,
//                and ends as the client does
//     run        it holds one session, or releases a process from a dead one
//
// It reports what it sees to the tool through its stdout (session_answer.h). A watchdog thread times each call into the
// driver. If a call does not return, the watchdog reports that to the tool and to the broker, and the broker ends this
// process. The client ends with its broker, by SIGKILL: without the broker the process cannot be let go.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/file_descriptor.h"
#include "base/types.h"
#include "gpu/attach_point.h"
#include "gpu/machine.h"
#include "gpu/session_phase.h"
#include "target/target_rights.h"

namespace rankstacks::gpu {

struct ClientTask {
  bool release = false;          // true: release a process from a dead session; false: sample it
  std::optional<Phase> died_in;  // release: how far the dead session was; std::nullopt: not known
  Pid dead_client = 0;           // release: its number in the process's pid namespace
  std::optional<Pid> left_by;    // sampling: an ended client that has not detached, cleared away first
  int core = -1;                 // sampling: memory file for a GPU core; -1: none is wanted
  std::uint64_t core_limit = 0;  // bytes
  // RANKSTACKS_GPU_TRACE: the file for a line on each phase and each call into the driver, with its time.
  int trace = -1;
};

// What is opened before any namespace is entered.
struct ClientSurroundings {
  const AttachPoint& point;  // its driver is loaded
  const Machine& machine;
  const target::TargetRights& rights;
  std::vector<FileDescriptor> namespaces;  // to enter, in this order
  const FileDescriptor& of_pids;           // its pid namespace; not open: the tool's own
  const FileDescriptor& root;              // the process's root directory
};

// Exit statuses of a client that was not killed by a signal.
inline constexpr int kClientDone = 0;    // the process is as before; an answer or an error was sent
inline constexpr int kClientFailed = 3;  // release: it could not be freed

// Ends this process as that one ended: with its exit status, or by its signal.
[[noreturn]] void end_like(int status);

// Runs in the child, after the fork. `socket`: to the broker.
[[noreturn]] void run_client(const ClientTask& task, const ClientSurroundings& surroundings, int socket);

}  // namespace rankstacks::gpu
