// C++ objects of process groups in memory built by hand, of the layouts of several versions of torch, intact and
// damaged.
#include <catch2/catch.hpp>

#include <string>

#include "fake_interpreter.h"
#include "python/group_object.h"

using namespace rankstacks;
using namespace rankstacks::testing;

namespace {

struct FakeGroup {
  FakeInterpreter fake{python::Version{3, 11, 2, ""}};
  const Address object = fake.block(64), cxx = fake.block(256);

  // Rank 2 of 4 at `at`, and behind it `between` words before the description.
  FakeGroup(Address at, Address between) : rank(cxx + at), description(cxx + at + 8 + 8 * between) {
    fake.set(object + fake.layout().object_head(), cxx);
    fake.set<std::uint64_t>(cxx, 0x7f0000001000);  // the virtual functions
    fake.set<std::int32_t>(rank, 2);
    fake.set<std::int32_t>(rank + 4, 4);
  }

  void put(Address where, const std::string& text) {
    for (std::size_t i = 0; i < text.size(); ++i) fake.set(where + i, text[i]);
  }
  void describe(Address text, std::uint64_t size) {
    fake.set(description, text);
    fake.set(description + 8, size);
  }
  void describe_in_place(const std::string& text) {
    describe(description + 16, text.size());
    put(description + 16, text);
  }
  Address describe_elsewhere(const std::string& text, std::uint64_t capacity) {
    const Address where = fake.block(512);
    describe(where, text.size());
    fake.set(description + 16, capacity);
    put(where, text);
    return where;
  }

  std::optional<python::GroupObject> read(std::size_t size = 4) const {
    return python::read_group_object(fake.target, fake.layout(), object, size);
  }
  std::string text() const {
    const auto group = read();
    REQUIRE(group.has_value());
    CHECK(group->rank == 2);
    return group->description;
  }

  const Address rank, description;
};

}  // namespace

TEST_CASE("the description of a group, as versions of torch keep it") {
  // 2.10 on, before that, with options_
  const auto [at, between] = GENERATE(std::pair{24, 1}, std::pair{32, 1}, std::pair{32, 2});
  FakeGroup group(static_cast<Address>(at), static_cast<Address>(between));
  const std::string longer = "TENSOR_MODEL_PARALLEL_GROUP";
  SECTION("in place") {
    group.describe_in_place("mesh_tp");
    CHECK(group.text() == "mesh_tp");
  }
  SECTION("elsewhere") {
    group.describe_elsewhere(longer, 30);
    CHECK(group.text() == longer);
  }
  SECTION("none, as new_group() says it") {
    group.describe_in_place("undefined");
    CHECK(group.text().empty());
  }
  SECTION("none, in versions without it") { CHECK(group.text().empty()); }
}

TEST_CASE("what has not the shape of a text is no description") {
  FakeGroup group(24, 1);
  SECTION("longer than the room in place") { group.describe_in_place("sixteen letters!"); }
  SECTION("less room than text") { group.describe_elsewhere("sixteen letters!", 15); }
  SECTION("no end") {
    const Address where = group.describe_elsewhere("sixteen letters!", 30);
    group.fake.set(where + 16, 'x');
  }
  SECTION("too long") { group.describe_elsewhere(std::string(300, 'x'), 300); }
  SECTION("a pointer to nowhere") {
    group.describe(0x6666'0000'0000, 7);
    group.fake.set<std::uint64_t>(group.description + 16, 30);
  }
  SECTION("bytes") { group.describe_in_place("mesh\x01"); }
  CHECK(group.text().empty());
}

TEST_CASE("no such object") {
  FakeGroup group(24, 1);
  SECTION("another size") { CHECK_FALSE(group.read(3).has_value()); }
  SECTION("two places with such numbers") {
    group.fake.set<std::int32_t>(group.cxx + 32, 3);
    group.fake.set<std::int32_t>(group.cxx + 36, 4);
    CHECK_FALSE(group.read().has_value());
  }
  SECTION("a rank that is none") {
    group.fake.set<std::int32_t>(group.rank, GENERATE(-1, 4));
    CHECK_FALSE(group.read().has_value());
  }
  SECTION("nowhere") {
    group.fake.set(group.object + group.fake.layout().object_head(),
                   GENERATE(Address{0}, Address{0x6666'0000'0000}, ~Address{0} - 8));
    CHECK_FALSE(group.read().has_value());
  }
}
