#include "target/handled_fault.h"

#include <algorithm>
#include <array>
#include <csignal>

#include "base/text.h"
#include "target/fault_instruction.h"
#include "target/fault_place.h"

namespace rankstacks::target {
namespace {

constexpr int kFault = 1, kSentByKernel = 0x80;  // si_code: of some fault; SI_KERNEL

// The begin of struct ucontext, with struct sigcontext_64 (arch/x86/include/uapi/asm/sigcontext.h).
struct SavedContext {
  std::uint64_t flags, link, stack[3];
  std::uint64_t general[17];
  std::uint64_t eflags;
  std::uint16_t cs, gs, fs, ss;
  std::uint64_t error, exception, old_mask, cr2;
};
static_assert(sizeof(SavedContext) == 224);

constexpr std::array<DwarfRegister, 17> kSavedOrder = {kR8,  kR9,  kR10, kR11, kR12, kR13, kR14, kR15, kRdi,
                                                       kRsi, kRbp, kRbx, kRdx, kRax, kRcx, kRsp, kRip};

// Exceptions of the processor (Intel SDM, volume 3, chapter 6).
enum Exception : std::uint64_t {
  kDivide = 0,
  kInvalidOpcode = 6,
  kGeneralProtection = 13,
  kPageFault = 14,
  kX87 = 16,
  kSimd = 19,
};

Registers registers_in(const SavedContext& saved) {
  Registers registers;
  for (std::size_t i = 0; i < kSavedOrder.size(); ++i) registers.set(kSavedOrder[i], saved.general[i]);
  return registers;
}

// What the kernel would say of the exception: si_code, and the address; the signal's number decides which exceptions
// can be its cause.
std::optional<SignalInfo> fault_by(const SavedContext& saved, const SignalInfo& signal) {
  SignalInfo fault{signal.number, signal.name, signal.tid, kFault, {}};
  const Address pc = saved.general[16];
  switch (saved.exception) {
    case kPageFault:
      if (signal.number != SIGSEGV && signal.number != SIGBUS) return std::nullopt;
      fault.fault_address = saved.cr2;
      return fault;
    case kGeneralProtection:
      if (signal.number != SIGSEGV) return std::nullopt;
      fault.code = kSentByKernel;
      fault.fault_address = 0;
      return fault;
    case kInvalidOpcode:
      if (signal.number != SIGILL) return std::nullopt;
      fault.fault_address = pc;
      return fault;
    case kDivide:
    case kX87:
    case kSimd:
      if (signal.number != SIGFPE) return std::nullopt;
      fault.fault_address = pc;
      return fault;
    default: return std::nullopt;
  }
}

// Whether the instruction can have caused the exception. `fault` has it, and for a general protection the address that
// is not canonical instead of the kernel's 0.
bool fits(const Target& target, const Registers& registers, const SavedContext& saved, const SignalInfo& fault) {
  switch (saved.exception) {
    case kPageFault: return reaches(target, registers, saved.cr2);
    case kGeneralProtection: return fault.fault_address != Address{0};
    case kDivide: return fault.instruction && contains(fault.instruction->text, "div");
    default: return fault.instruction.has_value();
  }
}

const ThreadInfo* thread_with(const Target& target, Tid tid) {
  const auto threads = target.threads();
  const auto at = std::find_if(threads.begin(), threads.end(), [&](const ThreadInfo& t) { return t.tid == tid; });
  return at == threads.end() ? nullptr : &*at;
}

}  // namespace

bool read_handled_fault(const Target& target, Address context, Address pc, Pid pid, SignalInfo& signal) {
  const ThreadInfo* thread = thread_with(target, signal.tid);
  const bool by_itself = signal.code && *signal.code <= 0 && signal.sender == pid;
  if (!by_itself || thread == nullptr || !thread->registers) return false;
  const auto saved = target.read_value<SavedContext>(context);
  if (!saved || saved->general[16] != pc) return false;
  auto fault = fault_by(*saved, signal);
  if (!fault) return false;
  Registers registers = registers_in(*saved);
  registers.fs_base = thread->registers->fs_base;
  read_fault_instruction(target, registers, *fault);
  if (!fits(target, registers, *saved, *fault)) return false;
  signal.fault_address = fault->fault_address;
  signal.instruction = fault->instruction;
  signal.place = place_of_fault(target, registers, signal, pid);
  return true;
}

}  // namespace rankstacks::target
