// The processes that a blocked call waits for, in JSON and in text.
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "analyzers/activity.h"
#include "report/report.h"
#include "support/literal_job.h"

using namespace rankstacks;
using namespace rankstacks::report;
using namespace rankstacks::testing;
using Json = nlohmann::json;

namespace {

SyscallInfo blocked(const std::string& name, std::vector<OtherEnd> others, bool own_end = false) {
  SyscallInfo call{name, 0, 5, "/x"};
  call.others = std::move(others);
  call.own_end = own_end;
  return call;
}

LiteralJob job_with(SyscallInfo call) {
  LiteralJob literal;
  for (int r = 0; r < 2; ++r) literal.rank(r, 2, waits_in_all_reduce());
  literal.job.ranks[0].threads[0].syscall = std::move(call);
  return literal;
}

std::string words(SyscallInfo call) {
  const LiteralJob literal = job_with(std::move(call));
  return analyzers::describe_block(literal.job, literal.job.ranks[0].threads[0]);
}

Json written(const JobSnapshot& job) { return Json::parse(json_report(job, analyzers::analyze(job))); }
const Json& call_in(const Json& report) { return report["ranks"][0]["threads"][0]["syscall"]; }

}  // namespace

TEST_CASE("other ends in JSON, there and back") {
  SyscallInfo call =
      blocked("recvfrom", {{101, EndKind::kSocket, ""}, {4711, EndKind::kLock, "python3 \x1b[31m"}}, true);
  call.other_host = "203.0.113.5";
  const LiteralJob literal = job_with(call);
  const Json report = written(literal.job);
  CHECK(
      call_in(report)["other_ends"] ==
      Json::parse(
          R"([{"pid": 101, "command": null, "kind": "socket"}, {"pid": 4711, "command": "python3 \u001b[31m", "kind": "lock"}])"));
  CHECK(call_in(report)["own_end"] == true);
  CHECK(call_in(report)["other_host"] == "203.0.113.5");
  const auto back = read_json_report(report.dump(), "x.json");
  REQUIRE(back);
  const SyscallInfo& again = *back->ranks[0].threads[0].syscall;
  CHECK(again.others == call.others);
  CHECK(again.own_end);
  CHECK(again.other_host == call.other_host);
}

TEST_CASE("a database that is tried for, there and back") {
  SyscallInfo call{"clock_nanosleep", 230};
  call.others = {{4711, EndKind::kDatabase, "python3 sweep.py"}};
  call.database = "/data/trials.db";
  const Json report = written(job_with(call).job);
  CHECK(call_in(report)["other_ends"] ==
        Json::parse(R"([{"pid": 4711, "command": "python3 sweep.py", "kind": "database"}])"));
  CHECK(call_in(report)["database"] == "/data/trials.db");
  const auto back = read_json_report(report.dump(), "x.json");
  REQUIRE(back);
  CHECK(back->ranks[0].threads[0].syscall->others == call.others);
  CHECK(back->ranks[0].threads[0].syscall->database == call.database);
}

TEST_CASE("a call of which nothing is known has no members for it") {
  const Json report = written(job_with(blocked("read", {})).job);
  for (const char* name : {"other_ends", "own_end", "database", "other_host"})
    CHECK_FALSE(call_in(report).contains(name));
}

TEST_CASE("other ends that cannot be") {
  Json report = written(job_with(blocked("read", {{1, EndKind::kPipe, ""}})).job);
  Json& call = report["ranks"][0]["threads"][0]["syscall"];
  const auto refused = [&](const Json& ends) {
    call["other_ends"] = ends;
    return !read_json_report(report.dump(), "x.json");
  };
  CHECK_FALSE(refused(Json::parse(R"([{"pid": 1, "kind": "child"}])")));
  for (const char* ends : {"{}", "7", "[7]", "[{}]", R"([{"pid": 0, "kind": "pipe"}])", R"([{"pid": 1}])",
                           R"([{"pid": 1, "kind": "hand"}])", R"([{"pid": 1, "kind": "pipe", "command": 7}])"}) {
    INFO(ends);
    CHECK(refused(Json::parse(ends)));
  }
  CHECK(refused(Json(std::vector<Json>(9, Json::parse(R"({"pid": 1, "kind": "pipe"})")))));
}

TEST_CASE("other ends in words") {
  const Pid other = job_with(blocked("read", {})).job.ranks[1].pid;
  CHECK(words(blocked("read", {})) == "blocked in read(fd 5 -> /x)");
  CHECK(words(blocked("read", {{other, EndKind::kPipe, ""}})) ==
        "blocked in read(fd 5 -> /x) from pid " + std::to_string(other) + " (rank 1)");
  CHECK(words(blocked("write", {{7, EndKind::kPipe, "tee log"}})) == "blocked in write(fd 5 -> /x) to pid 7 (tee log)");
  CHECK(words(blocked("read", {{7, EndKind::kPipe, ""}}, true)) ==
        "blocked in read(fd 5 -> /x) from pid 7 or its own process");
  CHECK(words(blocked("poll", {{7, EndKind::kSocket, "a"}, {8, EndKind::kSocket, "b"}, {9, EndKind::kSocket, "c"}})) ==
        "blocked in poll(fd 5 -> /x), the other end: pid 7 (a) or pid 8 (b) or pid 9 (c)");
  CHECK(
      words(blocked(
          "flock",
          {{7, EndKind::kLock, "a"}, {8, EndKind::kLock, "b"}, {9, EndKind::kLock, "c"}, {10, EndKind::kLock, "d"}})) ==
      "blocked in flock(fd 5 -> /x), held by pid 7 (a) and pid 8 (b) and 2 more");
  SyscallInfo child{"wait4", 61};
  child.others = {{7, EndKind::kChild, "sh -c make"}};
  CHECK(words(child) == "blocked in wait4 for pid 7 (sh -c make)");
  SyscallInfo tries{"clock_nanosleep", 230};
  CHECK(words(tries) == "sleeping");
  tries.others = {{other, EndKind::kDatabase, ""}};
  CHECK(words(tries) == "blocked in clock_nanosleep for a lock of an SQLite database, held by pid " +
                            std::to_string(other) + " (rank 1)");
  tries.database = "/data/trials.db";
  CHECK(words(tries) == "blocked in clock_nanosleep for a lock of the database trials.db, held by pid " +
                            std::to_string(other) + " (rank 1)");
}

TEST_CASE("a process of two machines' reports is named by its number alone") {
  LiteralJob literal = job_with(blocked("read", {{500, EndKind::kPipe, ""}}));
  literal.job.ranks[0].pid = literal.job.ranks[1].pid = 500;
  literal.job.ranks[1].host = "node-b";
  CHECK(analyzers::describe_block(literal.job, literal.job.ranks[0].threads[0]) ==
        "blocked in read(fd 5 -> /x) from pid 500");
}
