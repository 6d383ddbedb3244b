// The functions that cover some addresses of one compilation unit, with what is inlined there: one walk over its entries (DIEs),
// which enters only what covers one of the addresses.
//
//     unit --- subprogram main [a0, a1 in it] --- inlined helper [a1] --- lexical block --- inlined leaf [a1]
//          |-- subprogram f    [none: skipped]
//          `-- namespace n --- subprogram n::g [a2]                  chain of a1: main, helper, leaf
#pragma once

#include <cstdint>
#include <elfutils/libdw.h>
#include <span>
#include <vector>

#include "base/deadline.h"
#include "base/types.h"
#include "symbolizers/dwarf_unit.h"

namespace rankstacks {

// A subprogram first, then the inlined subroutines in it, inwards. Empty: no function of the unit covers the address.
using ScopeChain = std::vector<Dwarf_Die>;

// Parallel to `addresses` (sorted).
std::vector<ScopeChain> find_scopes(DwarfUnit& unit, std::span<const Vaddr> addresses, DeadlineCheck& deadline);

}  // namespace rankstacks
