// A dump's data, whichever form it was written in: values in one array, which refer to each other by index. So nothing
// recurses when it is read or freed, however deep the input nests, and values that a pickle refers to several times (or
// that contain themselves) are there once. Readers walk it by the dump's known shape and never follow it freely.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace rankstacks::flight_recorder {

enum class Kind : std::uint8_t { kNone, kBoolean, kInteger, kReal, kText, kList, kDict };
std::string_view to_string(Kind kind);  // "a list"

using ValueId = std::uint32_t;

struct Value {
  Kind kind = Kind::kNone;
  std::int64_t integer = 0;  // kBoolean: 0 or 1
  double real = 0;
  std::string text;            // kText; any bytes
  std::vector<ValueId> items;  // kList (tuples too); kDict: key, value, key, value, ...
};

struct Document {
  std::vector<Value> values;
  ValueId root = 0;

  const Value& at(ValueId id) const { return values[id]; }
  // The last value under that key, as in Python; nullptr if `dict` has no such key.
  const Value* find(const Value& dict, std::string_view key) const;
};

inline constexpr std::size_t kMaxBytes = std::size_t{64} << 20;  // 2,000 operations with stacks are 1 MB
inline constexpr std::size_t kMaxValues = 2'000'000;
inline constexpr std::size_t kMaxDepth = 64;  // of a dump: 6

}  // namespace rankstacks::flight_recorder
