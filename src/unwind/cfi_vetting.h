// Decides which entries of .eh_frame may be passed to a library.
//
// libunwind 1.6.2 trusts unwind tables. With hostile ones it reads outside of its arrays (a return address column, the
// second register of DW_CFA_register), traps (DW_OP_div), never ends (an expression that jumps back) or takes all
// memory (many DW_CFA_remember_state in a row). Where it does not know something (DW_CFA_val_offset, a version 4, a
// fifth letter of the augmentation), it decodes the operands as the next instructions, which gives a wrong stack. So
// each entry is decoded here first, according to the formats and within the limits below; an entry that is not sound is
// treated as absent.
//
// Sources: LSB core, "Exception Frames"; DWARF 5, 6.4; System V ABI, AMD64 supplement.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/types.h"

namespace rankstacks::unwind {

// The longest entries in the libraries of a training job have a few KiB.
inline constexpr std::size_t kMaxEntryBytes = 256 * 1024;
// Compilers nest them one or two deep.
inline constexpr unsigned kMaxRememberedStates = 64;

// The library that will read the entry: libunwind 1.6.2 does not know DW_CFA_val_offset.
enum class CfiDialect : std::uint8_t { kLibunwind, kLibdw };

enum class CfaRule : std::uint8_t {
  kNone,
  kRegister,
  kExpression,
  // An expression; the offset of the register rule before it is kept for a DW_CFA_def_cfa_register that follows.
  kExpressionForNow,
};

// The facts about an entry that are needed. Its instructions are those that were vetted, in their original order,
// without those that do not concern the general registers.
struct CieFacts {
  std::uint64_t code_alignment = 0;
  std::int64_t data_alignment = 0;
  std::uint8_t pointer_encoding = 0;  // of the addresses that its FDEs cover
  std::uint8_t lsda_encoding = 0;     // DW_EH_PE_omit: its FDEs have no LSDA
  bool augmented = false;             // its FDEs have augmentation data
  bool signal_frame = false;
  CfaRule cfa = CfaRule::kNone;  // after its instructions were executed
  bool has_expressions = false;
  std::vector<std::byte> instructions;
};

struct FdeFacts {
  Range covered;
  bool has_expressions = false;
  std::vector<std::byte> instructions;
};

// `entry`: the whole entry, including its length; `at`: its address in the target. The answer is empty if the entry is
// sound, else it says what is wrong with it.
std::string_view vet_cie(std::span<const std::byte> entry, CieFacts& facts,
                         CfiDialect dialect = CfiDialect::kLibunwind);
std::string_view vet_fde(std::span<const std::byte> entry, Address at, const CieFacts& cie, FdeFacts& facts,
                         CfiDialect dialect = CfiDialect::kLibunwind);

}  // namespace rankstacks::unwind
