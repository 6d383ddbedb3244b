// How large the core of a process would be, and what of it would be kept.
//
// The kernel's rules are those of fs/coredump.c, vma_dump_size: a private mapping that has been written to is dumped
// with all of its pages, touched or not. Who gets the core by a pipe gets zeros for pages that were never touched; in a
// file of the kernel's they are holes. So a core has two sizes, which for a Python process differ by a factor of two.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "doctor/core_writing.h"
#include "doctor/coredump_settings.h"
#include "doctor/finding.h"
#include "doctor/system.h"

namespace rankstacks::doctor {

struct CoreSize {
  std::uint64_t bytes = 0;   // as a pipe gets it
  std::uint64_t data = 0;    // as a file takes room
  std::uint64_t shared = 0;  // of `bytes`: shared memory
};

// By /proc/PID/smaps and the process's coredump_filter.
CoreSize core_size_by_mappings(std::string_view smaps, unsigned filter, std::size_t threads);

// "4096 MB": of 10 units or more.
std::string size_text(std::uint64_t bytes);

// Where cores go, and what is known of the rules there; read once.
struct CoreDestination {
  std::string root;  // the machine's root directory, as seen from here; "" if that is this one's
  std::optional<CoredumpSettings> systemd;
  // Of `rankstacks core-handler` in the pattern.
  struct Handler {
    std::string directory;
    bool full = false;
    std::uint64_t max_bytes = 0;             // of the full core; 0: any
    std::optional<std::uint64_t> keep_free;  // std::nullopt: a twentieth of the file system, at most 4 GB
  };
  std::optional<Handler> handler;
};
CoreDestination read_core_destination(const System& system, const CorePattern& pattern, const std::string& root);

// The core of this process: std::nullopt if its size cannot be determined.
std::optional<CoreSize> read_core_size(const System& system, Pid pid);

Finding check_core_size(const System& system, const CorePattern& pattern, const CoreDestination& destination, Pid pid,
                        const CoreSize& size);

// Of the machine: what systemd-coredump is set up to keep, and whether the cores of all these processes have room
// together. `cores` are Finding::core of the processes.
std::vector<Finding> check_core_storage(const System& system, const CoreDestination& destination,
                                        const std::vector<CoreOutlook>& cores);

}  // namespace rankstacks::doctor
