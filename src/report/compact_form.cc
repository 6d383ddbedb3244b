#include "report/compact_form.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <unordered_map>
#include <vector>

#include <fmt/format.h>

#include "report/json_storage.h"
#include "report/report_file.h"

namespace rankstacks::report {
namespace {

using Kind = JsonValue::Kind;

constexpr std::string_view kMagic = "rankstacks-values 1\n";

enum Tag : std::uint8_t {
  kNull,
  kFalse,
  kTrue,
  kNatural,
  kNegative,
  kReal,
  kString,
  kArray,
  kObject,
  kSharedObject,
};

// As RFC 3629 has it: no longer form than needed, no surrogates, nothing beyond U+10FFFF.
bool is_utf8(std::string_view text) {
  for (std::size_t i = 0; i < text.size();) {
    const auto first = static_cast<unsigned char>(text[i++]);
    if (first < 0x80) continue;
    const std::size_t more = first >= 0xf0 ? 3 : first >= 0xe0 ? 2 : 1;
    if (first < 0xc2 || first > 0xf4 || text.size() - i < more) return false;
    const auto second = static_cast<unsigned char>(text[i]);
    if ((first == 0xe0 && second < 0xa0) || (first == 0xed && second > 0x9f) || (first == 0xf0 && second < 0x90) ||
        (first == 0xf4 && second > 0x8f))
      return false;
    for (const std::size_t end = i + more; i < end; ++i)
      if ((static_cast<unsigned char>(text[i]) & 0xc0) != 0x80) return false;
  }
  return true;
}

bool is_flat(const JsonValue& object) {
  return std::none_of(object.object->values, object.object->values + object.size,
                      [](const JsonValue& value) { return value.kind == Kind::kArray || value.kind == Kind::kObject; });
}

class Writer {
 public:
  std::string form_of(const JsonValue& root) {
    std::string body;
    write(root, body);
    std::string whole(kMagic);
    number(strings_.size(), whole);
    for (const std::string_view text : strings_) {
      number(text.size(), whole);
      whole += text;
    }
    number(objects_, whole);
    return whole + table_ + body;
  }

 private:
  static void number(std::uint64_t value, std::string& out) {
    for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
    out += static_cast<char>(value);
  }

  void string(std::string_view text, std::string& out) {
    const auto [at, is_new] = index_of_string_.try_emplace(text, strings_.size());
    if (is_new) strings_.push_back(text);
    number(at->second, out);
  }

  void members(const JsonValue& object, std::string& out) {
    number(object.size, out);
    for (std::uint32_t i = 0; i < object.size; ++i) {
      string((*object.object->names)[i].text(), out);
      write(object.object->values[i], out);
    }
  }

  void write(const JsonValue& value, std::string& out) {
    switch (value.kind) {
      case Kind::kNull: out += kNull; return;
      case Kind::kBoolean: out += value.bits != 0 ? kTrue : kFalse; return;
      case Kind::kNatural: out += kNatural, number(value.natural(), out); return;
      case Kind::kNegative: out += kNegative, number(~value.bits, out); return;
      case Kind::kReal:
        out += kReal;
        for (int shift = 0; shift < 64; shift += 8) out += static_cast<char>(value.bits >> shift);
        return;
      case Kind::kString: out += kString, string(value.string(), out); return;
      case Kind::kArray:
        out += kArray, number(value.size, out);
        for (std::uint32_t i = 0; i < value.size; ++i) write(value.elements[i], out);
        return;
      case Kind::kObject: write_object(value, out); return;
    }
  }

  void write_object(const JsonValue& object, std::string& out) {
    if (!is_flat(object)) {
      out += kObject;
      return members(object, out);
    }
    const auto [at, is_new] = index_of_object_.try_emplace(object.object, objects_);
    if (is_new) {
      ++objects_;
      members(object, table_);
    }
    out += kSharedObject;
    number(at->second, out);
  }

  std::vector<std::string_view> strings_;
  std::unordered_map<std::string_view, std::size_t> index_of_string_;
  std::unordered_map<const JsonObject*, std::size_t> index_of_object_;
  std::size_t objects_ = 0;
  std::string table_;  // of objects
};

struct Damage {
  ErrorCode code;
  std::string what;
};

}  // namespace

class CompactReader {
 public:
  CompactReader(std::string_view bytes, int depth)
      : begin_(bytes.data()), at_(begin_), end_(begin_ + bytes.size()), depth_(depth) {}

  // Throws Damage.
  JsonDocument read() {
    if (!rest(kMagic.size()).starts_with(kMagic)) damaged("another version, or no report at all");
    at_ += kMagic.size();
    read_strings();
    read_objects();
    document_.root_ = value(0);
    if (at_ != end_) damaged("more bytes than the document has");
    return std::move(document_);
  }

 private:
  [[noreturn]] void damaged(std::string_view what) const {
    throw Damage{ErrorCode::kMalformed, fmt::format("byte {}: {}", at_ - begin_, what)};
  }

  std::size_t left() const { return static_cast<std::size_t>(end_ - at_); }
  // At most so many of the bytes that follow.
  std::string_view rest(std::size_t most) const { return {at_, std::min(most, left())}; }

  std::uint8_t byte() {
    if (at_ == end_) damaged("the document ends too early");
    return static_cast<std::uint8_t>(*at_++);
  }
  std::uint64_t number() {
    std::uint64_t value = byte();
    if (value < 0x80) return value;
    value &= 0x7f;
    for (int shift = 7;; shift += 7) {
      const std::uint64_t bits = byte();
      if (shift == 63 && bits > 1) damaged("a number of more than 64 bits");
      value |= (bits & 0x7f) << shift;
      if (bits < 0x80) return value;
    }
  }
  // Of things that take `least` bytes at least.
  std::uint32_t count(std::size_t least) {
    const std::uint64_t value = number();
    if (value > left() / least || value > UINT32_MAX) damaged("more elements than there are bytes");
    return static_cast<std::uint32_t>(value);
  }

  Arena& arena() { return document_.storage_->arena; }

  void read_strings() {
    for (std::uint32_t left = count(1); left > 0; --left) {
      add_to_text(kMinMember);
      const std::uint32_t size = count(1);
      if (!is_utf8(rest(size))) damaged("a string that is not UTF-8");
      strings_.push_back(arena().copy(rest(size)));
      at_ += size;
    }
    keys_.resize(strings_.size());
  }

  // The document as a text would have these bytes as often as it has the string.
  std::string_view string() { return strings_[index_of_string()]; }
  const JsonKey* name() {
    const std::size_t index = index_of_string();
    const JsonKey*& key = keys_[index];
    if (key == nullptr) key = &document_.storage_->keys.emplace_back(strings_[index]);
    return key;
  }
  std::size_t index_of_string() {
    const std::uint64_t index = number();
    if (index >= strings_.size()) damaged("no such string");
    add_to_text(strings_[index].size());
    return index;
  }
  void add_to_text(std::size_t size) {
    text_bytes_ += size;
    if (text_bytes_ > kMaxReportBytes)
      throw Damage{ErrorCode::kLimit, fmt::format("more than {} bytes as a text", kMaxReportBytes)};
  }

  // Its members, in the arena. They grow by what is found, not by what a number states.
  JsonValue object(bool flat, int depth) {
    const std::size_t begin = values_.size(), first_name = names_.size();
    for (std::uint32_t left = count(2); left > 0; --left) {
      add_to_text(kMinMember);
      names_.push_back(name());
      const std::uint8_t tag = byte();
      values_.push_back(flat || tag < kArray ? scalar(tag) : container(tag, depth));
    }
    const auto& names = document_.storage_->names.of(names_.data() + first_name, names_.size() - first_name);
    const JsonValue made = document_.storage_->object(names, values_.data() + begin);
    names_.resize(first_name);
    values_.resize(begin);
    return made;
  }

  // Most of those of shared objects alone that are equal have the same elements: stacks of threads at one place.
  JsonValue array(int depth) {
    const char* const from = at_;
    const std::size_t begin = values_.size();
    bool of_shared = true;
    for (std::uint32_t left = count(1); left > 0; --left) {
      add_to_text(kMinElement);
      const std::uint8_t tag = byte();
      if (tag == kSharedObject && depth < depth_) {
        values_.push_back(shared_object());
      } else {
        of_shared = false;
        values_.push_back(tag < kArray ? scalar(tag) : container(tag, depth));
      }
    }
    JsonValue made{Kind::kArray, static_cast<std::uint32_t>(values_.size() - begin)};
    const std::string_view bytes(from, static_cast<std::size_t>(at_ - from));
    List& known = lists_[of_shared ? std::hash<std::string_view>()(bytes) % lists_.size() : 0];
    if (of_shared && known.bytes == bytes) {
      made.elements = known.elements;
    } else {
      JsonValue* const elements = arena().allocate<JsonValue>(made.size);
      std::copy_n(values_.data() + begin, made.size, elements);
      made.elements = elements;
      if (of_shared) known = {bytes, elements};
    }
    values_.resize(begin);
    return made;
  }

  void read_objects() {
    for (std::uint32_t left = count(1); left > 0; --left) {
      add_to_text(kMinMember);
      const std::size_t before = text_bytes_;
      const JsonValue shared = object(true, 0);
      objects_.push_back({shared, text_bytes_ - before});
    }
  }

  JsonValue scalar(std::uint8_t tag) {
    JsonValue made;
    switch (tag) {
      case kNull: return made;
      case kFalse:
      case kTrue:
        made.kind = Kind::kBoolean;
        made.bits = tag == kTrue ? 1 : 0;
        return made;
      case kNatural:
        made.kind = Kind::kNatural;
        made.bits = number();
        return made;
      case kNegative:
        made.kind = Kind::kNegative;
        made.bits = ~number();
        if (made.negative() >= 0) damaged("a number below 0 that does not fit into 64 bits");
        return made;
      case kReal:
        made.kind = Kind::kReal;
        for (int shift = 0; shift < 64; shift += 8) made.bits |= std::uint64_t{byte()} << shift;
        if (!std::isfinite(made.real())) damaged("a number that is not finite");
        return made;
      case kString: {
        const std::string_view text = string();
        made.kind = Kind::kString;
        made.size = static_cast<std::uint32_t>(text.size());
        made.text = text.data();
        return made;
      }
      default: damaged("a value of an unknown kind");
    }
  }

  JsonValue value(int depth) {
    const std::uint8_t tag = byte();
    return tag < kArray ? scalar(tag) : container(tag, depth);
  }
  JsonValue container(std::uint8_t tag, int depth) {
    if (depth >= depth_) damaged(fmt::format("nested deeper than {} levels", depth_));
    if (tag == kArray) return array(depth + 1);
    if (tag == kObject) return object(false, depth + 1);
    if (tag != kSharedObject) damaged("a value of an unknown kind");
    return shared_object();
  }
  const JsonValue& shared_object() {
    const std::uint64_t index = number();
    if (index >= objects_.size()) damaged("no such object");
    add_to_text(objects_[index].text_bytes);
    return objects_[index].value;
  }

  struct Shared {
    JsonValue value;
    std::size_t text_bytes = 0;
  };

  struct List {
    std::string_view bytes;  // from its size on
    const JsonValue* elements = nullptr;
  };

  static constexpr std::size_t kMinElement = 2, kMinMember = 5;  // of a text: "0,", "\"\":0,"

  const char* const begin_;
  const char* at_;  // what has not been read yet
  const char* const end_;
  const int depth_;
  JsonDocument document_;
  std::vector<std::string_view> strings_;
  std::vector<const JsonKey*> keys_;  // of those strings that are names; nullptr for the others
  std::vector<Shared> objects_;
  std::vector<JsonValue> values_;  // of all objects and arrays that are being read
  std::vector<const JsonKey*> names_;
  std::array<List, 256> lists_;  // some of the last ones of shared objects alone
  std::size_t text_bytes_ = 0;
};

std::string compact_form(const JsonDocument& document) { return Writer().form_of(document.root()); }

Result<JsonDocument> read_compact_form(std::string_view bytes, int depth, const std::string& subject) {
  try {
    return CompactReader(bytes, depth).read();
  } catch (const Damage& damage) {
    Error error;
    error.code = damage.code;
    error.subject = subject;
    error.what = damage.what;
    return fail(std::move(error));
  }
}

std::string as_compact_form(std::string text, int depth) {
  const auto document = JsonDocument::read(text, depth, "");
  return document ? compact_form(*document) : std::move(text);
}

Result<JsonDocument> read_text_or_compact_form(std::string_view bytes, int depth, const std::string& subject) {
  return bytes.starts_with(kMagic) ? read_compact_form(bytes, depth, subject)
                                   : JsonDocument::read(bytes, depth, subject);
}

}  // namespace rankstacks::report
