#include "python/attributes.h"

namespace rankstacks::python {
namespace {

constexpr std::size_t kLongestName = 64;

// Py_TPFLAGS_INLINE_VALUES (3.13+), Py_TPFLAGS_MANAGED_DICT (3.11+).
constexpr std::uint64_t kInlineValues = 1u << 2, kManagedDict = 1u << 4;

// What is stored before the object (Include/internal/pycore_object.h): 3.11 has the values at -4 words and the dict at
// -3; 3.12 has one of them at -3, the values as their address minus one; 3.13+ has the dict at MANAGED_DICT_OFFSET.
constexpr Address kValuesBefore = 4 * sizeof(Address), kDictBefore = 3 * sizeof(Address),
                  kDictBeforeFreeThreaded = sizeof(Address);
constexpr Address kIsValues = 1;
// struct _dictvalues, 3.13+: uint8_t capacity, size, embedded, valid.
constexpr Address kValuesValid = 3;

constexpr std::int64_t kLargestInstance = 1 << 20;

}  // namespace

std::optional<Address> AttributeReader::find(Address instance, std::string_view name) {
  objects_.prefetch(std::span(&instance, 1));
  const auto type = target_.read_value<Address>(instance + layout_.object_type);
  if (!type || objects_.kind(instance) != ObjectKind::kOther) return std::nullopt;
  const auto attributes = all_of(instance, *type);
  if (!attributes) return std::nullopt;
  std::vector<Address> names;
  for (const DictEntry& entry : *attributes) names.push_back(entry.key);
  objects_.prefetch(names);
  for (const DictEntry& entry : *attributes)
    if (objects_.kind(entry.key) == ObjectKind::kString && text_.text(entry.key, kLongestName) == name)
      return entry.value;
  return 0;
}

std::optional<std::vector<DictEntry>> AttributeReader::all_of(Address instance, Address type) {
  constexpr int kFirstManaged = 11, kFirstInOneWord = 12, kFirstInline = 13;
  const auto word = [&](Address at) { return target_.read_value<Address>(at); };
  if (layout_.minor < kFirstManaged) {
    const auto offset = target_.read_value<std::int64_t>(type + layout_.type_dict_offset);
    if (!offset || *offset <= 0 || *offset > kLargestInstance) return std::nullopt;
    return of_dict(word(instance + static_cast<Address>(*offset)).value_or(0));
  }
  const auto flags = target_.read_value<std::uint64_t>(type + layout_.type_flags);
  if (!flags || !(*flags & kManagedDict)) return std::nullopt;
  if (layout_.minor >= kFirstInline) {
    const auto size = target_.read_value<std::int64_t>(type + layout_.type_basic_size);
    if ((*flags & kInlineValues) && size && *size > 0 && *size <= kLargestInstance) {
      const Address values = instance + static_cast<Address>(*size);
      if (target_.read_value<std::uint8_t>(values + kValuesValid).value_or(0) != 0) return of_values(type, values);
    }
    return of_dict(word(instance - (layout_.free_threaded ? kDictBeforeFreeThreaded : kDictBefore)).value_or(0));
  }
  const Address before = word(instance - kDictBefore).value_or(0);
  if (layout_.minor >= kFirstInOneWord)
    return before & kIsValues ? of_values(type, before + kIsValues) : of_dict(before);
  const Address values = word(instance - kValuesBefore).value_or(0);
  return values != 0 ? of_values(type, values) : of_dict(before);
}

std::optional<std::vector<DictEntry>> AttributeReader::of_values(Address type, Address values) {
  const auto keys = target_.read_value<Address>(type + layout_.type_cached_keys);
  return keys ? objects_.entries(*keys, values + layout_.values_first, kMaxAttributes) : std::nullopt;
}

std::optional<std::vector<DictEntry>> AttributeReader::of_dict(Address dict) {
  if (dict == 0) return std::nullopt;
  objects_.prefetch(std::span(&dict, 1));
  if (objects_.kind(dict) != ObjectKind::kDict) return std::nullopt;
  const auto keys = target_.read_value<Address>(dict + layout_.dict_keys),
             values = target_.read_value<Address>(dict + layout_.dict_values);
  if (!keys || !values) return std::nullopt;
  const Address first = *values == 0 || layout_.values_first == kAbsent ? *values : *values + layout_.values_first;
  return objects_.entries(*keys, first, kMaxAttributes);
}

}  // namespace rankstacks::python
