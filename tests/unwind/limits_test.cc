// Stacks that never end by themselves, and deadlines.
#include <catch2/catch.hpp>

#include "support/fake_target.h"
#include "target/limited_target.h"
#include "unwind/stack_walk.h"

namespace rankstacks::unwind {
namespace {

using namespace std::chrono_literals;

// Each frame is 16 bytes above the one before, and none is the last: a hostile unwind table can describe that.
class Endless final : public FrameStepper {
 public:
  Endless(const target::Target& target, bool reads, std::size_t readable = ~std::size_t{0})
      : target_(target), reads_(reads), readable_(readable) {}
  void start(const target::Registers& registers, bool) override { at_ = registers; }
  Step step(target::Registers& next, bool& signal_frame) override {
    signal_frame = false;
    if (readable_-- == 0) return Step::kMemoryUnavailable;
    if (reads_ && !target_.read_value<Address>(0x1000)) return Step::kMemoryUnavailable;
    at_.set(target::kRsp, at_.sp() + 16);
    next = at_;
    return Step::kStepped;
  }

 private:
  const target::Target& target_;
  bool reads_;
  std::size_t readable_;  // number of steps until the memory ends
  target::Registers at_;
};

target::Registers somewhere() {
  target::Registers registers;
  registers.set(target::kRip, 0x400000);
  registers.set(target::kRsp, 0x7ffc0000);
  return registers;
}

TEST_CASE("a stack that never ends is given up; both ends are kept") {
  testing::FakeTarget target;
  target.put_value<Address>(0x1000, 1);
  Endless stepper(target, true);
  const UnwoundStack stack = walk_stack(target, stepper, somewhere());
  CHECK(stack.end == StackEnd::kDepthLimit);
  CHECK(stack.frames.size() == kMaxFrames);
  REQUIRE(stack.omitted);
  CHECK(stack.omitted->count == kMaxUnwoundFrames - kMaxFrames);
}

TEST_CASE("a stack that is deeper than what is kept, and whose memory ends, is not reported as merely deep") {
  testing::FakeTarget target;
  Endless stepper(target, false, kMaxFrames + 10);
  const UnwoundStack stack = walk_stack(target, stepper, somewhere());
  CHECK(stack.end == StackEnd::kMemoryUnavailable);
  CHECK(stack.frames.size() == kMaxFrames);
  REQUIRE(stack.omitted);
  CHECK(stack.omitted->count == 11);
}

TEST_CASE("past the deadline a stack ends with the frames it has, at least the innermost one") {
  testing::FakeTarget memory;
  memory.put_value<Address>(0x1000, 1);
  const target::LimitedTarget target(memory, Deadline::after(0s));
  const bool reads = GENERATE(true, false);  // unwind tables can compute a caller from registers alone
  Endless stepper(target, reads);
  const UnwoundStack stack = walk_stack(target, stepper, somewhere());
  CHECK(stack.end == StackEnd::kMemoryUnavailable);
  REQUIRE(stack.frames.size() == 1);
  CHECK(stack.frames[0].pc == 0x400000);
  CHECK(target.gave_up());
}

}  // namespace
}  // namespace rankstacks::unwind
