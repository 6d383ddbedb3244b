// The Python exceptions that threads handle, in words.
#include <catch2/catch.hpp>

#include "analyzers/analysis.h"
#include "analyzers/handled.h"
#include "support/literal_job.h"

using namespace rankstacks;
using namespace rankstacks::analyzers;
using namespace rankstacks::testing;

TEST_CASE("a handled exception in words") {
  LiteralJob literal;
  Frame step = py("step", "/home/u/model.py", 17);
  const FrameId raised = literal.job.frames.intern(step);
  const HandledException whole{"RuntimeError", "loss is NaN", 0, raised, raised};
  CHECK(describe_handled(literal.job, whole) == "RuntimeError(\"loss is NaN\") raised in step at model.py:17");
  CHECK(describe_handled(literal.job, whole, false) == "RuntimeError raised in step at model.py:17");
  CHECK(describe_handled(literal.job, {"KeyError", {}, {}, {}, {}}) == "KeyError");
  CHECK(describe_handled(literal.job, {"KeyError", "'x'", {}, {}, {}}) == "KeyError('x')");
  CHECK(describe_handled(literal.job, {"", {}, {}, {}, {}}) == "an exception");
  CHECK(describe_handled(literal.job, {"E", "one\ntwo", {}, {}, {}}) == "E(\"one…\")");
  CHECK(describe_handled(literal.job, {"E", std::string(79, 'x') + "üy", {}, {}, {}}) ==
        "E(\"" + std::string(79, 'x') + "…\")");
  step.qualname = "Model.step";
  step.line.reset();
  CHECK(describe_handled(literal.job, {"E", {}, {}, {}, literal.job.frames.intern(step)}) ==
        "E raised in Model.step at model.py");
}

TEST_CASE("what threads handle does not part their clusters") {
  LiteralJob literal;
  for (int r = 0; r < 2; ++r) literal.rank(r, 2, waits_in_all_reduce());
  CHECK_FALSE(handles_exception(literal.job.ranks[1].threads[0]));
  literal.job.ranks[1].threads[0].handles = HandledException{"ValueError", {}, {}, {}, {}};
  CHECK(handles_exception(literal.job.ranks[1].threads[0]));
  CHECK(analyze(literal.job).clusters.size() == 1);
}
