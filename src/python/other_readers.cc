#include "python/other_readers.h"

#include <algorithm>
#include <array>
#include <vector>

namespace rankstacks::python {
namespace {

constexpr std::size_t kMaxInterpretersRead = 64, kMaxThreadsRead = 4096;
constexpr std::size_t kDict = 64;  // bytes of a PyDictObject: 48, of a free-threaded build 64
// Structures that others copy whole, and that may begin or end on another page than what this tool reads of them:
// sizeof(PyUnicodeObject) up to 3.11; a PyVarObject with a pointer, or the first bytes of a bytes object, more; and,
// where CPython does not state the size, PyCodeObject (3.8 to 3.10) and PyThreadState (3.11) as the headers have them:
// the largest up to 3.10, and of 3.7 to 3.12.
constexpr std::size_t kStr = 72, kTuple = 32, kBytes = 40, kCode = 176, kThread = 360;
constexpr std::size_t kMaxNames = 65'536, kLongestName = 256;

class OtherReads {
 public:
  OtherReads(const target::Target& target, const Layout& layout) : target_(target), layout_(layout) {}

  void interpreters(Address at) {
    for (std::size_t n = 0; n < kMaxInterpretersRead && at != 0; ++n) {
      copy(at, layout_.interp_size);
      for (const Offset field : {layout_.interp_modules, layout_.interp_sys_dict, layout_.interp_builtins})
        if (field != kAbsent) copy(pointer(at + field), kDict);
      threads(pointer(at + layout_.interp_threads_head));
      at = pointer(at + layout_.interp_next);
    }
  }

  void code(Address at) {
    copy(at, layout_.code_instructions == kAbsent ? kCode : layout_.code_instructions + sizeof(Address));
    for (const Offset field : {layout_.code_filename, layout_.code_name, layout_.code_qualname})
      if (field != kAbsent) copy(pointer(at + field), kStr);
    copy(pointer(at + layout_.code_line_table), kBytes);
  }

  void frame(Address at) {
    if (layout_.frame_slots != kAbsent) copy(at, layout_.frame_slots + sizeof(Address));
  }

  void names(Address tuple, CodeReader& codes) {
    const std::uint64_t size = tuple == 0 ? 0 : pointer(tuple + layout_.tuple_size);
    if (size > 0) copy(tuple, kTuple);
    for (std::uint64_t i = 0; i < size && names_left_ > 0; ++i, --names_left_) {
      const Address name = pointer(tuple + layout_.tuple_items + i * sizeof(Address));
      if (name == 0) continue;
      copy(name, kStr);
      codes.beginning(name, kLongestName);
    }
  }

 private:
  void threads(Address at) {
    for (std::size_t n = 0; n < kMaxThreadsRead && at != 0; ++n) {
      copy(at, layout_.thread_size == kAbsent ? kThread : layout_.thread_size);
      at = pointer(at + layout_.thread_next);
    }
  }

  Address pointer(Address at) const { return target_.read_value<Address>(at).value_or(0); }

  void copy(Address at, Offset size) {
    if (at == 0 || size == kAbsent) return;
    bytes_.resize(size);
    target_.read(at, bytes_);
  }

  const target::Target& target_;
  const Layout& layout_;
  std::size_t names_left_ = kMaxNames;
  std::vector<std::byte> bytes_;
};

}  // namespace

void read_for_other_readers(const target::Target& target, const Runtime& runtime, CodeReader& codes,
                            std::span<const ThreadState> threads) {
  const Layout& layout = runtime.layout;
  OtherReads reads(target, layout);
  reads.interpreters(
      target.read_value<Address>(runtime.candidate.runtime + layout.runtime_interpreters_head).value_or(0));
  for (std::uint32_t code = 0; code < codes.codes().size(); ++code) {
    if (codes.body(code).kind != CodeReader::Kind::kCode) continue;
    reads.code(codes.codes()[code].address);
    reads.names(codes.body(code).slot_names, codes);
  }
  for (const ThreadState& thread : threads)
    for (const Run& run : thread.runs)
      for (const RawFrame& frame : run.frames) reads.frame(frame.address);
}

}  // namespace rankstacks::python
