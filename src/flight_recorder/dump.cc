#include "flight_recorder/dump.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "flight_recorder/dump_json.h"
#include "flight_recorder/pickle.h"
#include "flight_recorder/record_builder.h"

namespace rankstacks::flight_recorder {
namespace {

constexpr std::size_t kMaxFrames = 32;

struct Defect {
  std::string what;
};

// Reads members of dicts; throws a Defect for a value of the wrong type. Caught in read_dump.
class Fields {
 public:
  explicit Fields(const Document& document) : document_(document) {}

  const Document& document() const { return document_; }
  // nullptr if it is missing, or None.
  const Value* get(const Value& dict, const char* key, Kind kind) const {
    const Value* value = document_.find(dict, key);
    if (value == nullptr || value->kind == Kind::kNone) return nullptr;
    if (value->kind != kind)
      throw Defect{fmt::format("{}: expected {}, found {}", key, to_string(kind), to_string(value->kind))};
    return value;
  }
  std::string text(const Value& dict, const char* key) const {
    const Value* value = get(dict, key, Kind::kText);
    return value ? value->text.substr(0, kMaxText) : "";
  }
  bool flag(const Value& dict, const char* key) const {
    const Value* value = get(dict, key, Kind::kBoolean);
    return value != nullptr && value->integer != 0;
  }
  std::int64_t number(const Value& dict, const char* key) const {
    const Value* value = get(dict, key, Kind::kInteger);
    return value ? value->integer : 0;
  }
  // Also as a string, which JSON dumps have; std::nullopt if it is missing or negative.
  std::optional<std::int64_t> count(const Value& dict, const char* key) const {
    const Value* value = document_.find(dict, key);
    if (value == nullptr || value->kind == Kind::kNone) return std::nullopt;
    std::int64_t number = value->integer;
    if (value->kind == Kind::kText) {
      const char* end = value->text.data() + value->text.size();
      const auto [stop, error] = std::from_chars(value->text.data(), end, number);
      if (error != std::errc() || stop != end) throw Defect{fmt::format("{}: expected a number, found a string", key)};
    } else if (value->kind != Kind::kInteger) {
      throw Defect{fmt::format("{}: expected a whole number, found {}", key, to_string(value->kind))};
    }
    return number < 0 ? std::nullopt : std::optional(number);
  }

 private:
  const Document& document_;
};

// "[0, 1]"
std::vector<int> members_of(const std::string& text) {
  std::vector<int> ranks;
  const char *at = text.data(), *end = at + text.size();
  while (at < end && ranks.size() < kMaxMembers) {
    int rank = 0;
    const auto [stop, error] = std::from_chars(at, end, rank);
    if (error == std::errc() && rank >= 0) ranks.push_back(rank);
    at = error == std::errc() ? stop : at + 1;
  }
  return ranks;
}

class DumpReader {
 public:
  explicit DumpReader(const Document& document) : document_(document), fields_(document) {}

  FlightRecord read() {
    const Value& root = document_.at(document_.root);
    if (root.kind != Kind::kDict) throw Defect{fmt::format("expected a dict, found {}", to_string(root.kind))};
    if (document_.find(root, "entries") == nullptr && document_.find(root, "pg_config") == nullptr)
      throw Defect{"it has neither entries nor pg_config"};
    read_groups(root);
    if (const Value* entries = fields_.get(root, "entries", Kind::kList)) read_entries(*entries);
    FlightRecord record = builder_.build([&](std::size_t index, RecordedOperation& operation) {
      add_details(document_.at(entries_[index]), operation);
    });
    record.version = fields_.text(root, "version");
    if (const Value* status = fields_.get(root, "pg_status", Kind::kDict)) read_status(*status, record);
    return record;
  }

 private:
  void read_groups(const Value& root) {
    const Value* groups = fields_.get(root, "pg_config", Kind::kDict);
    if (groups == nullptr) return;
    for (std::size_t i = 1; i < std::min(groups->items.size(), 2 * kMaxGroups); i += 2) {
      const Value& one = document_.at(groups->items[i]);
      if (one.kind != Kind::kDict)
        throw Defect{fmt::format("pg_config: expected a dict, found {}", to_string(one.kind))};
      const Value* ranks = document_.find(one, "ranks");
      RecordedGroup group{.name = fields_.text(one, "name"), .description = fields_.text(one, "desc")};
      if (ranks != nullptr && ranks->kind == Kind::kText) group.ranks = members_of(ranks->text);
      // gloo's dump has a nameless group without members
      if (!group.name.empty() || !group.ranks.empty()) builder_.add_group(std::move(group));
    }
  }

  void read_entries(const Value& list) {
    entries_ = list.items;
    for (std::size_t i = 0; i < entries_.size(); ++i) {
      try {
        read_entry(i);
      } catch (const Defect& defect) {
        throw Defect{fmt::format("entries[{}].{}", i, defect.what)};
      }
    }
  }

  void read_entry(std::size_t index) {
    const Value& value = document_.at(entries_[index]);
    if (value.kind != Kind::kDict) throw Defect{fmt::format("expected a dict, found {}", to_string(value.kind))};
    RecorderEntry entry{.group = fields_.number(value, "pg_id"), .index = index};
    entry.collective = fields_.number(value, "collective_seq_id");
    entry.message = fields_.number(value, "p2p_seq_id");
    entry.is_message = fields_.flag(value, "is_p2p");
    entry.profiling_name = fields_.text(value, "profiling_name");
    entry.retired = fields_.flag(value, "retired");
    entry.called_ns = fields_.number(value, "time_created_ns");
    const std::string state = fields_.text(value, "state");
    if (state == "started") entry.state = RecordedState::kStarted;
    if (state == "completed") entry.state = RecordedState::kCompleted;
    if (const auto thread = fields_.count(value, "thread_id")) builder_.add_thread(static_cast<std::uint64_t>(*thread));
    if (const Value* named = fields_.get(value, "process_group", Kind::kList))
      for (std::size_t i = 0; i < named->items.size() && i < 2; ++i) {
        const Value& part = document_.at(named->items[i]);
        if (part.kind != Kind::kText)
          throw Defect{fmt::format("process_group: expected a string, found {}", to_string(part.kind))};
        (i == 0 ? entry.group_name : entry.group_description) = part.text.substr(0, kMaxText);
      }
    builder_.add(std::move(entry));
  }

  void add_details(const Value& entry, RecordedOperation& operation) const {
    operation.input_sizes = sizes(entry, "input_sizes");
    operation.output_sizes = sizes(entry, "output_sizes");
    operation.input_types = types(entry, "input_dtypes");
    operation.output_types = types(entry, "output_dtypes");
    if (const Value* frames = fields_.get(entry, "frames", Kind::kList))
      for (std::size_t i = 0; i < std::min(frames->items.size(), kMaxFrames); ++i) {
        const Value& frame = document_.at(frames->items[i]);
        operation.frames.push_back(
            {fields_.text(frame, "name"), fields_.text(frame, "filename"),
             static_cast<int>(std::clamp<std::int64_t>(fields_.number(frame, "line"), 0, 1 << 30))});
      }
  }

  std::vector<std::vector<std::int64_t>> sizes(const Value& entry, const char* key) const {
    std::vector<std::vector<std::int64_t>> all;
    const Value* tensors = fields_.get(entry, key, Kind::kList);
    for (std::size_t i = 0; tensors != nullptr && i < std::min(tensors->items.size(), kMaxTensors); ++i) {
      const Value& tensor = document_.at(tensors->items[i]);
      if (tensor.kind != Kind::kList)
        throw Defect{fmt::format("{}: expected a list, found {}", key, to_string(tensor.kind))};
      auto& dimensions = all.emplace_back();
      for (std::size_t d = 0; d < std::min(tensor.items.size(), kMaxDimensions); ++d) {
        const Value& size = document_.at(tensor.items[d]);
        if (size.kind != Kind::kInteger)
          throw Defect{fmt::format("{}: expected a whole number, found {}", key, to_string(size.kind))};
        dimensions.push_back(size.integer);
      }
    }
    return all;
  }

  std::vector<std::string> types(const Value& entry, const char* key) const {
    std::vector<std::string> all;
    const Value* tensors = fields_.get(entry, key, Kind::kList);
    for (std::size_t i = 0; tensors != nullptr && i < std::min(tensors->items.size(), kMaxTensors); ++i) {
      const Value& type = document_.at(tensors->items[i]);
      if (type.kind != Kind::kText)
        throw Defect{fmt::format("{}: expected a string, found {}", key, to_string(type.kind))};
      all.push_back(type.text.substr(0, kMaxText));
    }
    return all;
  }

  // It knows more than the entries only if those that have ended are not dumped. It counts messages, too.
  void read_status(const Value& status, FlightRecord& record) const {
    for (std::size_t i = 0; i + 1 < status.items.size(); i += 2) {
      const Value &key = document_.at(status.items[i]), &one = document_.at(status.items[i + 1]);
      if (one.kind != Kind::kDict)
        throw Defect{fmt::format("pg_status: expected a dict, found {}", to_string(one.kind))};
      std::int64_t id = -1;
      std::from_chars(key.text.data(), key.text.data() + key.text.size(), id);
      const auto group = builder_.group_of_collectives(id);
      if (!group) continue;
      RecordedGroup& into = record.groups[*group];
      for (const auto& [name, last] : {std::pair{"last_enqueued_collective", &into.last_enqueued},
                                       {"last_started_collective", &into.last_started},
                                       {"last_completed_collective", &into.last_completed}})
        if (const auto number = fields_.count(one, name)) *last = std::max(last->value_or(0), *number);
    }
  }

  const Document& document_;
  Fields fields_;
  RecordBuilder builder_;
  std::vector<ValueId> entries_;
};

}  // namespace

Result<FlightRecord> read_dump(std::string_view bytes, const std::string& path) {
  const auto document = looks_like_pickle(bytes) ? read_pickle(bytes, path) : read_json(bytes, path);
  if (!document) return fail(document.error());
  try {
    FlightRecord record = DumpReader(*document).read();
    record.path = path;
    return record;
  } catch (const Defect& defect) {
    return fail({.code = ErrorCode::kMalformed,
                 .subject = path,
                 .what = "not a dump of PyTorch's Flight Recorder: " + defect.what,
                 .hint = "name the files that TORCH_FR_DUMP_TEMP_FILE (before: TORCH_NCCL_DEBUG_INFO_TEMP_FILE) leads "
                         "to"});
  }
}

}  // namespace rankstacks::flight_recorder
