// Unwind tables that are meant to harm an unwinder: the stack ends at such a table, and the tool goes on.
#include <catch2/catch.hpp>

#include "support/eh_frame_writer.h"
#include "unwind/unwinder.h"
#include "unwind/vetted_tables.h"

namespace rankstacks::unwind {
namespace {

using testing::bytes;
using testing::Bytes;
using testing::CieBytes;
using testing::FdeBytes;
using testing::uleb;
using testing::UnwindableTarget;
using testing::operator+;

std::vector<Address> pcs(const UnwoundStack& stack) {
  std::vector<Address> out;
  for (const auto& frame : stack.frames) out.push_back(frame.pc);
  return out;
}

FdeBytes with(const Bytes& instructions) {
  FdeBytes fde;
  fde.instructions = instructions;
  return fde;
}

TEST_CASE("valid tables are followed to the end, with the same result of both unwinders") {
  // The CFA of each: rsp + 8; rsp + 24 in the middle of it; rsp + 16 by an expression. Where rbx is saved does not
  // matter.
  UnwindableTarget target(
      {},
      {with({}),
       with(bytes(
           {DW_CFA_advance_loc | 4, DW_CFA_def_cfa_offset, 24, DW_CFA_advance_loc | 8, DW_CFA_def_cfa_offset, 8})),
       with(bytes({DW_CFA_def_cfa_expression, 2, DW_OP_breg7, 16, DW_CFA_expression, 3, 2, DW_OP_lit8, DW_OP_minus}))});
  const target::Registers registers =
      target.thread(0, {target.pc(1), 0, 0, target.pc(2), 0, target.pc(1), 0, 0, target.pc(2), 0, 0});
  const std::vector<Address> expected = {target.pc(0), target.pc(1), target.pc(2), target.pc(1), target.pc(2)};
  for (const auto& unwinder : {make_libunwind_unwinder(target), make_libdwfl_unwinder(target)}) {
    INFO(unwinder->name());
    for (int again = 0; again < 2; ++again) {
      const UnwoundStack stack = unwinder->unwind(registers);
      CHECK(stack.end == StackEnd::kComplete);
      CHECK(pcs(stack) == expected);
    }
  }
}

TEST_CASE("a table that would make an unwinder read outside of its arrays, trap, or never end, ends the stack") {
  const auto trap =
      bytes({DW_CFA_def_cfa_expression, 12, DW_OP_const8u, 0, 0, 0, 0, 0, 0, 0, 0x80, DW_OP_const1s, 0xff, DW_OP_div});
  CieBytes far, near;
  far.version = 3;
  far.return_column = uleb(std::uint64_t{1} << 36);
  near.return_column = bytes({200});
  const struct {
    const char* what;
    CieBytes cie;
    FdeBytes fde;
  } cases[] = {
      {"a return address column far outside", far, {}},
      {"one near by", near, {}},
      {"a register that is in another far outside",
       {},
       with(bytes({DW_CFA_register, 3}) + uleb(std::uint64_t{1} << 36))},
      {"a division that traps", {}, with(trap)},
      {"an expression that never ends",
       {},
       with(bytes({DW_CFA_def_cfa_expression, 4, DW_OP_lit0, DW_OP_skip, 0xfd, 0xff}))},
      {"states remembered and remembered", {}, with(Bytes(200'000, std::byte{DW_CFA_remember_state}))},
      {"a register so far outside that its rules would fill the memory",
       {},
       with(bytes({DW_CFA_undefined}) + uleb(100'000'000))},
      {"an entry longer than any", {}, with(Bytes(kMaxEntryBytes, std::byte{DW_CFA_nop}))},
  };
  for (const auto& [what, cie, fde] : cases) {
    INFO(what);
    UnwindableTarget target(cie, {fde});
    const target::Registers registers = target.thread(0, {target.pc(0), target.pc(0), 0});
    for (const auto& unwinder : {make_libunwind_unwinder, make_libdwfl_unwinder}) {
      const UnwoundStack stack = unwinder(target)->unwind(registers);
      CHECK(stack.end == StackEnd::kNoUnwindInfo);
      CHECK(pcs(stack) == std::vector{target.pc(0)});
    }
  }
}

TEST_CASE("a lost stack pointer is not the end of a stack, even if the return address would be at address 0") {
  UnwindableTarget target({}, {with({})});  // CFA = rsp + 8, the return address is 8 below
  for (const Address lost : {Address{0}, Address{0x10}, ~Address{0} - 7}) {
    INFO(lost);
    target::Registers registers = target.thread(0, {target.pc(0), 0});
    registers.set(target::kRsp, lost);
    for (const auto& unwinder : {make_libunwind_unwinder, make_libdwfl_unwinder}) {
      const UnwoundStack stack = unwinder(target)->unwind(registers);
      CHECK(stack.end == StackEnd::kMemoryUnavailable);
      CHECK(pcs(stack) == std::vector{target.pc(0)});
    }
  }
}

TEST_CASE("an instruction unknown to libunwind, which would read its operands as instructions, is left to libdwfl") {
  UnwindableTarget target({}, {with(bytes({DW_CFA_val_offset, 3, DW_CFA_def_cfa_offset}))});
  const target::Registers registers = target.thread(0, {target.pc(0), 0});
  const UnwoundStack first = make_libunwind_unwinder(target)->unwind(registers),
                     second = make_libdwfl_unwinder(target)->unwind(registers);
  CHECK(first.end == StackEnd::kNoUnwindInfo);
  CHECK(pcs(first) == std::vector{target.pc(0)});
  CHECK(second.end == StackEnd::kComplete);
  CHECK(pcs(second) == std::vector{target.pc(0), target.pc(0)});
}

TEST_CASE("a division in a table that only libdw finds does not trap either") {
  // The table's numbers have an encoding that only libdw reads.
  const auto trap =
      bytes({DW_CFA_def_cfa_expression, 12, DW_OP_const8u, 0, 0, 0, 0, 0, 0, 0, 0x80, DW_OP_const1s, 0xff, DW_OP_div});
  for (const bool hostile : {false, true}) {
    UnwindableTarget target({}, {with(hostile ? trap : Bytes{})}, DW_EH_PE_datarel | DW_EH_PE_udata4);
    const target::Registers registers = target.thread(0, {target.pc(0), 0});
    VettedTables tables(target);
    REQUIRE(tables.vet(target.pc(0)) == VettedTables::Verdict::kNone);
    const UnwoundStack stack = make_libdwfl_unwinder(target)->unwind(registers);
    CHECK(stack.end == (hostile ? StackEnd::kNoUnwindInfo : StackEnd::kComplete));
    CHECK(stack.frames.size() == (hostile ? 1 : 2));
  }
}

TEST_CASE("an entry whose address libunwind has kept is still there when libunwind reads it again") {
  // Each entry has an expression and is as long as several pages; together they exceed what is kept at once.
  constexpr std::size_t kFunctions = 40;
  const FdeBytes fde =
      with(bytes({DW_CFA_def_cfa_expression, 2, DW_OP_breg7, 16}) + Bytes(200'000, std::byte{DW_CFA_nop}));
  UnwindableTarget target({}, std::vector(kFunctions, fde));
  std::vector<Address> expected = {target.pc(0)};
  std::vector<std::uint64_t> words;
  for (std::size_t i = 1; i < 3 * kFunctions; ++i) {
    expected.push_back(target.pc(i % 7 == 0 ? 3 : i % kFunctions));
    words.insert(words.end(), {0, expected.back()});
  }
  words.insert(words.end(), {0, 0});
  const auto unwinder = make_libunwind_unwinder(target);
  const UnwoundStack stack = unwinder->unwind(target.thread(0, words));
  CHECK(stack.end == StackEnd::kComplete);
  CHECK(pcs(stack) == expected);
}

TEST_CASE("blocks exist as long as they are documented to") {
  UnwindableTarget target({}, {with({}), with(bytes({DW_CFA_def_cfa_expression, 2, DW_OP_breg7, 16})),
                               with(bytes({DW_CFA_restore_state}))});
  VettedTables tables(target);
  const auto kept = tables.choose(target.pc(1));
  REQUIRE(kept);
  REQUIRE(tables.word(kept->table) != nullptr);
  const auto first_word = *tables.word(kept->table);
  const auto plain = tables.choose(target.pc(0));
  REQUIRE(plain);
  CHECK(plain->table != kept->table);
  REQUIRE(tables.word(kept->table) != nullptr);
  CHECK(*tables.word(kept->table) == first_word);
  const auto again = tables.choose(target.pc(1));
  REQUIRE(again);
  CHECK(again->fde == kept->fde);
  CHECK_FALSE(tables.choose(target.pc(2)));
  CHECK_FALSE(tables.choose(target.pc(3)));        // there is no function
  CHECK(tables.word(kept->table + 4) == nullptr);  // not a word's address
  CHECK(tables.word(target.pc(0) & ~Address{7}) == nullptr);
  CHECK(tables.word(~Address{7}) == nullptr);
  CHECK_FALSE(tables.is_full());
  tables.forget();
  CHECK(tables.word(kept->table) == nullptr);
}

}  // namespace
}  // namespace rankstacks::unwind
