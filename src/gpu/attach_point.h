// Where a process lets a debugger in: the variables and functions of the CUDA driver in the libcuda.so.1 that the
// process has mapped, found by that library's .dynsym.
//
// Source of the names and their meaning: cudadebugger.h, "Debugger System Calls". Which values work on drivers before
// 590 was determined on hardware (docs/gpu.md).
//
// The library is the machine's own file (machine_library.h), and the process must have mapped that very file; any other
// library that the process uses as its driver is not read. All operations need the right to trace the process, and run
// only in processes in which no driver code runs: the tool, and the broker of a session.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "base/result.h"
#include "base/types.h"
#include "gpu/machine_library.h"
#include "target/process_id.h"

namespace rankstacks::gpu {

// The driver's 32-bit variables ("words"), under the driver's names.
enum class Word : std::uint8_t {
  kApiClientPid,
  kApiClientRevision,
  kSessionId,
  kRpcEnabled,
  kIpcFlag,
  kDebuggerCapabilities,
  kDebuggerInitialized,
  kAttachHandlerAvailable,
  kResumeForAttachDetach,
  kReportedDriverInternalErrorCode,    // its low word
  kInitiateDebuggerAttachProcedureFd,  // drivers since CUDA 13.1
};
inline constexpr std::size_t kWords = 11;
enum class EntryPoint : std::uint8_t { kAttach, kDetach };
inline constexpr std::size_t kEntryPoints = 2;

const char* name_of(Word word);            // "cudbgApiClientPid"
const char* name_of(EntryPoint function);  // "cudbgApiAttach"

class AttachPoint {
 public:
  // Errors: kNotFound: no libcuda in the process (or one without these names), so it uses no GPU; kMismatch: another
  // libcuda than this machine's; kGone: the process has ended; others: the process cannot be read.
  static Result<AttachPoint> find(const target::ProcessId& process, const Machine& machine);

  Pid pid() const { return process_.pid; }
  const target::ProcessId& process() const { return process_; }
  const MachineLibrary& driver() const { return driver_; }
  std::optional<Address> address(EntryPoint function) const;  // std::nullopt if this driver lacks it

  // Whether this very driver is still mapped where it was found. It is not if the process has executed another program
  // meanwhile: exec keeps pid and start time, but other code is there. The answer stays valid for as long as a thread
  // of the process is paused.
  bool is_still_mapped() const;

  // std::nullopt if the driver has no such word; errors of memory access are kGone.
  Result<std::optional<std::uint32_t>> read(Word word) const;
  // True: written. False: this driver has no such word.
  Result<bool> write(Word word, std::uint32_t value) const;

  // The descriptor through which newer drivers are asked to let a debugger in, if this driver offers it: a number in
  // the process's memory.
  Result<std::optional<int>> attach_descriptor() const;
  // Asks through that descriptor: writes one byte into a pipe of the process. False: this driver offers none. The
  // number comes from the process and is not trusted: the descriptor is duplicated from the process (pidfd_getfd),
  // which opens nothing and gains no right on it, and it must be the writing end of a pipe or FIFO.
  Result<bool> ask_by_descriptor() const;

  // Keeps other sessions of this tool out until this object is destroyed. False: there is another session. The lock is
  // on the process's own file in /proc, which only those who may trace the process can lock.
  bool lock() const;

 private:
  AttachPoint() = default;
  target::ProcessId process_;
  MachineLibrary driver_;
  Address mapped_at_ = 0;
  FileDescriptor memory_;  // of this very process: its pid may be reused
  std::array<std::optional<Address>, kWords> words_;
  std::array<std::optional<Address>, kEntryPoints> functions_;
};

// What prevents attaching to this process now, read from the driver's words without touching the process: there is no
// context yet, or another debugger is attached. `left_by`: the client of a session that ended without detaching (the
// client process is gone), which a new session can clear away. It is a pid in the process's own pid namespace.
struct Admission {
  std::optional<Error> refusal;
  std::optional<Pid> left_by;
};
Result<Admission> admission_to(const AttachPoint& point);

}  // namespace rankstacks::gpu
