// What the C library said, in literal memory.
#include <catch2/catch.hpp>

#include <array>
#include <cstring>

#include "support/fake_target.h"
#include "target/abort_message.h"

using namespace rankstacks;
using namespace rankstacks::target;
using rankstacks::testing::FakeTarget;

namespace {

constexpr Address kVariable = 0x1000, kMessage = 0x2000;
constexpr std::array<Address, 1> kVariables{kVariable};

void put(FakeTarget& target, std::uint32_t size, const std::string& text) {
  std::vector<std::byte> bytes(sizeof size + text.size());
  std::memcpy(bytes.data(), &size, sizeof size);
  std::memcpy(bytes.data() + sizeof size, text.data(), text.size());
  target.put_value(kVariable, kMessage);
  target.put(kMessage, std::move(bytes));
}

}  // namespace

TEST_CASE("the C library's last words") {
  FakeTarget target;
  using namespace std::string_literals;
  SECTION("up to the 0, without the end of the line") {
    put(target, 4096, "free(): invalid pointer\n\0rest"s);
    CHECK(read_abort_message(target, kVariables) == "free(): invalid pointer");
  }
  SECTION("a long one is cut") {
    put(target, 65536, std::string(60000, 'x'));
    CHECK(read_abort_message(target, kVariables) == std::string(kMaxAbortMessage, 'x'));
  }
  SECTION("as far as it is readable") {
    put(target, 4096, "cut off");
    CHECK(read_abort_message(target, kVariables) == "cut off");
  }
  SECTION("it said nothing") {
    target.put_value(kVariable, Address{0});
    CHECK_FALSE(read_abort_message(target, kVariables));
  }
  SECTION("an empty text is none") {
    put(target, 4096, "\n\0"s);
    CHECK_FALSE(read_abort_message(target, kVariables));
  }
  SECTION("a size that no mapping has") {
    put(target, 17, "x\0"s);
    CHECK_FALSE(read_abort_message(target, kVariables));
  }
  SECTION("a wild pointer") {
    target.put_value(kVariable, ~Address{0});
    CHECK_FALSE(read_abort_message(target, kVariables));
  }
  SECTION("no C library with such a variable") { CHECK_FALSE(read_abort_message(target, {})); }
}
