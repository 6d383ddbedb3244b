#include "symbolizers/split_file.h"

#include <algorithm>
#include <array>

#include "elf/bytes.h"
#include "symbolizers/unpack_debug.h"

namespace rankstacks::symbolizers {
namespace {

// The sections of an index's columns. As far as they are used here, GNU's numbers are the same up to 6; its 8 is
// .debug_macro.
constexpr std::uint32_t kInfo = 1;
constexpr std::uint32_t kAbbrev = 3;
constexpr std::uint32_t kStrOffsets = 6;
constexpr std::uint32_t kRngLists = 8;

struct Index {
  std::uint16_t version = 0;
  std::uint32_t columns = 0, rows = 0, slots = 0;
  std::span<const std::byte> ids, row_of, kinds, offsets, sizes;
};

std::optional<Index> parse_index(std::span<const std::byte> bytes) {
  const auto head = elf::load<std::array<std::uint32_t, 4>>(bytes, 0);
  if (!head) return std::nullopt;
  Index index;
  // In version 5 it has two bytes, followed by padding.
  index.version = static_cast<std::uint16_t>((*head)[0] & 0xffff);
  index.columns = (*head)[1];
  index.rows = (*head)[2];
  index.slots = (*head)[3];
  if ((index.version != 2 && index.version != 5) || index.slots == 0 || (index.slots & (index.slots - 1)) != 0 ||
      index.columns > 16) {
    return std::nullopt;
  }
  std::uint64_t at = 16;
  const auto take = [&](std::uint64_t size) {
    const auto part = elf::exactly(bytes, at, size);
    at += size;
    return part;
  };
  index.ids = take(std::uint64_t{index.slots} * 8);
  index.row_of = take(std::uint64_t{index.slots} * 4);
  index.kinds = take(std::uint64_t{index.columns} * 4);
  index.offsets = take(std::uint64_t{index.columns} * index.rows * 4);
  index.sizes = take(std::uint64_t{index.columns} * index.rows * 4);
  if (at > bytes.size()) return std::nullopt;
  return index;
}

// A third of the slots is free, so a search takes a few steps; in a table without a free slot it would visit all.
constexpr std::uint32_t kMaxProbes = 1 << 16;

// Open addressing with a second hash. Returns the row, from 1, or 0.
std::uint32_t row_of(const Index& index, std::uint64_t id) {
  const std::uint64_t mask = index.slots - 1;
  const std::uint64_t step = ((id >> 32) & mask) | 1;
  std::uint64_t slot = id & mask;
  for (std::uint32_t tried = 0; tried < std::min(index.slots, kMaxProbes); ++tried, slot = (slot + step) & mask) {
    const auto row = elf::load<std::uint32_t>(index.row_of, slot * 4).value_or(0);
    if (row == 0) return 0;
    if (elf::load<std::uint64_t>(index.ids, slot * 8) == id) return row <= index.rows ? row : 0;
  }
  return 0;
}

std::span<const std::byte> section_bytes(const elf::Image& image, std::string_view name) {
  const elf::Section* section = image.section(name);
  return section == nullptr ? std::span<const std::byte>{} : image.contents(*section);
}

}  // namespace

Result<std::shared_ptr<const SplitFile>> SplitFile::open(std::shared_ptr<const elf::Image> file) {
  auto split = std::make_shared<SplitFile>();
  split->file_ = std::move(file);
  const elf::Image* plain = split->file_.get();
  if (has_packed_debug(*plain)) {
    auto unpacked = unpack_debug(*plain);
    if (!unpacked) return fail(unpacked.error());
    split->unpacked_ = std::move(*unpacked);
    plain = split->unpacked_.get();
  }
  split->all_ = {section_bytes(*plain, ".debug_info.dwo"), section_bytes(*plain, ".debug_abbrev.dwo"),
                 section_bytes(*plain, ".debug_rnglists.dwo"), section_bytes(*plain, ".debug_str_offsets.dwo"),
                 section_bytes(*plain, ".debug_str.dwo")};
  split->index_ = section_bytes(*plain, ".debug_cu_index");
  if (split->all_.info.empty()) {
    return fail(Error{.code = ErrorCode::kMalformed,
                      .subject = split->file_->name(),
                      .what = "no .debug_info.dwo in it",
                      .where = {},
                      .os_errno = 0,
                      .hint = {}});
  }
  return std::shared_ptr<const SplitFile>(std::move(split));
}

std::optional<SplitSections> SplitFile::sections_of(std::uint64_t id) const {
  if (index_.empty()) return all_;
  const auto index = parse_index(index_);
  const std::uint32_t row = index ? row_of(*index, id) : 0;
  if (row == 0) return std::nullopt;
  SplitSections own;
  own.str = all_.str;
  for (std::uint32_t column = 0; column < index->columns; ++column) {
    const std::uint64_t cell = ((std::uint64_t{row} - 1) * index->columns + column) * 4;
    const auto offset = elf::load<std::uint32_t>(index->offsets, cell).value_or(0);
    const auto size = elf::load<std::uint32_t>(index->sizes, cell).value_or(0);
    switch (elf::load<std::uint32_t>(index->kinds, std::uint64_t{column} * 4).value_or(0)) {
      case kInfo: own.info = elf::exactly(all_.info, offset, size); break;
      case kAbbrev: own.abbrev = elf::exactly(all_.abbrev, offset, size); break;
      case kStrOffsets: own.str_offsets = elf::exactly(all_.str_offsets, offset, size); break;
      case kRngLists:
        if (index->version >= 5) own.rnglists = elf::exactly(all_.rnglists, offset, size);
        break;
      default: break;
    }
  }
  return own;
}

}  // namespace rankstacks::symbolizers
