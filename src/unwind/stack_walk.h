// The policy that both library unwinders share: what is a frame, when is a stack complete, what to do where unwind information ends.
//
// A FrameStepper (libunwind or libdwfl behind it) knows how to go from one frame to its caller by unwind information, and nothing else. Where
// it cannot, walk_stack() tries what can be verified and marks it:
//   - pc is no code (a call through a wild or null pointer): the return address on top of the stack   -> FrameOrigin::kReturnSlot
//   - code without unwind information (JIT, assembly) that does nothing more than return (add N,%rsp; pop; ret): where that leads -> kReturnSlot
//   - other such code: the frame pointer, where the code before shows that it keeps one                -> FrameOrigin::kFramePointer
// A recovered return address must lie in executable memory right behind a call instruction; if not, the stack ends there.
#pragma once

#include <optional>

#include "unwind/unwinder.h"

namespace rankstacks {

class FrameStepper {
 public:
  enum class Step {
    kStepped,        // `next` holds the caller's registers
    kOutermost,      // unwind information says: no caller
    kNoUnwindInfo,
    kMemoryUnavailable,
  };
  virtual ~FrameStepper() = default;

  // Positions on a frame. `exact_pc`: its pc is an instruction about to run; else a return address.
  virtual void start(const Registers& registers, bool exact_pc) = 0;

  // Goes to the caller. `next` needs rip and rsp, and rbp where known. `signal_frame`: the frame just left was a signal trampoline.
  virtual Step step(Registers& next, bool& signal_frame) = 0;
};

UnwoundStack walk_stack(const Target& target, FrameStepper& stepper, const Registers& registers);

// Is there executable memory at `a`?
bool is_executable(const Target& target, Address a);

// Does a call instruction end right before `return_address`, as far as its bytes can be read? For a direct call, `callee` must lie behind
// its target (0: any).
bool follows_call(const Target& target, Address return_address, Address callee);

// The target of the direct call right before `return_address`. Nothing: there is none, or another kind of call.
std::optional<Address> called_before(const Target& target, Address return_address);

}  // namespace rankstacks
