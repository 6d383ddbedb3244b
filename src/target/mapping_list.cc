#include "target/mapping_list.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/sysmacros.h>
#include <array>
#include <cerrno>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "base/file_descriptor.h"
#include "target/proc.h"

namespace rankstacks::target {
namespace {

// struct procmap_query and its flags: Linux 6.11, include/uapi/linux/fs.h.
struct Query {
  std::uint64_t size = sizeof(Query);
  std::uint64_t query_flags = 0, query_address = 0;
  std::uint64_t start = 0, end = 0, flags = 0, page_size = 0, offset = 0, inode = 0;
  std::uint32_t device_major = 0, device_minor = 0;
  std::uint32_t name_size = 0, build_id_size = 0;
  std::uint64_t name_address = 0, build_id_address = 0;
};
static_assert(sizeof(Query) == 104);
constexpr unsigned long kQuery = _IOWR('f', 17, Query);
constexpr std::uint64_t kReadable = 1, kWritable = 2, kExecutable = 4, kCoveringOrNext = 0x10;
constexpr std::size_t kLongestName = 4096;  // PATH_MAX: the kernel writes no longer one

int ask(const FileDescriptor& maps, Query& query) {
  while (::ioctl(maps.get(), kQuery, &query) != 0)
    if (errno != EINTR) return errno;
  return 0;
}

void ask_for_name(Query& query, std::span<char> into) {
  query.name_size = static_cast<std::uint32_t>(into.size());
  query.name_address = reinterpret_cast<std::uintptr_t>(into.data());
}

void set_name(Mapping& mapping, std::string_view name) {
  constexpr std::string_view kDeleted = " (deleted)";
  if (mapping.inode != 0 && name.size() > kDeleted.size() && name.ends_with(kDeleted)) {
    name.remove_suffix(kDeleted.size());
    mapping.deleted = true;
  }
  mapping.path = name;
}

}  // namespace

std::optional<std::vector<Mapping>> ask_for_mappings(const std::string& path_of_maps) {
  constexpr std::size_t kUsual = 1024;
  const FileDescriptor maps(::open(path_of_maps.c_str(), O_RDONLY | O_CLOEXEC));
  if (!maps.is_open()) return std::nullopt;
  std::vector<Mapping> mappings;
  std::array<char, kLongestName> name;
  for (Address next = 0;;) {
    // To write a path takes as long as the rest. The parts of a file follow each other, and the last one is written to.
    const Mapping* last = mappings.empty() ? nullptr : &mappings.back();
    const bool may_be_next_part = last != nullptr && last->inode != 0 && !last->writable;
    Query query{.query_flags = kCoveringOrNext, .query_address = next};
    if (!may_be_next_part) ask_for_name(query, name);
    const int error = ask(maps, query);
    if (error == ENOENT && !mappings.empty()) return mappings;
    // One that begins before was joined with the last one meanwhile, or has grown.
    if (error != 0 || query.end <= next || query.start < next) return std::nullopt;
    if (mappings.empty()) mappings.reserve(kUsual);
    Mapping mapping{.range = {query.start, query.end},
                    .file_offset = query.offset,
                    .readable = (query.flags & kReadable) != 0,
                    .writable = (query.flags & kWritable) != 0,
                    .executable = (query.flags & kExecutable) != 0,
                    .device = makedev(query.device_major, query.device_minor),
                    .inode = query.inode};
    next = query.end;
    if (may_be_next_part && last->inode == mapping.inode && last->device == mapping.device &&
        last->range.end == mapping.range.start && last->file_offset < mapping.file_offset) {
      mapping.path = last->path;
      mapping.deleted = last->deleted;
    } else {
      Query named = query;
      if (may_be_next_part) {
        named = {.query_address = query.start};
        ask_for_name(named, name);
        // It may be gone since.
        if (ask(maps, named) != 0 || named.start != query.start || named.inode != query.inode) return std::nullopt;
      }
      if (named.name_size > name.size()) return std::nullopt;
      if (named.name_size > 0) set_name(mapping, {name.data(), named.name_size - 1});
    }
    mappings.push_back(std::move(mapping));
  }
}

Result<std::vector<Mapping>> read_mappings_text(const std::string& path_of_maps) {
  const auto text = proc::read_file(path_of_maps);
  if (!text) return fail(text.error());
  return proc::parse_maps(*text);
}

Result<std::vector<Mapping>> mappings_in(const std::string& directory) {
  const std::string path = directory + "/maps";
  if (auto mappings = ask_for_mappings(path)) return std::move(*mappings);
  return read_mappings_text(path);
}

}  // namespace rankstacks::target
