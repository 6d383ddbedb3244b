#include "python/gil.h"

#include <fmt/format.h>
#include <algorithm>

#include "python/objects.h"

namespace rankstacks::python {
namespace {

// Up to 3.11 there is one GIL, in _PyRuntime. Its holder is also the runtime's current thread state, which is NULL
// while no thread holds the GIL.
void read_runtime_gil(const target::Target& target, const Layout& layout, const RuntimeCandidate& runtime,
                      GilState& gil) {
  const Address where = runtime.tstate_current != 0                ? runtime.tstate_current
                        : layout.runtime_tstate_current != kAbsent ? runtime.runtime + layout.runtime_tstate_current
                                                                   : 0;
  if (where != 0) {
    if (const auto holder = target.read_value<Address>(where)) {
      if (*holder != 0) gil.holders.insert(*holder);
    } else {
      gil.problems.push_back("who holds the GIL cannot be read");
    }
  }
  if (layout.runtime_gil == kAbsent) return;
  const Address start = runtime.runtime + layout.runtime_gil;
  gil.ranges.push_back({start, start + layout.gil_size});
}

// From 3.12 each interpreter has a pointer to its own GIL or to the main interpreter's.
void read_interpreter_gil(const target::Target& target, const Layout& layout, Address where, GilState& gil) {
  if (std::any_of(gil.ranges.begin(), gil.ranges.end(), [&](const Range& r) { return r.start == where; })) return;
  StructCopy copy;
  if (!copy.read(target, where, layout.gil_size)) {
    gil.problems.push_back(fmt::format("the GIL at {:#x} cannot be read", where));
    return;
  }
  // -1 before it is created, then 0 or 1.
  const auto locked = copy.get<std::int32_t>(layout.gil_locked);
  if (locked < -1 || locked > 1) {
    gil.problems.push_back(fmt::format("the GIL at {:#x} cannot be one: locked is {}", where, locked));
    return;
  }
  if (layout.gil_enabled != kAbsent && copy.get<std::int32_t>(layout.gil_enabled) == 0) return;
  gil.ranges.push_back({where, where + layout.gil_size});
  if (locked != 1) return;
  if (const auto holder = copy.get<Address>(layout.gil_last_holder); holder != 0) gil.holders.insert(holder);
}

}  // namespace

GilState read_gil(const target::Target& target, const Layout& layout, const RuntimeCandidate& runtime,
                  std::span<const Address> interpreters) {
  GilState gil;
  if (layout.interp_gil == kAbsent) {
    read_runtime_gil(target, layout, runtime, gil);
    return gil;
  }
  for (const Address interpreter : interpreters) {
    const auto where = target.read_value<Address>(interpreter + layout.interp_gil);
    if (where && *where != 0) read_interpreter_gil(target, layout, *where, gil);
  }
  return gil;
}

}  // namespace rankstacks::python
