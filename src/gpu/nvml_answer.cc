#include "gpu/nvml_answer.h"

#include <algorithm>
#include <charconv>
#include <fmt/format.h>

#include "base/text.h"
#include "gpu/nvml_layouts.h"
#include "model/rank_set.h"

namespace rankstacks::gpu {
namespace {

// The members that are one number each, by the names that they have on the pipe.
template <class Health, class Visit>
void each_number(Health& h, Visit&& visit) {
  visit("utilization_mean", h.utilization_mean);
  visit("utilization_variance", h.utilization_variance);
  visit("memory_used", h.memory_used);
  visit("memory_total", h.memory_total);
  visit("sm_clock", h.sm_clock);
  visit("sm_clock_max", h.sm_clock_max);
  visit("memory_clock", h.memory_clock);
  visit("memory_clock_max", h.memory_clock_max);
  visit("power_w", h.power_w);
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

// A library's words: one line of printable characters.
std::string one_line(std::string_view text) {
  std::string line(text.substr(0, 200));
  std::replace_if(line.begin(), line.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }, '?');
  return line;
}

template <class T>
std::optional<T> number_of(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::pair<std::string_view, std::string_view> split_word(std::string_view line) {
  const std::size_t blank = line.find(' ');
  if (blank == std::string_view::npos) return {line, {}};
  return {line.substr(0, blank), line.substr(blank + 1)};
}

void read_device_line(NvmlDevice& device, std::string_view name, std::string_view value) {
  GpuHealth& health = *device.gpu.health;
  each_number(health, [&](std::string_view member, auto& number) {
    if (member == name) number = number_of<std::remove_reference_t<decltype(*number)>>(value);
  });
  if (name == "pci") device.gpu.pci = value;
  else if (name == "uuid") device.gpu.uuid = value;
  else if (name == "name") device.gpu.name = value;
  else if (name == "minor") device.minor = number_of<unsigned>(value);
  else if (name == "mig") device.mig = value == "1";
  else if (name == "throttle") health.throttle.emplace_back(value);
  else if (name == "remap_pending") health.remap_pending = true;
  else if (name == "remap_failed") health.remap_failed = true;
  else if (name == "processes") device.processes.emplace();
  else if (name == "link_down") {
    if (const auto link = number_of<unsigned>(value)) health.nvlinks_down.push_back(*link);
  } else if (name == "process" && device.processes) {
    const auto [pid, rest] = split_word(value);
    const auto [memory, kind] = split_word(rest);
    if (const auto number = number_of<Pid>(pid)) device.processes->push_back({*number, number_of<std::uint64_t>(memory), kind == "mps"});
  }
}

std::string hint_of_refusal(int code) {
  switch (code) {
    case nvml::kVersionMismatch: return "the driver in the kernel and libnvidia-ml.so.1 are of different versions: load the new driver (reboot, or rmmod nvidia), or in a container start it again";
    case nvml::kNoPermission:
    case nvml::kOperatingSystem: return "give this user, or this container, /dev/nvidiactl and /dev/nvidia0 ...: nvidia-smi fails alike";
    case nvml::kDriverNotLoaded: return "load the driver: modprobe nvidia; in a container: docker run --gpus all ...";
    case nvml::kGpuIsLost: return "a GPU has fallen off its bus: dmesg | grep -i xid; a reboot brings it back";
    default: return "nvidia-smi fails alike: what it says, and dmesg | grep NVRM";
  }
}

std::string gpu_list(const std::vector<unsigned>& indices) {
  return fmt::format("GPU{} {}", plural(indices.size()), format_numbers({indices.begin(), indices.end()}));
}

}  // namespace

std::string full_pci_address(unsigned domain, unsigned bus, unsigned device) { return fmt::format("{:04x}:{:02x}:{:02x}.0", domain, bus, device); }

std::string device_text(const NvmlDevice& device) {
  std::string text;
  const auto line = [&](std::string_view name, const auto& value) { text += fmt::format("{} {}\n", name, value); };
  line("gpu", device.gpu.index.value_or(0));
  if (!device.gpu.pci.empty()) line("pci", device.gpu.pci);
  if (!device.gpu.uuid.empty()) line("uuid", one_line(device.gpu.uuid));
  if (!device.gpu.name.empty()) line("name", one_line(device.gpu.name));
  if (device.minor) line("minor", *device.minor);
  if (device.mig) line("mig", *device.mig ? 1 : 0);
  if (device.gpu.health) {
    const GpuHealth& health = *device.gpu.health;
    each_number(health, [&](std::string_view name, const auto& number) {
      if (number) line(name, *number);
    });
    for (const std::string& reason : health.throttle) line("throttle", reason);
    for (const unsigned link : health.nvlinks_down) line("link_down", link);
    if (health.remap_pending) line("remap_pending", 1);
    if (health.remap_failed) line("remap_failed", 1);
  }
  if (device.processes) {
    line("processes", device.processes->size());
    for (const NvmlProcess& p : *device.processes) line("process", fmt::format("{} {}{}", p.pid, p.memory ? std::to_string(*p.memory) : "-", p.mps ? " mps" : ""));
  }
  return text + "done\n";
}

HelperText parse_helper_text(std::string_view text) {
  HelperText answer;
  std::optional<NvmlDevice> device;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    if (end == std::string_view::npos) break;   // cut off
    const auto [name, value] = split_word(text.substr(0, end));
    text.remove_prefix(end + 1);
    if (name == "gpu") {
      const auto index = number_of<unsigned>(value);
      device.reset();
      if (!index || *index >= kMaxDevices) continue;
      device.emplace();
      device->gpu.index = index;
      device->gpu.health.emplace();
    } else if (device && name == "done") {
      answer.devices.push_back(std::move(*device));
      device.reset();
    } else if (device) {
      read_device_line(*device, name, value);
    } else if (name == "end") {
      answer.whole = true;
    } else if (name == "driver") {
      answer.driver = value;
    } else if (name == "count") {
      answer.count = std::min(number_of<unsigned>(value).value_or(0), kMaxDevices);
    } else if (name == "no-library") {
      answer.no_library = true;
      answer.reason = value;
    } else if (name == "refused" || name == "failed") {
      const auto [first, rest] = split_word(value);
      const auto [second, words] = split_word(rest);
      if (name == "refused") {
        answer.refused = number_of<int>(first).value_or(-1);
        answer.reason = rest;
      } else if (const auto index = number_of<unsigned>(first); index && *index < kMaxDevices) {
        answer.failed.emplace_back(*index, number_of<int>(second).value_or(-1));
        answer.why.emplace_back(*index, words);
      }
    } else if (name == "xid") {
      const auto [pci, number] = split_word(value);
      if (const auto xid = number_of<unsigned>(number)) answer.xids.emplace_back(pci, *xid);
    }
  }
  std::sort(answer.devices.begin(), answer.devices.end(), [](const NvmlDevice& a, const NvmlDevice& b) { return a.gpu.index < b.gpu.index; });
  return answer;
}

NvmlAnswer answer_of(HelperText text, std::string_view waited) {
  NvmlAnswer answer{.outcome = NvmlOutcome::kAnswered, .driver = std::move(text.driver), .devices = std::move(text.devices)};
  const auto say = [&](std::string message, std::string hint) { answer.problems.push_back({std::move(message), std::move(hint), ProblemCode::kGpu}); };
  if (text.no_library) {
    answer.outcome = NvmlOutcome::kNoLibrary;
    say(fmt::format("NVML: libnvidia-ml.so.1 cannot be loaded: {}", text.reason),
        "how the GPUs are is not in the report; it comes with the driver, into a container with NVIDIA_DRIVER_CAPABILITIES=compute,utility");
    return answer;
  }
  if (text.refused) {
    answer.outcome = NvmlOutcome::kRefused;
    say(fmt::format("NVML does not start: {}", text.reason), hint_of_refusal(*text.refused));
    return answer;
  }
  std::vector<bool> told(text.count);
  for (NvmlDevice& device : answer.devices) {
    GpuHealth& health = *device.gpu.health;
    health.driver = answer.driver;
    for (const auto& [pci, xid] : text.xids)
      if (device.gpu.pci.starts_with(pci + ".")) health.xids.push_back(xid);
    std::sort(health.xids.begin(), health.xids.end());
    health.xids.erase(std::unique(health.xids.begin(), health.xids.end()), health.xids.end());
    if (*device.gpu.index < told.size()) told[*device.gpu.index] = true;
  }
  for (std::size_t i = 0; i < text.failed.size(); ++i) {
    const auto [index, code] = text.failed[i];
    if (index < told.size()) told[index] = true;
    // A GPU that this container was not given is none of its job's.
    if (code == nvml::kNoPermission || code == nvml::kOperatingSystem) continue;
    say(fmt::format("NVML: GPU {}: {}", index, text.why[i].second), hint_of_refusal(code));
  }
  if (text.whole) return answer;
  std::vector<unsigned> missing;
  for (unsigned index = 0; index < told.size(); ++index)
    if (!told[index]) missing.push_back(index);
  if (answer.devices.empty()) answer.outcome = NvmlOutcome::kSilent;
  if (missing.empty() && !answer.devices.empty()) return answer;
  say(fmt::format("NVML: {} not answer within {}", missing.empty() ? "the driver does" : gpu_list(missing) + (missing.size() == 1 ? " does" : " do"), waited),
      "the driver hangs, as it does where a GPU has fallen off its bus: dmesg | grep -i xid; a reboot brings it back");
  return answer;
}

}  // namespace rankstacks::gpu
