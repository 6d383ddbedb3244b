#include <catch2/catch.hpp>

#include "proc_target.h"
#include "python/rank_values.h"
#include "stopped_python.h"

using namespace rankstacks;
using namespace rankstacks::testing;

using Values = std::map<std::string, std::string>;

namespace {

Values values_of(const InstalledPython& interpreter, const std::string& name) {
  StoppedPython process(interpreter, name);
  INFO(interpreter.name() << process.output());
  REQUIRE(process.pid() > 0);
  const ProcTarget target(process.pid());
  auto candidates = python::find_python_runtime(target);
  const Values values = python::read_rank_values(target, candidates);
  // Without the secret of its hashes the names are searched.
  for (python::RuntimeCandidate& candidate : candidates) candidate.hash_secret = 0;
  CHECK(python::read_rank_values(target, candidates) == values);
  return values;
}

}  // namespace

TEST_CASE("what frameworks have in memory of their rank", "[real]") {
  for (const InstalledPython& interpreter : installed_pythons()) {
    INFO(interpreter.name());
    // vLLM has no group yet. PyTorch's groups are no C++ objects here, so their rank is not known.
    CHECK(values_of(interpreter, "frameworks") ==
          Values{{"jax:coordinator_address", "localhost:1234"}, {"jax:num_processes", "8"}, {"jax:process_id", "5"}});
  }
}

TEST_CASE("a process without these frameworks", "[real]") {
  for (const InstalledPython& interpreter : installed_pythons()) CHECK(values_of(interpreter, "plain").empty());
}

TEST_CASE("a process without Python") {
  const ProcTarget target(::getpid());
  CHECK(python::read_rank_values(target, python::find_python_runtime(target)).empty());
}
