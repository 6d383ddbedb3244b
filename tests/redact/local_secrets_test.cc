// Secrets in local variables: by name, key, neighbour, and in quotes.
#include "redact/local_secrets.h"

#include <catch2/catch.hpp>

using namespace rankstacks;

namespace {

using Kind = PythonValue::Kind;

PythonValue word(std::string text) { return {.kind = Kind::kWord, .text = std::move(text), .items = {}}; }
PythonValue string(std::string text) { return {.kind = Kind::kString, .text = std::move(text), .items = {}}; }
PythonValue of(Kind kind, std::vector<PythonValue> items) {
  return {.kind = kind, .text = {}, .items = std::move(items)};
}

// The variables of the only frame of a process.
std::vector<std::string> shown(std::vector<LocalVariable> variables, std::vector<std::string> known = {}) {
  std::vector<ThreadSnapshot> threads(2);
  threads[1].locals.push_back({.frame = 0, .variables = std::move(variables)});
  redact::Pseudonyms names;
  redact::FieldRedaction fields(names, false, true);
  redact::LocalSecrets(fields, std::move(known)).take_out(threads);
  std::vector<std::string> reprs;
  for (const LocalVariable& variable : threads[1].locals[0].variables)
    reprs.push_back(variable.name + " " + repr_of(variable.value, 200));
  return reprs;
}

std::string shown_of(PythonValue value, std::string name = "x") {
  return shown({{.name = std::move(name), .value = std::move(value)}}).front().substr(2);
}

}  // namespace

TEST_CASE("the name of a variable or a key says that its value is a secret") {
  CHECK(shown({{.name = "password", .value = string("hunter2")}}) == std::vector<std::string>{"password \"<token>\""});
  CHECK(shown({{.name = "password", .value = of(Kind::kList, {string("hunter2"), word("None")})}}) ==
        std::vector<std::string>{"password [\"<token>\", None]"});
  CHECK(shown({{.name = "max_tokens", .value = word("4096")}}) == std::vector<std::string>{"max_tokens 4096"});
  CHECK(shown_of(of(Kind::kDict, {string("api_key"), string("hunter2"), string("lr"), word("0.1")})) ==
        "{\"api_key\": \"<token>\", \"lr\": 0.1}");
  CHECK(shown_of(of(Kind::kDict, {string("Cookie"), string("a=b; sessionid=hunter2-of-it")})).find("hunter2") ==
        std::string::npos);
}

TEST_CASE("a string names the value after it") {
  CHECK(shown_of(of(Kind::kTuple, {string("API_KEY"), string("hunter2")})) == "(\"API_KEY\", \"<token>\")");
  CHECK(shown({{.name = "k", .value = string("DB_PASSWORD")}, {.name = "v", .value = string("hunter2")}}) ==
        std::vector<std::string>{"k \"DB_PASSWORD\"", "v \"<token>\""});
  CHECK(shown_of(of(Kind::kList, {string("mysql"), string("-uroot"), string("-phunter2"), string("db")})) ==
        "[\"mysql\", \"-uroot\", \"-p<token>\", \"db\"]");
}

TEST_CASE("secrets in quotes are found, and anywhere else then") {
  CHECK(shown_of(of(Kind::kDict, {string("text"), string("mysql -uroot -p\"s3cret\" db")})).find("s3cret") ==
        std::string::npos);
  CHECK(shown_of(string(R"({"text": "mysql -uroot -p\"s3cret\" db"})")).find("s3cret") == std::string::npos);
  CHECK(shown_of(string(R"(["{\"text\": \"mysql -uroot -p\\\"s3cret\\\" db\"}"])")).find("s3cret") ==
        std::string::npos);
  CHECK(shown_of(string(R"(say \"export PGPASSWORD='s3cret-one'\" now)")).find("s3cret") == std::string::npos);
  CHECK(shown({{.name = "a", .value = string("says hunter2 twice")}, {.name = "password", .value = string("hunter2")}},
              {}) == std::vector<std::string>{"a \"says <token> twice\"", "password \"<token>\""});
  CHECK(shown({{.name = "a", .value = of(Kind::kList, {string("of-environ"), word("1")})}}, {"of-environ"}) ==
        std::vector<std::string>{"a [\"<token>\", 1]"});
}

TEST_CASE("the end of a str that was cut is left out") {
  PythonValue value = string(std::string(4000, 'x') + " ghp_abc");
  value.cut = true;
  std::vector<ThreadSnapshot> threads(1);
  threads[0].locals.push_back({.frame = 0, .variables = {{.name = "a", .value = value}}});
  redact::Pseudonyms names;
  redact::FieldRedaction fields(names, false, true);
  redact::LocalSecrets(fields, {}).take_out(threads);
  CHECK(threads[0].locals[0].variables[0].value.text == std::string(4000 + 8 - 256, 'x'));
}
