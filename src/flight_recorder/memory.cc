#include "flight_recorder/memory.h"

#include <elf.h>
#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>

#include "flight_recorder/record_builder.h"

namespace rankstacks::flight_recorder {
namespace {

constexpr std::size_t kMaxCapacity = 1 << 22, kMaxTensorsOfOperation = 1 << 16, kMaxString = 4096;
constexpr int kAttempts = 3;

// at::ScalarType (torch/headeronly/core/ScalarType.h), as its dumps name them.
constexpr std::array kTypes = {"Byte",
                               "Char",
                               "Short",
                               "Int",
                               "Long",
                               "Half",
                               "Float",
                               "Double",
                               "ComplexHalf",
                               "ComplexFloat",
                               "ComplexDouble",
                               "Bool",
                               "QInt8",
                               "QUInt8",
                               "QInt32",
                               "BFloat16",
                               "QUInt4x2",
                               "QUInt2x4",
                               "Bits1x8",
                               "Bits2x4",
                               "Bits4x2",
                               "Bits8",
                               "Bits16",
                               "Float8_e5m2",
                               "Float8_e4m3fn",
                               "Float8_e5m2fnuz",
                               "Float8_e4m3fnuz",
                               "UInt16",
                               "UInt32",
                               "UInt64",
                               "UInt1",
                               "UInt2",
                               "UInt3",
                               "UInt4",
                               "UInt5",
                               "UInt6",
                               "UInt7",
                               "Int1",
                               "Int2",
                               "Int3",
                               "Int4",
                               "Int5",
                               "Int6",
                               "Int7",
                               "Float8_e8m0fnu",
                               "Float4_e2m1fn_x2",
                               "BComplex32"};

constexpr std::size_t kWord = 8, kStringSize = 32, kVectorSize = 24, kMapSize = 48;

struct Layout {
  bool has_epoch, has_thread;
  std::size_t dimension;  // size of an element of input_dims_
  std::size_t group, name, collective, profiling_name, created, is_message, completed, input_dims, input_types,
      output_dims, output_types, sizes, thread, retired, size;
  std::size_t ranks_of_groups;  // pg_name_to_ranks_, in the recorder
};

constexpr Layout layout_of(bool has_epoch, std::size_t dimension, bool has_thread) {
  constexpr std::size_t kSmallVector = 16, kDims = 4, kSizes = 8;  // begin, size, capacity; elements within it
  Layout l{.has_epoch = has_epoch, .has_thread = has_thread, .dimension = dimension};
  l.group = has_epoch ? 2 * kWord : kWord;
  l.name = l.group + kWord;
  l.collective = l.name + 2 * kStringSize;
  l.profiling_name = l.collective + 3 * kWord;
  const std::size_t traceback = l.profiling_name + kStringSize, events = traceback + 2 * kWord;
  l.created = events + 2 * kWord;
  l.is_message = l.created + 2 * kWord;  // after timeout_ms_
  // A bool, and an optional<float> of 8 bytes behind it, then words again.
  l.completed = l.is_message + 2 * kWord + 2 * kWord;
  l.input_dims = l.completed + 2 * kWord;
  l.input_types = l.input_dims + kSmallVector + kDims * dimension;
  l.output_dims = l.input_types + kVectorSize;
  l.output_types = l.output_dims + kSmallVector + kDims * dimension;
  l.sizes = l.output_types + kVectorSize;
  l.thread = l.sizes + kSmallVector + kSizes * kWord;
  l.retired = l.thread + (has_thread ? kWord + kStringSize : 0);
  l.size = l.retired + kWord;
  // enabled_, mutex_, entries_, max_entries_, next_, id_, then since 2.10 reset_epoch_ and an unordered_map.
  l.ranks_of_groups = 12 * kWord + (has_epoch ? 8 * kWord : 0) + kMapSize;
  return l;
}

// Of 2.10 and newer; 2.8 and 2.9; 2.6 and 2.7; 2.5.
constexpr std::array kLayouts = {layout_of(true, 8, true), layout_of(false, 8, true), layout_of(false, 8, false),
                                 layout_of(false, 4, false)};
static_assert(kLayouts[0].size == 512 && kLayouts[1].size == 504 && kLayouts[2].size == 464 && kLayouts[3].size == 432);

struct Unsound {};

template <class T>
T get(std::span<const std::byte> bytes, std::size_t at) {
  T value;
  if (at + sizeof value > bytes.size()) throw Unsound{};
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

bool flag(std::span<const std::byte> bytes, std::size_t at) {
  const auto value = get<std::uint8_t>(bytes, at);
  if (value > 1) throw Unsound{};
  return value == 1;
}

// A copy of what lies at `at`.
struct Copy {
  std::span<const std::byte> bytes;
  Address at = 0;
};

constexpr std::uint64_t kWithin = 15;  // characters that a std::string has within itself
bool is_within(const Copy& copy, std::size_t string) {
  return get<Address>(copy.bytes, string) == copy.at + string + 2 * kWord;
}

struct Header {
  Address at = 0;
  Address begin = 0, end = 0;
  std::uint64_t most = 0, next = 0, id = 0;
  bool operator==(const Header&) const = default;
};

class Reader {
 public:
  Reader(const ReadMemory& read, const RecorderPlace& place) : read_(read), place_(place) {}

  std::optional<FlightRecord> read() {
    for (int attempt = 0; attempt < kAttempts; ++attempt) {
      const auto header = read_header();
      if (!header || header->begin == header->end) return std::nullopt;
      for (const Layout& layout : kLayouts) {
        auto record = read_as(layout, *header);
        if (record && read_header() == header) return record;
      }
    }
    return std::nullopt;
  }

 private:
  void copy(Address at, std::span<std::byte> into) {
    if (into.size() > left_) throw Unsound{};
    left_ -= into.size();
    if (!read_(at, into)) throw Unsound{};
  }
  std::vector<std::byte> copy(Address at, std::size_t size) {
    std::vector<std::byte> bytes(size);
    copy(at, bytes);
    return bytes;
  }

  std::optional<Header> read_header() try {
    constexpr std::size_t kEntries = 6 * kWord;  // after two flags and a mutex of 40 bytes
    Header header;
    header.at = get<Address>(copy(place_.instance, kWord), 0);
    if (header.at == 0 || header.at % kWord != 0) return std::nullopt;
    const auto bytes = copy(header.at, kEntries + 6 * kWord);
    if (!flag(bytes, 0)) return std::nullopt;
    flag(bytes, 1);
    header.begin = get<Address>(bytes, kEntries), header.end = get<Address>(bytes, kEntries + kWord);
    header.most = get<std::uint64_t>(bytes, kEntries + 3 * kWord);
    header.next = get<std::uint64_t>(bytes, kEntries + 4 * kWord);
    header.id = get<std::uint64_t>(bytes, kEntries + 5 * kWord);
    if (header.begin > header.end || header.most == 0 || header.most > kMaxCapacity || header.next > header.most)
      return std::nullopt;
    return header;
  } catch (const Unsound&) {
    return std::nullopt;
  }

  std::optional<FlightRecord> read_as(const Layout& layout, const Header& header) try {
    const std::uint64_t bytes = header.end - header.begin, count = bytes / layout.size;
    if (bytes % layout.size != 0 || count > header.most) return std::nullopt;
    const std::uint64_t newest = (header.next == 0 ? count : std::min<std::uint64_t>(header.next, count)) - 1;
    const std::size_t wanted = std::min<std::uint64_t>(count, kMaxEntries);
    // The newest ones up to `newest`, and those before them from the end of the ring.
    const std::size_t first_part = std::min<std::uint64_t>(wanted, newest + 1), second_part = wanted - first_part;
    std::vector<std::byte> entries(wanted * layout.size);
    const std::span<std::byte> all(entries);
    copy(header.begin + (count - second_part) * layout.size, all.first(second_part * layout.size));
    copy(header.begin + (newest + 1 - first_part) * layout.size, all.subspan(second_part * layout.size));
    const auto entry = [&](std::size_t i) {
      const std::uint64_t place = i < second_part ? count - second_part + i : newest + 1 - first_part + i - second_part;
      return Copy{all.subspan(i * layout.size, layout.size), header.begin + place * layout.size};
    };
    const auto id = [&](std::size_t i) { return get<std::uint64_t>(entry(i).bytes, 0); };
    // Those before a reset are of another epoch, or have other numbers.
    std::size_t from = wanted - 1;
    while (from > 0 && id(from - 1) + 1 == id(from)) --from;
    if ((!layout.has_epoch && from > 0) || id(wanted - 1) + 1 != header.id) return std::nullopt;

    RecordBuilder builder;
    read_groups(layout, header, builder);
    for (std::size_t i = from; i < wanted; ++i) check(layout, entry(i));
    std::map<std::int64_t, std::pair<std::string, std::string>> names;
    std::map<std::int64_t, std::size_t> seen;
    std::vector<RecorderEntry> newest_first;
    for (std::size_t i = wanted; i-- > from;) newest_first.push_back(read_entry(layout, entry(i), i, names, seen));
    if (layout.has_thread)
      for (std::size_t i = from; i < wanted; ++i) builder.add_thread(get<std::uint64_t>(entry(i).bytes, layout.thread));
    for (std::size_t n = newest_first.size(); n-- > 0;) builder.add(std::move(newest_first[n]));
    FlightRecord record = builder.build(
        [&](std::size_t index, RecordedOperation& operation) { add_details(layout, entry(index).bytes, operation); });
    for (RecordedGroup& group : record.groups)
      if (group.library.empty()) group.library = library();
    record.from_memory = true;
    return record;
  } catch (const Unsound&) {
    return std::nullopt;
  }

  std::string library() const { return place_.of_nccl ? "nccl" : "gloo"; }

  static void check_string(const Copy& copy, std::size_t at) {
    const auto length = get<std::uint64_t>(copy.bytes, at + kWord);
    const std::uint64_t room = is_within(copy, at) ? kWithin : get<std::uint64_t>(copy.bytes, at + 2 * kWord);
    if (length > room || length > kMaxString) throw Unsound{};
  }
  static void check_small_vector(std::span<const std::byte> entry, std::size_t at) {
    if (get<std::uint32_t>(entry, at + kWord) > get<std::uint32_t>(entry, at + kWord + 4)) throw Unsound{};
  }
  static void check_vector(std::span<const std::byte> entry, std::size_t at) {
    const auto begin = get<Address>(entry, at), end = get<Address>(entry, at + kWord),
               room = get<Address>(entry, at + 2 * kWord);
    if (begin > end || end > room || end - begin > kMaxTensorsOfOperation) throw Unsound{};
  }
  static void check(const Layout& l, const Copy& entry) {
    for (const std::size_t at : {l.name, l.name + kStringSize, l.profiling_name}) check_string(entry, at);
    if (l.has_thread) check_string(entry, l.thread + kWord);
    for (const std::size_t at : {l.input_dims, l.output_dims, l.sizes}) check_small_vector(entry.bytes, at);
    for (const std::size_t at : {l.input_types, l.output_types}) check_vector(entry.bytes, at);
    for (const std::size_t at : {l.is_message, l.completed - kWord, l.completed + kWord, l.retired})
      flag(entry.bytes, at);
  }

  std::string text(const Copy& from, std::size_t at) {
    std::string text(std::min<std::uint64_t>(get<std::uint64_t>(from.bytes, at + kWord), kMaxText), '\0');
    if (is_within(from, at)) std::memcpy(text.data(), from.bytes.data() + at + 2 * kWord, text.size());
    else copy(get<Address>(from.bytes, at), std::as_writable_bytes(std::span(text)));
    if (std::any_of(text.begin(), text.end(), [](char c) { return c >= 0 && c < ' '; })) throw Unsound{};
    return text;
  }

  RecorderEntry read_entry(const Layout& l, const Copy& copied, std::size_t index,
                           std::map<std::int64_t, std::pair<std::string, std::string>>& names,
                           std::map<std::int64_t, std::size_t>& seen) {
    const std::span<const std::byte> entry = copied.bytes;
    RecorderEntry read{.group = get<std::int64_t>(entry, l.group), .index = index};
    auto [named, is_new] = names.try_emplace(read.group);
    if (is_new) named->second = {text(copied, l.name + kStringSize), text(copied, l.name)};
    std::tie(read.group_name, read.group_description) = named->second;
    read.collective = get<std::int64_t>(entry, l.collective);
    read.message = get<std::int64_t>(entry, l.collective + kWord);
    if (read.collective < 0 || read.message < 0) throw Unsound{};
    read.is_message = flag(entry, l.is_message);
    read.retired = flag(entry, l.retired);
    read.called_ns = get<std::int64_t>(entry, l.created);
    if (flag(entry, l.completed - kWord)) read.state = RecordedState::kStarted;
    if (flag(entry, l.completed + kWord) || (read.retired && !place_.of_nccl)) read.state = RecordedState::kCompleted;
    // Of what has ended only the last ones are kept. A short name lies within the entry, and costs nothing.
    constexpr std::size_t kNamed = 4 * kMaxEnded;
    const bool ended = read.state == RecordedState::kCompleted;
    if (!ended || ++seen[read.group] <= kNamed || is_within(copied, l.profiling_name))
      read.profiling_name = text(copied, l.profiling_name);
    else read.profiling_name = library() + ":";
    return read;
  }

  // dims: of each tensor its number of dimensions; sizes: all of them, of the inputs and then of the outputs.
  void add_details(const Layout& l, std::span<const std::byte> entry, RecordedOperation& operation) {
    const auto inputs = numbers(entry, l.input_dims, l.dimension), outputs = numbers(entry, l.output_dims, l.dimension);
    const auto sizes = numbers(entry, l.sizes, kWord);
    std::size_t at = 0;
    for (const auto& [dims, into] : {std::pair{&inputs, &operation.input_sizes}, {&outputs, &operation.output_sizes}})
      for (std::size_t tensor = 0; tensor < dims->size(); ++tensor) {
        const std::int64_t count = (*dims)[tensor];
        if (count < 0 || static_cast<std::size_t>(count) > sizes.size() - at) throw Unsound{};
        const auto from = sizes.begin() + static_cast<std::ptrdiff_t>(at);
        if (tensor < kMaxTensors)
          into->emplace_back(from, from + std::min<std::ptrdiff_t>(count, static_cast<std::ptrdiff_t>(kMaxDimensions)));
        at += static_cast<std::size_t>(count);
      }
    operation.input_types = types(entry, l.input_types);
    operation.output_types = types(entry, l.output_types);
  }

  std::vector<std::int64_t> numbers(std::span<const std::byte> entry, std::size_t at, std::size_t size) {
    const auto count = get<std::uint32_t>(entry, at + kWord);
    if (count > kMaxTensorsOfOperation) throw Unsound{};
    std::vector<std::int64_t> all(count);
    if (count == 0) return all;
    const auto bytes = copy(get<Address>(entry, at), count * size);
    for (std::size_t i = 0; i < count; ++i)
      all[i] = size == kWord ? get<std::int64_t>(bytes, i * size) : get<std::int32_t>(bytes, i * size);
    return all;
  }

  std::vector<std::string> types(std::span<const std::byte> entry, std::size_t at) {
    const auto begin = get<Address>(entry, at), end = get<Address>(entry, at + kWord);
    std::vector<std::string> all;
    if (begin == end) return all;
    for (const std::byte type : copy(begin, std::min<std::size_t>(end - begin, kMaxTensors))) {
      const auto index = std::to_integer<std::size_t>(type);
      all.emplace_back(index < kTypes.size() ? kTypes.at(index) : "Undefined");
    }
    return all;
  }

  // libstdc++'s tree: { comparison, colour, root, leftmost, rightmost, count }; a node: { colour, parent, left, right,
  // tuple<string, string>, vector<uint64_t> }.
  void read_groups(const Layout& l, const Header& header, RecordBuilder& builder) {
    constexpr std::size_t kNode = 4 * kWord, kValue = 2 * kStringSize + kVectorSize;
    const auto map = copy(header.at + l.ranks_of_groups, kMapSize);
    const auto count = get<std::uint64_t>(map, 5 * kWord);
    if (count > kMaxGroups) throw Unsound{};
    std::size_t visited = 0, members = 0;
    std::vector<Address> left_to_visit = {get<Address>(map, 2 * kWord)};
    while (!left_to_visit.empty()) {
      const Address at = left_to_visit.back();
      left_to_visit.pop_back();
      if (at == 0) continue;
      if (++visited > count) throw Unsound{};
      const auto node = copy(at, kNode + kValue);
      for (const std::size_t child : {3 * kWord, 2 * kWord}) left_to_visit.push_back(get<Address>(node, child));
      const Copy copied{node, at};
      for (const std::size_t name : {kNode, kNode + kStringSize}) check_string(copied, name);
      RecordedGroup group{.name = text(copied, kNode + kStringSize), .description = text(copied, kNode)};
      const std::size_t ranks = kNode + 2 * kStringSize;
      const auto begin = get<Address>(node, ranks), end = get<Address>(node, ranks + kWord);
      if (begin > end || (end - begin) % kWord != 0 || (members += (end - begin) / kWord) > kMaxMembers)
        throw Unsound{};
      const auto numbers = copy(begin, end - begin);
      for (std::size_t i = 0; i < numbers.size(); i += kWord)
        group.ranks.push_back(static_cast<int>(std::min<std::uint64_t>(get<std::uint64_t>(numbers, i), 1U << 30)));
      if (!group.name.empty() || !group.ranks.empty()) builder.add_group(std::move(group));
    }
    if (visited != count) throw Unsound{};
  }

  const ReadMemory& read_;
  const RecorderPlace& place_;
  std::size_t left_ = kMaxRead;  // in all attempts together
};

bool is_instance(std::string_view name) {
  return name.starts_with("_ZZN4c10d") && name.ends_with("3getEvE8instance") &&
         (name.find("14FlightRecorder") != std::string_view::npos ||
          name.find("15NCCLTraceBuffer") != std::string_view::npos);
}

std::vector<RecorderPlace> places_in(const elf::Image& image) {
  std::vector<RecorderPlace> places;
  const elf::SymbolTable& symbols = image.static_symbols();
  for (std::size_t i = 1; i < symbols.size(); ++i) {
    const Elf64_Sym symbol = symbols.at(i);
    if (symbol.st_size != sizeof(Address) || ELF64_ST_TYPE(symbol.st_info) != STT_OBJECT) continue;
    if (const std::string_view name = symbols.name(symbol); is_instance(name))
      places.push_back({symbol.st_value, name.find("N3c105EventE") == std::string_view::npos});
  }
  return places;
}

}  // namespace

std::vector<RecorderPlace> RecorderSymbols::find(const target::ModuleMap& modules, Which which) {
  std::vector<RecorderPlace> places;
  for (const target::Module& module : modules.all()) {
    const std::string_view path = module.path;
    const std::string_view name = path.substr(path.rfind('/') + 1);
    // gloo's is in libtorch_cpu, NCCL's in libtorch_cuda, or in one libtorch.
    const bool is_of_cpu = name.starts_with("libtorch_cpu");
    if (!module.image || !name.starts_with("libtorch") || !(is_of_cpu ? which.gloo : which.nccl)) continue;
    const std::lock_guard lock(mutex_);
    const auto [it, is_new] = found_.try_emplace(module.image.get());
    Found& found = it->second;
    if (is_new) found = {module.image, places_in(*module.image)};
    for (const RecorderPlace& place : found.places)
      places.push_back({module.to_address(place.instance), place.of_nccl});
  }
  return places;
}

std::optional<FlightRecord> read_recorder(const ReadMemory& read, const RecorderPlace& place) {
  return Reader(read, place).read();
}

std::optional<FlightRecord> read_recorders(const ReadMemory& read, std::span<const RecorderPlace> places) {
  std::optional<FlightRecord> all;
  for (const bool of_nccl : {true, false})
    for (const RecorderPlace& place : places) {
      if (place.of_nccl != of_nccl) continue;
      auto record = read_recorder(read, place);
      if (!record) continue;
      if (!all) {
        all = std::move(record);
        continue;
      }
      // The recorders do not say in which order their calls were made among each other.
      if (record->recent_calls.size() > all->recent_calls.size()) {
        all->recent_calls = std::move(record->recent_calls);
        for (std::uint32_t& group : all->recent_calls) group += static_cast<std::uint32_t>(all->groups.size());
      }
      all->groups.insert(all->groups.end(), std::make_move_iterator(record->groups.begin()),
                         std::make_move_iterator(record->groups.end()));
      all->thread_ids.merge(record->thread_ids);
      all->last_call_ns = std::max(all->last_call_ns, record->last_call_ns);
      all->longest_gap_ms = std::max(all->longest_gap_ms, record->longest_gap_ms);
    }
  return all;
}

}  // namespace rankstacks::flight_recorder
