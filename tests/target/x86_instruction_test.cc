// Instructions as binutils' objdump 2.40 prints them, and what they read and write.
#include <catch2/catch.hpp>

#include <sstream>

#include "target/x86_instruction.h"

using namespace rankstacks;
using namespace rankstacks::target;

namespace {

std::vector<std::uint8_t> bytes_of(const std::string& text) {
  std::vector<std::uint8_t> bytes;
  std::istringstream words(text);
  for (std::string word; words >> word;) bytes.push_back(static_cast<std::uint8_t>(std::stoi(word, nullptr, 16)));
  return bytes;
}

// "mov (%rax),%rdx"; "?": it has no text, only its length; "none".
std::string decoded(const std::string& bytes) {
  const auto instruction = decode_instruction(bytes_of(bytes));
  if (!instruction) return "none";
  if (instruction->length != bytes_of(bytes).size()) return "another length";
  return instruction->text.empty() ? "?" : instruction->text;
}

Registers registers() {
  Registers r;
  for (unsigned i = 0; i < kDwarfRegisters; ++i) r.set(i, 0x1000 * (i + 1));
  r.fs_base = 0x70000000;
  return r;
}

// The addresses of the memory operands.
std::vector<Address> addresses(const std::string& bytes) {
  const auto instruction = decode_instruction(bytes_of(bytes));
  REQUIRE(instruction);
  std::vector<Address> found;
  for (const MemoryOperand& operand : instruction->memory)
    found.push_back(operand.address(registers(), 0x400000 + instruction->length).value_or(0));
  return found;
}

}  // namespace

TEST_CASE("instructions that move data") {
  CHECK(decoded("48 8b 10") == "mov (%rax),%rdx");
  CHECK(decoded("48 8b 50 10") == "mov 0x10(%rax),%rdx");
  CHECK(decoded("44 8b 7d 00") == "mov 0x0(%rbp),%r15d");
  CHECK(decoded("c6 00 01") == "movb $0x1,(%rax)");
  CHECK(decoded("49 c7 45 00 01 00 00 00") == "movq $0x1,0x0(%r13)");
  CHECK(decoded("66 c7 00 ff ff") == "movw $0xffff,(%rax)");
  CHECK(decoded("88 54 0f ff") == "mov %dl,-0x1(%rdi,%rcx,1)");
  CHECK(decoded("40 88 37") == "mov %sil,(%rdi)");
  CHECK(decoded("48 63 7c dd 00") == "movslq 0x0(%rbp,%rbx,8),%rdi");
  CHECK(decoded("41 0f b6 44 15 00") == "movzbl 0x0(%r13,%rdx,1),%eax");
  CHECK(decoded("64 48 8b 04 25 28 00 00 00") == "mov %fs:0x28,%rax");
  CHECK(decoded("48 8b 05 00 10 00 00") == "mov 0x1000(%rip),%rax");
  CHECK(decoded("67 8b 00") == "mov (%eax),%eax");
}

TEST_CASE("instructions that compute") {
  CHECK(decoded("01 06") == "add %eax,(%rsi)");
  CHECK(decoded("64 41 83 7d 00 04") == "cmpl $0x4,%fs:0x0(%r13)");
  CHECK(decoded("f0 41 01 4d 00") == "lock add %ecx,0x0(%r13)");
  CHECK(decoded("f0 0f b1 17") == "lock cmpxchg %edx,(%rdi)");
  CHECK(decoded("f0 48 0f c7 0e") == "lock cmpxchg16b (%rsi)");
  CHECK(decoded("48 0f af 5d 00") == "imul 0x0(%rbp),%rbx");
  CHECK(decoded("d1 a3 98 00 00 00") == "shll 0x98(%rbx)");
  CHECK(decoded("0f 94 00") == "sete (%rax)");
  CHECK(decoded("0f 44 06") == "cmove (%rsi),%eax");
}

TEST_CASE("jumps, calls, the stack") {
  CHECK(decoded("ff 10") == "call *(%rax)");
  CHECK(decoded("ff 60 08") == "jmp *0x8(%rax)");
  CHECK(decoded("41 ff 76 10") == "push 0x10(%r14)");
  CHECK(decoded("41 54") == "push %r12");
  CHECK(decoded("c3") == "ret");
  CHECK(addresses("41 54") == std::vector<Address>{0x8000 - 8});
  CHECK(addresses("c3") == std::vector<Address>{0x8000});
  CHECK(addresses("ff 10") == std::vector<Address>{0x1000, 0x8000 - 8});
  CHECK(addresses("e8 00 00 00 00") == std::vector<Address>{0x8000 - 8});
}

TEST_CASE("strings") {
  CHECK(decoded("f3 a4") == "rep movsb %ds:(%rsi),%es:(%rdi)");
  CHECK(decoded("f3 48 ab") == "rep stos %rax,%es:(%rdi)");
  CHECK(decoded("f2 ae") == "repnz scas %es:(%rdi),%al");
  CHECK(decoded("f3 a6") == "repz cmpsb %es:(%rdi),%ds:(%rsi)");
  CHECK(addresses("f3 a4") == std::vector<Address>{0x5000, 0x6000});
}

TEST_CASE("vectors: SSE, AVX, AVX-512") {
  CHECK(decoded("0f 11 00") == "movups %xmm0,(%rax)");
  CHECK(decoded("f3 0f 10 44 87 04") == "movss 0x4(%rdi,%rax,4),%xmm0");
  CHECK(decoded("c5 fe 6f 06") == "vmovdqu (%rsi),%ymm0");
  CHECK(decoded("c5 fd 74 0f") == "vpcmpeqb (%rdi),%ymm0,%ymm1");
  CHECK(decoded("c5 fa 58 07") == "vaddss (%rdi),%xmm0,%xmm0");
  CHECK(decoded("62 e1 fe 28 6f 06") == "vmovdqu64 (%rsi),%ymm16");
  CHECK(decoded("62 e1 fd 20 ef 57 05") == "vpxorq 0xa0(%rdi),%ymm16,%ymm18");
  CHECK(decoded("62 e1 7e 2a 6f 16") == "vmovdqu32 (%rsi),%ymm18{%k2}");
  CHECK(addresses("62 e1 fd 20 ef 57 05") == std::vector<Address>{0x6000 + 0xa0});
}

TEST_CASE("the address of a memory operand") {
  CHECK(addresses("48 8b 50 10") == std::vector<Address>{0x1010});
  CHECK(addresses("88 54 0f ff") == std::vector<Address>{0x6000 + 0x3000 - 1});
  CHECK(addresses("48 8b 05 00 10 00 00") == std::vector<Address>{0x400007 + 0x1000});
  CHECK(addresses("64 48 8b 04 25 28 00 00 00") == std::vector<Address>{0x70000028});
  CHECK(addresses("65 48 8b 00") == std::vector<Address>{0});  // relative to what only the kernel knows
  Registers unknown;
  CHECK_FALSE(decode_instruction(bytes_of("48 8b 10"))->memory.at(0).address(unknown, 0));
}

TEST_CASE("divisions and traps") {
  CHECK(decoded("f7 f9") == "idiv %ecx");
  CHECK(decode_instruction(bytes_of("f7 f9"))->divisor == kRcx);
  CHECK(decoded("f7 3b") == "idivl (%rbx)");
  CHECK(decoded("0f 0b") == "ud2");
  CHECK(decoded("f4") == "hlt");
}

TEST_CASE("vector instructions that write a mask, or whose names have the width of their elements") {
  CHECK(decoded("62 f1 7d 20 74 00") == "vpcmpeqb (%rax),%ymm16,%k0");
  CHECK(decoded("62 f1 75 28 76 58 02") == "vpcmpeqd 0x40(%rax),%ymm1,%k3");
  CHECK(decoded("62 e1 7f 28 6f 00") == "vmovdqu8 (%rax),%ymm16");
  CHECK(decoded("62 f1 ff 48 7f 4f 01") == "vmovdqu16 %zmm1,0x40(%rdi)");
  CHECK(decoded("62 e1 7d 20 da 4f 01") == "vpminub 0x20(%rdi),%ymm16,%ymm17");
  CHECK(decoded("f2 0f 6f 00") == "?");  // these exist with EVEX alone
}

TEST_CASE("conversions, square roots, and single instructions of compiled code") {
  CHECK(decoded("f3 0f 5a 00") == "cvtss2sd (%rax),%xmm0");
  CHECK(decoded("c5 f3 5a 40 08") == "vcvtsd2ss 0x8(%rax),%xmm1,%xmm0");
  CHECK(decoded("f2 0f 51 10") == "sqrtsd (%rax),%xmm2");
  CHECK(decoded("f3 48 0f b8 10") == "popcnt (%rax),%rdx");
  CHECK(decoded("0f c3 07") == "movnti %eax,(%rdi)");
}

TEST_CASE("what the tables lack has its length, and its memory operand where the encoding alone tells it") {
  const std::vector<Address> rax{0x1000}, rdi{0x6000}, none;
  for (const char* text : {"c4 e2 7d 58 07",        // vpbroadcastd (%rdi),%ymm0
                           "db 2f",                 // fldt (%rdi)
                           "c4 e2 75 b8 17",        // vfmadd231ps (%rdi),%ymm1,%ymm2
                           "62 f2 7e 20 26 0f"}) {  // vptestnmb (%rdi),%ymm16,%k1
    CAPTURE(text);
    CHECK(decoded(text) == "?");
    CHECK(addresses(text) == rdi);
  }
  for (const char* text : {"0f 38 f0 10",        // movbe (%rax),%edx
                           "c4 e2 60 f2 08",     // andn (%rax),%ebx,%ecx
                           "f2 48 0f 2c 10",     // cvttsd2si (%rax),%rdx
                           "66 0f 70 00 00"}) {  // pshufd $0x0,(%rax),%xmm0
    CAPTURE(text);
    CHECK(decoded(text) == "?");
    CHECK(addresses(text) == rax);
  }
  CHECK(addresses("d9 05 10 00 00 00") == std::vector<Address>{0x400016});  // flds 0x10(%rip)
  for (const char* text : {"62 f3 7d 20 3e 4f 01 04",  // vpcmpnequb 0x20(%rdi),%ymm16,%k1: the displacement's factor
                           "c4 e2 75 92 1c 90",        // vgatherdps %ymm1,(%rax,%ymm2,4),%ymm3: a vector of indices
                           "48 8d 10", "0f 18 08",     // lea (%rax),%rdx; prefetcht0 (%rax): no access
                           "0f 05"}) {                 // syscall
    CAPTURE(text);
    CHECK(decoded(text) == "?");
    CHECK(addresses(text) == none);
  }
  CHECK(decoded("06") == "none");
}

TEST_CASE("bytes that end early, in every place, are no instruction") {
  for (const char* text :
       {"48 8b 50 10", "49 c7 45 00 01 00 00 00", "64 48 8b 04 25 28 00 00 00", "c5 fe 6f 06", "62 e1 fd 20 ef 57 05",
        "f0 48 0f c7 0e", "66 66 66 66 66 66 66 66 66 66 66 66 66 66 66 66"}) {
    auto bytes = bytes_of(text);
    while (!bytes.empty()) {
      bytes.pop_back();
      CAPTURE(text, bytes.size());
      CHECK_FALSE(decode_instruction(bytes));
    }
  }
}
