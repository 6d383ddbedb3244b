#include "unwind/cfi_expression.h"

#include <dwarf.h>
#include <array>
#include <optional>

#include "target/registers.h"
#include "unwind/cfi_reader.h"

namespace rankstacks::unwind {
namespace {

struct Effect {
  unsigned needs = 0;  // values that must be on the stack
  int change = 0;      // of the number of values
};

// Reads the operands. std::nullopt if the operation may not be evaluated.
std::optional<Effect> effect_of(std::uint8_t operation, CfiReader& reader) {
  if (operation >= DW_OP_lit0 && operation <= DW_OP_lit31) return Effect{0, 1};
  if (operation >= DW_OP_breg0 && operation <= DW_OP_breg31) {
    reader.sleb();
    if (operation - DW_OP_breg0 >= static_cast<int>(target::kDwarfRegisters)) return std::nullopt;
    return Effect{0, 1};
  }
  switch (operation) {
    case DW_OP_const1u:
    case DW_OP_const1s: reader.take(1); return Effect{0, 1};
    case DW_OP_const2u:
    case DW_OP_const2s: reader.take(2); return Effect{0, 1};
    case DW_OP_const4u:
    case DW_OP_const4s: reader.take(4); return Effect{0, 1};
    case DW_OP_const8u:
    case DW_OP_const8s: reader.take(8); return Effect{0, 1};
    case DW_OP_constu: reader.uleb(); return Effect{0, 1};
    case DW_OP_consts: reader.sleb(); return Effect{0, 1};
    case DW_OP_bregx: {
      const bool known = reader.uleb() < target::kDwarfRegisters;
      reader.sleb();
      if (!known) return std::nullopt;
      return Effect{0, 1};
    }
    case DW_OP_dup: return Effect{1, 1};
    case DW_OP_drop: return Effect{1, -1};
    case DW_OP_over: return Effect{2, 1};
    case DW_OP_pick: return Effect{reader.fixed<std::uint8_t>() + 1u, 1};
    case DW_OP_swap: return Effect{2, 0};
    case DW_OP_rot: return Effect{3, 0};
    case DW_OP_deref_size: {
      const auto size = reader.fixed<std::uint8_t>();
      if (size != 1 && size != 2 && size != 4 && size != 8) return std::nullopt;
      return Effect{1, 0};
    }
    case DW_OP_plus_uconst: reader.uleb(); return Effect{1, 0};
    case DW_OP_deref:
    case DW_OP_abs:
    case DW_OP_neg:
    case DW_OP_not: return Effect{1, 0};
    case DW_OP_and:
    case DW_OP_or:
    case DW_OP_xor:
    case DW_OP_plus:
    case DW_OP_minus:
    case DW_OP_mul:
    case DW_OP_shl:
    case DW_OP_shr:
    case DW_OP_shra:
    case DW_OP_eq:
    case DW_OP_ne:
    case DW_OP_lt:
    case DW_OP_le:
    case DW_OP_gt:
    case DW_OP_ge: return Effect{2, -1};
    case DW_OP_nop: return Effect{0, 0};
    default: return std::nullopt;
  }
}

}  // namespace

bool is_sound_expression(std::span<const std::byte> expression, unsigned pushed) {
  if (expression.size() > kMaxExpressionBytes) return false;
  constexpr int kUnknown = -1;
  // The number of values at each place where a jump arrives. As no jump goes back, all jumps to a place are seen before
  // it.
  std::array<int, kMaxExpressionBytes + 1> arriving;
  arriving.fill(kUnknown);
  int depth = static_cast<int>(pushed);  // kUnknown: right behind a jump that is always taken
  CfiReader reader(expression);
  while (true) {
    const std::size_t at = reader.offset();
    if (arriving[at] != kUnknown) {
      if (depth != kUnknown && depth != arriving[at]) return false;
      depth = arriving[at];
    }
    if (depth == kUnknown) return false;
    if (reader.at_end()) break;
    const auto operation = reader.fixed<std::uint8_t>();
    if (operation == DW_OP_skip || operation == DW_OP_bra) {
      const auto distance = reader.fixed<std::int16_t>();
      if (operation == DW_OP_bra && --depth < 0) return false;
      if (!reader.ok() || distance < 0 || static_cast<std::size_t>(distance) > reader.left()) return false;
      int& there = arriving[reader.offset() + static_cast<std::size_t>(distance)];
      if (there != kUnknown && there != depth) return false;
      there = depth;
      if (operation == DW_OP_skip) depth = kUnknown;
    } else {
      const auto effect = effect_of(operation, reader);
      if (!effect || !reader.ok() || static_cast<unsigned>(depth) < effect->needs) return false;
      depth += effect->change;
      if (depth > static_cast<int>(kMaxExpressionValues)) return false;
    }
    // A jump into the middle of an operation would take its operands for operations.
    for (std::size_t inside = at + 1; inside < reader.offset(); ++inside) {
      if (arriving[inside] != kUnknown) return false;
    }
  }
  return depth > 0;
}

}  // namespace rankstacks::unwind
