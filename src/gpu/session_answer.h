// What a session's helper process sends to the process that started it, through a pipe: messages of a letter, a length
// and that many bytes.
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
#include "model/snapshot.h"

namespace rankstacks::gpu {

struct SessionAnswer {
  std::vector<GpuSnapshot> gpus;           // their frames are indices into `frames`
  std::vector<Frame> frames;
  std::string driver;                      // version of the API
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

struct Message {
  char kind = 0;
  std::vector<std::uint8_t> body;
};

// Extracts the complete messages from what has arrived. After a message that no helper of this tool has written, no
// more are returned.
class MessageReader {
 public:
  void add(std::span<const std::uint8_t> bytes);
  std::optional<Message> next();
  bool is_broken() const { return broken_; }

 private:
  std::vector<std::uint8_t> arrived_;
  std::size_t taken_ = 0;                  // how much of arrived_ was taken, from the front
  bool broken_ = false;
};

// False if the reading end is closed.
bool send(int fd, char kind, std::span<const std::uint8_t> body);

}  // namespace rankstacks::gpu
