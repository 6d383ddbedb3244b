#include "gpu/nvml_library.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <algorithm>
#include <cstring>
#include <limits>
#include <type_traits>

#include "gpu/machine_library.h"

namespace rankstacks::gpu {
namespace {

using nvml::kSuccess;

// Upper bounds for lists whose length the library states.
constexpr unsigned kMaxProcesses = kMaxDeviceProcesses, kMaxSamples = 1u << 14;

// Calls a function that returns one value through its last argument. std::nullopt if the function is missing or fails.
template <class T, class Function, class... Arguments>
std::optional<T> ask(Function function, Arguments... arguments) {
  T value{};
  if (function == nullptr || function(arguments..., &value) != kSuccess) return std::nullopt;
  return value;
}

template <class Function, class... First>
std::string ask_text(Function function, unsigned size, First... first) {
  char text[128] = "";
  if (function == nullptr || function(first..., text, std::min<unsigned>(size, sizeof text)) != kSuccess) return "";
  return std::string(text, strnlen(text, sizeof text));
}

std::optional<double> number_of(std::uint32_t type, const nvml::Value& value) {
  switch (type) {
    case nvml::kDouble: return value.as_double;
    case nvml::kU32: return value.as_u32;
    case nvml::kUnsignedLong:
    case nvml::kU64: return static_cast<double>(value.as_u64);
    case nvml::kI64: return static_cast<double>(value.as_i64);
    case nvml::kI32: return value.as_i32;
    default: return std::nullopt;
  }
}

struct MeasuredAt {
  std::uint64_t microseconds;
  double value;
};

// The driver's last samples of one kind whose values are between 0 and `most`; empty where it has none (MIG).
std::vector<MeasuredAt> read_samples(const nvml::Functions& nvml, nvml::Device device, int kind, double most) {
  std::uint32_t type = nvml::kU32;
  unsigned count = 0;
  if (nvml.samples == nullptr || nvml.samples(device, kind, 0, &type, &count, nullptr) != kSuccess || count == 0)
    return {};
  std::vector<nvml::Sample> samples(std::min(count, kMaxSamples));
  count = static_cast<unsigned>(samples.size());
  if (nvml.samples(device, kind, 0, &type, &count, samples.data()) != kSuccess) return {};
  samples.resize(std::min<std::size_t>(count, samples.size()));
  std::vector<MeasuredAt> measured;
  for (const nvml::Sample& sample : samples) {
    const auto value = number_of(type, sample.value);
    if (sample.microseconds != 0 && value && *value >= 0 && *value <= most)
      measured.push_back({sample.microseconds, *value});
  }
  return measured;
}

std::optional<double> mean_of(const std::vector<MeasuredAt>& samples) {
  if (samples.empty()) return std::nullopt;
  double sum = 0;
  for (const MeasuredAt& sample : samples) sum += sample.value;
  return sum / static_cast<double>(samples.size());
}

void read_utilization(const nvml::Functions& nvml, nvml::Device device, GpuHealth& health) {
  const auto samples = read_samples(nvml, device, nvml::kUtilizationSamples, 100);
  health.memory_utilization_mean = mean_of(read_samples(nvml, device, nvml::kMemoryUtilizationSamples, 100));
  health.utilization_mean = mean_of(samples);
  if (samples.empty()) return;
  double squares = 0;
  for (const MeasuredAt& sample : samples)
    squares += (sample.value - *health.utilization_mean) * (sample.value - *health.utilization_mean);
  health.utilization_variance = squares / static_cast<double>(samples.size());
}

void read_power(const nvml::Functions& nvml, nvml::Device device, GpuHealth& health) {
  constexpr std::uint64_t kRecent = 1'000'000;  // microseconds: older samples may be of an earlier kernel
  constexpr double kMaxMilliwatts = 1e8;
  if (const auto milliwatts = ask<unsigned>(nvml.power, device)) health.power_w = *milliwatts / 1000.0;
  if (const auto milliwatts = ask<unsigned>(nvml.power_limit, device)) health.power_limit_w = *milliwatts / 1000.0;
  auto samples = read_samples(nvml, device, nvml::kPowerSamples, kMaxMilliwatts);
  std::uint64_t newest = 0;
  for (const MeasuredAt& sample : samples) newest = std::max(newest, sample.microseconds);
  std::erase_if(samples, [&](const MeasuredAt& sample) { return newest - sample.microseconds > kRecent; });
  if (const auto milliwatts = mean_of(samples)) health.power_mean_w = *milliwatts / 1000.0;
}

void read_memory(const nvml::Functions& nvml, nvml::Device device, GpuHealth& health) {
  nvml::MemoryV2 two{};
  two.version = nvml::kMemoryV2;
  if (nvml.memory_v2 != nullptr && nvml.memory_v2(device, &two) == kSuccess) {
    health.memory_used = two.used;
    health.memory_total = two.total;
  } else if (const auto one = ask<nvml::Memory>(nvml.memory, device)) {
    health.memory_used = one->used;
    health.memory_total = one->total;
  }
}

void read_throttling(const nvml::Functions& nvml, nvml::Device device, GpuHealth& health) {
  static constexpr std::pair<std::uint64_t, const char*> kWords[] = {
      {nvml::kReasonApplicationClocks, "application-clocks"},
      {nvml::kReasonSwPowerCap, "sw-power-cap"},
      {nvml::kReasonHwSlowdown, "hw-slowdown"},
      {nvml::kReasonSyncBoost, "sync-boost"},
      {nvml::kReasonSwThermal, "sw-thermal-slowdown"},
      {nvml::kReasonHwThermal, "hw-thermal-slowdown"},
      {nvml::kReasonHwPowerBrake, "hw-power-brake"},
      {nvml::kReasonDisplayClocks, "display-clocks"}};
  std::uint64_t reasons = ask<unsigned long long>(nvml.throttle, device).value_or(0) & ~nvml::kReasonIdle;
  for (const auto& [bit, word] : kWords) {
    if ((reasons & bit) != 0) health.throttle.emplace_back(word);
    reasons &= ~bit;
  }
  if (reasons != 0) health.throttle.push_back(fmt::format("reason-{:#x}", reasons));
}

void read_remapped_rows(const nvml::Functions& nvml, nvml::Device device, GpuHealth& health) {
  unsigned corrected = 0, uncorrected = 0, pending = 0, failed = 0;
  if (nvml.remapped_rows == nullptr ||
      nvml.remapped_rows(device, &corrected, &uncorrected, &pending, &failed) != kSuccess)
    return;
  health.remapped_rows = corrected + uncorrected;
  health.remap_pending = pending != 0;
  health.remap_failed = failed != 0;
}

std::optional<std::uint64_t> field_of(const nvml::Functions& nvml, nvml::Device device, std::uint32_t field,
                                      std::uint32_t scope) {
  nvml::FieldValue value{.field = field, .scope = scope};
  if (nvml.field_values == nullptr || nvml.field_values(device, 1, &value) != kSuccess || value.result != kSuccess)
    return std::nullopt;
  const auto number = number_of(value.type, value.value);
  if (!number || *number < 0) return std::nullopt;
  return value.type == nvml::kU64 || value.type == nvml::kUnsignedLong ? value.value.as_u64
                                                                       : static_cast<std::uint64_t>(*number);
}

// The number of errors of one link; std::nullopt if none of its counters can be read.
std::optional<std::uint64_t> link_errors(const nvml::Functions& nvml, nvml::Device device, unsigned link) {
  std::optional<std::uint64_t> sum;
  const auto add = [&](std::optional<std::uint64_t> count) {
    if (count && *count != nvml::kNotAvailable) sum = sum.value_or(0) + *count;
  };
  for (int kind = 0; kind < nvml::kLinkErrorKinds; ++kind)
    add(ask<unsigned long long>(nvml.link_errors, device, link, kind));
  if (sum) return sum;
  for (const std::uint32_t field : {nvml::kFieldLinkReplays, nvml::kFieldLinkRecoveries, nvml::kFieldLinkCrc})
    add(field_of(nvml, device, field, link));
  return sum;
}

void read_links(const nvml::Functions& nvml, nvml::Device device, GpuHealth& health) {
  const auto stated = field_of(nvml, device, nvml::kFieldLinkCount, 0);
  const unsigned most =
      stated ? static_cast<unsigned>(std::min<std::uint64_t>(*stated, 4 * nvml::kMaxLinks)) : nvml::kMaxLinks;
  unsigned links = 0, up = 0;
  for (unsigned link = 0; link < most; ++link) {
    std::optional<std::uint64_t> state = ask<unsigned>(nvml.link_state, device, link);
    if (!state) state = field_of(nvml, device, nvml::kFieldLinkState, link);
    if (!state) continue;
    ++links;
    if (*state == 0) {
      health.nvlinks_down.push_back(link);
      continue;
    }
    ++up;
    if (const auto errors = link_errors(nvml, device, link))
      health.nvlink_errors = health.nvlink_errors.value_or(0) + *errors;
  }
  if (links == 0 && !stated) return;  // the driver does not report links: it is not known how many there are
  health.nvlinks = links;
  health.nvlinks_up = up;
}

// Rows are 24 bytes long, or 32 bytes with some drivers. The memory for the rows is filled with a pattern first: how
// much of it the library has overwritten shows the length of a row.
using ListFunction = nvml::Return (*)(nvml::Device, unsigned*, void*);
std::optional<std::vector<NvmlProcess>> read_processes(ListFunction list, nvml::Device device) {
  constexpr std::size_t kRow = sizeof(nvml::ProcessInfo), kLongRow = kRow + 8;
  constexpr std::uint8_t kPattern = 0xa5;
  if (list == nullptr) return std::nullopt;
  for (unsigned room = 64; room <= kMaxProcesses;) {
    std::vector<std::uint8_t> rows(room * kLongRow, kPattern);
    unsigned count = room;
    const nvml::Return result = list(device, &count, rows.data());
    if (result == nvml::kInsufficientSize) {
      room = std::max(room * 2, std::min(count, kMaxProcesses) + 16);  // more processes may have started meanwhile
      continue;
    }
    if (result != kSuccess || count > room) return std::nullopt;
    const auto last = std::find_if(rows.rbegin(), rows.rend(), [](std::uint8_t byte) { return byte != kPattern; });
    const std::size_t written = static_cast<std::size_t>(rows.rend() - last);
    std::vector<NvmlProcess> processes;
    std::size_t stride = written > count * kRow ? kLongRow : kRow;
    if (written > count * kLongRow) {
      // More was written than the longest rows take. If it is all zeros, the library has cleared the whole buffer
      // first, and the rows are short ones; else the layout is unknown.
      if (std::any_of(rows.begin() + static_cast<std::ptrdiff_t>(count * kRow),
                      rows.begin() + static_cast<std::ptrdiff_t>(written), [](std::uint8_t byte) { return byte != 0; }))
        return std::nullopt;
      stride = kRow;
    }
    for (std::size_t i = 0; i < count; ++i) {
      nvml::ProcessInfo row;
      std::memcpy(&row, rows.data() + i * stride, sizeof row);
      if (row.pid > static_cast<std::uint32_t>(std::numeric_limits<Pid>::max())) continue;
      NvmlProcess process{.pid = static_cast<Pid>(row.pid)};
      if (row.memory != nvml::kNotAvailable) process.memory = row.memory;
      processes.push_back(process);
    }
    return processes;
  }
  return std::nullopt;
}

// A process may be in both lists (MPS), and with MIG it is listed once for each instance that it uses.
std::optional<std::vector<NvmlProcess>> all_processes(const nvml::Functions& nvml, nvml::Device device) {
  auto all = read_processes(nvml.compute_processes, device);
  if (!all) return all;
  const std::size_t compute = all->size();
  for (NvmlProcess p : read_processes(nvml.mps_processes, device).value_or(std::vector<NvmlProcess>{})) {
    bool known = false;
    for (std::size_t i = 0; i < compute; ++i)
      if (p.pid != 0 && (*all)[i].pid == p.pid) known = (*all)[i].mps = true;
    p.mps = true;
    if (!known) all->push_back(p);
  }
  std::stable_sort(all->begin(), all->end(), [](const NvmlProcess& a, const NvmlProcess& b) { return a.pid < b.pid; });
  std::vector<NvmlProcess> merged;
  for (const NvmlProcess& p : *all) {
    if (p.pid == 0 || merged.empty() || merged.back().pid != p.pid) merged.push_back(p);
    else if (p.memory) merged.back().memory = merged.back().memory.value_or(0) + *p.memory;
  }
  return merged;
}

}  // namespace

Result<NvmlLibrary> NvmlLibrary::open(const Machine& machine) {
  const auto found = find_machine_libraries(kManagementLibrary, machine);
  if (!found)
    return fail({.code = ErrorCode::kNotFound, .subject = kManagementLibrary, .what = found.error().message()});
  Result<void*> loaded = load(found->front());
  for (std::size_t i = 1; i < found->size() && !loaded; ++i) loaded = load((*found)[i]);
  if (!loaded)
    return fail({.code = ErrorCode::kNotFound, .subject = kManagementLibrary, .what = loaded.error().message()});
  void* const library = *loaded;

  const auto find = [&](auto& function, auto... names) {
    for (const char* name : {names...})
      if (function == nullptr)
        function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(library, name));
  };
  NvmlLibrary opened;
  nvml::Functions& n = opened.nvml_;
  find(n.init, "nvmlInit_v2");
  find(n.error_string, "nvmlErrorString");
  find(n.driver_version, "nvmlSystemGetDriverVersion");
  find(n.count, "nvmlDeviceGetCount_v2");
  find(n.by_index, "nvmlDeviceGetHandleByIndex_v2");
  find(n.pci_info, "nvmlDeviceGetPciInfo_v3");
  find(n.uuid, "nvmlDeviceGetUUID");
  find(n.name, "nvmlDeviceGetName");
  find(n.minor, "nvmlDeviceGetMinorNumber");
  find(n.compute_processes, "nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2");
  find(n.mps_processes, "nvmlDeviceGetMPSComputeRunningProcesses_v3", "nvmlDeviceGetMPSComputeRunningProcesses_v2");
  find(n.samples, "nvmlDeviceGetSamples");
  find(n.memory, "nvmlDeviceGetMemoryInfo");
  find(n.memory_v2, "nvmlDeviceGetMemoryInfo_v2");
  find(n.clock, "nvmlDeviceGetClockInfo");
  find(n.max_clock, "nvmlDeviceGetMaxClockInfo");
  find(n.throttle, "nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons");
  find(n.power, "nvmlDeviceGetPowerUsage");
  find(n.power_limit, "nvmlDeviceGetEnforcedPowerLimit");
  find(n.temperature, "nvmlDeviceGetTemperature");
  find(n.ecc, "nvmlDeviceGetTotalEccErrors");
  find(n.remapped_rows, "nvmlDeviceGetRemappedRows");
  find(n.link_state, "nvmlDeviceGetNvLinkState");
  find(n.link_errors, "nvmlDeviceGetNvLinkErrorCounter");
  find(n.field_values, "nvmlDeviceGetFieldValues");
  find(n.pcie_width, "nvmlDeviceGetCurrPcieLinkWidth");
  find(n.pcie_width_max, "nvmlDeviceGetMaxPcieLinkWidth");
  find(n.pcie_generation, "nvmlDeviceGetCurrPcieLinkGeneration");
  find(n.pcie_generation_max, "nvmlDeviceGetMaxPcieLinkGeneration");
  find(n.mig_mode, "nvmlDeviceGetMigMode");
  if (n.init == nullptr || n.count == nullptr || n.by_index == nullptr)
    return fail({.code = ErrorCode::kUnsupported,
                 .subject = kManagementLibrary,
                 .what = "it has no nvmlInit_v2, nvmlDeviceGetCount_v2 or nvmlDeviceGetHandleByIndex_v2"});
  return opened;
}

nvml::Return NvmlLibrary::start() const { return nvml_.init(); }

std::string NvmlLibrary::driver_version() const { return ask_text(nvml_.driver_version, nvml::kDriverSize); }

unsigned NvmlLibrary::device_count() const { return std::min(ask<unsigned>(nvml_.count).value_or(0), kMaxDevices); }

std::string NvmlLibrary::words_for(nvml::Return code) const {
  const char* words = nvml_.error_string == nullptr ? nullptr : nvml_.error_string(code);
  return words == nullptr ? fmt::format("error {}", code) : words;
}

NvmlLibrary::Device NvmlLibrary::read_device(unsigned index) const {
  Device read;
  nvml::Device handle = nullptr;
  read.result = nvml_.by_index(index, &handle);
  if (read.result != kSuccess) return read;
  NvmlDevice& device = read.device;
  device.gpu.index = index;
  GpuHealth& health = device.gpu.health.emplace();
  if (const auto pci = ask<nvml::PciInfo>(nvml_.pci_info, handle))
    device.gpu.pci = full_pci_address(pci->domain, pci->bus, pci->device);
  device.gpu.uuid = ask_text(nvml_.uuid, nvml::kUuidSize, handle);
  device.gpu.name = ask_text(nvml_.name, nvml::kNameSize, handle);
  device.minor = ask<unsigned>(nvml_.minor, handle);
  unsigned mig = 0, pending = 0;
  if (nvml_.mig_mode != nullptr && nvml_.mig_mode(handle, &mig, &pending) == kSuccess) device.mig = mig != 0;
  device.processes = all_processes(nvml_, handle);

  read_utilization(nvml_, handle, health);
  read_memory(nvml_, handle, health);
  health.sm_clock = ask<unsigned>(nvml_.clock, handle, nvml::kClockSm);
  health.sm_clock_max = ask<unsigned>(nvml_.max_clock, handle, nvml::kClockSm);
  health.memory_clock = ask<unsigned>(nvml_.clock, handle, nvml::kClockMemory);
  health.memory_clock_max = ask<unsigned>(nvml_.max_clock, handle, nvml::kClockMemory);
  read_throttling(nvml_, handle, health);
  read_power(nvml_, handle, health);
  if (const auto degrees = ask<unsigned>(nvml_.temperature, handle, nvml::kGpuSensor)) health.temperature_c = *degrees;
  health.ecc_corrected = ask<unsigned long long>(nvml_.ecc, handle, nvml::kCorrected, nvml::kSinceDriverLoad);
  health.ecc_uncorrected = ask<unsigned long long>(nvml_.ecc, handle, nvml::kUncorrected, nvml::kSinceDriverLoad);
  read_remapped_rows(nvml_, handle, health);
  read_links(nvml_, handle, health);
  health.pcie_width = ask<unsigned>(nvml_.pcie_width, handle);
  health.pcie_width_max = ask<unsigned>(nvml_.pcie_width_max, handle);
  health.pcie_generation = ask<unsigned>(nvml_.pcie_generation, handle);
  health.pcie_generation_max = ask<unsigned>(nvml_.pcie_generation_max, handle);
  return read;
}

}  // namespace rankstacks::gpu
