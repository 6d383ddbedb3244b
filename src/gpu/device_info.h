// getDeviceInfo's answer: the state of all warps of a device in one buffer, laid out by the sizes that the driver
// states.
//
//     DeviceInfo, its attributes
//       for each active SM:       SmInfo, its attributes
//         for each valid warp:    WarpInfo, its attributes
//           for each valid lane:  LaneInfo, its attributes
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "gpu/device_state.h"
#include "gpu/driver_api.h"

namespace rankstacks::gpu {

struct DeviceWarps {
  std::vector<Warp> warps;
  std::vector<std::uint32_t> exception_sms;  // those with an exception, whether its warp is still there or not
};

// Errors: kMalformed, with the offset in the buffer. `sms`: the number of multiprocessors of the device.
Result<DeviceWarps> parse_device_info(std::span<const std::byte> buffer, const api::DeviceInfoSizes& sizes,
                                      std::uint32_t sms);

}  // namespace rankstacks::gpu
