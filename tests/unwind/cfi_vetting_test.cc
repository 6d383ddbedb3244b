// Which entries of .eh_frame may be passed to an unwinding library: each is valid except for one defect.
#include <catch2/catch.hpp>

#include "support/eh_frame_writer.h"
#include "unwind/cfi_vetting.h"

namespace rankstacks::unwind {
namespace {

using testing::bytes;
using testing::Bytes;
using testing::CieBytes;
using testing::FdeBytes;
using testing::uleb;
using testing::operator+;

constexpr Address kCie = 0x10000, kFde = 0x10100, kCode = 0x20000;

template <class Entry>
Entry changed(const std::function<void(Entry&)>& change) {
  Entry entry;
  change(entry);
  return entry;
}

std::string vet(const CieBytes& cie) {
  CieFacts facts;
  return std::string(vet_cie(cie.write(), facts));
}

std::string vet(const FdeBytes& fde, const CieBytes& of = {}) {
  CieFacts cie;
  const Bytes cie_entry = of.write();
  REQUIRE(vet_cie(cie_entry, cie) == "");
  FdeFacts facts;
  return std::string(vet_fde(fde.write(kFde, kCie, kCode), kFde, cie, facts));
}

std::string vet_instructions(const Bytes& instructions) {
  return vet(changed<FdeBytes>([&](auto& fde) { fde.instructions = instructions; }));
}

TEST_CASE("what compilers write is valid, and is read correctly") {
  CieBytes cie;
  cie.augmentation = "zPLR";
  cie.augmentation_data = bytes({0x9b, 1, 2, 3, 4, 0x1b, 0x1b});
  CieFacts facts;
  const Bytes entry = cie.write();
  REQUIRE(vet_cie(entry, facts) == "");
  CHECK(facts.code_alignment == 1);
  CHECK(facts.data_alignment == -8);
  CHECK(facts.pointer_encoding == 0x1b);
  CHECK(facts.lsda_encoding == 0x1b);
  CHECK(facts.augmented);
  CHECK_FALSE(facts.signal_frame);
  CHECK(facts.cfa == CfaRule::kRegister);
  CHECK(facts.instructions == cie.instructions);

  FdeBytes fde;
  fde.augmentation = uleb(4) + bytes({1, 2, 3, 4});
  fde.instructions = bytes({DW_CFA_advance_loc | 1,
                            DW_CFA_def_cfa_offset,
                            16,
                            DW_CFA_offset | 6,
                            2,
                            DW_CFA_advance_loc | 3,
                            DW_CFA_def_cfa_register,
                            6,
                            DW_CFA_remember_state,
                            DW_CFA_advance_loc1,
                            2,
                            DW_CFA_restore | 6,
                            DW_CFA_def_cfa,
                            7,
                            8,
                            DW_CFA_advance_loc2,
                            1,
                            0,
                            DW_CFA_restore_state,
                            DW_CFA_advance_loc4,
                            1,
                            0,
                            0,
                            0,
                            DW_CFA_same_value,
                            3,
                            DW_CFA_undefined,
                            16,
                            DW_CFA_register,
                            3,
                            0,
                            DW_CFA_expression,
                            3,
                            2,
                            DW_OP_breg6,
                            0x68,
                            DW_CFA_val_expression,
                            7,
                            2,
                            DW_OP_breg6,
                            8,
                            DW_CFA_GNU_args_size,
                            16,
                            DW_CFA_def_cfa_expression,
                            3,
                            DW_OP_breg6,
                            0x78,
                            DW_OP_deref,
                            DW_CFA_nop,
                            DW_CFA_nop});
  FdeFacts found;
  const Bytes written = fde.write(kFde, kCie, kCode);
  REQUIRE(vet_fde(written, kFde, facts, found) == "");
  CHECK(found.covered.start == kCode);
  CHECK(found.covered.end == kCode + 16);
  CHECK(found.has_expressions);
  CHECK(found.instructions == fde.instructions);
}

TEST_CASE("rules for vector registers are left out, the rest is unchanged") {
  CieFacts cie;
  const Bytes cie_entry = CieBytes{}.write();
  REQUIRE(vet_cie(cie_entry, cie) == "");
  FdeBytes fde;
  fde.instructions = bytes({DW_CFA_offset | 6,
                            2,
                            DW_CFA_offset | 17,
                            0x30,
                            DW_CFA_offset_extended,
                            68,
                            0x2e,
                            DW_CFA_advance_loc | 1,
                            DW_CFA_def_cfa_offset,
                            16,
                            DW_CFA_restore | 17,
                            DW_CFA_register,
                            18,
                            3,
                            DW_CFA_expression,
                            19,
                            2,
                            DW_OP_breg6,
                            0x68,
                            DW_CFA_advance_loc | 2,
                            DW_CFA_same_value,
                            67,
                            DW_CFA_nop});
  FdeFacts found;
  REQUIRE(vet_fde(fde.write(kFde, kCie, kCode), kFde, cie, found) == "");
  CHECK(found.instructions == bytes({DW_CFA_offset | 6, 2, DW_CFA_advance_loc | 1, DW_CFA_def_cfa_offset, 16,
                                     DW_CFA_advance_loc | 2, DW_CFA_nop}));
}

TEST_CASE("a CIE of Intel's compiler: a restored register has the value that it had in the caller") {
  CieFacts facts;
  const auto cie = changed<CieBytes>([](CieBytes& c) {
    c.instructions = bytes({DW_CFA_def_cfa, 7, 8, DW_CFA_offset | 16, 1, DW_CFA_offset | 3, 7, DW_CFA_restore | 3,
                            DW_CFA_offset | 17, 9, DW_CFA_restore_extended, 12});
  });
  REQUIRE(vet(cie) == "");
  CHECK(vet_cie(cie.write(), facts) == "");
  CHECK(facts.instructions == bytes({DW_CFA_def_cfa, 7, 8, DW_CFA_offset | 16, 1, DW_CFA_offset | 3, 7,
                                     DW_CFA_same_value, 3, DW_CFA_same_value, 12}));
}

TEST_CASE(
    "entries of a signal trampoline, an old one without augmentation, and one with the newer form of a register "
    "number") {
  CieFacts facts;
  CHECK(vet_cie(changed<CieBytes>([](auto& c) { c.augmentation = "zRS"; }).write(), facts) == "");
  CHECK(facts.signal_frame);
  CHECK(vet_cie(changed<CieBytes>([](auto& c) { c.augmentation = ""; }).write(), facts) == "");
  CHECK_FALSE(facts.augmented);
  CHECK(facts.pointer_encoding == DW_EH_PE_absptr);
  CHECK(vet(changed<CieBytes>([](auto& c) { c.version = 3; })) == "");
}

TEST_CASE("an invalid CIE is rejected") {
  const struct {
    std::function<void(CieBytes&)> change;
    const char* fault;
  } cases[] = {
      {[](CieBytes& c) { c.id = 1; }, "not a CIE"},
      {[](CieBytes& c) { c.version = 4; }, "an unknown version"},
      {[](CieBytes& c) { c.augmentation = "zRB"; }, "an unknown augmentation"},
      {[](CieBytes& c) {
         c.augmentation = "zRR";
         c.augmentation_data = bytes({0x1b, 0x1b});
       },
       "an unknown augmentation"},
      {[](CieBytes& c) { c.augmentation = "R"; }, "an unknown augmentation"},
      {[](CieBytes& c) {
         c.augmentation = "zRLPS";
         c.augmentation_data = bytes({0x1b, 0x1b, 0xff});
       },
       "an unknown augmentation"},
      {[](CieBytes& c) { c.return_column = bytes({15}); }, "a return address column that is not rip"},
      {[](CieBytes& c) {
         c.version = 3;
         c.return_column = uleb(std::uint64_t{1} << 40);
       },
       "a return address column that is not rip"},
      {[](CieBytes& c) { c.code_alignment = 0; }, "a code alignment of 0"},
      {[](CieBytes& c) { c.augmentation_data = bytes({0x3b}); },
       "an unknown pointer encoding"},  // relative to data, which is not defined here
      {[](CieBytes& c) { c.augmentation_data = bytes({0x9b}); },
       "an unknown pointer encoding"},  // indirect, through a pointer
      {[](CieBytes& c) { c.augmentation_data = bytes({0x11}); },
       "an unknown pointer encoding"},  // without a fixed size
      {[](CieBytes& c) {
         c.augmentation = "zPR";
         c.augmentation_data = bytes({0x5b, 0, 0, 0, 0, 0x1b});
       },
       "an unknown pointer encoding"},
      {[](CieBytes& c) {
         c.augmentation_data = bytes({0x1b, 0});
       },
       "augmentation data that is not as long as it says"},
      {[](CieBytes& c) {
         c.augmentation = "zPR";
         c.augmentation_data = bytes({0x1b, 0, 0});
       },
       "augmentation data that is not as long as it says"},
      {[](CieBytes& c) { c.instructions = bytes({DW_CFA_advance_loc | 1}); }, "an instruction that a CIE cannot have"},
      {[](CieBytes& c) {
         c.instructions = bytes({DW_CFA_def_cfa_offset, 8});
       },
       "a part of the CFA is changed where it is not a register's"},
  };
  for (const auto& [change, fault] : cases) CHECK(vet(changed<CieBytes>(change)) == fault);
}

TEST_CASE("an invalid FDE is rejected") {
  const std::string register_fault = "a register that does not exist, or that cannot be used there",
                    row_fault = "a row outside of what the entry covers";
  const std::string expression_fault = "an expression that cannot be evaluated safely",
                    unknown = "an unknown instruction";
  const std::string end_fault = "an instruction goes beyond the entry's end, or has a number of more than 64 bits";
  const struct {
    Bytes instructions;
    std::string fault;
  } cases[] = {
      {bytes({DW_CFA_offset_extended}) + uleb(126) + bytes({1}), register_fault},
      {bytes({DW_CFA_offset_extended_sf}) + uleb(1u << 20) + bytes({1}), register_fault},
      {bytes({DW_CFA_restore_extended}) + uleb(126), register_fault},
      {bytes({DW_CFA_undefined}) + uleb(126), register_fault},
      {bytes({DW_CFA_same_value}) + uleb(126), register_fault},
      {bytes({DW_CFA_register}) + uleb(126) + bytes({3}), register_fault},
      {bytes({DW_CFA_register, 3, 17}), register_fault},
      {bytes({DW_CFA_register, 3}) + uleb(std::uint64_t{1} << 40), register_fault},
      {bytes({DW_CFA_def_cfa, 17, 8}), register_fault},
      {bytes({DW_CFA_def_cfa_sf, 17, 8}), register_fault},
      {bytes({DW_CFA_def_cfa_register, 17}), register_fault},
      {bytes({DW_CFA_GNU_negative_offset_extended}) + uleb(126) + bytes({1}), register_fault},
      {bytes({DW_CFA_expression}) + uleb(126) + bytes({1, DW_OP_lit0}), register_fault},
      {bytes({DW_CFA_expression, 3, 2, DW_OP_reg3, DW_OP_nop}), expression_fault},
      {bytes({DW_CFA_val_expression, 3, 1, DW_OP_drop}), expression_fault},
      {bytes({DW_CFA_def_cfa_expression, 0}), expression_fault},
      {bytes({DW_CFA_def_cfa_expression, 100, DW_OP_lit1}), end_fault},
      {bytes({DW_CFA_def_cfa_expression, 1, DW_OP_lit1, DW_CFA_def_cfa_offset, 8}),
       "a part of the CFA is changed where it is not a register's"},
      {bytes({DW_CFA_advance_loc | 17}), row_fault},
      {bytes({DW_CFA_advance_loc | 16, DW_CFA_advance_loc | 1}), row_fault},
      {bytes({DW_CFA_advance_loc4, 0xff, 0xff, 0xff, 0xff}), row_fault},
      {bytes({DW_CFA_restore_state}), "a state is restored that was not remembered"},
      {bytes({DW_CFA_remember_state, DW_CFA_restore_state, DW_CFA_restore_state}),
       "a state is restored that was not remembered"},
      {Bytes(kMaxRememberedStates + 1, std::byte{DW_CFA_remember_state}), "too many states are remembered"},
      {bytes({DW_CFA_set_loc, 0, 0, 0, 0}), unknown},
      {bytes({DW_CFA_val_offset, 3, 1}), unknown},
      {bytes({DW_CFA_GNU_window_save}), unknown},
      {bytes({0x1d, 0, 0, 0, 0, 0, 0, 0, 0}), unknown},
      {bytes({0x3f}), unknown},
      {bytes({DW_CFA_def_cfa, 7}), end_fault},
      {bytes({DW_CFA_def_cfa_offset, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02}), end_fault},
      {bytes({DW_CFA_offset_extended_sf, 3, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x00}),
       end_fault},
  };
  for (const auto& [instructions, fault] : cases) {
    INFO("instruction " << std::to_integer<int>(instructions[0]));
    CHECK(vet_instructions(instructions) == fault);
  }
}

TEST_CASE("rows need a CFA") {
  const auto none = changed<CieBytes>([](auto& c) { c.instructions = {}; });
  const auto with = [](const Bytes& instructions) {
    return changed<FdeBytes>([&](auto& f) { f.instructions = instructions; });
  };
  CHECK(vet(with({}), none) == "a row without a CFA");
  CHECK(vet(with(bytes({DW_CFA_advance_loc | 1, DW_CFA_def_cfa, 7, 8})), none) == "a row without a CFA");
  CHECK(vet(with(bytes({DW_CFA_remember_state, DW_CFA_def_cfa, 7, 8, DW_CFA_restore_state})), none) ==
        "a row without a CFA");
  CHECK(vet(with(bytes({DW_CFA_def_cfa, 7, 8})), none) == "");
  CHECK(vet(with(bytes({DW_CFA_def_cfa_expression, 1, DW_OP_lit1, DW_CFA_def_cfa_register, 6})), none) ==
        "a part of the CFA is changed where it is not a register's");
  CHECK(vet(with(bytes({DW_CFA_def_cfa_expression, 1, DW_OP_lit1, DW_CFA_def_cfa_register, 7}))) == "");
}

TEST_CASE("the maximum number of remembered states, restored again") {
  CHECK(vet_instructions(Bytes(kMaxRememberedStates, std::byte{DW_CFA_remember_state}) +
                         Bytes(kMaxRememberedStates, std::byte{DW_CFA_restore_state})) == "");
}

TEST_CASE("addresses and distances beyond 64 bits") {
  CieFacts cie;
  FdeFacts facts;
  const Bytes absolute = changed<CieBytes>([](auto& c) { c.augmentation_data = bytes({DW_EH_PE_absptr}); }).write();
  REQUIRE(vet_cie(absolute, cie) == "");
  const auto fde = [](std::uint64_t start, std::uint64_t size, const Bytes& instructions) {
    return testing::with_length(testing::bytes_of(std::uint32_t{4}) + testing::bytes_of(start) +
                                testing::bytes_of(size) + uleb(0) + instructions);
  };
  CHECK(vet_fde(fde(~std::uint64_t{15}, 16, {}), kFde, cie, facts) == "what it covers goes beyond the last address");
  CHECK(vet_fde(fde(kCode, 16, {}), kFde, cie, facts) == "");
  cie.code_alignment = std::uint64_t{1} << 63;
  CHECK(vet_fde(fde(kCode, 16, bytes({DW_CFA_advance_loc | 2})), kFde, cie, facts) ==
        "a row outside of what the entry covers");
  CHECK(vet_fde(fde(std::uint64_t{1} << 63, 16, bytes({DW_CFA_advance_loc | 1})), kFde, cie, facts) ==
        "a row outside of what the entry covers");
}

TEST_CASE("an entry that is truncated anywhere is invalid, and no byte past its end is read") {
  CieFacts facts;
  const Bytes cie = changed<CieBytes>([](auto& c) { c.instructions = {}; }).write();
  for (std::size_t size = 0; size < cie.size(); ++size) {
    // Once in place, and once with a length that fits, in a block of its own: there a sanitizer detects a read past the
    // end.
    Bytes cut(cie.begin(), cie.begin() + static_cast<std::ptrdiff_t>(size));
    CHECK(vet_cie(cut, facts) != "");
    if (size < 4) continue;
    const auto length = static_cast<std::uint32_t>(size - 4);
    std::memcpy(cut.data(), &length, 4);
    CHECK(vet_cie(cut, facts) != "");
  }
  REQUIRE(vet_cie(cie, facts) == "");
  facts.cfa = CfaRule::kRegister;
  const Bytes fde = FdeBytes{}.write(kFde, kCie, kCode);
  FdeFacts found;
  REQUIRE(vet_fde(fde, kFde, facts, found) == "");
  for (std::size_t size = 0; size < fde.size(); ++size) {
    Bytes cut(fde.begin(), fde.begin() + static_cast<std::ptrdiff_t>(size));
    CHECK(vet_fde(cut, kFde, facts, found) != "");
    if (size < 4) continue;
    const auto length = static_cast<std::uint32_t>(size - 4);
    std::memcpy(cut.data(), &length, 4);
    CHECK(vet_fde(cut, kFde, facts, found) != "");
  }
}

}  // namespace
}  // namespace rankstacks::unwind
