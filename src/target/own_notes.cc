#include "target/own_notes.h"

#include <elf.h>
#include <fmt/format.h>
#include <algorithm>
#include <cstring>

#include "elf/bytes.h"

namespace rankstacks::target {
namespace {

// An entry of kMappings: u64 start, u64 end, u32 flags, u32 zero.
struct MappingEntry {
  std::uint64_t start, end;
  std::uint32_t flags, zero;
};
static_assert(sizeof(MappingEntry) == 24);

// An entry of kFiles; the path follows.
struct FileEntry {
  std::uint64_t start, end, offset;
};
static_assert(sizeof(FileEntry) == 24);

constexpr std::size_t kMaxMappings = 1u << 20;  // as many as Fedora's vm.max_map_count allows

std::uint64_t padded(std::uint64_t size) { return (size + 3) & ~std::uint64_t{3}; }

Problem damaged(std::string what) {
  return {std::move(what), "the capture is damaged; copy it again", ProblemCode::kMalformed};
}

void parse_mappings(OwnNotes& notes) {
  const auto body = notes.body(OwnNote::kMappings);
  const std::size_t count = std::min(body.size() / sizeof(MappingEntry), kMaxMappings);
  std::size_t bad = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const auto entry = *elf::load<MappingEntry>(body, i * sizeof(MappingEntry));
    if (entry.start >= entry.end || (!notes.mappings.empty() && entry.start < notes.mappings.back().range.end)) ++bad;
    else notes.mappings.push_back({{entry.start, entry.end}, entry.flags & (PF_R | PF_W | PF_X)});
  }
  if (bad > 0)
    notes.problems.push_back(damaged(fmt::format("{} of {} mappings in its own notes make no sense", bad, count)));
}

void parse_files(OwnNotes& notes) {
  const auto body = notes.body(OwnNote::kFiles);
  std::size_t at = 0, count = 0, bad = 0;
  for (; at < body.size() && count < kMaxMappings; ++count) {
    const auto entry = elf::load<FileEntry>(body, at);
    const auto length = elf::load<std::uint32_t>(body, at + sizeof(FileEntry));
    at += sizeof(FileEntry) + sizeof *length;
    if (!entry || !length || *length > body.size() - at) {
      notes.problems.push_back(damaged(fmt::format("mapped files in its own notes are cut off behind {}", count)));
      break;
    }
    const std::string_view path(reinterpret_cast<const char*>(body.data()) + at, *length);
    at += *length;
    const bool overlaps = !notes.files.empty() && entry->start < notes.files.back().range.end;
    if (entry->start >= entry->end || overlaps || path.empty() || path.find('\0') != path.npos) ++bad;
    else notes.files.push_back({{entry->start, entry->end}, entry->offset, std::string(path)});
  }
  if (bad > 0)
    notes.problems.push_back(damaged(fmt::format("{} of {} mapped files in its own notes make no sense", bad, count)));
}

class OwnNoteParser {
 public:
  OwnNotes parse(std::span<const CoreNoteSegment> segments) {
    for (const CoreNoteSegment& segment : segments) parse_segment(segment.bytes);
    if (notes_.version > kNotesVersion) {
      notes_.bodies = {};
      notes_.problems.push_back(
          {fmt::format("captured by a newer rankstacks (notes of version {}, this tool reads {}): "
                       "what it notes in addition to the memory is not read",
                       notes_.version, kNotesVersion),
           "open it with that version", ProblemCode::kMalformed});
    }
    // Without a version the other notes say nothing.
    if (notes_.version == 0) notes_.bodies = {};
    parse_mappings(notes_);
    parse_files(notes_);
    return std::move(notes_);
  }

 private:
  // A segment that is damaged or cut off is reported by parse_notes(), which reads all owners' notes.
  void parse_segment(std::span<const std::byte> bytes) {
    for (std::uint64_t at = 0; const auto header = elf::load<Elf64_Nhdr>(bytes, at);) {
      const std::uint64_t name_at = at + sizeof(Elf64_Nhdr);
      const std::uint64_t body_at = name_at + padded(header->n_namesz);
      if (body_at + header->n_descsz > bytes.size()) return;
      const auto name = elf::exactly(bytes, name_at, header->n_namesz);
      if (name.size() == kNoteOwner.size() + 1 && std::memcmp(name.data(), kNoteOwner.data(), kNoteOwner.size()) == 0)
        take(header->n_type, elf::exactly(bytes, body_at, header->n_descsz));
      at = body_at + padded(header->n_descsz);
    }
  }

  void take(std::uint32_t type, std::span<const std::byte> body) {
    if (type == static_cast<std::uint32_t>(OwnNote::kVersion)) {
      const auto version = elf::load<std::uint32_t>(body, 0);
      if (!version || notes_.version != 0) return;
      notes_.version = *version;
      notes_.flags = elf::load<std::uint32_t>(body, sizeof *version).value_or(0);
    } else if (type <= kLastOwnNote && notes_.bodies[type].empty()) {
      notes_.bodies[type] = body;
    }
  }

  OwnNotes notes_;
};

}  // namespace

const NotedMapping* OwnNotes::find(Address a) const {
  const auto after = std::upper_bound(mappings.begin(), mappings.end(), a,
                                      [](Address x, const NotedMapping& m) { return x < m.range.start; });
  return after != mappings.begin() && std::prev(after)->range.contains(a) ? &*std::prev(after) : nullptr;
}

OwnNotes parse_own_notes(std::span<const CoreNoteSegment> segments) { return OwnNoteParser().parse(segments); }

void append_note(std::vector<std::byte>& to, std::string_view owner, std::uint32_t type,
                 std::span<const std::byte> body) {
  const Elf64_Nhdr header{.n_namesz = static_cast<Elf64_Word>(owner.size() + 1),
                          .n_descsz = static_cast<Elf64_Word>(body.size()),
                          .n_type = type};
  const auto put = [&](std::span<const std::byte> bytes) {
    to.insert(to.end(), bytes.begin(), bytes.end());
    to.resize(padded(to.size()));
  };
  put(std::as_bytes(std::span(&header, 1)));
  to.insert(to.end(), reinterpret_cast<const std::byte*>(owner.data()),
            reinterpret_cast<const std::byte*>(owner.data()) + owner.size());
  to.push_back(std::byte{0});
  to.resize(padded(to.size()));
  put(body);
}

std::vector<std::byte> files_note(std::span<const NotedFile> files) {
  std::vector<std::byte> body;
  const auto put = [&](std::span<const std::byte> bytes) { body.insert(body.end(), bytes.begin(), bytes.end()); };
  for (const NotedFile& file : files) {
    const FileEntry entry{file.range.start, file.range.end, file.file_offset};
    const auto length = static_cast<std::uint32_t>(file.path.size());
    put(std::as_bytes(std::span(&entry, 1)));
    put(std::as_bytes(std::span(&length, 1)));
    put(std::as_bytes(std::span(file.path.data(), file.path.size())));
  }
  return body;
}

std::vector<std::byte> mappings_note(std::span<const NotedMapping> mappings) {
  std::vector<std::byte> body;
  for (const NotedMapping& m : mappings) {
    const MappingEntry entry{m.range.start, m.range.end, m.flags, 0};
    const auto bytes = std::as_bytes(std::span(&entry, 1));
    body.insert(body.end(), bytes.begin(), bytes.end());
  }
  return body;
}

}  // namespace rankstacks::target
