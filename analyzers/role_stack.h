// The frames of a stack from which rules derive a thread's role.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "model/snapshot.h"

namespace rankstacks::analyzers {

// Frames that a wait consists of, and that never show where it is: the C and C++ libraries, Abseil's and nsync's
// waits, a thread's start.
bool is_foreign(const Frame& frame);

// What the names of a frame mean to these rules.
struct FrameTrait {
  bool python = false;
  bool waits = false;    // Python: one of the standard library's waits
  bool enters = false;   // Python: starts a thread or its task
  bool starts = false;   // native: of the C or C++ library, or starts a thread; never an entry
  bool foreign = false;  // native: is_foreign
};

// The traits of every frame of a job, computed once.
class FrameTraits {
 public:
  explicit FrameTraits(const FrameTable& frames);
  const FrameTrait& operator[](FrameId id) const { return traits_[id]; }

 private:
  std::vector<FrameTrait> traits_;
};

struct RoleStack {
  const JobSnapshot& job;
  const ThreadSnapshot& thread;
  std::optional<FrameId> entry;           // outermost native frame that starts nothing
  std::optional<FrameId> entry_function;  // the same, with a name
  std::optional<FrameId> innermost_own;   // innermost native frame that is not foreign
  std::optional<FrameId> python_entry;    // outermost Python frame that starts no thread
  std::optional<FrameId> python_place;    // innermost Python frame that is no wait of the standard library
  std::size_t own_frames = 0;             // native ones that are not foreign
  bool has_python = false;

  RoleStack(const JobSnapshot& j, const ThreadSnapshot& t);                             // of a single thread
  RoleStack(const JobSnapshot& j, const ThreadSnapshot& t, const FrameTraits& traits);  // of one of many

 private:
  void add(FrameId id, const FrameTrait& trait);
};

}  // namespace rankstacks::analyzers
