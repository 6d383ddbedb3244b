// The compact form of a document: it reads as the same document, and its bytes are not trusted.
#include "report/compact_form.h"

#include <string>
#include <string_view>

#include <catch2/catch.hpp>

using namespace rankstacks;
using namespace rankstacks::report;
using Kind = JsonValue::Kind;
using namespace std::string_literals;

namespace {

constexpr int kDepth = 8;

bool is_same(const JsonValue& a, const JsonValue& b) {
  if (a.kind != b.kind || a.size != b.size) return false;
  switch (a.kind) {
    case Kind::kString: return a.string() == b.string();
    case Kind::kArray:
      for (std::uint32_t i = 0; i < a.size; ++i)
        if (!is_same(a.elements[i], b.elements[i])) return false;
      return true;
    case Kind::kObject:
      for (std::uint32_t i = 0; i < a.size; ++i)
        if ((*a.object->names)[i].text() != (*b.object->names)[i].text() ||
            !is_same(a.object->values[i], b.object->values[i]))
          return false;
      return true;
    default: return a.bits == b.bits;
  }
}

JsonDocument document_of(std::string_view text) {
  auto read = JsonDocument::read(text, kDepth, "a.json");
  REQUIRE(read.has_value());
  return std::move(*read);
}

std::string error_of(const std::string& bytes, int depth = kDepth) {
  const auto read = read_compact_form("rankstacks-values 1\n" + bytes, depth, "node-1");
  REQUIRE_FALSE(read.has_value());
  return read.error().message();
}

constexpr std::string_view kReport =
    R"({"a":[{"tid":1,"frames":[{"f":"x","line":1},{"f":"y","line":-1},{"f":"x","line":1}]},
            {"tid":2,"frames":[{"f":"x","line":1},{},{}]}],"b":[1.5,-0.25,18446744073709551615,-9223372036854775808,
        true,false,null,"",[],[[]],300,{"c":{"d":"e"}}]})";

}  // namespace

TEST_CASE("compact form: reads as the document that it was made of") {
  for (const std::string_view text : {kReport, std::string_view("7"), std::string_view("-0"), std::string_view("[]"),
                                      std::string_view("{}"), std::string_view(R"([{},{"a":1},{},{"a":1}])")}) {
    const JsonDocument document = document_of(text);
    const auto again = read_compact_form(compact_form(document), kDepth, "node-1");
    REQUIRE(again.has_value());
    CHECK(is_same(again->root(), document.root()));
  }
}

TEST_CASE("compact form: what is repeated is written once") {
  std::string many = "[";
  for (int i = 0; i < 1000; ++i) many += R"({"function":"gloo::waitSend","line":1234567},)";
  many += "0]";
  CHECK(compact_form(document_of(many)).size() < 2100);
  const auto again = read_compact_form(compact_form(document_of(many)), kDepth, "node-1");
  REQUIRE(again.has_value());
  CHECK(again->root().elements[0].object == again->root().elements[999].object);
}

TEST_CASE("compact form: lists of objects that are equal are kept once") {
  const std::string list = R"([{"f":"x","line":1},{"f":"y","line":2}])", other = R"([{"f":"y","line":2},{"f":"x"}])";
  const auto again = read_compact_form(
      compact_form(document_of("[" + list + "," + other + ",[1,2]," + list + ",[1,2],[],[]]")), kDepth, "node-1");
  REQUIRE(again.has_value());
  const JsonValue* const of = again->root().elements;
  CHECK(of[3].elements == of[0].elements);
  CHECK(of[1].elements != of[0].elements);
  CHECK(is_same(of[2], of[4]));
  CHECK(is_same(again->root(), document_of("[" + list + "," + other + ",[1,2]," + list + ",[1,2],[],[]]").root()));
}

TEST_CASE("compact form: a text is distinguished from it, and stays if it is none") {
  const std::string text(kReport), compact = as_compact_form(text, kDepth);
  CHECK(compact != text);
  CHECK(compact == compact_form(document_of(text)));
  for (const std::string& bytes : {text, compact}) {
    const auto read = read_text_or_compact_form(bytes, kDepth, "node-1");
    REQUIRE(read.has_value());
    CHECK(is_same(read->root(), document_of(text).root()));
  }
  CHECK(as_compact_form("[1", kDepth) == "[1");
  CHECK(as_compact_form("[[[[1]]]]", 3) == "[[[[1]]]]");
}

TEST_CASE("compact form: a part of it is an error at each length") {
  const std::string compact = compact_form(document_of(kReport));
  for (std::size_t size = 0; size < compact.size(); ++size)
    CHECK_FALSE(read_compact_form(std::string_view(compact).substr(0, size), kDepth, "node-1").has_value());
  CHECK_FALSE(read_compact_form(compact + "\0"s, kDepth, "node-1").has_value());
}

TEST_CASE("compact form: damage") {
  // Strings, objects, the document.
  CHECK(error_of("\0\0"s) == "node-1: byte 22: the document ends too early");
  CHECK(error_of("\0\0\x0a"s) == "node-1: byte 23: a value of an unknown kind");
  CHECK(error_of("\0\0\x06\0"s) == "node-1: byte 24: no such string");
  CHECK(error_of("\0\0\x09\0"s) == "node-1: byte 24: no such object");
  CHECK(error_of("\x7f"s) == "node-1: byte 21: more elements than there are bytes");
  CHECK(error_of("\0\x01\x01\0\0\0"s) == "node-1: byte 24: no such string");
  CHECK(error_of("\x01\x01"
                 "a\x01\x01\0\x07\0\0"s) == "node-1: byte 27: a value of an unknown kind");
  CHECK(error_of("\0\0\x07\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"s) ==
        "node-1: byte 33: more elements than there are bytes");
  CHECK(error_of("\0\0\x03\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02"s) ==
        "node-1: byte 33: a number of more than 64 bits");
  CHECK(error_of("\0\0\x04\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"s) ==
        "node-1: byte 33: a number below 0 that does not fit into 64 bits");
  CHECK(error_of("\0\0\x07\x01\x07\x01\x07\x01\0"s, 2) == "node-1: byte 27: nested deeper than 2 levels");
  CHECK(error_of("\0\0\x05\0\0\0\0\0\0\xf0\x7f"s) == "node-1: byte 31: a number that is not finite");
  for (const std::string_view text :
       {"\xff", "\xc0\x80", "\xc3", "\xe0\x80\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80", "a\x80"}) {
    const std::string table = "\x01" + std::string(1, static_cast<char>(text.size())) + std::string(text);
    CHECK(error_of(table + "\0\x06\0"s) == "node-1: byte 22: a string that is not UTF-8");
  }
  CHECK_FALSE(read_compact_form("rankstacks-values 2\n\0\0\0"s, kDepth, "node-1").has_value());
}

TEST_CASE("compact form: a few bytes do not become a document of gigabytes") {
  const auto number = [](std::size_t value) {
    std::string bytes;
    for (; value >= 0x80; value >>= 7) bytes += static_cast<char>(value | 0x80);
    return bytes + static_cast<char>(value);
  };
  constexpr std::size_t kText = std::size_t{1} << 20, kTimes = 2000;
  std::string strings = "\x01" + number(kText) + std::string(kText, 'x') + "\0"s, references = "\x07" + number(kTimes);
  for (std::size_t i = 0; i < kTimes; ++i) references += "\x06\0"s;
  CHECK(error_of(strings + references) == "node-1: more than 1073741824 bytes as a text");
  std::string objects = "\x01" + number(kText) + std::string(kText, 'x') + "\x01\x01\0\x06\0"s,
              shared = "\x07" + number(kTimes);
  for (std::size_t i = 0; i < kTimes; ++i) shared += "\x09\0"s;
  CHECK(error_of(objects + shared) == "node-1: more than 1073741824 bytes as a text");
}
