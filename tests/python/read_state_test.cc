// Python's state from hand-made memory: states that no running interpreter has, mainly damage.
#include <fmt/format.h>
#include <catch2/catch.hpp>

#include "debug_offsets.h"
#include "fake_interpreter.h"

using namespace rankstacks;
using namespace rankstacks::python;
using namespace rankstacks::testing;

namespace {

std::vector<std::string> names(const State& state, const ThreadState& thread) {
  std::vector<std::string> all;
  for (const Run& run : thread.runs) {
    for (const RawFrame& frame : run.frames) all.push_back(state.codes[frame.code].name);
  }
  return all;
}

std::string messages(const std::vector<Problem>& problems) {
  std::string all;
  for (const Problem& p : problems) all += (all.empty() ? "" : "; ") + p.message;
  return all;
}

State must_read(const FakeInterpreter& fake) {
  auto state = fake.read();
  if (!state) FAIL(state.error().message());
  return *state;
}

std::string error_of(const FakeInterpreter& fake) {
  const auto state = fake.read();
  return state ? "read" : state.error().message();
}

using Names = std::vector<std::string>;
constexpr std::uint64_t kThread = 0x7f0000001000;

}  // namespace

TEST_CASE("a sound chain of 3.9") {
  FakeInterpreter fake({3, 9, 18, ""});
  const Address outer = fake.frame(fake.code("outer", 3), 0);
  fake.thread(kThread, fake.frame(fake.code("inner", 5), outer, -1));
  const State state = must_read(fake);
  REQUIRE(state.threads.size() == 1);
  const ThreadState& thread = state.threads[0];
  CHECK(thread.pthread_id == kThread);
  CHECK(names(state, thread) == Names{"inner", "outer"});
  REQUIRE(thread.runs.size() == 2);  // a call of the loop for each
  CHECK_FALSE(thread.runs[0].anchor.has_value());
  CHECK(thread.runs[0].frames[0].instruction == kNotStarted);
  CHECK(line_of(state, thread.runs[1].frames[0]) == 3);
  CHECK(state.codes[0].file == "/x/inner.py");
  CHECK(messages(thread.problems) == "");
  CHECK(messages(state.problems) == "");
}

TEST_CASE("damaged chains end where the damage begins, and say so") {
  FakeInterpreter fake({3, 9, 18, ""});
  const Address outer = fake.frame(fake.code("outer"), 0);
  const Address middle = fake.frame(fake.code("middle"), outer);
  const Address inner = fake.frame(fake.code("inner"), middle);
  fake.thread(kThread, inner);
  Names expected;
  std::string why;
  SECTION("a cycle") {
    fake.set(outer + fake.layout().frame_previous, middle);
    expected = {"inner", "middle", "outer"};
    why = fmt::format("the frame at {:#x} is its own caller", middle);
  }
  SECTION("a frame that is its own caller") {
    fake.set(inner + fake.layout().frame_previous, inner);
    expected = {"inner"};
    why = fmt::format("the frame at {:#x} is its own caller", inner);
  }
  SECTION("a pointer to nowhere") {
    fake.set<Address>(middle + fake.layout().frame_previous, 0xdead0000);
    expected = {"inner", "middle"};
    why = "the frame at 0xdead0000 cannot be read";
  }
  SECTION("an odd pointer") {
    fake.set<Address>(middle + fake.layout().frame_previous, outer + 1);
    expected = {"inner", "middle"};
    why = fmt::format("a frame pointer is {:#x}", outer + 1);
  }
  SECTION("a pointer at the end of the address space") {
    fake.set<Address>(middle + fake.layout().frame_previous, ~Address{0} - 7);
    expected = {"inner", "middle"};
    why = "a frame pointer is 0xfffffffffffffff8";
  }
  SECTION("code that is a dict") {
    const Address dict = fake.block(1024);
    fake.set(dict + fake.layout().object_type, FakeInterpreter::kOtherType);
    fake.set(middle + fake.layout().frame_code, dict);
    expected = {"inner"};
    why = fmt::format("the frame at {:#x} has no code", middle);
  }
  SECTION("code that is nowhere") {
    fake.set<Address>(middle + fake.layout().frame_code, 0xbad0000);
    expected = {"inner"};
    why = fmt::format("the frame at {:#x} has no code", middle);
  }
  const State state = must_read(fake);
  REQUIRE(state.threads.size() == 1);
  CHECK(names(state, state.threads[0]) == expected);
  CHECK(messages(state.threads[0].problems) == "Python thread 0x7f0000001000: its frames are incomplete: " + why);
}

TEST_CASE("a very long chain is cut off at the limit") {
  FakeInterpreter old({3, 9, 18, ""});
  // One block as an array of frames, each called by the next.
  constexpr std::size_t kFrames = 100'050, kSize = 128;
  const Address code = old.code("f"), base = old.block(kFrames * kSize);
  std::vector<std::byte> bytes(kFrames * kSize);
  for (std::size_t i = 0; i < kFrames; ++i) {
    const Address previous = i + 1 < kFrames ? base + (i + 1) * kSize : 0;
    std::memcpy(bytes.data() + i * kSize + old.layout().frame_previous, &previous, 8);
    std::memcpy(bytes.data() + i * kSize + old.layout().frame_code, &code, 8);
  }
  old.target.put(base, std::move(bytes));
  old.thread(kThread, base);
  const State state = must_read(old);
  CHECK(state.threads[0].runs.size() == 100'000);
  CHECK(messages(state.threads[0].problems) ==
        "Python thread 0x7f0000001000: its frames are incomplete: more than 100000 frames");
}

TEST_CASE("code that is mapped, but not in the core: the frame stays, without a name") {
  FakeInterpreter fake({3, 9, 18, ""});
  const Address outer = fake.frame(fake.code("outer"), 0);
  fake.thread(kThread, fake.frame(0x5000000, outer));
  fake.target.mappings_.push_back({.range = {0x5000000, 0x5001000}});
  const State state = must_read(fake);
  CHECK(names(state, state.threads[0]) == Names{"", "outer"});
  CHECK(state.codes[0].damaged);
  CHECK(state.partial);
  CHECK(messages(state.problems) ==
        "1 of 2 Python code objects cannot be read in full: names, files or lines of their frames are missing");
  CHECK(line_of(state, state.threads[0].runs[0].frames[0]) == std::nullopt);
}

TEST_CASE(
    "without the interpreter's read-only data code cannot be distinguished from other objects: frames are believed") {
  FakeInterpreter fake({3, 9, 18, ""});
  fake.set<Address>(FakeInterpreter::kType + fake.layout().type_name, 0x6660000);
  fake.thread(kThread, fake.frame(fake.code("f"), 0));
  const State state = must_read(fake);
  CHECK(names(state, state.threads[0]) == Names{"f"});
}

TEST_CASE("lists of interpreters and threads that do not end") {
  FakeInterpreter fake({3, 9, 18, ""});
  const Address first = fake.thread(1), second = fake.thread(2);
  SECTION("threads") {
    fake.set(first + fake.layout().thread_next, second);
    const State state = must_read(fake);
    CHECK(state.threads.size() == 2);
    CHECK(messages(state.problems) ==
          fmt::format("the list of threads of the interpreter at 0x20000 does not end (at {:#x})", second));
  }
  SECTION("interpreters") {
    fake.set(FakeInterpreter::kInterpreter + fake.layout().interp_next, FakeInterpreter::kInterpreter);
    const State state = must_read(fake);
    CHECK(state.threads.size() == 2);
    CHECK(messages(state.problems) == "the list of interpreters does not end (at 0x20000)");
  }
  SECTION("a thread of another interpreter") {
    fake.set<Address>(first + fake.layout().thread_interp, 0x30000);
    const State state = must_read(fake);
    CHECK(state.threads.size() == 1);
    CHECK(messages(state.problems) ==
          fmt::format("the thread state at {:#x} does not belong to the interpreter that lists it", first));
  }
  SECTION("a thread that is nowhere") {
    fake.set<Address>(second + fake.layout().thread_next, 0x6000000);
    const State state = must_read(fake);
    CHECK(state.threads.size() == 1);
    CHECK(messages(state.problems) == "the thread state at 0x6000000 cannot be read");
    CHECK(state.partial);
  }
}

TEST_CASE("candidates that are no running interpreter") {
  FakeInterpreter fake({3, 9, 18, ""});
  const std::string start = "fake: not the running interpreter: /usr/bin/python3 (symbol _PyRuntime at 0x10000): ";
  const Address head = FakeInterpreter::kRuntime + fake.layout().runtime_interpreters_head;
  SECTION("not started") {
    fake.set<Address>(head, 0);
    CHECK(error_of(fake) == start + "no interpreter is running in it");
  }
  SECTION("no threads") { CHECK(error_of(fake) == start + "its interpreter has no threads"); }
  SECTION("an interpreter that is nowhere") {
    fake.set<Address>(head, 0x7000000);
    CHECK(error_of(fake) == start + "its interpreter at 0x7000000 cannot be read");
  }
  SECTION("a thread state that is nowhere") {
    fake.set<Address>(FakeInterpreter::kInterpreter + fake.layout().interp_threads_head, 0x7000000);
    CHECK(error_of(fake) == start + "its thread state at 0x7000000 cannot be read");
  }
  SECTION("a thread state of another interpreter") {
    const Address thread = fake.thread(1);
    fake.set<Address>(thread + fake.layout().thread_interp, 0x30000);
    CHECK(error_of(fake) ==
          start + fmt::format("its thread state at {:#x} belongs to another interpreter than the one that lists it",
                              thread));
  }
}

TEST_CASE("the newest interpreter, which is listed first, may have no thread") {
  FakeInterpreter fake({3, 9, 18, ""});
  fake.thread(1, fake.frame(fake.code("f"), 0));
  const Address newest = fake.block(8192);
  fake.set<Address>(newest + fake.layout().interp_next, FakeInterpreter::kInterpreter);
  fake.set<Address>(FakeInterpreter::kRuntime + fake.layout().runtime_interpreters_head, newest);
  const State state = must_read(fake);
  REQUIRE(state.threads.size() == 1);
  CHECK(state.threads[0].runs.size() == 1);
}

TEST_CASE("which candidate is chosen") {
  FakeInterpreter fake({3, 9, 18, ""});
  fake.thread(kThread, fake.frame(fake.code("f"), 0));
  fake.block_at(0x40000, 4096);
  RuntimeCandidate good = fake.candidate(), stale = good;
  stale.module = "/tmp/libpython3.9.so";
  stale.runtime = 0x40000;
  SECTION("a stale copy is rejected, and named") {
    const std::vector<RuntimeCandidate> both{stale, good};
    const auto state = read_python_state(fake.target, both);
    REQUIRE(state.has_value());
    CHECK(state->threads.size() == 1);
    CHECK(messages(state->problems) ==
          "not the running interpreter: /tmp/libpython3.9.so (symbol _PyRuntime at 0x40000): no interpreter is running "
          "in it");
  }
  SECTION("a second running one is named") {
    const std::vector<RuntimeCandidate> both{good, good};
    const auto state = read_python_state(fake.target, both);
    REQUIRE(state.has_value());
    CHECK(state->threads.size() == 1);
    CHECK(messages(state->problems) ==
          "a second interpreter is not shown: /usr/bin/python3 (symbol _PyRuntime at 0x10000)");
  }
  SECTION("an executable that copied libpython's _PyRuntime has libpython's version") {
    stale.version = Version{3, 9, 18, ""};
    good.version.reset();
    const std::vector<RuntimeCandidate> both{good, stale};
    const auto state = read_python_state(fake.target, both);
    REQUIRE(state.has_value());
    CHECK(state->version.to_string() == "3.9.18");
  }
  SECTION("no version anywhere") {
    good.version.reset();
    const auto state = read_python_state(fake.target, std::span(&good, 1));
    REQUIRE_FALSE(state.has_value());
    CHECK(
        state.error().message() ==
        "fake: not the running interpreter: /usr/bin/python3 (symbol _PyRuntime at 0x10000): its version is not known");
    CHECK(state.error().code == ErrorCode::kUnsupported);
    CHECK(state.error().hint.starts_with("its file shows it: of a core, give it with --exe"));
  }
  SECTION("none has a running interpreter: that is no failure to read") {
    const auto state = read_python_state(fake.target, std::span(&stale, 1));
    REQUIRE_FALSE(state.has_value());
    CHECK(state.error().code == ErrorCode::kNotFound);
    CHECK(state.error().message() ==
          "fake: not the running interpreter: /tmp/libpython3.9.so (symbol _PyRuntime at 0x40000): no interpreter is "
          "running in it");
  }
  SECTION("a version without a layout") {
    good.version = Version{3, 12, 0, "a4"};
    const auto state = read_python_state(fake.target, std::span(&good, 1));
    REQUIRE_FALSE(state.has_value());
    CHECK(state.error().message() ==
          "fake: not the running interpreter: /usr/bin/python3 (symbol _PyRuntime at 0x10000): "
          "the structures of CPython 3.12.0a4 are not known");
  }
  SECTION("no candidates") {
    const auto state = read_python_state(fake.target, {});
    REQUIRE_FALSE(state.has_value());
    CHECK(state.error().code == ErrorCode::kNotFound);
    CHECK(state.error().message() == "fake: no Python interpreter is in it");
  }
}

TEST_CASE("debug offsets are used for 3.13 and later") {
  FakeInterpreter fake(kDebugOffsets_3_13_0);
  fake.thread(kThread, fake.frame(fake.code("f"), 0));
  const std::string start = "fake: not the running interpreter: /usr/bin/python3 (symbol _PyRuntime at 0x10000): ";
  SECTION("sound") { CHECK(names(must_read(fake), must_read(fake).threads[0]) == Names{"f"}); }
  SECTION("no cookie") {
    fake.set<std::uint64_t>(FakeInterpreter::kRuntime, 0);
    CHECK(error_of(fake) == start + "CPython 3.13.0 begins with the cookie xdebugpy, and that is not there");
  }
  SECTION("another version than the file") {
    fake.set<std::uint64_t>(FakeInterpreter::kRuntime + 8, 0x030d01f0);
    CHECK(error_of(fake) == start + "its file is of CPython 3.13.0, its memory of 3.13.1");
  }
  SECTION("an offset that cannot be true") {
    fake.set<std::uint64_t>(FakeInterpreter::kRuntime + 8 * 33, 4000);
    CHECK(error_of(fake) == start + "the debug offsets cannot be true: interpreter_frame.owner is 4000");
  }
}

TEST_CASE("names of every kind of str") {
  FakeInterpreter fake({3, 9, 18, ""});
  const Address file = fake.string("f.py");
  const auto name_of = [&](Address name) {
    fake.thread(kThread, fake.frame(fake.code_of(name, file, 1), 0));
    const State state = must_read(fake);
    CHECK(state.partial == state.codes[0].damaged);
    return state.codes[0].damaged ? "damaged" : state.codes[0].name;
  };
  SECTION("ASCII") { CHECK(name_of(fake.string(U"plain")) == "plain"); }
  SECTION("empty") { CHECK(name_of(fake.string(U"")) == ""); }
  SECTION("Latin-1") { CHECK(name_of(fake.string(U"f\u00fc\u00f1k")) == "f\u00fc\u00f1k"); }
  SECTION("2 bytes") { CHECK(name_of(fake.string(U"\u65e5\u672c", 2)) == "\u65e5\u672c"); }
  SECTION("4 bytes") { CHECK(name_of(fake.string(U"\U00010400x", 4)) == "\U00010400x"); }
  SECTION("with its data elsewhere") { CHECK(name_of(fake.string(U"\u65e5\u672c", 2, false)) == "\u65e5\u672c"); }
  SECTION("lone surrogates") {
    CHECK(name_of(fake.string(U"a\xdcff"
                              U"b",
                              2)) ==
          "a\ufffd"
          "b");
  }
  SECTION("beyond Unicode") {
    CHECK(name_of(fake.string(std::u32string{U'a', static_cast<char32_t>(0x110000)}, 4)) == "a\ufffd");
  }
  SECTION("a width of 3") {
    const Address name = fake.string(U"abc");
    fake.set<std::uint32_t>(name + fake.layout().string_state, 3u << 2 | 0x60);
    CHECK(name_of(name) == "damaged");
  }
  SECTION("an absurd length") {
    const Address name = fake.string(U"abc");
    fake.set<std::int64_t>(name + fake.layout().string_length, std::int64_t{1} << 60);
    CHECK(name_of(name) == "damaged");
  }
  SECTION("a negative length") {
    const Address name = fake.string(U"abc");
    fake.set<std::int64_t>(name + fake.layout().string_length, -1);
    CHECK(name_of(name) == "damaged");
  }
  SECTION("longer than its memory") {
    const Address name = fake.string(U"abc");
    fake.set<std::int64_t>(name + fake.layout().string_length, 50000);
    CHECK(name_of(name) == "damaged");
  }
  SECTION("nowhere") { CHECK(name_of(0x6000000) == "damaged"); }
}

TEST_CASE("a very long name is cut off, and a problem says so") {
  FakeInterpreter fake({3, 9, 18, ""});
  fake.thread(kThread, fake.frame(fake.code_of(fake.string(U"f"), fake.string(U"f.py"), 1), 0));
  // Its data follow the header, in another block that is large enough.
  constexpr std::size_t kMax = 1u << 20;
  const Address name = fake.block(kMax + 1000);
  fake.set<std::int64_t>(name + fake.layout().string_length, kMax + 1);
  fake.set<std::uint32_t>(name + fake.layout().string_state, 1u << 2 | 0x60);
  fake.thread(kThread, fake.frame(fake.code_of(name, fake.string(U"f.py"), 1), 0));
  const State state = must_read(fake);
  CHECK(state.codes[0].name.size() == kMax);
  CHECK(messages(state.problems) == "names of Python code cut at 1048576 bytes: 1");
}

TEST_CASE("a line table of absurd size: the frame has no line") {
  FakeInterpreter fake({3, 9, 18, ""});
  const Address code = fake.code("f");
  const auto table = fake.target.read_value<Address>(code + fake.layout().code_line_table);
  fake.set<std::int64_t>(*table + fake.layout().bytes_size, std::int64_t{1} << 40);
  fake.thread(kThread, fake.frame(code, 0));
  const State state = must_read(fake);
  CHECK(names(state, state.threads[0]) == Names{"f"});
  CHECK(state.codes[0].damaged);
  CHECK(line_of(state, state.threads[0].runs[0].frames[0]) == std::nullopt);
}
