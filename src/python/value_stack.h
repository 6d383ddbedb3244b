// The value stack of a Python frame, and the part of it that is certainly in use.
//
// Only the eval loop knows the current height of the stack while it executes the frame (3.14 stores it before most
// calls, earlier versions do not). Above that height are leftover values, of objects that may be gone. But `with` and
// `try` statements record the height at which they began, for exception handling: up to 3.10 in the frame's blocks,
// from 3.11 on in the code's exception table. The slots below that height are in use for as long as the statement
// lasts.
#pragma once

#include "python/objects.h"
#include "target/target.h"

namespace rankstacks::python {

inline constexpr std::size_t kMaxStackSlots = 1024;            // of one frame; real frames have about 10
inline constexpr std::size_t kMaxExceptionTables = 16u << 20;  // bytes read in all; a function's table has about 100

// The range of the value stack: all slots that the code may use. Empty if it cannot be determined, or if there are more
// than kMaxStackSlots. Up to 3.10 this reads the head of the frame; from 3.11 on it reads nothing.
Range value_stack_of(const target::Target& target, const Layout& layout, const RawFrame& frame,
                     const CodeReader::Body& body);

// The range that slots_in_use() will read for the frame, for Target::prefetch. Covers the likely length of an exception
// table.
Range statements_of(const Layout& layout, const RawFrame& frame, const CodeReader::Body& body);

// The number of slots, from the bottom of the stack, that the statements around the frame's instruction keep in use. 0
// if there is no such statement, or if it cannot be determined. At most `bytes_left` bytes of exception tables are
// read; the bytes read are subtracted from it.
std::size_t slots_in_use(const target::Target& target, const Layout& layout, const RawFrame& frame,
                         const CodeReader::Body& body, std::size_t& bytes_left);

// The stack level that an exception table (3.11+) states for a code unit.
std::size_t level_in(std::span<const std::uint8_t> exception_table, std::uint64_t unit);

}  // namespace rankstacks::python
