// The processes that hold a GPU session: `rankstacks --internal-gpu-session look PID START TRACE [CORE LIMIT]` or `... release PID START TRACE PHASE CLIENT`, started by
// session_supervisor. Stdout is a pipe for messages (session_answer.h). START is the process's start time (proc::Stat), TRACE 1 where descriptor 3 is open for the
// times of the driver's calls.
//
//     tool ── starts ──> broker ── forks ──> client
//                        traces the process   runs the driver's code, with the rights of the process
//                        <── requests ──      session_requests.h
//
// The broker is what was started: with the tool's rights, in the tool's namespaces, without environment; it loads nothing and reads nothing of the process but the
// driver's words. It is a session leader and deaf to SIGTERM, SIGINT, SIGHUP and SIGPIPE: whoever started it may end, the process is let go in order all the
// same. Where a call into the driver does not come back, it ends the client and forks another one, which frees the process.
#pragma once

#include "gpu/machine.h"

namespace rankstacks::gpu {

inline constexpr const char* kSessionHelperOption = "--internal-gpu-session";
inline constexpr int kTraceDescriptor = 3;

// Does not return where the command line asks for the helper.
void run_session_helper_if_asked(int argc, const char* const* argv, const Machine& machine);

}  // namespace rankstacks::gpu
