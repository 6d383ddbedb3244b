#include "unwind/stack_walk.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <fmt/format.h>

namespace rankstacks {
namespace {

const Mapping* mapping_of(const Target& target, Address a) {
  const auto all = target.mappings();
  auto it = std::upper_bound(all.begin(), all.end(), a, [](Address x, const Mapping& m) { return x < m.range.start; });
  if (it == all.begin()) return nullptr;
  --it;
  return it->range.contains(a) ? &*it : nullptr;
}

// A cycle in (pc, sp) shows within a bounded number of steps by comparing with a frame remembered at powers of two (Brent).
class CycleDetector {
 public:
  bool seen(Address pc, Address sp) {
    if (steps_ > 0 && pc == pc_ && sp == sp_) return true;
    if (++steps_ == next_) {
      pc_ = pc;
      sp_ = sp;
      next_ *= 2;
    }
    return false;
  }

 private:
  Address pc_ = 0, sp_ = 0;
  std::size_t steps_ = 0, next_ = 1;
};

// Keeps the innermost and the outermost half of the limit.
class FrameKeeper {
 public:
  void add(const UnwoundFrame& frame) {
    ++total_;
    if (inner_.size() < kMaxFrames / 2) {
      inner_.push_back(frame);
    } else {
      outer_.push_back(frame);
      if (outer_.size() > kMaxFrames / 2) outer_.pop_front();
    }
  }
  UnwoundFrame& last() { return outer_.empty() ? inner_.back() : outer_.back(); }
  std::size_t total() const { return total_; }

  void finish(UnwoundStack& stack) {
    stack.frames = std::move(inner_);
    if (const std::size_t left_out = total_ - stack.frames.size() - outer_.size(); left_out > 0) {
      stack.omitted = OmittedFrames{stack.frames.size(), left_out};
      stack.note = fmt::format("{} frames deep: the innermost and outermost {} are kept", total_, kMaxFrames / 2);
      // That the outermost of them are no beginning of a stack weighs more.
      if (stack.end != StackEnd::kMemoryUnavailable) stack.end = StackEnd::kDepthLimit;
    }
    stack.frames.insert(stack.frames.end(), outer_.begin(), outer_.end());
  }

 private:
  std::vector<UnwoundFrame> inner_;
  std::deque<UnwoundFrame> outer_;
  std::size_t total_ = 0;
};

// Whether the function around `pc` keeps no frame pointer at `pc`, as far as its symbol shows where it begins: push %rbp; mov %rsp,%rbp is nowhere
// between there and `pc`. rbp is its caller's then, and going by it would leave that one out.
bool keeps_no_frame_pointer(const Target& target, Address pc) {
  constexpr std::uint64_t kPrologue = 4096;   // compilers may put it behind a quick way out
  const Module* module = target.modules().find(pc);
  if (module == nullptr || !module->image) return false;
  const Vaddr at = module->to_vaddr(pc);
  for (const elf::SymbolTable* table : {&module->image->static_symbols(), &module->image->dynamic_symbols()}) {
    for (std::size_t i = 0; i < table->size(); ++i) {
      const Elf64_Sym symbol = table->at(i);
      if (ELF64_ST_TYPE(symbol.st_info) != STT_FUNC || symbol.st_shndx == SHN_UNDEF || at < symbol.st_value || at - symbol.st_value >= symbol.st_size) continue;
      std::array<std::uint8_t, kPrologue> code{};
      const std::size_t size = std::min<std::uint64_t>(kPrologue, at - symbol.st_value);
      if (!target.read_exact(module->to_address(symbol.st_value), std::as_writable_bytes(std::span(code).first(size)))) return false;
      constexpr std::array<std::uint8_t, 3> kStore = {0x48, 0x89, 0xe5}, kLoad = {0x48, 0x8b, 0xec};   // the two encodings of mov %rsp,%rbp
      const auto end = code.begin() + static_cast<std::ptrdiff_t>(size);
      return std::search(code.begin(), end, kStore.begin(), kStore.end()) == end && std::search(code.begin(), end, kLoad.begin(), kLoad.end()) == end;
    }
  }
  return false;
}

struct Recovered {
  Registers registers;
  FrameOrigin origin = FrameOrigin::kNormal;
};

// Mapped, and not executable; or in the first 64 KiB, where the kernel lets nothing be mapped (vm.mmap_min_addr).
bool cannot_be_code(const Target& target, Address a) {
  constexpr Address kLowest = 0x10000;
  const Mapping* m = mapping_of(target, a);
  return m != nullptr ? !m->executable : a < kLowest;
}

// The caller, where `r` stands in code that no unwind information covers. Only what can be verified; nothing else.
std::optional<Recovered> recover(const Target& target, const Registers& r, bool exact_pc) {
  const bool in_code = is_executable(target, r.pc());
  if (exact_pc) {
    // Just called (nothing pushed yet, or pc itself is what was called): the return address is on top of the stack.
    if (auto top = target.read_value<Address>(r.sp()); top && follows_call(target, *top, in_code ? r.pc() : 0)) {
      Recovered out{r, FrameOrigin::kReturnSlot};
      out.registers.set(kRip, *top);
      out.registers.set(kRsp, r.sp() + 8);
      return out;
    }
  }
  if (!in_code || !r.has(kRbp)) return std::nullopt;
  // An address that no call left there was put there by hand: a made stack (makecontext) ends in a function that was never called, and rbp is
  // whatever it was when that stack was switched to.
  if (!exact_pc && !follows_call(target, r.pc(), 0)) return std::nullopt;
  if (keeps_no_frame_pointer(target, exact_pc ? r.pc() : r.pc() - 1)) return std::nullopt;
  const Address rbp = r[kRbp];
  if (rbp < r.sp() || rbp % 8 != 0) return std::nullopt;
  const auto saved = target.read_value<std::array<Address, 2>>(rbp);
  if (!saved || !follows_call(target, (*saved)[1], 0)) return std::nullopt;
  Recovered out{{}, FrameOrigin::kFramePointer};
  out.registers.fs_base = r.fs_base;
  out.registers.set(kRbp, (*saved)[0]);
  out.registers.set(kRip, (*saved)[1]);
  out.registers.set(kRsp, rbp + 16);
  return out;
}

}  // namespace

bool is_executable(const Target& target, Address a) {
  const Mapping* m = mapping_of(target, a);
  return m != nullptr && m->executable;
}

bool follows_call(const Target& target, Address return_address, Address callee) {
  constexpr std::size_t kShortestCall = 2;
  std::array<std::uint8_t, 8> before{};   // before[8 - n] is the byte n before the return address
  if (return_address < before.size() || !is_executable(target, return_address - 1)) return false;
  // As many as are there: generated code may begin with its mapping.
  std::size_t known = before.size();
  while (known >= kShortestCall && !target.read_exact(return_address - known, std::as_writable_bytes(std::span(before).last(known)))) --known;
  if (known < kShortestCall) return false;
  if (before[3] == 0xe8) {                // call rel32
    if (callee == 0) return true;
    std::int32_t relative;
    std::memcpy(&relative, &before[4], 4);
    const Address called = return_address + static_cast<Address>(static_cast<std::int64_t>(relative));
    if (called <= callee && callee - called < (1u << 20)) return true;   // a direct call into this very function
    return !is_executable(target, called) ? false : mapping_of(target, called) != mapping_of(target, callee);   // through a PLT
  }
  // call r/m64 is FF /2 with a ModRM byte (and SIB, displacement): 2 to 7 bytes, a REX prefix may stand before.
  for (unsigned length = 2; length <= 7; ++length) {
    const std::uint8_t op = before[8 - length], modrm = before[8 - length + 1];
    if (op != 0xff || ((modrm >> 3) & 7) != 2) continue;
    const unsigned mod = modrm >> 6, rm = modrm & 7;
    unsigned expected = 2;
    if (mod != 3 && rm == 4) expected += 1;
    if (mod == 1) expected += 1;
    if (mod == 2 || (mod == 0 && rm == 5)) expected += 4;
    if (mod == 0 && rm == 4 && length > 2 && (before[8 - length + 2] & 7) == 5) expected += 4;   // its SIB byte is before the return address, too
    if (expected == length) return true;
  }
  return false;
}

UnwoundStack walk_stack(const Target& target, FrameStepper& stepper, const Registers& registers) {
  UnwoundStack stack;
  FrameKeeper frames;
  CycleDetector cycle;
  Registers current = registers;
  bool exact_pc = true;
  FrameOrigin origin = FrameOrigin::kNormal;
  stepper.start(current, exact_pc);
  while (true) {
    if (cycle.seen(current.pc(), current.sp())) {
      stack.end = StackEnd::kRepeatedFrame;
      break;
    }
    frames.add({current.pc(), current.sp(), 0, exact_pc, origin});
    if (frames.total() >= kMaxUnwoundFrames) {
      stack.end = StackEnd::kDepthLimit;
      break;
    }
    if (target.expired()) {
      stack.end = StackEnd::kMemoryUnavailable;
      break;
    }
    Registers next;
    bool signal_frame = false;
    FrameStepper::Step step = stepper.step(next, signal_frame);
    FrameOrigin next_origin = FrameOrigin::kNormal;
    // A return address of 0 is how start code without unwind information (musl's, a JIT's entry stub) says: no caller.
    if (step == FrameStepper::Step::kStepped && next.pc() == 0 && !signal_frame) step = FrameStepper::Step::kOutermost;
    // A return address in memory that holds no code is none: what was read is no frame's part of the stack (left by another coroutine, say). One
    // where nothing is mapped may be in a library that has been unloaded meanwhile.
    if (step == FrameStepper::Step::kStepped && !signal_frame && cannot_be_code(target, next.pc())) {
      stack.end = StackEnd::kNoUnwindInfo;
      break;
    }
    if (signal_frame) frames.last().exact_pc = true;   // the trampoline's first instruction is where the handler returns to
    if (step == FrameStepper::Step::kNoUnwindInfo) {
      if (auto recovered = recover(target, current, exact_pc)) {
        next = recovered->registers;
        next_origin = recovered->origin;
        stepper.start(next, false);
        step = FrameStepper::Step::kStepped;
      }
    }
    if (step != FrameStepper::Step::kStepped) {
      stack.end = step == FrameStepper::Step::kOutermost           ? StackEnd::kComplete
                  : step == FrameStepper::Step::kMemoryUnavailable ? StackEnd::kMemoryUnavailable
                                                                   : StackEnd::kNoUnwindInfo;
      break;
    }
    frames.last().cfa = next.sp();
    current = next;
    exact_pc = signal_frame;
    origin = next_origin;
  }
  frames.finish(stack);
  return stack;
}

}  // namespace rankstacks
