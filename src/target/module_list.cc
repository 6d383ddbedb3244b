#include "target/module_list.h"

#include <algorithm>

namespace rankstacks::target {

namespace {

// Whether `m` continues the load that `last` is a part of. A new mapping of a file begins at offset 0. But in a file of
// less than a page lld puts all segments into the same page, and each is mapped from there: adjacent, each with
// different permissions, the writable one last.
bool goes_on(const Mapping& last, const Mapping& m) {
  if (last.inode != m.inode || last.device != m.device || m.file_offset < last.file_offset || last.path != m.path)
    return false;
  if (m.file_offset != 0) return true;
  return m.range.start == last.range.end && !last.writable &&
         (m.writable != last.writable || m.executable != last.executable || m.readable != last.readable);
}

}  // namespace

std::vector<FileMappings> group_mappings(std::span<const Mapping> mappings) {
  // Most mappings of a process belong to no code: only those of code are copied.
  const auto is_of_file = [](const Mapping& m) { return !m.path.empty() && m.path.front() != '['; };
  std::vector<FileMappings> files;
  const auto add = [&](std::span<const Mapping> group) {
    if (std::none_of(group.begin(), group.end(), [&](const Mapping& m) { return is_of_file(m) && m.executable; }))
      return;
    FileMappings& file = files.emplace_back(FileMappings{group.front().path, group.front().range, {}});
    for (const Mapping& m : group) {
      if (!is_of_file(m)) continue;  // bss and heap between the mappings of a file
      file.range.end = m.range.end;
      file.parts.push_back({.range = m.range,
                            .file_offset = m.file_offset,
                            .path = {},
                            .readable = m.readable,
                            .writable = m.writable,
                            .executable = m.executable,
                            .deleted = m.deleted,
                            .device = m.device,
                            .inode = m.inode});
    }
  };
  std::size_t first = 0, last = mappings.size();  // of the group that is being collected; no `last` yet
  for (std::size_t i = 0; i < mappings.size(); ++i) {
    if (!is_of_file(mappings[i])) continue;
    if (last == mappings.size() || !goes_on(mappings[last], mappings[i])) {
      if (last != mappings.size()) add(mappings.subspan(first, last + 1 - first));
      first = i;
    }
    last = i;
  }
  if (last != mappings.size()) add(mappings.subspan(first, last + 1 - first));
  return files;
}

std::optional<Address> load_bias(const elf::Image& image, const FileMappings& file) {
  // Loaders make one or two mappings of a segment, and linkers make a dozen segments at most: a file with more of both
  // was made to waste time in comparisons.
  constexpr std::size_t kMaxParts = 64, kMaxLoads = 4096;
  const auto loads = image.loads();
  for (const Mapping& m : std::span(file.parts).first(std::min(file.parts.size(), kMaxParts))) {
    for (const Elf64_Phdr& p : loads.first(std::min(loads.size(), kMaxLoads))) {
      if (p.p_filesz == 0) continue;
      const std::uint64_t first = p.p_offset & ~std::uint64_t{0xfff};
      if (m.file_offset < first || m.file_offset >= p.p_offset + p.p_filesz) continue;
      if (((p.p_flags & PF_X) != 0) != m.executable) continue;
      // p_vaddr and p_offset agree modulo the page size, so the page at file_offset is loaded at p_vaddr - p_offset +
      // file_offset.
      return m.range.start - (p.p_vaddr - p.p_offset + m.file_offset);
    }
  }
  return std::nullopt;
}

}  // namespace rankstacks::target
