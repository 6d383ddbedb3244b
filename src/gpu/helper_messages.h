// What the tool's helper processes write to their stdout, a pipe to the tool: messages of a letter, a length (4 bytes,
// little-endian) and that many bytes. The bytes are MessagePack, or a few plain ones. session_answer.h and
// nvml_answer.h list the messages.
//
// The tool does not trust what it reads here: the driver's libraries run in the helper processes, and a session's also
// has the rights of the process that is looked at.
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

// Takes the messages that are whole out of what has arrived. After one with a longer body than `max_body` nothing more
// comes out: none of our helpers writes such a message.
class MessageReader {
 public:
  explicit MessageReader(std::uint32_t max_body) : max_body_(max_body) {}
  void add(std::span<const std::uint8_t> bytes);
  std::optional<Message> next();
  bool is_broken() const { return broken_; }

 private:
  std::uint32_t max_body_;
  std::vector<std::uint8_t> arrived_;
  std::size_t taken_ = 0;  // of it, from the front
  bool broken_ = false;
};

// False: nobody listens any more.
bool send(int fd, char kind, std::span<const std::uint8_t> body);

struct PackedLimits {
  int depth = 0;           // of arrays and objects in each other
  std::size_t values = 0;  // in all, keys and containers among them; also what one container may claim to have
  std::size_t text = 0;    // bytes of a string or of a key
};

// std::nullopt if these bytes are not one MessagePack value, or exceed the limits, or have a number that is not finite.
std::optional<nlohmann::json> unpack_value(std::span<const std::uint8_t> bytes, const PackedLimits& limits);

}  // namespace rankstacks::gpu
