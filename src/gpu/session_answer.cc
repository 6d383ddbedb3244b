#include "gpu/session_answer.h"

#include <cerrno>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "gpu/summarize.h"

namespace nlohmann {

template <class T>
struct adl_serializer<std::optional<T>> {
  static void to_json(json& into, const std::optional<T>& value) {
    if (value) into = *value;
    else into = nullptr;
  }
  static void from_json(const json& from, std::optional<T>& value) {
    if (from.is_null()) value = std::nullopt;
    else value = from.get<T>();
  }
};

}  // namespace nlohmann

namespace rankstacks {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(GpuDim, x, y, z)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(GpuPlace, frame, warps)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(GpuKernel, grid_id, function, entry, grid, block, blocks, sms, warps, lanes, places, more_places, frames)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(GpuException, kind, frame, grid_id, kernel, block, thread, warps)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(GpuExecution, held_ms, contexts, kernels, exceptions)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(GpuSnapshot, pci, name, execution)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Frame, kind, function, address, offset)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Problem, message, hint)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Error, code, subject, what, where, os_errno, hint)

namespace gpu {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(SessionAnswer, gpus, frames, driver, thread_held_ms, attach_ms, core_bytes, problems)

namespace {

constexpr std::size_t kHeader = 1 + sizeof(std::uint32_t);
// At worst 1,024 kernels (summarize.h) with names of 64 KiB (demangle). An answer is nested 9 deep; a kernel has some
// 80 values.
constexpr std::uint32_t kMaxBody = 64u << 20;
constexpr std::size_t kMaxDepth = 16, kMaxValues = 4u << 20, kMaxText = 256u << 10;
constexpr std::size_t kMaxGpus = 256, kMaxProblems = 4096, kMaxFramesOfKernel = 1024;

// The parser builds whatever comes, however deep it is nested and however much it is. Its events pass through this
// class, which ends it.
class Bounded {
 public:
  using json = nlohmann::json;
  explicit Bounded(json& into) : build_(into, false) {}

  bool null() { return one() && build_.null(); }
  bool boolean(bool value) { return one() && build_.boolean(value); }
  bool number_integer(json::number_integer_t value) { return one() && build_.number_integer(value); }
  bool number_unsigned(json::number_unsigned_t value) { return one() && build_.number_unsigned(value); }
  bool number_float(json::number_float_t value, const json::string_t& text) { return one() && std::isfinite(value) && build_.number_float(value, text); }
  bool string(json::string_t& value) { return one() && value.size() <= kMaxText && build_.string(value); }
  bool binary(json::binary_t&) { return false; }
  bool start_object(std::size_t count) { return deeper(count) && build_.start_object(count); }
  bool key(json::string_t& value) { return one() && value.size() <= kMaxText && build_.key(value); }
  bool end_object() { return --depth_ >= 0 && build_.end_object(); }
  bool start_array(std::size_t count) { return deeper(count) && build_.start_array(count); }
  bool end_array() { return --depth_ >= 0 && build_.end_array(); }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception&) { return false; }

 private:
  bool one() { return ++values_ <= kMaxValues; }
  bool deeper(std::size_t count) { return one() && count <= kMaxValues && ++depth_ <= static_cast<int>(kMaxDepth); }

  nlohmann::detail::json_sax_dom_parser<json> build_;
  std::size_t values_ = 0;
  int depth_ = 0;
};

template <class T>
std::optional<T> unpack(std::span<const std::uint8_t> bytes) {
  try {
    nlohmann::json parsed;
    Bounded bounded(parsed);
    if (!nlohmann::json::sax_parse(bytes.begin(), bytes.end(), &bounded, nlohmann::json::input_format_t::msgpack)) return std::nullopt;
    return parsed.get<T>();
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  }
}

bool is_sound(SessionAnswer& answer) {
  if (answer.gpus.size() > kMaxGpus || answer.problems.size() > kMaxProblems) return false;
  for (const Frame& frame : answer.frames)
    if (frame.kind != FrameKind::kGpu) return false;
  bool sound = true;
  for (GpuSnapshot& gpu : answer.gpus) {
    for_each_frame(gpu, [&](std::uint32_t& id) { sound = sound && id < answer.frames.size(); });
    if (!gpu.execution) continue;
    sound = sound && gpu.execution->kernels.size() <= kMaxKernels && gpu.execution->exceptions.size() <= kMaxExceptions;
    for (const GpuKernel& kernel : gpu.execution->kernels) sound = sound && kernel.places.size() <= kMaxGpuPlaces && kernel.frames.size() <= kMaxFramesOfKernel;
  }
  return sound;
}

}  // namespace

// A function's name is any bytes that a module's string table has: MessagePack's strings, unlike JSON's, are bytes.
std::vector<std::uint8_t> pack(const SessionAnswer& answer) { return nlohmann::json::to_msgpack(nlohmann::json(answer)); }
std::vector<std::uint8_t> pack(const Error& error) { return nlohmann::json::to_msgpack(nlohmann::json(error)); }

std::optional<SessionAnswer> unpack_answer(std::span<const std::uint8_t> bytes) {
  auto answer = unpack<SessionAnswer>(bytes);
  if (answer && !is_sound(*answer)) return std::nullopt;
  return answer;
}

std::optional<Error> unpack_error(std::span<const std::uint8_t> bytes) {
  auto error = unpack<Error>(bytes);
  const auto code = error ? static_cast<int>(error->code) : -1;
  if (code < 0 || code > static_cast<int>(ErrorCode::kLimit)) return std::nullopt;
  return error;
}

void MessageReader::add(std::span<const std::uint8_t> bytes) {
  if (broken_) return;
  // The bytes that were taken are erased once for all messages that came together, not once a message.
  arrived_.erase(arrived_.begin(), arrived_.begin() + static_cast<std::ptrdiff_t>(taken_));
  taken_ = 0;
  arrived_.insert(arrived_.end(), bytes.begin(), bytes.end());
}

std::optional<Message> MessageReader::next() {
  if (arrived_.size() - taken_ < kHeader) return std::nullopt;
  std::uint32_t length = 0;
  std::memcpy(&length, arrived_.data() + taken_ + 1, sizeof length);
  if (length > kMaxBody) {
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

}  // namespace gpu
}  // namespace rankstacks
