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

TEST_CASE("what torch's process groups say of the axes of a job", "[real]") {
  for (const InstalledPython& interpreter : installed_pythons()) {
    INFO(interpreter.name());
    // The C++ objects of this program are bytes, whose contents begin too late for that in free-threaded builds.
    const bool has_objects = !interpreter.path.ends_with('t');
    const Values rank = has_objects ? Values{{"torch:rank", "3"}, {"torch:world_size", "4"}} : Values{};
    Values by_mesh = rank, by_framework = rank;
    // Of "pp" it has two places.
    if (has_objects)
      by_mesh.merge(Values{{"torch:layout", "DeviceMesh"}, {"torch:axis:dp", "1/2"}, {"torch:axis:tp", "1/2"}});
    if (has_objects) by_framework.merge(Values{{"torch:layout", "vLLM"}, {"torch:axis:tp", "0/2"}});
    CHECK(values_of(interpreter, "mesh") == by_mesh);
    CHECK(values_of(interpreter, "parallel_state") == by_framework);
  }
}

TEST_CASE("a process without these frameworks", "[real]") {
  for (const InstalledPython& interpreter : installed_pythons()) CHECK(values_of(interpreter, "plain").empty());
}

TEST_CASE("a process without Python") {
  const ProcTarget target(::getpid());
  CHECK(python::read_rank_values(target, python::find_python_runtime(target)).empty());
}
