// Interpreters of every layout, for tests that run on all of them.
#pragma once

#include "debug_offsets.h"
#include "fake_interpreter.h"

namespace rankstacks::testing {

// 6 to 12: 3.6 to 3.12; 13 to 15: those that state their own layout; 16: a free-threaded 3.14.
inline FakeInterpreter interpreter_of(int which) {
  if (which == 13) return FakeInterpreter(kDebugOffsets_3_13_0);
  if (which == 14) return FakeInterpreter(kDebugOffsets_3_14_10);
  if (which == 15) return FakeInterpreter(kDebugOffsets_3_15_2);
  if (which == 16) return FakeInterpreter(kDebugOffsets_3_14_10t);
  return FakeInterpreter(python::Version{3, which, 9, ""});
}

}  // namespace rankstacks::testing
