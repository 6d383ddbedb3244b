// Dumps of other tools, as the tests read them.
#pragma once

#include <catch2/catch.hpp>

#include <fstream>
#include <sstream>
#include <string>

#include "dumps/dump.h"

namespace rankstacks::testing {

// `name`: below fixtures.
inline std::string text_of_fixture(const std::string& name) {
  std::ifstream file(std::string(RANKSTACKS_FIXTURES) + "/" + name, std::ios::binary);
  REQUIRE(file);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

inline JobSnapshot read_dump(const std::string& text, const std::string& path = "dump") {
  auto job = dumps::read_dump(text, path, dumps::rank_from_dump_name(path));
  INFO((job ? "" : job.error().message()));
  REQUIRE(job);
  return std::move(*job);
}

}  // namespace rankstacks::testing
