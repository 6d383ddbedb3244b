// The caller of code that no unwind information covers: the address that the code returns to within a few instructions,
// or the one found by the frame pointer if the code shows that there is one; no other.
#include <catch2/catch.hpp>

#include "support/fake_target.h"
#include "unwind/stack_walk.h"

namespace rankstacks::unwind {
namespace {

using Bytes = std::vector<int>;

constexpr Address kCode = 0x400000, kCallers = 0x500000, kStack = 0x7ffc0000;
constexpr Address kCaller = kCallers + 2, kOther = kCallers + 18;  // both right after a call

// Has no unwind information at all.
class NoUnwindInfo final : public FrameStepper {
 public:
  void start(const target::Registers&, bool) override {}
  Step step(target::Registers&, bool&) override { return Step::kNoUnwindInfo; }
};

const Bytes kFunctionWithFramePointer = {0x55, 0x48, 0x89, 0xe5, 0x31,
                                         0xc0, 0x5d, 0xc3};  // push %rbp; mov %rsp,%rbp; xor %eax,%eax; pop %rbp; ret

// A thread about to execute `after`, which follows `before`. kCaller is 24 bytes above its stack pointer; rbp is in a
// frame with return address kOther.
UnwoundStack stack_of(Bytes before, Bytes after) {
  testing::FakeTarget target;
  std::vector<std::byte> code;
  for (const int b : before) code.push_back(static_cast<std::byte>(b));
  for (const int b : after) code.push_back(static_cast<std::byte>(b));
  code.resize(code.size() + 64);
  target.put(kCode, code);
  std::vector<std::byte> callers(0x40, std::byte{0x90});
  for (const Address a : {kCaller, kOther}) {
    callers[a - kCallers - 2] = std::byte{0xff};  // call *%rdi
    callers[a - kCallers - 1] = std::byte{0xd7};
  }
  target.put(kCallers, callers);
  for (const Address start : {kCode, kCallers}) {
    target::Mapping mapping;
    mapping.range = {start, start + 0x1000};
    mapping.readable = mapping.executable = true;
    target.mappings_.push_back(mapping);
  }
  target.put_value(kStack, std::array<Address, 8>{1, 2, kStack + 40, kCaller, 5, 0, kOther, 8});
  target::Registers registers;
  registers.set(target::kRip, kCode + before.size());
  registers.set(target::kRsp, kStack);
  registers.set(target::kRbp, kStack + 40);
  NoUnwindInfo stepper;
  return walk_stack(target, stepper, registers);
}

// The return address that was found, and by what; 0 if none.
std::pair<Address, FrameOrigin> caller_of(const Bytes& before, const Bytes& after) {
  const UnwoundStack stack = stack_of(before, after);
  CHECK(stack.end == StackEnd::kNoUnwindInfo);
  if (stack.frames.size() < 2) return {0, FrameOrigin::kNormal};
  return {stack.frames[1].pc, stack.frames[1].origin};
}

Bytes operator+(Bytes a, const Bytes& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

constexpr std::pair<Address, FrameOrigin> kNone{0, FrameOrigin::kNormal}, kByReturn{kCaller, FrameOrigin::kReturnSlot},
    kByFramePointer{kOther, FrameOrigin::kFramePointer};
const Bytes kNop = {0x90}, kWorks = {0x31, 0xc0, 0x31, 0xdb};

TEST_CASE("code that returns within a few instructions shows its return address, whatever rbp is") {
  CHECK(caller_of(kNop, {0x48, 0x83, 0xc4, 24, 0xc3}) == kByReturn);  // add $24,%rsp; ret
  CHECK(caller_of(kNop, {0x48, 0x81, 0xc4, 24, 0, 0, 0, 0xc3}) == kByReturn);
  CHECK(caller_of(kNop, {0x5b, 0x41, 0x5c, 0x5d, 0xc3}) == kByReturn);  // pop %rbx; pop %r12; pop %rbp; ret
  CHECK(caller_of(kNop, {0x48, 0x83, 0xc4, 8, 0x41, 0x5e, 0x41, 0x5f, 0xf3, 0xc3}) == kByReturn);
  CHECK(caller_of(kNop, {0xc9, 0xc3}) == kByFramePointer);  // leave; ret
  CHECK(caller_of(kNop, {0x48, 0x8d, 0x65, 0xf8, 0x5b, 0x5d, 0xc3}) ==
        kByFramePointer);  // lea -8(%rbp),%rsp; pop %rbx; pop %rbp; ret
}

TEST_CASE("the return address must follow a call") {
  CHECK(caller_of(kNop, {0x48, 0x83, 0xc4, 8, 0xc3}) == kNone);
  CHECK(caller_of(kNop, {0x48, 0x83, 0xc4, 0x80, 0xc3}) == kNone);  // add $-128,%rsp
}

TEST_CASE("rbp is followed where the code shows that it is a frame pointer") {
  CHECK(caller_of(Bytes{0x55, 0x48, 0x89, 0xe5} + kWorks, kWorks) == kByFramePointer);  // push %rbp; mov %rsp,%rbp
  CHECK(caller_of(Bytes{0x55, 0x48, 0x8b, 0xec} + kWorks, kWorks) == kByFramePointer);
  CHECK(caller_of(Bytes{0x55, 0x41, 0x57, 0x48, 0x83, 0xec, 16, 0x48, 0x8d, 0x6c, 0x24, 24} + kWorks, kWorks) ==
        kByFramePointer);  // lea 24(%rsp),%rbp
  CHECK(caller_of(kFunctionWithFramePointer + Bytes{0xf3, 0x0f, 0x1e, 0xfa, 0x55, 0x48, 0x89, 0xe5} + kWorks, kWorks) ==
        kByFramePointer);
}

TEST_CASE("rbp belongs to the caller if the code does not set it, or if another function does") {
  CHECK(caller_of(kNop, kWorks) == kNone);
  CHECK(caller_of(Bytes{0x48, 0x83, 0xec, 24, 0xff, 0xd7}, kWorks) == kNone);  // sub $24,%rsp; call *%rdi
  CHECK(caller_of(kFunctionWithFramePointer + Bytes{0x48, 0x83, 0xec, 24} + kWorks, kWorks) == kNone);
  CHECK(caller_of(Bytes{0x55, 0x48, 0x89, 0xe5, 0x5b, 0xc3, 0xcc, 0xcc} + kWorks, kWorks) == kNone);
}

TEST_CASE("a return is not the end of the function if a jump leads past it") {
  // push %rbp; mov %rsp,%rbp; test %eax,%eax; je over; pop %rbp; ret; over:
  CHECK(caller_of(Bytes{0x55, 0x48, 0x89, 0xe5, 0x85, 0xc0, 0x74, 2, 0x5d, 0xc3} + kWorks, kWorks) == kByFramePointer);
  CHECK(caller_of(Bytes{0x55, 0x48, 0x89, 0xe5, 0x85, 0xc0, 0x0f, 0x84, 2, 0, 0, 0, 0x5d, 0xc3} + kWorks, kWorks) ==
        kByFramePointer);
  // mov %rax,%rbx; nop: no return
  CHECK(caller_of(Bytes{0x55, 0x48, 0x89, 0xe5, 0x48, 0x89, 0xc3, 0x90} + kWorks, kWorks) == kByFramePointer);
}

}  // namespace
}  // namespace rankstacks::unwind
