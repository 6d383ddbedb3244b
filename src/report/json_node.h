// A value of a report that is being read, with its place in the document. A value that does not fit throws a Defect
// that names that place.
#pragma once

#include <charconv>
#include <climits>
#include <cstdint>
#include <string>
#include <string_view>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/result.h"
#include "report/json_words.h"

namespace rankstacks::report {

using Json = nlohmann::json;

// Thrown by Node only, caught in read_json_report.
struct Defect {
  ErrorCode code;
  std::string what;
};

// A value with its place in the document, such as "ranks[3].threads[0].tid".
class Node {
 public:
  Node(const Json& value, const Node* parent, std::string_view key) : value_(value), parent_(parent), key_(key) {}
  Node(const Json& value, const Node* parent, std::size_t index) : value_(value), parent_(parent), index_(index) {}

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

  bool is_null() const { return value_.is_null(); }

  void require_object() const {
    if (!value_.is_object()) expected("an object");
  }
  template <class F>
  void each(std::size_t most, F&& f) const {
    if (!value_.is_array()) expected("an array");
    if (value_.size() > most)
      fail_with(fmt::format("{} elements, more than {}", value_.size(), most), ErrorCode::kLimit);
    std::size_t index = 0;
    for (const Json& element : value_) f(Node(element, this, index++));
  }
  // f(name, member) for every member of an object.
  template <class F>
  void each_member(std::size_t most, F&& f) const {
    require_object();
    if (value_.size() > most)
      fail_with(fmt::format("{} members, more than {}", value_.size(), most), ErrorCode::kLimit);
    for (const auto& [name, member] : value_.items()) f(name, Node(member, this, name));
  }
  // f(member) if the member exists and is not null.
  template <class F>
  void optional(std::string_view key, F&& f) const {
    const auto it = value_.find(key);
    if (it == value_.end() || it->is_null()) return;
    f(Node(*it, this, key));
  }
  template <class F>
  void required(std::string_view key, F&& f) const {
    const auto it = value_.find(key);
    if (it == value_.end()) Node(value_, this, key).fail_with("missing");
    f(Node(*it, this, key));
  }

  std::string text() const {
    if (!value_.is_string()) expected("a string");
    return value_.get<std::string>();
  }
  double real() const {
    if (!value_.is_number()) expected("a number");
    return value_.get<double>();
  }
  std::int64_t integer(std::int64_t least, std::int64_t most) const {
    if (!value_.is_number()) expected("a number");
    if (!value_.is_number_integer()) expected("a whole number");
    const bool too_big =
        value_.is_number_unsigned() && value_.get<std::uint64_t>() > static_cast<std::uint64_t>(INT64_MAX);
    if (too_big || value_.get<std::int64_t>() < least || value_.get<std::int64_t>() > most)
      fail_with(fmt::format("a number from {} to {} expected", least, most));
    return value_.get<std::int64_t>();
  }
  std::uint64_t unsigned64() const {
    if (!value_.is_number()) expected("a number");
    if (!value_.is_number_integer()) expected("a whole number");
    if (!value_.is_number_unsigned() && value_.get<std::int64_t>() < 0) fail_with("a number from 0 expected");
    return value_.get<std::uint64_t>();
  }
  std::uint32_t uint32() const { return static_cast<std::uint32_t>(integer(0, UINT32_MAX)); }
  int int32(int least = INT_MIN) const { return static_cast<int>(integer(least, INT_MAX)); }
  bool boolean() const {
    if (!value_.is_boolean()) expected("true or false");
    return value_.get<bool>();
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
  std::string_view found() const {
    switch (value_.type()) {
      case Json::value_t::null: return "null";
      case Json::value_t::object: return "an object";
      case Json::value_t::array: return "an array";
      case Json::value_t::string: return "a string";
      case Json::value_t::boolean: return "true or false";
      default: return "a number";
    }
  }

  const Json& value_;
  const Node* parent_;
  std::string_view key_;
  std::size_t index_ = SIZE_MAX;
};

}  // namespace rankstacks::report
