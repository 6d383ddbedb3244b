#include <algorithm>
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "report/json_text.h"
#include "report/report.h"
#include "support/literal_job.h"

using namespace rankstacks;
using namespace rankstacks::report;
using namespace rankstacks::testing;
using Json = nlohmann::json;

namespace {

// Sets every field of the model to a value that differs from the default.
LiteralJob everything() {
  LiteralJob literal;
  literal.job.elapsed_ms = 210.5;
  RankSnapshot& rank = literal.rank(3, 8, in_getitem());
  rank.captured_offset_ms = 0.4;
  rank.pid_space = PidSpace{"0d5b8f8e-2f6c-4f0e-9d3c-d5a5a7b1c001", 4026531836};
  rank.own_pid = NamespacedPid{4026532567, 7};
  rank.start_ticks = 81'237;
  rank.oom_kills = 2;
  rank.faulthandler = Faulthandler{{"SIGBUS", "SIGABRT"}, {"SIGSEGV"}, 3};
  literal.job.kernel_log = {
      {"node-a", 4713, "python3", KernelKill::Cause::kFault, "2026-01-31T11:59:58.000Z", "python3[4713]: segfault"},
      {"node-a", 4714, "python3", KernelKill::Cause::kOutOfMemory, "2026-01-31T11:59:59.000Z", "Killed"}};
  rank.executable = "/usr/bin/python3.11";
  rank.command = {"python3", "train.py"};
  rank.coordinates = Coordinates{"Megatron, from the command line", {{"pp", 1}, {"dp", 0}, {"tp", 1}}};
  rank.method = ReadMethod::kPartlyStopped;
  rank.stopped_ms = 1.84;
  rank.threads_stopped = 2;
  rank.status = Status::kPartial;
  rank.problems = {{"tid 7: vanished", "run it again", ProblemCode::kEnded}, {"no hint", {}}};
  rank.flight_record = FlightRecord{"/tmp/trace_3",
                                    "2.10",
                                    250.5,
                                    false,
                                    12'500.0,
                                    80.25,
                                    {{"0",
                                      "default_pg",
                                      "nccl",
                                      {0, 3},
                                      4,
                                      {},
                                      3,
                                      {{4,
                                        false,
                                        "all_reduce",
                                        RecordedState::kScheduled,
                                        {{2, 8}},
                                        {{2, 8}},
                                        {"Float"},
                                        {"Float"},
                                        {{"step", "train.py", 17}}},
                                       {1, true, "send 0->1", RecordedState::kCompleted, {}, {}, {}, {}, {}}},
                                      7}},
                                    {0, 0}};
  ThreadSnapshot& main = rank.threads[0];
  main.cpu_ms = 12.5;
  main.gil = Gil::kHolds;
  main.syscall = SyscallInfo{"read", 0, 5, "pipe:[123]"};
  main.kernel_place = KernelPlace{"pipe_read", {"pipe_read+0x1", "vfs_read+0x2"}};
  main.stack_end = StackEnd::kDepthLimit;
  Frame raised = py("step", "/home/u/model.py", 9);
  raised.qualname = "Model.step";
  main.handles = HandledException{"RuntimeError", "loss is \"NaN\"\n", 1,
                                  literal.job.frames.intern(py("__getitem__", "/home/u/data.py", 8)),
                                  literal.job.frames.intern(raised)};
  main.handles->traceback = {*main.handles->handler, *main.handles->raised};
  main.handles->traceback_omitted = OmittedFrames{1, 40};
  main.handles->chain = {{ExceptionLink::kCause, "KeyError", "no \"shard\"", main.handles->handler},
                         {ExceptionLink::kContext, "OSError", {}}};
  main.handles->cause = ExceptionCause::kPeer;
  main.raises = HandledException{"ValueError", "empty", {}, {}, {}};
  main.omitted = OmittedFrames{2, 19000};
  Frame inlined = nat("helper");
  inlined.inlined = true;
  inlined.file = "/src/helper.c";
  inlined.line = 7;
  Frame walked = unknown("", 0, 0x7f1234);
  walked.offset.reset();
  walked.origin = FrameOrigin::kFramePointer;
  Frame python = py("f", "/t.py", 1);
  python.qualname = "C.f";
  python.line.reset();
  python.origin = FrameOrigin::kSeparate;
  literal.thread(rank, 104, "x", {inlined, walked, python, unknown("/x/a.so", 0x89e50, 0xffffffff81000000)}).gil =
      Gil::kWaits;
  rank.threads.back().variables = {{2, {{"src", 3}}, ProcessGroup{"1", {0, 2}, "mesh_tp"}, 2},
                                   {2, {}, ProcessGroup{"2", {}}, 0}};

  RankSnapshot& core = literal.process();
  core.host = "unknown";
  core.source = Source::kCore;
  core.path = "/cores/core.5";
  core.signal = SignalInfo{11, "SIGSEGV", 101, 1, 0xdeadbeef};
  core.signal->place = FaultPlace{FaultRegion::kUnmapped, true, FaultMapping{"[stack]", "rw-", 1},
                                  FaultMapping{"/x/a.so", "r-x", 0x10}, FaultMapping{"", "---", 0x20}};
  core.signal->sender = 4711;
  core.signal->sender_uid = 4294967294;
  core.signal->instruction =
      FaultInstruction{"mov (%rdi,%rax,8),%rdx", "48 8b 14 c7", {{"rdi", 0xdeadbeef}, {"rax", 0}}};
  core.abort_message = "free(): invalid \"pointer\"\n\u00fc";
  literal.thread(core, 101, "app", {nat("crash")}).exception =
      CxxException{"std::runtime_error", "no such \"file\"\n\u00fc"};
  literal.thread(core, 102, "app", {nat("crash")}).exception = CxxException{"std::bad_alloc", {}};
  core.threads.back().handles = HandledException{"", {}, {}, {}, {}};
  core.threads.back().python_lock = PythonLock{PythonLockKind::kModule, "torch.\x1b_C", 101};
  core.threads.front().python_lock = PythonLock{PythonLockKind::kCondition, {}, {}};
  literal.thread(core, 103, "app", {nat("crash")}).exception =
      CxxException{"c10::Error", "CUDA error: unknown error", ExceptionCause::kOwnGpu};
  ThreadSnapshot& cleans_up = literal.thread(core, 104, "app", {nat("inner"), nat("outer")});
  cleans_up.handles_cxx = HandledCxxException{{"c10::Error", "timed out", ExceptionCause::kTimeout}, 1};
  cleans_up.raises_cxx = HandledCxxException{{"int", {}}, {}};

  core.modules = {{"NCCL", "/v/libnccl.so.2", "aa11", "2.28.9", VersionFrom::kText, "13.0"},
                  {"gloo", "/v/lib\x1b.so", "", "", VersionFrom::kUnknown, ""}};
  core.missing_files = {{"/v/lib\x1b.so", "ab12", "torch \"2.11.0\"", PackageFrom::kWheel, 7},
                        {"/usr/lib/libc.so.6", "", "libc6:amd64", PackageFrom::kDpkg, 1},
                        {"/c/lib.so", "", "libstdcxx-14.2.0-h8f9b012_2", PackageFrom::kConda, 0},
                        {"/none.so", "", "", PackageFrom::kUnknown, 0}};
  ProcessEnvironment& environment = core.environment.emplace();
  environment.kernel = "6.1.76";
  environment.distribution = "Debian \"12\"";
  environment.container = "docker";
  environment.gpu_driver = "580.95.05";
  environment.variables = {{"NCCL_DEBUG", "INFO\n"}, {"PYTHONPATH", ""}};
  environment.variables_known = true;
  environment.limits = {{"core-size", 0, {}}, {"open-files", 1024, 1ull << 63}};
  environment.cgroup = CgroupLimits{std::uint64_t{1} << 34, 1.5, {}};
  environment.cpus = "0-15";
  environment.cpu_nodes = "0";
  environment.memory_nodes = "0-1";
  environment.clock = ClockState{true, -12, 1500};

  RankSnapshot& child = literal.child(100, {});
  child.environment.emplace();
  child.status = Status::kFailed;
  child.threads.clear();

  NcclStatus& nccl = literal.job.nccl.emplace();
  nccl.version = "2.28.9";
  nccl.answers = 2;
  NcclCommunicator& communicator = nccl.communicators.emplace_back();
  communicator.hash = "0xafc";
  communicator.secondary_hash = "0x1:0x2";
  communicator.size = 2;
  NcclMember& member = communicator.members.emplace_back();
  member.rank = 1;
  member.host = "10.0.0.1";
  member.pid = 7;
  member.process = NcclMember::Process{"node-a", 100, literal.job.ranks[0].pid_space};
  member.aborted = member.finalized = member.counts_move = true;
  member.async_error = 6;
  member.launched = {{"AllGather", 0}, {"AllReduce", 4'000'000'000'000}};
  NcclMember& missing = communicator.missing.emplace_back();
  missing.host = "unknown";
  missing.unresponsive = missing.dead = true;
  return literal;
}

Json json_of(const JobSnapshot& job) { return Json::parse(json_report(job, analyzers::analyze(job))); }

}  // namespace

TEST_CASE("a JSON string holds nothing raw that acts on a terminal, and the same value") {
  // C0, DEL and C1; direction marks, embeddings, overrides and isolates; line and paragraph separators.
  std::vector<char32_t> points{0x61c, 0x200e, 0x200f, 0x2028, 0x2029};
  for (char32_t c = 0; c < 0x20; ++c) points.push_back(c);
  for (char32_t c = 0x7f; c < 0xa0; ++c) points.push_back(c);
  for (char32_t c = 0x202a; c <= 0x202e; ++c) points.push_back(c);
  for (char32_t c = 0x2066; c <= 0x2069; ++c) points.push_back(c);
  for (const char32_t c : points) {
    std::string text = "a ";
    if (c < 0x80) text += static_cast<char>(c);
    else if (c < 0x800) text += {static_cast<char>(0xc0 | (c >> 6)), static_cast<char>(0x80 | (c & 0x3f))};
    else
      text += {static_cast<char>(0xe0 | (c >> 12)), static_cast<char>(0x80 | ((c >> 6) & 0x3f)),
               static_cast<char>(0x80 | (c & 0x3f))};
    const std::string json = json_quoted(text);
    CAPTURE(static_cast<unsigned>(c), json);
    CHECK(std::all_of(json.begin(), json.end(), [](char byte) { return byte >= 0x20 && byte < 0x7f; }));
    CHECK(Json::parse(json).get<std::string>() == text);
  }
  CHECK(json_quoted("漢字 \xc2\xa0é") == "\"漢字 \xc2\xa0é\"");
  CHECK(json_quoted("\xc2\x9b \xff") == "\"\\u009b \xef\xbf\xbd\"");  // no UTF-8: U+FFFD, as ever
}

TEST_CASE("the documented fields (docs/json.md)") {
  const LiteralJob literal = everything();
  const std::string text = json_report(literal.job, analyzers::analyze(literal.job));
  CHECK(text.back() == '\n');
  const Json json = Json::parse(text);
  CHECK(json["schema"] == 1);
  CHECK(json["tool"] == Json{{"name", "rankstacks"}, {"version", "0.1.0"}});
  CHECK(json["captured_at"] == "2026-01-31T12:00:00.123Z");
  CHECK(json["elapsed_ms"] == 210.5);

  Json rank = json["ranks"][0];
  const Json threads = rank["threads"];
  rank.erase("threads");
  CHECK(
      rank ==
      Json::parse(
          R"x({"rank": 3, "world_size": 8, "local_rank": 3, "coordinates": {"pp": 1, "dp": 0, "tp": 1}, "coordinates_from": "Megatron, from the command line", "kind": "rank", "parent": null, "host": "node-a", "pid": 100,
    "identity": {"boot_id": "0d5b8f8e-2f6c-4f0e-9d3c-d5a5a7b1c001", "pid_namespace": 4026531836, "start_ticks": 81237, "own_pid_namespace": 4026532567, "own_pid": 7}, "source": "live",
    "captured_offset_ms": 0.4, "path": null, "executable": "/usr/bin/python3.11", "command": ["python3", "train.py"], "python": {"version": "3.11.2"}, "status": "partial",
    "problems": [{"code": "ended", "message": "tid 7: vanished", "hint": "run it again"}, {"code": "other", "message": "no hint", "hint": null}], "method": "partly-stopped", "stopped_ms": 1.84, "threads_stopped": 2, "signal": null, "faulthandler": {"signals": ["SIGBUS", "SIGABRT"], "called": ["SIGSEGV"], "descriptor": 3}, "oom_kills": 2,
    "activity": {"kind": "data-loading", "summary": "is in its data pipeline (__getitem__ at data.py:9, blocked in read(fd 5 -> pipe:[123]))", "operation": null, "group": null, "peer": null,
    "moves": null, "tid": 100, "frame": 2},
    "flight_recorder": {"source": "dump", "path": "/tmp/trace_3", "version": "2.10", "age_ms": 250.5, "last_call_ms": 12500.0, "longest_gap_ms": 80.25, "groups": [{"name": "0", "description": "default_pg", "library": "nccl", "ranks": [0, 3],
      "last_enqueued": 4, "last_started": null, "last_completed": 3, "left_out": 7, "operations": [
      {"sequence": 4, "message": false, "name": "all_reduce", "state": "scheduled", "input_sizes": [[2, 8]], "input_types": ["Float"], "output_sizes": [[2, 8]], "output_types": ["Float"],
       "frames": [{"function": "step", "file": "train.py", "line": 17}]},
      {"sequence": 1, "message": true, "name": "send 0->1", "state": "completed", "input_sizes": [], "input_types": [], "output_sizes": [], "output_types": [], "frames": []}]}], "recent_calls": [0, 0]}})x"));
  Json main = threads[0];
  CHECK(main["frames"].size() == 7);
  main.erase("frames");
  CHECK(
      main ==
      Json::parse(
          R"({"tid": 100, "name": "python3", "state": "S", "cpu_ms": 12.5, "role": "main", "cluster": 0, "gil": "holds",
    "syscall": {"name": "read", "number": 0, "fd": 5, "fd_target": "pipe:[123]"}, "wchan": "pipe_read", "kernel_stack": ["pipe_read+0x1", "vfs_read+0x2"],
    "handles": {"type": "RuntimeError", "message": "loss is \"NaN\"\n", "frame": 1,
      "handler": {"kind": "python", "function": "__getitem__", "qualname": null, "file": "/home/u/data.py", "line": 8},
      "raised": {"kind": "python", "function": "step", "qualname": "Model.step", "file": "/home/u/model.py", "line": 9},
      "traceback": [{"kind": "python", "function": "__getitem__", "qualname": null, "file": "/home/u/data.py", "line": 8},
        {"kind": "python", "function": "step", "qualname": "Model.step", "file": "/home/u/model.py", "line": 9}], "traceback_omitted": {"at": 1, "count": 40},
      "chain": [{"link": "cause", "type": "KeyError", "message": "no \"shard\"",
        "raised": {"kind": "python", "function": "__getitem__", "qualname": null, "file": "/home/u/data.py", "line": 8}}, {"link": "context", "type": "OSError", "message": null, "raised": null}], "cause": "peer"},
    "raises": {"type": "ValueError", "message": "empty", "frame": null, "handler": null, "raised": null},
    "stack_end": "depth-limit", "omitted_frames": {"at": 2, "count": 19000}})"));
  CHECK(json["ranks"][1]["threads"][1]["handles"] ==
        Json::parse(R"({"type": "", "message": null, "frame": null, "handler": null, "raised": null})"));
  CHECK_FALSE(threads[1].contains("handles"));
  CHECK(json["ranks"][1]["threads"][1]["python_lock"] ==
        Json::parse(R"({"type": "module lock", "name": "torch.\u001b_C", "owner": 101})"));
  CHECK(json["ranks"][1]["threads"][0]["python_lock"] == Json::parse(R"({"type": "condition"})"));
  CHECK_FALSE(threads[1].contains("python_lock"));
  CHECK(threads[1]["variables"] == Json::parse(R"([
    {"frame": 2, "numbers": {"src": 3}, "in_loop": true, "loops": 2, "group": {"name": "1", "description": "mesh_tp", "ranks": [0, 2]}},
    {"frame": 2, "numbers": {}, "group": {"name": "2", "ranks": []}}])"));
  CHECK(threads[1]["frames"] == Json::parse(R"([
    {"kind": "native", "function": "helper", "module": "/opt/torch/lib/libtorch_cpu.so", "file": "/src/helper.c", "line": 7, "address": "0x0", "offset": null, "inlined": true},
    {"kind": "native", "function": null, "module": null, "file": null, "line": null, "address": "0x7f1234", "offset": null, "inlined": false, "origin": "frame-pointer"},
    {"kind": "python", "function": "f", "qualname": "C.f", "file": "/t.py", "line": null, "origin": "separate"},
    {"kind": "native", "function": null, "module": "/x/a.so", "file": null, "line": null, "address": "0xffffffff81000000", "offset": "0x89e50", "inlined": false}])"));
  CHECK(json["ranks"][1]["signal"] ==
        Json::parse(R"({"number": 11, "name": "SIGSEGV", "tid": 101, "code": 1, "fault_address": "0xdeadbeef",
          "instruction": {"text": "mov (%rdi,%rax,8),%rdx", "bytes": "48 8b 14 c7",
            "registers": [{"name": "rdi", "value": "0xdeadbeef"}, {"name": "rax", "value": "0x0"}]},
          "sender": 4711, "sender_uid": 4294967294, "place": {"region": "unmapped", "executed": true,
            "mapping": {"name": "[stack]", "permissions": "rw-", "distance": "0x1"},
            "below": {"name": "/x/a.so", "permissions": "r-x", "distance": "0x10"},
            "above": {"name": null, "permissions": "---", "distance": "0x20"}}})"));
  CHECK(json["ranks"][1]["abort_message"] == "free(): invalid \"pointer\"\n\u00fc");
  CHECK(json["ranks"][1]["modules"] == Json::parse(R"([
    {"name": "NCCL", "path": "/v/libnccl.so.2", "build_id": "aa11", "version": "2.28.9", "version_from": "text", "cuda": "13.0"},
    {"name": "gloo", "path": "/v/lib\u001b.so", "build_id": null, "version": null}])"));
  CHECK(json["ranks"][1]["environment"] == Json::parse(R"({"kernel": "6.1.76", "distribution": "Debian \"12\"",
    "container": "docker", "gpu_driver": "580.95.05", "variables": {"NCCL_DEBUG": "INFO\n", "PYTHONPATH": ""},
    "limits": {"core-size": {"soft": 0, "hard": null}, "open-files": {"soft": 1024, "hard": 9223372036854775808}},
    "cgroup": {"memory_bytes": 17179869184, "cpus": 1.5, "processes": null}, "cpus": "0-15", "cpu_nodes": "0",
    "memory_nodes": "0-1", "clock": {"synchronized": true, "offset_us": -12, "max_error_us": 1500}})"));
  CHECK(json["ranks"][2]["environment"] == Json::parse(R"({"variables": null})"));
  CHECK_FALSE(json["ranks"][0].contains("modules"));
  CHECK(json["ranks"][1]["missing_files"] == Json::parse(R"([
    {"path": "/v/lib\u001b.so", "build_id": "ab12", "package": "torch \"2.11.0\"", "package_from": "wheel", "frames": 7},
    {"path": "/usr/lib/libc.so.6", "build_id": null, "package": "libc6:amd64", "package_from": "dpkg", "frames": 1},
    {"path": "/c/lib.so", "build_id": null, "package": "libstdcxx-14.2.0-h8f9b012_2", "package_from": "conda", "frames": 0},
    {"path": "/none.so", "build_id": null, "package": null, "frames": 0}])"));
  CHECK_FALSE(json["ranks"][0].contains("missing_files"));
  CHECK(json["differences"] == Json::array());
  CHECK(json["ranks"][1]["rank"] == nullptr);
  CHECK(json["ranks"][1]["coordinates"] == nullptr);
  CHECK(json["ranks"][1]["threads"][0]["exception"] ==
        Json::parse(R"({"type": "std::runtime_error", "what": "no such \"file\"\n\u00fc"})"));
  CHECK(json["ranks"][1]["threads"][1]["exception"] == Json::parse(R"({"type": "std::bad_alloc", "what": null})"));
  CHECK_FALSE(threads[0].contains("exception"));
  CHECK(json["verdict"].contains("reference"));
  CHECK(json["ranks"][2]["kind"] == "child");
  CHECK(json["ranks"][2]["parent"] == 100);
  CHECK(
      json["nccl"] ==
      Json::parse(
          R"({"version": "2.28.9", "answers": 2, "communicators": [{"hash": "0xafc", "secondary_hash": "0x1:0x2", "size": 2,
    "members": [{"rank": 1, "host": "10.0.0.1", "pid": 7, "process": {"host": "node-a", "pid": 100,
      "identity": {"boot_id": "0d5b8f8e-2f6c-4f0e-9d3c-d5a5a7b1c001", "pid_namespace": 4026531836}}, "aborted": true, "finalized": true, "async_error": 6,
      "launched": {"AllGather": 0, "AllReduce": 4000000000000}, "counts_move": true}],
    "missing": [{"rank": 0, "host": "unknown", "pid": 0, "process": null, "unresponsive": true, "dead": true}]}]})"));
  CHECK_FALSE(json_of(LiteralJob().job).contains("nccl"));
}

TEST_CASE("clusters and suspects name ranks by number, others by host and pid") {
  LiteralJob literal;
  for (int r = 0; r < 4; ++r) literal.rank(r, 4, r == 2 ? in_getitem() : waits_in_backward());
  literal.job.ranks[3].rank.reset();
  const Json json = json_of(literal.job);
  CHECK(json["clusters"][0]["ranks"] == Json{2});
  CHECK(json["clusters"][0]["odd"] == true);
  CHECK(json["clusters"][0]["frames"] == json["ranks"][2]["threads"][0]["frames"]);
  CHECK(json["clusters"][1]["ranks"] == Json::parse(R"([0, 1, "node-a:103"])"));
  CHECK(json["clusters"][1]["threads"] == 3);
  CHECK(json["verdict"]["status"] == "culprit");
  const Json suspect = json["verdict"]["suspects"][0];
  CHECK(suspect["rank"] == 2);
  CHECK(suspect["reason"] == "data-loading");
  CHECK(suspect["evidence"] == Json::parse(R"([{"rank": 2, "tid": 102, "frame": 1}])"));
}

TEST_CASE("differences: values with the ranks that have them, the fewest first") {
  LiteralJob literal;
  for (int r = 0; r < 3; ++r) {
    RankSnapshot& rank = literal.rank(r, 3, waits_in_all_reduce());
    rank.modules = {{"NCCL", "/v/libnccl.so.2", "", r == 1 ? "2.27.3" : "2.28.9", VersionFrom::kText, ""}};
    rank.environment.emplace().variables_known = true;
    if (r == 2) rank.environment->variables = {{"NCCL_ALGO", "Ring"}};
  }
  CHECK(json_of(literal.job)["differences"] == Json::parse(R"([
    {"kind": "version", "name": "NCCL", "summary": "NCCL 2.27.3 on rank 1, 2.28.9 on the 2 others",
     "values": [{"value": "2.27.3", "ranks": [1]}, {"value": "2.28.9", "ranks": [0, 2]}]},
    {"kind": "variable", "name": "NCCL_ALGO", "summary": "NCCL_ALGO=Ring on rank 2, not set on the 2 others",
     "values": [{"value": "Ring", "ranks": [2]}, {"value": null, "ranks": [0, 1]}]}])"));
}

TEST_CASE("a missing rank is listed under its number") {
  LiteralJob literal;
  for (const int r : {0, 1, 3}) literal.rank(r, 4, waits_in_all_reduce());
  const Json suspect = json_of(literal.job)["verdict"]["suspects"][0];
  CHECK(suspect["rank"] == 2);
  CHECK(suspect["evidence"] == Json::array());
}

TEST_CASE("any bytes make valid JSON") {
  LiteralJob literal;
  RankSnapshot& rank = literal.rank(0, 1, {py("f\"\\\n\x1b\xff", "/a\x00b.py", 1)});
  rank.threads[0].name = "\xff\xfe\x1b[31m\xc3\xa9";
  rank.command = {std::string("\0", 1), "\xed\xa0\x80"};
  rank.stopped_ms = std::numeric_limits<double>::infinity();
  rank.captured_offset_ms = std::numeric_limits<double>::quiet_NaN();
  const Json json = json_of(literal.job);
  CHECK(json["ranks"][0]["threads"][0]["name"] == "\xef\xbf\xbd\xef\xbf\xbd\x1b[31mé");
  CHECK(json["ranks"][0]["threads"][0]["frames"][0]["function"] == "f\"\\\n\x1b\xef\xbf\xbd");
  CHECK(json["ranks"][0]["command"][0] == std::string("\0", 1));
  CHECK(json["ranks"][0]["stopped_ms"] == nullptr);
  CHECK(json["ranks"][0]["captured_offset_ms"] == nullptr);
}

TEST_CASE("what was written is read back whole") {
  const LiteralJob literal = everything();
  const std::string text = json_report(literal.job, analyzers::analyze(literal.job));
  const auto again = read_json_report(text, "snap.json");
  REQUIRE(again);
  CHECK(again->nccl == literal.job.nccl);
  const auto& handled = again->ranks[0].threads[0].handles;
  REQUIRE((handled && handled->raised));
  CHECK(again->frames[*handled->raised].qualname == "Model.step");
  CHECK(again->ranks[1].threads[1].python_lock == literal.job.ranks[1].threads[1].python_lock);
  CHECK(json_report(*again, analyzers::analyze(*again)) == text);
  TextOptions options;
  for (const bool all : {false, true}) {
    options.all_threads = all;
    CHECK(text_report(*again, analyzers::analyze(*again), options) ==
          text_report(literal.job, analyzers::analyze(literal.job), options));
  }
}

TEST_CASE("fields of other versions are passed over, missing optional ones default") {
  const auto job = read_json_report(
      R"({"schema": 1, "captured_at": "x", "new": {"a": [1, {}]}, "ranks": [{"host": "h", "pid": 1, "source": "live", "status": "complete", "gpu": [],
    "threads": [{"tid": 1, "frames": [{"kind": "native", "colour": "red"}]}]}]})",
      "snap.json");
  REQUIRE(job);
  const RankSnapshot& rank = job->ranks.at(0);
  CHECK_FALSE(rank.rank);
  CHECK(rank.kind == RankKind::kRank);
  CHECK(rank.threads.at(0).stack_end == StackEnd::kComplete);
  CHECK(job->frames[rank.threads[0].frames.at(0)] == Frame{});
}

TEST_CASE("merging: one job, one clock, duplicates said") {
  LiteralJob a, b;
  a.rank(0, 3, waits_in_all_reduce()).captured_offset_ms = 1;
  b.job.captured_at = "2026-01-31T12:00:00.023Z";
  b.rank(1, 3, waits_in_all_reduce()).captured_offset_ms = 2;
  b.rank(2, 3, in_getitem()).captured_offset_ms = 3;
  b.job.ranks[0].pid = b.job.ranks[0].threads[0].tid = 201;  // else the same process as a's
  JobSnapshot again = b.job;
  const JobSnapshot merged = merge_snapshots({a.job, b.job, again});
  CHECK(merged.captured_at == "2026-01-31T12:00:00.023Z");
  REQUIRE(merged.ranks.size() == 3);
  CHECK(*merged.ranks[0].captured_offset_ms == Approx(101));
  CHECK(*merged.ranks[1].captured_offset_ms == Approx(2));
  CHECK(merged.ranks[0].problems.empty());
  REQUIRE(merged.ranks[1].problems.size() == 1);
  CHECK(merged.ranks[1].problems[0].message ==
        "node-a:201 is in more than one of the merged reports; the first is shown");
  CHECK(merged.frames[merged.ranks[2].threads[0].frames[1]].function == "__getitem__");
  CHECK(analyzers::analyze(merged).verdict.suspects.at(0).rank == 2);
}

TEST_CASE("merging: what ranks have alike is kept once, before and after frames lose their addresses") {
  const auto node = [](std::size_t number) {
    LiteralJob literal;
    RankSnapshot& rank = literal.rank(static_cast<int>(number), 1 << 16, in_getitem());
    rank.pid = rank.threads[0].tid = static_cast<Pid>(number) + 10;
    rank.threads[0].syscall = SyscallInfo{"read", 0, 5, number % 2 == 0 ? "pipe:[1]" : "pipe:[2]"};
    FrameVariables variables;
    variables.numbers = {{"step", static_cast<std::int64_t>(number % 3)}};
    rank.threads[0].variables = {variables};
    rank.modules = {{"NCCL", "/lib/libnccl.so.2", "aa11", "2.28.9"}};
    rank.environment = ProcessEnvironment();
    rank.environment->kernel = "6.1.0";
    return std::move(literal.job);
  };
  for (const std::size_t count : {std::size_t{8}, JobMerger::kMaxRanksWithAddresses + 8}) {
    JobMerger merger;
    for (std::size_t i = 0; i < count; ++i) merger.add(node(i));
    const JobSnapshot job = merger.take();
    REQUIRE(job.ranks.size() == count);
    const RankSnapshot &first = job.ranks[0], &last = job.ranks[count - 2 - (count % 2)];
    CHECK(first.modules.identity() == last.modules.identity());
    CHECK(first.environment.identity() == last.environment.identity());
    CHECK(first.threads[0].frames.identity() == last.threads[0].frames.identity());
    CHECK(first.threads[0].syscall.identity() == last.threads[0].syscall.identity());
    CHECK(first.threads[0].syscall.identity() != job.ranks[1].threads[0].syscall.identity());
    CHECK(first.threads[0].variables.identity() == job.ranks[3].threads[0].variables.identity());
    CHECK(first.threads[0].variables.identity() != job.ranks[1].threads[0].variables.identity());
    for (const std::size_t i : {std::size_t{1}, count - 1}) {
      const ThreadSnapshot &as_merged = job.ranks[i].threads[0], as_seen = node(i).ranks[0].threads[0];
      CHECK(as_merged.frames.size() == as_seen.frames.size());
      CHECK(as_merged.syscall == as_seen.syscall);
      CHECK(as_merged.variables == as_seen.variables);
    }
  }
}

TEST_CASE("merging: frames do not grow with the ranks of a very large job") {
  const auto node = [](std::size_t number) {
    LiteralJob literal;
    RankSnapshot& rank = literal.rank(static_cast<int>(number), 1 << 16, in_getitem());
    rank.pid = rank.threads[0].tid = static_cast<Pid>(number) + 10;
    Frame native;
    native.module = "/usr/lib/libc.so.6";
    native.offset = 0x1230;
    native.address = 0x7f0000001230 + (number << 12);
    Frame unplaced = native;
    unplaced.module.clear();
    unplaced.offset.reset();
    rank.threads[0].frames.push_back(literal.job.frames.intern(native));
    rank.threads[0].frames.push_back(literal.job.frames.intern(unplaced));
    return std::move(literal.job);
  };
  const auto merged_of = [&](std::size_t ranks) {
    JobMerger merger;
    for (std::size_t i = 0; i < ranks; ++i) merger.add(node(i));
    return merger.take();
  };
  const auto frames_of = [](const JobSnapshot& job, std::size_t rank) {
    std::vector<Frame> frames;
    for (const FrameId id : job.ranks[rank].threads[0].frames) frames.push_back(job.frames[id]);
    return frames;
  };
  const std::size_t most = JobMerger::kMaxRanksWithAddresses;
  const JobSnapshot large = merged_of(most), larger = merged_of(most + 1);
  const std::size_t in_common = frames_of(large, 0).size() - 2;
  CHECK(large.frames.size() == in_common + 2 * most);
  CHECK(larger.frames.size() == in_common + 1 + most + 1);
  for (const std::size_t rank : {std::size_t{0}, most - 1}) {
    std::vector<Frame> with = frames_of(large, rank), without = frames_of(larger, rank);
    REQUIRE(with.size() == without.size());
    CHECK(with.back() == without.back());
    CHECK(with[with.size() - 2].address == 0x7f0000001230 + (rank << 12));
    CHECK(without[without.size() - 2].address == 0);
    CHECK(without[without.size() - 2].offset == 0x1230);
  }
  JobSnapshot part = node(3);
  drop_addresses(part);
  CHECK(frames_of(part, 0) == frames_of(larger, 3));
  JobSnapshot one = larger;
  one.ranks.resize(1);
  const Json frames = Json::parse(json_report(one, analyzers::analyze(one)))["ranks"][0]["threads"][0]["frames"];
  CHECK(frames[frames.size() - 2]["address"] == "0x0");
  CHECK(frames[frames.size() - 2]["offset"] == "0x1230");
  CHECK(frames[frames.size() - 1]["address"] == "0x7f0000001230");
}

TEST_CASE("merging: exceptions that threads handle keep their places") {
  LiteralJob a, b;
  a.rank(0, 2, waits_in_all_reduce());
  RankSnapshot& rank = b.rank(1, 2, in_getitem());
  rank.pid = rank.threads[0].tid = 201;
  const FrameId handler = b.job.frames.intern(py("main", "/home/u/train.py", 14)),
                raised = b.job.frames.intern(py("parse", "/home/u/data.py", 3));
  rank.threads[0].handles = HandledException{"ValueError", {}, 5, handler, raised};
  rank.threads[0].handles->traceback = {handler, raised};
  rank.threads[0].handles->chain = {{ExceptionLink::kCause, "KeyError", {}, raised}};
  const JobSnapshot merged = merge_snapshots({a.job, b.job});
  const auto& handled = merged.ranks.at(1).threads[0].handles;
  REQUIRE((handled && handled->handler && handled->raised));
  CHECK(merged.frames[*handled->handler].function == "main");
  CHECK(merged.frames[*handled->raised].function == "parse");
  CHECK(handled->traceback == std::vector{*handled->handler, *handled->raised});
  CHECK(handled->chain.at(0).raised == handled->raised);
}

TEST_CASE("merged ranks are in their order, however the reports were named") {
  LiteralJob a, b;
  a.rank(0, 4, in_main(1));
  a.rank(3, 4, in_main(1));
  a.child(101, in_main(2));
  b.rank(1, 4, in_main(1));
  b.rank(2, 4, in_main(1));
  for (RankSnapshot& rank : b.job.ranks) rank.host = "node-b";
  b.child(100, in_main(2)).host = "node-b";  // node-b's pids are node-a's too
  const JobSnapshot one = merge_snapshots({a.job, b.job}), other = merge_snapshots({b.job, a.job});
  for (const JobSnapshot& merged : {one, other}) {
    std::vector<std::pair<std::string, Pid>> order;
    for (const RankSnapshot& rank : merged.ranks) order.emplace_back(rank.host, rank.pid);
    CHECK(order ==
          std::vector<std::pair<std::string, Pid>>{
              {"node-a", 100}, {"node-b", 100}, {"node-b", 102}, {"node-b", 101}, {"node-a", 101}, {"node-a", 102}});
  }
  const Json json = json_of(one);
  CHECK(json["clusters"][0]["ranks"].dump() == "[0,1,2,3]");
  CHECK(json["clusters"][1]["ranks"].dump() == R"(["node-a:102","node-b:102"])");
}

TEST_CASE("merging: each communicator once, from the fuller answer, and every machine's processes") {
  const auto member = [](int rank, const char* host, std::optional<NcclMember::Process> process) {
    NcclMember made;
    made.rank = rank;
    made.host = host;
    made.pid = 7;
    made.process = std::move(process);
    return made;
  };
  LiteralJob a, b, none;
  const NcclMember::Process on_a{"node-a", 100}, on_b{"node-b", 100};
  a.job.nccl = NcclStatus{
      "2.28.9",
      2,
      {{"0x1", "0x2", 2, {member(0, "10.0.0.1", on_a)}, {member(1, "10.0.0.2", {})}}, {"0x3", "", 1, {}, {}}}};
  b.job.nccl = NcclStatus{
      "2.28.9",
      1,
      {{"0x1", "0x2", 2, {member(0, "10.0.0.1", {}), member(1, "10.0.0.2", on_b)}, {}}, {"0x1", "0x4", 1, {}, {}}}};
  for (const JobSnapshot& merged : {merge_snapshots({a.job, none.job, b.job}), merge_snapshots({b.job, a.job})}) {
    REQUIRE(merged.nccl);
    CHECK(merged.nccl->answers == 1);
    REQUIRE(merged.nccl->communicators.size() == 3);
    const NcclCommunicator& both = merged.nccl->communicators[0];
    CHECK(both.members == std::vector<NcclMember>{member(0, "10.0.0.1", on_a), member(1, "10.0.0.2", on_b)});
    CHECK(both.missing.empty());
  }
  CHECK_FALSE(merge_snapshots({none.job, none.job}).nccl);
}

TEST_CASE("merging copes with clocks it cannot read and with nothing") {
  LiteralJob a, b;
  a.job.captured_at = "yesterday";
  a.rank(0, 2, {}).captured_offset_ms = 1;
  b.job.captured_at = "2026-02-30T99:00:00Z";
  b.rank(1, 2, {}).pid = 7;
  const JobSnapshot merged = merge_snapshots({a.job, b.job});
  CHECK(merged.captured_at == "yesterday");
  CHECK(*merged.ranks[0].captured_offset_ms == 1);
  CHECK(merge_snapshots({}).ranks.empty());
}
