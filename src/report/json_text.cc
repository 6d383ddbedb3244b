#include "report/json_text.h"

#include <cmath>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "report/sanitize.h"

namespace rankstacks::report {

std::string json_quoted(std::string_view text) {
  // Most names are plain ASCII; the library handles the others.
  bool plain = true;
  for (const char c : text) plain = plain && c >= 0x20 && c < 0x7f && c != '"' && c != '\\';
  if (plain) {
    std::string out;
    out.reserve(text.size() + 2);
    return out.append(1, '"').append(text).append(1, '"');
  }
  return escape_in_json(nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
}

void JsonText::new_line() {
  out_ += '\n';
  out_.append(levels_.size(), ' ');
}

void JsonText::before_value() {
  if (after_key_) {
    after_key_ = false;
    return;
  }
  if (levels_.empty()) return;
  Level& level = levels_.back();
  if (!level.empty) out_ += level.lines ? "," : ", ";
  level.empty = false;
  if (level.lines) new_line();
}

void JsonText::open(char bracket, bool lines) {
  before_value();
  out_ += bracket;
  levels_.push_back({bracket == '{' ? '}' : ']', lines});
}

void JsonText::open_document(std::string_view tool_version) {
  open('{', true);
  key("schema"), number(1);
  key("tool");
  open('{');
  field("name", "rankstacks");
  key("version"), string(tool_version);
  close();
}

void JsonText::close() {
  const Level level = levels_.back();
  levels_.pop_back();
  if (level.lines && !level.empty) new_line();
  out_ += level.close;
}

void JsonText::key(std::string_view name) {
  before_value();
  out_.append(1, '"').append(name).append("\": ");
  after_key_ = true;
}

void JsonText::foreign_key(std::string_view name) {
  before_value();
  out_ += json_quoted(name);
  out_ += ": ";
  after_key_ = true;
}

void JsonText::raw(std::string_view json) {
  before_value();
  out_ += json;
}

void JsonText::number(double value) {
  if (!std::isfinite(value)) return null();
  raw(fmt::format("{}", value));
}

void JsonText::hex(Address value) { raw(fmt::format("\"{:#x}\"", value)); }

}  // namespace rankstacks::report
