// getDeviceInfo's buffer: sound ones from drivers whose structs are larger than the known ones, and truncated ones.
#include <catch2/catch.hpp>

#include "gpu/device_info.h"
#include "support/elf_writer.h"

using namespace rankstacks;
using namespace rankstacks::gpu;
using rankstacks::testing::append_value;
using rankstacks::testing::Bytes;

namespace {

// Two multiprocessors of eight, the second with an exception; there are unknown attributes before and after the known
// ones.
struct Buffer {
  api::DeviceInfoSizes sizes{};
  Bytes bytes;

  explicit Buffer(std::uint32_t more) {
    sizes.device = sizeof(api::DeviceInfo) + more;
    sizes.device_attribute[api::kDeviceActiveSms] = sizes.device_attribute[api::kDeviceExceptionSms] = 8;
    sizes.device_attribute[5] = 4;
    sizes.sm = sizeof(api::SmInfo) + more;
    sizes.sm_attribute[3] = 2;
    sizes.warp = sizeof(api::WarpInfo) + more;
    sizes.warp_attribute[api::kWarpException] = 4;
    sizes.warp_attribute[api::kWarpErrorPc] = 8;
    sizes.warp_attribute[9] = 12;
    sizes.lane = sizeof(api::LaneInfo) + more;
    sizes.lane_attribute[1] = 4;
    const Bytes room(more);
    const auto pad = [&] { bytes.insert(bytes.end(), room.begin(), room.end()); };
    append_value(bytes, api::DeviceInfo{0, 1u << api::kDeviceActiveSms | 1u << api::kDeviceExceptionSms | 1u << 5});
    pad();
    append_value(bytes, std::uint64_t{0b1000'0010});  // active: 1 and 7
    append_value(bytes, std::uint64_t{0b1000'0100});  // exceptions: 2, whose warps have left, and 7
    append_value(bytes, std::uint32_t{0});
    // Multiprocessor 1: warp 3 with lanes 0 and 31.
    append_value(bytes, api::SmInfo{1u << 3, 0, 1u << 3});
    pad();
    append_value(bytes, std::uint16_t{0});
    append_value(bytes, api::WarpInfo{42, {1, 2, 3}, {32, 0, 0}, 0x8000'0001, 1, 0});
    pad();
    for (const Address pc : {Address{0x100}, Address{0x110}}) {
      append_value(bytes, api::LaneInfo{pc});
      pad();
    }
    // Multiprocessor 7: warp 0, all it can have.
    append_value(bytes, api::SmInfo{1, 0, 0});
    pad();
    append_value(bytes, api::WarpInfo{43,
                                      {0, 0, 0},
                                      {0, 0, 0},
                                      0b10,
                                      0b10,
                                      1u << api::kWarpLaneAttributes | 1u << api::kWarpException |
                                          1u << api::kWarpErrorPc | 1u << 9});
    pad();
    append_value(bytes, std::uint32_t{14});
    append_value(bytes, std::uint64_t{0x777});
    bytes.insert(bytes.end(), 12, std::byte{0});
    append_value(bytes, api::LaneInfo{0x200});
    pad();
    append_value(bytes, std::uint32_t{1u << 1});
    append_value(bytes, std::uint32_t{0});
  }
};

}  // namespace

TEST_CASE("the state of all warps, also where a newer driver's structs are longer") {
  const std::uint32_t more = GENERATE(0u, 8u, 20u);
  const Buffer buffer(more);
  const auto parsed = parse_device_info(buffer.bytes, buffer.sizes, 8);
  REQUIRE(parsed);
  CHECK(parsed->exception_sms == std::vector<std::uint32_t>{2, 7});
  REQUIRE(parsed->warps.size() == 2);
  const Warp& first = parsed->warps[0];
  CHECK(first.sm == 1);
  CHECK(first.index == 3);
  CHECK(first.grid_id == 42);
  CHECK(first.block == GpuDim{1, 2, 3});
  CHECK(first.first_thread == GpuDim{32, 0, 0});
  CHECK(first.pc[0] == 0x100);
  CHECK(first.pc[31] == 0x110);
  CHECK(first.exception == 0);
  CHECK(!first.error_pc);
  const Warp& second = parsed->warps[1];
  CHECK(second.sm == 7);
  CHECK(second.index == 0);
  CHECK(second.exception == 14);
  CHECK(second.error_pc == Address{0x777});
  CHECK(second.pc[1] == 0x200);
}

TEST_CASE("a buffer that ends anywhere is an error that says where, and no more is read") {
  const Buffer buffer(4);
  for (std::size_t length = 0; length < buffer.bytes.size(); ++length) {
    const Bytes cut(
        buffer.bytes.begin(),
        buffer.bytes.begin() + static_cast<std::ptrdiff_t>(length));  // of its own, so that reading past it shows
    const auto parsed = parse_device_info(cut, buffer.sizes, 8);
    REQUIRE(!parsed);
    CHECK(parsed.error().code == ErrorCode::kMalformed);
    CHECK(parsed.error().where.value_or(length + 1) <= length);
  }
}

TEST_CASE("sizes that are smaller than what is known are refused") {
  Buffer buffer(0);
  buffer.sizes.warp = 8;
  const auto parsed = parse_device_info(buffer.bytes, buffer.sizes, 8);
  REQUIRE(!parsed);
  CHECK(parsed.error().message().starts_with("the driver's device state: it ends within a warp (at 0x"));
}

TEST_CASE("sizes near the end of all numbers do not wrap") {
  Buffer buffer(0);
  buffer.sizes.device_attribute[5] = 0xffff'fff0;
  CHECK(!parse_device_info(buffer.bytes, buffer.sizes, 8));
}
