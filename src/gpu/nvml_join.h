// Which of the GPUs that NVML reports belong to which target process.
//
// NVML names the processes with a context on each GPU, by pids of its own or of the machine's pid namespace. A number
// is believed only if that process has one of NVIDIA's device files open, where that can be seen: in a container it may
// be another process's. The device files themselves say less, as CUDA opens those of all GPUs: they count only where
// the list says nothing of use and the process has a single GPU's open.
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

// Of the processes of this machine; literal in tests.
struct ProcessFacts {
  std::function<std::optional<Pid>(Pid)> parent;                // nothing: no such process
  std::function<std::optional<DeviceFiles>(Pid)> device_files;  // nothing: they may not be seen
};

struct GpuUser {
  Pid pid = 0;
  bool uses_cuda = false;  // libcuda is mapped in it
};

struct JoinedGpus {
  std::map<Pid, std::vector<GpuSnapshot>> of;  // by PCI address
  std::vector<Problem> problems;               // of the answer, and what cannot be joined
};

// `users`: the ranks; what a descendant of a rank uses counts for the nearest rank above it. `own_namespace`: this tool
// is in a pid namespace of its own.
JoinedGpus join_gpus(const NvmlAnswer& answer, const std::vector<GpuUser>& users, const ProcessFacts& facts,
                     bool own_namespace);

// From /proc; `devices`: "/dev".
ProcessFacts facts_of_this_machine(const std::string& devices);
bool in_own_pid_namespace();

}  // namespace rankstacks::gpu
