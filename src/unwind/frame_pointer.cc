#include "unwind/frame_pointer.h"

#include <algorithm>
#include <array>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "target/instruction_shape.h"
#include "unwind/stack_walk.h"
#include "unwind/vetted_tables.h"

namespace rankstacks::unwind {
namespace {

using target::InstructionShape;
using Map = InstructionShape::Map;

constexpr unsigned kStackRegister = 4, kFrameRegister = 5;  // in the processor's numbering
constexpr std::int64_t kSlot = 8, kStackAlignment = 16;
constexpr std::size_t kLongestFunction = 256u << 10;
// Of functions that end in a jump to the next (tail calls): how many are looked into for one frame, and how long they
// may be. Those that do nothing else are short.
constexpr std::size_t kMaxTailCallers = 8, kLongestTailCaller = 4u << 10;

enum class Effect {
  kNone,
  kMoves,       // rsp, by `amount`, upwards
  kSets,        // rsp, to `amount` below rbp
  kSavesFrame,  // push %rbp
  kSetsFrame,   // mov %rsp,%rbp
  kLeaves,      // leave; pop %rbp: the frame pointer is the caller's from here on
  kEndsBlock,   // ret, jmp: what follows is reached from elsewhere
  kUnknown,
};
struct EffectOf {
  Effect effect = Effect::kNone;
  std::int64_t amount = 0;
};

// Instructions whose destination is rsp, and has ModRM: those of compiled code.
EffectOf of_stack_register(const InstructionShape& i) {
  const bool writes_rm = i.mod == 3 && i.rm == kStackRegister, writes_reg = i.reg == kStackRegister;
  if ((i.opcode == 0x81 || i.opcode == 0x83) && writes_rm) {
    if (i.reg == 0) return {Effect::kMoves, i.immediate};
    if (i.reg == 5) return {Effect::kMoves, -i.immediate};
    return {i.reg == 7 ? Effect::kNone : Effect::kUnknown};  // 7: cmp
  }
  if (i.opcode == 0x8d && writes_reg) {
    if (i.base == static_cast<int>(kStackRegister)) return {Effect::kMoves, i.displacement};
    if (i.base == static_cast<int>(kFrameRegister)) return {Effect::kSets, -std::int64_t{i.displacement}};
    return {Effect::kUnknown};
  }
  // mov %rbp,%rsp
  if ((i.opcode == 0x89 && writes_rm && i.reg == kFrameRegister) ||
      (i.opcode == 0x8b && writes_reg && i.mod == 3 && i.rm == kFrameRegister))
    return {Effect::kSets, 0};
  const bool compares = (i.opcode >= 0x38 && i.opcode <= 0x3b) || i.opcode == 0x84 || i.opcode == 0x85;
  const bool to_rm = i.opcode < 0x40 ? (i.opcode & 7) < 2 : i.opcode == 0x89 || i.opcode == 0x87 || i.opcode == 0xc7;
  const bool to_reg = i.opcode < 0x40 ? (i.opcode & 7) == 2 || (i.opcode & 7) == 3
                                      : i.opcode == 0x8b || i.opcode == 0x87 || i.opcode == 0x63 || i.opcode == 0x69 ||
                                            i.opcode == 0x6b;
  const bool shifts = i.opcode == 0xc1 || i.opcode == 0xd1 || i.opcode == 0xd3 || i.opcode == 0xf7;
  if (!compares && ((to_rm && writes_rm) || (to_reg && writes_reg) || (shifts && writes_rm))) return {Effect::kUnknown};
  return {};
}

EffectOf of_one_byte(const InstructionShape& i) {
  if (i.opcode == 0x55 && !i.rex_b) return {Effect::kSavesFrame, -kSlot};
  if (i.opcode >= 0x50 && i.opcode <= 0x57) return {Effect::kMoves, -kSlot};
  if (i.opcode == 0x5d && !i.rex_b) return {Effect::kLeaves};
  if (i.opcode == 0x5c && !i.rex_b) return {Effect::kUnknown};  // pop %rsp
  if (i.opcode >= 0x58 && i.opcode <= 0x5f) return {Effect::kMoves, kSlot};
  switch (i.opcode) {
    case 0x68:
    case 0x6a:
    case 0x9c: return {Effect::kMoves, -kSlot};
    case 0x9d: return {Effect::kMoves, kSlot};
    case 0xc9: return {Effect::kLeaves};
    case 0xc2:
    case 0xc3:
    case 0xe9:
    case 0xeb: return {Effect::kEndsBlock};
    case 0xc8:
    case 0xbc: return {i.opcode == 0xbc && i.rex_b ? Effect::kNone : Effect::kUnknown};  // enter; mov $N,%rsp
    case 0x94: return {i.rex_b ? Effect::kNone : Effect::kUnknown};                      // xchg %rax,%rsp
    default: break;
  }
  if (!i.has_modrm) return {};
  if (i.opcode == 0x8f) return {i.mod == 3 && i.rm == kStackRegister ? Effect::kUnknown : Effect::kMoves, kSlot};
  if (i.opcode == 0xff && (i.reg & 7) == 6) return {Effect::kMoves, -kSlot};
  if (i.opcode == 0xff && (i.reg & 7) == 4) return {Effect::kEndsBlock};
  const bool from_stack = (i.opcode == 0x89 && i.mod == 3 && i.rm == kFrameRegister && i.reg == kStackRegister) ||
                          (i.opcode == 0x8b && i.mod == 3 && i.reg == kFrameRegister && i.rm == kStackRegister);
  if (from_stack) return {Effect::kSetsFrame};
  return of_stack_register(i);
}

EffectOf effect_of(const InstructionShape& i) {
  if (i.map == Map::kOneByte) return of_one_byte(i);
  if (i.map == Map::kOther) return {};
  if (i.opcode == 0xa0 || i.opcode == 0xa8) return {Effect::kMoves, -kSlot};  // push %fs, %gs
  if (i.opcode == 0x0b) return {Effect::kEndsBlock};                          // ud2
  const bool writes_register = (i.opcode >= 0x40 && i.opcode <= 0x4f) || i.opcode == 0xaf ||
                               (i.opcode >= 0xb6 && i.opcode <= 0xbf && i.opcode != 0xba);  // cmov, imul, movzx, movsx
  return {writes_register && i.reg == kStackRegister ? Effect::kUnknown : Effect::kNone};
}

// An instruction that may lead elsewhere.
enum class Branch { kNone, kDirect, kIndirect, kCall };
Branch branch_of(const InstructionShape& i) {
  if (i.map == Map::kTwoByte) return i.opcode >= 0x80 && i.opcode <= 0x8f ? Branch::kDirect : Branch::kNone;
  if (i.map != Map::kOneByte) return Branch::kNone;
  if ((i.opcode >= 0x70 && i.opcode <= 0x7f) || (i.opcode >= 0xe0 && i.opcode <= 0xe3) || i.opcode == 0xe9 ||
      i.opcode == 0xeb)
    return Branch::kDirect;
  if (i.opcode == 0xe8) return Branch::kCall;
  if (i.opcode != 0xff) return Branch::kNone;
  return (i.reg & 7) == 2 ? Branch::kCall : (i.reg & 7) == 4 ? Branch::kIndirect : Branch::kNone;
}

// How far rsp is below rbp in the code of a whole function, followed from its beginning to its end, again and again:
// behind a jump or a return it is what it is where jumps to there are.
//
// Any call may be one that does not return, with other code behind it. Where arguments are on the stack for a call,
// what is behind it is taken for the code that goes on only as far as rsp is moved back.
class Distances {
 public:
  explicit Distances(std::span<const std::uint8_t> code) : code_(code) {}

  // At `stop`, an offset in the code, for a thread in the call or system call before it; std::nullopt: not known.
  std::optional<std::int64_t> at(std::size_t stop) {
    constexpr int kMaxPasses = 16;
    pass(stop);
    resting_ = least_;
    at_targets_.clear();
    at_tables_.reset();
    for (int passes = 0; passes < kMaxPasses && !contradicts_; ++passes) {
      const std::size_t known = at_targets_.size();
      const auto found = pass(stop);
      if (contradicts_) break;
      if (at_targets_.size() != known) continue;
      if (found || elsewhere_ || !at_tables_) return found;
      elsewhere_ = at_tables_;  // what no direct jump leads to is reached by a table of jumps
    }
    return std::nullopt;
  }

 private:
  enum class Part { kBefore, kSaved, kBody };

  std::optional<std::int64_t> pass(std::size_t stop) {
    part_ = Part::kBefore;
    distance_.reset();
    is_sure_ = true;
    std::optional<std::int64_t> found;
    bool is_behind_call = false;
    for (std::size_t at = 0; at < code_.size() && !contradicts_;) {
      if (at == stop && distance_ && (is_sure_ || is_behind_call)) found = distance_;
      if (part_ == Part::kBody) begin_at(at);
      if (at == stop && !found && is_sure_) found = distance_;
      const auto shape = target::shape_of_instruction(code_.subspan(at));
      if (!shape) {
        contradicts_ = true;
        break;
      }
      at += shape->length;
      is_behind_call = branch_of(*shape) == Branch::kCall && is_sure_;
      follow(*shape, at);
    }
    if (stop == code_.size() && (is_sure_ || is_behind_call)) found = distance_;  // that call does not return
    return found;
  }

  // What is known of this place from jumps to it.
  void begin_at(std::size_t at) {
    if (frameless_.contains(at)) {
      distance_.reset();
      is_sure_ = true;
    }
    const auto target = at_targets_.find(at);
    if (target == at_targets_.end()) return;
    if (distance_ && *distance_ != target->second) contradicts_ = true;
    distance_ = target->second;
    is_sure_ = true;
  }

  void follow(const InstructionShape& shape, std::size_t next) {
    const auto [effect, amount] = effect_of(shape);
    const Branch branch = branch_of(shape);
    const std::size_t destination = next + static_cast<std::size_t>(shape.immediate);
    if (part_ == Part::kBefore && effect == Effect::kSavesFrame) {
      part_ = Part::kSaved;
    } else if (part_ == Part::kSaved && effect == Effect::kSetsFrame) {
      part_ = Part::kBody;
      distance_ = 0;
    } else if (part_ == Part::kBody) {
      if (distance_ && is_sure_) note_branch(branch, destination);
      move(effect, amount);
    } else if (effect != Effect::kNone && !(part_ == Part::kBefore && effect == Effect::kEndsBlock)) {
      contradicts_ = true;
    } else if (branch == Branch::kDirect && destination < code_.size()) {
      frameless_.insert(destination);
    }
  }

  void note_branch(Branch branch, std::size_t destination) {
    if (branch != Branch::kNone) least_ = std::min(least_.value_or(*distance_), *distance_);
    if (branch == Branch::kDirect && destination < code_.size()) {
      const auto [known, is_new] = at_targets_.emplace(destination, *distance_);
      contradicts_ = contradicts_ || (!is_new && known->second != *distance_);
    } else if (branch == Branch::kIndirect) {
      contradicts_ = contradicts_ || (at_tables_ && *at_tables_ != *distance_);
      at_tables_ = distance_;
    } else if (branch == Branch::kCall) {
      is_sure_ = !resting_ || *distance_ <= *resting_;
    }
  }

  void move(Effect effect, std::int64_t amount) {
    switch (effect) {
      case Effect::kNone: return;
      case Effect::kMoves:
      case Effect::kSavesFrame:
        if (distance_) *distance_ -= amount;
        break;
      case Effect::kSets: distance_ = amount; break;
      case Effect::kLeaves: distance_.reset(); break;
      case Effect::kEndsBlock:
        distance_ = elsewhere_;
        is_sure_ = true;
        break;
      case Effect::kSetsFrame:
      case Effect::kUnknown: contradicts_ = true;
    }
    if (distance_ && *distance_ < 0) contradicts_ = true;
    if (distance_ && resting_ && *distance_ <= *resting_) is_sure_ = true;
  }

  std::span<const std::uint8_t> code_;
  std::unordered_map<std::size_t, std::int64_t> at_targets_;  // of direct jumps
  std::unordered_set<std::size_t> frameless_;                 // targets of jumps from before the frame
  std::optional<std::int64_t> at_tables_;                     // where jumps through tables are
  std::optional<std::int64_t> elsewhere_;                     // behind what ends a block, where no direct jump leads
  std::optional<std::int64_t> least_, resting_;  // of all jumps and calls; resting_: known, from the first pass
  Part part_ = Part::kBefore;
  std::optional<std::int64_t> distance_;
  bool is_sure_ = true;       // that this place is reached from the instruction before it
  bool contradicts_ = false;  // what was found, or it cannot be followed
};

std::optional<std::vector<std::uint8_t>> code_of(const target::Target& target, const Range& function) {
  std::vector<std::uint8_t> code(function.size());
  if (!target.read_exact(function.start, std::as_writable_bytes(std::span(code)))) return std::nullopt;
  return code;
}

// Where the direct jumps of a function lead that leave it, as far as its code can be followed.
std::vector<Address> jumps_out_of(const target::Target& target, const Range& function) {
  std::vector<Address> to;
  const auto code = code_of(target, function);
  for (std::size_t at = 0; code && at < code->size();) {
    const auto shape = target::shape_of_instruction(std::span(*code).subspan(at));
    if (!shape) break;
    at += shape->length;
    const Address destination = function.start + at + static_cast<Address>(shape->immediate);
    if (branch_of(*shape) == Branch::kDirect && !function.contains(destination)) to.push_back(destination);
  }
  return to;
}

// Whether a function that is called goes on in another one by tail calls, whose frame is then in the place of its own:
// glibc's sem_wait() calls do_futex_wait(), which ends in a jump to __futex_abstimed_wait_cancelable64().
bool leads_to(const target::Target& target, VettedTables& tables, Address called, Address function) {
  std::vector<Address> reached{called};
  for (std::size_t i = 0; i < reached.size(); ++i) {
    const auto range = tables.covered(reached[i]);
    if (!range || range->start != reached[i] || range->size() > kLongestTailCaller) continue;
    for (const Address to : jumps_out_of(target, *range)) {
      if (to == function) return true;
      if (reached.size() < kMaxTailCallers && std::find(reached.begin(), reached.end(), to) == reached.end())
        reached.push_back(to);
    }
  }
  return false;
}

// Whether a call behind which this return address is may have led to the function: a direct call of it, or of one that
// goes on in it, or one through a stub of the linker's or a pointer.
bool may_call(const target::Target& target, VettedTables& tables, Address return_address, Address function) {
  if (!follows_call(target, return_address, 0)) return false;
  const auto called = called_before(target, return_address);
  if (!called || *called == function) return true;
  std::array<std::uint8_t, 8> stub{};
  if (!target.read_exact(*called, std::as_writable_bytes(std::span(stub)))) return false;
  constexpr std::array<std::uint8_t, 4> kEndbr = {0xf3, 0x0f, 0x1e, 0xfa};
  std::size_t at = std::equal(kEndbr.begin(), kEndbr.end(), stub.begin()) ? kEndbr.size() : 0;
  if (stub[at] == 0xf2) ++at;                                     // bnd
  const bool is_stub = stub[at] == 0xff && stub[at + 1] == 0x25;  // jmp *N(%rip)
  return is_stub || leads_to(target, tables, *called, function);
}

}  // namespace

std::optional<Address> derived_frame_pointer(const target::Target& target, const target::Registers& registers,
                                             bool exact_pc) {
  if (registers.has(target::kRbp)) return std::nullopt;
  const Address pc = registers.pc();
  VettedTables tables(target);
  const auto function = tables.covered(exact_pc ? pc : pc - 1);
  if (!function || function->size() > kLongestFunction) return std::nullopt;
  const auto code = code_of(target, *function);
  if (!code) return std::nullopt;
  const auto distance = Distances(*code).at(pc - function->start);
  if (!distance) return std::nullopt;
  const Address rbp = registers.sp() + static_cast<Address>(*distance);
  if (rbp % kStackAlignment != 0 || rbp < registers.sp()) return std::nullopt;
  const auto return_address = target.read_value<Address>(rbp + kSlot);
  if (!return_address || !may_call(target, tables, *return_address, function->start)) return std::nullopt;
  return rbp;
}

}  // namespace rankstacks::unwind
