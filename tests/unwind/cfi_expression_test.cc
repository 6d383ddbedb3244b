// Which expressions of unwind tables may be evaluated.
#include <catch2/catch.hpp>

#include "support/eh_frame_writer.h"
#include "unwind/cfi_expression.h"

namespace rankstacks::unwind {
namespace {

using testing::bytes;
using testing::Bytes;

bool sound(const Bytes& expression, unsigned pushed = 0) { return is_sound_expression(expression, pushed); }

Bytes repeated(int operation, std::size_t times) { return Bytes(times, static_cast<std::byte>(operation)); }

TEST_CASE("expressions that compilers and linkers write are sound") {
  // A PLT's CFA: rsp + 8 + (((rip & 15) >= 11) << 3)
  CHECK(sound(bytes({DW_OP_breg7, 8, DW_OP_breg16, 0, DW_OP_lit15, DW_OP_and, DW_OP_lit11, DW_OP_ge, DW_OP_lit3,
                     DW_OP_shl, DW_OP_plus})));
  // A realigned stack, and a register saved there.
  CHECK(sound(bytes({DW_OP_breg6, 0x78, DW_OP_deref})));
  CHECK(sound(bytes({DW_OP_breg6, 0x68}), 1));
  // The signal trampoline of glibc.
  CHECK(sound(bytes({DW_OP_breg7, 0xa0, 1, DW_OP_deref})));
  // Two branches, one of which jumps over the other: if rax, 1, else 2.
  CHECK(sound(bytes({DW_OP_breg0, 0, DW_OP_bra, 4, 0, DW_OP_lit2, DW_OP_skip, 1, 0, DW_OP_lit1})));
  CHECK(sound({}, 1));  // the CFA itself
}

TEST_CASE("an expression that cannot be evaluated safely is rejected") {
  const struct {
    const char* what;
    Bytes expression;
    unsigned pushed;
  } cases[] = {
      {"leaves nothing", {}, 0},
      {"drops all", bytes({DW_OP_drop}), 1},
      {"adds to nothing", bytes({DW_OP_lit0, DW_OP_plus}), 0},
      {"swaps one value", bytes({DW_OP_lit0, DW_OP_swap}), 0},
      {"rotates two", bytes({DW_OP_lit0, DW_OP_lit0, DW_OP_rot}), 0},
      {"picks what is not there", bytes({DW_OP_lit0, DW_OP_pick, 1}), 0},
      {"picks far below", bytes({DW_OP_lit0, DW_OP_pick, 255}), 0},
      {"ends in an operand", bytes({DW_OP_const8u, 1, 2, 3}), 0},
      {"a number without end", bytes({DW_OP_constu, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01}),
       0},
      {"a number of 65 bits", bytes({DW_OP_constu, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02}), 0},
      {"jumps back for ever", bytes({DW_OP_lit0, DW_OP_skip, 0xfd, 0xff}), 0},
      {"jumps back on a condition", bytes({DW_OP_lit1, DW_OP_dup, DW_OP_bra, 0xfc, 0xff}), 0},
      {"jumps beyond its end", bytes({DW_OP_lit0, DW_OP_skip, 1, 0}), 0},
      {"jumps into an operand", bytes({DW_OP_lit1, DW_OP_dup, DW_OP_bra, 1, 0, DW_OP_const1u, DW_OP_skip, DW_OP_plus}),
       0},
      {"jumps into a jump", bytes({DW_OP_lit1, DW_OP_dup, DW_OP_bra, 1, 0, DW_OP_skip, 0, 0}), 0},
      {"two ways with stacks that differ", bytes({DW_OP_lit1, DW_OP_dup, DW_OP_bra, 1, 0, DW_OP_lit2}), 0},
      {"what no way leads to", bytes({DW_OP_lit1, DW_OP_skip, 1, 0, DW_OP_lit2, DW_OP_nop}), 0},
      {"divides", bytes({DW_OP_lit1, DW_OP_lit1, DW_OP_div}), 0},
      {"an address", bytes({DW_OP_addr, 0, 0, 0, 0, 0, 0, 0, 0}), 0},
      {"a register as a place", bytes({DW_OP_reg3}), 0},
      {"a register that does not exist", bytes({DW_OP_breg17, 0}), 0},
      {"one with a large number", bytes({DW_OP_bregx, 0x80, 1, 0}), 0},
      {"three bytes", bytes({DW_OP_lit1, DW_OP_deref_size, 3}), 0},
      {"calls", bytes({DW_OP_call4, 0, 0, 0, 0}), 0},
      {"an operation that is none", bytes({DW_OP_lit1, 0x01}), 0},
      {"more values than a stack holds", repeated(DW_OP_lit1, kMaxExpressionValues + 1), 0},
      {"longer than any", repeated(DW_OP_nop, kMaxExpressionBytes + 1), 1},
  };
  for (const auto& [what, expression, pushed] : cases) {
    INFO(what);
    CHECK_FALSE(sound(expression, pushed));
  }
}

TEST_CASE("values at the limits are accepted") {
  CHECK(sound(repeated(DW_OP_lit1, kMaxExpressionValues)));
  CHECK(sound(repeated(DW_OP_nop, kMaxExpressionBytes), 1));
  CHECK(sound(bytes({DW_OP_constu, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01})));
}

}  // namespace
}  // namespace rankstacks::unwind
