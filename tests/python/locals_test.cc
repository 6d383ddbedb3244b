// Local variables in memory built by hand, intact and damaged.
#include "python/locals.h"

#include <catch2/catch.hpp>

#include "debug_offsets.h"
#include "fake_interpreter.h"

using namespace rankstacks;
using namespace rankstacks::testing;

namespace {

FakeInterpreter interpreter_of(int which) {
  if (which == 13) return FakeInterpreter(kDebugOffsets_3_13_0);
  if (which == 14) return FakeInterpreter(kDebugOffsets_3_14_10);
  if (which == 15) return FakeInterpreter(kDebugOffsets_3_14_10t);  // free-threaded
  return FakeInterpreter(python::Version{3, which, 2, ""});
}

// One thread with one frame, whose code has these variables.
struct Scene {
  explicit Scene(int which, const std::vector<std::string>& names, int arguments = 0) : fake(interpreter_of(which)) {
    const auto& layout = fake.layout();
    code = fake.code("train");
    fake.name_slots(code, names);
    fake.set<std::int32_t>(code + layout.code_argument_count(), arguments);
    const bool has_shims = layout.frame_owner != python::kAbsent && layout.frame_is_entry == python::kAbsent;
    frame = fake.frame(code, has_shims ? fake.shim(0, FakeInterpreter::kCStack) : 0);
    if (layout.frame_is_entry != python::kAbsent) fake.mark_entry(frame);
    fake.thread(0x7000, frame);
  }
  std::vector<std::string> read(std::size_t longest = 128) {
    const auto one = fake.candidate();
    const auto state = python::read_python_state(fake.target, std::span(&one, 1), longest);
    REQUIRE(state.has_value());
    std::vector<std::string> shown;
    const auto found = state->locals.find(frame);
    if (found == state->locals.end()) return shown;
    for (const LocalVariable& v : found->second)
      shown.push_back((v.is_argument ? "argument " : "") + v.name + " " +
                      repr_of(v.value, static_cast<std::ptrdiff_t>(longest)));
    return shown;
  }
  FakeInterpreter fake;
  Address code = 0, frame = 0;
};

}  // namespace

TEST_CASE("arguments and locals of every version") {
  Scene scene(GENERATE(6, 7, 8, 9, 10, 11, 12, 13, 14, 15), {"a", "text", "unset", "pair", "none", "table", "big"}, 1);
  FakeInterpreter& fake = scene.fake;
  const Address one = fake.integer(1), text = fake.string(U"x\u20ac", 2);
  fake.set_slot(scene.frame, 0, fake.integer({5}, -1));
  fake.set_slot(scene.frame, 1, text);
  fake.set_slot(scene.frame, 3, fake.tuple({one, text}));
  fake.set_slot(scene.frame, 4, fake.none());
  fake.set_slot(scene.frame, 5, fake.dict({{text, one}, {one, fake.tuple({})}}));
  fake.set_slot(scene.frame, 6, fake.integer({1, 1, 1}, -1));
  CHECK(scene.read() == std::vector<std::string>{"argument a -5", "text \"x\u20ac\"", "pair (1, \"x\u20ac\")",
                                                 "none None", "table {\"x\u20ac\": 1, 1: ()}", "big -bigint"});
  CHECK(scene.read(0).empty());
}

TEST_CASE("damaged values end somewhere") {
  Scene scene(GENERATE(8, 11, 12, 13), {"x"});
  FakeInterpreter& fake = scene.fake;
  const auto& layout = fake.layout();
  SECTION("a tuple that holds itself") {
    const Address tuple = fake.tuple({0, 0});
    fake.set(tuple + layout.tuple_items, tuple);
    fake.set(tuple + layout.tuple_items + 8, tuple);
    fake.set_slot(scene.frame, 0, tuple);
    const auto shown = scene.read(1024);
    REQUIRE(shown.size() == 1);
    CHECK(shown[0].starts_with("x (("));
    CHECK(shown[0].size() <= 1030);
  }
  SECTION("a tuple of absurd size") {
    const Address tuple = fake.tuple({});
    fake.set(tuple + layout.tuple_size, std::uint64_t{1} << 60);
    fake.set_slot(scene.frame, 0, tuple);
    CHECK(scene.read() == std::vector<std::string>{"x (...)"});
  }
  SECTION("a dict without keys") {
    const Address dict = fake.dict({});
    fake.set(dict + layout.dict_keys, Address{0x7777'7777'0000});
    fake.set_slot(scene.frame, 0, dict);
    CHECK(scene.read() == std::vector<std::string>{"x {...}"});
  }
  SECTION("a str of absurd length") {
    const Address text = fake.string("a");
    fake.set(text + layout.string_length, std::int64_t{1} << 60);
    fake.set_slot(scene.frame, 0, text);
    CHECK(scene.read()[0].starts_with("x <str at 0x"));
  }
  SECTION("nowhere") {
    fake.set_slot(scene.frame, 0, 0x7777'7777'0000);
    CHECK(scene.read() == std::vector<std::string>{"x <? at 0x777777770000>"});
  }
}
