// Compares src/gpu/nvml_layouts.h with NVIDIA's own header, if a build is given it (RANKSTACKS_CUDA_HEADERS).
#include <nvml.h>
#include <cstddef>
#include <type_traits>

#include "gpu/nvml_layouts.h"

namespace ours = rankstacks::gpu::nvml;

#define SAME_SIZE(mine, theirs) \
  static_assert(sizeof(ours::mine) == sizeof(theirs) && alignof(ours::mine) == alignof(theirs))
#define SAME_MEMBER(mine, member, theirs, their_member)                           \
  static_assert(offsetof(ours::mine, member) == offsetof(theirs, their_member) && \
                sizeof(ours::mine::member) == sizeof(theirs::their_member))

SAME_SIZE(PciInfo, nvmlPciInfo_t);
SAME_MEMBER(PciInfo, domain, nvmlPciInfo_t, domain);
SAME_MEMBER(PciInfo, bus, nvmlPciInfo_t, bus);
SAME_MEMBER(PciInfo, device, nvmlPciInfo_t, device);
SAME_MEMBER(PciInfo, bus_id, nvmlPciInfo_t, busId);
SAME_SIZE(Memory, nvmlMemory_t);
SAME_MEMBER(Memory, total, nvmlMemory_t, total);
SAME_MEMBER(Memory, free, nvmlMemory_t, free);
SAME_MEMBER(Memory, used, nvmlMemory_t, used);
SAME_SIZE(MemoryV2, nvmlMemory_v2_t);
SAME_MEMBER(MemoryV2, version, nvmlMemory_v2_t, version);
SAME_MEMBER(MemoryV2, total, nvmlMemory_v2_t, total);
SAME_MEMBER(MemoryV2, reserved, nvmlMemory_v2_t, reserved);
SAME_MEMBER(MemoryV2, free, nvmlMemory_v2_t, free);
SAME_MEMBER(MemoryV2, used, nvmlMemory_v2_t, used);
static_assert(ours::kMemoryV2 == nvmlMemory_v2);
SAME_SIZE(ProcessInfo, nvmlProcessInfo_t);
SAME_SIZE(ProcessInfo, nvmlProcessInfo_v2_t);
SAME_MEMBER(ProcessInfo, pid, nvmlProcessInfo_t, pid);
SAME_MEMBER(ProcessInfo, memory, nvmlProcessInfo_t, usedGpuMemory);
SAME_MEMBER(ProcessInfo, gpu_instance, nvmlProcessInfo_t, gpuInstanceId);
SAME_SIZE(Value, nvmlValue_t);
SAME_SIZE(Sample, nvmlSample_t);
SAME_MEMBER(Sample, microseconds, nvmlSample_t, timeStamp);
SAME_MEMBER(Sample, value, nvmlSample_t, sampleValue);
SAME_SIZE(FieldValue, nvmlFieldValue_t);
SAME_MEMBER(FieldValue, field, nvmlFieldValue_t, fieldId);
SAME_MEMBER(FieldValue, scope, nvmlFieldValue_t, scopeId);
SAME_MEMBER(FieldValue, microseconds, nvmlFieldValue_t, timestamp);
SAME_MEMBER(FieldValue, type, nvmlFieldValue_t, valueType);
SAME_MEMBER(FieldValue, result, nvmlFieldValue_t, nvmlReturn);
SAME_MEMBER(FieldValue, value, nvmlFieldValue_t, value);

static_assert(ours::kSuccess == NVML_SUCCESS && ours::kNotSupported == NVML_ERROR_NOT_SUPPORTED &&
              ours::kNoPermission == NVML_ERROR_NO_PERMISSION);
static_assert(ours::kInsufficientSize == NVML_ERROR_INSUFFICIENT_SIZE &&
              ours::kDriverNotLoaded == NVML_ERROR_DRIVER_NOT_LOADED);
static_assert(ours::kGpuIsLost == NVML_ERROR_GPU_IS_LOST && ours::kOperatingSystem == NVML_ERROR_OPERATING_SYSTEM &&
              ours::kVersionMismatch == NVML_ERROR_LIB_RM_VERSION_MISMATCH);
static_assert(ours::kDouble == NVML_VALUE_TYPE_DOUBLE && ours::kU32 == NVML_VALUE_TYPE_UNSIGNED_INT &&
              ours::kUnsignedLong == NVML_VALUE_TYPE_UNSIGNED_LONG);
static_assert(ours::kU64 == NVML_VALUE_TYPE_UNSIGNED_LONG_LONG && ours::kI64 == NVML_VALUE_TYPE_SIGNED_LONG_LONG &&
              ours::kI32 == NVML_VALUE_TYPE_SIGNED_INT);
static_assert(ours::kUtilizationSamples == NVML_GPU_UTILIZATION_SAMPLES &&
              ours::kPowerSamples == NVML_TOTAL_POWER_SAMPLES &&
              ours::kMemoryUtilizationSamples == NVML_MEMORY_UTILIZATION_SAMPLES && ours::kClockSm == NVML_CLOCK_SM &&
              ours::kClockMemory == NVML_CLOCK_MEM);
static_assert(ours::kGpuSensor == NVML_TEMPERATURE_GPU && ours::kCorrected == NVML_MEMORY_ERROR_TYPE_CORRECTED &&
              ours::kUncorrected == NVML_MEMORY_ERROR_TYPE_UNCORRECTED);
static_assert(ours::kSinceDriverLoad == NVML_VOLATILE_ECC && ours::kLinkErrorKinds == NVML_NVLINK_ERROR_COUNT &&
              ours::kMaxLinks == NVML_NVLINK_MAX_LINKS);
static_assert(ours::kFieldLinkCount == NVML_FI_DEV_NVLINK_LINK_COUNT &&
              ours::kFieldLinkReplays == NVML_FI_DEV_NVLINK_ERROR_DL_REPLAY);
static_assert(ours::kFieldLinkRecoveries == NVML_FI_DEV_NVLINK_ERROR_DL_RECOVERY &&
              ours::kFieldLinkCrc == NVML_FI_DEV_NVLINK_ERROR_DL_CRC);
static_assert(ours::kFieldLinkState == NVML_FI_DEV_NVLINK_GET_STATE);
static_assert(ours::kReasonIdle == nvmlClocksEventReasonGpuIdle &&
              ours::kReasonApplicationClocks == nvmlClocksEventReasonApplicationsClocksSetting);
static_assert(ours::kReasonSwPowerCap == nvmlClocksEventReasonSwPowerCap &&
              ours::kReasonHwSlowdown == nvmlClocksThrottleReasonHwSlowdown);
static_assert(ours::kReasonSyncBoost == nvmlClocksEventReasonSyncBoost &&
              ours::kReasonSwThermal == nvmlClocksEventReasonSwThermalSlowdown);
static_assert(ours::kReasonHwThermal == nvmlClocksThrottleReasonHwThermalSlowdown &&
              ours::kReasonHwPowerBrake == nvmlClocksThrottleReasonHwPowerBrakeSlowdown);
static_assert(ours::kReasonDisplayClocks == nvmlClocksEventReasonDisplayClockSetting);
static_assert(ours::kUuidSize == NVML_DEVICE_UUID_V2_BUFFER_SIZE &&
              ours::kNameSize == NVML_DEVICE_NAME_V2_BUFFER_SIZE &&
              ours::kDriverSize == NVML_SYSTEM_DRIVER_VERSION_BUFFER_SIZE);

// Functions: enumerations are passed as int or unsigned, pointers to structs as pointers to ours. Each parameter must
// agree in kind.
template <class Mine, class Theirs>
constexpr bool alike() {
  if constexpr (std::is_pointer_v<Mine> && std::is_pointer_v<Theirs>) return true;
  else return std::is_pointer_v<Mine> == std::is_pointer_v<Theirs> && sizeof(Mine) == sizeof(Theirs);
}
template <class Mine, class Theirs>
struct Same;
template <class R1, class... Mine, class R2, class... Theirs>
struct Same<R1 (*)(Mine...), R2 (*)(Theirs...)> {
  static constexpr bool value = [] {
    if constexpr (sizeof...(Mine) != sizeof...(Theirs)) return false;
    else return alike<R1, R2>() && (alike<Mine, Theirs>() && ...);
  }();
};
#define SAME_CALL(mine, theirs) static_assert(Same<decltype(ours::Functions::mine), decltype(&theirs)>::value)
SAME_CALL(init, nvmlInit_v2);
SAME_CALL(error_string, nvmlErrorString);
SAME_CALL(driver_version, nvmlSystemGetDriverVersion);
SAME_CALL(count, nvmlDeviceGetCount_v2);
SAME_CALL(by_index, nvmlDeviceGetHandleByIndex_v2);
SAME_CALL(pci_info, nvmlDeviceGetPciInfo_v3);
SAME_CALL(uuid, nvmlDeviceGetUUID);
SAME_CALL(name, nvmlDeviceGetName);
SAME_CALL(minor, nvmlDeviceGetMinorNumber);
SAME_CALL(compute_processes, nvmlDeviceGetComputeRunningProcesses_v3);
SAME_CALL(mps_processes, nvmlDeviceGetMPSComputeRunningProcesses_v3);
SAME_CALL(samples, nvmlDeviceGetSamples);
SAME_CALL(memory, nvmlDeviceGetMemoryInfo);
SAME_CALL(memory_v2, nvmlDeviceGetMemoryInfo_v2);
SAME_CALL(clock, nvmlDeviceGetClockInfo);
SAME_CALL(max_clock, nvmlDeviceGetMaxClockInfo);
SAME_CALL(throttle, nvmlDeviceGetCurrentClocksEventReasons);
SAME_CALL(power, nvmlDeviceGetPowerUsage);
SAME_CALL(power_limit, nvmlDeviceGetEnforcedPowerLimit);
SAME_CALL(temperature, nvmlDeviceGetTemperature);
SAME_CALL(ecc, nvmlDeviceGetTotalEccErrors);
SAME_CALL(remapped_rows, nvmlDeviceGetRemappedRows);
SAME_CALL(link_state, nvmlDeviceGetNvLinkState);
SAME_CALL(link_errors, nvmlDeviceGetNvLinkErrorCounter);
SAME_CALL(field_values, nvmlDeviceGetFieldValues);
SAME_CALL(pcie_width, nvmlDeviceGetCurrPcieLinkWidth);
SAME_CALL(pcie_width_max, nvmlDeviceGetMaxPcieLinkWidth);
SAME_CALL(pcie_generation, nvmlDeviceGetCurrPcieLinkGeneration);
SAME_CALL(pcie_generation_max, nvmlDeviceGetMaxPcieLinkGeneration);
SAME_CALL(mig_mode, nvmlDeviceGetMigMode);
