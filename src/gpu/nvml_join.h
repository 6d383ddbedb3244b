// Assigns the GPUs that NVML reports to the target processes that use them.
//
// For each GPU, NVML lists the processes that have a context on it, by their pids in its own pid namespace or in the
// machine's. In a container such a pid may be the number of another process, so it is accepted only if the process with
// that number has one of NVIDIA's device files open (or if its open files cannot be seen). The device files alone are
// weaker evidence, because CUDA opens those of all GPUs. They are used only if the list does not name the process, and
// the process has the device file of exactly one GPU open.
#pragma once

#include <functional>
#include <map>
#include <set>

#include "gpu/nvml_answer.h"

namespace rankstacks::gpu {

// NVIDIA's device files that a process has open.
struct DeviceFiles {
  bool any = false;
  std::set<unsigned> minors;  // of /dev/nvidia<minor>
};

// Queries about the processes of this machine; tests pass fixed answers.
struct ProcessFacts {
  std::function<std::optional<Pid>(Pid)> parent;                // std::nullopt: no such process
  std::function<std::optional<DeviceFiles>(Pid)> device_files;  // std::nullopt: they cannot be seen
};

struct GpuUser {
  Pid pid = 0;
  bool uses_cuda = false;  // whether libcuda is mapped in it
  // When it was started, in seconds since boot. Only Xid events since then are its GPU's, and earlier ones that no
  // process has caused: a GPU that has fallen off its bus stays so. Failures of another process's work are not.
  std::optional<double> started = {};
};

struct JoinedGpus {
  std::map<Pid, std::vector<GpuSnapshot>> of;  // of each rank, sorted by PCI address
  std::vector<Problem> problems;               // those of the answer, and the processes whose GPUs are not known
};

// `users`: the ranks. A GPU that a descendant of a rank uses is assigned to its nearest ancestor among the ranks.
// `own_namespace`: whether this tool runs in another pid namespace than the machine's.
JoinedGpus join_gpus(const NvmlAnswer& answer, const std::vector<GpuUser>& users, const ProcessFacts& facts,
                     bool own_namespace);

// Answers from /proc. `devices`: the directory of the device files, "/dev".
ProcessFacts facts_of_this_machine(const std::string& devices);
bool in_own_pid_namespace();

}  // namespace rankstacks::gpu
