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
        object[std::string((*value.object->names)[i].text())] = json_of(value.object->values[i]);
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
  CHECK(of[1].object == of[0].object);
  for (int i = 2; i < 7; ++i) CHECK(of[i].object != of[0].object);
  CHECK(of[7].object->values[0].object == of[0].object);
}

TEST_CASE("JSON document: of two members of one name the last counts") {
  const JsonDocument document = document_of(R"({"a":1,"b":2,"a":3})");
  REQUIRE(document.root().find("a") != nullptr);
  CHECK(document.root().find("a")->natural() == 3);
  REQUIRE(document.root().size == 2);
  CHECK((*document.root().object->names)[0].text() == "b");
  CHECK((*document.root().object->names)[1].text() == "a");
  CHECK(document.root().find("c") == nullptr);
  CHECK(document.root().find("") == nullptr);
}

TEST_CASE("JSON document: every member is found, of few and of many, and no other") {
  for (const int members : {1, 2, 31, 32, 33, 64, 500}) {
    nlohmann::json object = nlohmann::json::object();
    for (int i = 0; i < members; ++i) object["name" + std::to_string(i)] = i;
    // Twice: the second of equal lists of names is the first.
    const JsonDocument document = document_of("[" + object.dump() + "," + object.dump() + "]");
    for (std::uint32_t k = 0; k < 2; ++k) {
      const JsonValue& root = document.root().elements[k];
      for (int i = 0; i < members; ++i) {
        const JsonValue* const found = root.find(JsonKey(std::string_view("name" + std::to_string(i))));
        REQUIRE(found != nullptr);
        CHECK(found->natural() == static_cast<std::uint64_t>(i));
      }
      for (int i = members; i < members + 100; ++i)
        CHECK(root.find(JsonKey(std::string_view("name" + std::to_string(i)))) == nullptr);
    }
    CHECK(document.root().elements[0].object->names == document.root().elements[1].object->names);
  }
}

TEST_CASE("JSON document: of many members of one name the last counts") {
  std::string text = "{";
  for (int i = 0; i < 1000; ++i) text += "\"k" + std::to_string(i % 100) + "\":" + std::to_string(i) + ",";
  const JsonDocument document = document_of(text + "\"end\":0}");
  CHECK(document.root().size == 101);
  CHECK(document.root().find("k7")->natural() == 907);
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
