// From registers to return addresses. Both implementations access the target only through Target, so they work in the
// same way on live copies and cores.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "model/snapshot.h"
#include "target/target.h"

namespace rankstacks::unwind {

struct UnwoundFrame {
  Address pc = 0;  // as gdb shows it: the innermost pc, else the return address
  Address sp = 0;  // rsp in this frame, at pc
  // rsp in the caller: the frame's own part of the stack is [sp, cfa). 0: unknown (the outermost frame).
  Address cfa = 0;
  // pc is an instruction about to run (innermost, or interrupted by a signal): look up pc, else pc-1.
  bool exact_pc = false;
  FrameOrigin origin = FrameOrigin::kNormal;

  Address lookup_pc() const { return exact_pc ? pc : pc - 1; }
};

struct UnwoundStack {
  std::vector<UnwoundFrame> frames;  // innermost first
  StackEnd end = StackEnd::kComplete;
  std::optional<OmittedFrames> omitted;
  std::string note;  // one line for the report's problems; empty if there is none
};

// Of a deeper stack both ends are kept, half of the limit each; the middle is counted and left out.
inline constexpr std::size_t kMaxFrames = 8192;
// The walk of a stack is given up after this many frames: no real stack is as deep (8 MiB of main stack, with at least
// 16 bytes per frame).
inline constexpr std::size_t kMaxUnwoundFrames = 1u << 19;

class Unwinder {
 public:
  virtual ~Unwinder() = default;
  virtual const char* name() const = 0;
  // Never throws, always ends. The first frame is always the one that `registers` describes.
  virtual UnwoundStack unwind(const target::Registers& registers) = 0;
};

// One unwinder per target and thread of the tool; the target outlives it.
std::unique_ptr<Unwinder> make_libunwind_unwinder(const target::Target& target);
std::unique_ptr<Unwinder> make_libdwfl_unwinder(const target::Target& target);

}  // namespace rankstacks::unwind
