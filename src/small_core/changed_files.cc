#include "small_core/changed_files.h"

#include <elf.h>
#include <algorithm>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>

#include "elf/bytes.h"

namespace rankstacks::small_core {
namespace {

constexpr std::uint64_t kPage = 4096;

std::uint64_t padded(std::uint64_t size) { return (size + 3) & ~std::uint64_t{3}; }

// long count; long page_size; { long start, end, page offset; } [count]; then the paths.
struct Head {
  std::uint64_t count, page_size;
};
struct Entry {
  std::uint64_t start, end, offset;
};
struct NamedEntry {
  Entry entry;
  std::string_view path;
};

struct FileNote {
  std::uint64_t page_size = 0;
  std::vector<NamedEntry> entries;
};

std::optional<FileNote> parse(std::span<const std::byte> body) {
  const auto head = elf::load<Head>(body, 0);
  if (!head || head->count > (body.size() - sizeof(Head)) / sizeof(Entry)) return std::nullopt;
  const std::size_t names_at = sizeof(Head) + head->count * sizeof(Entry);
  std::string_view names(reinterpret_cast<const char*>(body.data()) + names_at, body.size() - names_at);
  FileNote note{head->page_size, {}};
  for (std::uint64_t i = 0; i < head->count; ++i) {
    const std::size_t end = names.find('\0');
    if (end == names.npos) return std::nullopt;
    note.entries.push_back({*elf::load<Entry>(body, sizeof(Head) + i * sizeof(Entry)), names.substr(0, end)});
    names.remove_prefix(end + 1);
  }
  return note;
}

std::vector<std::byte> bytes_of(const FileNote& note) {
  std::vector<std::byte> body;
  const auto put = [&](std::span<const std::byte> bytes) { body.insert(body.end(), bytes.begin(), bytes.end()); };
  const Head head{note.entries.size(), note.page_size};
  put(std::as_bytes(std::span(&head, 1)));
  for (const NamedEntry& named : note.entries) put(std::as_bytes(std::span(&named.entry, 1)));
  for (const NamedEntry& named : note.entries) {
    put(std::as_bytes(std::span(named.path.data(), named.path.size())));
    body.push_back(std::byte{0});
  }
  return body;
}

bool is_writable(const target::Target& target, Address a) {
  const auto mappings = target.mappings();
  const auto after = std::upper_bound(mappings.begin(), mappings.end(), a,
                                      [](Address x, const target::Mapping& m) { return x < m.range.start; });
  return after != mappings.begin() && std::prev(after)->range.contains(a) && std::prev(after)->writable;
}

bool is_of_writable_segment(const target::Target& target, Address a) {
  const target::Module* module = target.modules().find(a);
  if (module == nullptr || !module->image) return false;
  for (const Elf64_Phdr& p : module->image->segments()) {
    if (p.p_type != PT_LOAD || (p.p_flags & PF_W) == 0) continue;
    const Address start = module->to_address(p.p_vaddr) & ~(kPage - 1);
    if (a >= start && a < module->to_address(p.p_vaddr + p.p_memsz)) return true;
  }
  return false;
}

// What is not sound stays where it is: it is reported as before.
std::optional<target::NotedFile> noted(const NamedEntry& named, std::uint64_t page_size) {
  target::NotedFile file{{named.entry.start, named.entry.end}, 0, std::string(named.path)};
  if (file.range.start >= file.range.end || file.path.empty() || page_size == 0 ||
      __builtin_mul_overflow(named.entry.offset, page_size, &file.file_offset))
    return std::nullopt;
  return file;
}

std::vector<std::byte> shorter(std::span<const std::byte> body, const target::Target& target,
                               std::vector<target::NotedFile>& left_out) {
  const auto note = parse(body);
  if (!note) return {body.begin(), body.end()};
  FileNote kept{note->page_size, {}};
  for (const NamedEntry& named : note->entries) {
    const Address start = named.entry.start;
    auto file = noted(named, note->page_size);
    if (file && (is_writable(target, start) || is_of_writable_segment(target, start)))
      left_out.push_back(std::move(*file));
    else kept.entries.push_back(named);
  }
  std::stable_sort(left_out.begin(), left_out.end(),
                   [](const auto& a, const auto& b) { return a.range.start < b.range.start; });
  return bytes_of(kept);
}

}  // namespace

std::vector<std::byte> without_changed_files(std::span<const std::byte> notes, const target::Target& target,
                                             std::vector<target::NotedFile>& left_out) {
  std::vector<std::byte> to;
  bool found = false;  // of several lists only the first is read
  for (std::uint64_t at = 0; const auto header = elf::load<Elf64_Nhdr>(notes, at);) {
    const std::uint64_t name_at = at + sizeof(Elf64_Nhdr), body_at = name_at + padded(header->n_namesz);
    if (body_at + header->n_descsz > notes.size()) break;
    const auto name = elf::exactly(notes, name_at, header->n_namesz);
    const auto* text = reinterpret_cast<const char*>(name.data());
    const std::string_view owner(text, strnlen(text, name.size()));
    const auto body = elf::exactly(notes, body_at, header->n_descsz);
    if (owner == "CORE" && header->n_type == NT_FILE && !std::exchange(found, true))
      target::append_note(to, owner, header->n_type, shorter(body, target, left_out));
    else target::append_note(to, owner, header->n_type, body);
    at = body_at + padded(header->n_descsz);
  }
  return to;
}

}  // namespace rankstacks::small_core
