#include "small_core/loader_list.h"

#include <elf.h>
#include <algorithm>
#include <cstring>
#include <optional>
#include <unordered_set>
#include <vector>

namespace rankstacks::small_core {
namespace {

constexpr std::uint64_t kMaxDynamic = 64u << 10;  // a program has some 30 entries of 16 bytes
constexpr std::size_t kMaxModules = 8192, kLongestName = 4096;

// struct r_debug (from glibc 2.35 on r_debug_extended, if its version is 2 or more) and struct link_map, <link.h>.
struct List {
  std::int32_t version, pad;
  Address map, brk;
  std::uint64_t state;
  Address base;
};
struct Entry {
  Address address, name, dynamic, next, previous;
};

class Walk {
 public:
  explicit Walk(const ReadMemory& read) : read_(read) {}

  std::optional<Address> find(const target::AuxiliaryVector& auxv) const {
    const auto headers = target::value_of(auxv, AT_PHDR), count = target::value_of(auxv, AT_PHNUM);
    if (!headers || !count || *count == 0 || *count >= PN_XNUM) return std::nullopt;
    std::vector<Elf64_Phdr> segments(*count);
    if (!read_(*headers, std::as_writable_bytes(std::span(segments)))) return std::nullopt;
    Address bias = 0;
    for (const Elf64_Phdr& p : segments)
      if (p.p_type == PT_PHDR) bias = *headers - p.p_vaddr;
    for (const Elf64_Phdr& p : segments)
      if (p.p_type == PT_DYNAMIC) return list_of(p.p_vaddr + bias, std::min(p.p_memsz, kMaxDynamic));
    return std::nullopt;
  }

  // Of a list of version 2, further lists follow: one for each namespace of dlmopen().
  void read_lists(Address list) {
    while (list != 0 && met_.size() < kMaxModules && met_.insert(list).second) {
      const auto head = value<List>(list);
      if (!head) return;
      read_entries(head->map);
      list = head->version >= 2 ? value<Address>(list + sizeof(List)).value_or(0) : 0;
    }
  }

 private:
  template <class T>
  std::optional<T> value(Address at) const {
    T read{};
    return read_(at, std::as_writable_bytes(std::span(&read, 1))) ? std::optional(read) : std::nullopt;
  }

  std::optional<Address> list_of(Address dynamic, std::uint64_t size) const {
    for (std::uint64_t at = 0; at < size; at += sizeof(Elf64_Dyn)) {
      const auto entry = value<Elf64_Dyn>(dynamic + at);
      if (!entry || entry->d_tag == DT_NULL) break;
      if (entry->d_tag == DT_DEBUG) return entry->d_un.d_val;
    }
    return std::nullopt;
  }

  void read_entries(Address at) {
    while (at != 0 && met_.size() < kMaxModules && met_.insert(at).second) {
      const auto entry = value<Entry>(at);
      if (!entry) return;
      read_name(entry->name);
      value<Elf64_Dyn>(entry->dynamic);
      at = entry->next;
    }
  }

  // By pieces that end where an aligned one ends, so that none crosses into a page that may not be there.
  void read_name(Address at) const {
    constexpr std::size_t kPiece = 64;
    std::byte bytes[kPiece];
    for (std::size_t done = 0; done < kLongestName;) {
      const std::size_t n = kPiece - (at + done) % kPiece;
      if (!read_(at + done, std::span(bytes).first(n)) || std::memchr(bytes, 0, n) != nullptr) return;
      done += n;
    }
  }

  const ReadMemory& read_;
  std::unordered_set<Address> met_;
};

}  // namespace

void read_loader_list(const ReadMemory& read, const target::AuxiliaryVector& auxv) {
  Walk walk(read);
  if (const auto list = walk.find(auxv)) walk.read_lists(*list);
}

}  // namespace rankstacks::small_core
