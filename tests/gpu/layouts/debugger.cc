// Slots and layouts of the debugger API, checked at compile time against the toolkit's header.
#include <cstddef>

#include <cudadebugger.h>

#include "gpu/driver_api.h"

namespace api = rankstacks::gpu::api;

#define SLOT(ours, theirs) \
  static_assert(static_cast<std::size_t>(api::Slot::ours) * sizeof(void*) == offsetof(CUDBGAPI_st, theirs))
SLOT(kInitialize, initialize);
SLOT(kFinalize, finalize);
SLOT(kSuspendDevice, suspendDevice);
SLOT(kResumeDevice, resumeDevice);
SLOT(kGetSmType, getSmType);
SLOT(kGetNumSms, getNumSMs);
SLOT(kReadCallDepth, readCallDepth);
SLOT(kReadVirtualReturnAddress, readVirtualReturnAddress);
SLOT(kClearAttachState, clearAttachState);
SLOT(kAcknowledgeSyncEvents, acknowledgeSyncEvents);
SLOT(kSetKernelLaunchNotificationMode, setKernelLaunchNotificationMode);
SLOT(kGetDevicePciBusInfo, getDevicePCIBusInfo);
SLOT(kGetNextEvent, getNextEvent);
SLOT(kGetElfImageByHandle, getElfImageByHandle);
SLOT(kRequestCleanupOnDetach, requestCleanupOnDetach);
SLOT(kGetDeviceName, getDeviceName);
SLOT(kGenerateCoredump, generateCoredump);
SLOT(kGetDeviceInfoSizes, getDeviceInfoSizes);
SLOT(kGetDeviceInfo, getDeviceInfo);
#if CUDBG_API_VERSION_MAJOR > 12 || CUDBG_API_VERSION_MINOR >= 7
SLOT(kGetGridInfo, getGridInfo120);
SLOT(kReadAllVirtualReturnAddresses, readAllVirtualReturnAddresses);
SLOT(kReadSmException, readSmException);
static_assert(sizeof(api::GridInfo) == sizeof(CUDBGGridInfo120) &&
              offsetof(api::GridInfo, cluster) == offsetof(CUDBGGridInfo120, clusterDim));
#else
SLOT(kGetGridInfo, getGridInfo);
static_assert(sizeof(api::GridInfo) == sizeof(CUDBGGridInfo));
#endif
#if CUDBG_API_VERSION_MAJOR >= 13
SLOT(kSetNotifyNewEventCallback, setNotifyNewEventCallback41);
#else
SLOT(kSetNotifyNewEventCallback, setNotifyNewEventCallback);
#endif

static_assert(api::kSuccess == CUDBG_SUCCESS && api::kNoEvent == CUDBG_ERROR_NO_EVENT_AVAILABLE &&
              api::kAttachNotPossible == CUDBG_ERROR_ATTACH_NOT_POSSIBLE);
static_assert(api::kNotSupported == CUDBG_ERROR_NOT_SUPPORTED);

#define EVENT(ours, theirs) static_assert(static_cast<int>(api::EventKind::ours) == theirs)
EVENT(kElfImageLoaded, CUDBG_EVENT_ELF_IMAGE_LOADED);
EVENT(kInternalError, CUDBG_EVENT_INTERNAL_ERROR);
EVENT(kContextCreate, CUDBG_EVENT_CTX_CREATE);
EVENT(kContextDestroy, CUDBG_EVENT_CTX_DESTROY);
EVENT(kAttachComplete, CUDBG_EVENT_ATTACH_COMPLETE);
EVENT(kDetachComplete, CUDBG_EVENT_DETACH_COMPLETE);
EVENT(kElfImageUnloaded, CUDBG_EVENT_ELF_IMAGE_UNLOADED);
static_assert(api::kSyncQueue == CUDBG_EVENT_QUEUE_TYPE_SYNC && api::kAsyncQueue == CUDBG_EVENT_QUEUE_TYPE_ASYNC);
static_assert(api::kDeferLaunchNotifications == CUDBG_KNL_LAUNCH_NOTIFY_DEFER &&
              api::kRelocatedImage == CUDBG_ELF_IMAGE_TYPE_RELOCATED);
static_assert(api::kFullDeviceInfo == CUDBG_RESPONSE_TYPE_FULL);

static_assert(sizeof(CUDBGEvent) <= sizeof(api::Event));
static_assert(offsetof(api::Event, image.device) == offsetof(CUDBGEvent, cases.elfImageLoaded.dev));
static_assert(offsetof(api::Event, image.context) == offsetof(CUDBGEvent, cases.elfImageLoaded.context));
static_assert(offsetof(api::Event, image.module) == offsetof(CUDBGEvent, cases.elfImageLoaded.module));
static_assert(offsetof(api::Event, image.size) == offsetof(CUDBGEvent, cases.elfImageLoaded.size));
static_assert(offsetof(api::Event, image.handle) == offsetof(CUDBGEvent, cases.elfImageLoaded.handle));
static_assert(offsetof(api::Event, context.device) == offsetof(CUDBGEvent, cases.contextCreate.dev));
static_assert(offsetof(api::Event, context.context) == offsetof(CUDBGEvent, cases.contextCreate.context));
static_assert(offsetof(api::Event, error) == offsetof(CUDBGEvent, cases.internalError.errorType));

static_assert(sizeof(api::DeviceInfoSizes) == sizeof(CUDBGDeviceInfoSizes) &&
              offsetof(api::DeviceInfoSizes, lane) == offsetof(CUDBGDeviceInfoSizes, laneInfoSize));
static_assert(sizeof(api::DeviceInfo) == sizeof(CUDBGDeviceInfo) && sizeof(api::SmInfo) == sizeof(CUDBGSMInfo) &&
              sizeof(api::LaneInfo) == sizeof(CUDBGLaneInfo));
static_assert(sizeof(api::WarpInfo) == sizeof(CUDBGWarpInfo) &&
              offsetof(api::WarpInfo, valid_lanes) == offsetof(CUDBGWarpInfo, validLanes) &&
              offsetof(api::WarpInfo, first_thread) == offsetof(CUDBGWarpInfo, baseThreadIdx) &&
              offsetof(api::WarpInfo, flags) == offsetof(CUDBGWarpInfo, warpAttributeFlags));
static_assert(api::kDeviceUpdated == CUDBG_DEVICE_ATTRIBUTE_SM_UPDATE_MASK &&
              api::kDeviceActiveSms == CUDBG_DEVICE_ATTRIBUTE_SM_ACTIVE_MASK &&
              api::kDeviceExceptionSms == CUDBG_DEVICE_ATTRIBUTE_SM_EXCEPTION_MASK &&
              api::kSmUpdated == CUDBG_SM_ATTRIBUTE_WARP_UPDATE_MASK);
static_assert(api::kWarpUpdated == CUDBG_WARP_ATTRIBUTE_LANE_UPDATE_MASK &&
              api::kWarpLaneAttributes == CUDBG_WARP_ATTRIBUTE_LANE_ATTRIBUTES &&
              api::kWarpException == CUDBG_WARP_ATTRIBUTE_EXCEPTION &&
              api::kWarpErrorPc == CUDBG_WARP_ATTRIBUTE_ERRORPC);
#if CUDBG_API_VERSION_MAJOR > 12 || CUDBG_API_VERSION_MINOR >= 7
static_assert(api::kLightweightCore == CUDBG_COREDUMP_LIGHTWEIGHT_FLAGS);
static_assert(api::kCapabilities == (CUDBG_DEBUGGER_CAPABILITY_LAZY_FUNCTION_LOADING |
                                     CUDBG_DEBUGGER_CAPABILITY_REPORT_EXCEPTIONS_IN_EXITED_WARPS |
                                     CUDBG_DEBUGGER_CAPABILITY_NO_CONTEXT_PUSH_POP_EVENTS));
#endif
