#include "gpu/helper_messages.h"

#include <unistd.h>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

namespace rankstacks::gpu {
namespace {

constexpr std::size_t kHeader = 1 + sizeof(std::uint32_t);

// The parser itself has no limits on nesting and on the claimed sizes of containers. Its events go through this class,
// which ends the parsing when a limit is exceeded.
class Bounded {
 public:
  using json = nlohmann::json;
  Bounded(json& into, const PackedLimits& limits) : build_(into, false), limits_(limits) {}

  bool null() { return one() && build_.null(); }
  bool boolean(bool value) { return one() && build_.boolean(value); }
  bool number_integer(json::number_integer_t value) { return one() && build_.number_integer(value); }
  bool number_unsigned(json::number_unsigned_t value) { return one() && build_.number_unsigned(value); }
  bool number_float(json::number_float_t value, const json::string_t& text) {
    return one() && std::isfinite(value) && build_.number_float(value, text);
  }
  bool string(json::string_t& value) { return one() && value.size() <= limits_.text && build_.string(value); }
  bool binary(json::binary_t&) { return false; }
  bool start_object(std::size_t count) { return deeper(count) && build_.start_object(count); }
  bool key(json::string_t& value) { return one() && value.size() <= limits_.text && build_.key(value); }
  bool end_object() { return --depth_ >= 0 && build_.end_object(); }
  bool start_array(std::size_t count) { return deeper(count) && build_.start_array(count); }
  bool end_array() { return --depth_ >= 0 && build_.end_array(); }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception&) { return false; }

 private:
  bool one() { return ++values_ <= limits_.values; }
  bool deeper(std::size_t count) { return one() && count <= limits_.values && ++depth_ <= limits_.depth; }

  nlohmann::detail::json_sax_dom_parser<json> build_;
  const PackedLimits limits_;
  std::size_t values_ = 0;
  int depth_ = 0;
};

}  // namespace

void MessageReader::add(std::span<const std::uint8_t> bytes) {
  if (broken_) return;
  // The messages that were returned are erased all at once, not one by one: this keeps the cost linear.
  arrived_.erase(arrived_.begin(), arrived_.begin() + static_cast<std::ptrdiff_t>(taken_));
  taken_ = 0;
  arrived_.insert(arrived_.end(), bytes.begin(), bytes.end());
}

std::optional<Message> MessageReader::next() {
  if (arrived_.size() - taken_ < kHeader) return std::nullopt;
  std::uint32_t length = 0;
  std::memcpy(&length, arrived_.data() + taken_ + 1, sizeof length);
  if (length > max_body_) {
    broken_ = true;
    arrived_ = {};
    taken_ = 0;
    return std::nullopt;
  }
  if (arrived_.size() - taken_ - kHeader < length) return std::nullopt;
  const auto body = arrived_.begin() + static_cast<std::ptrdiff_t>(taken_ + kHeader);
  Message message{.kind = static_cast<char>(arrived_[taken_]), .body = {body, body + length}};
  taken_ += kHeader + length;
  return message;
}

bool send(int fd, char kind, std::span<const std::uint8_t> body) {
  std::vector<std::uint8_t> bytes(kHeader);
  bytes[0] = static_cast<std::uint8_t>(kind);
  const auto length = static_cast<std::uint32_t>(body.size());
  std::memcpy(bytes.data() + 1, &length, sizeof length);
  bytes.insert(bytes.end(), body.begin(), body.end());
  for (std::size_t at = 0; at < bytes.size();) {
    const ssize_t n = write(fd, bytes.data() + at, bytes.size() - at);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    at += static_cast<std::size_t>(n);
  }
  return true;
}

std::optional<nlohmann::json> unpack_value(std::span<const std::uint8_t> bytes, const PackedLimits& limits) {
  nlohmann::json parsed;
  Bounded bounded(parsed, limits);
  try {
    if (!nlohmann::json::sax_parse(bytes.begin(), bytes.end(), &bounded, nlohmann::json::input_format_t::msgpack))
      return std::nullopt;
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  }
  return parsed;
}

}  // namespace rankstacks::gpu
