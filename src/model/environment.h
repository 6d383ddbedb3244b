// What a rank runs with: which versions of which libraries, settings, limits, and the machine below them.
//
// Nothing here is used to tell what a thread does. Ranks that should be alike are compared by these values
// (analyzers/differences.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace rankstacks {
inline namespace model {

// How a version is known.
enum class VersionFrom {
  kUnknown,   // there is no version
  kFileName,  // "libnccl.so.2.28.7"
  kMetadata,  // the METADATA file of the Python package that the file belongs to
  kText,      // a text in the file's read-only data: "NCCL version 2.28.9+cuda13.0"
  kMemory,    // the process's memory
};

// A file that a rank has loaded, of a library or program that known/components.h names.
struct LoadedModule {
  std::string component;  // "NCCL"
  std::string path;       // as the target names it
  std::string build_id;   // lower-case hex; "": it has none, or it is not known
  std::string version;    // "2.28.9"; "": not known
  VersionFrom from = VersionFrom::kUnknown;
  std::string cuda;  // the CUDA toolkit that it was built with, if it says so: "13.0"
  bool operator==(const LoadedModule&) const = default;
};

// One row of /proc/PID/limits. Empty: unlimited.
struct ResourceLimit {
  std::string name;  // "open-files"
  std::optional<std::uint64_t> soft, hard;
  bool operator==(const ResourceLimit&) const = default;
};

// What the control groups of a process allow, the tightest of all groups above it. Empty: unlimited.
struct CgroupLimits {
  std::optional<std::uint64_t> memory_bytes;
  std::optional<double> cpus;
  std::optional<std::uint64_t> processes;
  bool operator==(const CgroupLimits&) const = default;
};

struct ClockState {
  bool synchronized = false;   // the kernel's clock is disciplined (NTP, PTP), as adjtimex(2) says
  std::int64_t offset_us = 0;  // what is still to be corrected
  std::int64_t max_error_us = 0;
  bool operator==(const ClockState&) const = default;
};

// "" or empty: not known. A core states the variables, and the kernel's version by its vdso.
struct ProcessEnvironment {
  std::string kernel;        // "6.1.0-18-amd64"; of a core: "6.1.76"
  std::string distribution;  // of the process's own root: "Debian GNU/Linux 12 (bookworm)"
  std::string container;     // "docker", "kubernetes", ...: what its control groups or its root show
  std::string gpu_driver;    // the version of NVIDIA's kernel module
  // The variables of the families that known/settings.h names, by name: at the start, and as set since.
  std::vector<std::pair<std::string, std::string>> variables;
  bool variables_known = false;
  std::vector<ResourceLimit> limits;
  std::optional<CgroupLimits> cgroup;
  std::string cpus;          // on which the main thread may run: "0-15,32-47"
  std::string memory_nodes;  // NUMA nodes from which it may get memory: "0-1"
  std::string cpu_nodes;     // NUMA nodes of these CPUs
  std::optional<ClockState> clock;
  bool operator==(const ProcessEnvironment&) const = default;
};

}  // namespace model
}  // namespace rankstacks
