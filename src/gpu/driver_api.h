// The part of the CUDA debugger API that this project uses: slots of the driver's function table and layouts, under the
// project's own names.
//
// Source of each fact: cudadebugger.h of CUDA 12.4 to 13.0 (extras/Debugger/include of the toolkit). The table is
// append-only and every slot keeps its meaning; a call that changed got a new slot, and the name of the old slot got
// the version as a suffix. tests/gpu/layouts/ checks all of it against the header if a build is given one
// (RANKSTACKS_CUDA_HEADERS).
#pragma once

#include <cstddef>
#include <cstdint>

namespace rankstacks::gpu::api {

// The version that is requested: revision 163 belongs to CUDA 13.0, and drivers of the same major version continue to
// offer it. An older driver gets its own version.
inline constexpr std::uint32_t kMajor = 13, kMinor = 0, kRevision = 163;
// getDeviceInfo came with 12.4, readAllVirtualReturnAddresses with 12.5.
inline constexpr std::uint32_t kOldestMajor = 12, kOldestMinor = 4;

using Result = std::uint32_t;  // CUDBGResult
inline constexpr Result kSuccess = 0x00, kNoEvent = 0x16, kAttachNotPossible = 0x28, kNotSupported = 0x2e;

// Index into CUDBGAPI_st.
enum class Slot : std::size_t {
  kInitialize = 0,
  kFinalize = 1,
  kSuspendDevice = 2,
  kResumeDevice = 3,
  kGetSmType = 34,
  kGetNumSms = 36,
  kReadCallDepth = 67,
  kReadVirtualReturnAddress = 69,
  kSetNotifyNewEventCallback = 73,  // setNotifyNewEventCallback41 from 13.0 on: the same call
  kClearAttachState = 76,
  kAcknowledgeSyncEvents = 79,
  kSetKernelLaunchNotificationMode = 89,
  kGetDevicePciBusInfo = 90,
  kGetNextEvent = 94,
  kGetElfImageByHandle = 95,
  kRequestCleanupOnDetach = 105,
  kGetDeviceName = 111,
  kGetGridInfo = 121,  // getGridInfo120: with the layout of 12.0
  kGenerateCoredump = 127,
  kGetDeviceInfoSizes = 129,
  kGetDeviceInfo = 130,
  kReadAllVirtualReturnAddresses = 133,  // 12.5
  kReadSmException = 135,                // 12.5
};

enum class EventKind : std::uint32_t {
  kElfImageLoaded = 1,
  kInternalError = 4,
  kContextCreate = 7,
  kContextDestroy = 8,
  kAttachComplete = 10,
  kDetachComplete = 11,
  kElfImageUnloaded = 12,
};
inline constexpr std::uint32_t kSyncQueue = 0, kAsyncQueue = 1;
inline constexpr std::uint32_t kDeferLaunchNotifications = 1;
inline constexpr std::uint32_t kRelocatedImage = 1;
inline constexpr std::uint32_t kFullDeviceInfo = 0;

// cudbgDebuggerCapabilities: the debugger handles functions that are loaded lazily, wants exceptions of warps that have
// exited, and wants no events for pushed and popped contexts. Without the first the driver refuses with kNotSupported.
inline constexpr std::uint32_t kCapabilities = 1u << 0 | 1u << 2 | 1u << 3;

// Skips non-relocated images and global, shared, local and constant memory; keeps headers, states and relocated images.
inline constexpr std::uint32_t kLightweightCore = 1u << 0 | 1u << 1 | 1u << 2 | 1u << 3 | 1u << 5;

#pragma pack(push, 1)
struct Dim3 {
  std::uint32_t x, y, z;
};

// CUDBGEvent: the kind, then a union packed without gaps. `room` is for whatever newer drivers put there.
struct Event {
  EventKind kind;
  union {
    struct {
      std::uint32_t device;
      std::uint64_t context, module, size, handle;
      std::uint32_t properties;
    } image;  // loaded; unloaded: the same without properties
    struct {
      std::uint32_t device, tid;
      std::uint64_t context;
    } context;
    std::uint32_t error;
    std::byte room[508];
  };
};

struct GridInfo {  // CUDBGGridInfo120
  std::uint32_t device;
  std::uint64_t id;
  std::uint32_t tid;
  std::uint64_t context, module, function, entry;
  Dim3 grid, block;
  std::uint32_t type;
  std::uint64_t parent;
  std::uint32_t origin;
  Dim3 cluster;
};

// The length of each piece of getDeviceInfo's answer. An attribute follows its struct if its bit is set in the struct's
// flags, lowest bit first.
struct DeviceInfoSizes {
  std::uint32_t buffer;
  std::uint32_t device, device_attribute[32];
  std::uint32_t sm, sm_attribute[32];
  std::uint32_t warp, warp_attribute[32];
  std::uint32_t lane, lane_attribute[32];
};
struct DeviceInfo {
  std::uint32_t response, flags;
};
struct SmInfo {
  std::uint64_t valid_warps, broken_warps;
  std::uint32_t flags;
};
struct WarpInfo {
  std::uint64_t grid;
  Dim3 block, first_thread;
  std::uint32_t valid_lanes, active_lanes, flags;
};
struct LaneInfo {
  std::uint64_t pc;
};
#pragma pack(pop)

// Attribute bits of the four structs above.
inline constexpr unsigned kDeviceUpdated = 0, kDeviceActiveSms = 1, kDeviceExceptionSms = 2;
inline constexpr unsigned kSmUpdated = 0;
inline constexpr unsigned kWarpUpdated = 0, kWarpLaneAttributes = 1, kWarpException = 2, kWarpErrorPc = 3;

inline constexpr std::uint32_t kMaxDevices = 64;

}  // namespace rankstacks::gpu::api
