// Where a process lets a debugger in: the driver's variables and functions in the libcuda.so.1 that it has mapped, found by that library's .dynsym.
//
// Names and meaning: cudadebugger.h, "Debugger System Calls"; which values work on drivers before 590 was tried on hardware (docs/gpu.md).
//
// The library is the machine's own (machine_library.h), of which the process must have mapped the very file; what a process calls its driver is not read.
// All of it needs the right to trace the process, and is done where no code of the driver runs: in the tool, and in the broker of a session.
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

// 32-bit words of the driver's, under the driver's names.
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
  kReportedDriverInternalErrorCode,        // its low word
  kInitiateDebuggerAttachProcedureFd,      // drivers since CUDA 13.1
};
inline constexpr std::size_t kWords = 11;
enum class EntryPoint : std::uint8_t { kAttach, kDetach };
inline constexpr std::size_t kEntryPoints = 2;

const char* name_of(Word word);            // "cudbgApiClientPid"
const char* name_of(EntryPoint function);  // "cudbgApiAttach"

class AttachPoint {
 public:
  // Errors: kNotFound: no libcuda in it (or one without these names): a process that uses no GPU;
  // kMismatch: another libcuda than this machine's; kGone: it has ended; others: it cannot be read.
  static Result<AttachPoint> find(const ProcessId& process, const Machine& machine);

  Pid pid() const { return process_.pid; }
  const ProcessId& process() const { return process_; }
  const MachineLibrary& driver() const { return driver_; }
  std::optional<Address> address(EntryPoint function) const;   // nothing: this driver has no such function

  // Whether this very driver is still mapped where it was found: a program that the process has executed meanwhile (exec keeps pid and start time) has other code
  // there. Holds on for as long as a thread of the process stands still.
  bool is_still_mapped() const;

  // Nothing where the driver has no such word; errors of memory as kGone.
  Result<std::optional<std::uint32_t>> read(Word word) const;
  // True: written. False: this driver has no such word.
  Result<bool> write(Word word, std::uint32_t value) const;

  // The descriptor through which newer drivers are asked to let a debugger in, where this one offers it: a number in the process's memory.
  Result<std::optional<int>> attach_descriptor() const;
  // Asks through it: one byte into a pipe of the process. False: this driver offers none. The number is the process's word, so what it stands for is taken
  // over from the process as it is (pidfd_getfd), which opens nothing and gains no right on it, and must be the writing end of a pipe or FIFO.
  Result<bool> ask_by_descriptor() const;

  // Keeps other sessions of this tool out until this object goes. False: there is one. The lock is on the process's own file in /proc, which nobody can lock
  // who may not trace the process.
  bool lock() const;

 private:
  AttachPoint() = default;
  ProcessId process_;
  MachineLibrary driver_;
  Address mapped_at_ = 0;
  FileDescriptor memory_;                  // of this very process: its pid may become another's
  std::array<std::optional<Address>, kWords> words_;
  std::array<std::optional<Address>, kEntryPoints> functions_;
};

// What keeps this process from being attached to now, from the driver's own words and without touching it: no context yet, another debugger.
// `left_by`: the client of a session that has ended without detaching (its process is gone), which a new session can clear away; as the process knows it,
// in its own pid namespace.
struct Admission {
  std::optional<Error> refusal;
  std::optional<Pid> left_by;
};
Result<Admission> admission_to(const AttachPoint& point);

}  // namespace rankstacks::gpu
