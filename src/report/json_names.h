// The names of an object's members. A report has millions of objects and few lists of names: each list is kept once for
// all objects that have it, with a table that says where a name is in it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace rankstacks::report {

// A name with a hash of it, by which members are found. That another name has the same one is no accident: who can make
// up such a name can as well write the one that it is taken for.
class JsonKey {
 public:
  explicit constexpr JsonKey(std::string_view text) : text_(text), hash_(hash_of(text)) {}
  // The hashes of those that a reader asks for are made by the compiler.
  consteval JsonKey(const char* text) : JsonKey(std::string_view(text)) {}

  constexpr std::string_view text() const { return text_; }
  constexpr std::uint64_t hash() const { return hash_; }

 private:
  static constexpr std::uint64_t hash_of(std::string_view text) {
    std::uint64_t hash = 14695981039346656037u;  // FNV-1a
    for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211u;
    return hash;
  }

  std::string_view text_;
  std::uint64_t hash_;
};

class JsonNames {
 public:
  // All different.
  explicit JsonNames(std::vector<const JsonKey*> names);

  std::size_t size() const { return names_.size(); }
  const JsonKey& operator[](std::size_t i) const { return *names_[i]; }
  // Its index; kNone if there is none. Most readers ask for much that is not there.
  std::size_t find(const JsonKey& key) const {
    return (bits_ & bit_of(key.hash())) != 0 ? find_hash(key.hash()) : kNone;
  }

  static constexpr std::size_t kNone = SIZE_MAX;

 private:
  static constexpr std::size_t kFew = 4;
  static constexpr std::uint64_t bit_of(std::uint64_t hash) { return std::uint64_t{1} << hash % 64; }

  std::size_t find_hash(std::uint64_t hash) const;

  std::uint64_t bits_ = 0;  // of all hashes
  std::vector<const JsonKey*> names_;
  std::vector<std::pair<std::uint64_t, std::uint32_t>> by_hash_;  // sorted; of more than kFew
};

// The lists of names of one document. Its sender may have given every object another one: they are small.
class JsonNamesPool {
 public:
  // Of several members of one name the last counts.
  struct Repeated {
    std::vector<const JsonKey*> as_they_came;
    std::vector<std::uint32_t> kept;  // which of them the list has
  };
  struct List {
    JsonNames names;
    std::unique_ptr<const Repeated> repeated;  // nullptr: as they came, all are different
  };

  // Those of an object, as they came. Names with one address are equal; the pool's lists point to them.
  const List& of(const JsonKey* const* names, std::size_t size);

 private:
  std::unordered_multimap<std::size_t, List> lists_;  // by a hash of the addresses
};

}  // namespace rankstacks::report
