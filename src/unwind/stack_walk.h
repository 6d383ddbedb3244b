// The rules that both library unwinders share: what is a frame, when a stack is complete, what to do where unwind
// information ends.
//
// A FrameStepper (with libunwind or libdwfl behind it) steps from a frame to its caller by unwind information, and
// knows nothing else. Where the frame pointer is missing for that, it is derived from the stack pointer, if the code
// tells the distance between the two (frame_pointer.h). Where there is no unwind information, walk_stack() tries what
// can be verified, and marks the result:
//   - pc is not in code (a call through a wild or null pointer): the return address on top of the stack -> kReturnSlot
//   - code without unwind information (JIT, assembly) that only returns (add N,%rsp; pop; ret): its return ->
//   kReturnSlot
//   - other such code: the frame pointer, if the code before shows that it keeps one -> kFramePointer
// A recovered return address must be in executable memory right behind a call instruction; if not, the stack ends
// there.
#pragma once

#include <optional>

#include "unwind/unwinder.h"

namespace rankstacks::unwind {

class FrameStepper {
 public:
  enum class Step {
    kStepped,    // `next` holds the caller's registers
    kOutermost,  // the unwind information says that there is no caller
    kNoUnwindInfo,
    kMemoryUnavailable,
    kRegistersUnknown,  // the caller is where a register says that is not known
  };
  virtual ~FrameStepper() = default;

  // Positions the stepper on a frame. `exact_pc`: its pc is an instruction about to run; else it is a return address.
  virtual void start(const target::Registers& registers, bool exact_pc) = 0;

  // Steps to the caller. `next` needs rip and rsp, and rbp if known. `signal_frame`: the frame just left was a signal
  // trampoline.
  virtual Step step(target::Registers& next, bool& signal_frame) = 0;
};

UnwoundStack walk_stack(const target::Target& target, FrameStepper& stepper, const target::Registers& registers);

// Whether there is executable memory at `a`.
bool is_executable(const target::Target& target, Address a);

// Whether a call instruction ends right before `return_address`, as far as its bytes can be read. For a direct call,
// `callee` must be behind the call's target (0: any).
bool follows_call(const target::Target& target, Address return_address, Address callee);

// The target of the direct call right before `return_address`; std::nullopt if there is no call or one of another kind.
std::optional<Address> called_before(const target::Target& target, Address return_address);

}  // namespace rankstacks::unwind
