#include "capture/exception_cause.h"

#include <array>

namespace rankstacks {
namespace {

enum class Match { kStart, kAnywhere };

struct Rule {
  Match match;
  std::string_view text;
  ExceptionCause cause;
};

constexpr Match kStart = Match::kStart;
constexpr ExceptionCause kOwnGpu = ExceptionCause::kOwnGpu;

// The first line of the message, behind what names the process group and behind "... watchdog thread terminated with
// exception: ". The first rule that holds. A GPU's fault is sticky in the context that it happened in: each call of
// that process returns it, the watchdog's cudaEventQuery too, and those of no other process (CUDA Runtime API, "Error
// Handling"; its texts are those of cudaGetErrorString). What such a text can also mean, a peer's end (NVLink, MPS, a
// driver that shuts down), is left out.
constexpr std::array kRules = {
    // ProcessGroupNCCL.cpp, WorkNCCL::finishedGPUExecutionInternal; pytorch#126544: rethrown by the watchdog.
    // cudaErrorIllegalAddress (vllm#17098), cudaErrorAssert, cudaErrorECCUncorrectable (pytorch#113128)
    Rule{kStart, "CUDA error: an illegal memory access was encountered", kOwnGpu},
    Rule{kStart, "CUDA error: device-side assert triggered", kOwnGpu},
    Rule{kStart, "CUDA error: uncorrectable ECC error encountered", kOwnGpu},
    // cudaErrorLaunchFailure, cudaErrorMisalignedAddress, cudaErrorIllegalInstruction, cudaErrorInvalidPc
    Rule{kStart, "CUDA error: unspecified launch failure", kOwnGpu},
    Rule{kStart, "CUDA error: misaligned address", kOwnGpu},
    Rule{kStart, "CUDA error: an illegal instruction was encountered", kOwnGpu},
    Rule{kStart, "CUDA error: invalid program counter", kOwnGpu},
    // cudaErrorInvalidAddressSpace, cudaErrorHardwareStackError, cudaErrorLaunchTimeout
    Rule{kStart, "CUDA error: operation not supported on global/shared address space", kOwnGpu},
    Rule{kStart, "CUDA error: hardware stack error", kOwnGpu},
    Rule{kStart, "CUDA error: the launch timed out and was terminated", kOwnGpu},
    // cudaErrorMemoryAllocation, cudaErrorUnknown (vllm#2682)
    Rule{kStart, "CUDA error: out of memory", kOwnGpu},
    Rule{kStart, "CUDA error: unknown error", kOwnGpu},
    // ncclUnhandledCudaError: a call to a CUDA function failed, in this rank (NCCL user guide, "Types").
    Rule{kStart, "NCCL error: unhandled cuda error", kOwnGpu},
    // WorkNCCL::checkTimeout. "[Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=5, ..."
    Rule{Match::kAnywhere, "Watchdog caught collective operation timeout", ExceptionCause::kTimeout},
    // ncclRemoteError, ncclSystemError: of a connection, whose other end may be what has gone; stanford_alpaca#207.
    Rule{kStart, "NCCL error: remote process exited or there was a network error", ExceptionCause::kPeer},
    Rule{kStart, "NCCL error: unhandled system error", ExceptionCause::kPeer},
};

// Behind the last of: "[PG ID 0 PG GUID 0(default_pg) Rank 2] Process group watchdog thread terminated with exception:
// ", of older versions "[Rank 7] NCCL watchdog thread terminated with exception: ". What the watchdog adds to the text
// of what it has caught.
std::string_view own_text(std::string_view line) {
  constexpr std::string_view kAdded = "watchdog thread terminated with exception: ";
  if (const auto at = line.rfind(kAdded); at != line.npos) line.remove_prefix(at + kAdded.size());
  if (line.starts_with('[')) {
    if (const auto end = line.find("] "); end != line.npos) line.remove_prefix(end + 2);
  }
  return line;
}

}  // namespace

std::optional<ExceptionCause> cause_of(std::string_view what) {
  const std::string_view text = own_text(what.substr(0, what.find_first_of("\r\n")));
  for (const Rule& rule : kRules) {
    if (rule.match == Match::kStart ? text.starts_with(rule.text) : text.find(rule.text) != text.npos)
      return rule.cause;
  }
  return std::nullopt;
}

}  // namespace rankstacks
