#include "python/object_values.h"

#include <algorithm>
#include <string_view>

#include <fmt/format.h>

#include "base/text.h"

namespace rankstacks::python {
namespace {

using Kind = PythonValue::Kind;

constexpr std::size_t kLongestTypeName = 128;
constexpr std::ptrdiff_t kLeast = 5;  // repr_of() has no room for an item then
constexpr Address kWord = sizeof(Address);

// Py_TPFLAGS_*: the same since 3.0.
constexpr std::uint64_t kIntSubclass = 1u << 24, kListSubclass = 1u << 25, kTupleSubclass = 1u << 26,
                        kStringSubclass = 1u << 28, kDictSubclass = 1u << 29;

// py-spy shows ints of two digits, of 30 bits each.
constexpr std::int64_t kLargestInt = (std::int64_t{1} << 60) - 1;

PythonValue word(std::string text) { return {.kind = Kind::kWord, .text = std::move(text), .items = {}}; }

PythonValue left_out() { return word("..."); }

std::ptrdiff_t size_of(const PythonValue& value, std::ptrdiff_t longest) {
  return static_cast<std::ptrdiff_t>(repr_of(value, longest).size());
}

template <class T>
std::optional<PythonValue> number_at(const target::Target& target, Address at) {
  const auto value = target.read_value<T>(at);
  if (!value) return std::nullopt;
  return word(fmt::format("{}", *value));
}

}  // namespace

PythonValue ValueReader::read(Address object, std::ptrdiff_t longest) {
  of_variable_left_ = kMaxObjectsOfVariable;
  return read_within(object, std::min(longest, kLongestRepr));
}

PythonValue ValueReader::read_within(Address object, std::ptrdiff_t longest) {
  if (longest <= kLeast || exhausted() || of_variable_left_ == 0) return left_out();
  --of_variable_left_;
  --objects_left_;
  const auto type = target_.read_value<Address>(object + layout_.object_type);
  const auto flags = type ? objects_.flags(*type) : std::nullopt;
  const auto name_at = flags ? target_.read_value<Address>(*type + layout_.type_name) : std::nullopt;
  const std::string name = name_at ? target_.read_c_string(*name_at, kLongestTypeName).value_or("?") : std::string("?");
  if (flags) {
    if (*flags & kIntSubclass) return read_int(object, name == "bool");
    if (*flags & kStringSubclass) return read_string(object);
    if (*flags & kDictSubclass) return read_dict(object, longest);
    if (*flags & kListSubclass) return read_sequence(object, Kind::kList, longest);
    if (*flags & kTupleSubclass) return read_sequence(object, Kind::kTuple, longest);
  }
  if (name == "NoneType") return word("None");
  if (name == "float") {
    if (const auto value = target_.read_value<double>(object + layout_.object_head()))
      return word(repr_of_number(*value));
  }
  if (name.starts_with("numpy."))
    if (auto value = read_numpy(object, std::string_view(name).substr(6))) return *value;
  return word(fmt::format("<{} at {:#x}>", name, object));
}

PythonValue ValueReader::read_int(Address object, bool is_bool) const {
  const auto value = objects_.number(object);
  if (value && is_bool) return word(*value > 0 ? "True" : "False");
  if (value && *value <= kLargestInt && *value >= -kLargestInt) return word(fmt::format("{}", *value));
  const bool negative = layout_.int_tag != kAbsent
                            ? (target_.read_value<std::uint64_t>(object + layout_.int_tag).value_or(0) & 3) == 2
                            : target_.read_value<std::int64_t>(object + layout_.int_size).value_or(0) < 0;
  return word(negative ? "-bigint" : "+bigint");
}

PythonValue ValueReader::read_string(Address object) {
  const auto length = target_.read_value<std::uint64_t>(object + layout_.string_length);
  const auto text = length ? text_.beginning(object, kMaxOfString) : std::nullopt;
  if (!text) return word(fmt::format("<str at {:#x}>", object));
  bytes_left_ -= std::min(bytes_left_, text->size());
  return {.kind = Kind::kString, .text = *text, .items = {}, .cut = *length > kMaxOfString};
}

PythonValue ValueReader::read_sequence(Address object, Kind kind, std::ptrdiff_t longest) {
  PythonValue value{.kind = kind, .text = {}, .items = {}};
  const auto size = target_.read_value<std::uint64_t>(object + layout_.tuple_size);
  const auto at = kind == Kind::kTuple ? std::optional(object + layout_.tuple_items)
                                       : target_.read_value<Address>(object + layout_.tuple_size + kWord);
  // Each item takes three characters at least.
  std::vector<Address> items(std::min<std::uint64_t>(size.value_or(0), static_cast<std::uint64_t>(longest)));
  value.cut = size > items.size();
  if (!size || !at || !target_.read_exact(*at, std::as_writable_bytes(std::span(items)))) {
    value.cut = true;
    return value;
  }
  std::ptrdiff_t left = longest - 2;
  for (const Address item : items) {
    PythonValue one = read_within(item, left);
    left -= size_of(one, left) + 2;
    value.cut |= left <= kLeast;
    if (left <= kLeast) break;
    value.items.push_back(std::move(one));
  }
  return value;
}

PythonValue ValueReader::read_dict(Address object, std::ptrdiff_t longest) {
  PythonValue value{.kind = Kind::kDict, .text = {}, .items = {}};
  const auto entries = objects_.first_entries(object, static_cast<std::size_t>(longest));
  value.cut = !entries;
  std::ptrdiff_t left = longest - 2;
  for (const DictEntry& entry : entries.value_or(std::vector<DictEntry>())) {
    PythonValue key = read_within(entry.key, left), held = read_within(entry.value, left);
    left -= size_of(key, left) + size_of(held, left) + 4;
    value.cut |= left <= kLeast;
    if (left <= kLeast) break;
    value.items.push_back(std::move(key));
    value.items.push_back(std::move(held));
  }
  return value;
}

std::optional<PythonValue> ValueReader::read_numpy(Address object, std::string_view type) const {
  const Address at = object + layout_.object_head();
  if (is_one_of(type, {"bool", "bool_"})) {
    const auto value = target_.read_value<std::uint8_t>(at);
    return value ? std::optional(word(*value != 0 ? "True" : "False")) : std::nullopt;
  }
  if (type == "int8") return number_at<std::int8_t>(target_, at);
  if (type == "int16") return number_at<std::int16_t>(target_, at);
  if (type == "int32") return number_at<std::int32_t>(target_, at);
  if (type == "int64") return number_at<std::int64_t>(target_, at);
  if (type == "uint8") return number_at<std::uint8_t>(target_, at);
  if (type == "uint16") return number_at<std::uint16_t>(target_, at);
  if (type == "uint32") return number_at<std::uint32_t>(target_, at);
  if (type == "uint64") return number_at<std::uint64_t>(target_, at);
  if (type == "float32" || type == "float64") {
    const auto narrow = target_.read_value<float>(at);
    const auto wide = target_.read_value<double>(at);
    if (type == "float32" && narrow) return word(repr_of_number(*narrow));
    if (type == "float64" && wide) return word(repr_of_number(*wide));
  }
  return std::nullopt;
}

}  // namespace rankstacks::python
