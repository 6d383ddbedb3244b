// Prepares processes to be stopped: in parallel, and by workers that can be given up (base/unattended.h), because every
// step may wait forever: for a file system, for another process's memory, for a lock that the process holds.
//
//     1. each process by itself    /proc: its mappings, its command
//     2. each file that is new     opened once, even if several processes map it; without it only its names are missing
//     3. each process again        its modules, the interpreters in it, its environment
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "python/python.h"
#include "target/abort_message.h"
#include "target/cxx_exceptions.h"
#include "target/live_target.h"

namespace rankstacks::capture {

// Everything known about one process before it is stopped.
struct PreparedTarget {
  std::unique_ptr<target::LiveTarget> target;  // nullptr: `error` says why
  std::optional<Error> error;
  std::vector<python::RuntimeCandidate> interpreters;
  target::CxxRuntime cxx;
  std::vector<Address> abort_messages;
  // Its current environment, including variables that were set after its start.
  std::map<std::string, std::string> environment;
  std::map<std::string, std::string> rank_values;  // python/rank_values.h
};

enum class Preparing { kModules, kEverything };  // kModules: for a process whose interpreters are known

// The result is parallel to `pids`. `timeout` applies to each step for each process, and a quarter of it to each file;
// at least kMinTimeout; `silence` to each wait in a step (Unattended::silence).
std::vector<PreparedTarget> prepare_targets(
    const std::vector<Pid>& pids, const target::LiveImages& images, Preparing what,
    std::chrono::steady_clock::duration timeout,
    std::chrono::steady_clock::duration silence = std::chrono::steady_clock::duration::max());

// The error for a process that did not answer within that time, or that waits for something that did not.
Error silent_process(Pid pid, const std::string& what, const std::string& file,
                     std::chrono::steady_clock::duration limit);

}  // namespace rankstacks::capture
