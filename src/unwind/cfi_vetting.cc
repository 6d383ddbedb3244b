#include "unwind/cfi_vetting.h"

#include <dwarf.h>
#include <optional>

#include "target/registers.h"
#include "unwind/cfi_expression.h"
#include "unwind/cfi_reader.h"

namespace rankstacks::unwind {
namespace {

// System V ABI, AMD64 supplement, figure 3.36: the last is k7, 125.
constexpr std::uint64_t kRegistersOfAbi = 126;

constexpr std::uint8_t kFormat = 0x0f, kApplication = 0x70, kIndirect = 0x80;  // the parts of a pointer's encoding

// The size of the formats that have a fixed one; std::nullopt for others.
std::optional<std::size_t> size_of_pointer(std::uint8_t encoding) {
  switch (encoding & kFormat) {
    case DW_EH_PE_absptr:
    case DW_EH_PE_udata8:
    case DW_EH_PE_sdata8: return 8;
    case DW_EH_PE_udata4:
    case DW_EH_PE_sdata4: return 4;
    case DW_EH_PE_udata2:
    case DW_EH_PE_sdata2: return 2;
    default: return std::nullopt;
  }
}

// For personality routines and language-specific data, which are only skipped.
bool can_be_skipped(std::uint8_t encoding) {
  if (encoding == DW_EH_PE_omit) return true;
  const std::uint8_t application = encoding & kApplication;
  return size_of_pointer(encoding) &&
         (application == DW_EH_PE_absptr || application == DW_EH_PE_pcrel || application == DW_EH_PE_datarel);
}

// For code pointers, whose value is used.
bool is_code_pointer(std::uint8_t encoding) {
  const std::uint8_t application = encoding & kApplication;
  const auto size = size_of_pointer(encoding);
  return (encoding & kIndirect) == 0 && size && *size >= 4 &&
         (application == DW_EH_PE_absptr || application == DW_EH_PE_pcrel);
}

void skip_pointer(CfiReader& reader, std::uint8_t encoding) {
  if (encoding != DW_EH_PE_omit) reader.take(*size_of_pointer(encoding));
}

// `at`: the address of the reader's first byte in the target. 0 stays 0, even if the encoding is relative.
Address code_pointer(CfiReader& reader, std::uint8_t encoding, Address at) {
  const Address here = at + reader.offset();
  std::uint64_t value;
  switch (encoding & kFormat) {
    case DW_EH_PE_udata4: value = reader.fixed<std::uint32_t>(); break;
    case DW_EH_PE_sdata4: value = static_cast<std::uint64_t>(std::int64_t{reader.fixed<std::int32_t>()}); break;
    default: value = reader.fixed<std::uint64_t>(); break;
  }
  return value != 0 && (encoding & kApplication) == DW_EH_PE_pcrel ? here + value : value;
}

// Vets the instructions of one entry: each has to end within the entry, to name only registers that exist, and to have
// the state that it depends on. The instructions that are needed for unwinding are copied.
class Program {
 public:
  Program(std::span<const std::byte> bytes, const CieFacts& cie, std::vector<std::byte>& counting, CfiDialect dialect)
      : bytes_(bytes), reader_(bytes), cie_(cie), counting_(counting), dialect_(dialect), cfa_(cie.cfa) {}

  CfaRule cfa() const { return cfa_; }
  bool has_expressions() const { return has_expressions_; }

  // The instructions of a CIE: rules that hold from the first instruction of the function.
  std::string_view vet_initial() { return vet(false); }

  // The instructions of an FDE: one row after the other, in the order of their addresses.
  std::string_view vet_rows(const Range& covered) {
    covered_ = covered;
    location_ = covered.start;
    if (const auto fault = vet(true); !fault.empty()) return fault;
    return cfa_ == CfaRule::kNone ? "a row without a CFA" : "";
  }

 private:
  std::string_view vet(bool rows) {
    counting_.clear();
    std::size_t copied = 0;
    while (!reader_.at_end()) {
      const std::size_t at = reader_.offset();
      counts_ = true;
      same_value_.reset();
      const auto fault = instruction(rows);
      if (!reader_.ok()) return "an instruction goes beyond the entry's end, or has a number of more than 64 bits";
      if (!fault.empty()) return fault;
      if (counts_) continue;
      copy(copied, at);
      if (same_value_) {
        counting_.push_back(std::byte{DW_CFA_same_value});
        counting_.push_back(*same_value_);
      }
      copied = reader_.offset();
    }
    copy(copied, bytes_.size());
    return "";
  }
  void copy(std::size_t from, std::size_t to) {
    counting_.insert(counting_.end(), bytes_.begin() + static_cast<std::ptrdiff_t>(from),
                     bytes_.begin() + static_cast<std::ptrdiff_t>(to));
  }

  std::string_view instruction(bool rows) {
    const auto byte = reader_.fixed<std::uint8_t>();
    const std::uint8_t operand = byte & 0x3f;
    switch (byte & 0xc0) {
      case DW_CFA_advance_loc: return rows ? advance(operand) : kNotInitial;
      case DW_CFA_offset: reader_.uleb(); return rule(operand);
      case DW_CFA_restore: return restore(operand, rows);
      default: return extended(byte, rows);
    }
  }

  // An instruction whose opcode is a whole byte.
  std::string_view extended(std::uint8_t opcode, bool rows) {
    switch (opcode) {
      case DW_CFA_nop: return "";
      case DW_CFA_advance_loc1: return rows ? advance(reader_.fixed<std::uint8_t>()) : kNotInitial;
      case DW_CFA_advance_loc2: return rows ? advance(reader_.fixed<std::uint16_t>()) : kNotInitial;
      case DW_CFA_advance_loc4: return rows ? advance(reader_.fixed<std::uint32_t>()) : kNotInitial;
      case DW_CFA_restore_extended: return restore(reader_.uleb(), rows);
      case DW_CFA_remember_state:
        if (remembered_ == kMaxRememberedStates) return "too many states are remembered";
        states_[remembered_++] = cfa_;
        return "";
      case DW_CFA_restore_state:
        if (remembered_ == 0) return "a state is restored that was not remembered";
        cfa_ = states_[--remembered_];
        return "";
      case DW_CFA_GNU_args_size: reader_.uleb(); return "";
      case DW_CFA_def_cfa:
      case DW_CFA_def_cfa_sf:
      case DW_CFA_def_cfa_register:
      case DW_CFA_def_cfa_offset:
      case DW_CFA_def_cfa_offset_sf:
      case DW_CFA_def_cfa_expression: return cfa_rule(opcode);
      default: return register_rule(opcode);
    }
  }

  std::string_view register_rule(std::uint8_t opcode) {
    switch (opcode) {
      case DW_CFA_undefined:
      case DW_CFA_same_value: return rule(reader_.uleb());
      case DW_CFA_offset_extended:
      case DW_CFA_offset_extended_sf:
      case DW_CFA_GNU_negative_offset_extended: {
        const auto which = reader_.uleb();
        reader_.uleb();
        return rule(which);
      }
      case DW_CFA_val_offset:
      case DW_CFA_val_offset_sf: {
        if (dialect_ == CfiDialect::kLibunwind) return kUnknown;
        const auto which = reader_.uleb();
        reader_.uleb();
        return rule(which);
      }
      case DW_CFA_register: {
        const auto which = reader_.uleb(), other = reader_.uleb();
        const auto fault = rule(which);
        return fault.empty() && counts_ ? general(other) : fault;
      }
      case DW_CFA_expression:
      case DW_CFA_val_expression: {
        const auto fault = rule(reader_.uleb());
        return fault.empty() ? expression(1) : fault;
      }
      default: return kUnknown;
    }
  }

  std::string_view cfa_rule(std::uint8_t opcode) {
    switch (opcode) {
      case DW_CFA_def_cfa:
      case DW_CFA_def_cfa_sf: {
        const auto which = reader_.uleb();
        reader_.uleb();
        cfa_ = CfaRule::kRegister;
        return general(which);
      }
      case DW_CFA_def_cfa_register:
        // DWARF does not allow this after an expression, but hand-written code does it (libgcrypt's); all unwinders
        // then use the offset from before the expression.
        if (cfa_ != CfaRule::kRegister && cfa_ != CfaRule::kExpressionForNow) return kNoCfaRegister;
        cfa_ = CfaRule::kRegister;
        return general(reader_.uleb());
      case DW_CFA_def_cfa_offset:
      case DW_CFA_def_cfa_offset_sf: reader_.uleb(); return cfa_ == CfaRule::kRegister ? "" : kNoCfaRegister;
      case DW_CFA_def_cfa_expression:
        if (cfa_ == CfaRule::kNone) cfa_ = CfaRule::kExpression;
        if (cfa_ == CfaRule::kRegister) cfa_ = CfaRule::kExpressionForNow;
        return expression(0);
      default: return kUnknown;
    }
  }

  static constexpr std::string_view kUnknown = "an unknown instruction";
  static constexpr std::string_view kNotInitial = "an instruction that a CIE cannot have";
  static constexpr std::string_view kNoCfaRegister = "a part of the CFA is changed where it is not a register's";
  static constexpr std::string_view kNoRegister = "a register that does not exist, or that cannot be used there";

  static std::string_view general(std::uint64_t which) { return which < target::kDwarfRegisters ? "" : kNoRegister; }

  // A rule for where a register is saved. Rules for vector registers and others that unwinding does not need are left
  // out: libunwind has no room for them.
  std::string_view rule(std::uint64_t which) {
    counts_ = which < target::kDwarfRegisters;
    return which < kRegistersOfAbi ? "" : kNoRegister;
  }

  // In a CIE (Intel's compiler writes such CIEs) there is no earlier rule to restore: there it means the default rule
  // of a register without a rule, and is replaced by DW_CFA_same_value. libunwind and libgcc would treat the register
  // as lost.
  std::string_view restore(std::uint64_t which, bool rows) {
    const auto fault = rule(which);
    if (!rows && counts_) {
      counts_ = false;
      same_value_ = static_cast<std::byte>(which);
    }
    return fault;
  }

  std::string_view advance(std::uint64_t units) {
    std::uint64_t by, to;
    if (__builtin_mul_overflow(units, cie_.code_alignment, &by) || __builtin_add_overflow(location_, by, &to))
      return kOutside;
    if (to > covered_.end) return kOutside;
    location_ = to;
    return cfa_ == CfaRule::kNone ? "a row without a CFA" : "";
  }
  static constexpr std::string_view kOutside = "a row outside of what the entry covers";

  std::string_view expression(unsigned pushed) {
    has_expressions_ = true;
    const auto block = reader_.take(reader_.uleb());
    return !reader_.ok() || is_sound_expression(block, pushed) ? "" : "an expression that cannot be evaluated safely";
  }

  std::span<const std::byte> bytes_;
  CfiReader reader_;
  const CieFacts& cie_;
  std::vector<std::byte>& counting_;
  CfiDialect dialect_;
  CfaRule cfa_;
  bool counts_ = true;                   // whether the current instruction is copied
  std::optional<std::byte> same_value_;  // if it is not: this rule, for this register, replaces it
  bool has_expressions_ = false;
  Range covered_;
  Address location_ = 0;
  unsigned remembered_ = 0;
  CfaRule states_[kMaxRememberedStates] = {};
};

constexpr std::string_view kTooShort = "its head goes beyond its end";

}  // namespace

std::string_view vet_cie(std::span<const std::byte> entry, CieFacts& facts, CfiDialect dialect) {
  facts = CieFacts{.instructions = std::move(facts.instructions)};  // reuses its memory
  CfiReader reader(entry);
  const auto length = reader.fixed<std::uint32_t>(), id = reader.fixed<std::uint32_t>();
  if (!reader.ok() || length != entry.size() - 4) return "its length is not its size";
  if (id != 0) return "not a CIE";
  const auto version = reader.fixed<std::uint8_t>();
  if (version != 1 && version != 3) return "an unknown version";
  std::uint8_t letters[4];
  std::size_t count = 0;
  while (const auto letter = reader.fixed<std::uint8_t>()) {
    if (count == sizeof letters) return "an unknown augmentation";
    letters[count++] = letter;
  }
  facts.augmented = count > 0;
  facts.code_alignment = reader.uleb();
  facts.data_alignment = reader.sleb();
  const std::uint64_t return_column = version == 1 ? reader.fixed<std::uint8_t>() : reader.uleb();
  if (!reader.ok()) return kTooShort;
  if (return_column != target::kRip) return "a return address column that is not rip";
  if (facts.code_alignment == 0) return "a code alignment of 0";

  facts.pointer_encoding = DW_EH_PE_absptr;
  facts.lsda_encoding = DW_EH_PE_omit;
  if (facts.augmented) {
    if (letters[0] != 'z') return "an unknown augmentation";
    CfiReader data(reader.take(reader.uleb()));
    unsigned seen = 0;
    for (std::size_t i = 1; i < count; ++i) {
      static constexpr std::string_view kLetters = "RPLS";
      const std::size_t which = kLetters.find(static_cast<char>(letters[i]));
      if (which == kLetters.npos || (seen >> which & 1u) != 0) return "an unknown augmentation";
      seen |= 1u << which;
      if (letters[i] == 'S') {
        facts.signal_frame = true;
        continue;
      }
      const auto encoding = data.fixed<std::uint8_t>();
      if (letters[i] == 'R' ? !is_code_pointer(encoding) : !can_be_skipped(encoding))
        return "an unknown pointer encoding";
      if (letters[i] == 'R') facts.pointer_encoding = encoding;
      if (letters[i] == 'L') facts.lsda_encoding = encoding;
      if (letters[i] == 'P') skip_pointer(data, encoding);
    }
    if (!reader.ok() || !data.ok() || !data.at_end()) return "augmentation data that is not as long as it says";
  }
  Program program(entry.subspan(reader.offset()), facts, facts.instructions, dialect);
  if (const auto fault = program.vet_initial(); !fault.empty()) return fault;
  facts.cfa = program.cfa();
  facts.has_expressions = program.has_expressions();
  return "";
}

std::string_view vet_fde(std::span<const std::byte> entry, Address at, const CieFacts& cie, FdeFacts& facts,
                         CfiDialect dialect) {
  facts = FdeFacts{.instructions = std::move(facts.instructions)};
  CfiReader reader(entry);
  const auto length = reader.fixed<std::uint32_t>(), to_cie = reader.fixed<std::uint32_t>();
  if (!reader.ok() || length != entry.size() - 4) return "its length is not its size";
  if (to_cie == 0) return "not an FDE";
  const Address start = code_pointer(reader, cie.pointer_encoding, at);
  const std::uint64_t size = code_pointer(reader, cie.pointer_encoding & kFormat, 0);
  if (!reader.ok()) return kTooShort;
  if (__builtin_add_overflow(start, size, &facts.covered.end)) return "what it covers goes beyond the last address";
  facts.covered.start = start;
  if (cie.augmented) {
    CfiReader data(reader.take(reader.uleb()));
    skip_pointer(data, cie.lsda_encoding);
    if (!reader.ok() || !data.ok()) return "augmentation data that is not as long as it says";
  }
  Program program(entry.subspan(reader.offset()), cie, facts.instructions, dialect);
  if (const auto fault = program.vet_rows(facts.covered); !fault.empty()) return fault;
  facts.has_expressions = program.has_expressions();
  return "";
}

}  // namespace rankstacks::unwind
