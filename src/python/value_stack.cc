#include "python/value_stack.h"

#include <algorithm>

namespace rankstacks::python {
namespace {

constexpr std::size_t kLikelyExceptionTable = 128;
constexpr std::int32_t kMaxSlots = 65'536;  // of variables

// Include/code.h, up to 3.10: CO_MAXBLOCKS; PyTryBlock is {int b_type, b_handler, b_level}.
constexpr std::int32_t kMaxBlocks = 20;
constexpr Address kBlockSize = 12, kBlockLevel = 8;

// Objects/exception_handling_notes.txt: numbers of 6 bits a byte, the highest first; 0x40: more follow; 0x80: the first
// byte of an entry.
class TableReader {
 public:
  explicit TableReader(std::span<const std::uint8_t> bytes) : bytes_(bytes) {}
  bool at_end() const { return at_ >= bytes_.size(); }
  std::uint64_t number() {
    std::uint64_t value = 0;
    for (bool more = true; more && !at_end(); ++at_) {
      value = value << 6 | (bytes_[at_] & 0x3f);
      more = (bytes_[at_] & 0x40) != 0;
    }
    return value;
  }

 private:
  std::span<const std::uint8_t> bytes_;
  std::size_t at_ = 0;
};

std::size_t level_of_blocks(const target::Target& target, const Layout& layout, const RawFrame& frame) {
  const auto count = target.read_value<std::int32_t>(frame.address + layout.frame_block_count).value_or(0);
  if (count <= 0 || count > kMaxBlocks) return 0;
  const Address innermost = frame.address + layout.frame_blocks + kBlockSize * static_cast<Address>(count - 1);
  const auto level = target.read_value<std::int32_t>(innermost + kBlockLevel).value_or(0);
  return level > 0 ? static_cast<std::size_t>(level) : 0;
}

std::size_t level_of_table(const target::Target& target, const Layout& layout, const RawFrame& frame,
                           const CodeReader::Body& body, std::size_t& bytes_left) {
  if (frame.instruction < 0 || body.exception_table == 0) return 0;
  const auto size = target.read_value<std::uint64_t>(body.exception_table + layout.bytes_size).value_or(0);
  if (size == 0 || size > bytes_left) return 0;
  bytes_left -= static_cast<std::size_t>(size);
  std::vector<std::uint8_t> table(static_cast<std::size_t>(size));
  if (!target.read_exact(body.exception_table + layout.bytes_data, std::as_writable_bytes(std::span(table)))) return 0;
  return level_in(table, static_cast<std::uint64_t>(frame.instruction / kCodeUnit));
}

}  // namespace

std::size_t level_in(std::span<const std::uint8_t> exception_table, std::uint64_t unit) {
  for (TableReader reader(exception_table); !reader.at_end();) {
    const std::uint64_t start = reader.number(), size = reader.number();
    reader.number();                                   // the handler
    const std::uint64_t level = reader.number() >> 1;  // bit 0: whether the handler wants the instruction to be pushed
    if (unit >= start && unit - start < size)
      return static_cast<std::size_t>(std::min<std::uint64_t>(level, kMaxStackSlots));
  }
  return 0;
}

Range value_stack_of(const target::Target& target, const Layout& layout, const RawFrame& frame,
                     const CodeReader::Body& body) {
  if (body.stack_size <= 0 || body.stack_size > static_cast<std::int32_t>(kMaxStackSlots)) return {};
  const Address slots = frame.address + layout.frame_slots;
  Address bottom = 0;
  if (layout.frame_value_stack != kAbsent) {
    bottom = target.read_value<Address>(frame.address + layout.frame_value_stack).value_or(0);
    if (bottom < slots || bottom - slots > kMaxSlots * sizeof(Address) || bottom % sizeof(Address) != 0) return {};
  } else {
    if (layout.code_slot_count == kAbsent || body.slot_count < 0 || body.slot_count > kMaxSlots) return {};
    bottom = slots + static_cast<Address>(body.slot_count) * sizeof(Address);
  }
  return range_of(bottom, static_cast<std::uint64_t>(body.stack_size) * sizeof(Address));
}

Range statements_of(const Layout& layout, const RawFrame& frame, const CodeReader::Body& body) {
  if (layout.frame_blocks != kAbsent) return range_of(frame.address, layout.frame_slots);
  return range_of(body.exception_table, body.exception_table == 0 ? 0 : layout.bytes_data + kLikelyExceptionTable);
}

std::size_t slots_in_use(const target::Target& target, const Layout& layout, const RawFrame& frame,
                         const CodeReader::Body& body, std::size_t& bytes_left) {
  const std::size_t level = layout.frame_blocks != kAbsent ? level_of_blocks(target, layout, frame)
                                                           : level_of_table(target, layout, frame, body, bytes_left);
  return level <= static_cast<std::size_t>(std::max(body.stack_size, 0)) ? level : 0;
}

}  // namespace rankstacks::python
