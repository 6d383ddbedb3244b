#include "gpu/device_info.h"

#include <fmt/format.h>
#include <bit>
#include <cstring>

namespace rankstacks::gpu {
namespace {

class Cursor {
 public:
  explicit Cursor(std::span<const std::byte> bytes) : bytes_(bytes) {}

  // Reads the struct at the cursor. It is `size` bytes long in this driver, at least as long as the part that is known.
  template <class T>
  bool take(T& into, std::uint32_t size) {
    if (size < sizeof(T) || left() < size) return false;
    std::memcpy(&into, bytes_.data() + at_, sizeof(T));
    at_ += size;
    return true;
  }

  // Walks over the attributes that `flags` announces; calls visit(bit, bytes) for each.
  template <class F>
  bool attributes(std::uint32_t flags, const std::uint32_t (&sizes)[32], F visit) {
    for (; flags != 0; flags &= flags - 1) {
      const auto bit = static_cast<unsigned>(std::countr_zero(flags));
      if (left() < sizes[bit]) return false;
      visit(bit, bytes_.subspan(at_, sizes[bit]));
      at_ += sizes[bit];
    }
    return true;
  }

  std::size_t at() const { return at_; }

 private:
  std::size_t left() const { return bytes_.size() - at_; }
  std::span<const std::byte> bytes_;
  std::size_t at_ = 0;
};

template <class T>
void read(T& into, std::span<const std::byte> bytes) {
  if (bytes.size() >= sizeof(T)) std::memcpy(&into, bytes.data(), sizeof(T));
}

bool bit_of(std::span<const std::byte> mask, std::size_t bit) {
  return bit / 8 < mask.size() && (std::to_integer<unsigned>(mask[bit / 8]) >> (bit % 8) & 1) != 0;
}

GpuDim dim(const api::Dim3& d) { return {d.x, d.y, d.z}; }

}  // namespace

Result<DeviceWarps> parse_device_info(std::span<const std::byte> buffer, const api::DeviceInfoSizes& sizes,
                                      std::uint32_t sms) {
  Cursor cursor(buffer);
  const auto bad = [&](const char* what) {
    return fail(
        {.code = ErrorCode::kMalformed, .subject = "the driver's device state", .what = what, .where = cursor.at()});
  };
  DeviceWarps found;
  api::DeviceInfo device{};
  std::span<const std::byte> active, excepted, updated;
  if (!cursor.take(device, sizes.device)) return bad("it ends within its header");
  const bool whole =
      cursor.attributes(device.flags, sizes.device_attribute, [&](unsigned bit, std::span<const std::byte> bytes) {
        if (bit == api::kDeviceActiveSms) active = bytes;
        if (bit == api::kDeviceExceptionSms) excepted = bytes;
        if (bit == api::kDeviceUpdated) updated = bytes;
      });
  if (!whole) return bad("it ends within the device's attributes");
  for (std::uint32_t sm = 0; sm < sms; ++sm) {
    if (bit_of(excepted, sm)) found.exception_sms.push_back(sm);
    if (!bit_of(active, sm) || (!updated.empty() && !bit_of(updated, sm))) continue;
    api::SmInfo info{};
    std::uint64_t updated_warps = ~std::uint64_t{0};
    if (!cursor.take(info, sizes.sm)) return bad("it ends within a multiprocessor");
    if (!cursor.attributes(info.flags, sizes.sm_attribute, [&](unsigned bit, auto bytes) {
          if (bit == api::kSmUpdated) read(updated_warps, bytes);
        }))
      return bad("it ends within a multiprocessor's attributes");
    for (std::uint64_t left = info.valid_warps & updated_warps; left != 0; left &= left - 1) {
      api::WarpInfo warp_info{};
      if (!cursor.take(warp_info, sizes.warp)) return bad("it ends within a warp");
      Warp& warp = found.warps.emplace_back();
      warp.sm = sm;
      warp.index = static_cast<std::uint32_t>(std::countr_zero(left));
      warp.grid_id = warp_info.grid;
      warp.block = dim(warp_info.block);
      warp.first_thread = dim(warp_info.first_thread);
      warp.valid_lanes = warp_info.valid_lanes;
      warp.active_lanes = warp_info.active_lanes;
      std::uint32_t updated_lanes = ~std::uint32_t{0};
      if (!cursor.attributes(warp_info.flags, sizes.warp_attribute, [&](unsigned bit, auto bytes) {
            if (bit == api::kWarpUpdated) read(updated_lanes, bytes);
            if (bit == api::kWarpException) read(warp.exception, bytes);
            if (bit == api::kWarpErrorPc) {
              Address pc = 0;
              read(pc, bytes);
              warp.error_pc = pc;
            }
          }))
        return bad("it ends within a warp's attributes");
      for (std::uint32_t lanes = warp.valid_lanes & updated_lanes; lanes != 0; lanes &= lanes - 1) {
        api::LaneInfo lane{};
        if (!cursor.take(lane, sizes.lane)) return bad("it ends within a lane");
        warp.pc[static_cast<std::size_t>(std::countr_zero(lanes))] = lane.pc;
        if ((warp_info.flags >> api::kWarpLaneAttributes & 1) == 0) continue;
        std::uint32_t flags = 0;
        if (!cursor.take(flags, sizeof flags) || !cursor.attributes(flags, sizes.lane_attribute, [](unsigned, auto) {}))
          return bad("it ends within a lane's attributes");
      }
    }
  }
  return found;
}

}  // namespace rankstacks::gpu
