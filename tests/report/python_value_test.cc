// Reprs of Python values, of every length.
#include "model/python_value.h"

#include <catch2/catch.hpp>
#include <limits>

namespace rankstacks {
namespace {

using Kind = PythonValue::Kind;

PythonValue word(std::string text) { return {.kind = Kind::kWord, .text = std::move(text), .items = {}}; }
PythonValue string(std::string text, bool cut = false) {
  return {.kind = Kind::kString, .text = std::move(text), .items = {}, .cut = cut};
}
PythonValue list(std::vector<PythonValue> items, bool cut = false) {
  return {.kind = Kind::kList, .text = {}, .items = std::move(items), .cut = cut};
}

TEST_CASE("containers are shown with their items, as far as there is room") {
  CHECK(repr_of(list({}), 128) == "[]");
  CHECK(repr_of(list({word("1"), string("x")}), 128) == "[1, \"x\"]");
  CHECK(repr_of({.kind = Kind::kTuple, .text = {}, .items = {word("1")}}, 128) == "(1)");
  CHECK(repr_of({.kind = Kind::kDict, .text = {}, .items = {string("a"), word("1"), word("2"), list({})}}, 128) ==
        "{\"a\": 1, 2: []}");
  CHECK(repr_of(list({word("1")}, true), 128) == "[1, ...]");
  CHECK(repr_of(list(std::vector<PythonValue>(50, word("7"))), 20) == "[7, 7, 7, 7, ...]");
  CHECK(repr_of(list({word("1")}), 5) == "...");
  CHECK(repr_of(list({string("abcdefghijkl")}), 12) == "[...]");
}

TEST_CASE("strings are cut at a character") {
  CHECK(repr_of(string("a'b\nc"), 128) == "\"a\\\"b\\nc\"");
  CHECK(repr_of(string("abcdefgh"), 13) == "\"abcdefgh\"");
  CHECK(repr_of(string("abcdefghi"), 13) == "\"abcdefgh...\"");
  CHECK(repr_of(string("\xe2\x82\xac\xe2\x82\xac\xe2\x82\xac"), 7) == "\"\xe2\x82\xac\xe2\x82\xac...\"");
  CHECK(repr_of(string("abc", true), 128) == "\"abc...\"");
}

TEST_CASE("numbers have no exponent") {
  for (const auto& [value, shown] : {std::pair{1.5, "1.5"},
                                     {100.0, "100"},
                                     {0.0, "0"},
                                     {-0.0, "-0"},
                                     {0.1, "0.1"},
                                     {1e-7, "0.0000001"},
                                     {1e16, "10000000000000000"},
                                     {-123.25, "-123.25"},
                                     {1234567.125, "1234567.125"},
                                     {2e-3, "0.002"},
                                     {std::numeric_limits<double>::infinity(), "inf"},
                                     {-std::numeric_limits<double>::infinity(), "-inf"},
                                     {std::numeric_limits<double>::quiet_NaN(), "NaN"}})
    CHECK(repr_of_number(value) == shown);
  CHECK(repr_of_number(1e300) == "1" + std::string(300, '0'));
}

}  // namespace
}  // namespace rankstacks
