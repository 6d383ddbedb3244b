#include "target/instruction_shape.h"

#include <algorithm>

namespace rankstacks::target {
namespace {

using Map = InstructionShape::Map;

// What follows an opcode. kOperand: 4 bytes, 2 with an operand size prefix. kWide: the same, 8 with REX.W.
enum class Immediate : std::uint8_t {
  kNone,
  kByte,
  kOperand,
  kWide,
  kFour,
  kTwo,
  kThree,
  kAddress,
  kByteOfTest,
  kOperandOfTest
};

struct Operands {
  bool exists = true;
  bool modrm = false;
  Immediate immediate = Immediate::kNone;
};

constexpr bool is_in(std::uint8_t value, std::uint8_t first, std::uint8_t last) {
  return value >= first && value <= last;
}

Operands arithmetic(std::uint8_t opcode) {
  switch (opcode & 7) {
    case 4: return {.immediate = Immediate::kByte};
    case 5: return {.immediate = Immediate::kOperand};
    case 6:
    case 7: return {.exists = false};
    default: return {.modrm = true};
  }
}

Operands of_one_byte(std::uint8_t op) {
  if (op < 0x40) return arithmetic(op);
  if (is_in(op, 0x50, 0x5f) || is_in(op, 0x6c, 0x6f) || is_in(op, 0x90, 0x99) || is_in(op, 0x9b, 0x9f)) return {};
  if (is_in(op, 0x70, 0x7f) || is_in(op, 0xb0, 0xb7) || is_in(op, 0xe0, 0xe7)) return {.immediate = Immediate::kByte};
  if (is_in(op, 0xb8, 0xbf)) return {.immediate = Immediate::kWide};
  if (is_in(op, 0xa0, 0xa3)) return {.immediate = Immediate::kAddress};
  if (is_in(op, 0x84, 0x8f) || is_in(op, 0xd0, 0xd3) || is_in(op, 0xd8, 0xdf)) return {.modrm = true};
  switch (op) {
    case 0x63:
    case 0xfe:
    case 0xff: return {.modrm = true};
    case 0x68:
    case 0xa9: return {.immediate = Immediate::kOperand};
    case 0xe8:
    case 0xe9: return {.immediate = Immediate::kFour};
    case 0x69:
    case 0x81:
    case 0xc7: return {.modrm = true, .immediate = Immediate::kOperand};
    case 0x6a:
    case 0xa8:
    case 0xcd:
    case 0xeb: return {.immediate = Immediate::kByte};
    case 0x6b:
    case 0x80:
    case 0x83:
    case 0xc0:
    case 0xc1:
    case 0xc6: return {.modrm = true, .immediate = Immediate::kByte};
    case 0xc2:
    case 0xca: return {.immediate = Immediate::kTwo};
    case 0xc8: return {.immediate = Immediate::kThree};
    case 0xf6: return {.modrm = true, .immediate = Immediate::kByteOfTest};
    case 0xf7: return {.modrm = true, .immediate = Immediate::kOperandOfTest};
    case 0x60:
    case 0x61:
    case 0x62:
    case 0x82:
    case 0x9a:
    case 0xce:
    case 0xd4:
    case 0xd5:
    case 0xd6:
    case 0xea: return {.exists = false};
    default: return {};  // string operations, ret, leave, flags, in and out
  }
}

Operands of_two_bytes(std::uint8_t op) {
  if (is_in(op, 0x80, 0x8f)) return {.immediate = Immediate::kFour};
  if (is_in(op, 0x05, 0x0b) || op == 0x0e || is_in(op, 0x30, 0x37) || op == 0x77 || is_in(op, 0xa0, 0xa2) ||
      is_in(op, 0xa8, 0xaa) || is_in(op, 0xc8, 0xcf))
    return {};
  if (op == 0x0f || is_in(op, 0x70, 0x73) || op == 0xa4 || op == 0xac || op == 0xba || op == 0xc2 ||
      is_in(op, 0xc4, 0xc6))
    return {.modrm = true, .immediate = Immediate::kByte};
  if (op == 0x04 || op == 0x0c || is_in(op, 0x24, 0x27) || op == 0xa6 || op == 0xa7) return {.exists = false};
  return {.modrm = true};
}

class Reader {
 public:
  explicit Reader(std::span<const std::uint8_t> bytes)
      : bytes_(bytes.first(std::min<std::size_t>(bytes.size(), kLongest))) {}

  std::optional<InstructionShape> read() {
    std::uint8_t op = prefixes();
    Operands operands;
    if (op == 0xc4 || op == 0xc5 || op == 0x62) {
      operands = vector(op);
    } else if (op == 0x0f) {
      op = next();
      shape_.map = op == 0x38 || op == 0x3a ? Map::kOther : Map::kTwoByte;
      operands = of_two_bytes(op);
      if (op == 0x38 || op == 0x3a) {
        operands = {.modrm = true, .immediate = op == 0x3a ? Immediate::kByte : Immediate::kNone};
        op = next();
      }
      shape_.opcode = op;
    } else {
      operands = of_one_byte(op);
      shape_.opcode = op;
    }
    if (!operands.exists) return std::nullopt;
    if (operands.modrm) modrm();
    take_immediate(operands.immediate);
    if (short_) return std::nullopt;
    shape_.length = at_;
    return shape_;
  }

 private:
  static constexpr std::size_t kLongest = 15;

  std::uint8_t next() {
    if (at_ < bytes_.size()) return bytes_[at_++];
    short_ = true;
    return 0;
  }

  std::int64_t number(unsigned size) {
    std::uint64_t value = 0;
    for (unsigned i = 0; i < size; ++i) value |= std::uint64_t{next()} << (8 * i);
    if (size == 1) return static_cast<std::int8_t>(value);
    if (size == 2) return static_cast<std::int16_t>(value);
    return size == 4 ? static_cast<std::int32_t>(value) : static_cast<std::int64_t>(value);
  }

  // Returns the byte after the prefixes.
  std::uint8_t prefixes() {
    for (;;) {
      const std::uint8_t byte = next();
      if (short_) return byte;
      if (byte == 0x66) operand16_ = true;
      else if (byte == 0x67) address32_ = true;
      else if (byte >> 4 == 4) {
        wide_ = byte & 8, r_ = byte & 4, x_ = byte & 2, b_ = byte & 1;
        shape_.rex_b = b_;
        return next();
      } else if (byte != 0x26 && byte != 0x2e && byte != 0x36 && byte != 0x3e && byte != 0x64 && byte != 0x65 &&
                 byte != 0xf0 && byte != 0xf2 && byte != 0xf3) {
        return byte;
      }
    }
  }

  // VEX and EVEX.
  Operands vector(std::uint8_t prefix) {
    shape_.map = Map::kOther;
    const std::uint8_t first = next();
    unsigned map = 1;
    if (prefix != 0xc5) {
      map = first & (prefix == 0x62 ? 7 : 0x1f);
      next();
      if (prefix == 0x62) next();
    }
    const std::uint8_t op = shape_.opcode = next();
    const Operands of_map_1 = of_two_bytes(op);
    if (map == 1)
      return {.modrm = op != 0x77,
              .immediate = of_map_1.immediate == Immediate::kByte ? Immediate::kByte : Immediate::kNone};
    if (map == 3) return {.modrm = true, .immediate = Immediate::kByte};
    return {.exists = map == 2 || map == 5 || map == 6, .modrm = true};
  }

  void modrm() {
    const std::uint8_t byte = next();
    shape_.has_modrm = true;
    shape_.mod = byte >> 6;
    shape_.reg = ((byte >> 3) & 7) | (r_ ? 8u : 0u);
    shape_.rm = (byte & 7) | (b_ ? 8u : 0u);
    if (shape_.mod == 3) return;
    unsigned base = byte & 7;
    bool plain = base != 5 || shape_.mod != 0;  // not relative to rip
    if (base == 4) {
      const std::uint8_t sib = next();
      base = sib & 7;
      plain = ((sib >> 3) & 7) == 4 && !x_ && (base != 5 || shape_.mod != 0);
    }
    if (plain) shape_.base = static_cast<int>(base | (b_ ? 8u : 0u));
    if (shape_.mod == 1) shape_.displacement = static_cast<std::int32_t>(number(1));
    if (shape_.mod == 2 || (shape_.mod == 0 && base == 5)) shape_.displacement = static_cast<std::int32_t>(number(4));
  }

  void take_immediate(Immediate kind) {
    const unsigned operand = operand16_ ? 2 : 4;
    const bool tests = (shape_.reg & 7) < 2;  // of the group that test belongs to
    switch (kind) {
      case Immediate::kNone: break;
      case Immediate::kByte: shape_.immediate = number(1); break;
      case Immediate::kOperand: shape_.immediate = number(operand); break;
      case Immediate::kWide: shape_.immediate = number(wide_ ? 8 : operand); break;
      case Immediate::kFour: shape_.immediate = number(4); break;
      case Immediate::kTwo: shape_.immediate = number(2); break;
      case Immediate::kThree: number(2), number(1); break;
      case Immediate::kAddress: number(address32_ ? 4 : 8); break;
      case Immediate::kByteOfTest:
        if (tests) shape_.immediate = number(1);
        break;
      case Immediate::kOperandOfTest:
        if (tests) shape_.immediate = number(operand);
        break;
    }
  }

  std::span<const std::uint8_t> bytes_;
  std::size_t at_ = 0;
  bool short_ = false, operand16_ = false, address32_ = false, wide_ = false, r_ = false, x_ = false, b_ = false;
  InstructionShape shape_;
};

}  // namespace

std::optional<InstructionShape> shape_of_instruction(std::span<const std::uint8_t> bytes) {
  return Reader(bytes).read();
}

}  // namespace rankstacks::target
