// The whole text and the whole JSON of small examinations.
#include <nlohmann/json.hpp>

#include "literal_system.h"

namespace rankstacks::doctor {
namespace {

Examination small() {
  Section machine;
  machine.findings = {ok("ptrace", Area::kAttach, "tried on a process of its own: it can be seized"),
                      note("core-names", Area::kCores,
                           "the name has no %p: ranks that die in one directory write over each other's core",
                           {"sysctl kernel.core_pattern=core.%p"})};
  Section one{.pid = 101, .name = "python3\x1b[31m"};
  one.findings = {problem("core-limit", Area::kCores, "its limit is 0: it would leave no core",
                          {"prlimit --pid {PID} --core=unlimited"})};
  return {{machine, one}};
}

}  // namespace

TEST_CASE("the text: findings in columns, each mend on a line to copy, names of processes made harmless") {
  CHECK(text_of(small(), {.width = 70}) == R"(This machine
  ok       ptrace      tried on a process of its own: it can be seized
  note     core-names  the name has no %p: ranks that die in one
                       directory write over each other's core
                       -> sysctl kernel.core_pattern=core.%p

Process 101 (python3\x1b[31m)
  problem  core-limit  its limit is 0: it would leave no core
                       -> prlimit --pid 101 --core=unlimited

Attach: nothing stops it. Cores: 1 problem.
)");
}

TEST_CASE("processes of which the same was found are shown once") {
  Examination e = small();
  e.sections[1].name = "python3";
  for (const Pid pid : {102, 103}) {
    e.sections.push_back(e.sections[1]);
    e.sections.back().pid = pid;
  }
  e.sections.push_back(e.sections[1]);
  e.sections.back().pid = 104;
  e.sections.back().findings[0] = ok("core-limit", Area::kCores, "unlimited");
  const std::string text = text_of(e, {});
  CHECK(text.find("3 processes (python3): 101, 102, 103\n"
                  "  problem  core-limit  its limit is 0: it would leave no core\n"
                  "                       -> for pid in 101 102 103; do prlimit --pid $pid --core=unlimited; done\n"
                  "\n"
                  "Process 104 (python3)\n"
                  "  ok       core-limit  unlimited\n"
                  "\n"
                  "Attach: nothing stops it. Cores: 3 problems.\n") != std::string::npos);
}

TEST_CASE("cores alone: nothing is said of attaching") {
  Section core{.path = "core.7"};
  core.findings = {ok("core", Area::kCores, "all of it is there, of pid 7")};
  CHECK(text_of({{core}}, {}) ==
        "Core core.7\n  ok       core  all of it is there, of pid 7\n\nCores: they can be read as they are.\n");
}

TEST_CASE("colours change nothing but colours") {
  std::string text = text_of(small(), {.color = true});
  for (const char* code : {"\x1b[1;31m", "\x1b[32m", "\x1b[1m", "\x1b[0m"})
    for (std::size_t at; (at = text.find(code)) != std::string::npos;) text.erase(at, std::string_view(code).size());
  CHECK(text == text_of(small(), {}));
}

TEST_CASE("the JSON") {
  const auto json = nlohmann::json::parse(json_of(small()));
  CHECK(json["schema"] == 1);
  CHECK(json["tool"]["name"] == "rankstacks");
  CHECK(json["ok"] == false);
  REQUIRE(json["findings"].size() == 3);
  CHECK(
      json["findings"][0] ==
      nlohmann::json::parse(
          R"({"subject": "machine", "pid": null, "path": null, "name": null, "check": "ptrace", "area": "attach", "status": "ok",
                                                         "found": "tried on a process of its own: it can be seized", "mends": [], "core": null})"));
  CHECK(
      json["findings"][2] ==
      nlohmann::json::parse(
          R"({"subject": "process", "pid": 101, "path": null, "name": "python3\u001b[31m", "check": "core-limit", "area": "cores", "status": "problem",
                                                         "found": "its limit is 0: it would leave no core", "mends": ["prlimit --pid 101 --core=unlimited"], "core": null})"));
}

}  // namespace rankstacks::doctor
