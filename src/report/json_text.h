// JSON text written piece by piece into one string, without a tree in memory: a job of 500 ranks needs only the memory
// of its text.
#pragma once

#include <concepts>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/types.h"

namespace rankstacks::report {

// A string as a JSON string with its quotes. Invalid UTF-8 becomes U+FFFD; control characters, and other characters
// that affect a terminal, become \uXXXX: the result is always valid, and represents the same text.
std::string json_quoted(std::string_view text);

class JsonText {
 public:
  explicit JsonText(std::size_t reserve) { out_.reserve(reserve); }

  // `{` or `[`; its elements are on lines of their own, indented, if `lines`.
  void open(char bracket, bool lines = false);
  void close();
  void key(std::string_view name);          // one of the program's own words, which needs no escaping
  void foreign_key(std::string_view name);  // any bytes

  void raw(std::string_view json);  // one finished JSON value
  void null() { raw("null"); }
  void string(std::string_view text) { raw(json_quoted(text)); }
  void boolean(bool value) { raw(value ? "true" : "false"); }
  void number(double value);  // null if JSON has no such number
  void number(std::integral auto value) { raw(std::to_string(value)); }
  void hex(Address value);

  template <class T>
  void field(std::string_view name, const std::optional<T>& value) {
    key(name);
    if (!value) null();
    else if constexpr (std::is_same_v<T, bool>) boolean(*value);
    else if constexpr (std::is_arithmetic_v<T>) number(*value);
    else string(*value);
  }
  void field(std::string_view name, const std::string& value) { key(name), string(value); }
  void field(std::string_view name, const char* value) { key(name), string(value); }

  // The beginning of every document of the tool, up to its own fields: `{"schema": 1, "tool": {...}`. To be closed.
  void open_document(std::string_view tool_version);

  std::string take() { return std::move(out_); }

 private:
  void before_value();
  void new_line();

  struct Level {
    char close;
    bool lines;
    bool empty = true;
  };
  std::string out_;
  std::vector<Level> levels_;
  bool after_key_ = false;
};

}  // namespace rankstacks::report
