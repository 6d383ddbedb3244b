#include "unwind/glanced_stack.h"

#include <array>
#include <vector>

#include "unwind/stack_walk.h"
#include "unwind/vetted_tables.h"

namespace rankstacks::unwind {
namespace {

// Where rbp may point to in the frame where a walk stopped, the likelier addresses first: places that have a caller's
// frame pointer and a return address. A frame may contain such pairs from earlier calls too, in variables that have not
// been written yet; its own pair is one that a call of its function left.
std::vector<Address> likely_frame_pointers(const target::Target& target, const UnwoundFrame& frame) {
  constexpr Address kLargestFrame = 4096, kSlot = 8;  // usually far smaller
  constexpr std::size_t kMaxTries = 8;
  const auto function = VettedTables(target).covered(frame.lookup_pc());
  std::vector<Address> of_its_call, others;
  const Address from = frame.sp & ~(kSlot - 1);
  for (Address a = from; a < from + kLargestFrame; a += kSlot) {
    const auto pushed = target.read_value<std::array<Address, 2>>(a);  // the caller's rbp, the return address
    if (!pushed) break;
    const auto [rbp, return_address] = *pushed;
    if ((rbp != 0 && rbp <= a) || !follows_call(target, return_address, 0)) continue;
    (function && called_before(target, return_address) == function->start ? of_its_call : others).push_back(a);
  }
  of_its_call.insert(of_its_call.end(), others.begin(), others.end());
  if (of_its_call.size() > kMaxTries) of_its_call.resize(kMaxTries);
  return of_its_call;
}

}  // namespace

std::optional<UnwoundStack> unwind_glance(const target::Target& target, const target::Registers& registers) {
  const auto unwinder = make_libunwind_unwinder(target);
  UnwoundStack stack = unwinder->unwind(registers);
  if (stack.end == StackEnd::kComplete) return stack;
  if (registers.has(target::kRbp)) return std::nullopt;

  for (const Address rbp : likely_frame_pointers(target, stack.frames.back())) {
    target::Registers guess = registers;
    guess.set(target::kRbp, rbp);
    stack = unwinder->unwind(guess);
    if (stack.end == StackEnd::kComplete) return stack;
  }
  return std::nullopt;
}

}  // namespace rankstacks::unwind
