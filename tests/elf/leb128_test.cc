#include <catch2/catch.hpp>
#include <limits>
#include <vector>

#include "elf/leb128.h"

namespace rankstacks::elf {
namespace {

std::vector<std::byte> bytes(std::initializer_list<int> values) {
  std::vector<std::byte> made;
  for (const int value : values) made.push_back(static_cast<std::byte>(value));
  return made;
}

// The number that these bytes encode, all of them; std::nullopt if they are refused.
std::optional<std::uint64_t> unsigned_of(std::initializer_list<int> values) {
  const auto from = bytes(values);
  std::uint64_t at = 0;
  const auto value = load_uleb(from, at);
  CHECK(at == (value ? from.size() : 0));
  return value;
}

std::optional<std::int64_t> signed_of(std::initializer_list<int> values) {
  const auto from = bytes(values);
  std::uint64_t at = 0;
  const auto value = load_sleb(from, at);
  CHECK(at == (value ? from.size() : 0));
  return value;
}

}  // namespace

TEST_CASE("LEB128: the examples of DWARF 5, tables 7.7 and 7.8") {
  CHECK(unsigned_of({2}) == 2u);
  CHECK(unsigned_of({127}) == 127u);
  CHECK(unsigned_of({0x80, 1}) == 128u);
  CHECK(unsigned_of({1 + 0x80, 1}) == 129u);
  CHECK(unsigned_of({57 + 0x80, 100}) == 12857u);
  CHECK(signed_of({2}) == 2);
  CHECK(signed_of({0x7e}) == -2);
  CHECK(signed_of({127 + 0x80, 0}) == 127);
  CHECK(signed_of({1 + 0x80, 0x7f}) == -127);
  CHECK(signed_of({0x80, 1}) == 128);
  CHECK(signed_of({0x80, 0x7f}) == -128);
  CHECK(signed_of({1 + 0x80, 1}) == 129);
  CHECK(signed_of({0x7f + 0x80, 0x7e}) == -129);
}

TEST_CASE("LEB128: padding within ten bytes does not change a number") {
  CHECK(unsigned_of({0x83, 0x80, 0x80, 0x00}) == 3u);
  CHECK(unsigned_of({0x83, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x00}) == 3u);
  CHECK(signed_of({0x83, 0x80, 0x80, 0x00}) == 3);
  CHECK(signed_of({0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f}) == -2);
}

TEST_CASE("LEB128: the largest and smallest numbers of 64 bits, and none beyond") {
  CHECK(unsigned_of({0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01}) ==
        std::numeric_limits<std::uint64_t>::max());
  CHECK(unsigned_of({0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x03}) == std::nullopt);
  CHECK(unsigned_of({0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x00}) == std::nullopt);
  CHECK(signed_of({0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x00}) ==
        std::numeric_limits<std::int64_t>::max());
  CHECK(signed_of({0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x7f}) ==
        std::numeric_limits<std::int64_t>::min());
  CHECK(signed_of({0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x01}) == std::nullopt);
  CHECK(signed_of({0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f}) == std::nullopt);
}

TEST_CASE("LEB128: bytes that end before the number") {
  CHECK(unsigned_of({}) == std::nullopt);
  CHECK(unsigned_of({0x80}) == std::nullopt);
  CHECK(signed_of({}) == std::nullopt);
  CHECK(signed_of({0xff, 0xff}) == std::nullopt);
  const auto from = bytes({1, 2});
  for (const std::uint64_t outside : {std::uint64_t{2}, std::numeric_limits<std::uint64_t>::max()}) {
    std::uint64_t at = outside;
    CHECK(load_uleb(from, at) == std::nullopt);
    CHECK(load_sleb(from, at) == std::nullopt);
    CHECK(at == outside);
  }
}

TEST_CASE("LEB128: numbers are read one after the other") {
  const auto from = bytes({0x80, 1, 5, 0x7f});
  std::uint64_t at = 0;
  CHECK(load_uleb(from, at) == 128u);
  CHECK(load_uleb(from, at) == 5u);
  CHECK(load_sleb(from, at) == -1);
  CHECK(at == 4);
  CHECK(load_uleb(from, at) == std::nullopt);
}

}  // namespace rankstacks::elf
