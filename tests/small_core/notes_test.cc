#include <catch2/catch.hpp>

#include "small_core/interpreter_note.h"
#include "small_core/note_bytes.h"
#include "small_core/stack_note.h"
#include "small_core/symbol_note.h"

using namespace rankstacks;
using namespace rankstacks::small_core;

namespace {

std::vector<std::byte> cut(std::vector<std::byte> bytes, std::size_t size) {
  bytes.resize(size);
  return bytes;
}

const std::vector<target::ThreadInfo> kThreads = {{.tid = 10}, {.tid = 11}};

std::vector<unwind::UnwoundStack> two_stacks() {
  unwind::UnwoundStack complete, cut_off;
  complete.frames = {{.pc = 0x1000, .sp = 0x7000, .cfa = 0x7010, .exact_pc = true},
                     {.pc = 0x2000, .sp = 0x7010, .origin = FrameOrigin::kFramePointer}};
  cut_off.frames = {{.pc = 0x3000, .sp = 0x8000}};
  cut_off.end = StackEnd::kMemoryUnavailable;
  cut_off.omitted = OmittedFrames{1, 12345};
  return {complete, cut_off};
}

}  // namespace

TEST_CASE("stacks come back as they were noted") {
  const auto read = read_stacks(write_stacks(kThreads, two_stacks()));
  REQUIRE(read.size() == 2);
  const unwind::UnwoundStack& complete = read.at(10);
  REQUIRE(complete.frames.size() == 2);
  CHECK(complete.frames[0].pc == 0x1000);
  CHECK(complete.frames[0].sp == 0x7000);
  CHECK(complete.frames[0].cfa == 0x7010);
  CHECK(complete.frames[0].exact_pc);
  CHECK_FALSE(complete.frames[1].exact_pc);
  CHECK(complete.frames[1].origin == FrameOrigin::kFramePointer);
  CHECK(complete.end == StackEnd::kComplete);
  CHECK_FALSE(complete.omitted);
  CHECK(read.at(11).end == StackEnd::kMemoryUnavailable);
  REQUIRE(read.at(11).omitted);
  CHECK(read.at(11).omitted->at == 1);
  CHECK(read.at(11).omitted->count == 12345);
}

TEST_CASE("stacks: what is cut off is left out, with all that follows") {
  const auto whole = write_stacks(kThreads, two_stacks());
  for (std::size_t size = 0; size < whole.size(); ++size) {
    const auto read = read_stacks(cut(whole, size));
    CHECK(read.size() < 2);
    if (!read.empty()) CHECK(read.at(10).frames.size() == 2);
  }
}

TEST_CASE("a count that cannot be is refused before anything is allocated for it") {
  NoteWriter note;
  note.put(std::uint32_t{0xffffffff});
  const auto body = note.take();
  CHECK(read_stacks(body).empty());
  CHECK(read_interpreters(body).empty());
  CHECK(read_symbols(body).empty());
}

TEST_CASE("interpreters come back as they were noted") {
  python::RuntimeCandidate candidate{.module = "/usr/lib/libpython3.11.so.1.0", .runtime = 0x7f00, .how = "symbol"};
  candidate.version = python::Version{3, 11, 2, "+"};
  candidate.tstate_current = 0x1234;
  candidate.hash_secret = 0x5678;
  candidate.faulthandler = 0x9abc;
  const auto whole = write_interpreters(std::vector{candidate, python::RuntimeCandidate{.module = "x"}});
  const auto read = read_interpreters(whole);
  REQUIRE(read.size() == 2);
  CHECK(read[0].module == candidate.module);
  CHECK(read[0].runtime == 0x7f00);
  CHECK(read[0].how == "symbol");
  REQUIRE(read[0].version);
  CHECK(read[0].version->to_string() == "3.11.2+");
  CHECK(read[0].tstate_current == 0x1234);
  CHECK(read[0].hash_secret == 0x5678);
  CHECK_FALSE(read[1].version);
  CHECK(read[0].faulthandler == 0x9abc);
  // Captures of earlier builds end before the addresses of faulthandler's handlers.
  const std::size_t without = whole.size() - 2 * sizeof(Address);
  for (std::size_t size = 0; size < without; ++size) CHECK(read_interpreters(cut(whole, size)).size() < 2);
  const auto earlier = read_interpreters(cut(whole, without));
  REQUIRE(earlier.size() == 2);
  CHECK(earlier[0].faulthandler == 0);
}

TEST_CASE("symbols come back as they were noted") {
  NotedSymbols symbols;
  symbols["0123ab"][0x1139] = {{"inner", "/src/a.c", 7, true}, {"outer(int)", "/src/a.c", 20, false}};
  symbols["/opt/no-build-id.so"][0x40] = {{std::nullopt, std::nullopt, std::nullopt, false}};
  const auto whole = write_symbols(symbols);
  const auto read = read_symbols(whole);
  REQUIRE(read.size() == 2);
  const auto& locations = read.at("0123ab").at(0x1139);
  REQUIRE(locations.size() == 2);
  CHECK(locations[0].function == "inner");
  CHECK(locations[0].line == 7);
  CHECK(locations[0].inlined);
  CHECK(locations[1].function == "outer(int)");
  CHECK(locations[1].file == "/src/a.c");
  CHECK_FALSE(read.at("/opt/no-build-id.so").at(0x40)[0].function);
  CHECK_FALSE(read.at("/opt/no-build-id.so").at(0x40)[0].line);
  for (std::size_t size = 0; size < whole.size(); ++size) read_symbols(cut(whole, size));
}

TEST_CASE("symbols: a text that is referred to over and over is not copied without end") {
  NoteWriter note;
  note.put(std::uint32_t{1});
  note.put_text(std::string(60'000, 'f'));
  note.put(std::uint32_t{1});  // one module, whose key is that text
  note.put(std::uint32_t{0});
  constexpr std::uint32_t kAddresses = 100'000;
  note.put(kAddresses);
  for (std::uint32_t i = 0; i < kAddresses; ++i) {
    note.put(std::uint64_t{i});
    note.put(std::uint32_t{1});
    note.put(std::uint32_t{0});
    note.put(std::uint32_t{0});
    note.put(std::int32_t{1});
    note.put(std::uint8_t{0});
  }
  const auto read = read_symbols(note.take());
  REQUIRE(read.size() == 1);
  CHECK(read.begin()->second.size() < 1000);
  CHECK_FALSE(read.begin()->second.empty());
}

TEST_CASE("noted symbols are used where they say more") {
  const std::vector<symbolizers::SourceLocation> lines = {{"f", "a.c", 1, false}}, name = {{"f", {}, {}, false}},
                                                 nothing = {{{}, {}, {}, false}};
  CHECK(says_more(lines, name));
  CHECK(says_more(lines, nothing));
  CHECK(says_more(name, nothing));
  CHECK_FALSE(says_more(name, lines));
  CHECK_FALSE(says_more(nothing, name));
}
