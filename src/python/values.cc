#include "python/values.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "python/objects.h"

namespace rankstacks::python {
namespace {

constexpr Address kObjectAlignment = 8;

// Py_TPFLAGS_*: the same since 3.0.
constexpr std::uint64_t kReady = 1u << 12;
constexpr std::uint64_t kIntSubclass = 1u << 24, kTupleSubclass = 1u << 26, kBytesSubclass = 1u << 27,
                        kStringSubclass = 1u << 28;
constexpr std::uint64_t kDictSubclass = 1u << 29, kExceptionSubclass = 1u << 30, kTypeSubclass = 1u << 31;
constexpr std::uint64_t kAnySubclass = 0xffu << 24;

// The head of an int of up to three digits, of a dict, or of a tuple; the longest, the dict of a free-threaded build,
// has 64 bytes.
constexpr std::size_t kHead = 64;

// An int's digits have 30 bits on every 64-bit platform.
constexpr unsigned kDigitBits = 30;
constexpr std::uint64_t kMaxDigits = 3;  // 2^63 has three

// 3.14+: the low bits of a _PyStackRef. 0 and 1: an object, owned or borrowed; 3: a number of the interpreter's own.
constexpr Address kStackRefTags = 3;
constexpr Address kBorrowed = 1;
constexpr int kFirstWithStackRefs = 14;

constexpr std::array<std::pair<std::string_view, ObjectKind>, 9> kNamedKinds = {{
    {"NoneType", ObjectKind::kNone},
    {"cell", ObjectKind::kCell},
    {"traceback", ObjectKind::kTraceback},
    {"frame", ObjectKind::kFrame},
    {"_thread.lock", ObjectKind::kLock},
    {"_thread.RLock", ObjectKind::kRLock},
    {"_thread._ThreadHandle", ObjectKind::kThreadHandle},
    {"builtin_function_or_method", ObjectKind::kBuiltin},
    {"method_descriptor", ObjectKind::kMethodDescriptor},
}};

}  // namespace

Address object_in_slot(const Layout& layout, Address word) {
  if (layout.minor < kFirstWithStackRefs) return word;
  return (word & kStackRefTags) <= kBorrowed ? word & ~kStackRefTags : 0;
}

void ObjectReader::prefetch(std::span<const Address> objects) {
  std::vector<Range> ranges;
  ranges.reserve(objects.size());
  for (const Address object : objects) ranges.push_back(range_of(object, kHead));
  if (ranges.empty()) return;
  target_.prefetch(ranges);

  const std::size_t size = span_of({layout_.object_type, layout_.type_name, layout_.type_flags, layout_.type_base});
  std::vector<Address> types;
  for (const Address object : objects) {
    const auto type = target_.read_value<Address>(object + layout_.object_type);
    if (type && !kinds_.contains(*type)) types.push_back(*type);
  }
  std::sort(types.begin(), types.end());
  types.erase(std::unique(types.begin(), types.end()), types.end());
  if (types.empty()) return;
  ranges.clear();
  for (const Address type : types) ranges.push_back(range_of(type, size));
  target_.prefetch(ranges);
  // The other fields that classify() reads.
  ranges.clear();
  for (const Address type : types) {
    for (const Offset field : {layout_.object_type, layout_.type_base}) {
      if (const auto other = target_.read_value<Address>(type + field)) ranges.push_back(range_of(*other, size));
    }
  }
  target_.prefetch(ranges);
}

void ObjectReader::prefetch_tuples(std::span<const Address> tuples) {
  prefetch(tuples);
  constexpr std::uint64_t kLikelyItems = 65'536;
  std::vector<Range> ranges;
  for (const Address tuple : tuples) {
    const auto size = target_.read_value<std::uint64_t>(tuple + layout_.tuple_size);
    if (size && *size > 0 && *size <= kLikelyItems)
      ranges.push_back(range_of(tuple + layout_.tuple_items, *size * sizeof(Address)));
  }
  if (!ranges.empty()) target_.prefetch(ranges);
}

// std::nullopt if it is not a type. A type is ready, and its own type is one whose instances are types.
std::optional<std::uint64_t> ObjectReader::flags(Address type) const {
  if (type == 0 || type % kObjectAlignment != 0) return std::nullopt;
  const auto own = target_.read_value<std::uint64_t>(type + layout_.type_flags);
  const auto metatype = target_.read_value<Address>(type + layout_.object_type);
  if (!own || !metatype || !(*own & kReady) || *metatype == 0 || *metatype % kObjectAlignment != 0) return std::nullopt;
  const auto of_metatype = target_.read_value<std::uint64_t>(*metatype + layout_.type_flags);
  if (!of_metatype || !(*of_metatype & kReady) || (*of_metatype & kAnySubclass) != kTypeSubclass) return std::nullopt;
  return own;
}

ObjectKind ObjectReader::classify(Address type) const {
  const auto own = flags(type);
  if (!own) return ObjectKind::kOther;
  switch (*own & kAnySubclass) {
    case kIntSubclass: {
      // int itself is the one whose base is not of its kind.
      const auto base = target_.read_value<Address>(type + layout_.type_base);
      const auto of_base = base ? flags(*base) : std::nullopt;
      return of_base && !(*of_base & kAnySubclass) ? ObjectKind::kInt : ObjectKind::kOther;
    }
    case kTupleSubclass: return ObjectKind::kTuple;
    case kBytesSubclass: return ObjectKind::kBytes;
    case kStringSubclass: return ObjectKind::kString;
    case kDictSubclass: return ObjectKind::kDict;
    case kExceptionSubclass: return ObjectKind::kException;
    case 0: break;
    default: return ObjectKind::kOther;
  }
  constexpr std::size_t kLongName = 64;
  const auto name_at = target_.read_value<Address>(type + layout_.type_name);
  if (!name_at) return ObjectKind::kOther;
  const auto name = target_.read_c_string(*name_at, kLongName);
  for (const auto& [known, kind] : kNamedKinds)
    if (name == known) return kind;
  return target_.read_value<char>(*name_at) ? ObjectKind::kOther : ObjectKind::kUnnamed;
}

ObjectKind ObjectReader::kind(Address object) {
  if (object == 0 || object % kObjectAlignment != 0) return ObjectKind::kOther;
  const auto type = target_.read_value<Address>(object + layout_.object_type);
  if (!type) return ObjectKind::kOther;
  const auto [known, is_new] = kinds_.try_emplace(*type, ObjectKind::kOther);
  if (is_new) known->second = classify(*type);
  return known->second;
}

bool ObjectReader::may_be(Address object, ObjectKind named) {
  const ObjectKind found = kind(object);
  return found == named || found == ObjectKind::kUnnamed;
}

bool ObjectReader::is_iterator(Address object) {
  constexpr std::uint64_t kIternextBehindFlags =
      7 * sizeof(Address);  // tp_flags, doc, traverse, clear, richcompare, weaklistoffset, iter, iternext
  if (object == 0 || object % sizeof(Address) != 0) return false;
  const auto type = target_.read_value<Address>(object + layout_.object_type);
  if (!type || *type == 0 || !flags(*type)) return false;
  return target_.read_value<Address>(*type + layout_.type_flags + kIternextBehindFlags).value_or(0) != 0;
}

std::optional<std::int64_t> ObjectReader::integer(Address object) {
  return kind(object) == ObjectKind::kInt ? number(object) : std::nullopt;
}

std::optional<std::int64_t> ObjectReader::number(Address object) const {
  std::uint64_t count = 0;
  bool negative = false;
  if (layout_.int_tag != kAbsent) {
    // 3.12+: the number of digits from bit 3 on, the sign in bits 0 and 1 (0 positive, 1 zero, 2 negative); from 3.14
    // on bit 2 marks immortal ones.
    const auto tag = target_.read_value<std::uint64_t>(object + layout_.int_tag);
    if (!tag || (*tag & 3) == 3) return std::nullopt;
    count = *tag >> 3;
    negative = (*tag & 3) == 2;
    if (((*tag & 3) == 1) != (count == 0)) return std::nullopt;
  } else {
    const auto size = target_.read_value<std::int64_t>(object + layout_.int_size);
    if (!size) return std::nullopt;
    negative = *size < 0;
    count = negative ? 0 - static_cast<std::uint64_t>(*size) : static_cast<std::uint64_t>(*size);
  }
  if (count > kMaxDigits) return std::nullopt;
  std::uint64_t magnitude = 0;
  for (std::uint64_t i = count; i-- > 0;) {
    const auto digit = target_.read_value<std::uint32_t>(object + layout_.int_digits + i * sizeof(std::uint32_t));
    if (!digit || *digit >> kDigitBits || (i + 1 == count && *digit == 0)) return std::nullopt;
    if (magnitude >> (63 - kDigitBits)) return std::nullopt;
    magnitude = (magnitude << kDigitBits) | *digit;
  }
  return negative ? -static_cast<std::int64_t>(magnitude) : static_cast<std::int64_t>(magnitude);
}

std::optional<Address> ObjectReader::cell_content(Address cell) const {
  const auto content = target_.read_value<Address>(cell + layout_.cell_content);
  return content && *content != 0 ? content : std::nullopt;
}

std::optional<std::vector<Address>> ObjectReader::tuple(Address object, std::size_t limit) {
  if (kind(object) != ObjectKind::kTuple) return std::nullopt;
  const auto size = target_.read_value<std::uint64_t>(object + layout_.tuple_size);
  if (!size || *size > limit) return std::nullopt;
  std::vector<Address> items(static_cast<std::size_t>(*size));
  if (!target_.read_exact(object + layout_.tuple_items, std::as_writable_bytes(std::span(items)))) return std::nullopt;
  return items;
}

std::optional<ObjectReader::DictParts> ObjectReader::keys_parts(Address keys, std::size_t limit) {
  if (keys == 0 || keys % kObjectAlignment != 0) return std::nullopt;
  const std::size_t head_size = span_of({layout_.keys_size, layout_.keys_log2_size, layout_.keys_log2_index_bytes,
                                         layout_.keys_kind, layout_.keys_entry_count, layout_.keys_indices});
  const Range head_range = range_of(keys, head_size);
  target_.prefetch(std::span(&head_range, 1));
  StructCopy head;
  if (!head.read(target_, keys, head_size)) return std::nullopt;
  constexpr unsigned kMaxLog2 = 32;
  // Kinds of keys: 0 of dicts in general, 1 of dicts with str keys only, 2 shared by instances (also str only).
  constexpr std::uint8_t kGeneral = 0, kSplit = 2;
  DictParts parts{.indices = keys + layout_.keys_indices,
                  .count = head.get<std::uint64_t>(layout_.keys_entry_count),
                  .entry_words = 3};
  if (layout_.keys_size != kAbsent) {
    parts.slots = head.get<std::uint64_t>(layout_.keys_size);
    if (!std::has_single_bit(parts.slots) || parts.slots >> kMaxLog2) return std::nullopt;
    parts.index_width = parts.slots <= 0xff ? 1 : parts.slots <= 0xffff ? 2 : 4;
  } else {
    const auto log2_size = head.get<std::uint8_t>(layout_.keys_log2_size),
               log2_bytes = head.get<std::uint8_t>(layout_.keys_log2_index_bytes);
    const auto kind_of_keys = head.get<std::uint8_t>(layout_.keys_kind);
    if (log2_size >= kMaxLog2 || log2_bytes < log2_size || log2_bytes > log2_size + 3 || kind_of_keys > kSplit)
      return std::nullopt;
    parts.slots = std::uint64_t{1} << log2_size;
    parts.index_width = std::size_t{1} << (log2_bytes - log2_size);
    if (kind_of_keys != kGeneral) parts.entry_words = 2;
  }
  if (parts.count > limit || parts.count > parts.slots) return std::nullopt;
  parts.entries = parts.indices + parts.slots * parts.index_width;
  return parts;
}

std::optional<ObjectReader::DictParts> ObjectReader::dict_parts(Address object, std::size_t limit) {
  if (kind(object) != ObjectKind::kDict) return std::nullopt;
  const auto keys = target_.read_value<Address>(object + layout_.dict_keys);
  const auto values = target_.read_value<Address>(object + layout_.dict_values);
  return keys && values == Address{0} ? keys_parts(*keys, limit) : std::nullopt;
}

std::optional<std::vector<DictEntry>> ObjectReader::dict(Address object, std::size_t limit) {
  if (!dict_parts(object, limit)) return std::nullopt;
  return entries(*target_.read_value<Address>(object + layout_.dict_keys), 0, limit);
}

std::optional<std::vector<DictEntry>> ObjectReader::entries(Address keys, Address values, std::size_t limit) {
  const auto parts = keys_parts(keys, limit);
  std::vector<DictEntry> entries;
  if (!parts || !add_entries(*parts, values, 0, static_cast<std::size_t>(parts->count), entries)) return std::nullopt;
  return entries;
}

bool ObjectReader::add_entries(const DictParts& parts, Address values, std::size_t first, std::size_t count,
                               std::vector<DictEntry>& entries) {
  const std::size_t width = parts.entry_words;
  const Address from = parts.entries + first * width * sizeof(Address),
                values_from = values == 0 ? 0 : values + first * sizeof(Address);
  std::vector<Address> words(count * width), apart(values == 0 ? 0 : count);
  const std::array<Range, 2> ranges = {range_of(from, words.size() * sizeof(Address)),
                                       range_of(values_from, apart.size() * sizeof(Address))};
  target_.prefetch(ranges);
  if (!target_.read_exact(from, std::as_writable_bytes(std::span(words)))) return false;
  if (values != 0 && !target_.read_exact(values_from, std::as_writable_bytes(std::span(apart)))) return false;
  for (std::size_t i = 0; i < words.size(); i += width) {
    const DictEntry entry{words[i + width - 2], values == 0 ? words[i + width - 1] : apart[i / width]};
    if (entry.key != 0 && entry.value != 0) entries.push_back(entry);  // else: deleted
  }
  return true;
}

std::optional<std::vector<DictEntry>> ObjectReader::first_entries(Address object, std::size_t most) {
  constexpr std::size_t kMaxScanned = 65'536;  // with those that are deleted
  constexpr std::size_t kAtOnce = 64;
  if (kind(object) != ObjectKind::kDict) return std::nullopt;
  const auto keys = target_.read_value<Address>(object + layout_.dict_keys),
             values = target_.read_value<Address>(object + layout_.dict_values);
  const auto parts = keys ? keys_parts(*keys, ~std::size_t{0}) : std::nullopt;
  if (!parts || !values) return std::nullopt;
  const Address apart = *values == 0 || layout_.values_first == kAbsent ? *values : *values + layout_.values_first;
  const auto count = static_cast<std::size_t>(std::min<std::uint64_t>(parts->count, kMaxScanned));
  std::vector<DictEntry> entries;
  for (std::size_t at = 0; at < count && entries.size() < most; at += kAtOnce)
    if (!add_entries(*parts, apart, at, std::min(kAtOnce, count - at), entries)) return std::nullopt;
  if (entries.size() > most) entries.resize(most);
  return entries;
}

std::optional<DictEntry> ObjectReader::lookup(Address object, std::uint64_t hash, std::size_t limit,
                                              const std::function<bool(Address)>& is_key) {
  const auto parts = dict_parts(object, limit);
  if (!parts) return std::nullopt;
  constexpr int kMaxProbes = 64;
  constexpr unsigned kPerturbShift = 5;
  const std::uint64_t mask = parts->slots - 1;
  std::uint64_t at = hash & mask, perturb = hash;
  for (int probe = 0; probe < kMaxProbes; ++probe) {
    std::uint64_t index = 0;
    std::array<std::byte, sizeof index> bytes{};
    if (!target_.read_exact(parts->indices + at * parts->index_width, std::span(bytes).first(parts->index_width)))
      return std::nullopt;
    std::memcpy(&index, bytes.data(), sizeof index);
    const std::uint64_t empty = ~std::uint64_t{0} >> (64 - 8 * parts->index_width);  // DKIX_EMPTY, -1; -2: deleted
    if (index == empty) return std::nullopt;
    if (index < parts->count) {
      const auto entry = target_.read_value<DictEntry>(
          parts->entries + (index * parts->entry_words + parts->entry_words - 2) * sizeof(Address));
      if (entry && entry->value != 0 && is_key(entry->key)) return entry;
    }
    // 3.6 shifts after the first step, the others before.
    if (layout_.minor > 6) perturb >>= kPerturbShift;
    at = (at * 5 + perturb + 1) & mask;
    if (layout_.minor <= 6) perturb >>= kPerturbShift;
  }
  return std::nullopt;
}

}  // namespace rankstacks::python
