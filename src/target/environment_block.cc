#include "target/environment_block.h"

#include <elf.h>
#include <algorithm>
#include <array>
#include <vector>

namespace rankstacks::target {
namespace {

constexpr std::size_t kMaxEntries = 4096;
constexpr std::size_t kLongestEntry = 32 << 10;
constexpr std::size_t kMaxBytes = 4 << 20;  // of all entries: all pointers may lead to the same long string
constexpr std::size_t kPointersAtOnce = 256;
constexpr std::uint64_t kPage = 4096;

std::string_view base_name(std::string_view path) { return path.substr(path.rfind('/') + 1); }

// glibc's libc.so.6 or libc-2.31.so, musl's libc.so or ld-musl-x86_64.so.1.
bool is_libc(const Module& module) {
  const std::string_view name = base_name(module.path);
  return name.starts_with("libc.so") || name.starts_with("libc-2.") || name.starts_with("ld-musl-");
}

// Libraries have no PT_INTERP, except libc itself; programs have one, except static ones.
bool is_program(const elf::Image& image) { return image.type() == ET_EXEC || image.has_interpreter(); }

std::optional<Address> environ_of(const Module& module) {
  for (const char* name : {"environ", "__environ"}) {
    const auto symbol = module.image->find_symbol(name);
    if (symbol && symbol->type == STT_OBJECT && symbol->bind != STB_LOCAL) return module.to_address(symbol->value);
  }
  return std::nullopt;
}

}  // namespace

std::optional<Address> find_environ_variable(const ModuleMap& modules) {
  const Module* libc = nullptr;
  for (const Module& module : modules.all()) {
    if (module.image == nullptr) continue;
    if (is_libc(module)) {
      if (libc == nullptr) libc = &module;
    } else if (is_program(*module.image)) {
      if (const auto found = environ_of(module)) return found;
    }
  }
  if (libc != nullptr) return environ_of(*libc);
  for (const Module& module : modules.all()) {  // a static position-independent program is neither
    if (module.image == nullptr || module.path.starts_with('[')) continue;
    if (const auto found = environ_of(module)) return found;
  }
  return std::nullopt;
}

void add_environment_entry(std::map<std::string, std::string>& environment, std::string_view entry) {
  const std::size_t equals = entry.find('=');
  if (equals == std::string_view::npos || equals == 0) return;
  environment.try_emplace(std::string(entry.substr(0, equals)), entry.substr(equals + 1));
}

std::map<std::string, std::string> read_current_environment(const Target& target, Address environ_variable) {
  std::map<std::string, std::string> environment;
  const auto block = target.read_value<Address>(environ_variable);
  if (!block || *block == 0) return environment;

  std::vector<Address> strings;
  std::array<Address, kPointersAtOnce> chunk;
  for (Address at = *block; strings.size() < kMaxEntries;) {
    const Range wanted{at, at + sizeof chunk};
    if (wanted.end < wanted.start) break;
    target.prefetch({&wanted, 1});
    const std::size_t read = target.read(at, std::as_writable_bytes(std::span(chunk))) / sizeof(Address);
    const auto end = std::find(chunk.begin(), chunk.begin() + static_cast<std::ptrdiff_t>(read), Address{0});
    strings.insert(strings.end(), chunk.begin(), end);
    if (end != chunk.end()) break;  // the NULL, or the end of what can be read
    at += sizeof chunk;
  }
  if (strings.size() > kMaxEntries) strings.resize(kMaxEntries);

  // The strings are close together: in the block at the top of the stack, and in the heap. Whole pages are fetched,
  // each once.
  std::vector<Address> pages;
  for (const Address s : strings) pages.push_back(s & ~(kPage - 1));
  std::sort(pages.begin(), pages.end());
  pages.erase(std::unique(pages.begin(), pages.end()), pages.end());
  std::vector<Range> ranges;
  for (const Address page : pages) {
    if (page + kPage < page) continue;
    if (!ranges.empty() && ranges.back().end == page) ranges.back().end += kPage;
    else ranges.push_back({page, page + kPage});
  }
  target.prefetch(ranges);

  std::size_t total = 0;
  for (const Address s : strings) {
    const auto text = target.read_c_string(s, kLongestEntry);
    if (!text) continue;
    total += text->size();
    if (total > kMaxBytes) break;
    add_environment_entry(environment, *text);
  }
  return environment;
}

}  // namespace rankstacks::target
