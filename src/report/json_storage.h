// What the values of a JsonDocument point to.
#pragma once

#include <algorithm>
#include <cstddef>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "report/json_document.h"

namespace rankstacks::report {

// Memory that is given back all at once, or from a mark on.
class Arena {
 public:
  template <class T>
  T* allocate(std::size_t count) {
    static_assert(std::is_trivially_destructible_v<T> && alignof(T) <= kUnit);
    // Something of no size has an address of its own, too.
    const std::size_t size = std::max(kUnit, (count * sizeof(T) + kUnit - 1) / kUnit * kUnit);
    if (size > static_cast<std::size_t>(end_ - at_)) add_block(size);
    return reinterpret_cast<T*>(std::exchange(at_, at_ + size));
  }
  std::string_view copy(std::string_view text) {
    char* const bytes = allocate<char>(text.size());
    std::copy(text.begin(), text.end(), bytes);
    return {bytes, text.size()};
  }

  struct Mark {
    std::size_t blocks;
    char* at;
  };
  Mark mark() const { return {blocks_.size(), at_}; }
  // Gives back what was allocated since the mark, unless a new block was begun.
  void rewind(const Mark& mark) {
    if (blocks_.size() == mark.blocks) at_ = mark.at;
  }

 private:
  static constexpr std::size_t kUnit = 8, kMinBlock = std::size_t{1} << 13, kMaxBlock = std::size_t{1} << 22;

  void add_block(std::size_t least) {
    block_ = std::min(block_ * 2, kMaxBlock);
    const std::size_t size = std::max(block_, least);
    // new[] aligns to more than kUnit.
    blocks_.push_back(std::unique_ptr<char[]>(new char[size]));
    at_ = blocks_.back().get();
    end_ = at_ + size;
  }

  std::vector<std::unique_ptr<char[]>> blocks_;
  char *at_ = nullptr, *end_ = nullptr;  // of the last block
  std::size_t block_ = kMinBlock / 2;
};

struct JsonDocument::Storage {
  // An object of members of these names and values, as they came.
  JsonValue object(const JsonNamesPool::List& list, const JsonValue* as_they_came) {
    const std::size_t size = list.names.size();
    JsonValue* const values = arena.allocate<JsonValue>(size);
    if (list.repeated)
      std::transform(list.repeated->kept.begin(), list.repeated->kept.end(), values,
                     [&](std::uint32_t i) { return as_they_came[i]; });
    else std::copy_n(as_they_came, size, values);
    JsonValue made{JsonValue::Kind::kObject, static_cast<std::uint32_t>(size)};
    JsonObject* const object = arena.allocate<JsonObject>(1);
    *object = {&list.names, values};
    made.object = object;
    return made;
  }

  Arena arena;
  std::deque<JsonKey> keys;  // each once, so that equal ones have equal addresses
  std::deque<std::string> texts_of_keys;
  JsonNamesPool names;
};

}  // namespace rankstacks::report
