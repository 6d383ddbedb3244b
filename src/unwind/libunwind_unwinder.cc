// libunwind's generic x86-64 unwinder over our own accessors: it reads the target only through Target, and unwind
// tables only after they have been vetted (vetted_tables.h).
//
// Facts it relies on (libunwind 1.6.2):
// - UNW_CACHE_GLOBAL caches decoded register rules per address space; it is off by default, and without it unwinding is
//   slower by orders of magnitude.
// - Where find_proc_info() finds nothing, unw_step() falls back on guesses of its own (PLT shapes, the rbp chain).
//   Those are discarded here: such a step is reported as kNoUnwindInfo, and walk_stack() decides what can be verified.
// - unw_init_remote() takes the first pc as exact; a return address is therefore passed as pc-1.
#include <libunwind.h>

#include "unwind/stack_walk.h"
#include "unwind/vetted_tables.h"

extern "C" int _Ux86_64_dwarf_search_unwind_table(unw_addr_space_t as, unw_word_t ip, unw_dyn_info_t* di,
                                                  unw_proc_info_t* pi, int need_unwind_info, void* arg);

namespace rankstacks::unwind {
namespace {

constexpr unw_word_t kLowestStack = 0x1000;  // nothing is ever mapped in the first page

class LibunwindStepper final : public FrameStepper {
 public:
  explicit LibunwindStepper(const target::Target& target) : target_(target), tables_(target) {
    unw_accessors_t accessors{};
    accessors.find_proc_info = &LibunwindStepper::find_proc_info;
    accessors.put_unwind_info = [](unw_addr_space_t, unw_proc_info_t*, void*) {};
    accessors.get_dyn_info_list_addr = [](unw_addr_space_t, unw_word_t*, void*) -> int { return -UNW_ENOINFO; };
    accessors.access_mem = &LibunwindStepper::access_mem;
    accessors.access_reg = &LibunwindStepper::access_reg;
    accessors.access_fpreg = [](unw_addr_space_t, unw_regnum_t, unw_fpreg_t*, int, void*) -> int {
      return -UNW_EBADREG;
    };
    accessors.resume = [](unw_addr_space_t, unw_cursor_t*, void*) -> int { return -UNW_EINVAL; };
    accessors.get_proc_name = [](unw_addr_space_t, unw_word_t, char*, size_t, unw_word_t*, void*) -> int {
      return -UNW_ENOINFO;
    };
    space_ = unw_create_addr_space(&accessors, 0);
    if (space_ != nullptr) unw_set_caching_policy(space_, UNW_CACHE_GLOBAL);
  }
  ~LibunwindStepper() override {
    if (space_ != nullptr) unw_destroy_addr_space(space_);
  }
  LibunwindStepper(const LibunwindStepper&) = delete;
  LibunwindStepper& operator=(const LibunwindStepper&) = delete;

  void start(const target::Registers& registers, bool exact_pc) override {
    initial_ = registers;
    if (!exact_pc) initial_.value[target::kRip] -= 1;
    positioned_ = space_ != nullptr && unw_init_remote(&cursor_, space_, this) == 0;
  }

  Step step(target::Registers& next, bool& signal_frame) override {
    if (!positioned_) return Step::kNoUnwindInfo;
    no_info_ = memory_failed_ = register_missing_ = false;
    if (tables_.is_full()) {
      unw_flush_cache(space_, 0, 0);
      tables_.forget();
    }
    const int result = unw_step(&cursor_);
    if (no_info_) return Step::kNoUnwindInfo;
    // Without the register libunwind goes on with guesses of its own, or gives up.
    if (register_missing_) return Step::kRegistersUnknown;
    if (result < 0) return memory_failed_ ? Step::kMemoryUnavailable : Step::kNoUnwindInfo;
    unw_word_t ip = 0, sp = 0, bp = 0;
    if (unw_get_reg(&cursor_, UNW_X86_64_RIP, &ip) != 0 || unw_get_reg(&cursor_, UNW_X86_64_RSP, &sp) != 0) {
      return memory_failed_ ? Step::kMemoryUnavailable : Step::kNoUnwindInfo;
    }
    // To libunwind, a return address saved at address 0 is saved nowhere, which is how tables express that there is no
    // caller. But here the stack pointer was lost.
    if (result == 0) return sp < kLowestStack ? Step::kMemoryUnavailable : Step::kOutermost;
    // On x86-64 this is about the frame that was just left: whether the cursor's registers came from a signal context.
    signal_frame = unw_is_signal_frame(&cursor_) > 0;
    next = target::Registers{};
    next.fs_base = initial_.fs_base;
    next.set(target::kRip, ip);
    next.set(target::kRsp, sp);
    if (unw_get_reg(&cursor_, UNW_X86_64_RBP, &bp) == 0) next.set(target::kRbp, bp);
    return Step::kStepped;
  }

 private:
  static int find_proc_info(unw_addr_space_t as, unw_word_t ip, unw_proc_info_t* pi, int need, void* arg) {
    auto& self = *static_cast<LibunwindStepper*>(arg);
    if (const auto chosen = self.tables_.choose(ip)) {
      unw_dyn_info_t di{};
      di.start_ip = ip;
      di.end_ip = ip + 1;
      di.format = UNW_INFO_FORMAT_REMOTE_TABLE;
      di.u.rti.segbase = chosen->fde;
      di.u.rti.table_data = chosen->table;
      di.u.rti.table_len = 1;  // words
      self.parsing_tables_ = true;
      const int result = _Ux86_64_dwarf_search_unwind_table(as, ip, &di, pi, need, arg);
      self.parsing_tables_ = false;
      if (result >= 0) return result;
    }
    self.no_info_ = true;
    return -UNW_ENOINFO;
  }

  static int access_mem(unw_addr_space_t, unw_word_t address, unw_word_t* value, int write, void* arg) {
    auto& self = *static_cast<LibunwindStepper*>(arg);
    if (write) return -UNW_EINVAL;
    *value = 0;
    if (const auto* word = self.tables_.word(address)) {
      *value = *word;
      return 0;
    }
    // Of a signal frame's FDE it reads four bytes that it does not use, and that may not exist.
    if (self.parsing_tables_) return 0;
    if (self.target_.read(address, std::as_writable_bytes(std::span(value, 1))) == sizeof *value) return 0;
    self.memory_failed_ = true;
    return -UNW_EINVAL;
  }

  // libunwind's UNW_X86_64_* numbers are DWARF's (0..16).
  static int access_reg(unw_addr_space_t, unw_regnum_t reg, unw_word_t* value, int write, void* arg) {
    auto& self = *static_cast<LibunwindStepper*>(arg);
    if (write || reg < 0 || reg >= static_cast<int>(target::kDwarfRegisters)) return -UNW_EBADREG;
    if (!self.initial_.has(static_cast<unsigned>(reg))) {
      self.register_missing_ = true;
      return -UNW_EBADREG;
    }
    *value = self.initial_[static_cast<unsigned>(reg)];
    return 0;
  }

  const target::Target& target_;
  VettedTables tables_;
  unw_addr_space_t space_ = nullptr;
  unw_cursor_t cursor_{};
  target::Registers initial_;
  bool positioned_ = false;
  bool no_info_ = false;
  bool memory_failed_ = false;
  bool register_missing_ = false;  // one that is not known was needed
  bool parsing_tables_ = false;
};

class LibunwindUnwinder final : public Unwinder {
 public:
  explicit LibunwindUnwinder(const target::Target& target) : target_(target), stepper_(target) {}
  const char* name() const override { return "libunwind"; }
  UnwoundStack unwind(const target::Registers& registers) override { return walk_stack(target_, stepper_, registers); }

 private:
  const target::Target& target_;
  LibunwindStepper stepper_;
};

}  // namespace

std::unique_ptr<Unwinder> make_libunwind_unwinder(const target::Target& target) {
  return std::make_unique<LibunwindUnwinder>(target);
}

}  // namespace rankstacks::unwind
