#include "python/group_object.h"

#include <algorithm>
#include <array>
#include <span>

namespace rankstacks::python {
namespace {

constexpr std::size_t kWord = sizeof(Address);
// Where rank_ may be, and how much of the object is read.
constexpr std::size_t kFirstRank = 2 * kWord, kLastRank = 5 * kWord, kRead = 14 * kWord;
// Where pg_desc_ may be, from rank_ on.
constexpr std::size_t kFirstDescription = 2 * kWord, kLastDescription = 3 * kWord;
constexpr std::size_t kLongestDescription = 256, kMaxCapacity = 1u << 16;

// What new_group() stores if it is given no description: distributed_c10d.py, 2.4 on.
constexpr std::string_view kNoDescription = "undefined";

using Bytes = std::array<std::byte, kRead>;

template <class T>
T value_at(const Bytes& bytes, std::size_t at) {
  T value;
  std::copy_n(bytes.begin() + static_cast<std::ptrdiff_t>(at), sizeof value,
              std::as_writable_bytes(std::span(&value, 1)).begin());
  return value;
}

// libstdc++'s std::string: a pointer to the text, its length, and either the text of up to 15 bytes itself or the
// capacity of the memory that the pointer leads to. A zero byte ends the text.
std::optional<std::string> string_at(const target::Target& target, Address object, const Bytes& bytes, std::size_t at) {
  constexpr std::size_t kInPlace = 16;
  const auto text = value_at<Address>(bytes, at), size = value_at<std::uint64_t>(bytes, at + kWord);
  if (size > kLongestDescription) return std::nullopt;
  if (text == object + at + 2 * kWord) {
    if (size >= kInPlace) return std::nullopt;
  } else if (const auto capacity = value_at<std::uint64_t>(bytes, at + 2 * kWord);
             capacity < kInPlace || capacity < size || capacity > kMaxCapacity) {
    return std::nullopt;
  }
  std::string read(size + 1, '\0');
  if (!target.read_exact(text, std::as_writable_bytes(std::span(read))) || read.back() != '\0') return std::nullopt;
  read.pop_back();
  const bool printable = std::all_of(read.begin(), read.end(), [](char c) { return c >= ' ' && c <= '~'; });
  return printable ? std::optional(std::move(read)) : std::nullopt;
}

}  // namespace

std::optional<GroupObject> read_group_object(const target::Target& target, const Layout& layout, Address object,
                                             std::size_t size) {
  const Address cxx = target.read_value<Address>(object + layout.object_head()).value_or(0);
  Bytes bytes{};
  if (cxx == 0 || cxx > ~Address{0} - kRead || !target.read_exact(cxx, bytes)) return std::nullopt;
  std::optional<std::size_t> found;
  for (std::size_t at = kFirstRank; at <= kLastRank; at += kWord) {
    const auto rank = value_at<std::int32_t>(bytes, at), members = value_at<std::int32_t>(bytes, at + sizeof rank);
    if (rank < 0 || rank >= members || static_cast<std::size_t>(members) != size) continue;
    if (found) return std::nullopt;
    found = at;
  }
  if (!found) return std::nullopt;
  GroupObject group{.rank = value_at<std::int32_t>(bytes, *found), .description = {}};
  for (std::size_t at = *found + kFirstDescription; at <= *found + kLastDescription; at += kWord)
    if (auto text = string_at(target, cxx, bytes, at)) {
      if (*text != kNoDescription) group.description = std::move(*text);
      break;
    }
  return group;
}

}  // namespace rankstacks::python
