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

TEST_CASE("a C++ exception that is handled, next to one of Python's") {
  LiteralJob literal;
  literal.rank(0, 1, waits_in_all_reduce());
  ThreadSnapshot& thread = literal.job.ranks[0].threads[0];
  thread.handles_cxx = HandledCxxException{{"std::runtime_error", "no such shard\nand more"}, 1};
  CHECK(handles_exception(thread));
  CHECK(describe_innermost(literal.job, thread) == "std::runtime_error: no such shard");
  CHECK(describe_innermost(literal.job, thread, false) == "std::runtime_error");
  CHECK(describe_failure(literal.job, thread) == "handles std::runtime_error: no such shard");
  thread.handles = HandledException{"ValueError", {}, 2, {}, {}};
  CHECK(describe_innermost(literal.job, thread) == "std::runtime_error: no such shard");
  thread.handles->frame = 0;
  CHECK(describe_innermost(literal.job, thread) == "ValueError");
  CHECK(describe_failure(literal.job, thread) == "handles ValueError");
  SECTION("one that means no failure hides none that does") {
    thread.handles->type = "StopIteration";
    CHECK(describe_failure(literal.job, thread) == "handles std::runtime_error: no such shard");
    thread.handles_cxx.reset();
    CHECK_FALSE(handles_failure(thread));
    CHECK(describe_failure(literal.job, thread).empty());
  }
  SECTION("one that is on its way") {
    thread.raises_cxx = HandledCxxException{{"int", "42"}, {}};
    CHECK(describe_failure(literal.job, thread) == "has raised int: 42");
  }
}

TEST_CASE("what threads handle does not part their clusters") {
  LiteralJob literal;
  for (int r = 0; r < 2; ++r) literal.rank(r, 2, waits_in_all_reduce());
  CHECK_FALSE(handles_exception(literal.job.ranks[1].threads[0]));
  literal.job.ranks[1].threads[0].handles = HandledException{"ValueError", {}, {}, {}, {}};
  CHECK(handles_exception(literal.job.ranks[1].threads[0]));
  CHECK(analyze(literal.job).clusters.size() == 1);
}
