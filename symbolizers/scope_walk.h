// The functions that cover some addresses of one compilation unit, and the functions inlined there: one walk over its
// entries (DIEs), which descends only into entries that cover one of the addresses.
//
//     unit --- subprogram main [a0, a1 in it] --- inlined helper [a1] --- lexical block --- inlined leaf [a1]
//          |-- subprogram f    [none: skipped]
//          `-- namespace n --- subprogram n::g [a2]                  chain of a1: main, helper, leaf
#pragma once

#include <elfutils/libdw.h>
#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/deadline.h"
#include "base/types.h"
#include "symbolizers/dwarf_unit.h"

namespace rankstacks::symbolizers {

// A subprogram, followed by the subroutines inlined in it, from the outside inwards. Empty if no function of the unit
// covers the address.
using ScopeChain = std::vector<Dwarf_Die>;

// Parallel to `addresses` (sorted).
std::vector<ScopeChain> find_scopes(DwarfUnit& unit, std::span<const Vaddr> addresses, DeadlineCheck& deadline);

// Which of some sorted addresses are in the entry's ranges, each once: ranges may overlap any number of times in a
// broken file.
template <class AddressAt>
std::vector<std::size_t> places_in_ranges(RangeReader& ranges, DeadlineCheck& deadline, std::size_t count,
                                          AddressAt address_at) {
  std::vector<std::pair<std::size_t, std::size_t>> held;  // first place, place behind the last
  const auto place_of = [&](Vaddr v) {
    std::size_t low = 0, high = count;
    while (low < high) {
      const std::size_t middle = (low + high) / 2;
      if (address_at(middle) < v) low = middle + 1;
      else high = middle;
    }
    return low;
  };
  for (Vaddr low = 0, high = 0; !deadline.passed() && ranges.next(low, high);) {
    const std::size_t from = place_of(low);
    if (from < count && address_at(from) < high) held.emplace_back(from, place_of(high));
  }
  std::sort(held.begin(), held.end());
  std::vector<std::size_t> places;
  std::size_t next = 0;
  for (const auto& [from, end] : held)
    for (next = std::max(next, from); next < end; ++next) places.push_back(next);
  return places;
}

}  // namespace rankstacks::symbolizers
