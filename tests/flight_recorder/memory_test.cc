// The four forms of PyTorch's Flight Recorder in this process's own memory.
#include "flight_recorder/memory.h"

#include <catch2/catch.hpp>

#include "flight_recorder/literal_recorder.h"
#include "flight_recorder/record_builder.h"

namespace rankstacks::flight_recorder {
namespace {

using namespace rankstacks::testing;

TEMPLATE_TEST_CASE("what each version of PyTorch has recorded", "", Torch25, Torch27, Torch29, Torch211) {
  TestType recorder;
  recorder.state->ranks[{"0", "default_pg"}] = {0, 1, 2, 3};
  recorder.state->ranks[{"5", "a description that does not fit into the string itself"}] = {1, 3};
  for (std::size_t n = 1; n <= 3; ++n) recorder.end(recorder.call(0, "nccl:all_reduce", n, {10}));
  recorder.end(recorder.call(1, "nccl:_all_gather_base", 1, {4, 2}));
  recorder.call(0, "nccl:_reduce_scatter_base", 4, {2, 3, 4, 5, 6, 7, 8, 9, 10});
  recorder.call(1, "nccl:broadcast", 2, {7});

  const auto record = read_recorder(read_own, recorder.place());
  REQUIRE(record);
  CHECK(record->from_memory);
  REQUIRE(record->groups.size() == 2);
  const RecordedGroup& all = record->groups[0];
  CHECK((all.name == "0" && all.description == "default_pg" && all.library == "nccl"));
  CHECK(all.ranks == std::vector<int>{0, 1, 2, 3});
  CHECK((all.last_enqueued == 4 && all.last_completed == 3));
  REQUIRE(all.operations.size() == 4);
  CHECK((all.operations[0].name == "all_reduce" && all.operations[0].state == RecordedState::kCompleted));
  const RecordedOperation& waits = all.operations[3];
  CHECK((waits.name == "_reduce_scatter_base" && waits.sequence == 4 && waits.state == RecordedState::kScheduled));
  CHECK(waits.input_sizes == std::vector<std::vector<std::int64_t>>{{2, 3, 4, 5, 6, 7, 8, 9}});  // 8 of 9
  CHECK(waits.input_types == std::vector<std::string>{"Float"});
  const RecordedGroup& some = record->groups[1];
  CHECK(some.description == "a description that does not fit into the string itself");
  CHECK(some.ranks == std::vector<int>{1, 3});
  REQUIRE(some.operations.size() == 2);
  CHECK((some.operations[0].name == "_all_gather_base" && some.operations[1].name == "broadcast"));
  CHECK(record->thread_ids.size() == (sizeof recorder.state->entries[0] > 500 ? 1u : 0u));
}

TEMPLATE_TEST_CASE("when a rank has called its operations", "", Torch25, Torch27, Torch29, Torch211) {
  constexpr std::int64_t kSecond = 1'000'000'000;
  TestType recorder;
  std::size_t number = 0;
  const auto call_at = [&](std::int64_t ns) {
    auto& entry = recorder.call(0, "nccl:all_reduce", ++number, {10});
    entry.created = ns;
    recorder.end(entry);
  };
  for (const std::int64_t second : {100, 130, 131}) call_at(second * kSecond);
  SECTION("too few to tell") {
    const auto record = read_recorder(read_own, recorder.place());
    REQUIRE(record);
    CHECK(record->last_call_ns == 131 * kSecond);
    CHECK_FALSE(record->longest_gap_ms);
  }
  SECTION("the longest pause of the newer half: the job had to begin") {
    for (const std::int64_t second : {133, 134}) call_at(second * kSecond);
    const auto record = read_recorder(read_own, recorder.place());
    REQUIRE(record);
    CHECK(record->last_call_ns == 134 * kSecond);
    CHECK(record->longest_gap_ms == 2000.0);
  }
  SECTION("no time is known of one of them") {
    call_at(0);
    const auto record = read_recorder(read_own, recorder.place());
    REQUIRE(record);
    CHECK_FALSE((record->last_call_ns || record->longest_gap_ms));
  }
}

TEST_CASE("a ring that is full is read from its oldest entry") {
  Torch211 recorder;
  for (std::size_t n = 1; n <= 21; ++n) {
    auto& entry = recorder.call(0, "nccl:all_reduce", n, {10});
    if (n <= 19) recorder.end(entry);
  }
  const auto record = read_recorder(read_own, recorder.place());
  REQUIRE(record);
  REQUIRE(record->groups.size() == 1);
  REQUIRE(record->groups[0].operations.size() == kMaxEnded + 2);
  CHECK(record->groups[0].operations.front().sequence == 16);
  CHECK(record->groups[0].operations.back().sequence == 21);
}

TEST_CASE("messages of a batch have the state of the entry that ends it") {
  Torch211 recorder;
  for (const char* name : {"nccl:send 0->1", "nccl:recv 0<-1", "nccl:coalesced"}) {
    auto& entry = recorder.call(0, name, 0, {3});
    entry.is_p2p = true;
    entry.p2p_seq_id = 1;
    if (std::string_view(name) == "nccl:coalesced") recorder.end(entry);
  }
  auto& next = recorder.call(0, "nccl:send 0->1", 0, {3});
  next.is_p2p = true;
  next.p2p_seq_id = 2;
  const auto record = read_recorder(read_own, recorder.place());
  REQUIRE(record);
  REQUIRE(record->groups[0].operations.size() == 3);
  CHECK(record->groups[0].operations[1].state == RecordedState::kCompleted);
  CHECK((record->groups[0].operations[2].name == "send 0->1" && record->groups[0].operations[2].is_message &&
         record->groups[0].operations[2].state == RecordedState::kScheduled));
}

TEST_CASE("gloo's operations that are retired have ended") {
  Torch211 recorder, of_nccl;
  recorder.call(0, "gloo:all_reduce", 1, {10}).retired = true;
  recorder.call(0, "gloo:all_reduce", 2, {10});
  const auto record = read_recorder(read_own, recorder.place(false));
  REQUIRE(record);
  CHECK((record->groups[0].library == "gloo" && record->groups[0].last_completed == 1));
  SECTION("both libraries have a default group of their own") {
    of_nccl.call(0, "nccl:all_reduce", 7, {10});
    const std::vector<RecorderPlace> places = {recorder.place(false), of_nccl.place()};
    const auto both = read_recorders(read_own, places);
    REQUIRE(both);
    REQUIRE(both->groups.size() == 2);
    CHECK((both->groups[0].library == "nccl" && both->groups[0].last_enqueued == 7));
    CHECK((both->groups[1].library == "gloo" && both->groups[1].last_enqueued == 2));
  }
}

TEST_CASE("memory that is not sound is no record") {
  Torch211 recorder;
  for (std::size_t n = 1; n <= 3; ++n) recorder.call(0, "nccl:all_reduce", n, {10});
  REQUIRE(read_recorder(read_own, recorder.place()));
  auto& entry = recorder.state->entries[1];
  SECTION("no recorder yet") { recorder.instance = nullptr; }
  SECTION("it is switched off") { recorder.state->enabled = false; }
  SECTION("it is no recorder") { recorder.instance += 1; }
  SECTION("a flag") { reinterpret_cast<unsigned char&>(entry.retired) = 7; }
  SECTION("a number that does not follow") { recorder.state->id = 17; }
  SECTION("a text's length") { reinterpret_cast<std::size_t*>(&entry.profiling_name)[1] = 1 << 20; }
  SECTION("a text's place") { reinterpret_cast<Address*>(&entry.profiling_name)[0] = 8; }
  SECTION("more dimensions than sizes") { static_cast<std::int64_t*>(entry.input_dims.begin)[0] = 2; }
  SECTION("the map's count") {
    recorder.state->ranks[{"0", "default_pg"}] = {0, 1};
    reinterpret_cast<std::size_t*>(&recorder.state->ranks)[5] = 3;
    CHECK_FALSE(read_recorder(read_own, recorder.place()));
    reinterpret_cast<std::size_t*>(&recorder.state->ranks)[5] = 1;
    recorder.state->enabled = false;
  }
  CHECK_FALSE(read_recorder(read_own, recorder.place()));
  // What was damaged is not freed, and stays reachable for who looks for leaks.
  static auto* const damaged = new std::vector<Torch211::State*>;
  damaged->push_back(recorder.state.release());
}

TEST_CASE("what is read of a process is bounded") {
  constexpr std::uint32_t kTensors = 1 << 16;
  Torch211 recorder;
  recorder.state->most = 300;
  std::vector<std::int64_t> numbers(kTensors);
  const auto call = [&](std::size_t group) {
    auto& entry = recorder.call(0, "nccl:all_reduce", 1);
    entry.pg_id = group;  // of each group only some operations are kept
    for (auto* dims : {&entry.input_dims, &entry.output_dims})
      dims->begin = numbers.data(), dims->size = dims->capacity = kTensors;
  };
  std::size_t bytes = 0;
  const auto read = [&] {
    bytes = 0;
    return read_recorder(
        [&](Address at, std::span<std::byte> into) { return bytes += into.size(), read_own(at, into); },
        recorder.place());
  };
  recorder.state->entries.reserve(recorder.state->most);  // an entry that is copied would copy the numbers
  for (std::size_t n = 0; n < 32; ++n) call(n);
  const auto record = read();
  REQUIRE(record);
  CHECK(record->groups.at(0).operations.back().input_sizes.size() == kMaxTensors);
  for (std::size_t n = 32; n < 300; ++n) call(n);
  CHECK_FALSE(read());
  CHECK(bytes <= kMaxRead);
  for (auto& entry : recorder.state->entries)
    for (auto* dims : {&entry.input_dims, &entry.output_dims}) dims->begin = dims->within;  // what it frees is its own
}

TEST_CASE("a ring that has more than is read: its newest entries") {
  Torch211 recorder;
  recorder.state->most = kMaxEntries + 500;
  for (std::size_t n = 1; n <= kMaxEntries + 900; ++n) {
    auto& entry = recorder.call(0, "nccl:all_reduce", n, {10});
    if (n != 900 && n != 901) recorder.end(entry);
  }
  const auto record = read_recorder(read_own, recorder.place());
  REQUIRE(record);
  const RecordedGroup& group = record->groups.at(0);
  REQUIRE(group.operations.size() == 1 + kMaxEnded);
  CHECK((group.operations.front().sequence == 901 && group.operations.front().state == RecordedState::kScheduled));
  CHECK(group.operations.back().sequence == static_cast<std::int64_t>(kMaxEntries + 900));
}

TEST_CASE("a record that changes while it is read") {
  Torch211 recorder;
  recorder.call(0, "nccl:all_reduce", 1, {10});
  std::size_t reads = 0;
  const auto moves = [&](Address at, std::span<std::byte> into) {
    if (++reads % 4 == 0) recorder.call(0, "nccl:all_reduce", reads, {10});
    return read_own(at, into);
  };
  CHECK_FALSE(read_recorder(moves, recorder.place()));
}

}  // namespace
}  // namespace rankstacks::flight_recorder
