// The processes that hold a GPU session. session_supervisor starts them as
//
//     rankstacks --internal-gpu-session sample PID START TRACE [CORE LIMIT]
//     rankstacks --internal-gpu-session release PID START TRACE PHASE CLIENT
//
// Stdout is a pipe for messages (session_answer.h). START is the process's start time (target::proc::Stat); TRACE is 1
// if descriptor 3 is open for the times of the driver's calls.
//
//     tool ── starts ──> broker ── forks ──> client
//                        traces the process   runs the driver's code, with the rights of the process
//                        <── requests ──      session_requests.h
//
// The broker is the process that was started: it has the tool's rights and namespaces and no environment; it loads
// nothing, and reads nothing of the target process but the driver's words. It is a session leader and ignores SIGTERM,
// SIGINT, SIGHUP and SIGPIPE: if the process that started it ends, the target process is let go in order all the same.
// If a call into the driver does not return, the broker ends the client and forks another one, which frees the process.
#pragma once

#include "gpu/machine.h"

namespace rankstacks::gpu {

inline constexpr const char* kSessionHelperOption = "--internal-gpu-session";
inline constexpr int kTraceDescriptor = 3;

// Does not return if the command line asks for the helper.
void run_session_helper_if_asked(int argc, const char* const* argv, const Machine& machine);

}  // namespace rankstacks::gpu
