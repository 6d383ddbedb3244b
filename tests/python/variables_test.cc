// The values of variables in memory built by hand, intact and damaged, of every version.
#include <catch2/catch.hpp>

#include "debug_offsets.h"
#include "fake_interpreter.h"
#include "python/string_hash.h"

using namespace rankstacks;
using namespace rankstacks::testing;

namespace {

using Numbers = std::vector<std::pair<std::string, std::int64_t>>;

constexpr const char* kC10d = "/v/torch/distributed/distributed_c10d.py";

FakeInterpreter interpreter_of(int which) {
  if (which == 13) return FakeInterpreter(kDebugOffsets_3_13_0);
  if (which == 14) return FakeInterpreter(kDebugOffsets_3_14_10);
  if (which == 15) return FakeInterpreter(kDebugOffsets_3_14_10t);  // free-threaded
  return FakeInterpreter(python::Version{3, which, 2, ""});
}

// One thread with one frame of `code`.
Address only_frame(FakeInterpreter& fake, Address code) {
  const bool has_shims =
      fake.layout().frame_owner != python::kAbsent && fake.layout().frame_is_entry == python::kAbsent;
  const Address frame = fake.frame(code, has_shims ? fake.shim(0, FakeInterpreter::kCStack) : 0);
  if (fake.layout().frame_is_entry != python::kAbsent) fake.mark_entry(frame);
  fake.thread(0x7000, frame);
  return frame;
}

// What is read of the only frame; there must be no problem.
FrameVariables read(const FakeInterpreter& fake, Address hash_secret = 0) {
  auto one = fake.candidate();
  one.hash_secret = hash_secret;
  const auto state = python::read_python_state(fake.target, std::span(&one, 1));
  REQUIRE(state.has_value());
  CHECK(state->problems.empty());
  REQUIRE(state->threads.size() == 1);
  CHECK(state->threads[0].problems.empty());
  REQUIRE(state->threads[0].runs.size() == 1);
  REQUIRE(state->threads[0].runs[0].frames.size() == 1);
  const std::uint32_t index = state->threads[0].runs[0].frames[0].variables;
  CHECK((index == python::kNoVariables ? 0u : 1u) == state->variables.size());
  return index < state->variables.size() ? state->variables[index] : FrameVariables{};
}

}  // namespace

TEST_CASE("ints of every size in locals and cells") {
  FakeInterpreter fake = interpreter_of(GENERATE(6, 7, 8, 9, 10, 11, 12, 13, 14, 15));
  const Address code = fake.code("train");
  fake.name_slots(code, {"step", "i", "j", "x", "k", "n"}, {"epoch", "it", "t"});
  const Address frame = only_frame(fake, code);
  fake.set_slot(frame, 0, fake.integer({0x3fffffff, 0x3fffffff, 7}, 1));  // 2^63 - 1
  fake.set_slot(frame, 1, fake.integer({1, 1}, -1));
  fake.set_slot(frame, 2, fake.integer({}, 0));
  fake.set_slot(frame, 3, fake.integer(5));  // not a counter's name
  fake.set_slot(frame, 4, fake.integer({1}, 1, FakeInterpreter::kBoolType));
  fake.set_slot(frame, 6, fake.cell(fake.integer(70000)));
  fake.set_slot(frame, 7, fake.cell(0));
  fake.set_slot(frame, 8, fake.integer(3));  // its cell is not made yet
  CHECK(read(fake).numbers ==
        Numbers{{"epoch", 70000}, {"i", -((std::int64_t{1} << 30) + 1)}, {"j", 0}, {"step", INT64_MAX}, {"t", 3}});
}

TEST_CASE("ints that are impossible are left out") {
  FakeInterpreter fake = interpreter_of(GENERATE(6, 11, 12, 14));
  const Address code = fake.code("train");
  fake.name_slots(code, {"i", "step"});
  const Address frame = only_frame(fake, code);
  fake.set_slot(frame, 0, fake.integer(41));
  Address wrong = 0;
  SECTION("2^63") { wrong = fake.integer({0, 0, 8}, 1); }
  SECTION("four digits") { wrong = fake.integer({1, 1, 1, 1}, 1); }
  SECTION("a digit of 31 bits") { wrong = fake.integer({1u << 30}, 1); }
  SECTION("a leading zero") { wrong = fake.integer({1, 0}, 1); }
  SECTION("an absurd size") {
    wrong = fake.integer(1);
    fake.set(wrong + (fake.layout().int_tag != python::kAbsent ? fake.layout().int_tag : fake.layout().int_size),
             ~std::uint64_t{0} - 3);
  }
  SECTION("no type") { wrong = fake.integer({1}, 1, 0x1234560); }
  SECTION("a type that is no type") { wrong = fake.integer({1}, 1, fake.integer(1)); }
  SECTION("an odd address") { wrong = fake.integer(1) + 4; }
  SECTION("nowhere") { wrong = 0x7777'7777'0000; }
  SECTION("the interpreter's own number (3.14)") { wrong = fake.layout().minor >= 14 ? fake.integer(1) | 3 : 0; }
  fake.set_slot(frame, 1, wrong);
  CHECK(read(fake).numbers == Numbers{{"i", 41}});
}

TEST_CASE("names that cannot be read leave the variables out") {
  FakeInterpreter fake = interpreter_of(GENERATE(8, 12, 13));
  const Address code = fake.code("train");
  fake.name_slots(code, {"i"});
  const Address frame = only_frame(fake, code);
  fake.set_slot(frame, 0, fake.integer(41));
  REQUIRE(read(fake).numbers.size() == 1);
  const auto& layout = fake.layout();
  SECTION("no tuple") { fake.set(code + layout.code_slot_names, fake.integer(1)); }
  SECTION("a tuple of absurd size") {
    fake.set(*fake.target.read_value<Address>(code + layout.code_slot_names) + layout.tuple_size,
             std::uint64_t{1} << 60);
  }
  SECTION("nowhere") { fake.set(code + layout.code_slot_names, Address{0x7777'7777'0000}); }
  SECTION("names that are none") { fake.set(code + layout.code_slot_names, fake.tuple({fake.none()})); }
  SECTION("no kinds, or no cells") {
    fake.set(code + (layout.code_slot_kinds != python::kAbsent ? layout.code_slot_kinds : layout.code_cell_names),
             Address{0});
  }
  CHECK(read(fake).numbers.empty());
}

TEST_CASE("a library's frames are not searched for counters") {
  FakeInterpreter fake = interpreter_of(11);
  const Address code = fake.code_of(fake.string("run"), fake.string("/usr/lib/python3.11/threading.py"), 3);
  fake.name_slots(code, {"i"});
  fake.set_slot(only_frame(fake, code), 0, fake.integer(41));
  CHECK(read(fake) == FrameVariables{});
}

TEST_CASE("a frame has 16 counters at most in the report") {
  FakeInterpreter fake = interpreter_of(12);
  std::vector<std::string> names;
  for (int i = 0; i < 40; ++i) names.push_back("i_" + std::to_string(i));
  const Address code = fake.code("train");
  fake.name_slots(code, names);
  const Address frame = only_frame(fake, code);
  for (std::size_t i = 0; i < 17; ++i) fake.set_slot(frame, i, fake.integer(static_cast<std::uint32_t>(i)));
  CHECK(read(fake).numbers.size() == 16);
}

TEST_CASE("a module's counters are in its globals") {
  FakeInterpreter fake = interpreter_of(GENERATE(6, 10, 11, 13, 15));
  const Address code = fake.code("<module>");
  const Address step = fake.string("step"), loss = fake.string("loss"), epoch = fake.string("epoch"),
                unset_i = fake.string("i");
  fake.name_slots(code, {});
  fake.set(code + fake.layout().code_global_names, fake.tuple({step, loss, epoch, unset_i}));
  const Address frame = only_frame(fake, code);
  const bool with_hash = GENERATE(true, false);
  // Another str with the same text is not the name that the code uses.
  const Address globals = fake.dict(
      {{loss, fake.integer(1)}, {fake.string("epoch"), fake.integer(2)}, {step, fake.integer(42)}, {unset_i, 0}},
      with_hash);
  fake.set_globals(frame, globals, globals);
  CHECK(read(fake).numbers == Numbers{{"step", 42}});

  const Address keys = *fake.target.read_value<Address>(globals + fake.layout().dict_keys);
  SECTION("executed with locals of its own") { fake.set_globals(frame, globals, fake.dict({})); }
  SECTION("values elsewhere") { fake.set(globals + fake.layout().dict_values, keys); }
  SECTION("more entries than slots") { fake.set(keys + fake.layout().keys_entry_count, std::uint64_t{9}); }
  SECTION("an absurd size") {
    fake.set(
        keys + (fake.layout().keys_size != python::kAbsent ? fake.layout().keys_size : fake.layout().keys_log2_size),
        std::uint8_t{63});
  }
  SECTION("no dict") { fake.set_globals(frame, fake.none(), fake.none()); }
  CHECK(read(fake).numbers.empty());
}

TEST_CASE("process groups of torch.distributed") {
  const int which = GENERATE(7, 10, 11, 12, 13, 14);
  FakeInterpreter fake = interpreter_of(which);
  const Address code = fake.code_of(fake.string("recv"), fake.string(kC10d), 3);
  fake.name_slots(code, {"tensor", "src", "group", "tag", "default_pg", "i"});
  const Address frame = only_frame(fake, code);
  const Address world = fake.integer(900), pair = fake.integer(901), unrelated = fake.integer(902),
                no_member = fake.integer(903);
  const auto number = [&](std::uint32_t n) { return fake.integer(n); };
  const Address of_world = fake.dict({{number(0), number(0)}, {number(1), number(1)}, {number(2), number(2)}});
  const Address of_pair = fake.dict({{number(2), number(0)}, {number(0), number(1)}});
  const Address names = fake.dict({{world, fake.string("0")}, {pair, fake.string("pair")}});
  const Address ranks = fake.dict({{world, of_world}, {no_member, of_pair}, {pair, of_pair}});
  const std::vector<std::pair<Address, Address>> of_module = {{fake.string("all_reduce"), fake.none()},
                                                              {fake.string("_pg_names"), names},
                                                              {fake.string("_pg_group_ranks"), ranks}};
  fake.set_globals(frame, fake.dict(of_module, false), 0);
  fake.set_slot(frame, 1, fake.integer(2));
  fake.set_slot(frame, 3, fake.integer(0));
  fake.set_slot(frame, 5, fake.integer(77));

  SECTION("given") {
    fake.set_slot(frame, 2, pair);
    const FrameVariables found = read(fake);
    CHECK(found.numbers == Numbers{{"src", 2}, {"tag", 0}});
    CHECK(found.group == ProcessGroup{"pair", {2, 0}});
  }
  SECTION("the default one: the oldest") {
    fake.set_slot(frame, 2, fake.none());
    CHECK(read(fake).group == ProcessGroup{"0", {0, 1, 2}});
  }
  SECTION("the group that the function used as the default one") {
    fake.set_slot(frame, 2, fake.none());
    fake.set_slot(frame, 4, pair);
    CHECK(read(fake).group == ProcessGroup{"pair", {2, 0}});
  }
  SECTION("no group of the module") {
    const bool has_members = GENERATE(false, true);
    fake.set_slot(frame, 2, has_members ? no_member : unrelated);
    CHECK_FALSE(read(fake).group.has_value());
  }
  SECTION("not set yet") { CHECK_FALSE(read(fake).group.has_value()); }
  SECTION("impossible members") {
    fake.set_slot(frame, 2, pair);
    const Address keys = *fake.target.read_value<Address>(of_pair + fake.layout().dict_keys);
    const Address first = keys + fake.layout().keys_indices + 8;  // {hash, key, value}
    SECTION("two at one place") { fake.set(first + 16, number(1)); }
    SECTION("one twice") { fake.set(first + 8, number(0)); }
    SECTION("beyond its size") { fake.set(first + 16, number(2)); }
    SECTION("no number") { fake.set(first + 8, fake.none()); }
    CHECK(read(fake).group == ProcessGroup{"pair", {}});
  }
  SECTION("found by the hash of the names") {
    fake.set_slot(frame, 2, pair);
    // A second entry of the same name, which no real dict has: the hash table leads to the first one, a search of all
    // entries would end at this one.
    auto with_another = of_module;
    with_another.emplace_back(fake.string("_pg_names"), fake.dict({{pair, fake.string("looked through")}}));
    const Address globals = fake.dict(with_another, false);
    fake.set_globals(frame, globals, 0);
    const Address secret = fake.block(16);
    fake.set<std::uint64_t>(secret, 0x1122334455667788);
    const python::HashSecret key{0x1122334455667788, 0};
    const auto algorithm = which >= 11 ? python::StringHash::kSip13 : python::StringHash::kSip24;
    const Address keys = *fake.target.read_value<Address>(globals + fake.layout().dict_keys);
    std::uint64_t taken = ~std::uint64_t{0};
    for (const auto& [name, index] : {std::pair{"_pg_names", 1}, {"_pg_group_ranks", 2}}) {
      std::uint64_t perturb = python::hash_of(name, key, algorithm), at = perturb % 8;
      while (at == taken) {
        perturb >>= 5;
        at = (5 * at + perturb + 1) % 8;
      }
      taken = at;
      fake.set(keys + fake.layout().keys_indices + at, static_cast<std::uint8_t>(index));
    }
    CHECK(read(fake, secret).group == ProcessGroup{"pair", {2, 0}});
    CHECK(read(fake).group == ProcessGroup{"looked through", {2, 0}});
    CHECK(read(fake, 0x7777'7777'0000).group == ProcessGroup{"looked through", {2, 0}});
  }
}
