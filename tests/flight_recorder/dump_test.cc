// The dumps in fixtures/flight_recorder are those of ranks of torch 2.11 with NCCL 2.28.9 and gloo, and the same data
// as Python's pickle module writes it.
#include "flight_recorder/dump.h"

#include <catch2/catch.hpp>

#include <fstream>
#include <sstream>

#include "flight_recorder/pickle.h"
#include "flight_recorder/record_builder.h"

using namespace rankstacks;
using namespace rankstacks::flight_recorder;
using namespace std::string_literals;

namespace {

std::string bytes_of(const std::string& name) {
  std::ifstream file(std::string(RANKSTACKS_FIXTURES) + "/flight_recorder/" + name, std::ios::binary);
  REQUIRE(file);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

FlightRecord dump(const std::string& name) {
  auto record = read_dump(bytes_of(name), name);
  INFO((record ? "" : record.error().message()));
  REQUIRE(record);
  return std::move(*record);
}

std::string error_of(const std::string& bytes) {
  const auto record = read_dump(bytes, "dump_0");
  REQUIRE_FALSE(record);
  return record.error().message();
}

std::string pickled(const std::string& instructions) { return "\x80\x02"s + instructions; }

}  // namespace

TEST_CASE("a dump that torch has written") {
  const FlightRecord record = dump("other-collective_1");
  CHECK(record.version == "2.10");
  REQUIRE(record.groups.size() == 2);
  const RecordedGroup& group = record.groups[0];
  CHECK(group.name == "0");
  CHECK(group.description == "default_pg");
  CHECK(group.library == "nccl");
  CHECK(group.ranks == std::vector{0, 1});
  CHECK(group.last_enqueued == 4);
  CHECK(group.last_completed == 3);  // pg_status says 1
  REQUIRE(group.operations.size() == 5);
  const RecordedOperation& message = group.operations[3];
  CHECK(message.name == "recv 1<-0");
  CHECK(message.is_message);
  CHECK(message.sequence == 1);
  CHECK(message.state == RecordedState::kCompleted);
  const RecordedOperation& pending = group.operations[4];
  CHECK(pending.name == "_all_gather_base");
  CHECK(pending.sequence == 4);
  CHECK(pending.state == RecordedState::kScheduled);
  CHECK(pending.input_sizes == std::vector<std::vector<std::int64_t>>{{1024}});
  CHECK(pending.output_sizes == std::vector<std::vector<std::int64_t>>{{2048}});
  CHECK(pending.output_types == std::vector<std::string>{"Float"});
  REQUIRE(pending.frames.size() >= 2);
  CHECK(pending.frames[2] == RecordedFrame{"hang", "/home/user/rankstacks/fr_dumps.py", 34});
  CHECK(record.groups[1].description == "second_group");
  CHECK(record.groups[1].operations.at(0).input_types == std::vector<std::string>{"Half"});
}

TEST_CASE("the same data by Python's pickle module") {
  const FlightRecord torch = dump("other-collective_1");
  for (const char* protocol : {"2", "3", "4", "5"}) {
    FlightRecord again = dump("other-collective.protocol"s + protocol + "_1");
    again.path = torch.path;
    CHECK(again == torch);
  }
}

TEST_CASE("the same data as JSON, which has no stacks") {
  FlightRecord torch = dump("other-collective_0"), json = dump("other-collective.json_0");
  json.path = torch.path;
  for (RecordedGroup& group : torch.groups)
    for (RecordedOperation& operation : group.operations) operation.frames.clear();
  CHECK(json == torch);
}

TEST_CASE("gloo's operations that have ended are retired") {
  const FlightRecord record = dump("gloo_0");
  REQUIRE(record.groups.size() == 1);
  CHECK(record.groups[0].library == "gloo");
  CHECK(record.groups[0].last_enqueued == 2);
  CHECK(record.groups[0].last_completed == 1);
  REQUIRE(record.groups[0].operations.size() == 2);
  CHECK(record.groups[0].operations[0].state == RecordedState::kCompleted);
  CHECK(record.groups[0].operations[1].state == RecordedState::kScheduled);
}

TEST_CASE("messages of a batch end with it") {
  const FlightRecord record = dump("pipeline_0");
  std::vector<std::string> pending;
  for (const RecordedOperation& operation : record.groups.at(0).operations)
    if (operation.state != RecordedState::kCompleted)
      pending.push_back(operation.name + " " + std::to_string(operation.sequence));
  CHECK(pending == std::vector<std::string>{"recv 0<-1 18", "recv 0<-1 19"});
}

TEST_CASE("plain values of every instruction") {
  const auto read = [](const std::string& bytes) {
    auto document = read_pickle(pickled(bytes), "p");
    INFO((document ? "" : document.error().message()));
    REQUIRE(document);
    return std::move(*document);
  };
  CHECK(read("J\xff\xff\xff\xff.").at(0).integer == -1);
  CHECK(read("\x8a\x02\x00\x80."s).at(0).integer == -32768);
  CHECK(read("\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f.").at(0).integer == INT64_MAX);
  CHECK(read("\x8a\x00."s).at(0).integer == 0);
  CHECK(read("G\x3f\xf8\0\0\0\0\0\0."s).at(0).real == 1.5);
  CHECK(read("\x8c\x02hi.").at(0).text == "hi");
  const Document dict = read("}(X\x01\0\0\0aK\x01X\x01\0\0\0bN\x88\x86u0)."s);
  CHECK(dict.at(dict.root).kind == Kind::kList);
  // A list that contains itself.
  const Document circle = read("]q\0h\0a."s);
  CHECK(circle.at(circle.root).items == std::vector<ValueId>{circle.root});
}

TEST_CASE("hostile pickles") {
  CHECK(error_of(pickled("cos\nsystem\n(S'true'\ntR.")) ==
        "dump_0: instruction 0x63 of pickle is not one of plain data (at 0x2)");
  CHECK(error_of(pickled("\x93.")).find("not one of plain data") != std::string::npos);
  CHECK(error_of(pickled("X\xff\xff\xff\xffhi")).find("ends within an instruction") != std::string::npos);
  CHECK(error_of(pickled("}")).find("ends before its last instruction") != std::string::npos);
  CHECK(error_of(pickled(".")).find("finds nothing on the stack") != std::string::npos);
  CHECK(error_of(pickled("e")).find("finds no mark") != std::string::npos);
  CHECK(error_of(pickled("]N(a.")).find("finds nothing on the stack") != std::string::npos);
  CHECK(error_of(pickled("h\x05.")).find("a reference to 5") != std::string::npos);
  CHECK(error_of(pickled("N(Ne.")).find("expected a list to add to") != std::string::npos);
  CHECK(error_of(pickled("}(Nu.")).find("a key without a value") != std::string::npos);
  CHECK(error_of(pickled("\x8a\x09\x01\x01\x01\x01\x01\x01\x01\x01\x01.")).find("64 bits") != std::string::npos);
  CHECK(error_of("\x80\x06N.").find("after 5") != std::string::npos);
  // Nested a million times: nothing recurses.
  std::string deep(1'000'000, ']');
  deep += std::string(999'999, 'a') + '.';
  CHECK(error_of(pickled(deep)).find("expected a dict, found a list") != std::string::npos);
  CHECK(error_of(pickled(std::string(2'000'001, 'N'))).find("more than 2000000 values") != std::string::npos);
}

TEST_CASE("what is no dump, or is of another shape") {
  CHECK(error_of("").find("neither a pickle nor JSON") != std::string::npos);
  CHECK(error_of("[1]").find("expected a dict, found a list") != std::string::npos);
  CHECK(error_of("{}").find("neither entries nor pg_config") != std::string::npos);
  CHECK(error_of(R"({"entries": [{"pg_id": "0"}]})") ==
        "dump_0: not a dump of PyTorch's Flight Recorder: entries[0].pg_id: expected a whole number, found a string");
  CHECK(error_of(R"({"entries": [3]})").find("entries[0].expected a dict") != std::string::npos);
  CHECK(error_of(std::string(100, '[') + std::string(100, ']')).find("deeper than 64") != std::string::npos);
  CHECK(read_dump(R"({"entries": []})", "dump_0")->groups.empty());
  // Missing keys have their defaults.
  const auto bare = read_dump(R"({"entries": [{}, {"state": "started", "collective_seq_id": 2}]})", "dump_0");
  REQUIRE(bare);
  REQUIRE(bare->groups.size() == 1);
  CHECK(bare->groups[0].last_started == 2);
}

TEST_CASE("in which order the collectives of groups were called") {
  std::string entries;
  const auto add = [&](const std::string& name, int group, int collective) {
    entries += std::string(entries.empty() ? "" : ",") + R"({"pg_id": )" + std::to_string(group) +
               R"(, "process_group": ["g)" + std::to_string(group) + R"(", ""], "profiling_name": "nccl:)" + name +
               R"(", "collective_seq_id": )" + std::to_string(collective) + R"(, "state": "completed", "is_p2p": )" +
               (name.starts_with("send") ? "true}" : "false}");
  };
  for (int i = 0; i < 2; ++i) {
    add("all_reduce", 0, i);
    add("send 0->1", 0, i);
    add("_all_gather_base", 1, i);
    add("_all_gather_base", 1, i);  // a batch
  }
  const auto record = read_dump("{\"entries\": [" + entries + "]}", "dump_0");
  REQUIRE(record);
  CHECK(record->recent_calls == std::vector<std::uint32_t>{0, 1, 0, 1});
  for (int i = 0; i < 100; ++i) add("all_reduce", i % 2, i);
  CHECK(read_dump("{\"entries\": [" + entries + "]}", "dump_0")->recent_calls.size() == 104);
  for (int i = 100; i < 200; ++i) add("all_reduce", i % 2, i);
  CHECK(read_dump("{\"entries\": [" + entries + "]}", "dump_0")->recent_calls.size() == kMaxRecentCalls);
  for (int i = 200; i < 400; ++i) add("all_reduce", 0, i);  // of one group alone, they say nothing
  CHECK(read_dump("{\"entries\": [" + entries + "]}", "dump_0")->recent_calls.empty());
}

TEST_CASE("of many operations the first that have not ended are kept, and the last that have") {
  std::string entries;
  for (int i = 1; i <= 200; ++i)
    entries += std::string(i > 1 ? "," : "") + R"({"profiling_name": "nccl:all_reduce", "collective_seq_id": )" +
               std::to_string(i) + R"(, "state": ")" + (i <= 100 ? "completed" : "scheduled") + "\"}";
  const auto record = read_dump("{\"entries\": [" + entries + "]}", "dump_0");
  REQUIRE(record);
  const RecordedGroup& group = record->groups.at(0);
  REQUIRE(group.operations.size() == kMaxEnded + kMaxPending);
  CHECK(group.operations.front().sequence == 97);
  CHECK(group.operations[kMaxEnded].sequence == 101);
  CHECK(group.left_out == 100 - kMaxPending);
  CHECK(group.last_enqueued == 200);
  CHECK(group.last_completed == 100);
}
