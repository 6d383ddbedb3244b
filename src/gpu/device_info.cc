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

using Bytes = std::span<const std::byte>;

// Reads the device, then each multiprocessor, each of its warps, and each of a warp's lanes. What reads a part returns
// false if the state ends within it; defect() says where, then.
class Parser {
 public:
  Parser(Bytes buffer, const api::DeviceInfoSizes& sizes) : cursor_(buffer), sizes_(sizes) {}

  bool read_device(std::uint32_t sms) {
    api::DeviceInfo device{};
    Bytes active, excepted, updated;
    if (!cursor_.take(device, sizes_.device)) return ends("it ends within its header");
    const bool whole = cursor_.attributes(device.flags, sizes_.device_attribute, [&](unsigned bit, Bytes bytes) {
      if (bit == api::kDeviceActiveSms) active = bytes;
      if (bit == api::kDeviceExceptionSms) excepted = bytes;
      if (bit == api::kDeviceUpdated) updated = bytes;
    });
    if (!whole) return ends("it ends within the device's attributes");
    for (std::uint32_t sm = 0; sm < sms; ++sm) {
      if (bit_of(excepted, sm)) found_.exception_sms.push_back(sm);
      const bool is_reported = bit_of(active, sm) && (updated.empty() || bit_of(updated, sm));
      if (is_reported && !read_multiprocessor(sm)) return false;
    }
    return true;
  }

  DeviceWarps take_found() { return std::move(found_); }
  Error defect() const {
    return {
        .code = ErrorCode::kMalformed, .subject = "the driver's device state", .what = defect_, .where = cursor_.at()};
  }

 private:
  bool ends(const char* where) {
    defect_ = where;
    return false;
  }

  bool read_multiprocessor(std::uint32_t sm) {
    api::SmInfo info{};
    std::uint64_t updated = ~std::uint64_t{0};
    if (!cursor_.take(info, sizes_.sm)) return ends("it ends within a multiprocessor");
    if (!cursor_.attributes(info.flags, sizes_.sm_attribute, [&](unsigned bit, Bytes bytes) {
          if (bit == api::kSmUpdated) read(updated, bytes);
        }))
      return ends("it ends within a multiprocessor's attributes");
    for (std::uint64_t left = info.valid_warps & updated; left != 0; left &= left - 1)
      if (!read_warp(sm, static_cast<std::uint32_t>(std::countr_zero(left)))) return false;
    return true;
  }

  bool read_warp(std::uint32_t sm, std::uint32_t index) {
    api::WarpInfo info{};
    if (!cursor_.take(info, sizes_.warp)) return ends("it ends within a warp");
    Warp& warp = found_.warps.emplace_back();
    warp.sm = sm;
    warp.index = index;
    warp.grid_id = info.grid;
    warp.block = dim(info.block);
    warp.first_thread = dim(info.first_thread);
    warp.valid_lanes = info.valid_lanes;
    warp.active_lanes = info.active_lanes;
    std::uint32_t updated = ~std::uint32_t{0};
    if (!cursor_.attributes(info.flags, sizes_.warp_attribute, [&](unsigned bit, Bytes bytes) {
          if (bit == api::kWarpUpdated) read(updated, bytes);
          if (bit == api::kWarpException) read(warp.exception, bytes);
          if (bit == api::kWarpErrorPc) {
            Address pc = 0;
            read(pc, bytes);
            warp.error_pc = pc;
          }
        }))
      return ends("it ends within a warp's attributes");
    const bool have_attributes = (info.flags >> api::kWarpLaneAttributes & 1) != 0;
    for (std::uint32_t lanes = warp.valid_lanes & updated; lanes != 0; lanes &= lanes - 1)
      if (!read_lane(warp.pc[static_cast<std::size_t>(std::countr_zero(lanes))], have_attributes)) return false;
    return true;
  }

  bool read_lane(Address& pc, bool has_attributes) {
    api::LaneInfo info{};
    if (!cursor_.take(info, sizes_.lane)) return ends("it ends within a lane");
    pc = info.pc;
    std::uint32_t flags = 0;
    if (has_attributes && (!cursor_.take(flags, sizeof flags) ||
                           !cursor_.attributes(flags, sizes_.lane_attribute, [](unsigned, Bytes) {})))
      return ends("it ends within a lane's attributes");
    return true;
  }

  Cursor cursor_;
  const api::DeviceInfoSizes& sizes_;
  DeviceWarps found_;
  const char* defect_ = "";
};

}  // namespace

Result<DeviceWarps> parse_device_info(std::span<const std::byte> buffer, const api::DeviceInfoSizes& sizes,
                                      std::uint32_t sms) {
  Parser parser(buffer, sizes);
  if (!parser.read_device(sms)) return fail(parser.defect());
  return parser.take_found();
}

}  // namespace rankstacks::gpu
