#include "symbolizers/unpack_debug.h"

#include <fmt/format.h>
#include <zlib.h>
#include <zstd.h>
#include <algorithm>
#include <array>
#include <numeric>
#include <set>

#include "base/memory_limit.h"
#include "base/workers.h"
#include "elf/bytes.h"
#include "symbolizers/debug_elf.h"

namespace rankstacks::symbolizers {
namespace {

// For all sections of one file together: debug information is compressed by a factor of 3 to 5, string tables up to 10.
// A file that claims more was made to exhaust memory.
constexpr std::uint64_t kMaxUnpacked = std::uint64_t{4} << 30;
constexpr std::uint64_t kBestRatio = 16;
// A section of zeros is compressed by a factor of 1,000, which is harmless while it is small.
constexpr std::uint64_t kAlwaysAllowed = 16 << 20;

constexpr std::uint32_t kZlib = 1;  // ELFCOMPRESS_ZLIB
constexpr std::uint32_t kZstd = 2;  // ELFCOMPRESS_ZSTD, which Debian 12's elf.h lacks

struct Packed {
  std::uint32_t method = 0;  // 0: not compressed
  std::uint64_t size = 0;    // when unpacked
  std::span<const std::byte> bytes;
};

bool is_debug(const elf::Section& section) {
  return section.name.starts_with(".debug_") || section.name.starts_with(".zdebug_");
}

// The sections from which lines and scopes are read, also in split units (.debug_info.dwo). The locations of variables
// (.debug_loclists, a seventh of libc's), macros and indexes of names are not needed.
bool is_read(const elf::Section& section) {
  constexpr std::array<std::string_view, 12> kRead = {"info", "types",    "abbrev",   "aranges",
                                                      "line", "line_str", "str",      "str_offsets",
                                                      "addr", "ranges",   "rnglists", "cu_index"};
  if (!is_debug(section)) return false;
  std::string_view kind = section.name.substr(section.name.find('_') + 1);
  if (kind.ends_with(".dwo")) kind.remove_suffix(4);
  return std::find(kRead.begin(), kRead.end(), kind) != kRead.end();
}

Packed parse(const elf::Image& image, const elf::Section& section) {
  const auto bytes = image.contents(section);
  if ((section.header.sh_flags & SHF_COMPRESSED) != 0) {
    const auto header = elf::load<Elf64_Chdr>(bytes, 0);
    if (!header) return {.method = ~0U, .size = 0, .bytes = {}};
    return {header->ch_type, header->ch_size, elf::clip(bytes, sizeof(Elf64_Chdr), bytes.size())};
  }
  // "ZLIB", the size in 8 bytes with the highest byte first, the stream.
  if (section.name.starts_with(".zdebug_") && bytes.size() >= 12 && std::memcmp(bytes.data(), "ZLIB", 4) == 0) {
    return {kZlib, __builtin_bswap64(*elf::load<std::uint64_t>(bytes, 4)), bytes.subspan(12)};
  }
  return {0, bytes.size(), bytes};
}

bool unpack(Packed packed, std::byte* into, bool may_change) {
  std::vector<std::byte> unchanging;
  if (may_change && packed.method != 0) {
    unchanging.assign(packed.bytes.begin(), packed.bytes.end());
    packed.bytes = unchanging;
  }
  if (packed.method == 0) {
    std::copy(packed.bytes.begin(), packed.bytes.end(), into);
    return true;
  }
  if (packed.method == kZlib) {
    uLongf size = packed.size;
    const auto* from = reinterpret_cast<const Bytef*>(packed.bytes.data());
    return uncompress(reinterpret_cast<Bytef*>(into), &size, from, packed.bytes.size()) == Z_OK && size == packed.size;
  }
  return ZSTD_decompress(into, packed.size, packed.bytes.data(), packed.bytes.size()) == packed.size;
}

}  // namespace

bool has_packed_debug(const elf::Image& image) {
  return std::any_of(image.sections().begin(), image.sections().end(), [](const elf::Section& s) {
    return is_debug(s) && ((s.header.sh_flags & SHF_COMPRESSED) != 0 || s.name.starts_with(".zdebug_"));
  });
}

Result<std::shared_ptr<const elf::Image>> unpack_debug(const elf::Image& image) {
  const auto malformed = [&](std::string what) {
    Error error;
    error.code = ErrorCode::kMalformed;
    error.subject = image.name();
    error.what = std::move(what);
    return fail(std::move(error));
  };
  std::vector<Packed> contents;
  std::vector<std::string_view> names;
  DebugElf plain;
  // The first one of each name: many sections may refer to the same compressed bytes.
  std::set<std::string_view> known;
  for (const elf::Section& section : image.sections()) {
    if (!is_read(section) || image.contents(section).empty() || !known.insert(section.name).second) continue;
    const Packed packed = parse(image, section);
    if (packed.method != 0 && packed.method != kZlib && packed.method != kZstd) {
      return malformed(fmt::format("{} is compressed by an unknown method ({})", section.name, packed.method));
    }
    if ((packed.size > kAlwaysAllowed && packed.size / kBestRatio > packed.bytes.size()) ||
        packed.size > kMaxUnpacked - std::min(plain.size(), kMaxUnpacked)) {
      return malformed(fmt::format("{} cannot unpack to {} bytes", section.name, packed.size));
    }
    const bool old_name = section.name.starts_with(".zdebug_");
    plain.add(old_name ? "." + std::string(section.name.substr(2)) : std::string(section.name), packed.size);
    contents.push_back(packed);
    names.push_back(section.name);
    if (contents.size() > DebugElf::kMaxSections) return malformed("too many debug sections");
  }
  if (!take_memory(MemoryUse::kSections, plain.size())) {
    return fail({.code = ErrorCode::kLimit,
                 .subject = image.name(),
                 .what = fmt::format("its debug sections would take {} MiB of memory: more than is left for such",
                                     plain.size() >> 20),
                 .hint = "if the machine has more memory, allow more with --memory"});
  }
  plain.lay_out(image.type());
  // The largest section first: .debug_info alone is more than half of the total.
  std::vector<std::size_t> order(contents.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return contents[a].size > contents[b].size; });
  std::vector<char> unpacked(contents.size());
  run_in_parallel(contents.size(), [&](std::size_t turn) {
    const std::size_t i = order[turn];
    unpacked[i] = unpack(contents[i], plain.contents(i).data(), image.others_may_change());
  });
  if (const auto bad = std::find(unpacked.begin(), unpacked.end(), 0); bad != unpacked.end()) {
    return malformed(fmt::format("{} does not unpack", names[static_cast<std::size_t>(bad - unpacked.begin())]));
  }
  return elf::Image::from_bytes(plain.take(), image.name());
}

}  // namespace rankstacks::symbolizers
