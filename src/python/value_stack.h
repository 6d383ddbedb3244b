// The value stack of a Python frame, and what of it is certain to be in use.
//
// How high it stands is known to nobody but the eval loop while that executes the frame (3.14 writes it down before most calls, earlier versions do not): above it
// lie values that were left there, of objects that may be gone. But `with` and `try` statements note how high it stood when they began, so that an exception finds
// its way back: up to 3.10 in the frame's blocks, from 3.11 on in the code's exception table. What lies below that is in use for as long as the statement lasts.
#pragma once

#include "python/objects.h"
#include "target/target.h"

namespace rankstacks::python {

inline constexpr std::size_t kMaxStackSlots = 1024;          // of one frame; real ones have 10
inline constexpr std::size_t kMaxExceptionTables = 16u << 20;   // bytes that are looked through; a function's has 100

// Where it lies: all slots that the code may use. Empty: that cannot be told, or it has more than kMaxStackSlots. Reads the frame's head up to 3.10, else nothing.
Range value_stack_of(const Target& target, const Layout& layout, const RawFrame& frame, const CodeReader::Body& body);

// What slots_in_use() will read of the frame: a range for Target::prefetch. Of the exception table the likely length.
Range statements_of(const Layout& layout, const RawFrame& frame, const CodeReader::Body& body);

// How many slots, from the bottom on, the statements around the frame's instruction keep in use. 0: none does, or that cannot be told. `bytes_left`: as many bytes
// of exception tables may be read; what was is taken off.
std::size_t slots_in_use(const Target& target, const Layout& layout, const RawFrame& frame, const CodeReader::Body& body, std::size_t& bytes_left);

// By an exception table (3.11+): the level that it states for a code unit.
std::size_t level_in(std::span<const std::uint8_t> exception_table, std::uint64_t unit);

}  // namespace rankstacks::python
