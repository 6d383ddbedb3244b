// A value of a report that is being read, with its place in the document. A value that does not fit throws a Defect
// that names that place.
#pragma once

#include <algorithm>
#include <charconv>
#include <climits>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "base/result.h"
#include "report/json_document.h"
#include "report/json_words.h"

namespace rankstacks::report {

// Thrown by Node only, caught in read_json_report.
struct Defect {
  ErrorCode code;
  std::string what;
};

// A value with its place in the document, such as "ranks[3].threads[0].tid".
class Node {
 public:
  Node(const JsonValue& value, const Node* parent, std::string_view key) : value_(value), parent_(parent), key_(key) {}
  Node(const JsonValue& value, const Node* parent, std::size_t index) : value_(value), parent_(parent), index_(index) {}

  std::string path() const {
    std::string text = parent_ ? parent_->path() : "";
    if (index_ != SIZE_MAX) return text + fmt::format("[{}]", index_);
    if (key_.empty()) return text;
    return text.empty() ? std::string(key_) : text + "." + std::string(key_);
  }

  [[noreturn]] void expected(std::string_view what) const {
    fail_with(fmt::format("expected {}, found {}", what, found()));
  }
  [[noreturn]] void fail_with(const std::string& what, ErrorCode code = ErrorCode::kMalformed) const {
    const std::string at = path();
    throw Defect{code, at.empty() ? what : at + ": " + what};
  }

  bool is_null() const { return value_.kind == Kind::kNull; }
  // Equal for two objects without objects or arrays in them if these are equal; nullptr: not an object.
  const JsonObject* identity() const { return value_.kind == Kind::kObject ? value_.object : nullptr; }
  // Equal for two arrays of such objects if these are equal, in most cases; nullptr: not an array.
  const JsonValue* identity_of_list() const { return value_.kind == Kind::kArray ? value_.elements : nullptr; }

  void require_object() const {
    if (value_.kind != Kind::kObject) expected("an object");
  }
  // Of an array or object; 0 for all else.
  std::size_t count() const { return value_.kind == Kind::kArray || value_.kind == Kind::kObject ? value_.size : 0; }
  template <class F>
  void each(std::size_t most, F&& f) const {
    if (value_.kind != Kind::kArray) expected("an array");
    if (value_.size > most) fail_with(fmt::format("{} elements, more than {}", value_.size, most), ErrorCode::kLimit);
    for (std::size_t i = 0; i < value_.size; ++i) f(Node(value_.elements[i], this, i));
  }
  // f(name, member) for every member of an object, by name.
  template <class F>
  void each_member(std::size_t most, F&& f) const {
    require_object();
    if (value_.size > most) fail_with(fmt::format("{} members, more than {}", value_.size, most), ErrorCode::kLimit);
    std::map<std::string, const JsonValue*> by_name;
    for (std::size_t i = 0; i < value_.size; ++i)
      by_name.emplace((*value_.object->names)[i].text(), value_.object->values + i);
    for (const auto& [name, member] : by_name) f(name, Node(*member, this, name));
  }
  // f(member) if the member exists and is not null.
  template <class F>
  [[gnu::always_inline]] void optional(const JsonKey& key, F&& f) const {
    const JsonValue* const member = find(key);
    if (member != nullptr && member->kind != Kind::kNull) f(Node(*member, this, key.text()));
  }
  template <class F>
  void required(const JsonKey& key, F&& f) const {
    const JsonValue* const member = find(key);
    if (member == nullptr) Node(value_, this, key.text()).fail_with("missing");
    f(Node(*member, this, key.text()));
  }

  std::string text() const {
    if (value_.kind != Kind::kString) expected("a string");
    return std::string(value_.string());
  }
  double real() const {
    switch (value_.kind) {
      case Kind::kNegative: return static_cast<double>(value_.negative());
      case Kind::kNatural: return static_cast<double>(value_.natural());
      case Kind::kReal: return value_.real();
      default: expected("a number");
    }
  }
  std::int64_t integer(std::int64_t least, std::int64_t most) const {
    require_whole();
    const bool too_big = value_.kind == Kind::kNatural && value_.natural() > static_cast<std::uint64_t>(INT64_MAX);
    if (too_big || value_.negative() < least || value_.negative() > most)
      fail_with(fmt::format("a number from {} to {} expected", least, most));
    return value_.negative();
  }
  std::uint64_t unsigned64() const {
    require_whole();
    if (value_.kind == Kind::kNegative) fail_with("a number from 0 expected");
    return value_.natural();
  }
  std::uint32_t uint32() const { return static_cast<std::uint32_t>(integer(0, UINT32_MAX)); }
  int int32(int least = INT_MIN) const { return static_cast<int>(integer(least, INT_MAX)); }
  bool boolean() const {
    if (value_.kind != Kind::kBoolean) expected("true or false");
    return value_.bits != 0;
  }
  std::uint64_t hex() const {
    const std::string digits = text();
    std::uint64_t number = 0;
    const char* const end = digits.data() + digits.size();
    if (digits.size() < 3 || !digits.starts_with("0x")) fail_with("expected a number in hex like \"0x7f12\"");
    const auto [stop, error] = std::from_chars(digits.data() + 2, end, number, 16);
    if (error != std::errc{} || stop != end) fail_with("expected a number in hex like \"0x7f12\"");
    return number;
  }
  template <class E, std::size_t N>
  E word(const WordTable<E, N>& table) const {
    const std::string found_word = text();
    if (const auto value = value_of(table, found_word)) return *value;
    std::string words;
    for (const auto& [e, word] : table) words += (words.empty() ? "" : ", ") + std::string(word);
    fail_with(fmt::format("expected one of {}", words));
  }

 private:
  using Kind = JsonValue::Kind;

  [[gnu::always_inline]] const JsonValue* find(const JsonKey& key) const {
    return value_.kind == Kind::kObject ? value_.find(key) : nullptr;
  }
  void require_whole() const {
    if (value_.kind == Kind::kReal) expected("a whole number");
    if (value_.kind != Kind::kNegative && value_.kind != Kind::kNatural) expected("a number");
  }
  std::string_view found() const {
    switch (value_.kind) {
      case Kind::kNull: return "null";
      case Kind::kObject: return "an object";
      case Kind::kArray: return "an array";
      case Kind::kString: return "a string";
      case Kind::kBoolean: return "true or false";
      default: return "a number";
    }
  }

  const JsonValue& value_;
  const Node* parent_;
  std::string_view key_;
  std::size_t index_ = SIZE_MAX;
};

}  // namespace rankstacks::report
