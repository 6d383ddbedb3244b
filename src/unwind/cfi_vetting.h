// Which entries of .eh_frame a library may be given.
//
// libunwind 1.6.2 takes unwind tables on trust. With hostile ones it reads outside of its arrays (a return address column, the second register of
// DW_CFA_register), traps (DW_OP_div), never ends (an expression that jumps back) or takes all memory (DW_CFA_remember_state in a row); of what it does
// not know (DW_CFA_val_offset, a version 4, a fifth letter of the augmentation) it reads the operands as the next instructions, which gives a wrong
// stack. So each entry is decoded here before, by what the formats say and with the limits below; one that is not sound is as good as none.
//
// Sources: LSB core, "Exception Frames"; DWARF 5, 6.4; System V ABI, AMD64 supplement.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/types.h"

namespace rankstacks {

// The longest in the libraries of a training job are a few KiB.
inline constexpr std::size_t kMaxEntryBytes = 256 * 1024;
// Compilers nest one or two deep.
inline constexpr unsigned kMaxRememberedStates = 64;

// Whose reading counts: libunwind 1.6.2 does not know DW_CFA_val_offset.
enum class CfiDialect : std::uint8_t { kLibunwind, kLibdw };

enum class CfaRule : std::uint8_t {
  kNone,
  kRegister,
  kExpression,
  kExpressionForNow,   // and the offset to a register that there was before still holds
};

// What counts of an entry. Its instructions are those that were vetted, in the order in which they stood there, but for what says nothing of the general
// registers.
struct CieFacts {
  std::uint64_t code_alignment = 0;
  std::int64_t data_alignment = 0;
  std::uint8_t pointer_encoding = 0;   // of what its FDEs cover
  std::uint8_t lsda_encoding = 0;      // DW_EH_PE_omit: they name none
  bool augmented = false;              // its FDEs have augmentation data
  bool signal_frame = false;
  CfaRule cfa = CfaRule::kNone;        // after its instructions
  bool has_expressions = false;
  std::vector<std::byte> instructions;
};

struct FdeFacts {
  Range covered;
  bool has_expressions = false;
  std::vector<std::byte> instructions;
};

// `entry`: all of it, from its length on; `at`: where that lies in the target. The answer is empty where it is sound, else what is wrong with it.
std::string_view vet_cie(std::span<const std::byte> entry, CieFacts& facts, CfiDialect dialect = CfiDialect::kLibunwind);
std::string_view vet_fde(std::span<const std::byte> entry, Address at, const CieFacts& cie, FdeFacts& facts, CfiDialect dialect = CfiDialect::kLibunwind);

}  // namespace rankstacks
