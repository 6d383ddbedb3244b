#include "base/text.h"

#include <array>
#include <catch2/catch.hpp>
#include <set>
#include <string>
#include <vector>

using namespace rankstacks;

TEST_CASE("a counted noun takes its plural from the number") {
  CHECK(counted(0, "thread") == "0 threads");
  CHECK(counted(1, "thread") == "1 thread");
  CHECK(counted(2, "thread") == "2 threads");
  CHECK(counted(1, "other process", "es") == "1 other process");
  CHECK(counted(3, "other process", "es") == "3 other processes");
}

TEST_CASE("joined words") {
  const std::vector<std::string> words = {"a", "b", "c"};
  CHECK(joined(std::vector<std::string>{}) == "");
  CHECK(joined(std::vector<std::string>{}, ", ", 0) == "");
  CHECK(joined(words) == "a, b, c");
  CHECK(joined(words, ",") == "a,b,c");
  CHECK(joined(std::set<std::string_view>{"y", "x"}, " and ") == "x and y");
  CHECK(joined(words, ", ", 3) == "a, b, c");
  CHECK(joined(words, ", ", 2) == "a, b and 1 more");
  // An empty word is a word.
  CHECK(joined(std::vector<std::string>{"", "b"}) == ", b");
}

TEST_CASE("one of several words") {
  constexpr std::array<std::string_view, 2> kArray = {"read", "write"};
  constexpr std::string_view kPlain[] = {"read", "write"};
  CHECK(is_one_of("write", kArray));
  CHECK(is_one_of("write", kPlain));
  CHECK(is_one_of("write", {"read", "write"}));
  CHECK(!is_one_of("writ", kArray));
  CHECK(!is_one_of("", {"read", "write"}));
  CHECK(is_one_of("", {"", "write"}));
}
