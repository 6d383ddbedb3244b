#include "target/fault_instruction.h"

#include <algorithm>
#include <array>
#include <csignal>
#include <vector>

#include <fmt/format.h>

#include "target/x86_instruction.h"

namespace rankstacks::target {
namespace {

constexpr int kSentByKernel = 0x80;  // SI_KERNEL

bool is_fault(int number) { return number == SIGSEGV || number == SIGBUS || number == SIGILL || number == SIGFPE; }

// si_code of kill, tgkill, sigqueue; that of a fault is positive.
bool is_sent(const SignalInfo& signal) { return signal.code && *signal.code <= 0; }

// With 48 bits of address, as of all processors and processes without 5-level paging: the user's half.
bool is_canonical(Address address) { return address >> 47 == 0 || address >> 47 == (Address{1} << 17) - 1; }

const Registers* registers_of(const Target& target, Tid tid) {
  const auto threads = target.threads();
  const auto at = std::find_if(threads.begin(), threads.end(), [&](const ThreadInfo& t) { return t.tid == tid; });
  return at == threads.end() || !at->registers ? nullptr : &*at->registers;
}

// As many bytes as can be read: the instruction may be the last one of its mapping.
std::vector<std::uint8_t> code_at(const Target& target, Address pc) {
  std::array<std::byte, kLongestInstruction> bytes{};
  const std::size_t read = target.read(pc, bytes);
  std::vector<std::uint8_t> code;
  for (std::size_t i = 0; i < std::min(read, bytes.size()); ++i)
    code.push_back(std::to_integer<std::uint8_t>(bytes[i]));
  return code;
}

std::string hex_bytes(const std::vector<std::uint8_t>& code, std::size_t length) {
  std::string text;
  for (std::size_t i = 0; i < std::min(code.size(), length); ++i)
    text += fmt::format("{}{:02x}", i == 0 ? "" : " ", code[i]);
  return text;
}

// The operand that has the fault's address; of one operand that one; nullptr: it is not known which.
const MemoryOperand* faulting_operand(const Instruction& instruction, const Registers& registers, Address end,
                                      const SignalInfo& signal) {
  for (const MemoryOperand& operand : instruction.memory) {
    const auto address = operand.address(registers, end);
    if (!address) continue;
    const bool at_fault = signal.fault_address && *signal.fault_address - *address < operand.bytes;
    if (at_fault || (signal.code == kSentByKernel && !is_canonical(*address))) return &operand;
  }
  return instruction.memory.size() == 1 ? &instruction.memory.front() : nullptr;
}

}  // namespace

void read_fault_instruction(const Target& target, SignalInfo& signal) {
  const Registers* registers = registers_of(target, signal.tid);
  if (registers != nullptr) read_fault_instruction(target, *registers, signal);
}

void read_fault_instruction(const Target& target, const Registers& registers, SignalInfo& signal) {
  if (!is_fault(signal.number) || is_sent(signal) || !registers.has(kRip)) return;
  const Address pc = registers.pc();
  const bool executed = (signal.number == SIGSEGV || signal.number == SIGBUS) && signal.fault_address == pc;
  const auto code = executed ? std::vector<std::uint8_t>() : code_at(target, pc);
  const auto decoded = code.empty() ? std::nullopt : decode_instruction(code);
  if (code.empty()) return;
  FaultInstruction& found = signal.instruction.emplace();
  const std::size_t length = decoded ? decoded->length : 0;
  found.bytes = hex_bytes(code, decoded ? length : kLongestInstruction);
  if (!decoded) return;
  found.text = decoded->text;
  const auto add = [&](unsigned number) {
    if (number != kRip && registers.has(number)) found.registers.emplace_back(register_name(number), registers[number]);
  };
  if (decoded->divisor) add(*decoded->divisor);
  const MemoryOperand* operand = faulting_operand(*decoded, registers, pc + length, signal);
  if (operand == nullptr) return;
  if (operand->base) add(*operand->base);
  if (operand->index) add(*operand->index);
  const auto address = operand->address(registers, pc + length);
  if (signal.number == SIGSEGV && signal.code == kSentByKernel && address && !is_canonical(*address))
    signal.fault_address = *address;
}

bool reaches(const Target& target, const Registers& registers, Address address) {
  constexpr std::uint64_t kLargestOperand = 16384;  // xsave with AMX's tiles: 11 KiB
  if (!registers.has(kRip)) return false;
  if (registers.pc() == address) return true;
  const auto decoded = decode_instruction(code_at(target, registers.pc()));
  return decoded && std::any_of(decoded->memory.begin(), decoded->memory.end(), [&](const MemoryOperand& operand) {
           const auto at = operand.address(registers, registers.pc() + decoded->length);
           return at && address - *at < kLargestOperand;
         });
}

}  // namespace rankstacks::target
