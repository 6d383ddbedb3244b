// Whether a call instruction ends right before an address.
#include <catch2/catch.hpp>

#include "support/fake_target.h"
#include "unwind/stack_walk.h"

namespace rankstacks::unwind {
namespace {

constexpr Address kCode = 0x400000, kReturn = kCode + 8;

// The last bytes before the return address; nops before them.
bool follows(std::initializer_list<int> last) {
  testing::FakeTarget target;
  target::Mapping mapping;
  mapping.range = {kCode, kCode + 0x1000};
  mapping.readable = mapping.executable = true;
  target.mappings_ = {mapping};
  std::vector<std::byte> code(8, std::byte{0x90});
  auto at = code.end() - static_cast<std::ptrdiff_t>(last.size());
  for (const int b : last) *at++ = static_cast<std::byte>(b);
  target.put(kCode, code);
  return follows_call(target, kReturn, 0);
}

TEST_CASE("every form of a call is recognised") {
  CHECK(follows({0xe8, 1, 2, 3, 4}));              // call rel32
  CHECK(follows({0xff, 0xd0}));                    // call *%rax
  CHECK(follows({0x41, 0xff, 0xd4}));              // call *%r12
  CHECK(follows({0xff, 0x10}));                    // call *(%rax)
  CHECK(follows({0xff, 0x14, 0x24}));              // call *(%rsp)
  CHECK(follows({0xff, 0x50, 8}));                 // call *8(%rax)
  CHECK(follows({0xff, 0x54, 0x24, 8}));           // call *8(%rsp)
  CHECK(follows({0xff, 0x15, 1, 2, 3, 4}));        // call *(%rip)
  CHECK(follows({0xff, 0x90, 1, 2, 3, 4}));        // call *disp32(%rax)
  CHECK(follows({0xff, 0x14, 0xc5, 1, 2, 3, 4}));  // call *disp32(,%rax,8)
  CHECK(follows({0xff, 0x94, 0xc4, 1, 2, 3, 4}));  // call *disp32(%rsp,%rax,8)
}

TEST_CASE("a call at the very beginning of its memory is recognised") {
  const auto begins_with = [](std::vector<int> bytes) {
    testing::FakeTarget target;
    target::Mapping mapping;
    mapping.range = {kCode, kCode + 0x1000};
    mapping.readable = mapping.executable = true;
    target.mappings_ = {mapping};
    std::vector<std::byte> code;
    for (const int b : bytes) code.push_back(static_cast<std::byte>(b));
    target.put(kCode, code);
    return follows_call(target, kCode + code.size(), 0);
  };
  CHECK(begins_with({0xff, 0xd7}));                          // call *%rdi
  CHECK(begins_with({0x55, 0x48, 0x89, 0xe5, 0xff, 0xd7}));  // push %rbp; mov %rsp,%rbp; call *%rdi
  CHECK(begins_with({0xe8, 1, 2, 3, 4}));
  CHECK_FALSE(begins_with({0xd7}));
  CHECK_FALSE(begins_with({1, 2, 3, 4}));
}

TEST_CASE("other instructions, and a call that extends beyond the address, are not") {
  CHECK_FALSE(follows({}));
  CHECK_FALSE(follows({0xff, 0x14}));  // call *(SIB), without the SIB byte
  CHECK_FALSE(follows({0xff, 0x54}));
  CHECK_FALSE(follows({0xff, 0x15}));
  CHECK_FALSE(follows({0xff, 0x15, 1, 2, 3}));
  CHECK_FALSE(follows({0xff, 0x14, 0xc5}));  // a disp32 is missing
  CHECK_FALSE(follows({0xff, 0xe0}));        // jmp *%rax
  CHECK_FALSE(follows({0xe8, 1, 2, 3}));
}

}  // namespace
}  // namespace rankstacks::unwind
