// What a session's helper process tells the one that started it, through a pipe: messages of a letter, a length and so many bytes.
//
//     c   the client begins                    its pid, in the pid namespace of the process
//     p   a phase begins                       1 byte
//     h   a call into the driver hangs         its name: the helper gives up and frees the process
//     a   what was seen                        MessagePack of SessionAnswer
//     e   why nothing was seen                 MessagePack of Error
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
// Untrusted bytes: they come from a process with the rights of the one that is looked at. Nothing where they are no such message, are nested deeper or have more
// entries or longer texts than any answer of ours.
std::optional<SessionAnswer> unpack_answer(std::span<const std::uint8_t> bytes);
std::optional<Error> unpack_error(std::span<const std::uint8_t> bytes);

struct Message {
  char kind = 0;
  std::vector<std::uint8_t> body;
};

// Takes the messages that are whole out of what has arrived. After one that no helper of ours has written, nothing more comes out.
class MessageReader {
 public:
  void add(std::span<const std::uint8_t> bytes);
  std::optional<Message> next();
  bool is_broken() const { return broken_; }

 private:
  std::vector<std::uint8_t> arrived_;
  std::size_t taken_ = 0;                  // of it, from the front
  bool broken_ = false;
};

// False: nobody listens any more.
bool send(int fd, char kind, std::span<const std::uint8_t> body);

}  // namespace rankstacks::gpu
