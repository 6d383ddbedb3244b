#include "report/lined_json.h"

#include <algorithm>
#include <iterator>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "report/json_error.h"
#include "report/sanitize.h"

namespace rankstacks::report {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kMaxNames = 64;  // each name is compared with all names before it

// An iterator over the text that counts lines. The library copies it; all copies share one count.
struct Position {
  std::size_t line = 1;
  char last = '\0';
};

class CountingIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  CountingIterator(const char* at, Position* position) : at_(at), position_(position) {}
  reference operator*() const { return *at_; }
  CountingIterator& operator++() {
    position_->last = *at_;
    position_->line += *at_ == '\n' ? 1 : 0;
    ++at_;
    return *this;
  }
  bool operator==(const CountingIterator& other) const { return at_ == other.at_; }
  bool operator!=(const CountingIterator& other) const { return at_ != other.at_; }

 private:
  const char* at_;
  Position* position_;
};

class Builder : public nlohmann::json_sax<Json> {
 public:
  Builder(const Position& position, int depth, std::size_t values)
      : position_(position), depth_(depth), values_(values) {}

  LinedJson root;
  std::string error;  // "line 3: ..."; empty: none
  ErrorCode code = ErrorCode::kMalformed;

  bool null() override { return add(LinedJson::Kind::kNull) != nullptr; }
  bool boolean(bool value) override {
    LinedJson* made = add(LinedJson::Kind::kBoolean);
    if (made) made->boolean = value;
    return made != nullptr;
  }
  bool number_integer(number_integer_t value) override { return add_number(static_cast<double>(value)); }
  bool number_unsigned(number_unsigned_t value) override { return add_number(static_cast<double>(value)); }
  bool number_float(number_float_t value, const string_t&) override { return add_number(value); }
  bool string(string_t& value) override {
    LinedJson* made = add(LinedJson::Kind::kString);
    if (made) made->text = std::move(value);
    return made != nullptr;
  }
  bool binary(binary_t&) override { return false; }
  bool start_object(std::size_t) override { return open(LinedJson::Kind::kObject); }
  bool start_array(std::size_t) override { return open(LinedJson::Kind::kArray); }
  bool end_object() override { return open_.pop_back(), true; }
  bool end_array() override { return open_.pop_back(), true; }
  bool key(string_t& name) override {
    std::vector<std::string>& names = open_.back()->names;
    if (names.size() >= kMaxNames)
      return refuse(fmt::format("more than {} names in one object", kMaxNames), ErrorCode::kLimit);
    if (std::find(names.begin(), names.end(), name) != names.end())
      return refuse(fmt::format("found {} a second time in one object, expected each name once", in_quotes(name)));
    names.push_back(std::move(name));
    return true;
  }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception& e) override {
    error = json_error_text(e);
    if (e.id == kNumberOutOfRange) error = fmt::format("line {}: {}", line_of_number(), error);
    return false;
  }

 private:
  bool refuse(std::string what, ErrorCode why = ErrorCode::kMalformed) {
    error = fmt::format("line {}: {}", position_.line, what);
    code = why;
    return false;
  }
  bool add_number(double value) {
    LinedJson* made = add(LinedJson::Kind::kNumber);
    if (!made) return false;
    made->number = value;
    made->line = line_of_number();
    return true;
  }
  // The end of a number is only known when the character after it has been read.
  std::size_t line_of_number() const { return position_.line - (position_.last == '\n' ? 1 : 0); }
  LinedJson* add(LinedJson::Kind kind) {
    if (++count_ > values_) return refuse(fmt::format("more than {} values", values_), ErrorCode::kLimit), nullptr;
    LinedJson* made = &root;
    if (!open_.empty()) made = &open_.back()->items.emplace_back();
    made->kind = kind;
    made->line = position_.line;
    return made;
  }
  bool open(LinedJson::Kind kind) {
    if (static_cast<int>(open_.size()) >= depth_)
      return refuse(fmt::format("nested deeper than {} levels", depth_), ErrorCode::kLimit);
    LinedJson* made = add(kind);
    if (made) open_.push_back(made);  // its own list only grows after the values inside of it have been closed
    return made != nullptr;
  }

  const Position& position_;
  const int depth_;
  const std::size_t values_;
  std::size_t count_ = 0;
  std::vector<LinedJson*> open_;
};

}  // namespace

Result<LinedJson> read_lined_json(std::string_view text, const std::string& subject, int depth, std::size_t values) {
  Position position;
  Builder builder(position, depth, values);
  const bool whole = Json::sax_parse(CountingIterator(text.data(), &position),
                                     CountingIterator(text.data() + text.size(), &position), &builder);
  if (!whole)
    return fail({.code = builder.code, .subject = subject, .what = builder.error.empty() ? "not JSON" : builder.error});
  return std::move(builder.root);
}

}  // namespace rankstacks::report
