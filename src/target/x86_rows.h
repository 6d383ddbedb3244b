// The instructions that have a name in reports of faults: those of compiled code and of the C library's string
// functions.
//
// Source: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2, appendix A; the names are those that
// binutils' disassembler prints.
#pragma once

#include <cstdint>

namespace rankstacks::target {

enum class Map { kOne, kTwo, k38, k3a };

// What stands in ModRM's two fields, in the order in which AT&T's notation has them.
enum class Form {
  kToMemory,     // reg, r/m
  kToRegister,   // r/m, reg
  kOnly,         // r/m, with a suffix for its size
  kImmediate8,   // imm8, r/m, with a suffix
  kImmediate,    // imm16 or imm32 (byte instructions: imm8), r/m, with a suffix
  kVectorLoad,   // r/m, vector register
  kVectorStore,  // vector register, r/m
  kVectorUse,    // r/m, vector register; with VEX: r/m, vvvv, vector register
};

enum class Size { kByte, kOperand, k64, kVector, k4, k8, k16 };

// One instruction with ModRM.
struct Row {
  Map map;
  std::uint8_t first, last;  // opcodes
  int extension;             // ModRM's reg, of a group; -1: a register
  int mandatory;             // Prefixes::mandatory(); -1: any
  Form form;
  Size size;         // of the memory operand
  const char* name;  // without "v"
};

// clang-format off
inline constexpr Row kRows[] = {
  {Map::kOne, 0x88, 0x88, -1, -1, Form::kToMemory,    Size::kByte,    "mov"},
  {Map::kOne, 0x89, 0x89, -1, -1, Form::kToMemory,    Size::kOperand, "mov"},
  {Map::kOne, 0x8a, 0x8a, -1, -1, Form::kToRegister,  Size::kByte,    "mov"},
  {Map::kOne, 0x8b, 0x8b, -1, -1, Form::kToRegister,  Size::kOperand, "mov"},
  {Map::kOne, 0xc6, 0xc6,  0, -1, Form::kImmediate8,  Size::kByte,    "mov"},
  {Map::kOne, 0xc7, 0xc7,  0, -1, Form::kImmediate,   Size::kOperand, "mov"},
  {Map::kOne, 0x84, 0x84, -1, -1, Form::kToMemory,    Size::kByte,    "test"},
  {Map::kOne, 0x85, 0x85, -1, -1, Form::kToMemory,    Size::kOperand, "test"},
  {Map::kOne, 0x86, 0x86, -1, -1, Form::kToMemory,    Size::kByte,    "xchg"},
  {Map::kOne, 0x87, 0x87, -1, -1, Form::kToMemory,    Size::kOperand, "xchg"},
  {Map::kOne, 0x8f, 0x8f,  0, -1, Form::kOnly,        Size::k64,      "pop"},
  {Map::kOne, 0xf6, 0xf6,  0, -1, Form::kImmediate8,  Size::kByte,    "test"},
  {Map::kOne, 0xf6, 0xf6,  2, -1, Form::kOnly,        Size::kByte,    "not"},
  {Map::kOne, 0xf6, 0xf6,  3, -1, Form::kOnly,        Size::kByte,    "neg"},
  {Map::kOne, 0xf6, 0xf6,  4, -1, Form::kOnly,        Size::kByte,    "mul"},
  {Map::kOne, 0xf6, 0xf6,  5, -1, Form::kOnly,        Size::kByte,    "imul"},
  {Map::kOne, 0xf6, 0xf6,  6, -1, Form::kOnly,        Size::kByte,    "div"},
  {Map::kOne, 0xf6, 0xf6,  7, -1, Form::kOnly,        Size::kByte,    "idiv"},
  {Map::kOne, 0xf7, 0xf7,  0, -1, Form::kImmediate,   Size::kOperand, "test"},
  {Map::kOne, 0xf7, 0xf7,  2, -1, Form::kOnly,        Size::kOperand, "not"},
  {Map::kOne, 0xf7, 0xf7,  3, -1, Form::kOnly,        Size::kOperand, "neg"},
  {Map::kOne, 0xf7, 0xf7,  4, -1, Form::kOnly,        Size::kOperand, "mul"},
  {Map::kOne, 0xf7, 0xf7,  5, -1, Form::kOnly,        Size::kOperand, "imul"},
  {Map::kOne, 0xf7, 0xf7,  6, -1, Form::kOnly,        Size::kOperand, "div"},
  {Map::kOne, 0xf7, 0xf7,  7, -1, Form::kOnly,        Size::kOperand, "idiv"},
  {Map::kOne, 0xfe, 0xfe,  0, -1, Form::kOnly,        Size::kByte,    "inc"},
  {Map::kOne, 0xfe, 0xfe,  1, -1, Form::kOnly,        Size::kByte,    "dec"},
  {Map::kOne, 0xff, 0xff,  0, -1, Form::kOnly,        Size::kOperand, "inc"},
  {Map::kOne, 0xff, 0xff,  1, -1, Form::kOnly,        Size::kOperand, "dec"},
  {Map::kOne, 0xff, 0xff,  2, -1, Form::kOnly,        Size::k64,      "call"},
  {Map::kOne, 0xff, 0xff,  4, -1, Form::kOnly,        Size::k64,      "jmp"},
  {Map::kOne, 0xff, 0xff,  6, -1, Form::kOnly,        Size::k64,      "push"},
  {Map::kTwo, 0x10, 0x10, -1,  0, Form::kVectorLoad,  Size::kVector,  "movups"},
  {Map::kTwo, 0x10, 0x10, -1,  1, Form::kVectorLoad,  Size::kVector,  "movupd"},
  {Map::kTwo, 0x10, 0x10, -1,  2, Form::kVectorLoad,  Size::k4,       "movss"},
  {Map::kTwo, 0x10, 0x10, -1,  3, Form::kVectorLoad,  Size::k8,       "movsd"},
  {Map::kTwo, 0x11, 0x11, -1,  0, Form::kVectorStore, Size::kVector,  "movups"},
  {Map::kTwo, 0x11, 0x11, -1,  1, Form::kVectorStore, Size::kVector,  "movupd"},
  {Map::kTwo, 0x11, 0x11, -1,  2, Form::kVectorStore, Size::k4,       "movss"},
  {Map::kTwo, 0x11, 0x11, -1,  3, Form::kVectorStore, Size::k8,       "movsd"},
  {Map::kTwo, 0x13, 0x13, -1,  0, Form::kVectorStore, Size::k8,       "movlps"},
  {Map::kTwo, 0x16, 0x16, -1,  0, Form::kVectorUse,   Size::k8,       "movhps"},
  {Map::kTwo, 0x17, 0x17, -1,  0, Form::kVectorStore, Size::k8,       "movhps"},
  {Map::kTwo, 0x28, 0x28, -1,  0, Form::kVectorLoad,  Size::kVector,  "movaps"},
  {Map::kTwo, 0x28, 0x28, -1,  1, Form::kVectorLoad,  Size::kVector,  "movapd"},
  {Map::kTwo, 0x29, 0x29, -1,  0, Form::kVectorStore, Size::kVector,  "movaps"},
  {Map::kTwo, 0x29, 0x29, -1,  1, Form::kVectorStore, Size::kVector,  "movapd"},
  {Map::kTwo, 0x2b, 0x2b, -1,  0, Form::kVectorStore, Size::kVector,  "movntps"},
  {Map::kTwo, 0x2e, 0x2e, -1,  0, Form::kVectorLoad,  Size::k4,       "ucomiss"},
  {Map::kTwo, 0x2e, 0x2e, -1,  1, Form::kVectorLoad,  Size::k8,       "ucomisd"},
  {Map::kTwo, 0x2f, 0x2f, -1,  0, Form::kVectorLoad,  Size::k4,       "comiss"},
  {Map::kTwo, 0x2f, 0x2f, -1,  1, Form::kVectorLoad,  Size::k8,       "comisd"},
  {Map::kTwo, 0x51, 0x51, -1,  2, Form::kVectorUse,   Size::k4,       "sqrtss"},
  {Map::kTwo, 0x51, 0x51, -1,  3, Form::kVectorUse,   Size::k8,       "sqrtsd"},
  {Map::kTwo, 0x58, 0x58, -1,  0, Form::kVectorUse,   Size::kVector,  "addps"},
  {Map::kTwo, 0x58, 0x58, -1,  1, Form::kVectorUse,   Size::kVector,  "addpd"},
  {Map::kTwo, 0x58, 0x58, -1,  2, Form::kVectorUse,   Size::k4,       "addss"},
  {Map::kTwo, 0x58, 0x58, -1,  3, Form::kVectorUse,   Size::k8,       "addsd"},
  {Map::kTwo, 0x59, 0x59, -1,  0, Form::kVectorUse,   Size::kVector,  "mulps"},
  {Map::kTwo, 0x59, 0x59, -1,  1, Form::kVectorUse,   Size::kVector,  "mulpd"},
  {Map::kTwo, 0x59, 0x59, -1,  2, Form::kVectorUse,   Size::k4,       "mulss"},
  {Map::kTwo, 0x59, 0x59, -1,  3, Form::kVectorUse,   Size::k8,       "mulsd"},
  {Map::kTwo, 0x5a, 0x5a, -1,  2, Form::kVectorUse,   Size::k4,       "cvtss2sd"},
  {Map::kTwo, 0x5a, 0x5a, -1,  3, Form::kVectorUse,   Size::k8,       "cvtsd2ss"},
  {Map::kTwo, 0x5c, 0x5c, -1,  2, Form::kVectorUse,   Size::k4,       "subss"},
  {Map::kTwo, 0x5c, 0x5c, -1,  3, Form::kVectorUse,   Size::k8,       "subsd"},
  {Map::kTwo, 0x5e, 0x5e, -1,  2, Form::kVectorUse,   Size::k4,       "divss"},
  {Map::kTwo, 0x5e, 0x5e, -1,  3, Form::kVectorUse,   Size::k8,       "divsd"},
  {Map::kTwo, 0x6f, 0x6f, -1,  1, Form::kVectorLoad,  Size::kVector,  "movdqa"},
  {Map::kTwo, 0x6f, 0x6f, -1,  2, Form::kVectorLoad,  Size::kVector,  "movdqu"},
  {Map::kTwo, 0x7f, 0x7f, -1,  1, Form::kVectorStore, Size::kVector,  "movdqa"},
  {Map::kTwo, 0x7f, 0x7f, -1,  2, Form::kVectorStore, Size::kVector,  "movdqu"},
  {Map::kTwo, 0x6f, 0x6f, -1,  3, Form::kVectorLoad,  Size::kVector,  "movdqu"},
  {Map::kTwo, 0x7f, 0x7f, -1,  3, Form::kVectorStore, Size::kVector,  "movdqu"},
  {Map::kTwo, 0x74, 0x74, -1,  1, Form::kVectorUse,   Size::kVector,  "pcmpeqb"},
  {Map::kTwo, 0x75, 0x75, -1,  1, Form::kVectorUse,   Size::kVector,  "pcmpeqw"},
  {Map::kTwo, 0x76, 0x76, -1,  1, Form::kVectorUse,   Size::kVector,  "pcmpeqd"},
  {Map::kTwo, 0x7e, 0x7e, -1,  2, Form::kVectorLoad,  Size::k8,       "movq"},
  {Map::kTwo, 0xd6, 0xd6, -1,  1, Form::kVectorStore, Size::k8,       "movq"},
  {Map::kTwo, 0xda, 0xda, -1,  1, Form::kVectorUse,   Size::kVector,  "pminub"},
  {Map::kTwo, 0xe7, 0xe7, -1,  1, Form::kVectorStore, Size::kVector,  "movntdq"},
  {Map::kTwo, 0xeb, 0xeb, -1,  1, Form::kVectorUse,   Size::kVector,  "por"},
  {Map::kTwo, 0xef, 0xef, -1,  1, Form::kVectorUse,   Size::kVector,  "pxor"},
  {Map::kTwo, 0xfe, 0xfe, -1,  1, Form::kVectorUse,   Size::kVector,  "paddd"},
  {Map::kTwo, 0xaf, 0xaf, -1, -1, Form::kToRegister,  Size::kOperand, "imul"},
  {Map::kTwo, 0xb8, 0xb8, -1,  2, Form::kToRegister,  Size::kOperand, "popcnt"},
  {Map::kTwo, 0xc3, 0xc3, -1,  0, Form::kToMemory,    Size::kOperand, "movnti"},
  {Map::kTwo, 0xb0, 0xb0, -1, -1, Form::kToMemory,    Size::kByte,    "cmpxchg"},
  {Map::kTwo, 0xb1, 0xb1, -1, -1, Form::kToMemory,    Size::kOperand, "cmpxchg"},
  {Map::kTwo, 0xc0, 0xc0, -1, -1, Form::kToMemory,    Size::kByte,    "xadd"},
  {Map::kTwo, 0xc1, 0xc1, -1, -1, Form::kToMemory,    Size::kOperand, "xadd"},
  {Map::kTwo, 0xa3, 0xa3, -1, -1, Form::kToMemory,    Size::kOperand, "bt"},
  {Map::kTwo, 0xab, 0xab, -1, -1, Form::kToMemory,    Size::kOperand, "bts"},
  {Map::kTwo, 0xb3, 0xb3, -1, -1, Form::kToMemory,    Size::kOperand, "btr"},
  {Map::kTwo, 0xbb, 0xbb, -1, -1, Form::kToMemory,    Size::kOperand, "btc"},
  {Map::kTwo, 0xba, 0xba,  4, -1, Form::kImmediate8,  Size::kOperand, "bt"},
  {Map::kTwo, 0xba, 0xba,  5, -1, Form::kImmediate8,  Size::kOperand, "bts"},
  {Map::kTwo, 0xba, 0xba,  6, -1, Form::kImmediate8,  Size::kOperand, "btr"},
  {Map::kTwo, 0xba, 0xba,  7, -1, Form::kImmediate8,  Size::kOperand, "btc"},
  {Map::kTwo, 0xbc, 0xbc, -1,  2, Form::kToRegister,  Size::kOperand, "tzcnt"},
  {Map::kTwo, 0xbc, 0xbc, -1, -1, Form::kToRegister,  Size::kOperand, "bsf"},
  {Map::kTwo, 0xbd, 0xbd, -1,  2, Form::kToRegister,  Size::kOperand, "lzcnt"},
  {Map::kTwo, 0xbd, 0xbd, -1, -1, Form::kToRegister,  Size::kOperand, "bsr"},
};
inline constexpr const char* kArithmetic[] = {"add", "or", "adc", "sbb", "and", "sub", "xor", "cmp"};
inline constexpr const char* kShifts[] = {"rol", "ror", "rcl", "rcr", "shl", "shr", "shl", "sar"};
inline constexpr const char* kConditions[] = {"o", "no", "b", "ae", "e", "ne", "be", "a", "s", "ns", "p", "np", "l", "ge", "le", "g"};
// clang-format on

}  // namespace rankstacks::target
