#include "flight_recorder/dump_json.h"

#include <climits>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace rankstacks::flight_recorder {
namespace {

using Json = nlohmann::json;

class Builder : public nlohmann::json_sax<Json> {
 public:
  Document document;
  std::string error;
  bool malformed = false;

  bool null() override { return add({}).second; }
  bool boolean(bool value) override { return add({.kind = Kind::kBoolean, .integer = value ? 1 : 0}).second; }
  bool number_integer(number_integer_t value) override {
    return add({.kind = Kind::kInteger, .integer = value}).second;
  }
  bool number_unsigned(number_unsigned_t value) override {
    if (value > static_cast<number_unsigned_t>(INT64_MAX)) return give_up("a number of more than 63 bits");
    return add({.kind = Kind::kInteger, .integer = static_cast<std::int64_t>(value)}).second;
  }
  bool number_float(number_float_t value, const string_t&) override {
    return add({.kind = Kind::kReal, .real = value}).second;
  }
  bool string(string_t& value) override { return add({.kind = Kind::kText, .text = value}).second; }
  bool binary(binary_t&) override { return false; }
  bool key(string_t& value) override { return add({.kind = Kind::kText, .text = value}).second; }
  bool start_object(std::size_t) override { return open(Kind::kDict); }
  bool start_array(std::size_t) override { return open(Kind::kList); }
  bool end_object() override { return open_.pop_back(), true; }
  bool end_array() override { return open_.pop_back(), true; }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception&) override {
    malformed = true;
    error = fmt::format("neither a pickle nor JSON from byte {} on", position);
    return false;
  }

 private:
  bool give_up(std::string what) {
    error = std::move(what);
    return false;
  }
  std::pair<ValueId, bool> add(Value value) {
    if (document.values.size() >= kMaxValues) return {0, give_up(fmt::format("more than {} values", kMaxValues))};
    const auto id = static_cast<ValueId>(document.values.size());
    document.values.push_back(std::move(value));
    if (!open_.empty()) document.values[open_.back()].items.push_back(id);
    return {id, true};
  }
  bool open(Kind kind) {
    if (open_.size() >= kMaxDepth) return give_up(fmt::format("nested deeper than {} levels", kMaxDepth));
    const auto [id, added] = add({.kind = kind});
    if (added) open_.push_back(id);
    return added;
  }
  std::vector<ValueId> open_;
};

}  // namespace

Result<Document> read_json(std::string_view text, const std::string& subject) {
  Builder builder;
  if (text.size() > kMaxBytes) builder.error = fmt::format("it has more than {} bytes", kMaxBytes);
  else if (Json::sax_parse(text, &builder)) return std::move(builder.document);
  return fail({.code = builder.malformed ? ErrorCode::kMalformed : ErrorCode::kLimit,
               .subject = subject,
               .what = builder.error.empty() ? "it cannot be read" : builder.error,
               .hint = builder.malformed ? "a dump of the Flight Recorder was expected; one that is still being "
                                           "written is not complete yet"
                                         : ""});
}

}  // namespace rankstacks::flight_recorder
