#include "report/json_document.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "report/json_error.h"
#include "report/json_storage.h"

namespace rankstacks::report {
namespace {

using Kind = JsonValue::Kind;

constexpr std::size_t kMaxMembers = std::numeric_limits<std::uint32_t>::max();

bool is_container(const JsonValue& value) { return value.kind == Kind::kArray || value.kind == Kind::kObject; }

std::size_t mix(std::size_t hash, std::size_t more) { return (hash ^ more) * 0x9e3779b97f4a7c15u + (hash >> 29); }

// Of values that are no containers. Real numbers are compared by their bits.
bool is_equal(const JsonValue& a, const JsonValue& b) {
  if (a.kind != b.kind || a.size != b.size) return false;
  return a.kind == Kind::kString ? a.string() == b.string() : a.bits == b.bits;
}
std::size_t hash_of(const JsonValue& value) {
  const std::size_t content =
      value.kind == Kind::kString ? std::hash<std::string_view>{}(value.string()) : std::size_t{value.bits};
  return mix(static_cast<std::size_t>(value.kind), content);
}

// An object that has no containers in it.
struct FlatObject {
  JsonValue value;
  std::size_t hash;

  explicit FlatObject(const JsonValue& object)
      : value(object), hash(reinterpret_cast<std::uintptr_t>(object.object->names)) {
    for (std::uint32_t i = 0; i < value.size; ++i) hash = mix(hash, hash_of(value.object->values[i]));
  }
  bool operator==(const FlatObject& other) const {
    const JsonObject &a = *value.object, &b = *other.value.object;
    return hash == other.hash && a.names == b.names && std::equal(a.values, a.values + value.size, b.values, is_equal);
  }
};

struct HashOfFlatObject {
  std::size_t operator()(const FlatObject& object) const { return object.hash; }
};

}  // namespace

JsonDocument::JsonDocument() : storage_(std::make_unique<Storage>()) {}
JsonDocument::JsonDocument(JsonDocument&&) noexcept = default;
JsonDocument& JsonDocument::operator=(JsonDocument&&) noexcept = default;
JsonDocument::~JsonDocument() = default;

// Takes nlohmann's SAX events. The values of what is open are on a stack; a container that closes is copied from there.
class JsonBuilder final : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit JsonBuilder(int depth) : depth_(static_cast<std::size_t>(depth)) {}

  JsonDocument document;
  std::string error;
  ErrorCode code = ErrorCode::kMalformed;

  bool null() override { return add({}); }
  bool boolean(bool value) override {
    JsonValue made{Kind::kBoolean};
    made.bits = value ? 1 : 0;
    return add(made);
  }
  bool number_integer(number_integer_t value) override {
    JsonValue made{value < 0 ? Kind::kNegative : Kind::kNatural};  // "-0" is such an event
    made.bits = static_cast<std::uint64_t>(value);
    return add(made);
  }
  bool number_unsigned(number_unsigned_t value) override {
    JsonValue made{Kind::kNatural};
    made.bits = value;
    return add(made);
  }
  bool number_float(number_float_t value, const string_t&) override {
    JsonValue made{Kind::kReal};
    made.bits = std::bit_cast<std::uint64_t>(value);
    return add(made);
  }
  bool string(string_t& text) override {
    if (text.size() > kMaxMembers) return give_up(ErrorCode::kLimit, "a string of more than 4 GiB");
    JsonValue made{Kind::kString, static_cast<std::uint32_t>(text.size())};
    made.text = arena().copy(text).data();
    return add(made);
  }
  bool binary(binary_t&) override { return false; }  // no event of a text
  bool key(string_t& name) override {
    auto known = keys_.find(name);
    if (known == keys_.end()) {
      // Not in the arena: what is there goes again with an object that is known.
      const std::string_view text = document.storage_->texts_of_keys.emplace_back(name);
      known = keys_.emplace(text, &document.storage_->keys.emplace_back(text)).first;
    }
    key_ = known->second;
    return true;
  }
  bool start_object(std::size_t) override { return open(Kind::kObject); }
  bool start_array(std::size_t) override { return open(Kind::kArray); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception& e) override {
    error = json_error_text(e);
    return false;
  }

 private:
  struct Open {
    Kind kind;
    const JsonKey* key;  // its own, in the object around it
    std::size_t begin;   // of its values in values_
    Arena::Mark mark;
    bool is_flat = true;
  };

  Arena& arena() { return document.storage_->arena; }

  bool give_up(ErrorCode why, std::string what) {
    code = why;
    error = std::move(what);
    return false;
  }

  bool add(const JsonValue& value) {
    if (open_.empty()) {
      document.root_ = value;
      return true;
    }
    if (is_container(value)) open_.back().is_flat = false;
    names_.push_back(key_);
    values_.push_back(value);
    return true;
  }

  bool open(Kind kind) {
    if (open_.size() == depth_)
      return give_up(ErrorCode::kMalformed, fmt::format("nested deeper than {} levels", depth_));
    open_.push_back({kind, key_, values_.size(), arena().mark()});
    key_ = nullptr;
    return true;
  }

  bool close() {
    const Open closed = open_.back();
    open_.pop_back();
    const std::size_t size = values_.size() - closed.begin;
    if (size > kMaxMembers) return give_up(ErrorCode::kLimit, "more than 2^32 - 1 values in one");
    const JsonValue* const first = values_.data() + closed.begin;
    JsonValue made{closed.kind, static_cast<std::uint32_t>(size)};
    if (closed.kind == Kind::kArray) {
      JsonValue* const elements = arena().allocate<JsonValue>(size);
      std::copy_n(first, size, elements);
      made.elements = elements;
    } else {
      made = object_of(closed, first, size);
    }
    names_.resize(closed.begin);
    values_.resize(closed.begin);
    key_ = closed.key;
    return add(made);
  }

  JsonValue object_of(const Open& closed, const JsonValue* first, std::size_t size) {
    const auto& names = document.storage_->names.of(names_.data() + closed.begin, size);
    const JsonValue made = document.storage_->object(names, first);
    if (!closed.is_flat) return made;
    const auto [known, is_new] = flat_.insert(FlatObject(made));
    if (!is_new) arena().rewind(closed.mark);
    return known->value;
  }

  const std::size_t depth_;
  std::vector<Open> open_;
  std::vector<JsonValue> values_;      // of all that is open
  std::vector<const JsonKey*> names_;  // of these; those of arrays' elements have no meaning
  const JsonKey* key_ = nullptr;       // of the value that comes next
  std::unordered_map<std::string_view, const JsonKey*> keys_;
  std::unordered_set<FlatObject, HashOfFlatObject> flat_;
};

Result<JsonDocument> JsonDocument::read(std::string_view text, int depth, const std::string& subject) {
  JsonBuilder builder(depth);
  if (nlohmann::json::sax_parse(text, &builder)) return std::move(builder.document);
  Error error;
  error.code = builder.code;
  error.subject = subject;
  error.what = std::move(builder.error);
  return fail(std::move(error));
}

}  // namespace rankstacks::report
