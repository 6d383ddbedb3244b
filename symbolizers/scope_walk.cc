#include "symbolizers/scope_walk.h"

#include <dwarf.h>
#include <algorithm>

namespace rankstacks::symbolizers {
namespace {

constexpr int kDeepest = 256;                      // nested scopes; gcc's own limit for brackets is 256
constexpr std::uint64_t kMaxEntries = 20'000'000;  // the largest units seen have 2 million

using Selection = std::vector<std::uint32_t>;  // ascending indices of addresses

class Walk {
 public:
  Walk(const DwarfUnit& unit, std::span<const Vaddr> addresses, DeadlineCheck& deadline)
      : unit_(unit), addresses_(addresses), chains_(addresses.size()), deadline_(deadline) {}

  // `inlined_depth` is the length of the chains of the selected addresses: an address with a longer chain is already
  // placed.
  void children_of(Dwarf_Die& parent, const Selection& selected, std::size_t inlined_depth, int depth) {
    Dwarf_Die child;
    if (depth > kDeepest || dwarf_child(&parent, &child) != 0) return;
    do {
      if (++entries_ > kMaxEntries || deadline_.passed()) return;
      const Dwarf_Off here = dwarf_dieoffset(&child);
      visit(child, selected, inlined_depth, depth);
      if (std::all_of(selected.begin(), selected.end(),
                      [&](std::uint32_t i) { return chains_[i].size() > inlined_depth; }))
        return;
      // In a broken file DW_AT_sibling can lead back.
      Dwarf_Die next;
      if (dwarf_siblingof(&child, &next) != 0 || dwarf_dieoffset(&next) <= here) return;
      child = next;
    } while (true);
  }

  // Also enters subprograms without code: a function that is local to an abstract one may have its code described
  // there.
  void enter_abstract() { enter_abstract_ = true; }
  std::vector<ScopeChain>& chains() { return chains_; }

 private:
  void visit(Dwarf_Die& die, const Selection& selected, std::size_t inlined_depth, int depth) {
    switch (dwarf_tag(&die)) {
      case DW_TAG_subprogram: {
        bool has_code = false;
        const Selection inside = in_ranges(die, selected, inlined_depth, has_code);
        if (!inside.empty()) {
          // Of nested functions, the innermost one is the function.
          for (const std::uint32_t i : inside) chains_[i].assign(1, die);
          children_of(die, inside, 1, depth + 1);
        } else if (!has_code && enter_abstract_) {
          children_of(die, selected, inlined_depth, depth + 1);
        }
        break;
      }
      case DW_TAG_inlined_subroutine: {
        bool has_code = false;
        const Selection inside = in_ranges(die, selected, inlined_depth, has_code);
        for (const std::uint32_t i : inside) chains_[i].push_back(die);
        if (!inside.empty()) children_of(die, inside, inlined_depth + 1, depth + 1);
        break;
      }
      case DW_TAG_lexical_block:
      case DW_TAG_try_block:
      case DW_TAG_catch_block:
      case DW_TAG_with_stmt: {
        bool has_code = false;
        const Selection inside = in_ranges(die, selected, inlined_depth, has_code);
        if (!inside.empty() || !has_code) children_of(die, has_code ? inside : selected, inlined_depth, depth + 1);
        break;
      }
      case DW_TAG_namespace:
      case DW_TAG_module:
      case DW_TAG_class_type:
      case DW_TAG_structure_type: children_of(die, selected, inlined_depth, depth + 1); break;
      default: break;
    }
  }

  Selection in_ranges(Dwarf_Die& die, const Selection& selected, std::size_t inlined_depth, bool& has_code) const {
    Selection inside;
    RangeReader ranges = unit_.ranges(die);
    has_code = ranges.has_code();
    const auto address_at = [&](std::size_t place) { return addresses_[selected[place]]; };
    for (const std::size_t place : places_in_ranges(ranges, deadline_, selected.size(), address_at)) {
      if (chains_[selected[place]].size() == inlined_depth) inside.push_back(selected[place]);
    }
    return inside;
  }

  const DwarfUnit& unit_;
  std::span<const Vaddr> addresses_;
  std::vector<ScopeChain> chains_;
  DeadlineCheck& deadline_;
  std::uint64_t entries_ = 0;
  bool enter_abstract_ = false;
};

}  // namespace

std::vector<ScopeChain> find_scopes(DwarfUnit& unit, std::span<const Vaddr> addresses, DeadlineCheck& deadline) {
  Walk walk(unit, addresses, deadline);
  Selection all(addresses.size());
  for (std::uint32_t i = 0; i < all.size(); ++i) all[i] = i;
  walk.children_of(unit.die(), all, 0, 0);

  Selection missing;
  for (const std::uint32_t i : all) {
    if (walk.chains()[i].empty()) missing.push_back(i);
  }
  if (!missing.empty()) {
    walk.enter_abstract();
    walk.children_of(unit.die(), missing, 0, 0);
  }
  return std::move(walk.chains());
}

}  // namespace rankstacks::symbolizers
