#include "target/x86_instruction.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <string_view>

#include <fmt/format.h>

#include "target/instruction_shape.h"
#include "target/x86_rows.h"

namespace rankstacks::target {
namespace {

using Bytes = std::span<const std::uint8_t>;

// Registers in the processor's numbering, as DwarfRegister.
constexpr std::array<unsigned, 16> kDwarfOf = {kRax, kRcx, kRdx, kRbx, kRsp, kRbp, kRsi, kRdi,
                                               kR8,  kR9,  kR10, kR11, kR12, kR13, kR14, kR15};
constexpr std::array<const char*, 8> kLow64 = {"rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi"};
constexpr std::array<const char*, 8> kLow8 = {"al", "cl", "dl", "bl", "ah", "ch", "dh", "bh"};
constexpr std::array<const char*, 8> kLow8Rex = {"al", "cl", "dl", "bl", "spl", "bpl", "sil", "dil"};

enum class Encoding { kLegacy, kVex, kEvex };

struct Prefixes {
  bool rex = false, w = false, r = false, x = false, b = false;
  bool operand16 = false, address32 = false, fs = false, gs = false, lock = false;
  std::uint8_t repeat = 0;  // f2, f3
  Encoding encoding = Encoding::kLegacy;
  unsigned vector = 0;    // bytes of a vector register; VEX and EVEX
  unsigned second = 0;    // the register in vvvv
  bool high_reg = false;  // EVEX: register 16 to 31
  unsigned mask = 0;      // EVEX: a mask register; 0: none
  // The mandatory prefix: 0 none, 1: 66, 2: f3, 3: f2.
  unsigned mandatory() const { return repeat == 0xf3 ? 2 : repeat == 0xf2 ? 3 : operand16 ? 1 : 0; }
};

std::string signed_hex(std::int64_t value) {
  return value < 0 ? fmt::format("-{:#x}", 0 - static_cast<std::uint64_t>(value)) : fmt::format("{:#x}", value);
}

class Decoder {
 public:
  explicit Decoder(Bytes bytes) : bytes_(bytes.first(std::min(bytes.size(), kLongestInstruction))) {}

  std::optional<Instruction> decode() {
    const bool known_encoding = read_prefixes();
    const std::size_t operand_at = at_;
    const bool named = known_encoding && (map_ == Map::kOne ? one_byte() : map_ == Map::kTwo && two_bytes());
    if (short_) return std::nullopt;
    if (named) {
      instruction_.length = at_;
      if (prefixes_.lock) instruction_.text.insert(0, "lock ");
      return std::move(instruction_);
    }
    const auto shape = shape_of_instruction(bytes_);
    if (!shape) return std::nullopt;
    instruction_ = {};
    instruction_.length = shape->length;
    const bool has_memory = known_encoding && shape->has_modrm && shape->mod != 3;
    if (has_memory && accesses_memory() && memory_is_plain(*shape)) {
      at_ = operand_at;
      keep(read_operand(1));
    }
    return std::move(instruction_);
  }

 private:
  // lea, nop and the prefetches have an operand of which they take the address at most.
  bool accesses_memory() const {
    return map_ == Map::kOne ? opcode_ != 0x8d : map_ != Map::kTwo || opcode_ < 0x18 || opcode_ > 0x1f;
  }
  // Gathers and scatters have a vector of indices; the factor of EVEX's short displacement depends on the instruction.
  bool memory_is_plain(const InstructionShape& shape) const {
    if (prefixes_.encoding == Encoding::kLegacy) return true;
    const bool of_indices = map_ == Map::k38 && ((opcode_ >= 0x90 && opcode_ <= 0x93) ||
                                                 (opcode_ >= 0xa0 && opcode_ <= 0xa3) || (opcode_ & 0xfe) == 0xc6);
    return !of_indices && (prefixes_.encoding == Encoding::kVex || shape.mod != 1);
  }

  std::uint8_t next() {
    if (at_ >= bytes_.size()) return short_ = true, 0;
    return bytes_[at_++];
  }
  std::int64_t next_signed(unsigned size) {
    std::uint64_t value = 0;
    for (unsigned i = 0; i < size; ++i) value |= std::uint64_t{next()} << (8 * i);
    if (size == 1) return static_cast<std::int8_t>(value);
    if (size == 2) return static_cast<std::int16_t>(value);
    return static_cast<std::int32_t>(value);
  }

  bool read_prefixes() {
    for (;;) {
      opcode_ = next();
      if (short_) return false;
      switch (opcode_) {
        case 0x66: prefixes_.operand16 = true; continue;
        case 0x67: prefixes_.address32 = true; continue;
        case 0x64: prefixes_.fs = true; continue;
        case 0x65: prefixes_.gs = true; continue;
        case 0xf0: prefixes_.lock = true; continue;
        case 0xf2:
        case 0xf3: prefixes_.repeat = opcode_; continue;
        case 0x26:
        case 0x2e:
        case 0x36:
        case 0x3e: continue;  // segments that have no effect
        default: break;
      }
      break;
    }
    if ((opcode_ & 0xf0) == 0x40) {
      prefixes_.rex = true;
      prefixes_.w = opcode_ & 8, prefixes_.r = opcode_ & 4, prefixes_.x = opcode_ & 2, prefixes_.b = opcode_ & 1;
      opcode_ = next();
    }
    if (opcode_ == 0xc5 || opcode_ == 0xc4) return read_vex();
    if (opcode_ == 0x62) return read_evex();
    if (opcode_ != 0x0f) return true;
    map_ = Map::kTwo;
    opcode_ = next();
    if (opcode_ == 0x38 || opcode_ == 0x3a) {
      map_ = opcode_ == 0x38 ? Map::k38 : Map::k3a;
      opcode_ = next();
    }
    return true;
  }

  void take_mandatory(unsigned pp) {
    prefixes_.operand16 = pp == 1;
    prefixes_.repeat = pp == 2 ? 0xf3 : pp == 3 ? 0xf2 : 0;
  }

  bool take_map(unsigned map) {
    if (map < 1 || map > 3) return false;
    map_ = map == 1 ? Map::kTwo : map == 2 ? Map::k38 : Map::k3a;
    opcode_ = next();
    return true;
  }

  bool read_vex() {
    const bool three = opcode_ == 0xc4;
    std::uint8_t first = next(), last = first;
    unsigned map = 1;
    prefixes_.r = !(first & 0x80);
    if (three) {
      prefixes_.x = !(first & 0x40), prefixes_.b = !(first & 0x20);
      map = first & 0x1f;
      last = next();
      prefixes_.w = last & 0x80;
    }
    prefixes_.encoding = Encoding::kVex;
    prefixes_.second = ~(last >> 3) & 15;
    prefixes_.vector = last & 4 ? 32 : 16;
    take_mandatory(last & 3);
    return take_map(map);
  }

  bool read_evex() {
    const std::uint8_t p0 = next(), p1 = next(), p2 = next();
    if (!(p1 & 4) || (p0 & 8)) return false;
    prefixes_.encoding = Encoding::kEvex;
    prefixes_.r = !(p0 & 0x80), prefixes_.x = !(p0 & 0x40), prefixes_.b = !(p0 & 0x20),
    prefixes_.high_reg = !(p0 & 0x10);
    prefixes_.w = p1 & 0x80;
    prefixes_.second = (~(p1 >> 3) & 15) | (p2 & 8 ? 0 : 16);
    prefixes_.vector = 16u << std::min(2, (p2 >> 5) & 3);
    prefixes_.mask = p2 & 7;
    take_mandatory(p1 & 3);
    return take_map(p0 & 7);
  }

  struct Operand {
    unsigned reg = 0;            // ModRM's reg, with its extension
    std::optional<unsigned> rm;  // a register in the processor's numbering
    std::optional<MemoryOperand> memory;
  };

  // ModRM, SIB and displacement. `scaled`: the factor of EVEX's displacement of one byte.
  Operand read_operand(unsigned bytes, unsigned scaled = 1) {
    const std::uint8_t modrm = next();
    const unsigned mod = modrm >> 6, rm = modrm & 7;
    Operand operand;
    operand.reg = ((modrm >> 3) & 7) | (prefixes_.r ? 8u : 0);
    if (mod == 3) {
      operand.rm = rm | (prefixes_.b ? 8u : 0) | (prefixes_.encoding == Encoding::kEvex && prefixes_.x ? 16u : 0);
      return operand;
    }
    MemoryOperand& memory = operand.memory.emplace();
    memory.bytes = bytes;
    memory.fs = prefixes_.fs, memory.gs = prefixes_.gs;
    bool wide = mod == 2;
    shows_displacement_ = mod != 0;
    if (rm == 4) {
      const std::uint8_t sib = next();
      const unsigned index = ((sib >> 3) & 7) | (prefixes_.x ? 8u : 0);
      memory.scale = 1u << (sib >> 6);
      if (index != 4) memory.index = kDwarfOf[index];
      if ((sib & 7) == 5 && mod == 0) wide = true;
      else memory.base = kDwarfOf[(sib & 7) | (prefixes_.b ? 8u : 0)];
    } else if (rm == 5 && mod == 0) {
      memory.base = kRip;
      wide = true;
    } else {
      memory.base = kDwarfOf[rm | (prefixes_.b ? 8u : 0)];
    }
    if (wide) memory.displacement = next_signed(4);
    else if (mod == 1) memory.displacement = next_signed(1) * static_cast<std::int64_t>(scaled);
    return operand;
  }

  unsigned operand_bytes() const { return prefixes_.w ? 8 : prefixes_.operand16 ? 2 : 4; }

  unsigned bytes_of(Size size) const {
    switch (size) {
      case Size::kByte: return 1;
      case Size::kOperand: return operand_bytes();
      case Size::k64:
      case Size::k8: return 8;
      case Size::kVector: return prefixes_.vector != 0 ? prefixes_.vector : 16;
      case Size::k4: return 4;
      case Size::k16: return 16;
    }
    return 1;
  }

  std::string general_register(unsigned number, unsigned bytes) const {
    if (bytes == 1 && number < 8) return fmt::format("%{}", prefixes_.rex ? kLow8Rex[number] : kLow8[number]);
    if (number >= 8) return fmt::format("%r{}{}", number, bytes == 1 ? "b" : bytes == 2 ? "w" : bytes == 4 ? "d" : "");
    const std::string_view name = kLow64[number];
    return fmt::format("%{}{}", bytes == 8 ? "r" : bytes == 4 ? "e" : "", name.substr(1));
  }
  std::string vector_register(unsigned number) const {
    const char kind = prefixes_.vector == 64 ? 'z' : prefixes_.vector == 32 ? 'y' : 'x';
    return fmt::format("%{}mm{}", kind, number);
  }

  // "0x10(%rax,%rcx,8)"
  std::string text_of(const MemoryOperand& memory) const {
    std::string text = memory.fs ? "%fs:" : memory.gs ? "%gs:" : "";
    if (!memory.base && !memory.index)
      return text + fmt::format("{:#x}", static_cast<std::uint64_t>(memory.displacement));
    if (shows_displacement_ || memory.base == kRip || !memory.base) text += signed_hex(memory.displacement);
    text += "(";
    const auto name = [&](unsigned of) {
      return fmt::format("%{}{}", prefixes_.address32 && of < kR8 ? "e" : "",
                         register_name(of) + (prefixes_.address32 && of < kR8 ? 1 : 0));
    };
    if (memory.base) text += name(*memory.base);
    if (memory.index) text += fmt::format(",{},{}", name(*memory.index), memory.scale);
    return text + ")";
  }

  std::string rm_text(const Operand& operand, unsigned bytes, bool vector = false) const {
    if (operand.memory) return text_of(*operand.memory);
    return vector ? vector_register(*operand.rm) : general_register(*operand.rm, bytes);
  }

  void keep(const Operand& operand) {
    if (operand.memory) instruction_.memory.push_back(*operand.memory);
  }

  // AT&T's suffix for the size of a memory operand that no register shows.
  static const char* suffix(const Operand& operand, unsigned bytes) {
    if (!operand.memory) return "";
    return bytes == 1 ? "b" : bytes == 2 ? "w" : bytes == 4 ? "l" : "q";
  }

  void add_stack(std::int64_t displacement) {
    MemoryOperand stack;
    stack.base = kRsp;
    stack.displacement = displacement;
    stack.bytes = 8;
    instruction_.memory.push_back(stack);
  }

  void to_memory(const char* name, unsigned bytes) {
    const Operand operand = read_operand(bytes);
    keep(operand);
    instruction_.text = fmt::format("{} {},{}", name, general_register(operand.reg, bytes), rm_text(operand, bytes));
  }
  void to_register(const char* name, unsigned bytes, unsigned register_bytes) {
    const Operand operand = read_operand(bytes);
    keep(operand);
    instruction_.text =
        fmt::format("{} {},{}", name, rm_text(operand, bytes), general_register(operand.reg, register_bytes));
  }

  void with_immediate(const char* name, const Operand& operand, unsigned bytes, unsigned immediate) {
    const std::int64_t value = next_signed(immediate);
    const std::uint64_t mask = bytes == 8 ? ~std::uint64_t{0} : (std::uint64_t{1} << (8 * bytes)) - 1;
    instruction_.text = fmt::format("{}{} ${:#x},{}", name, suffix(operand, bytes),
                                    static_cast<std::uint64_t>(value) & mask, rm_text(operand, bytes));
  }

  void only(const Row& row, const Operand& operand, unsigned bytes) {
    const bool jumps = row.size == Size::k64 && row.first == 0xff && row.extension != 6;
    const char* size = row.size == Size::k64 ? "" : suffix(operand, bytes);
    instruction_.text = fmt::format("{}{} {}{}", row.name, size, jumps ? "*" : "", rm_text(operand, bytes));
    if (row.size == Size::k64 && row.extension != 4) add_stack(row.first == 0x8f ? 0 : -8);
    const bool divides = (opcode_ & 0xfe) == 0xf6 && row.extension >= 6;
    if (divides && operand.rm) instruction_.divisor = kDwarfOf[*operand.rm];
  }

  void vector(const Row& row, const Operand& operand) {
    const unsigned number = operand.reg | (prefixes_.high_reg ? 16u : 0);
    const std::string name =
        (prefixes_.encoding == Encoding::kLegacy ? "" : "v") + std::string(row.name) + evex_suffix(row);
    const bool compares = prefixes_.encoding == Encoding::kEvex && std::string_view(row.name).starts_with("pcmp");
    const std::string rm = rm_text(operand, bytes_of(row.size), true),
                      reg = compares ? fmt::format("%k{}", operand.reg & 7) : vector_register(number);
    const bool two_sources = prefixes_.encoding != Encoding::kLegacy && row.form == Form::kVectorUse;
    if (row.form == Form::kVectorStore) instruction_.text = fmt::format("{} {},{}", name, reg, rm);
    else if (two_sources)
      instruction_.text = fmt::format("{} {},{},{}", name, rm, vector_register(prefixes_.second), reg);
    else instruction_.text = fmt::format("{} {},{}", name, rm, reg);
    if (prefixes_.mask != 0) instruction_.text += fmt::format("{{%k{}}}", prefixes_.mask);
  }

  // Under EVEX the names of these have the width of the elements, by which the mask counts.
  std::string evex_suffix(const Row& row) const {
    const std::string_view name = row.name;
    if (prefixes_.encoding != Encoding::kEvex) return "";
    if (row.mandatory == 3 && name == "movdqu") return prefixes_.w ? "16" : "8";
    if (name == "movdqu" || name == "movdqa") return prefixes_.w ? "64" : "32";
    if (name == "pxor" || name == "por") return prefixes_.w ? "q" : "d";
    return "";
  }

  bool by_row(const Row& row) {
    const unsigned bytes = bytes_of(row.size);
    switch (row.form) {
      case Form::kToMemory: return to_memory(row.name, bytes), true;
      case Form::kToRegister: return to_register(row.name, bytes, bytes), true;
      default: break;
    }
    const Operand operand = read_operand(bytes, prefixes_.encoding == Encoding::kEvex ? bytes : 1);
    keep(operand);
    switch (row.form) {
      case Form::kOnly: return only(row, operand, bytes), true;
      case Form::kImmediate8: return with_immediate(row.name, operand, bytes, 1), true;
      case Form::kImmediate: return with_immediate(row.name, operand, bytes, std::min(bytes, 4u)), true;
      default: return vector(row, operand), true;
    }
  }

  const Row* row() const {
    const std::uint8_t modrm = at_ < bytes_.size() ? bytes_[at_] : 0;
    const int extension = (modrm >> 3) & 7;
    const auto found = std::find_if(std::begin(kRows), std::end(kRows), [&](const Row& r) {
      return r.map == map_ && opcode_ >= r.first && opcode_ <= r.last &&
             (r.extension < 0 || r.extension == extension) &&
             (r.mandatory < 0 || static_cast<unsigned>(r.mandatory) == prefixes_.mandatory());
    });
    return found == std::end(kRows) ? nullptr : &*found;
  }

  bool one_byte() {
    if (opcode_ < 0x40 && (opcode_ & 7) < 4) return arithmetic();
    if (opcode_ >= 0x80 && opcode_ <= 0x83 && opcode_ != 0x82) return arithmetic_immediate();
    if ((opcode_ >= 0x50 && opcode_ <= 0x5f) || opcode_ == 0xe8 || opcode_ == 0xc3 || opcode_ == 0xc9) return stack();
    if ((opcode_ >= 0xa4 && opcode_ <= 0xaf) && opcode_ != 0xa8 && opcode_ != 0xa9) return string_operation();
    if (opcode_ == 0xc0 || opcode_ == 0xc1 || (opcode_ >= 0xd0 && opcode_ <= 0xd3)) return shift();
    if (opcode_ == 0x63) return to_register("movslq", 4, operand_bytes()), true;
    if (opcode_ == 0x69 || opcode_ == 0x6b) return multiply();
    if (opcode_ == 0xcc) return instruction_.text = "int3", true;
    if (opcode_ == 0xf4) return instruction_.text = "hlt", true;
    const Row* found = row();
    return found != nullptr && by_row(*found);
  }

  bool arithmetic() {
    const char* name = kArithmetic[opcode_ >> 3];
    const unsigned bytes = opcode_ & 1 ? operand_bytes() : 1;
    if (opcode_ & 2) to_register(name, bytes, bytes);
    else to_memory(name, bytes);
    return true;
  }

  bool arithmetic_immediate() {
    const unsigned bytes = opcode_ & 1 ? operand_bytes() : 1;
    const Operand operand = read_operand(bytes);
    keep(operand);
    with_immediate(kArithmetic[operand.reg & 7], operand, bytes, opcode_ == 0x81 ? std::min(bytes, 4u) : 1);
    return true;
  }

  bool multiply() {
    const unsigned bytes = operand_bytes();
    const Operand operand = read_operand(bytes);
    keep(operand);
    const std::int64_t value = next_signed(opcode_ == 0x6b ? 1 : std::min(bytes, 4u));
    const std::uint64_t mask = bytes == 8 ? ~std::uint64_t{0} : (std::uint64_t{1} << (8 * bytes)) - 1;
    instruction_.text = fmt::format("imul ${:#x},{},{}", static_cast<std::uint64_t>(value) & mask,
                                    rm_text(operand, bytes), general_register(operand.reg, bytes));
    return true;
  }

  bool shift() {
    const unsigned bytes = opcode_ & 1 ? operand_bytes() : 1;
    const Operand operand = read_operand(bytes);
    keep(operand);
    const char* name = kShifts[operand.reg & 7];
    if (opcode_ < 0xd0) return with_immediate(name, operand, bytes, 1), true;
    instruction_.text =
        fmt::format("{}{} {}{}", name, suffix(operand, bytes), opcode_ >= 0xd2 ? "%cl," : "", rm_text(operand, bytes));
    return true;
  }

  bool stack() {
    if (opcode_ == 0xe8) {
      next_signed(4);
      instruction_.text = "call";
      add_stack(-8);
    } else if (opcode_ == 0xc3) {
      instruction_.text = "ret";
      add_stack(0);
    } else if (opcode_ == 0xc9) {
      instruction_.text = "leave";
      add_stack(0);
      instruction_.memory.back().base = kRbp;
    } else {
      const unsigned number = (opcode_ & 7) | (prefixes_.b ? 8u : 0);
      const bool push = opcode_ < 0x58;
      instruction_.text = fmt::format("{} {}", push ? "push" : "pop", general_register(number, 8));
      add_stack(push ? -8 : 0);
    }
    return true;
  }

  bool string_operation() {
    const unsigned bytes = opcode_ & 1 ? operand_bytes() : 1;
    const auto operand = [&](unsigned base) {
      MemoryOperand memory;
      memory.base = base;
      memory.bytes = bytes;
      instruction_.memory.push_back(memory);
    };
    const char* size = bytes == 1 ? "b" : bytes == 2 ? "w" : bytes == 4 ? "l" : "q";
    const std::string accumulator = general_register(0, bytes), source = "%ds:(%rsi)", destination = "%es:(%rdi)";
    const std::uint8_t kind = opcode_ & 0xfe;
    const bool repeated_while = kind == 0xa6 || kind == 0xae;
    if (prefixes_.repeat != 0)
      instruction_.text = prefixes_.repeat == 0xf2 ? "repnz " : repeated_while ? "repz " : "rep ";
    if (kind == 0xa4 || kind == 0xa6 || kind == 0xac) operand(kRsi);
    if (kind != 0xac) operand(kRdi);
    switch (kind) {
      case 0xa4: instruction_.text += fmt::format("movs{} {},{}", size, source, destination); break;
      case 0xa6: instruction_.text += fmt::format("cmps{} {},{}", size, destination, source); break;
      case 0xaa: instruction_.text += fmt::format("stos {},{}", accumulator, destination); break;
      case 0xac: instruction_.text += fmt::format("lods {},{}", source, accumulator); break;
      default: instruction_.text += fmt::format("scas {},{}", destination, accumulator); break;
    }
    return true;
  }

  bool two_bytes() {
    if (opcode_ == 0x0b) return instruction_.text = "ud2", true;
    if (opcode_ == 0xb6 || opcode_ == 0xb7 || opcode_ == 0xbe || opcode_ == 0xbf) return extend();
    if ((opcode_ & 0xf0) == 0x40 && prefixes_.encoding == Encoding::kLegacy)
      return to_register(("cmov" + std::string(kConditions[opcode_ & 15])).c_str(), operand_bytes(), operand_bytes()),
             true;
    if ((opcode_ & 0xf0) == 0x90 && prefixes_.encoding == Encoding::kLegacy) return set();
    if (opcode_ == 0xc7 && prefixes_.encoding == Encoding::kLegacy) return exchange_wide();
    const bool of_evex_alone = (opcode_ | 0x10) == 0x7f && prefixes_.mandatory() == 3;  // vmovdqu8, vmovdqu16
    if (of_evex_alone && prefixes_.encoding != Encoding::kEvex) return false;
    const Row* found = row();
    return found != nullptr && by_row(*found);
  }

  bool extend() {
    const bool sign = opcode_ >= 0xbe;
    const unsigned from = opcode_ & 1 ? 2 : 1, to = operand_bytes();
    const std::string name = fmt::format("mov{}{}{}", sign ? "s" : "z", from == 1 ? "b" : "w",
                                         to == 2   ? "w"
                                         : to == 4 ? "l"
                                                   : "q");
    return to_register(name.c_str(), from, to), true;
  }

  bool set() {
    const Operand operand = read_operand(1);
    keep(operand);
    instruction_.text = fmt::format("set{} {}", kConditions[opcode_ & 15], rm_text(operand, 1));
    return true;
  }

  bool exchange_wide() {
    const Operand operand = read_operand(prefixes_.w ? 16 : 8);
    if (!operand.memory || (operand.reg & 7) != 1) return false;
    keep(operand);
    instruction_.text = fmt::format("cmpxchg{}b {}", prefixes_.w ? 16 : 8, text_of(*operand.memory));
    return true;
  }

  Bytes bytes_;
  std::size_t at_ = 0;
  bool short_ = false, shows_displacement_ = false;
  Prefixes prefixes_;
  Map map_ = Map::kOne;
  std::uint8_t opcode_ = 0;
  Instruction instruction_;
};

}  // namespace

std::optional<Address> MemoryOperand::address(const Registers& registers, Address end_of_instruction) const {
  if (gs) return std::nullopt;
  Address sum = static_cast<Address>(displacement) + (fs ? registers.fs_base : 0);
  if (base == kRip) {
    sum += end_of_instruction;
  } else if (base) {
    if (!registers.has(*base)) return std::nullopt;
    sum += registers[*base];
  }
  if (index) {
    if (!registers.has(*index)) return std::nullopt;
    sum += registers[*index] * scale;
  }
  return sum;
}

std::optional<Instruction> decode_instruction(Bytes bytes) { return Decoder(bytes).decode(); }

const char* register_name(unsigned dwarf_register) {
  constexpr const char* kNames[] = {"rax", "rdx", "rcx", "rbx", "rsi", "rdi", "rbp", "rsp", "r8",
                                    "r9",  "r10", "r11", "r12", "r13", "r14", "r15", "rip"};
  return dwarf_register < std::size(kNames) ? kNames[dwarf_register] : "?";
}

}  // namespace rankstacks::target
