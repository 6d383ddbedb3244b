#include "unwind/glanced_stack.h"

#include <array>

#include "unwind/stack_walk.h"

namespace rankstacks {

std::optional<UnwoundStack> unwind_glance(const Target& target, const Registers& registers) {
  const auto unwinder = make_libunwind_unwinder(target);
  UnwoundStack stack = unwinder->unwind(registers);
  if (stack.end == StackEnd::kComplete) return stack;
  if (registers.has(kRbp)) return std::nullopt;

  // In the frame that the walk stopped at: usually far smaller.
  constexpr Address kLargestFrame = 4096, kSlot = 8;
  constexpr int kMostTries = 8;
  const Address from = stack.frames.back().sp & ~(kSlot - 1);
  int tries = 0;
  for (Address a = from; a < from + kLargestFrame && tries < kMostTries; a += kSlot) {
    const auto pushed = target.read_value<std::array<Address, 2>>(a);   // the caller's rbp, the return address
    if (!pushed) break;
    const auto [rbp, return_address] = *pushed;
    if ((rbp != 0 && rbp <= a) || !follows_call(target, return_address, 0)) continue;
    ++tries;
    Registers guess = registers;
    guess.set(kRbp, a);
    stack = unwinder->unwind(guess);
    if (stack.end == StackEnd::kComplete) return stack;
  }
  return std::nullopt;
}

}  // namespace rankstacks
