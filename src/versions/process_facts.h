// What /proc and the control groups say about the conditions under which a process runs. Parsers are pure; the readers
// read files that the kernel makes, without waiting for the process.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/root_directory.h"
#include "base/types.h"
#include "model/environment.h"

namespace rankstacks::versions {

// Those rows of /proc/PID/limits that reports show, by their names there.
std::vector<ResourceLimit> parse_limits(std::string_view text);

// The value of a line "Cpus_allowed_list:\t0-3" of /proc/PID/status; "" if there is none.
std::string status_value(std::string_view text, std::string_view name);

// The numbers of a list such as "0-3,8": at most 65,536, ascending. Empty if it has another form.
std::vector<int> parse_number_list(std::string_view text);
std::string format_number_list(const std::vector<int>& numbers);

// The kernel's version in a vdso's note: LINUX_VERSION_CODE (arch/x86/entry/vdso/vdso-note.S); "" if there is none.
std::string kernel_of_notes(std::span<const std::byte> notes);

// One control group of a process: the directory of its files.
struct CgroupPlace {
  std::string directory;   // below the mount: "/sys/fs/cgroup/system.slice/x", "/sys/fs/cgroup/memory/x"
  std::string mount;       // "/sys/fs/cgroup": where its ancestors end
  std::string controller;  // version 1: "memory", "cpu", "pids"; "" in version 2
};
// From the text of /proc/PID/cgroup. Paths that lead out of the mount ("/../x", of another namespace) are left out.
std::vector<CgroupPlace> cgroup_places(std::string_view text);

// The tightest limits of these groups and of those above them.
CgroupLimits read_cgroup_limits(const std::vector<CgroupPlace>& places);

// The container that the names of control groups, the process's root or its variables show; "" if none.
std::string container_of(std::string_view cgroups, const RootDirectory* root,
                         const std::vector<std::string>& variables);

// What is the same for all processes of this machine.
struct MachineFacts {
  std::string kernel, gpu_driver;
  std::optional<ClockState> clock;
  std::vector<std::pair<int, std::vector<int>>> node_cpus;  // NUMA node, its CPUs
};
MachineFacts read_machine_facts();

// The NUMA nodes of these CPUs: "0-1"; "" if they are not known.
std::string nodes_of(const MachineFacts& machine, std::string_view cpus);

}  // namespace rankstacks::versions
