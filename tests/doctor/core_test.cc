// Cores, and whether the files of their processes are on this machine.
#include "literal_system.h"

namespace rankstacks::doctor {
namespace {

LiteralSystem with_core() {
  LiteralSystem s;  // with cores alone nothing is asked of the machine
  s.cores["core.7"] = {.pid = 7,
                       .executable = "/usr/bin/python3.11",
                       .files = {LiteralSystem::file("/usr/bin/python3.11"), LiteralSystem::file("/usr/lib/libc.so.6"),
                                 LiteralSystem::file("/opt/libx.so")}};
  s.cores["core.7"].files[0].main_program = true;
  s.cores["core.7"].python = PythonFacts{.module = "/usr/bin/python3.11", .version = "3.11.2"};
  return s;
}

const std::string kFiles = " -> give the files of the machine where it was taken: --sysroot DIR or --search DIR";

}  // namespace

TEST_CASE("a whole core with all its files") {
  const LiteralSystem s = with_core();
  const Examination e = examine(s, {.cores = {"core.7"}});
  REQUIRE(e.sections.size() == 1);
  CHECK((e.sections[0].path == "core.7" && e.sections[0].name == "python3.11"));
  CHECK(core_line(s, "core.7", "core") == "ok core: all of it is there, of pid 7");
  CHECK(core_line(s, "core.7", "executable") == "ok executable: /usr/bin/python3.11, as in the core (build-id abcd)");
  CHECK(core_line(s, "core.7", "libraries") == "ok libraries: 2, as in the core");
  CHECK(core_line(s, "core.7", "build-ids") == "ok build-ids: every file has one (3)");
  CHECK(core_line(s, "core.7", "python") == "ok python: CPython 3.11.2 (python3.11): its state was read");
  CHECK(e.exit_status() == 0);
}

TEST_CASE("no core at all") {
  const LiteralSystem s;
  CHECK(core_line(s, "notes.txt", "core") == "problem core: notes.txt: no ELF header -> take the core again");
  CHECK(examine(s, {.cores = {"notes.txt"}}).exit_status() == 1);
}

TEST_CASE("another interpreter than the core's, other and missing libraries") {
  LiteralSystem s = with_core();
  TargetFacts& core = s.cores["core.7"];
  core.files[0].opened = core.files[1].opened = core.files[2].opened = false;
  core.problems = {
      {"module /usr/bin/python3.11: the core has build-id abcd, /usr/bin/python3.11 has 0123", "give the program",
       ProblemCode::kFileMismatch, "/usr/bin/python3.11"},
      {"module /usr/lib/libc.so.6: the core has build-id abcd, /usr/lib/libc.so.6 has 4567", "give the files",
       ProblemCode::kFileMismatch, "/usr/lib/libc.so.6"},
      {"1 file of the process missing on this machine: /opt/libx.so", "give them", ProblemCode::kFileMissing}};
  CHECK(core_line(s, "core.7", "core") == "ok core: all of it is there, of pid 7");
  CHECK(core_line(s, "core.7", "executable") ==
        "problem executable: /usr/bin/python3.11 is another here: the core has build-id abcd, /usr/bin/python3.11 has "
        "0123 -> give the "
        "program that was running: --exe FILE" +
            kFiles);
  CHECK(
      core_line(s, "core.7", "libraries") ==
      "problem libraries: 1 of 2 are others here than in the core: libc.so.6; 1 of 2 are not on this machine: libx.so" +
          kFiles);
  core.problems.clear();
  CHECK(core_line(s, "core.7", "executable") ==
        "problem executable: /usr/bin/python3.11 is not on this machine -> give the program that was running: --exe "
        "FILE" +
            kFiles);
  CHECK(core_line(s, "core.7", "libraries") ==
        "problem libraries: 2 of 2 are not on this machine: libc.so.6, libx.so" + kFiles);
  core.files[0].main_program = false;
  CHECK(core_line(s, "core.7", "executable") ==
        "problem executable: the core does not say which program it is of -> name it with --exe FILE");
}

TEST_CASE("a core that is cut off, and one whose files it does not vouch for") {
  LiteralSystem s = with_core();
  TargetFacts& core = s.cores["core.7"];
  core.problems = {{"2 files could not be checked, as the core holds no build-id of them: a, b", "bit 4"}};
  CHECK(core_line(s, "core.7", "core") == "ok core: all of it is there, of pid 7");
  CHECK(examine(s, {.cores = {"core.7"}}).sections[0].findings[1].severity == Severity::kNote);
  CHECK(examine(s, {.cores = {"core.7"}}).exit_status() == 0);
  core.partial = true;
  core.problems = {{"the file ends at 100 of 200 bytes", std::nullopt}};
  CHECK(core_line(s, "core.7", "core") == "problem core: the file ends at 100 of 200 bytes -> take the core again");
  CHECK(examine(s, {.cores = {"core.7"}}).exit_status() == 1);
}

}  // namespace rankstacks::doctor
