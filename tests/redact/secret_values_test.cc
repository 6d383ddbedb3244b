#include "redact/secret_values.h"

#include <algorithm>
#include <catch2/catch.hpp>

using namespace rankstacks::redact;

TEST_CASE("the values that redaction takes out, as bytes to look for") {
  const std::string token = std::string("hf_") + "AbCdEfGhIjKlMnOpQrStUvWxYz012345";
  const auto values = secret_values(
      {{"HF_TOKEN", token}, {"RANK", "3"}, {"PROXY", "http://me:Pa55w0rdX9@proxy:3128/"}, {"PWD", "/home/u"}},
      {"train.py", "--password", "h0rse-battery", "--lr", "0.1"});
  const auto has = [&](const std::string& value) {
    return std::find(values.begin(), values.end(), value) != values.end();
  };
  CHECK(has(token));
  CHECK(has("h0rse-battery"));
  CHECK(std::any_of(values.begin(), values.end(),
                    [](const std::string& value) { return value.find("Pa55w0rdX9") != std::string::npos; }));
  CHECK_FALSE(has("3"));
  CHECK_FALSE(has("0.1"));
  CHECK_FALSE(has("/home/u"));
  CHECK(values.front() == token);  // the longest first: it may contain another one
}

TEST_CASE("what was hidden is found by the words around it") {
  std::set<std::string> values;
  add_hidden("key a/b is, key c/d/e/", "key <token> is, key <token>/", values);
  CHECK(values == std::set<std::string>{"a/b", "c/d/e"});
  values.clear();
  add_hidden("x=one", "y=<token>", values);  // not made of it
  add_hidden("x=one!", "x=<token>?", values);
  CHECK(values.empty());
}
