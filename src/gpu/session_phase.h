// How far a GPU session is.
//
//     phase        what has happened                        if the tool dies now, the process ...
//     kNothing     -                                        runs
//     kTriggered   the driver in the process was asked      is paused, waiting for a client
//     kInitialized our side is connected                    may crash (a defect of drivers before 590), else runs
//     kAttached    contexts and modules are known           runs
//     kSuspended   a GPU is paused                          its GPU stays paused
//     kResumed     all GPUs run again                       runs
//     kReleased    the process is as before                 runs
#pragma once

#include <cstdint>

namespace rankstacks::gpu {

enum class Phase : std::uint8_t { kNothing, kTriggered, kInitialized, kAttached, kSuspended, kResumed, kReleased };

}  // namespace rankstacks::gpu
