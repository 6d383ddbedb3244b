// A JSON text as a tree of values: the same values as nlohmann's own document has, what is kept once, and what is
// refused.
#include "report/json_document.h"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

using namespace rankstacks;
using namespace rankstacks::report;
using Kind = JsonValue::Kind;

namespace {

JsonDocument document_of(std::string_view text, int depth = 16) {
  auto read = JsonDocument::read(text, depth, "a.json");
  REQUIRE(read.has_value());
  return std::move(*read);
}

std::string error_of(std::string_view text, int depth = 16) {
  const auto read = JsonDocument::read(text, depth, "a.json");
  REQUIRE_FALSE(read.has_value());
  return read.error().message();
}

nlohmann::json json_of(const JsonValue& value) {
  switch (value.kind) {
    case Kind::kNull: return nullptr;
    case Kind::kBoolean: return value.bits != 0;
    case Kind::kNegative: return value.negative();
    case Kind::kNatural: return value.natural();
    case Kind::kReal: return value.real();
    case Kind::kString: return std::string(value.string());
    case Kind::kArray: {
      nlohmann::json array = nlohmann::json::array();
      for (std::size_t i = 0; i < value.size; ++i) array.push_back(json_of(value.elements[i]));
      return array;
    }
    case Kind::kObject: {
      nlohmann::json object = nlohmann::json::object();
      for (std::size_t i = 0; i < value.size; ++i)
        object[std::string(value.members[i].key)] = json_of(value.members[i].value);
      return object;
    }
  }
  return nullptr;
}

}  // namespace

TEST_CASE("JSON document: the values of a text") {
  for (const std::string_view text :
       {"null", "true", "-7", "9223372036854775807", "18446744073709551615", "-9223372036854775808", "-0", "1.5e3",
        "\"\"", R"("a\u0000b\ud83d\ude00")", "[]", "{}", "[[],{},[{}]]",
        R"({"a":{"b":[1,"two",null,{"c":false}]},"d":"e"})",
        R"([{"a":"x","b":1},{"a":"x","b":1},{"a":"y","b":1},{"b":1,"a":"x"},{"a":"x","b":1,"c":[{"a":"x","b":1}]}])"})
    CHECK(json_of(document_of(text).root()) == nlohmann::json::parse(text));
}

TEST_CASE("JSON document: long texts, and many") {
  nlohmann::json many = nlohmann::json::array();
  for (int i = 0; i < 5000; ++i)
    many.push_back({{"name", std::string(static_cast<std::size_t>(i % 97), 'x')},
                    {"at", i % 31},
                    {"inside", {{{"at", i % 7}, {"name", std::string(9000 + i % 2, 'y')}}}}});
  CHECK(json_of(document_of(many.dump()).root()) == many);
  const std::string long_text(1 << 23, 'z');
  CHECK(document_of('"' + long_text + '"').root().string() == long_text);
}

TEST_CASE("JSON document: an object like an earlier one is kept once") {
  const JsonDocument document = document_of(R"([{"a":"x","b":1},{"a":"x","b":1},{"a":"x","b":2},{"a":"x","b":1.0},
      {"a":"x","b":"1"},{"b":1,"a":"x"},{"a":"x","b":1,"c":0},{"c":{"a":"x","b":1}}])");
  const JsonValue* const of = document.root().elements;
  CHECK(of[1].members == of[0].members);
  for (int i = 2; i < 7; ++i) CHECK(of[i].members != of[0].members);
  CHECK(of[7].members[0].value.members == of[0].members);
}

TEST_CASE("JSON document: of two members of one name the last counts") {
  const JsonDocument document = document_of(R"({"a":1,"b":2,"a":3})");
  REQUIRE(document.root().find("a") != nullptr);
  CHECK(document.root().find("a")->natural() == 3);
  CHECK(document.root().find("c") == nullptr);
  CHECK(document.root().find("") == nullptr);
}

TEST_CASE("JSON document: a document can be moved") {
  JsonDocument first = document_of(R"(["one","two"])");
  const JsonDocument second = std::move(first);
  CHECK(json_of(second.root()) == nlohmann::json({"one", "two"}));
}

TEST_CASE("JSON document: what is refused") {
  CHECK(error_of("[1") ==
        "a.json: line 1, column 3: syntax error while parsing array - unexpected end of input; expected ']'");
  CHECK(error_of("") != "");
  CHECK(error_of("[] []") != "");
  CHECK(error_of("1e999") == "a.json: found a number out of range");
  CHECK(error_of("[[[]]]", 2) == "a.json: nested deeper than 2 levels");
  CHECK(json_of(document_of("[[]]", 2).root()) == nlohmann::json::parse("[[]]"));
  CHECK(error_of("{\"a\":\"\xff\"}") != "");
}
