// The functions that cover some addresses of one compilation unit, with what is inlined there: one walk over its entries (DIEs),
// which enters only what covers one of the addresses.
//
//     unit --- subprogram main [a0, a1 in it] --- inlined helper [a1] --- lexical block --- inlined leaf [a1]
//          |-- subprogram f    [none: skipped]
//          `-- namespace n --- subprogram n::g [a2]                  chain of a1: main, helper, leaf
#pragma once

#include <algorithm>
#include <cstdint>
#include <elfutils/libdw.h>
#include <span>
#include <utility>
#include <vector>

#include "base/deadline.h"
#include "base/types.h"

namespace rankstacks {

// A subprogram first, then the inlined subroutines in it, inwards. Empty: no function of the unit covers the address.
using ScopeChain = std::vector<Dwarf_Die>;

// Parallel to `addresses` (sorted).
std::vector<ScopeChain> find_scopes(Dwarf_Die& unit, std::span<const Vaddr> addresses, DeadlineCheck& deadline);

// Calls `use(low, high)` for each range of the entry's code, until the deadline. Returns false when it has none. A function that the linker dropped
// keeps its entry, at address 0, where no image has code.
template <class Use>
bool for_each_range(Dwarf_Die& die, DeadlineCheck& deadline, Use use) {
  constexpr int kMostRanges = 1 << 20;   // a broken list that does not end
  Dwarf_Addr base = 0;
  Dwarf_Addr low = 0;
  Dwarf_Addr high = 0;
  std::ptrdiff_t next = 0;
  bool any = false;
  for (int i = 0; i < kMostRanges && !deadline.passed() && (next = dwarf_ranges(&die, next, &base, &low, &high)) > 0; ++i) {
    any = true;
    if (low != 0 && low < high) use(low, high);
  }
  return any;
}

// Which of some sorted addresses the entry's ranges hold, each once: ranges may overlap, as often as a broken file likes. Sets `has_code`.
template <class AddressAt>
std::vector<std::size_t> places_in_ranges(Dwarf_Die& die, DeadlineCheck& deadline, std::size_t count, AddressAt address_at, bool& has_code) {
  std::vector<std::pair<std::size_t, std::size_t>> held;   // first place, place behind the last
  const auto place_of = [&](Vaddr v) {
    std::size_t low = 0, high = count;
    while (low < high) {
      const std::size_t middle = (low + high) / 2;
      if (address_at(middle) < v) low = middle + 1;
      else high = middle;
    }
    return low;
  };
  has_code = for_each_range(die, deadline, [&](Vaddr low, Vaddr high) {
    const std::size_t from = place_of(low);
    if (from < count && address_at(from) < high) held.emplace_back(from, place_of(high));
  });
  std::sort(held.begin(), held.end());
  std::vector<std::size_t> places;
  std::size_t next = 0;
  for (const auto& [from, end] : held)
    for (next = std::max(next, from); next < end; ++next) places.push_back(next);
  return places;
}

}  // namespace rankstacks
