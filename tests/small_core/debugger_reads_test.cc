#include "small_core/debugger_reads.h"

#include <catch2/catch.hpp>

#include "support/fake_target.h"
#include "support/literal_library.h"

using namespace rankstacks;
using namespace rankstacks::small_core;

namespace {

constexpr Address kLibrary = 0x7f0000100000, kBehind = kLibrary + 0x6000;

class NotedReads final : public testing::FakeTarget {
 public:
  std::size_t read(Address address, std::span<std::byte> into) const noexcept override {
    const std::size_t n = FakeTarget::read(address, into);
    if (n > 0) starts_.push_back(address);
    return n;
  }
  bool has_read(Address address) const { return std::find(starts_.begin(), starts_.end(), address) != starts_.end(); }

 private:
  mutable std::vector<Address> starts_;
};

target::ModuleMap one_library(std::shared_ptr<const elf::Image> image = nullptr) {
  target::Module module{"/lib/moved.so", {kLibrary, kLibrary + 0x3000}, kLibrary, {}, std::move(image), {}};
  return target::ModuleMap({std::move(module)});
}

}  // namespace

TEST_CASE("a note is read where its offset in the file leads to as well: libdwfl takes it for its address") {
  NotedReads target;
  target.modules_ = one_library();
  target.put(kLibrary, testing::library_with_moved_note(0x6000, 0x2000, 36));
  target.put(kLibrary + 0x2000, std::vector<std::byte>(0x1000));
  target.put(kBehind, std::vector<std::byte>(0x1000));  // of another module
  read_module_headers(target);
  CHECK(target.has_read(kLibrary + 0x2000));
  CHECK(target.has_read(kBehind));
}

TEST_CASE("what is where a note's offset leads to may change: it is read while the process is stopped") {
  const auto parts_of = [](std::uint64_t offset, std::uint64_t address) {
    const auto image = elf::Image::from_bytes(testing::library_with_moved_note(offset, address, 36), "moved.so");
    REQUIRE(image);
    return changeable_parts(one_library(*image));
  };
  CHECK(parts_of(0x2000, 0x2000).empty());
  const auto parts = parts_of(0x6000, 0x2000);
  REQUIRE(parts.size() == 1);
  CHECK(parts[0].start == kBehind);
  CHECK(parts[0].size() == 36);
}
