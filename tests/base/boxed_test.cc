#include "base/boxed.h"

#include <string>

#include <catch2/catch.hpp>

using rankstacks::Boxed;

TEST_CASE("boxed: like an optional") {
  Boxed<std::string> box;
  CHECK_FALSE(box);
  CHECK(box == std::nullopt);
  box = std::string("one");
  REQUIRE(box);
  CHECK(*box == "one");
  CHECK(box->size() == 3);
  box = std::optional<std::string>("two");
  CHECK(*box == "two");
  box = std::optional<std::string>();
  CHECK_FALSE(box.has_value());
  CHECK(box.emplace(3, 'x') == "xxx");
  box.reset();
  CHECK_FALSE(box);
}

TEST_CASE("boxed: a copy is another value, a move takes it") {
  Boxed<std::string> one(std::string("one"));
  Boxed<std::string> copy = one;
  CHECK(copy == one);
  CHECK(copy.identity() == one.identity());
  *copy = "two";
  CHECK(copy.identity() != one.identity());
  CHECK(*one == "one");
  CHECK_FALSE(copy == one);
  const Boxed<std::string> moved = std::move(copy);
  CHECK(*moved == "two");
  one = one;
  CHECK(*one == "one");
  CHECK_FALSE(one == Boxed<std::string>());
  CHECK(sizeof(one) == sizeof(void*));
}
