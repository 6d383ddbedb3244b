#include "target/instruction_shape.h"

#include <catch2/catch.hpp>
#include <cstdio>
#include <cstdlib>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

using namespace rankstacks;
using namespace rankstacks::target;

namespace {

InstructionShape shape(std::initializer_list<std::uint8_t> bytes) {
  const auto found = shape_of_instruction(std::vector<std::uint8_t>(bytes));
  REQUIRE(found);
  CHECK(found->length == bytes.size());
  return *found;
}

// "   26d4e:\t48 83 ec 18          \tsub    $0x18,%rsp": the bytes.
std::vector<std::uint8_t> bytes_of(const std::string& line) {
  std::vector<std::uint8_t> bytes;
  const auto colon = line.find(":\t");
  if (line.empty() || line[0] != ' ' || colon == std::string::npos) return bytes;
  const auto end = line.find('\t', colon + 2);
  if (end == std::string::npos) return bytes;
  for (std::size_t at = colon + 2; at + 2 <= end && line[at] != ' '; at += 3)
    bytes.push_back(static_cast<std::uint8_t>(std::strtoul(line.substr(at, 2).c_str(), nullptr, 16)));
  return bytes;
}

}  // namespace

TEST_CASE("what the instructions of a prologue name", "[instruction_shape]") {
  const InstructionShape sub = shape({0x48, 0x83, 0xec, 0x20});  // sub $0x20,%rsp
  CHECK((sub.opcode == 0x83 && sub.mod == 3 && sub.reg == 5 && sub.rm == 4 && sub.immediate == 0x20));
  const InstructionShape lea = shape({0x48, 0x8d, 0x65, 0xd8});  // lea -0x28(%rbp),%rsp
  CHECK((lea.opcode == 0x8d && lea.reg == 4 && lea.base == 5 && lea.displacement == -0x28));
  const InstructionShape large = shape({0x48, 0x81, 0xec, 0x00, 0x10, 0x00, 0x00});  // sub $0x1000,%rsp
  CHECK(large.immediate == 0x1000);
  CHECK(shape({0x41, 0x54}).rex_b);                                          // push %r12
  CHECK(shape({0x48, 0x8d, 0x64, 0x24, 0xf8}).base == 4);                    // lea -0x8(%rsp),%rsp
  CHECK(shape({0x48, 0x8b, 0x05, 0x01, 0x02, 0x03, 0x04}).base == -1);       // mov 0x4030201(%rip),%rax
  CHECK(shape({0x48, 0x8b, 0x04, 0xcc}).base == -1);                         // mov (%rsp,%rcx,8),%rax
  CHECK(shape({0xc5, 0xf8, 0x77}).map == InstructionShape::Map::kOther);     // vzeroupper
  CHECK(shape({0x0f, 0x05}).map == InstructionShape::Map::kTwoByte);         // syscall
  CHECK(shape({0x48, 0xb8, 1, 2, 3, 4, 5, 6, 7, 8}).opcode == 0xb8);         // movabs
  CHECK(shape({0x62, 0xf1, 0x7c, 0x48, 0x11, 0x44, 0x24, 0x01}).has_modrm);  // vmovups %zmm0,0x40(%rsp)
}

TEST_CASE("too few bytes, and bytes that are no instruction", "[instruction_shape]") {
  for (const std::vector<std::uint8_t>& bytes : {std::vector<std::uint8_t>{},
                                                 {0x48},
                                                 {0x48, 0x83, 0xec},
                                                 {0xe8, 0, 0, 0},
                                                 {0x06},
                                                 {0xea, 0, 0, 0, 0, 0, 0},
                                                 std::vector<std::uint8_t>(20, 0x66)})
    CHECK_FALSE(shape_of_instruction(bytes));
}

TEST_CASE("the lengths of all instructions of the C library are those that objdump states", "[instruction_shape]") {
  struct Close {
    void operator()(FILE* f) const { pclose(f); }
  };
  const std::unique_ptr<FILE, Close> listing(
      popen("objdump -d -w /lib/x86_64-linux-gnu/libc.so.6 2>/dev/null | head -n 400000", "r"));
  REQUIRE(listing);
  char line[512];
  std::size_t compared = 0, wrong = 0;
  std::string first_wrong;
  while (std::fgets(line, sizeof line, listing.get()) != nullptr) {
    const std::vector<std::uint8_t> bytes = bytes_of(line);
    // objdump shows fwait and the instruction after it as one.
    if (bytes.empty() || bytes[0] == 0x9b || std::string(line).find("(bad)") != std::string::npos) continue;
    ++compared;
    const auto found = shape_of_instruction(bytes);
    if (found && found->length == bytes.size()) continue;
    if (++wrong == 1) first_wrong = line;
  }
  if (compared == 0) {
    WARN("skipped: no objdump, or no /lib/x86_64-linux-gnu/libc.so.6, here");
    return;
  }
  CAPTURE(first_wrong, compared);
  CHECK(wrong == 0);
}
