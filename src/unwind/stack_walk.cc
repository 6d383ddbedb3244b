#include "unwind/stack_walk.h"

#include <fmt/format.h>
#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <vector>

#include "target/call_instruction.h"
#include "unwind/frame_pointer.h"
#include "unwind/vetted_tables.h"

namespace rankstacks::unwind {
namespace {

const target::Mapping* mapping_of(const target::Target& target, Address a) {
  const auto all = target.mappings();
  auto it = std::upper_bound(all.begin(), all.end(), a,
                             [](Address x, const target::Mapping& m) { return x < m.range.start; });
  if (it == all.begin()) return nullptr;
  --it;
  return it->range.contains(a) ? &*it : nullptr;
}

// Detects a cycle in (pc, sp) within a bounded number of steps, by comparing with a frame remembered at powers of two
// (Brent).
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
      // kMemoryUnavailable takes precedence: the outermost of these frames is not the start of the stack.
      if (stack.end != StackEnd::kMemoryUnavailable) stack.end = StackEnd::kDepthLimit;
    }
    stack.frames.insert(stack.frames.end(), outer_.begin(), outer_.end());
  }

 private:
  std::vector<UnwoundFrame> inner_;
  std::deque<UnwoundFrame> outer_;
  std::size_t total_ = 0;
};

using Code = std::span<const std::uint8_t>;

constexpr std::size_t kLongestEpilogue = 64;  // 32-bit add, 15 pops, leave, ret, and some reserve

bool has_bytes(Code code, std::size_t at, std::initializer_list<std::uint8_t> bytes) {
  return at <= code.size() && code.size() - at >= bytes.size() &&
         std::equal(bytes.begin(), bytes.end(), code.begin() + static_cast<std::ptrdiff_t>(at));
}

// mov %rsp,%rbp in its two encodings, or lea N(%rsp),%rbp.
bool sets_frame_pointer(Code code, std::size_t at) {
  return has_bytes(code, at, {0x48, 0x89, 0xe5}) || has_bytes(code, at, {0x48, 0x8b, 0xec}) ||
         has_bytes(code, at, {0x48, 0x8d, 0x6c, 0x24}) || has_bytes(code, at, {0x48, 0x8d, 0xac, 0x24});
}

// The same for a function whose start is unknown: with push %rbp right before or, for lea, after the saves of other
// registers.
bool is_prologue(Code code, std::size_t at) {
  constexpr std::size_t kOthersSaved = 48;
  if (!sets_frame_pointer(code, at) || at == 0) return false;
  if (code[at + 1] != 0x8d) return code[at - 1] == 0x55;
  const auto before = code.first(at).last(std::min(at, kOthersSaved));
  return std::find(before.begin(), before.end(), 0x55) != before.end();
}

// Whether a function returns at `at`. A byte of 0xc3 can be part of another instruction (mov %rax,%rbx is 48 89 c3), so
// it counts only as pop %rbp; ret, as leave; ret, or if padding follows it, which no code runs through.
bool returns(Code code, std::size_t at) {
  if (code[at] != 0xc3 || at == 0) return false;
  const std::uint8_t before = code[at - 1];
  if (before == 0x5d || before == 0xc9) return true;
  constexpr std::array<std::uint8_t, 26> kWithModRm = {0x01, 0x03, 0x09, 0x0b, 0x21, 0x23, 0x29, 0x2b, 0x31,
                                                       0x33, 0x39, 0x3b, 0x63, 0x81, 0x83, 0x84, 0x85, 0x88,
                                                       0x89, 0x8a, 0x8b, 0xaf, 0xb6, 0xc1, 0xf7, 0xff};
  if (std::find(kWithModRm.begin(), kWithModRm.end(), before) != kWithModRm.end()) return false;
  return has_bytes(code, at + 1, {0xcc}) || has_bytes(code, at + 1, {0x90}) || has_bytes(code, at + 1, {0x0f, 0x1f}) ||
         has_bytes(code, at + 1, {0x66, 0x90}) || has_bytes(code, at + 1, {0x66, 0x0f, 0x1f}) ||
         has_bytes(code, at + 1, {0x66, 0x2e}) || has_bytes(code, at + 1, {0, 0});
}

// Whether a function that begins at `from` continues to the end of the code. It does not if it returns before, unless a
// conditional jump leads past that return: then it is one of several exits.
bool goes_on(Code code, std::size_t from) {
  std::size_t reached = from;  // by the farthest jump so far
  const auto jump = [&](std::size_t next, std::int64_t distance) {
    const std::int64_t to = static_cast<std::int64_t>(next) + distance;
    if (to <= static_cast<std::int64_t>(code.size()) && to > static_cast<std::int64_t>(reached))
      reached = static_cast<std::size_t>(to);
  };
  for (std::size_t i = from; i < code.size(); ++i) {
    if (returns(code, i) && reached <= i) return false;
    if (code[i] >> 4 == 7 && i + 2 <= code.size()) jump(i + 2, static_cast<std::int8_t>(code[i + 1]));
    if (code[i] != 0x0f || i + 6 > code.size() || code[i + 1] >> 4 != 8) continue;
    std::int32_t distance;
    std::memcpy(&distance, &code[i + 2], sizeof distance);
    jump(i + 6, distance);
  }
  return true;
}

// The code in [from, to), or as much of its end as is available.
std::vector<std::uint8_t> code_before(const target::Target& target, Address from, Address to) {
  constexpr Address kPage = 4096;
  Address start = to;
  std::vector<std::uint8_t> page(kPage);
  while (start > from) {
    const Address begin = std::max(from, (start - 1) & ~(kPage - 1));
    if (!target.read_exact(begin, std::as_writable_bytes(std::span(page).first(start - begin)))) break;
    start = begin;
  }
  std::vector<std::uint8_t> code(to - start);
  if (!target.read_exact(start, std::as_writable_bytes(std::span(code)))) code.clear();
  return code;
}

// Whether the code before `pc` shows that its function uses rbp as its frame pointer. If not, rbp is the caller's, and
// following it would skip the caller. No unwind information covers `pc`.
bool keeps_frame_pointer(const target::Target& target, Address pc) {
  constexpr std::uint64_t kFarthest = 16u << 10;  // as much generated code as is kept (live_target.cc)
  constexpr std::uint64_t kPrologue = 4096;       // of a known function: compilers may put it behind a fast exit
  const target::Mapping* mapping = mapping_of(target, pc);
  if (mapping == nullptr) return false;
  Address from = std::max(mapping->range.start, pc - std::min(pc, kFarthest));
  const target::Module* module = target.modules().find(pc);
  if (module != nullptr && module->image) {
    const Vaddr at = module->to_vaddr(pc);
    for (const elf::SymbolTable* table : {&module->image->static_symbols(), &module->image->dynamic_symbols()}) {
      for (std::size_t i = 0; i < table->size(); ++i) {
        const Elf64_Sym symbol = table->at(i);
        const unsigned type = ELF64_ST_TYPE(symbol.st_info);
        if ((type != STT_FUNC && type != STT_NOTYPE) || symbol.st_shndx == SHN_UNDEF ||
            symbol.st_shndx >= SHN_LORESERVE || at < symbol.st_value)
          continue;
        const bool covers = at - symbol.st_value < symbol.st_size;
        if (type == STT_FUNC && covers) {
          std::vector<std::uint8_t> code(std::min<std::uint64_t>(kPrologue, at - symbol.st_value));
          if (!target.read_exact(module->to_address(symbol.st_value), std::as_writable_bytes(std::span(code))))
            return false;
          for (std::size_t b = 0; b < code.size(); ++b)
            if (sets_frame_pointer(code, b)) return true;
          return false;
        }
        // Code before the end of another function, or before the start of a function of unknown size, does not belong
        // to this one. A local symbol may be a label inside it.
        if (type == STT_FUNC)
          from = std::max(from, module->to_address(symbol.st_value +
                                                   std::min<std::uint64_t>(symbol.st_size, at - symbol.st_value)));
        else if (ELF64_ST_BIND(symbol.st_info) != STB_LOCAL) from = std::max(from, module->to_address(symbol.st_value));
      }
    }
  }
  const std::vector<std::uint8_t> code = code_before(target, from, pc);
  for (std::size_t i = code.size(); i-- > 0;) {
    if (!is_prologue(code, i)) continue;
    // The nearest prologue counts, if it belongs to this function: unwind information covers whole functions, and no
    // function continues after its return, unless a jump leads past it.
    if (VettedTables(target).vet(pc - (code.size() - i)) == VettedTables::Verdict::kSound) return false;
    return goes_on(code, i);
  }
  return false;
}

struct Recovered {
  target::Registers registers;
  FrameOrigin origin = FrameOrigin::kNormal;
};

// Mapped, but not executable; or in the first 64 KiB, where the kernel does not let anything be mapped
// (vm.mmap_min_addr).
bool cannot_be_code(const target::Target& target, Address a) {
  constexpr Address kLowest = 0x10000;
  const target::Mapping* m = mapping_of(target, a);
  return m != nullptr ? !m->executable : a < kLowest;
}

// The caller, if the return address is at `sp`. std::nullopt if the value there does not follow a call.
std::optional<Recovered> returned(const target::Target& target, const target::Registers& r, Address sp,
                                  std::optional<Address> rbp, FrameOrigin origin) {
  const auto to = target.read_value<Address>(sp);
  if (!to || !follows_call(target, *to, 0)) return std::nullopt;
  Recovered out{{}, origin};
  out.registers.fs_base = r.fs_base;
  if (rbp) out.registers.set(target::kRbp, *rbp);
  out.registers.set(target::kRip, *to);
  out.registers.set(target::kRsp, sp + sizeof(Address));
  return out;
}

// The caller, if the instructions at the program counter are the function's epilogue: they show where the return
// address is (add N,%rsp; pop; leave; ret). `needs_rbp` is set if they say so by a frame pointer that is not known.
std::optional<Recovered> by_epilogue(const target::Target& target, const target::Registers& r, bool& needs_rbp) {
  std::array<std::uint8_t, kLongestEpilogue> bytes{};
  const Code code = Code(bytes).first(target.read(r.pc(), std::as_writable_bytes(std::span(bytes))));
  Address sp = r.sp();
  std::optional<Address> rbp = r.has(target::kRbp) ? std::optional(r[target::kRbp]) : std::nullopt;
  bool by_rbp = false;
  const auto pop = [&]() {
    const auto value = target.read_value<Address>(sp);
    sp += sizeof(Address);
    return value;
  };
  const auto go_to = [&](std::int64_t distance) {  // sp = rbp + distance
    needs_rbp |= !rbp;
    const Address to = rbp.value_or(0) + static_cast<Address>(distance);
    if (!rbp || to < sp || to % sizeof(Address) != 0) return false;
    sp = to;
    return by_rbp = true;
  };
  for (std::size_t i = 0; i < code.size();) {
    if (code[i] == 0xc3 || has_bytes(code, i, {0xf3, 0xc3}))
      return returned(target, r, sp, rbp, by_rbp ? FrameOrigin::kFramePointer : FrameOrigin::kReturnSlot);
    if (has_bytes(code, i, {0x48, 0x83, 0xc4}) && i + 4 <= code.size() && code[i + 3] < 0x80) {
      sp += code[i + 3];
      i += 4;
    } else if (has_bytes(code, i, {0x48, 0x81, 0xc4}) && i + 7 <= code.size() && code[i + 6] < 0x80) {
      std::uint32_t size;
      std::memcpy(&size, &code[i + 3], sizeof size);
      sp += size;
      i += 7;
    } else if (code[i] == 0x5d) {  // pop %rbp
      if (rbp = pop(); !rbp) return std::nullopt;
      ++i;
    } else if (code[i] >= 0x58 && code[i] <= 0x5f && code[i] != 0x5c) {
      sp += sizeof(Address);
      ++i;
    } else if (code[i] == 0x41 && i + 1 < code.size() && code[i + 1] >= 0x58 && code[i + 1] <= 0x5f) {
      sp += sizeof(Address);
      i += 2;
    } else if (code[i] == 0xc9) {  // leave
      if (!go_to(0)) return std::nullopt;
      if (rbp = pop(); !rbp) return std::nullopt;
      ++i;
    } else if (has_bytes(code, i, {0x48, 0x89, 0xec}) || has_bytes(code, i, {0x48, 0x8b, 0xe5})) {  // mov %rbp,%rsp
      if (!go_to(0)) return std::nullopt;
      i += 3;
    } else if (has_bytes(code, i, {0x48, 0x8d, 0x65}) && i + 4 <= code.size()) {  // lea N(%rbp),%rsp
      if (!go_to(static_cast<std::int8_t>(code[i + 3]))) return std::nullopt;
      i += 4;
    } else {
      return std::nullopt;
    }
  }
  return std::nullopt;
}

// The caller, if `r` is in code that no unwind information covers. std::nullopt if it cannot be verified; then
// `needs_rbp` says whether the frame pointer, which is not known, could tell it. Most code without unwind information
// keeps none, and there the register would be of no use.
std::optional<Recovered> recover(const target::Target& target, const target::Registers& r, bool exact_pc,
                                 bool& needs_rbp) {
  const bool in_code = is_executable(target, r.pc());
  if (exact_pc) {
    // A function that was just called (it has not pushed anything yet, or pc is the called address itself): the return
    // address is on top of the stack.
    if (auto top = target.read_value<Address>(r.sp()); top && follows_call(target, *top, in_code ? r.pc() : 0)) {
      Recovered out{r, FrameOrigin::kReturnSlot};
      out.registers.set(target::kRip, *top);
      out.registers.set(target::kRsp, r.sp() + 8);
      return out;
    }
  }
  if (!in_code) return std::nullopt;
  // If no call precedes the address, no call has pushed it: a stack made by makecontext ends in a function that was
  // never called, and rbp still has the value from before the switch to that stack.
  if (!exact_pc && !follows_call(target, r.pc(), 0)) return std::nullopt;
  if (const auto by_code = by_epilogue(target, r, needs_rbp)) return by_code;
  if (needs_rbp || !keeps_frame_pointer(target, exact_pc ? r.pc() : r.pc() - 1)) return std::nullopt;
  needs_rbp = !r.has(target::kRbp);
  if (needs_rbp) return std::nullopt;
  const Address rbp = r[target::kRbp];
  if (rbp < r.sp() || rbp % 8 != 0) return std::nullopt;
  const auto saved = target.read_value<std::array<Address, 2>>(rbp);
  if (!saved || !follows_call(target, (*saved)[1], 0)) return std::nullopt;
  Recovered out{{}, FrameOrigin::kFramePointer};
  out.registers.fs_base = r.fs_base;
  out.registers.set(target::kRbp, (*saved)[0]);
  out.registers.set(target::kRip, (*saved)[1]);
  out.registers.set(target::kRsp, rbp + 16);
  return out;
}

struct FoundCall {
  target::CallInstruction kind = target::CallInstruction::kNone;
  Address target = 0;  // for a direct call
};

FoundCall call_before(const target::Target& target, Address return_address) {
  constexpr std::size_t kShortestCall = 2;
  std::array<std::uint8_t, target::kLongestCall> before{};  // before[8 - n] is the byte n before the return address
  if (return_address < before.size() || !is_executable(target, return_address - 1)) return {};
  // Reads as many bytes as are available: generated code may begin at the start of its mapping.
  std::size_t known = before.size();
  while (known >= kShortestCall &&
         !target.read_exact(return_address - known, std::as_writable_bytes(std::span(before).last(known))))
    --known;
  if (known < kShortestCall) return {};
  FoundCall found{target::call_at_the_end_of(before)};
  if (found.kind != target::CallInstruction::kDirect) return found;
  std::int32_t relative;
  std::memcpy(&relative, &before[4], 4);
  found.target = return_address + static_cast<Address>(static_cast<std::int64_t>(relative));
  return found;
}

}  // namespace

std::optional<Address> called_before(const target::Target& target, Address return_address) {
  const FoundCall call = call_before(target, return_address);
  return call.kind == target::CallInstruction::kDirect ? std::optional(call.target) : std::nullopt;
}

bool is_executable(const target::Target& target, Address a) {
  const target::Mapping* m = mapping_of(target, a);
  return m != nullptr && m->executable;
}

bool follows_call(const target::Target& target, Address return_address, Address callee) {
  const FoundCall call = call_before(target, return_address);
  if (call.kind != target::CallInstruction::kDirect || callee == 0) return call.kind != target::CallInstruction::kNone;
  const Address called = call.target;
  if (called <= callee && callee - called < (1u << 20)) return true;  // a direct call into this very function
  return !is_executable(target, called) ? false
                                        : mapping_of(target, called) != mapping_of(target, callee);  // through a PLT
}

namespace {

StackEnd end_of(FrameStepper::Step step) {
  switch (step) {
    case FrameStepper::Step::kStepped: break;
    case FrameStepper::Step::kOutermost: return StackEnd::kComplete;
    case FrameStepper::Step::kNoUnwindInfo: break;
    case FrameStepper::Step::kMemoryUnavailable: return StackEnd::kMemoryUnavailable;
    case FrameStepper::Step::kRegistersUnknown: return StackEnd::kRegistersUnknown;
  }
  return StackEnd::kNoUnwindInfo;
}

}  // namespace

UnwoundStack walk_stack(const target::Target& target, FrameStepper& stepper, const target::Registers& registers) {
  UnwoundStack stack;
  FrameKeeper frames;
  CycleDetector cycle;
  target::Registers current = registers;
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
    target::Registers next;
    bool signal_frame = false;
    FrameStepper::Step step = stepper.step(next, signal_frame);
    FrameOrigin next_origin = FrameOrigin::kNormal;
    if (step == FrameStepper::Step::kRegistersUnknown) {
      if (const auto rbp = derived_frame_pointer(target, current, exact_pc)) {
        current.set(target::kRbp, *rbp);
        stepper.start(current, exact_pc);
        step = stepper.step(next, signal_frame);
      }
    }
    // A return address of 0 is how start code without unwind information (musl's, a JIT's entry stub) states that there
    // is no caller.
    if (step == FrameStepper::Step::kStepped && next.pc() == 0 && !signal_frame) step = FrameStepper::Step::kOutermost;
    // A value that points to memory without code is not a return address: what was read is not part of a frame of this
    // stack (another coroutine may have left it). A return address outside of all mappings may be in a library that has
    // been unloaded meanwhile.
    if (step == FrameStepper::Step::kStepped && !signal_frame && cannot_be_code(target, next.pc())) {
      stack.end = StackEnd::kNoUnwindInfo;
      break;
    }
    if (signal_frame)
      frames.last().exact_pc = true;  // the trampoline's first instruction is where the handler returns to
    if (step == FrameStepper::Step::kNoUnwindInfo) {
      bool needs_rbp = false;
      if (auto recovered = recover(target, current, exact_pc, needs_rbp)) {
        next = recovered->registers;
        next_origin = recovered->origin;
        stepper.start(next, false);
        step = FrameStepper::Step::kStepped;
      } else if (needs_rbp) {
        step = FrameStepper::Step::kRegistersUnknown;
      }
    }
    if (step != FrameStepper::Step::kStepped) {
      stack.end = end_of(step);
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

}  // namespace rankstacks::unwind
