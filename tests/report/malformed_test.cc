// One defect in each test; the whole error line is compared.
#include <catch2/catch.hpp>

#include "report/report.h"

using namespace rankstacks;
using namespace rankstacks::report;

namespace {

std::string error_of(const std::string& text) {
  const auto job = read_json_report(text, "snap.json");
  return job ? "it was read" : job.error().message();
}

std::string with_ranks(const std::string& ranks) {
  return R"({"schema": 1, "captured_at": "t", "ranks": )" + ranks + "}";
}
std::string with_rank(const std::string& more) {
  return with_ranks(R"([{"host": "h", "pid": 1, "source": "live", "status": "complete")" + more + "}]");
}
std::string with_thread(const std::string& thread) { return with_rank(R"(, "threads": [)" + thread + "]"); }
std::string with_frame(const std::string& frame) { return with_thread(R"({"tid": 1, "frames": [)" + frame + "]}"); }

}  // namespace

TEST_CASE("no JSON at all") {
  CHECK(error_of("") ==
        "snap.json: not a JSON report: line 1, column 1: syntax error while parsing value - unexpected end of input; "
        "expected '[', '{', or a literal");
  CHECK(error_of("\x7f"
                 "ELF") ==
        "snap.json: not a JSON report: line 1, column 1: syntax error while parsing value - invalid literal");
  CHECK(error_of("{\"schema\": 1,\n \"ranks\": [") ==
        "snap.json: not a JSON report: line 2, column 12: syntax error while parsing value - unexpected end of input; "
        "expected '[', '{', or a literal");
  CHECK(error_of("{} {}") ==
        "snap.json: not a JSON report: line 1, column 4: syntax error while parsing value - unexpected '{'; expected "
        "end of input");
  CHECK(error_of("{\"a\": \"\xff\"}") ==
        "snap.json: not a JSON report: line 1, column 8: syntax error while parsing value - invalid string: ill-formed "
        "UTF-8 byte");
  CHECK(error_of(R"({"a": 1e999})") == "snap.json: not a JSON report: found a number out of range");
}

TEST_CASE("nested too deeply") {
  CHECK(error_of(std::string(1'000'000, '[')) == "snap.json: not a JSON report: nested deeper than 32 levels");
  std::string objects;
  for (int i = 0; i < 100'000; ++i) objects += "{\"a\":";
  CHECK(error_of(objects) == "snap.json: not a JSON report: nested deeper than 32 levels");
}

TEST_CASE("the document") {
  CHECK(error_of("[]") == "snap.json: expected an object, found an array");
  CHECK(error_of("3") == "snap.json: expected an object, found a number");
  CHECK(error_of("{}") == "snap.json: schema: missing");
  CHECK(error_of(R"({"schema": "1"})") == "snap.json: schema: expected a number, found a string");
  CHECK(error_of(R"({"schema": 1.5})") == "snap.json: schema: expected a whole number, found a number");
  CHECK(error_of(R"({"schema": 2})") ==
        "snap.json: schema: version 2 of the report format; this program reads version 1");
  CHECK(error_of(R"({"schema": 1})") == "snap.json: captured_at: missing");
  CHECK(error_of(R"({"schema": 1, "captured_at": "t"})") == "snap.json: ranks: missing");
  CHECK(error_of(with_ranks("{}")) == "snap.json: ranks: expected an array, found an object");
  CHECK(error_of(with_ranks("[null]")) == "snap.json: ranks[0]: expected an object, found null");
}

TEST_CASE("ranks") {
  CHECK(error_of(with_ranks("[{}]")) == "snap.json: ranks[0].host: missing");
  CHECK(error_of(with_rank("")) == "snap.json: ranks[0].threads: missing");
  CHECK(error_of(with_rank(R"(, "rank": -1)")) == "snap.json: ranks[0].rank: a number from 0 to 2147483647 expected");
  CHECK(error_of(with_rank(R"(, "rank": 99999999999)")) ==
        "snap.json: ranks[0].rank: a number from 0 to 2147483647 expected");
  CHECK(error_of(with_rank(R"(, "rank": 18446744073709551615)")) ==
        "snap.json: ranks[0].rank: a number from 0 to 2147483647 expected");
  CHECK(error_of(with_rank(R"(, "kind": "launcher")")) == "snap.json: ranks[0].kind: expected one of rank, child");
  CHECK(error_of(with_rank(R"(, "python": "3.11")")) ==
        "snap.json: ranks[0].python: expected an object, found a string");
  CHECK(error_of(with_rank(R"(, "command": ["a", 1])")) ==
        "snap.json: ranks[0].command[1]: expected a string, found a number");
  CHECK(error_of(with_rank(R"(, "problems": [{}])")) == "snap.json: ranks[0].problems[0].message: missing");
  CHECK(error_of(with_rank(R"(, "stopped_ms": "1")")) ==
        "snap.json: ranks[0].stopped_ms: expected a number, found a string");
  CHECK(error_of(with_rank(R"(, "signal": {"name": "SIGSEGV"})")) == "snap.json: ranks[0].signal.number: missing");
}

TEST_CASE("threads") {
  CHECK(error_of(with_thread("[]")) == "snap.json: ranks[0].threads[0]: expected an object, found an array");
  CHECK(error_of(with_thread(R"({"tid": "1"})")) ==
        "snap.json: ranks[0].threads[0].tid: expected a number, found a string");
  CHECK(error_of(with_thread(R"({"tid": 1})")) == "snap.json: ranks[0].threads[0].frames: missing");
  CHECK(error_of(with_thread(R"({"tid": 1, "state": "Sleeping"})")) ==
        "snap.json: ranks[0].threads[0].state: expected one letter");
  CHECK(error_of(with_thread(R"({"tid": 1, "gil": true})")) ==
        "snap.json: ranks[0].threads[0].gil: expected a string, found true or false");
  CHECK(error_of(with_thread(R"({"tid": 1, "stack_end": "?"})")) ==
        "snap.json: ranks[0].threads[0].stack_end: expected one of complete, no-unwind-info, memory-unavailable, "
        "repeated-frame, depth-limit, registers-unknown");
  CHECK(error_of(with_thread(R"({"tid": 1, "syscall": {}})")) ==
        "snap.json: ranks[0].threads[0].syscall.name: missing");
  const auto with_handled = [](const std::string& handled) {
    return error_of(with_thread(R"({"tid": 1, "frames": [{"kind": "python"}], "handles": )" + handled + "}"));
  };
  CHECK(with_handled(R"({"type": "E", "frame": 0})") == "it was read");
  CHECK(with_handled("[]") == "snap.json: ranks[0].threads[0].handles: expected an object, found an array");
  CHECK(with_handled("{}") == "snap.json: ranks[0].threads[0].handles.type: missing");
  CHECK(with_handled(R"({"type": "E", "frame": 1})") ==
        "snap.json: ranks[0].threads[0].handles.frame: a number from 0 to 0 expected");
  CHECK(with_handled(R"({"type": "E", "raised": {"kind": "gpu"}})") ==
        "snap.json: ranks[0].threads[0].handles.raised.kind: expected one of native, python");
  const auto with_lock = [](const std::string& lock) {
    return error_of(with_thread(R"({"tid": 1, "frames": [], "python_lock": )" + lock + "}"));
  };
  CHECK(with_lock(R"({"type": "RLock"})") == "it was read");
  CHECK(with_lock("7") == "snap.json: ranks[0].threads[0].python_lock: expected an object, found a number");
  CHECK(with_lock("{}") == "snap.json: ranks[0].threads[0].python_lock.type: missing");
  CHECK(with_lock(R"({"type": "mutex"})") ==
        "snap.json: ranks[0].threads[0].python_lock.type: expected one of Lock, RLock, module lock, condition");
  CHECK(with_lock(R"({"type": "Lock", "owner": "1"})") ==
        "snap.json: ranks[0].threads[0].python_lock.owner: expected a number, found a string");
  CHECK(error_of(with_thread(R"({"tid": 1, "frames": [], "omitted_frames": {"at": 1, "count": 1}})")) ==
        "snap.json: ranks[0].threads[0].omitted_frames.at: a number from 0 to 0 expected");
}

TEST_CASE("frames") {
  CHECK(error_of(with_frame("{}")) == "snap.json: ranks[0].threads[0].frames[0].kind: missing");
  CHECK(error_of(with_frame(R"({"kind": "gpu"})")) ==
        "snap.json: ranks[0].threads[0].frames[0].kind: expected one of native, python");
  CHECK(error_of(with_frame(R"({"kind": "native", "address": 5})")) ==
        "snap.json: ranks[0].threads[0].frames[0].address: expected a string, found a number");
  for (const char* address : {"12", "0x", "0xg", "0x10000000000000000", "-0x1", "0x-1", "0x1 "})
    CHECK(error_of(with_frame(R"({"kind": "native", "address": ")" + std::string(address) + "\"}")) ==
          "snap.json: ranks[0].threads[0].frames[0].address: expected a number in hex like \"0x7f12\"");
  CHECK(error_of(with_frame(R"({"kind": "python", "line": "20"})")) ==
        "snap.json: ranks[0].threads[0].frames[0].line: expected a number, found a string");
  CHECK(error_of(with_frame(R"({"kind": "native", "inlined": 1})")) ==
        "snap.json: ranks[0].threads[0].frames[0].inlined: expected true or false, found a number");
}

TEST_CASE("NCCL's counts") {
  const auto with_nccl = [](const std::string& nccl) {
    return error_of(R"({"schema": 1, "captured_at": "t", "ranks": [], "nccl": )" + nccl + "}");
  };
  const auto with_communicator = [&](const std::string& communicator) {
    return with_nccl(R"({"communicators": [)" + communicator + "]}");
  };
  const auto with_member = [&](const std::string& member) {
    return with_communicator(R"({"hash": "0x1", "members": [{"rank": 0)" + member + "}]}");
  };
  CHECK(with_nccl("null") == "it was read");
  CHECK(with_nccl("[]") == "snap.json: nccl: expected an object, found an array");
  CHECK(with_nccl("{}") == "snap.json: nccl.communicators: missing");
  CHECK(with_nccl(R"({"answers": 0, "communicators": []})") ==
        "snap.json: nccl.answers: a number from 1 to 2147483647 expected");
  CHECK(with_communicator("3") == "snap.json: nccl.communicators[0]: expected an object, found a number");
  CHECK(with_communicator("{}") == "snap.json: nccl.communicators[0].hash: missing");
  CHECK(with_communicator(R"({"hash": "0x1"})") == "snap.json: nccl.communicators[0].members: missing");
  CHECK(with_communicator(R"({"hash": "0x1", "size": -1})") ==
        "snap.json: nccl.communicators[0].size: a number from 0 to 2147483647 expected");
  CHECK(with_communicator(R"({"hash": "0x1", "members": [], "missing": [{}]})") ==
        "snap.json: nccl.communicators[0].missing[0].rank: missing");
  CHECK(with_member("") == "it was read");
  CHECK(with_member(R"(, "pid": "7")") ==
        "snap.json: nccl.communicators[0].members[0].pid: expected a number, found a string");
  CHECK(with_member(R"(, "process": {"host": "a"})") ==
        "snap.json: nccl.communicators[0].members[0].process.pid: missing");
  CHECK(with_member(R"(, "launched": [1])") ==
        "snap.json: nccl.communicators[0].members[0].launched: expected an object, found an array");
  CHECK(with_member(R"(, "launched": {"AllReduce": 1.5})") ==
        "snap.json: nccl.communicators[0].members[0].launched.AllReduce: expected a whole number, found a number");
  CHECK(with_member(R"(, "counts_move": 1)") ==
        "snap.json: nccl.communicators[0].members[0].counts_move: expected true or false, found a number");
}
