// The messages (helper_messages.h) of a GPU session's helper process.
//
//     c   the client begins                    its pid, in the pid namespace of the target process
//     p   a phase begins                       1 byte
//     h   a call into the driver hangs         its name: the helper gives up and frees the process
//     a   the answer: what was seen            MessagePack of SessionAnswer
//     e   why there is no answer               MessagePack of Error
//     d   done: the process is as before       nothing
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "gpu/helper_messages.h"
#include "model/snapshot.h"

namespace rankstacks::gpu {

// Of one message: 1,024 kernels (summarize.h) with names of 64 KiB (demangle) at the worst.
inline constexpr std::uint32_t kMaxSessionMessage = 64u << 20;

struct SessionAnswer {
  std::vector<GpuSnapshot> gpus;  // their frames are indices into `frames`
  std::vector<Frame> frames;
  std::string driver;  // version of the API
  double thread_held_ms = 0, attach_ms = 0;
  std::optional<std::uint64_t> core_bytes;
  std::vector<Problem> problems;
};

std::vector<std::uint8_t> pack(const SessionAnswer& answer);
std::vector<std::uint8_t> pack(const Error& error);
// Untrusted bytes: they come from a process with the rights of the target process. std::nullopt if they are no such
// message, are nested deeper, have more entries or longer texts than any answer of this tool.
std::optional<SessionAnswer> unpack_answer(std::span<const std::uint8_t> bytes);
std::optional<Error> unpack_error(std::span<const std::uint8_t> bytes);

}  // namespace rankstacks::gpu
