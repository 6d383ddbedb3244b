// libdwfl's unwinder over our own callbacks: the second opinion, and the fallback where libunwind ends early (it reads
// .debug_frame, and an .eh_frame without search table, which libunwind does not read in another process).
//
// It relies on these facts about elfutils 0.188. Unwinding may start a search for debug files, so find_debuginfo
// answers -1. dwfl_thread_getframes may return -1 after good frames, which are kept. No exception may pass through its
// callbacks. libdwfl treats a return address that cannot be read like one that the unwind information leaves undefined
// (the outermost frame, as in start code); the unwind information of that frame distinguishes the two. If no unwind
// information covers a frame, libdwfl continues by the frame pointer, unasked and unchecked, and does not report it. So
// the coverage of each frame is looked up here, and such a step is kNoUnwindInfo.
//
// Tables that are hostile to elfutils 0.188: DW_OP_div traps, an expression that it does not evaluate leaks memory, and
// a register's number or remembered states take gigabytes. So before it unwinds a frame, the entry that the search
// table names is vetted, and so are the operations that libdw decoded from whichever entry it found.
#include <dwarf.h>
#include <elfutils/libdwfl.h>
#include <fcntl.h>
#include <unistd.h>
#include <algorithm>

#include <cstdlib>
#include <cstring>
#include <deque>
#include <optional>
#include <string>
#include <unordered_map>

#include "elf/bytes.h"
#include "unwind/stack_walk.h"
#include "unwind/unwind_only_elf.h"
#include "unwind/vetted_tables.h"

namespace rankstacks::unwind {
namespace {

// The bytes of files as libdw gets them: each file itself, or what it needs of it (unwind_only_elf.h). libdw and what
// vets the tables for it have to see the same bytes.
class FileBytes {
 public:
  // Empty if there is no file, or no copy of it. They stay valid and the same.
  std::span<const std::byte> of(const elf::Image& image) {
    if (image.bytes().empty() || !UnwindOnlyElf::is_needed(image)) return image.bytes();
    auto known = copies_.find(&image);
    if (known == copies_.end()) known = copies_.emplace(&image, UnwindOnlyElf::copy_of(image)).first;
    return known->second ? std::span<const std::byte>(known->second->bytes()) : std::span<const std::byte>{};
  }
  // As elf::Image::at().
  std::span<const std::byte> at(const elf::Image& image, Vaddr vaddr) {
    const auto there = image.at(vaddr);
    if (there.empty() || image.bytes().empty()) return there;
    const auto offset = static_cast<std::size_t>(there.data() - image.bytes().data());
    return elf::exactly(of(image), offset, there.size());
  }

 private:
  std::unordered_map<const elf::Image*, std::optional<UnwindOnlyElf>> copies_;
};

// What libdw reads of tables: the files, whatever the target has in memory.
class ModuleFiles final : public target::Target {
 public:
  ModuleFiles(const target::Target& target, FileBytes& files) : target_(target), files_(files) {}
  const std::string& subject() const override { return target_.subject(); }
  std::span<const target::ThreadInfo> threads() const override { return {}; }
  std::span<const target::Mapping> mappings() const override { return {}; }
  const target::ModuleMap& modules() const override { return target_.modules(); }
  std::size_t read(Address address, std::span<std::byte> into) const noexcept override {
    const target::Module* module = target_.modules().find(address);
    if (module == nullptr || !module->image) return 0;
    const auto bytes = files_.at(*module->image, module->to_vaddr(address));
    const std::size_t n = std::min(bytes.size(), into.size());
    std::copy_n(bytes.begin(), n, into.begin());
    return n;
  }

 private:
  const target::Target& target_;
  FileBytes& files_;
};

// Whether libdwfl evaluates the operation to an end, without a trap or a leak.
bool can_be_evaluated(const Dwarf_Op& op) {
  const auto in = [&op](unsigned first, unsigned last) { return op.atom >= first && op.atom <= last; };
  if (op.atom == DW_OP_skip || op.atom == DW_OP_bra) return static_cast<std::int16_t>(op.number) >= 0;
  return op.atom == DW_OP_deref || op.atom == DW_OP_deref_size || op.atom == DW_OP_nop || op.atom == DW_OP_bregx ||
         op.atom == DW_OP_regx || op.atom == DW_OP_call_frame_cfa || op.atom == DW_OP_stack_value ||
         in(DW_OP_const1u, DW_OP_rot) || in(DW_OP_abs, DW_OP_and) || in(DW_OP_minus, DW_OP_xor) ||
         in(DW_OP_eq, DW_OP_ne) || in(DW_OP_lit0, DW_OP_breg31);
}

// The rules for the CFA and the registers at one pc.
bool can_be_evaluated(Dwarf_Frame* rules) {
  const auto all = [](const Dwarf_Op* ops, std::size_t count) {
    return std::all_of(ops, ops + count, [](const Dwarf_Op& op) { return can_be_evaluated(op); });
  };
  Dwarf_Op* ops = nullptr;
  std::size_t count = 0;
  if (dwarf_frame_cfa(rules, &ops, &count) != 0 || !all(ops, count)) return false;
  for (unsigned r = 0; r < target::kDwarfRegisters; ++r) {
    Dwarf_Op memory[3];
    if (dwarf_frame_register(rules, static_cast<int>(r), memory, &ops, &count) == 0 && !all(ops, count)) return false;
  }
  return true;
}

struct DwflCloser {
  void operator()(Dwfl* d) const { dwfl_end(d); }
};

// One thread as libdwfl sees it; its number is arbitrary, since set_initial_registers supplies the registers.
constexpr pid_t kThread = 1;

class DwflStepper final : public FrameStepper {
 public:
  explicit DwflStepper(const target::Target& target)
      : target_(target),
        files_(target, bytes_),
        tables_(files_, CfiDialect::kLibdw,
                [this](const elf::Image& image, Vaddr vaddr) { return bytes_.at(image, vaddr); }) {
    static const Dwfl_Callbacks callbacks = {&DwflStepper::find_elf, &DwflStepper::find_debuginfo, nullptr, nullptr};
    dwfl_.reset(dwfl_begin(&callbacks));
    if (!dwfl_) return;
    dwfl_report_begin_add(dwfl_.get());
    for (const target::Module& m : target.modules().all()) {
      if (!m.image) continue;
      Dwfl_Module* reported = dwfl_report_module(dwfl_.get(), m.path.c_str(), m.range.start, m.range.end);
      if (reported == nullptr) continue;
      void** userdata = nullptr;
      dwfl_module_info(reported, &userdata, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr);
      if (userdata == nullptr) continue;
      reported_.push_back({m.image.get(), &m.path, &bytes_});
      *userdata = &reported_.back();
    }
    dwfl_report_end(dwfl_.get(), nullptr, nullptr);
    static const Dwfl_Thread_Callbacks threads = {&DwflStepper::next_thread,
                                                  &DwflStepper::get_thread,
                                                  &DwflStepper::memory_read,
                                                  &DwflStepper::set_initial_registers,
                                                  nullptr,
                                                  nullptr};
    attached_ = dwfl_attach_state(dwfl_.get(), nullptr, kThread, &threads, this);
  }

  // libdwfl unwinds a whole thread in one call. start() does this, and step() returns the frames one by one.
  void start(const target::Registers& registers, bool exact_pc) override {
    initial_ = registers;
    if (!exact_pc) initial_.value[target::kRip] -= 1;
    frames_.clear();
    next_ = 1;
    memory_failed_ = uncovered_ = no_caller_ = false;
    end_ = Step::kNoUnwindInfo;
    if (!attached_) return;
    dwfl_errno();
    const int result = dwfl_getthread_frames(dwfl_.get(), kThread, &DwflStepper::add_frame, this);
    const int error = dwfl_errno();
    // libdwfl also ends without an error where it needs a register that it does not have.
    const bool lacks_register = !frames_.empty() && !frames_.back().registers.has(target::kRbp);
    if (result == 0 && error == 0 && (no_caller_ || (!memory_failed_ && !lacks_register))) end_ = Step::kOutermost;
    else if (uncovered_) end_ = Step::kNoUnwindInfo;
    else if (memory_failed_) end_ = Step::kMemoryUnavailable;
    else end_ = lacks_register ? Step::kRegistersUnknown : Step::kNoUnwindInfo;
  }

  Step step(target::Registers& next, bool& signal_frame) override {
    signal_frame = false;
    if (next_ >= frames_.size()) return end_;
    // A frame that was interrupted, not left by a call: the frame before it is the signal trampoline.
    signal_frame = frames_[next_].activation;
    next = frames_[next_++].registers;
    return Step::kStepped;
  }

 private:
  // What libdwfl passes back to find_elf(). The bytes outlive the Dwfl.
  struct Reported {
    const elf::Image* image;
    const std::string* path;
    FileBytes* bytes;
  };
  struct Found {
    target::Registers registers;
    bool activation = false;
  };

  bool is_covered(Dwarf_Addr pc) {
    if (!is_sound_.contains(pc)) {
      constexpr std::size_t kMaxRemembered = 65'536;  // the same functions are on the stacks of most threads
      if (is_sound_.size() == kMaxRemembered) is_sound_.clear();
      is_sound_[pc] = tables_.vet(pc) != VettedTables::Verdict::kUnsound;
    }
    if (!is_sound_[pc]) return false;
    Dwfl_Module* module = dwfl_addrmodule(dwfl_.get(), pc);
    if (module == nullptr) return false;
    for (const auto table : {&dwfl_module_eh_cfi, &dwfl_module_dwarf_cfi}) {
      Dwarf_Addr bias = 0;
      Dwarf_CFI* cfi = table(module, &bias);
      Dwarf_Frame* rules = nullptr;
      if (cfi == nullptr || dwarf_cfi_addrframe(cfi, pc - bias, &rules) != 0) continue;
      const bool sound = can_be_evaluated(rules);
      Dwarf_Op memory[3], *operations = nullptr;
      std::size_t count = 0;
      // No operations, but not a null pointer: undefined (dwarf_frame_register, libdw.h).
      no_caller_ = sound && dwarf_frame_register(rules, target::kRip, memory, &operations, &count) == 0 && count == 0 &&
                   operations == memory;
      free(rules);
      return sound;
    }
    return false;
  }

  static int find_elf(Dwfl_Module*, void** userdata, const char*, Dwarf_Addr, char** file_name, Elf** elf) noexcept {
    auto* module = static_cast<Reported*>(*userdata);
    if (module == nullptr) return -1;
    const auto bytes = module->bytes->of(*module->image);
    // The image was read from memory: there is no file. Without an Elf libdwfl opens whatever *file_name says (elfutils
    // 0.188, libdwfl/dwfl_module_getdwarf.c, open_elf): a path that a target chose.
    if (bytes.empty()) return -1;
    elf_version(EV_CURRENT);
    *elf = elf_memory(const_cast<char*>(reinterpret_cast<const char*>(bytes.data())), bytes.size());
    if (*elf != nullptr) *file_name = strdup(module->path->c_str());
    return -1;  // no file descriptor: the Elf suffices
  }
  static int find_debuginfo(Dwfl_Module*, void**, const char*, Dwarf_Addr, const char*, const char*, GElf_Word,
                            char**) noexcept {
    return -1;
  }

  static pid_t next_thread(Dwfl*, void* self, void** thread) noexcept {
    if (*thread != nullptr) return 0;
    *thread = self;
    return kThread;
  }
  static bool get_thread(Dwfl*, pid_t tid, void* self, void** thread) noexcept {
    *thread = self;
    return tid == kThread;
  }
  static bool memory_read(Dwfl*, Dwarf_Addr address, Dwarf_Word* result, void* arg) noexcept {
    auto& self = *static_cast<DwflStepper*>(arg);
    if (self.target_.read_exact(address, std::as_writable_bytes(std::span(result, 1)))) return true;
    self.memory_failed_ = true;
    return false;
  }
  static bool set_initial_registers(Dwfl_Thread* thread, void* arg) noexcept {
    auto& self = *static_cast<DwflStepper*>(arg);
    for (unsigned r = 0; r < target::kDwarfRegisters; ++r) {
      if (!self.initial_.has(r)) continue;
      const Dwarf_Word value = self.initial_[r];
      if (!dwfl_thread_state_registers(thread, static_cast<int>(r), 1, &value)) return false;
    }
    dwfl_thread_state_register_pc(thread, self.initial_.pc());
    return true;
  }
  static int add_frame(Dwfl_Frame* frame, void* arg) noexcept {
    auto& self = *static_cast<DwflStepper*>(arg);
    Dwarf_Addr pc = 0;
    bool activation = false;
    if (!dwfl_frame_pc(frame, &pc, &activation)) return DWARF_CB_ABORT;
    Found found;
    found.registers.fs_base = self.initial_.fs_base;
    found.registers.set(target::kRip, pc);
    Dwarf_Word value = 0;
    if (dwfl_frame_reg(frame, target::kRsp, &value) == 0) found.registers.set(target::kRsp, value);
    if (dwfl_frame_reg(frame, target::kRbp, &value) == 0) found.registers.set(target::kRbp, value);
    found.activation = activation && !self.frames_.empty();
    self.frames_.push_back(found);
    if (!self.is_covered(activation ? pc : pc - 1)) {
      self.uncovered_ = true;
      return DWARF_CB_ABORT;
    }
    return self.frames_.size() < kMaxUnwoundFrames && !self.target_.expired() ? DWARF_CB_OK : DWARF_CB_ABORT;
  }

  const target::Target& target_;
  FileBytes bytes_;
  ModuleFiles files_;
  VettedTables tables_;
  std::unordered_map<Address, bool> is_sound_;  // the entry for a pc
  std::deque<Reported> reported_;
  std::unique_ptr<Dwfl, DwflCloser> dwfl_;
  bool attached_ = false;
  target::Registers initial_;
  std::vector<Found> frames_;
  std::size_t next_ = 1;
  bool memory_failed_ = false;
  bool uncovered_ = false;  // the last of frames_ has no unwind information
  bool no_caller_ = false;  // the unwind information of the last of frames_ says that it has no caller
  Step end_ = Step::kNoUnwindInfo;
};

class LibdwflUnwinder final : public Unwinder {
 public:
  explicit LibdwflUnwinder(const target::Target& target) : target_(target), stepper_(target) {}
  const char* name() const override { return "libdwfl"; }
  UnwoundStack unwind(const target::Registers& registers) override { return walk_stack(target_, stepper_, registers); }

 private:
  const target::Target& target_;
  DwflStepper stepper_;
};

}  // namespace

std::unique_ptr<Unwinder> make_libdwfl_unwinder(const target::Target& target) {
  return std::make_unique<LibdwflUnwinder>(target);
}

}  // namespace rankstacks::unwind
