// The messages that the tool's helper processes write to their stdout, which is a pipe to the tool. A message consists
// of a letter, a length (4 bytes, little-endian) and a body of that many bytes. The body is MessagePack, or a few plain
// bytes. session_answer.h and nvml_answer.h list the messages.
//
// The tool does not trust what it reads here: the driver's libraries run in the helper processes, and the helper of a
// session also has the rights of the target process.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <vector>

namespace rankstacks::gpu {

struct Message {
  char kind = 0;
  std::vector<std::uint8_t> body;
};

// Takes the complete messages out of the bytes that have arrived. After a message whose body is longer than `max_body`
// it returns no more messages: none of the tool's helpers writes such a message.
class MessageReader {
 public:
  explicit MessageReader(std::uint32_t max_body) : max_body_(max_body) {}
  void add(std::span<const std::uint8_t> bytes);
  std::optional<Message> next();
  bool is_broken() const { return broken_; }

 private:
  std::uint32_t max_body_;
  std::vector<std::uint8_t> arrived_;
  std::size_t taken_ = 0;  // number of bytes at the front of `arrived_` that have been returned
  bool broken_ = false;
};

// False if the message could not be written, as the reader has closed the pipe.
bool send(int fd, char kind, std::span<const std::uint8_t> body);

struct PackedLimits {
  int depth = 0;           // of nested arrays and objects
  std::size_t values = 0;  // in all, including keys and containers; also the most entries that one container may claim
  std::size_t text = 0;    // bytes of a string or of a key
};

// std::nullopt if these bytes are not exactly one MessagePack value, if they exceed the limits, or if they contain a
// number that is not finite.
std::optional<nlohmann::json> unpack_value(std::span<const std::uint8_t> bytes, const PackedLimits& limits);

}  // namespace rankstacks::gpu
