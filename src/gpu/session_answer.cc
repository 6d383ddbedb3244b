#include "gpu/session_answer.h"

#include <nlohmann/json.hpp>

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
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(GpuKernel, grid_id, function, entry, grid, block, blocks, sms, warps, lanes, places,
                                   more_places, frames)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(GpuException, kind, frame, grid_id, kernel, block, thread, warps)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(GpuExecution, held_ms, contexts, kernels, exceptions)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(GpuSnapshot, pci, name, execution)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Frame, kind, function, address, offset)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Problem, message, hint)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Error, code, subject, what, where, os_errno, hint)

namespace gpu {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(SessionAnswer, gpus, frames, driver, thread_held_ms, attach_ms, core_bytes, problems)

namespace {

// The nesting of an answer is 9 deep; a kernel is some 80 values.
constexpr PackedLimits kLimits{.depth = 16, .values = 4u << 20, .text = 256u << 10};
constexpr std::size_t kMaxGpus = 256, kMaxProblems = 4096, kMaxFramesOfKernel = 1024;

template <class T>
std::optional<T> unpack_as(std::span<const std::uint8_t> bytes) {
  const auto parsed = unpack_value(bytes, kLimits);
  if (!parsed) return std::nullopt;
  try {
    return parsed->get<T>();
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
    for (const GpuKernel& kernel : gpu.execution->kernels)
      sound = sound && kernel.places.size() <= kMaxGpuPlaces && kernel.frames.size() <= kMaxFramesOfKernel;
  }
  return sound;
}

}  // namespace

// A function's name is any bytes that a module's string table has: MessagePack's strings, unlike JSON's, are bytes.
std::vector<std::uint8_t> pack(const SessionAnswer& answer) {
  return nlohmann::json::to_msgpack(nlohmann::json(answer));
}
std::vector<std::uint8_t> pack(const Error& error) { return nlohmann::json::to_msgpack(nlohmann::json(error)); }

std::optional<SessionAnswer> unpack_answer(std::span<const std::uint8_t> bytes) {
  auto answer = unpack_as<SessionAnswer>(bytes);
  if (answer && !is_sound(*answer)) return std::nullopt;
  return answer;
}

std::optional<Error> unpack_error(std::span<const std::uint8_t> bytes) {
  auto error = unpack_as<Error>(bytes);
  const auto code = error ? static_cast<int>(error->code) : -1;
  if (code < 0 || code > static_cast<int>(ErrorCode::kLimit)) return std::nullopt;
  return error;
}

}  // namespace gpu
}  // namespace rankstacks
