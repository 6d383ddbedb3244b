// One debugging session with the GPUs of one process: attach, sample, detach (phases: session_phase.h).
//
// All of it runs in the client of a helper process, which only SIGKILL ends early (session_helper.h); `release` clears
// up what a killed one leaves. Tried on hardware: docs/gpu.md.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "gpu/device_state.h"
#include "gpu/driver.h"
#include "gpu/session_phase.h"
#include "gpu/session_requests.h"
#include "model/snapshot.h"

namespace rankstacks::gpu {

struct SessionRequest {
  std::optional<std::string> core_path;  // also write a lightweight GPU core there
  std::uint64_t core_limit = 0;          // bytes; a larger core is not written
};

struct SampledDevice {
  DeviceState state;
  double held_ms = 0;  // how long it was suspended
};

struct SessionResult {
  std::vector<SampledDevice> devices;       // those with a context of the process
  std::string driver;                       // version of the API
  double thread_held_ms = 0;                // the longest time that a thread of the process was held for inferior calls
  double attach_ms = 0;                     // from the first change in the process to the last
  std::optional<std::uint64_t> core_bytes;  // of the core that was asked for
  std::vector<Problem> problems;            // what could not be had; `devices` is valid all the same
};

// `entered` is called with each phase as it begins. Whatever fails after the trigger, the session is ended in order
// before this returns.
using PhaseObserver = std::function<void(Phase)>;
Result<SessionResult> run_session(const TargetProxy& target, const Driver& driver, const SessionRequest& request,
                                  const PhaseObserver& entered);

// Frees a process from a session whose client was killed in the phase `died_in` (std::nullopt: it is not known how far
// it was). `dead_client`: the pid of that client.
Result<void> release(const TargetProxy& target, const Driver& driver, std::optional<Phase> died_in, Pid dead_client,
                     const PhaseObserver& entered);

}  // namespace rankstacks::gpu
