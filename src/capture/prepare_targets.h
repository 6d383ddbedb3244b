// Processes made ready to be stopped: in parallel, and by workers that can be given up (base/unattended.h), as everything here may wait for something that
// never comes: a file system, another process's memory, a lock that it holds.
//
//     1. each process by itself    /proc: its mappings, its command
//     2. each file that is new     opened once, whoever has it mapped; one that does not answer costs its names alone
//     3. each process again        its modules, the interpreters in it, its environment
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "python/python.h"
#include "target/cxx_exceptions.h"
#include "target/live_target.h"

namespace rankstacks {

// Everything known of one process before it is stopped.
struct PreparedTarget {
  std::unique_ptr<LiveTarget> target;                  // nullptr: `error` says why
  std::optional<Error> error;
  std::vector<python::RuntimeCandidate> interpreters;
  CxxRuntime cxx;
  std::map<std::string, std::string> environment;      // what it has now, beyond what it was started with
};

enum class Preparing { kModules, kEverything };        // kModules: of a process whose interpreters are known

// Parallel to `pids`. `timeout`: of each step for each process, and a fourth of it for each file; kMinTimeout at least.
std::vector<PreparedTarget> prepare_targets(const std::vector<Pid>& pids, const LiveImages& images, Preparing what, std::chrono::steady_clock::duration timeout);

// That a process, or what it waits for, did not answer within that time.
Error silent_process(Pid pid, const std::string& what, const std::string& file, std::chrono::steady_clock::duration limit);

}  // namespace rankstacks
