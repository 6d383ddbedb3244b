#include "python/exception_text.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include <fmt/format.h>

namespace rankstacks::python {
namespace {

constexpr std::size_t kWord = sizeof(Address);
constexpr std::size_t kLongestName = 256, kLongestPath = 4096;
constexpr std::size_t kMaxClasses = 64;   // of the order in which a class's bases are looked through
constexpr std::size_t kMaxItems = 128;    // of one tuple: 200 characters hold no more, with what separates them
constexpr std::size_t kFieldsBehind = 6;  // words that follow those of BaseException

// PyTypeObject, by words: from tp_flags back to tp_str and tp_repr, from tp_base on to tp_mro. The same in every
// CPython 3.
constexpr std::size_t kStrBeforeFlags = 4, kReprBeforeFlags = 10, kMroBehindBase = 11;

// Py_TPFLAGS_*: the same since 3.0.
constexpr std::uint64_t kHeapType = 1u << 9;

struct Character {
  char32_t code = 0;
  std::string_view bytes;
};

// The first character of `utf8`, which is not empty and is what decode_characters() has made.
Character first_of(std::string_view utf8) {
  const auto lead = static_cast<unsigned char>(utf8[0]);
  const std::size_t size = std::min<std::size_t>(utf8.size(), lead < 0x80 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4);
  char32_t code = size == 1 ? lead : lead & (0x7f >> size);
  for (std::size_t i = 1; i < size; ++i) code = code << 6 | (static_cast<unsigned char>(utf8[i]) & 0x3f);
  return {code, utf8.substr(0, size)};
}

// str.isprintable(), of the characters that Unicode calls control, format, private or separator; of those that have no
// meaning yet, as each version of Python knows others, none.
bool is_printable(char32_t c) {
  struct Span {
    char32_t first, last;
  };
  constexpr std::array<Span, 17> kOthers = {{{0x00, 0x1f},
                                             {0x7f, 0xa0},
                                             {0xad, 0xad},
                                             {0x600, 0x605},
                                             {0x61c, 0x61c},
                                             {0x6dd, 0x6dd},
                                             {0x70f, 0x70f},
                                             {0x1680, 0x1680},
                                             {0x180e, 0x180e},
                                             {0x2000, 0x200f},
                                             {0x2028, 0x202f},
                                             {0x205f, 0x206f},
                                             {0x3000, 0x3000},
                                             {0xd800, 0xf8ff},
                                             {0xfeff, 0xfeff},
                                             {0xfff9, 0xfffb},
                                             {0xe0000, 0x10ffff}}};
  return std::none_of(kOthers.begin(), kOthers.end(), [&](const Span& s) { return s.first <= c && c <= s.last; });
}

std::string escaped(char32_t c) {
  const auto number = static_cast<std::uint32_t>(c);
  return c <= 0xff     ? fmt::format("\\x{:02x}", number)
         : c <= 0xffff ? fmt::format("\\u{:04x}", number)
                       : fmt::format("\\U{:08x}", number);
}

// What repr() has for a character that it does not show as it is; "" for others.
std::string escape_of(char32_t c, char quote) {
  switch (c) {
    case '\\': return "\\\\";
    case '\t': return "\\t";
    case '\n': return "\\n";
    case '\r': return "\\r";
    default: return c == static_cast<unsigned char>(quote) ? std::string{'\\', quote} : "";
  }
}

char quote_for(std::string_view text) {
  return text.find('\'') != std::string_view::npos && text.find('"') == std::string_view::npos ? '"' : '\'';
}

}  // namespace

std::string repr_of_float(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  constexpr double kLeastFixed = 1e-4, kLeastScientific = 1e16;
  const double size = std::fabs(value);
  const bool fixed = value == 0 || (size >= kLeastFixed && size < kLeastScientific);
  std::array<char, 64> digits{};
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value,
                                 fixed ? std::chars_format::fixed : std::chars_format::scientific)
                       .ptr;
  std::string text(digits.data(), end);
  if (fixed && text.find('.') == std::string::npos) text += ".0";
  return text;
}

std::string repr_of_text(std::string_view utf8) {
  const char quote = quote_for(utf8);
  std::string text(1, quote);
  while (!utf8.empty()) {
    const Character c = first_of(utf8);
    utf8.remove_prefix(c.bytes.size());
    std::string escape = escape_of(c.code, quote);
    if (escape.empty() && !is_printable(c.code)) escape = escaped(c.code);
    text += escape.empty() ? std::string(c.bytes) : escape;
  }
  return text + quote;
}

// The beginning of a message: takes whole characters until it has kLongestMessage of them.
class ExceptionText::Text {
 public:
  void add(std::string_view utf8) {
    while (!utf8.empty() && !full()) {
      const Character c = first_of(utf8);
      utf8.remove_prefix(c.bytes.size());
      text_ += c.bytes;
      ++characters_;
    }
  }
  bool full() const { return characters_ >= kLongestMessage; }
  std::string take() { return std::move(text_); }

 private:
  std::string text_;
  std::size_t characters_ = 0;
};

std::size_t ExceptionText::size() const { return fields_of(0) + kFieldsBehind * kWord; }

// From 3.6 to 3.15 the last fields of PyBaseExceptionObject are traceback, context, cause, and a char.
Address ExceptionText::fields_of(Address exception) const {
  return exception + layout_.exception_traceback + 4 * kWord;
}

std::optional<std::string> ExceptionText::of(Address exception) {
  Text text;
  std::size_t count = 0;
  const auto items = items_of(word_at(exception + layout_.exception_args), count);
  if (!add_exception(text, exception, 0)) return std::nullopt;
  std::string said = text.take();
  return items && count == 0 && said.empty() ? std::nullopt : std::optional(std::move(said));
}

std::optional<std::string> ExceptionText::of_argument(Address type, Address argument) {
  std::size_t count = 1;
  std::vector<Address> items = {argument};
  if (is_builtin(argument, "tuple")) {
    auto several = items_of(argument, count);
    if (!several) return std::nullopt;
    items = std::move(*several);
  }
  if (argument == 0 || count == 0) return std::nullopt;
  Text text;
  const Form form = form_of(type);
  if (form == Form::kOs && count > 1 && items.size() == count) {
    constexpr std::size_t kFile = 2, kOtherFile = 4;
    const auto item = [&](std::size_t i) { return i < count ? items[i] : 0; };
    if (!add_os(text, items[0], items[1], item(kFile), item(kOtherFile), 0)) return std::nullopt;
  } else if (form == Form::kKey && count == 1) {
    if (!add_repr(text, items[0], 0)) return std::nullopt;
  } else if (!add_arguments(text, items, count, 0)) {
    return std::nullopt;
  }
  return text.take();
}

// False: nothing of it is known. What was added is then worth nothing.
bool ExceptionText::add_exception(Text& text, Address exception, int depth) {
  const Address fields = fields_of(exception);
  const auto field = [&](std::size_t n) { return word_at(fields + n * kWord); };
  std::size_t count = 0;
  const auto items = items_of(word_at(exception + layout_.exception_args), count);
  switch (form_of(type_of(exception))) {
    case Form::kArguments: break;
    case Form::kKey:
      if (items && count == 1 && items->size() == 1) return add_repr(text, items->front(), depth);
      break;
    case Form::kOs:
      if (field(2) != 0 || (field(0) != 0 && field(1) != 0))
        return add_os(text, field(0), field(1), field(2), field(3), depth);
      break;
    case Form::kSyntax: return add_syntax(text, fields, depth);
    case Form::kDecode: return add_codec(text, fields, true, depth);
    case Form::kEncode: return add_codec(text, fields, false, depth);
    case Form::kGroup: return add_group(text, fields, depth);
  }
  return items && add_arguments(text, *items, count, depth);
}

// BaseException.__str__
bool ExceptionText::add_arguments(Text& text, const std::vector<Address>& items, std::size_t count, int depth) {
  if (count == 1) return items.size() == 1 && add_str(text, items.front(), depth);
  if (count > 1) add_items(text, "()", items, count, depth);
  return items.size() == std::min(count, kMaxItems);
}

// OSError.__str__: "[Errno 2] No such file or directory: 'a' -> 'b'"
bool ExceptionText::add_os(Text& text, Address number, Address said, Address file, Address other, int depth) {
  const auto add = [&](Address object, bool quoted) {
    if (object == 0) return text.add("None");
    const bool known = quoted ? add_repr(text, object, depth + 1) : add_str(text, object, depth + 1);
    if (!known) text.add(type_in_brackets(object));
  };
  text.add("[Errno ");
  add(number, false);
  text.add("] ");
  add(said, false);
  if (file == 0) return true;
  text.add(": ");
  add(file, true);
  if (other == 0) return true;
  text.add(" -> ");
  add(other, true);
  return true;
}

// SyntaxError.__str__: "invalid syntax (train.py, line 3)". The first fields are msg, filename, lineno.
bool ExceptionText::add_syntax(Text& text, Address fields, int depth) {
  const Address said = word_at(fields), file = word_at(fields + kWord), line = word_at(fields + 2 * kWord);
  if (said == 0 || !add_str(text, said, depth + 1)) return false;
  const auto number = objects_.integer(line);
  std::string name;
  if (objects_.kind(file) == ObjectKind::kString) {
    name = text_.text(file, kLongestPath).value_or("");
    name = name.substr(name.rfind('/') + 1);
  }
  if (!name.empty() && number) text.add(fmt::format(" ({}, line {})", name, *number));
  else if (!name.empty()) text.add(fmt::format(" ({})", name));
  else if (number) text.add(fmt::format(" (line {})", *number));
  return true;
}

// UnicodeDecodeError and UnicodeEncodeError; their fields are encoding, object, start, end, reason.
bool ExceptionText::add_codec(Text& text, Address fields, bool decodes, int depth) {
  const Address encoding = word_at(fields), object = word_at(fields + kWord), reason = word_at(fields + 4 * kWord);
  const auto start = target_.read_value<std::int64_t>(fields + 2 * kWord),
             end = target_.read_value<std::int64_t>(fields + 3 * kWord);
  if (!start || !end || objects_.kind(encoding) != ObjectKind::kString || objects_.kind(reason) != ObjectKind::kString)
    return false;
  text.add("'");
  if (!add_string(text, encoding, false)) return false;
  text.add(decodes ? "' codec can't decode " : "' codec can't encode ");
  std::string what = decodes ? "bytes" : "characters";
  const bool single = *start >= 0 && *start < INT64_MAX && *end == *start + 1;
  if (single && decodes && objects_.kind(object) == ObjectKind::kBytes) {
    const auto size = target_.read_value<std::int64_t>(object + layout_.bytes_size);
    const auto byte =
        target_.read_value<std::uint8_t>(object + layout_.bytes_data + static_cast<std::uint64_t>(*start));
    if (size && *start < *size && byte) what = fmt::format("byte 0x{:02x}", *byte);
  } else if (single && !decodes && objects_.kind(object) == ObjectKind::kString) {
    if (const auto c = text_.character(object, static_cast<std::uint64_t>(*start)))
      what = fmt::format("character '{}'", escaped(*c));
  }
  text.add(what);
  if (what == "bytes" || what == "characters") text.add(fmt::format(" in position {}-{}: ", *start, *end - 1));
  else text.add(fmt::format(" in position {}: ", *start));
  return add_str(text, reason, depth + 1);
}

// "many shards (2 sub-exceptions)". The fields are the message and a tuple.
bool ExceptionText::add_group(Text& text, Address fields, int depth) {
  std::size_t count = 0;
  if (!add_str(text, word_at(fields), depth + 1) || !items_of(word_at(fields + kWord), count)) return false;
  text.add(fmt::format(" ({} sub-exception{})", count, count > 1 ? "s" : ""));
  return true;
}

// False if it is of a type that is not known, or cannot be read; then nothing was added.
bool ExceptionText::add_str(Text& text, Address object, int depth) {
  if (objects_.kind(object) == ObjectKind::kString) return add_string(text, object, false);
  if (objects_.kind(object) != ObjectKind::kException) return add_repr(text, object, depth);
  return depth < kMaxValueDepth && values_left_ > 0 && add_exception(text, object, depth + 1);
}

// Likewise.
bool ExceptionText::add_repr(Text& text, Address object, int depth) {
  if (object == 0 || values_left_ == 0) return false;
  --values_left_;
  const auto add = [&](std::string_view shown) {
    text.add(shown);
    return true;
  };
  switch (objects_.kind(object)) {
    case ObjectKind::kString: return add_string(text, object, true);
    case ObjectKind::kInt: {
      const auto number = objects_.integer(object);
      return number && add(std::to_string(*number));
    }
    case ObjectKind::kNone: return add("None");
    case ObjectKind::kBytes: return is_builtin(object, "bytes") && add_bytes(text, object);
    case ObjectKind::kException: return depth < kMaxValueDepth && add_repr_of_exception(text, object, depth);
    default: break;
  }
  if (is_builtin(object, "bool")) {
    const auto number = objects_.number(object);
    return number && add(*number != 0 ? "True" : "False");
  }
  if (is_builtin(object, "float")) {
    const auto number = target_.read_value<double>(object + layout_.object_head());
    return number && add(repr_of_float(*number));
  }
  const bool is_tuple = is_builtin(object, "tuple");
  if (depth >= kMaxValueDepth || (!is_tuple && !is_builtin(object, "list"))) return false;
  std::size_t count = 0;
  const auto items = is_tuple ? items_of(object, count) : list_of(object, count);
  if (items) add_items(text, is_tuple ? "()" : "[]", *items, count, depth);
  return items.has_value();
}

void ExceptionText::add_repr_or_type(Text& text, Address object, int depth) {
  if (!add_repr(text, object, depth)) text.add(type_in_brackets(object));
}

// `count`: of which `items` are the first.
void ExceptionText::add_items(Text& text, std::string_view ends, const std::vector<Address>& items, std::size_t count,
                              int depth) {
  text.add(ends.substr(0, 1));
  for (std::size_t i = 0; i < items.size() && !text.full(); ++i) {
    if (i > 0) text.add(", ");
    add_repr_or_type(text, items[i], depth + 1);
  }
  if (items.size() < count) text.add(", ...");
  text.add(count == 1 && ends == "()" ? ",)" : ends.substr(1));
}

// BaseException.__repr__: "ValueError('x')"; up to 3.6 "ValueError('x',)"
bool ExceptionText::add_repr_of_exception(Text& text, Address exception, int depth) {
  const Address type = type_of(exception);
  std::size_t count = 0;
  const auto items = items_of(word_at(exception + layout_.exception_args), count);
  if (!items || name_of(owner_of(type, kReprBeforeFlags)) != "BaseException") return false;
  text.add(name_of(type));
  constexpr int kFirstWithoutComma = 7;
  if (count != 1 || layout_.minor < kFirstWithoutComma) {
    add_items(text, "()", *items, count, depth);
    return true;
  }
  text.add("(");
  if (!items->empty()) add_repr_or_type(text, items->front(), depth + 1);
  text.add(")");
  return true;
}

bool ExceptionText::add_bytes(Text& text, Address object) {
  const auto size = target_.read_value<std::uint64_t>(object + layout_.bytes_size);
  if (!size) return false;
  std::string bytes(static_cast<std::size_t>(std::min<std::uint64_t>(*size, kLongestMessage)), '\0');
  if (!target_.read_exact(object + layout_.bytes_data, std::as_writable_bytes(std::span(bytes)))) return false;
  const char quote = quote_for(bytes);
  std::string shown = {'b', quote};
  for (const char byte : bytes) {
    const auto code = static_cast<unsigned char>(byte);
    const std::string escape = escape_of(code, quote);
    if (!escape.empty()) shown += escape;
    else if (code >= 0x20 && code < 0x7f) shown += byte;
    else shown += escaped(code);
  }
  text.add(shown + quote);
  return true;
}

bool ExceptionText::add_string(Text& text, Address string, bool quoted) {
  const auto beginning = text_.beginning(string, kLongestMessage);
  if (beginning) text.add(quoted ? repr_of_text(*beginning) : *beginning);
  return beginning.has_value();
}

// Without its module.
std::string ExceptionText::name_of(Address type) const {
  const std::string name = target_.read_c_string(word_at(type + layout_.type_name), kLongestName).value_or("");
  return name.substr(name.rfind('.') + 1);
}

std::string ExceptionText::type_in_brackets(Address object) const {
  const std::string name = name_of(type_of(object));
  return fmt::format("<{}>", name.empty() ? "?" : name);
}

// Whether it is of exactly that type, which is the interpreter's own.
bool ExceptionText::is_builtin(Address object, std::string_view name) {
  if (objects_.kind(object) == ObjectKind::kUnnamed) return false;
  const Address type = type_of(object);
  const auto flags = objects_.flags(type);
  return flags && !(*flags & kHeapType) && name_of(type) == name;
}

std::optional<std::vector<Address>> ExceptionText::items_of(Address tuple, std::size_t& count) {
  if (objects_.kind(tuple) != ObjectKind::kTuple) return std::nullopt;
  const auto size = target_.read_value<std::uint64_t>(tuple + layout_.tuple_size);
  if (!size || *size > INT64_MAX) return std::nullopt;
  count = static_cast<std::size_t>(*size);
  return first_items(tuple + layout_.tuple_items, count);
}

// PyListObject: the number of items is where a tuple has it; then comes the address of the items.
std::optional<std::vector<Address>> ExceptionText::list_of(Address list, std::size_t& count) {
  const auto size = target_.read_value<std::uint64_t>(list + layout_.tuple_size);
  if (!size || *size > INT64_MAX) return std::nullopt;
  count = static_cast<std::size_t>(*size);
  return first_items(word_at(list + layout_.tuple_size + kWord), count);
}

// None if they cannot be read.
std::vector<Address> ExceptionText::first_items(Address items, std::size_t count) {
  std::vector<Address> first(std::min(count, kMaxItems));
  if (!target_.read_exact(items, std::as_writable_bytes(std::span(first)))) first.clear();
  objects_.prefetch(first);
  return first;
}

// The class that a slot of `type` comes from: the last of its bases that has the same function there.
Address ExceptionText::owner_of(Address type, std::size_t words_before_flags) {
  const auto slot = [&](Address of) { return word_at(of + layout_.type_flags - words_before_flags * kWord); };
  const Address function = slot(type);
  const auto classes = objects_.tuple(word_at(type + layout_.type_base + kMroBehindBase * kWord), kMaxClasses);
  Address owner = type;
  for (const Address one : classes.value_or(std::vector<Address>{}))
    if (function != 0 && slot(one) == function) owner = one;
  return owner;
}

ExceptionText::Form ExceptionText::form_of(Address type) {
  const auto [known, is_new] = forms_.try_emplace(type, Form::kArguments);
  if (!is_new) return known->second;
  const Address owner = owner_of(type, kStrBeforeFlags);
  const auto flags = objects_.flags(owner);
  // A class of the program's may have the same name.
  if (!flags || (*flags & kHeapType)) return known->second;
  constexpr std::array<std::pair<std::string_view, Form>, 6> kForms = {{{"KeyError", Form::kKey},
                                                                        {"OSError", Form::kOs},
                                                                        {"SyntaxError", Form::kSyntax},
                                                                        {"UnicodeDecodeError", Form::kDecode},
                                                                        {"UnicodeEncodeError", Form::kEncode},
                                                                        {"BaseExceptionGroup", Form::kGroup}}};
  const std::string name = name_of(owner);
  for (const auto& [of, form] : kForms)
    if (name == of) known->second = form;
  return known->second;
}

}  // namespace rankstacks::python
