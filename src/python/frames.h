// Copies chains of Python frames out of a target. The frames are raw: their code objects have not been read yet.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <unordered_set>
#include <vector>

#include "python/layouts.h"
#include "python/objects.h"

namespace rankstacks::python {

inline constexpr std::size_t kMaxFramesPerThread = 100'000;
// Of all threads together: the chains of a damaged process may lead into each other.
inline constexpr std::size_t kMaxFramesInAll = 1u << 20;

// One frame with its fields as they are in memory; the meaning of the numbers depends on the version.
struct ChainFrame {
  Address address = 0;
  Address code = 0;
  std::uint64_t instruction = 0;
  std::uint8_t owner = 0;       // 3.11+
  std::int32_t tlbc_index = 0;  // free-threaded 3.14+
};

struct ChainRun {
  std::vector<ChainFrame> frames;  // innermost first
  std::optional<Address> anchor;
};

// The start of a chain, from the thread state.
struct ChainStart {
  Address thread_state = 0;
  Address frame = 0;   // 0: to be read from the _PyCFrame
  Address cframe = 0;  // 3.10-3.12; 0: none
};

struct Chain {
  std::vector<ChainRun> runs;  // innermost first
  std::string damage;          // why the chain ended early; empty: it is complete
  // 3.11, 3.12: the innermost call's frames were left out because they did not seem to be linked yet: the frame that
  // its _PyCFrame names does not lead to the call before it. Such a call runs no Python code. If the native stack shows
  // that it does, its frames are lost.
  bool left_out_innermost = false;
  // 3.12+: shims of calls whose last frame has been removed and whose values are being released.
  std::vector<Address> empty_calls;
};

// Walks all chains in parallel: each round fetches the next part of every chain in one batch. Bounded by
// kMaxFramesPerThread and kMaxFramesInAll; a frame that was seen before ends its chain.
std::vector<Chain> walk_chains(const target::Target& target, const Layout& layout, std::span<const ChainStart> starts);

}  // namespace rankstacks::python
