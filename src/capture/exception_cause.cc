#include "capture/exception_cause.h"

#include <algorithm>
#include <array>

#include "base/text.h"
#include "known/ordinary_exceptions.h"

namespace rankstacks::capture {
namespace {

enum class Match { kStart, kAnywhere };

struct Rule {
  Match match;
  std::string_view text;
  ExceptionCause cause;
};

constexpr Match kStart = Match::kStart;
constexpr ExceptionCause kOwnGpu = ExceptionCause::kOwnGpu;

// The texts are compared with the first line of the message, after the part that names the process group and after "...
// watchdog thread terminated with exception: ". The first matching rule decides. A GPU's fault is sticky in the context
// in which it happened: each call of that process returns it, including the watchdog's cudaEventQuery, and no call of
// another process does (CUDA Runtime API, "Error Handling"; its texts are those of cudaGetErrorString). Texts that can
// also mean the end of a peer (NVLink, MPS, a driver that shuts down) are left out.
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
    // ncclRemoteError, ncclSystemError: errors of a connection, whose other end may have gone; stanford_alpaca#207.
    Rule{kStart, "NCCL error: remote process exited or there was a network error", ExceptionCause::kPeer},
    Rule{kStart, "NCCL error: unhandled system error", ExceptionCause::kPeer},
    // gloo/transport/tcp/pair.cc, gloo::IoException: "[/x/gloo/transport/tcp/pair.cc:598] Connection closed by peer
    // [10.0.0.1]:4242", "Read error [10.0.0.1]:4242: Connection reset by peer".
    Rule{kStart, "Connection closed by peer", ExceptionCause::kPeer},
    Rule{Match::kAnywhere, "Connection reset by peer", ExceptionCause::kPeer},
    // "Write error [10.0.0.1]:4242: Broken pipe"; "Application timeout caused pair closure", after a rank's timeout.
    Rule{kStart, "Write error [", ExceptionCause::kPeer},
    Rule{kStart, "Application timeout caused pair closure", ExceptionCause::kTimeout},
    // gloo/transport/unbound_buffer.cc, tcp/unbound_buffer.cc: "Timed out waiting 1800000ms for recv operation to
    // complete"
    Rule{kStart, "Timed out waiting ", ExceptionCause::kTimeout},
    // ProcessGroupGloo.cpp, monitoredBarrier: "Rank 2 failed to pass monitoredBarrier in 30000 ms"
    Rule{Match::kAnywhere, " failed to pass monitoredBarrier in ", ExceptionCause::kTimeout},
    // ProcessGroupNCCL.cpp, C10D_NCCL_CHECK: "NCCL error in: FILE:LINE, remote process exited or there was a network
    // error, NCCL version 2.18.1"
    Rule{Match::kAnywhere, "remote process exited or there was a network error", ExceptionCause::kPeer},
    // TCPStoreLibUvBackend.cpp, TCPStore.cpp, socket.cpp: the process that has the store is gone, or a key is not set
    // in
    // time: "Connection was likely closed. Did the remote server shutdown or crash?", "Socket Timeout", "wait timeout
    // after 300000ms, keys: /default_pg/0//worker_count"
    Rule{Match::kAnywhere, "Connection was likely closed", ExceptionCause::kPeer},
    Rule{kStart, "Socket Timeout", ExceptionCause::kTimeout},
    Rule{kStart, "wait timeout after ", ExceptionCause::kTimeout},
};

// Returns the text after the last of these prefixes: "[PG ID 0 PG GUID 0(default_pg) Rank 2] Process group watchdog
// thread terminated with exception: ", in older versions "[Rank 7] NCCL watchdog thread terminated with exception: ".
// The watchdog adds them to the text of the exception that it has caught.
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
    if (rule.match == Match::kStart ? text.starts_with(rule.text) : contains(text, rule.text)) return rule.cause;
  }
  return std::nullopt;
}

std::optional<ExceptionCause> cause_of(const HandledException& exception, std::span<const ChainedException> hidden) {
  const std::optional<std::string>* text = &exception.message;
  for (const std::span<const ChainedException> chain : {std::span<const ChainedException>(exception.chain), hidden})
    for (const ChainedException& one : chain)
      if (!known::is_ordinary_exception(one.type)) text = &one.message;
  // A number of the kernel's says that a connection has gone, but not that its other end was a rank.
  return *text && !(*text)->starts_with("[Errno ") ? cause_of(**text) : std::nullopt;
}

}  // namespace rankstacks::capture
