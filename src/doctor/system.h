// Everything that the doctor's checks may ask of a machine: files of /proc and /sys, system calls that are really
// tried, and the files of processes and cores. The checks are pure functions of it, so that tests can pass them
// machines written as literals.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/types.h"
#include "gpu/nvml_answer.h"
#include "model/snapshot.h"
#include "target/core_target.h"

namespace rankstacks::doctor {

// Results of the calls that make up an attach, tried between two processes of the tool's own neither of which is the
// other's ancestor, as it is between this tool and a rank. Each is an errno; 0: it worked.
struct Trial {
  int seize_nobody = 0;  // of a pid that cannot exist: ESRCH, unless a seccomp filter answers first
  int read_nobody = 0;   // process_vm_readv of the same
  int seize = 0;         // PTRACE_SEIZE of the sibling
  int read = 0;          // process_vm_readv of it
  int map_files = 0;     // opening one of its /proc/PID/map_files
  int killed_by = 0;     // the signal that ended the trying process (SIGSYS: a filter that kills); later calls stay 0
  std::string not_run;   // why it could not be tried at all

  // Whether a filter answered a call, not the kernel.
  bool filtered() const;
};

// An ELF file of a process or a core.
struct FileFacts {
  std::string path;
  BuildId build_id;  // empty: it has none
  bool main_program = false;
  bool opened = false;  // the file itself; else at most the part of it that is in memory
  std::string why_not_opened;
  // Nothing of it could be read, so nothing below is known, nor its build-id unless that is given.
  bool unread = false;
  bool symbols = false;     // .symtab or .gnu_debugdata, its own or in a separate debug file
  bool debug_info = false;  // .debug_info likewise
};

struct PythonFacts {
  std::string module;
  std::optional<std::string> version;
  std::string unreadable;  // why its frames cannot be read; empty if its state was read
};

// Whether a process's CUDA driver lets a debugger in, as the driver's words in it say (gpu/attach_point.h).
struct GpuFacts {
  bool by_descriptor = false;  // through the file descriptor that it offers; else by an inferior call
  std::string refusal, hint;   // why not now; empty if it does
  Pid left_by = 0;             // the client of a session that ended without detaching; 0: none
  std::string unreadable;      // why these words cannot be read
};

// What is loaded in a process, or was in a core's.
struct TargetFacts {
  Pid pid = 0;  // of a core: as recorded
  std::string executable;
  std::vector<FileFacts> files;
  std::optional<PythonFacts> python;  // std::nullopt: no CPython in it
  std::optional<GpuFacts> gpu;        // std::nullopt: no libcuda with debugger support in it
  std::vector<Problem> problems;
  bool partial = false;  // a core: part of what belongs to it is missing
};

// Of a file system.
struct Space {
  std::uint64_t available = 0, total = 0;  // bytes; `available` for users without privileges
  std::uint64_t device = 0;                // of the directory that was asked for
};

class System {
 public:
  virtual ~System() = default;

  virtual Result<std::string> read_file(const std::string& path) const = 0;
  virtual std::optional<std::string> read_link(const std::string& path) const = 0;
  virtual std::vector<std::string> list(
      const std::string& directory) const = 0;  // names in it; empty: none, or no such directory
  virtual bool exists(const std::string& path) const = 0;
  virtual std::optional<unsigned> owner(const std::string& path) const = 0;    // its uid
  virtual std::optional<Space> space(const std::string& directory) const = 0;  // std::nullopt: no answer in 2 s, either
  virtual std::optional<std::string> variable(const std::string& name) const = 0;

  // Each returns an errno; 0: it worked. None of them stops or changes the target.
  virtual int try_open(const std::string& path) const = 0;   // for reading
  virtual int try_reach(const std::string& path) const = 0;  // follows the link, opens nothing: may be a device
  virtual int try_seize(Tid tid) const = 0;
  virtual int try_read(Tid tid, Address address) const = 0;
  virtual int try_signal(Pid pid) const = 0;  // signal 0: sends none, only checks
  virtual Trial try_attach() const = 0;

  virtual gpu::NvmlAnswer ask_nvml() const = 0;  // takes 2 s at most

  virtual Result<TargetFacts> open_process(Pid pid) const = 0;
  virtual Result<TargetFacts> open_core(const std::string& path, const target::CoreOptions& options) const = 0;
};

}  // namespace rankstacks::doctor
