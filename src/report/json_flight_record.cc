#include "report/json_flight_record.h"

#include <utility>

namespace rankstacks::report {
namespace {

constexpr std::size_t kMaxGroups = 1 << 13, kMaxMembers = 1 << 17, kMaxOperations = 1 << 16, kMaxParts = 1 << 10,
                      kMaxCalls = 1 << 12;

constexpr WordTable<RecordedState, 3> kStateWords = {{{RecordedState::kScheduled, "scheduled"},
                                                      {RecordedState::kStarted, "started"},
                                                      {RecordedState::kCompleted, "completed"}}};

void write_sizes(JsonText& json, const char* name, const std::vector<std::vector<std::int64_t>>& sizes) {
  json.key(name);
  json.open('[');
  for (const auto& tensor : sizes) {
    json.open('[');
    for (const std::int64_t size : tensor) json.number(size);
    json.close();
  }
  json.close();
}

void write_types(JsonText& json, const char* name, const std::vector<std::string>& types) {
  json.key(name);
  json.open('[');
  for (const std::string& type : types) json.string(type);
  json.close();
}

void write_operation(JsonText& json, const RecordedOperation& operation) {
  json.open('{');
  json.key("sequence"), json.number(operation.sequence);
  json.key("message"), json.boolean(operation.is_message);
  json.field("name", operation.name);
  json.field("state", std::string(word_of(kStateWords, operation.state)));
  write_sizes(json, "input_sizes", operation.input_sizes);
  write_types(json, "input_types", operation.input_types);
  write_sizes(json, "output_sizes", operation.output_sizes);
  write_types(json, "output_types", operation.output_types);
  json.key("frames");
  json.open('[');
  for (const RecordedFrame& frame : operation.frames) {
    json.open('{');
    json.field("function", frame.function);
    json.field("file", frame.file);
    json.key("line"), json.number(frame.line);
    json.close();
  }
  json.close();
  json.close();
}

void write_group(JsonText& json, const RecordedGroup& group) {
  json.open('{', true);
  json.field("name", group.name);
  json.field("description", group.description);
  json.field("library", group.library);
  json.key("ranks");
  json.open('[');
  for (const int rank : group.ranks) json.number(rank);
  json.close();
  json.field("last_enqueued", group.last_enqueued);
  json.field("last_started", group.last_started);
  json.field("last_completed", group.last_completed);
  json.key("left_out"), json.number(group.left_out);
  json.key("operations");
  json.open('[', true);
  for (const RecordedOperation& operation : group.operations) write_operation(json, operation);
  json.close();
  json.close();
}

std::vector<std::vector<std::int64_t>> read_sizes(const Node& node) {
  std::vector<std::vector<std::int64_t>> sizes;
  node.each(kMaxParts, [&](const Node& tensor) {
    auto& dimensions = sizes.emplace_back();
    tensor.each(kMaxParts, [&](const Node& size) { dimensions.push_back(size.integer(INT64_MIN, INT64_MAX)); });
  });
  return sizes;
}

std::vector<std::string> read_types(const Node& node) {
  std::vector<std::string> types;
  node.each(kMaxParts, [&](const Node& type) { types.push_back(type.text()); });
  return types;
}

RecordedOperation read_operation(const Node& node) {
  node.require_object();
  RecordedOperation operation;
  node.required("sequence", [&](const Node& n) { operation.sequence = n.integer(INT64_MIN, INT64_MAX); });
  node.optional("message", [&](const Node& n) { operation.is_message = n.boolean(); });
  node.required("name", [&](const Node& n) { operation.name = n.text(); });
  node.required("state", [&](const Node& n) { operation.state = n.word(kStateWords); });
  node.optional("input_sizes", [&](const Node& n) { operation.input_sizes = read_sizes(n); });
  node.optional("input_types", [&](const Node& n) { operation.input_types = read_types(n); });
  node.optional("output_sizes", [&](const Node& n) { operation.output_sizes = read_sizes(n); });
  node.optional("output_types", [&](const Node& n) { operation.output_types = read_types(n); });
  node.optional("frames", [&](const Node& list) {
    list.each(kMaxParts, [&](const Node& n) {
      n.require_object();
      RecordedFrame& frame = operation.frames.emplace_back();
      n.optional("function", [&](const Node& v) { frame.function = v.text(); });
      n.optional("file", [&](const Node& v) { frame.file = v.text(); });
      n.optional("line", [&](const Node& v) { frame.line = v.int32(0); });
    });
  });
  return operation;
}

RecordedGroup read_group(const Node& node) {
  node.require_object();
  RecordedGroup group;
  node.required("name", [&](const Node& n) { group.name = n.text(); });
  node.optional("description", [&](const Node& n) { group.description = n.text(); });
  node.optional("library", [&](const Node& n) { group.library = n.text(); });
  node.optional("ranks", [&](const Node& list) {
    list.each(kMaxMembers, [&](const Node& n) { group.ranks.push_back(n.int32(0)); });
  });
  node.optional("last_enqueued", [&](const Node& n) { group.last_enqueued = n.integer(0, INT64_MAX); });
  node.optional("last_started", [&](const Node& n) { group.last_started = n.integer(0, INT64_MAX); });
  node.optional("last_completed", [&](const Node& n) { group.last_completed = n.integer(0, INT64_MAX); });
  node.optional("left_out", [&](const Node& n) { group.left_out = static_cast<std::size_t>(n.integer(0, INT64_MAX)); });
  node.optional("operations", [&](const Node& list) {
    list.each(kMaxOperations, [&](const Node& n) { group.operations.push_back(read_operation(n)); });
  });
  return group;
}

}  // namespace

void write_flight_record(JsonText& json, const FlightRecord& record) {
  json.key("flight_recorder");
  json.open('{', true);
  json.field("source", record.from_memory ? "memory" : "dump");
  json.field("path", record.path);
  json.field("version", record.version);
  json.field("age_ms", record.age_ms);
  json.field("last_call_ms", record.last_call_ms);
  json.field("longest_gap_ms", record.longest_gap_ms);
  json.key("groups");
  json.open('[', true);
  for (const RecordedGroup& group : record.groups) write_group(json, group);
  json.close();
  if (!record.recent_calls.empty()) {
    json.key("recent_calls");
    json.open('[');
    for (const std::uint32_t group : record.recent_calls) json.number(group);
    json.close();
  }
  json.close();
}

FlightRecord read_flight_record(const Node& node) {
  node.require_object();
  FlightRecord record;
  node.optional("source", [&](const Node& n) { record.from_memory = n.text() == "memory"; });
  node.optional("path", [&](const Node& n) { record.path = n.text(); });
  node.optional("version", [&](const Node& n) { record.version = n.text(); });
  node.optional("age_ms", [&](const Node& n) { record.age_ms = n.real(); });
  node.optional("last_call_ms", [&](const Node& n) { record.last_call_ms = n.real(); });
  node.optional("longest_gap_ms", [&](const Node& n) { record.longest_gap_ms = n.real(); });
  node.required("groups", [&](const Node& list) {
    list.each(kMaxGroups, [&](const Node& n) { record.groups.push_back(read_group(n)); });
  });
  node.optional("recent_calls", [&](const Node& list) {
    list.each(kMaxCalls, [&](const Node& n) {
      const auto group = static_cast<std::uint32_t>(n.integer(0, INT32_MAX));
      if (group < record.groups.size()) record.recent_calls.push_back(group);
    });
  });
  return record;
}

}  // namespace rankstacks::report
