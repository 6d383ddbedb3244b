#include "gpu/nvml_answer.h"

#include <fmt/format.h>
#include <algorithm>
#include <nlohmann/json.hpp>
#include <span>
#include <type_traits>
#include <utility>

#include "base/text.h"
#include "gpu/nvml_layouts.h"
#include "model/rank_set.h"

namespace rankstacks::gpu {
namespace {

using nlohmann::json;

// Visits the fields that hold a single number, with their names in the messages.
template <class Health, class Visit>
void each_number(Health& h, Visit&& visit) {
  visit("utilization_mean", h.utilization_mean);
  visit("utilization_variance", h.utilization_variance);
  visit("memory_utilization_mean", h.memory_utilization_mean);
  visit("memory_used", h.memory_used);
  visit("memory_total", h.memory_total);
  visit("sm_clock", h.sm_clock);
  visit("sm_clock_max", h.sm_clock_max);
  visit("memory_clock", h.memory_clock);
  visit("memory_clock_max", h.memory_clock_max);
  visit("power_w", h.power_w);
  visit("power_mean_w", h.power_mean_w);
  visit("power_limit_w", h.power_limit_w);
  visit("temperature_c", h.temperature_c);
  visit("ecc_corrected", h.ecc_corrected);
  visit("ecc_uncorrected", h.ecc_uncorrected);
  visit("remapped_rows", h.remapped_rows);
  visit("nvlinks", h.nvlinks);
  visit("nvlinks_up", h.nvlinks_up);
  visit("nvlink_errors", h.nvlink_errors);
  visit("pcie_width", h.pcie_width);
  visit("pcie_width_max", h.pcie_width_max);
  visit("pcie_generation", h.pcie_generation);
  visit("pcie_generation_max", h.pcie_generation_max);
}

// A GPU with kMaxDeviceProcesses processes takes about 115,000 values.
constexpr PackedLimits kLimits{.depth = 8, .values = 1u << 20, .text = 64u << 10};
constexpr std::size_t kMaxName = 200, kMaxReason = 1000, kMaxEntries = 4096;

// Makes a text of the library fit for a message: one line of printable characters.
std::string one_line(std::string_view text, std::size_t longest) {
  std::string line(text.substr(0, longest));
  std::replace_if(
      line.begin(), line.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }, '?');
  return line;
}

// The value as a number of type T; std::nullopt if it is not a number, or does not fit.
template <class T>
std::optional<T> number_of(const json& value) {
  if constexpr (std::is_floating_point_v<T>) {
    return value.is_number() ? std::optional(value.get<T>()) : std::nullopt;
  } else {
    if (value.is_number_unsigned() && std::in_range<T>(value.get<std::uint64_t>()))
      return static_cast<T>(value.get<std::uint64_t>());
    if (value.is_number_integer() && !value.is_number_unsigned() && std::in_range<T>(value.get<std::int64_t>()))
      return static_cast<T>(value.get<std::int64_t>());
    return std::nullopt;
  }
}
std::string line_of(const json& value, std::size_t longest = kMaxName) {
  return value.is_string() ? one_line(value.get_ref<const std::string&>(), longest) : std::string();
}
bool is_true(const json& value) { return value.is_boolean() && value.get<bool>(); }

// The member with this name; a JSON null if there is none.
const json& member(const json& object, std::string_view name) {
  static const json null;
  const auto found = object.find(name);
  return found == object.end() ? null : *found;
}

// The first `most` entries of an array; empty if the value is not an array.
std::span<const json> entries(const json& value, std::size_t most) {
  if (!value.is_array()) return {};
  const auto& all = value.get_ref<const json::array_t&>();
  return std::span(all).first(std::min(all.size(), most));
}

json to_json(const GpuHealth& health) {
  json out = json::object();
  each_number(health, [&](const char* name, const auto& number) {
    if (number) out[name] = *number;
  });
  out["throttle"] = health.throttle;
  out["nvlinks_down"] = health.nvlinks_down;
  out["remap_pending"] = health.remap_pending;
  out["remap_failed"] = health.remap_failed;
  return out;
}

GpuHealth health_of(const json& in) {
  GpuHealth health;
  if (!in.is_object()) return health;
  each_number(health, [&](const char* name, auto& number) {
    number = number_of<std::remove_reference_t<decltype(*number)>>(member(in, name));
  });
  for (const json& reason : entries(member(in, "throttle"), kMaxEntries))
    if (reason.is_string()) health.throttle.push_back(line_of(reason));
  for (const json& link : entries(member(in, "nvlinks_down"), kMaxEntries))
    if (const auto number = number_of<unsigned>(link)) health.nvlinks_down.push_back(*number);
  health.remap_pending = is_true(member(in, "remap_pending"));
  health.remap_failed = is_true(member(in, "remap_failed"));
  return health;
}

std::vector<NvmlProcess> processes_of(const json& in) {
  std::vector<NvmlProcess> processes;
  for (const json& process : entries(in, kMaxDeviceProcesses)) {
    if (!process.is_object()) continue;
    if (const auto pid = number_of<Pid>(member(process, "pid")))
      processes.push_back({*pid, number_of<std::uint64_t>(member(process, "memory")), is_true(member(process, "mps"))});
  }
  return processes;
}

// std::nullopt if the index is missing or out of range.
std::optional<NvmlDevice> device_of(const json& in) {
  const auto index = number_of<unsigned>(member(in, "index"));
  if (!index || *index >= kMaxDevices) return std::nullopt;
  NvmlDevice device;
  device.gpu.index = index;
  device.gpu.pci = line_of(member(in, "pci"));
  device.gpu.uuid = line_of(member(in, "uuid"));
  device.gpu.name = line_of(member(in, "name"));
  device.gpu.health = health_of(member(in, "health"));
  device.minor = number_of<unsigned>(member(in, "minor"));
  if (const json& mig = member(in, "mig"); mig.is_boolean()) device.mig = mig.get<bool>();
  if (const json& processes = member(in, "processes"); processes.is_array()) device.processes = processes_of(processes);
  return device;
}

std::vector<XidEvent> xids_of(const json& in) {
  std::vector<XidEvent> xids;
  for (const json& event : entries(in, kLimits.values)) {
    if (!event.is_array() || event.size() != 4 || !event[0].is_string()) continue;
    if (const auto number = number_of<unsigned>(event[1]))
      xids.push_back({line_of(event[0]), *number, number_of<Pid>(event[2]), number_of<double>(event[3])});
  }
  return xids;
}

std::string hint_of_refusal(int code) {
  switch (code) {
    case nvml::kVersionMismatch:
      return "the driver in the kernel and libnvidia-ml.so.1 are of different versions: load the new driver (reboot, "
             "or rmmod nvidia), or in a container start it again";
    case nvml::kNoPermission:
    case nvml::kOperatingSystem:
      return "give this user, or this container, /dev/nvidiactl and /dev/nvidia0 ...: nvidia-smi fails alike";
    case nvml::kDriverNotLoaded: return "load the driver: modprobe nvidia; in a container: docker run --gpus all ...";
    case nvml::kGpuIsLost: return "a GPU has fallen off its bus: dmesg | grep -i xid; a reboot brings it back";
    default: return "nvidia-smi fails alike: what it says, and dmesg | grep NVRM";
  }
}

std::string gpu_list(const std::vector<unsigned>& indices) {
  return fmt::format("GPU{} {}", plural(indices.size()), format_numbers({indices.begin(), indices.end()}));
}

}  // namespace

std::string full_pci_address(unsigned domain, unsigned bus, unsigned device) {
  return fmt::format("{:04x}:{:02x}:{:02x}.0", domain, bus, device);
}

std::vector<std::uint8_t> pack_xids(const std::vector<XidEvent>& xids) {
  json out = json::array();
  for (const XidEvent& event : xids)
    out.push_back(json::array({event.pci, event.number, event.pid ? json(*event.pid) : json(),
                               event.seconds ? json(*event.seconds) : json()}));
  return json::to_msgpack(out);
}

std::vector<std::uint8_t> pack_failure(int code, std::string_view words, std::optional<unsigned> index) {
  json out{{"code", code}, {"words", words}};
  if (index) out["index"] = *index;
  return json::to_msgpack(out);
}

std::vector<std::uint8_t> pack_count(std::string_view driver, unsigned count) {
  return json::to_msgpack(json{{"driver", driver}, {"count", count}});
}

std::vector<std::uint8_t> pack(const NvmlDevice& device) {
  json out{{"index", device.gpu.index.value_or(0)},
           {"pci", device.gpu.pci},
           {"uuid", device.gpu.uuid},
           {"name", device.gpu.name}};
  if (device.minor) out["minor"] = *device.minor;
  if (device.mig) out["mig"] = *device.mig;
  if (device.gpu.health) out["health"] = to_json(*device.gpu.health);
  if (device.processes) {
    json& processes = out["processes"] = json::array();
    for (const NvmlProcess& p : *device.processes) {
      json& process = processes.emplace_back(json{{"pid", p.pid}, {"mps", p.mps}});
      if (p.memory) process["memory"] = *p.memory;
    }
  }
  return json::to_msgpack(out);
}

void NvmlMessages::add(const Message& message) {
  if (message.kind == 'd') {
    whole = true;
    return;
  }
  const auto body = unpack_value(message.body, kLimits);
  if (!body) return;
  if (message.kind == 'x') xids = xids_of(*body);
  if (!body->is_object()) return;
  switch (message.kind) {
    case 'l':
      no_library = true;
      reason = line_of(member(*body, "words"), kMaxReason);
      break;
    case 'r':
      refused = number_of<int>(member(*body, "code")).value_or(-1);
      reason = line_of(member(*body, "words"), kMaxReason);
      break;
    case 'n':
      driver = line_of(member(*body, "driver"));
      count = std::min(number_of<unsigned>(member(*body, "count")).value_or(0), kMaxDevices);
      break;
    case 'g':
      if (auto device = device_of(*body); device && devices.size() < kMaxDevices) devices.push_back(std::move(*device));
      break;
    case 'f':
      if (const auto index = number_of<unsigned>(member(*body, "index"));
          index && *index < kMaxDevices && failed.size() < kMaxDevices)
        failed.push_back({*index, number_of<int>(member(*body, "code")).value_or(-1), line_of(member(*body, "words"))});
      break;
    default: break;
  }
}

NvmlAnswer answer_of(NvmlMessages messages, std::string_view waited) {
  NvmlAnswer answer{
      .outcome = NvmlOutcome::kAnswered, .driver = std::move(messages.driver), .devices = std::move(messages.devices)};
  std::sort(answer.devices.begin(), answer.devices.end(),
            [](const NvmlDevice& a, const NvmlDevice& b) { return a.gpu.index < b.gpu.index; });
  const auto say = [&](std::string message, std::string hint) {
    answer.problems.push_back({std::move(message), std::move(hint), ProblemCode::kGpu});
  };
  if (messages.no_library) {
    answer.outcome = NvmlOutcome::kNoLibrary;
    say(fmt::format("NVML: libnvidia-ml.so.1 cannot be loaded: {}", messages.reason),
        "how the GPUs are is not in the report; it comes with the driver, into a container with "
        "NVIDIA_DRIVER_CAPABILITIES=compute,utility");
    return answer;
  }
  if (messages.refused) {
    answer.outcome = NvmlOutcome::kRefused;
    say(fmt::format("NVML does not start: {}", messages.reason), hint_of_refusal(*messages.refused));
    return answer;
  }
  std::vector<bool> listed(messages.count);
  for (NvmlDevice& device : answer.devices) {
    GpuHealth& health = *device.gpu.health;
    health.driver = answer.driver;
    for (const XidEvent& event : messages.xids)
      if (device.gpu.pci.starts_with(event.pci + ".")) device.xids.push_back(event);
    if (*device.gpu.index < listed.size()) listed[*device.gpu.index] = true;
  }
  for (const auto& [index, code, words] : messages.failed) {
    if (index < listed.size()) listed[index] = true;
    // The container was not given this GPU, so its job does not use it: this is no problem.
    if (code == nvml::kNoPermission || code == nvml::kOperatingSystem) continue;
    say(fmt::format("NVML: GPU {}: {}", index, words), hint_of_refusal(code));
  }
  if (messages.whole) return answer;
  std::vector<unsigned> missing;
  for (unsigned index = 0; index < listed.size(); ++index)
    if (!listed[index]) missing.push_back(index);
  if (answer.devices.empty()) answer.outcome = NvmlOutcome::kSilent;
  if (missing.empty() && !answer.devices.empty()) return answer;
  say(fmt::format("NVML: {} not answer within {}",
                  missing.empty() ? "the driver does" : gpu_list(missing) + (missing.size() == 1 ? " does" : " do"),
                  waited),
      "the driver is held up: for a while by what else asks it (a debugger, many processes that start), or for ever by "
      "a GPU that has fallen off its bus: dmesg | grep -i xid; a reboot brings that back");
  return answer;
}

}  // namespace rankstacks::gpu
