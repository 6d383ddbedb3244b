// The part of NVML's binary interface that is used: struct layouts, constants and names, as in NVIDIA's nvml.h (CUDA
// 12.4). They have not changed since NVML introduced versioned names (v2, v3: 2020, driver 450), because a changed call
// gets a new name. tests/gpu/layouts/nvml.cc compares them with the header.
#pragma once

#include <cstdint>

namespace rankstacks::gpu::nvml {

using Return = int;    // nvmlReturn_t
using Device = void*;  // nvmlDevice_t: opaque

inline constexpr Return kSuccess = 0, kNotSupported = 3, kNoPermission = 4, kInsufficientSize = 7, kDriverNotLoaded = 9,
                        kGpuIsLost = 15, kOperatingSystem = 17, kVersionMismatch = 18;

// nvmlDeviceGetPciInfo_v3
struct PciInfo {
  char short_bus_id[16];
  std::uint32_t domain, bus, device, device_id, subsystem_id;
  char bus_id[32];
};

// nvmlDeviceGetMemoryInfo; `used` includes the memory that the driver reserves for itself.
struct Memory {
  std::uint64_t total, free, used;
};

// nvmlDeviceGetMemoryInfo_v2; `version` is its size with the number 2 in the topmost byte.
struct MemoryV2 {
  std::uint32_t version;
  std::uint64_t total, reserved, free, used;
};
inline constexpr std::uint32_t kMemoryV2 = sizeof(MemoryV2) | 2u << 24;

// nvmlDeviceGetComputeRunningProcesses_v3 and _v2. Some drivers (535.43 to 535.86) had eight more bytes at its end
// under the same name.
struct ProcessInfo {
  std::uint32_t pid;
  std::uint64_t memory;  // kNotAvailable: not reported
  std::uint32_t gpu_instance, compute_instance;
};
inline constexpr std::uint64_t kNotAvailable = ~std::uint64_t{0};

union Value {
  double as_double;
  std::int32_t as_i32;
  std::uint32_t as_u32;
  std::uint64_t as_u64;
  std::int64_t as_i64;
};
// nvmlValueType_t
inline constexpr std::uint32_t kDouble = 0, kU32 = 1, kUnsignedLong = 2, kU64 = 3, kI64 = 4, kI32 = 5;

// nvmlDeviceGetSamples
struct Sample {
  std::uint64_t microseconds;  // 0: no sample was taken
  Value value;
};
// nvmlSamplingType_t: milliwatts; percent of the time during which some kernel ran; percent of the time during which
// the device's memory was read or written
inline constexpr int kPowerSamples = 0, kUtilizationSamples = 1, kMemoryUtilizationSamples = 2;

// nvmlDeviceGetFieldValues
struct FieldValue {
  std::uint32_t field, scope;  // scope: the link, for NVLink fields
  std::int64_t microseconds, latency;
  std::uint32_t type;
  Return result;
  Value value;
};
inline constexpr std::uint32_t kFieldLinkCount = 91, kFieldLinkReplays = 161, kFieldLinkRecoveries = 162,
                               kFieldLinkCrc = 163, kFieldLinkState = 165;

inline constexpr int kClockSm = 1, kClockMemory = 2;
inline constexpr int kGpuSensor = 0;
inline constexpr int kCorrected = 0, kUncorrected = 1;  // nvmlMemoryErrorType_t
inline constexpr int kSinceDriverLoad = 0;              // nvmlEccCounterType_t
inline constexpr int kLinkErrorKinds = 5;  // nvmlNvLinkErrorCounter_t: replay, recovery, CRC of flits, of data, ECC
inline constexpr unsigned kMaxLinks = 18;

// nvmlClocksEventReasons, called nvmlClocksThrottleReasons up to CUDA 12.1.
inline constexpr std::uint64_t kReasonIdle = 0x1, kReasonApplicationClocks = 0x2, kReasonSwPowerCap = 0x4,
                               kReasonHwSlowdown = 0x8, kReasonSyncBoost = 0x10, kReasonSwThermal = 0x20,
                               kReasonHwThermal = 0x40, kReasonHwPowerBrake = 0x80, kReasonDisplayClocks = 0x100;

inline constexpr unsigned kUuidSize = 96, kNameSize = 96, kDriverSize = 80;

// All functions that are used. Each may be nullptr, as the library of an older or a newer driver may lack it.
struct Functions {
  Return (*init)() = nullptr;
  const char* (*error_string)(Return) = nullptr;
  Return (*driver_version)(char*, unsigned) = nullptr;
  Return (*count)(unsigned*) = nullptr;
  Return (*by_index)(unsigned, Device*) = nullptr;
  Return (*pci_info)(Device, PciInfo*) = nullptr;
  Return (*uuid)(Device, char*, unsigned) = nullptr;
  Return (*name)(Device, char*, unsigned) = nullptr;
  Return (*minor)(Device, unsigned*) = nullptr;
  Return (*compute_processes)(Device, unsigned*, void*) = nullptr;
  Return (*mps_processes)(Device, unsigned*, void*) = nullptr;
  Return (*samples)(Device, int, unsigned long long, std::uint32_t*, unsigned*, Sample*) = nullptr;
  Return (*memory)(Device, Memory*) = nullptr;
  Return (*memory_v2)(Device, MemoryV2*) = nullptr;
  Return (*clock)(Device, int, unsigned*) = nullptr;
  Return (*max_clock)(Device, int, unsigned*) = nullptr;
  Return (*throttle)(Device, unsigned long long*) = nullptr;
  Return (*power)(Device, unsigned*) = nullptr;  // milliwatts
  Return (*power_limit)(Device, unsigned*) = nullptr;
  Return (*temperature)(Device, int, unsigned*) = nullptr;
  Return (*ecc)(Device, int, int, unsigned long long*) = nullptr;
  // corrected, uncorrected, pending, failed
  Return (*remapped_rows)(Device, unsigned*, unsigned*, unsigned*, unsigned*) = nullptr;
  Return (*link_state)(Device, unsigned, unsigned*) = nullptr;
  Return (*link_errors)(Device, unsigned, int, unsigned long long*) = nullptr;
  Return (*field_values)(Device, int, FieldValue*) = nullptr;
  Return (*pcie_width)(Device, unsigned*) = nullptr;
  Return (*pcie_width_max)(Device, unsigned*) = nullptr;
  Return (*pcie_generation)(Device, unsigned*) = nullptr;
  Return (*pcie_generation_max)(Device, unsigned*) = nullptr;
  Return (*mig_mode)(Device, unsigned*, unsigned*) = nullptr;  // current, pending
};

}  // namespace rankstacks::gpu::nvml
