// Which frames are real, how they are grouped into runs and where those are anchored: each version's rules, on
// hand-made memory.
#include <fmt/format.h>
#include <catch2/catch.hpp>

#include "debug_offsets.h"
#include "fake_interpreter.h"

using namespace rankstacks;
using namespace rankstacks::python;
using namespace rankstacks::testing;

namespace {

constexpr std::uint64_t kThread = 0x7f0000001000;
constexpr Address kStack = FakeInterpreter::kCStack;

struct ReadRun {
  std::vector<std::string> names;
  std::optional<Address> anchor;
  bool operator==(const ReadRun&) const = default;
};

std::ostream& operator<<(std::ostream& out, const ReadRun& run) {
  for (const std::string& name : run.names) out << name << " ";
  return run.anchor ? out << "at " << std::hex << *run.anchor : out << "nowhere";
}

State must_read(const FakeInterpreter& fake) {
  auto state = fake.read();
  if (!state) FAIL(state.error().message());
  return *state;
}

std::vector<ReadRun> runs_of(const State& state, std::size_t thread = 0) {
  std::vector<ReadRun> runs;
  for (const Run& run : state.threads.at(thread).runs) {
    ReadRun r{{}, run.anchor};
    for (const RawFrame& f : run.frames) r.names.push_back(state.codes[f.code].name);
    runs.push_back(r);
  }
  return runs;
}

std::vector<ReadRun> runs_of(const FakeInterpreter& fake) {
  const State state = must_read(fake);
  CHECK(state.threads.at(0).problems.empty());
  return runs_of(state);
}

using Runs = std::vector<ReadRun>;

}  // namespace

TEST_CASE("3.9: a generator that an exception is thrown through has no call of its own, and hides its callers") {
  FakeInterpreter fake({3, 9, 18, ""});
  const Address delegating = fake.frame(fake.code("delegating"), 0);
  const Address inner = fake.frame(fake.code("inner"), delegating);
  fake.thread(kThread, fake.frame(fake.code("f"), inner));
  const Runs each_alone = {{{"f"}, std::nullopt}, {{"inner"}, std::nullopt}, {{"delegating"}, std::nullopt}};
  SECTION("it is not executed") {
    fake.set<std::uint8_t>(delegating + fake.layout().frame_executing, 0);
    const State state = must_read(fake);
    CHECK(runs_of(state) == Runs{{{"f"}, std::nullopt}, {{"inner", "delegating"}, std::nullopt}});
    REQUIRE(state.threads.at(0).problems.size() == 1);
    CHECK(state.threads[0].problems[0].message ==
          fmt::format("Python thread {:#x}: its frames are incomplete: an exception is thrown through a generator, "
                      "which hides its callers in 3.9",
                      kThread));
  }
  SECTION("all are executed") { CHECK(runs_of(fake) == each_alone); }
  SECTION("a function that has not begun, for which a trace function is called") {
    fake.set<std::uint8_t>(delegating + fake.layout().frame_executing, 0);
    fake.set<std::int32_t>(delegating + fake.layout().frame_instruction, -1);
    CHECK(runs_of(fake) == each_alone);
  }
}

TEST_CASE("3.10: each frame's CFrame is on the C stack") {
  FakeInterpreter fake({3, 10, 13, ""});
  const Address outer = fake.frame(fake.code("outer"), 0);
  const Address inner = fake.frame(fake.code("inner"), outer);
  const Address thread = fake.thread(kThread, inner);
  // The outermost CFrame's `previous` is not initialised.
  fake.set<Address>(fake.root_cframe(thread) + fake.layout().cframe_previous, 0xdeadbeef);
  const Address c1 = fake.cframe(fake.root_cframe(thread), 0, kStack + 0x800);
  const Address c2 = fake.cframe(c1, 0, kStack + 0x400);
  SECTION("as many as frames") {
    fake.set_cframe(thread, c2);
    CHECK(runs_of(fake) == Runs{{{"inner"}, c2}, {{"outer"}, c1}});
  }
  SECTION("one more: a call that has no frame yet") {
    fake.set_cframe(thread, fake.cframe(c2, 0, kStack));
    CHECK(runs_of(fake) == Runs{{{"inner"}, c2}, {{"outer"}, c1}});
  }
  SECTION("one less: a call that is ending") {
    fake.set_cframe(thread, c1);
    CHECK(runs_of(fake) == Runs{{{"inner"}, std::nullopt}, {{"outer"}, c1}});
  }
  SECTION("far more: no anchors rather than wrong ones") {
    const Address c3 = fake.cframe(c2, 0, kStack + 0x200);
    fake.set_cframe(thread, fake.cframe(c3, 0, kStack));
    CHECK(runs_of(fake) == Runs{{{"inner"}, std::nullopt}, {{"outer"}, std::nullopt}});
  }
  SECTION("a chain that does not reach the outermost one") {
    fake.set<Address>(c1 + fake.layout().cframe_previous, 0);
    fake.set_cframe(thread, c2);
    CHECK(runs_of(fake) == Runs{{{"inner"}, std::nullopt}, {{"outer"}, std::nullopt}});
  }
  SECTION("a cycle") {
    fake.set<Address>(c1 + fake.layout().cframe_previous, c2);
    fake.set_cframe(thread, c2);
    CHECK(runs_of(fake) == Runs{{{"inner"}, std::nullopt}, {{"outer"}, std::nullopt}});
  }
}

TEST_CASE("3.11: a run ends at its entry frame") {
  FakeInterpreter fake({3, 11, 7, ""});
  const Address module = fake.frame(fake.code("module"), 0);
  const Address f = fake.frame(fake.code("f"), module);
  const Address key = fake.frame(fake.code("key"), f);
  const Address g = fake.frame(fake.code("g"), key);
  fake.mark_entry(module);
  fake.mark_entry(key);
  const Address thread = fake.thread(kThread);
  const Address c1 = fake.cframe(fake.root_cframe(thread), f, kStack + 0x800);
  const Address c2 = fake.cframe(c1, g, kStack + 0x400);
  fake.set_cframe(thread, c2);
  SECTION("two runs") { CHECK(runs_of(fake) == Runs{{{"g", "key"}, c2}, {{"f", "module"}, c1}}); }
  SECTION("a call whose current_frame is still what the stack held before") {
    const Address junk = fake.block(256);
    fake.set_cframe(thread, fake.cframe(c2, junk, kStack));
    CHECK(runs_of(fake) == Runs{{{"g", "key"}, c2}, {{"f", "module"}, c1}});
  }
  SECTION("the same, and it holds a frame that has ended") {
    const Address stale = fake.frame(fake.code("stale"), f);
    fake.mark_entry(stale);
    fake.set_cframe(thread, fake.cframe(c2, stale, kStack));
    CHECK(runs_of(fake) == Runs{{{"g", "key"}, c2}, {{"f", "module"}, c1}});
  }
  SECTION("the same, and it holds no pointer") {
    fake.set_cframe(thread, fake.cframe(c2, 0x1234567, kStack));
    CHECK(runs_of(fake) == Runs{{{"g", "key"}, c2}, {{"f", "module"}, c1}});
  }
  SECTION("generators that an exception was thrown through: linked, and in no call of their own") {
    const Address outer = fake.frame(fake.code("outer"), f, 20, 1);
    const Address middle = fake.frame(fake.code("middle"), outer, 20, 1);
    const Address inner = fake.frame(fake.code("inner"), middle, 20, 1);
    fake.mark_entry(middle);  // left from when it was resumed
    fake.mark_entry(inner);
    SECTION("the last one executes") {
      fake.set<Address>(c1 + fake.layout().cframe_current_frame, middle);
      fake.set<Address>(c2 + fake.layout().cframe_current_frame, inner);
      CHECK(runs_of(fake) == Runs{{{"inner"}, c2}, {{"middle", "outer", "f", "module"}, c1}});
    }
    SECTION("none executes") {
      const Address throwing = fake.frame(fake.code("throwing"), key, 20, 1);
      fake.mark_entry(throwing);
      fake.set<Address>(c2 + fake.layout().cframe_current_frame, throwing);
      CHECK(runs_of(fake) == Runs{{{"throwing", "key"}, c2}, {{"f", "module"}, c1}});
    }
  }
  SECTION("CFrames that disagree: no anchors from there on") {
    fake.set<Address>(c1 + fake.layout().cframe_current_frame, module);
    const auto runs = runs_of(must_read(fake));
    // Its innermost call seems to lead nowhere, so the one before is believed.
    CHECK(runs == Runs{{{"module"}, c1}});
  }
  SECTION("an incomplete frame is not shown") {
    const Address young = fake.frame(fake.code("young"), g, 1);
    fake.set<Address>(c2 + fake.layout().cframe_current_frame, young);
    CHECK(runs_of(fake) == Runs{{{"g", "key"}, c2}, {{"f", "module"}, c1}});
  }
  SECTION("a generator's frame is always complete") {
    const Address young = fake.frame(fake.code("young"), g, 1, 1);
    fake.set<Address>(c2 + fake.layout().cframe_current_frame, young);
    CHECK(runs_of(fake) == Runs{{{"young", "g", "key"}, c2}, {{"f", "module"}, c1}});
  }
  SECTION("no frame at all") {
    fake.set_cframe(thread, fake.root_cframe(thread));
    CHECK(runs_of(fake).empty());
  }
  SECTION("a CFrame that is nowhere") {
    fake.set_cframe(thread, 0x6000000);
    const State state = must_read(fake);
    CHECK(runs_of(state).empty());
    REQUIRE(state.threads[0].problems.size() == 1);
    CHECK(state.threads[0].problems[0].message ==
          "Python thread 0x7f0000001000: its frames are incomplete: the C frame at 0x6000000 cannot be read");
  }
}

TEST_CASE("3.12: shim frames on the C stack separate the runs") {
  FakeInterpreter fake({3, 12, 1, ""});
  const Address outer_shim = fake.shim(0, kStack + 0x800);
  const Address module = fake.frame(fake.code("module"), outer_shim);
  const Address inner_shim = fake.shim(module, kStack + 0x400);
  const Address key = fake.frame(fake.code("key"), inner_shim);
  const Address g = fake.frame(fake.code("g"), key);
  const Address thread = fake.thread(kThread);
  const Address c1 = fake.cframe(fake.root_cframe(thread), module, kStack + 0xa00);
  const Address c2 = fake.cframe(c1, g, kStack + 0x600);
  fake.set_cframe(thread, c2);
  SECTION("two runs") { CHECK(runs_of(fake) == Runs{{{"g", "key"}, inner_shim}, {{"module"}, outer_shim}}); }
  SECTION("a call whose current_frame is still what the stack held before") {
    fake.set_cframe(thread, fake.cframe(c2, fake.block(256), kStack));
    CHECK(runs_of(fake) == Runs{{{"g", "key"}, inner_shim}, {{"module"}, outer_shim}});
  }
  SECTION("a frame that names no caller, where a shim should be") {
    fake.set<Address>(module + fake.layout().frame_previous, 0);
    const State state = must_read(fake);
    REQUIRE(state.threads[0].problems.size() == 1);
    CHECK(state.threads[0].problems[0].message ==
          fmt::format("Python thread 0x7f0000001000: its frames are incomplete: the frame at {:#x} names no caller",
                      module));
    CHECK(runs_of(state) == Runs{{{"g", "key"}, inner_shim}, {{"module"}, std::nullopt}});
  }
  SECTION("an innermost call that leads nowhere is left out, and the state says so") {
    fake.set<Address>(key + fake.layout().frame_previous, 0);
    const State state = must_read(fake);
    CHECK(state.threads[0].left_out_innermost);
    CHECK(runs_of(state) == Runs{{{"module"}, outer_shim}});
  }
  SECTION("a call whose last frame was removed") {
    const Address shim = fake.shim(g, kStack + 0x100);
    fake.set_cframe(thread, fake.cframe(c2, shim, kStack));
    const State state = must_read(fake);
    CHECK(state.threads[0].empty_calls == std::vector<Address>{shim});
    CHECK_FALSE(state.threads[0].left_out_innermost);
  }
  SECTION("a run of nothing but incomplete frames is no run") {
    const Address shim = fake.shim(g, kStack + 0x100);
    const Address young = fake.frame(fake.code("young"), shim, 1);
    fake.set_cframe(thread, fake.cframe(c2, young, kStack));
    CHECK(runs_of(fake) == Runs{{{"g", "key"}, inner_shim}, {{"module"}, outer_shim}});
  }
}

TEST_CASE("3.13: frames whose executable is None, and instructions outside of the code") {
  FakeInterpreter fake(kDebugOffsets_3_13_0);
  const Address shim = fake.shim(0, kStack + 0x800);
  const Address code = fake.code("f", 42);
  const Address f = fake.frame(code, shim, 20);
  SECTION("an owner that a later patch level may add is no Python frame either") {
    fake.thread(kThread, fake.frame(code, f, 20, 5, kStack + 0x100));
    CHECK(runs_of(fake) == Runs{{{"f"}, shim}});
  }
  SECTION("a chain that is damaged inside of a run keeps what was read") {
    fake.thread(kThread, fake.frame(fake.code("g"), 0x1001));
    const State state = must_read(fake);
    CHECK(runs_of(state) == Runs{{{"g"}, std::nullopt}});
    REQUIRE(state.threads[0].problems.size() == 1);
  }
  SECTION("None with an owner of 0") {
    const Address none = fake.block(1024);
    fake.set(none + fake.layout().object_type, FakeInterpreter::kNoneType);
    fake.thread(kThread, fake.frame(none, f));
    CHECK(runs_of(fake) == Runs{{{"f"}, shim}});
  }
  SECTION("the line of a sound frame") {
    fake.thread(kThread, f);
    const State state = must_read(fake);
    CHECK(state.threads[0].runs[0].frames[0].instruction == 40);
    CHECK(line_of(state, state.threads[0].runs[0].frames[0]) == 42);
  }
  SECTION("an instruction behind the code has no line, and the frame stays") {
    fake.thread(kThread, fake.frame(code, shim, 100));
    const State state = must_read(fake);
    CHECK(runs_of(state) == Runs{{{"f"}, shim}});
    CHECK(line_of(state, state.threads[0].runs[0].frames[0]) == std::nullopt);
    REQUIRE(state.threads[0].problems.size() == 1);
    CHECK(state.threads[0].problems[0].message.find("is outside its code") != std::string::npos);
  }
}

TEST_CASE("3.14: references carry tags") {
  FakeInterpreter fake(kDebugOffsets_3_14_10);
  const Address shim = fake.shim(0, kStack + 0x800);
  const Address code = fake.code("f");
  const Address f = fake.frame(code, shim);
  const Address tag = GENERATE(0, 1, 2, 3);
  fake.set(f + fake.layout().frame_code, code | tag);
  fake.thread(kThread, f);
  CHECK(runs_of(fake) == Runs{{{"f"}, shim}});
}

TEST_CASE("free-threaded 3.14: bytecode of a thread's own") {
  FakeInterpreter fake(kDebugOffsets_3_14_10t);
  const Address shim = fake.shim(0, kStack + 0x800);
  const Address code = fake.code("f", 42);
  // struct _PyCodeArray: entry 0 is the code object's own, entry 1 was never made, entry 2 is this thread's.
  const Address copy = fake.block(256), array = fake.block(64);
  fake.set<std::int64_t>(array, 3);
  fake.set<Address>(array + 8, code + fake.layout().code_instructions);
  fake.set<Address>(array + 24, copy);
  fake.set(code + fake.layout().code_tlbc, array);
  const Address f = fake.frame(code, shim);
  fake.set<Address>(f + fake.layout().frame_instruction, copy + 30);
  fake.thread(kThread, f);
  const auto read_with = [&](std::int32_t index) {
    fake.set<std::int32_t>(f + fake.layout().frame_tlbc_index, index);
    return must_read(fake);
  };
  SECTION("its own") {
    const State state = read_with(2);
    CHECK(state.threads[0].runs[0].frames[0].instruction == 30);
    CHECK(line_of(state, state.threads[0].runs[0].frames[0]) == 42);
    CHECK(state.threads[0].problems.empty());
  }
  SECTION("one that was never made, one that is not there, one that cannot be") {
    fake.set<Address>(f + fake.layout().frame_instruction, copy + 0x10000);
    const State state = read_with(GENERATE(1, 3, -1));
    CHECK(runs_of(state) == Runs{{{"f"}, shim}});
    CHECK(state.threads[0].runs[0].frames[0].instruction == kUnknownInstruction);
    CHECK(state.threads[0].problems.size() == 1);
  }
  SECTION(
      "sampled between the stores of the copy's index and of the instruction, which lies in the frame's previous "
      "copy") {
    const auto [index, before] = GENERATE_COPY(std::pair<int, Address>{2, code + fake.layout().code_instructions},
                                               std::pair<int, Address>{1, copy}, std::pair<int, Address>{0, copy},
                                               std::pair<int, Address>{9, copy});
    fake.set<Address>(f + fake.layout().frame_instruction, before + 30);
    const State state = read_with(index);
    CHECK(state.threads[0].runs[0].frames[0].instruction == 30);
    CHECK(line_of(state, state.threads[0].runs[0].frames[0]) == 42);
    CHECK(state.threads[0].problems.empty());
  }
  SECTION("an array of absurd size") {
    fake.set<std::int64_t>(array, std::int64_t{1} << 50);
    CHECK(read_with(2).threads[0].runs[0].frames[0].instruction == kUnknownInstruction);
  }
}

TEST_CASE("the holder of the GIL") {
  SECTION("up to 3.11: the runtime's current thread state") {
    FakeInterpreter fake({3, 11, 7, ""});
    fake.thread(1);
    const Address second = fake.thread(2);
    fake.set(FakeInterpreter::kRuntime + fake.layout().runtime_tstate_current, second);
    const State state = must_read(fake);
    CHECK(state.threads[0].holds_gil);  // the newest comes first
    CHECK_FALSE(state.threads[1].holds_gil);
    REQUIRE(state.gil_ranges.size() == 1);
    CHECK(state.gil_ranges[0].start == FakeInterpreter::kRuntime + fake.layout().runtime_gil);
  }
  SECTION("from 3.12: the interpreter's GIL") {
    FakeInterpreter fake({3, 12, 1, ""});
    const Address only = fake.thread(1), gil = fake.block(512);
    fake.set(FakeInterpreter::kInterpreter + fake.layout().interp_gil, gil);
    fake.set(gil + fake.layout().gil_last_holder, only);
    fake.set<std::int32_t>(gil + fake.layout().gil_locked, 1);
    CHECK(must_read(fake).threads[0].holds_gil);
    REQUIRE(must_read(fake).gil_ranges.size() == 1);
    CHECK(must_read(fake).gil_ranges[0].start == gil);
    // Released: last_holder still names it.
    fake.set<std::int32_t>(gil + fake.layout().gil_locked, 0);
    CHECK_FALSE(must_read(fake).threads[0].holds_gil);
    // No GIL at all.
    fake.set<std::int32_t>(gil + fake.layout().gil_locked, 77);
    const State state = must_read(fake);
    CHECK(state.gil_ranges.empty());
    REQUIRE(state.problems.size() == 1);
    CHECK(state.problems[0].message == fmt::format("the GIL at {:#x} cannot be one: locked is 77", gil));
  }
  SECTION("a free-threaded build runs without") {
    FakeInterpreter fake(kDebugOffsets_3_14_10t);
    const Address only = fake.thread(1), gil = fake.block(512);
    fake.set(FakeInterpreter::kInterpreter + fake.layout().interp_gil, gil);
    fake.set(gil + fake.layout().gil_last_holder, only);
    fake.set<std::int32_t>(gil + fake.layout().gil_locked, 1);
    CHECK_FALSE(must_read(fake).threads[0].holds_gil);
    CHECK(must_read(fake).gil_ranges.empty());
    fake.set<std::int32_t>(gil + fake.layout().gil_enabled, 1);
    CHECK(must_read(fake).threads[0].holds_gil);
  }
}
