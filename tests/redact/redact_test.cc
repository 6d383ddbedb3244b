#include "redact/redact.h"

#include <catch2/catch.hpp>
#include <set>

#include "analyzers/difference_words.h"
#include "report/folded.h"
#include "report/html_report.h"
#include "report/markdown_report.h"
#include "report/report.h"
#include "report/text_threads.h"
#include "support/literal_job.h"

using namespace rankstacks;
using namespace rankstacks::testing;

namespace {

// Each is planted in one place, and contains this word, so that a part that is left over is found as well.
struct Planter {
  std::vector<std::string> secrets;
  std::string operator()(std::string_view prefix, std::string_view rest = "9aZ8bY7cX6dW5eV4fU3gT2hS1") {
    std::string secret = std::string(prefix) + std::string(rest) + std::to_string(100 + secrets.size());
    secrets.push_back(secret);
    return secret;
  }
};

// Names of people, machines and data, none of which may be in a redacted report.
const std::vector<std::string> kPrivate = {"alice",     "bob",       "node-a7",    "node-b8", "acme",
                                           "10.20.30.", "fd12:3456", "patients",   "hunter2", "my words",
                                           "corp",      "x2k4q",     "7d9f8b6c5d", "29511",   "0b007ed5"};

struct Planted {
  LiteralJob made;
  Planter plant;
};

Planted planted_job() {
  Planted p;
  Planter& plant = p.plant;
  for (int r = 0; r < 4; ++r) {
    Stack stack = r == 2 ? in_getitem() : waits_in_backward();
    for (Frame& frame : stack)
      if (frame.file && frame.file->starts_with("/home/u/")) frame.file = "/home/alice/code/" + frame.file->substr(8);
    RankSnapshot& rank = p.made.rank(r, 4, stack);
    rank.host = r < 2 ? "node-a7.corp.internal" : "node-b8.corp.internal";
    rank.executable = "/home/alice/venv/bin/python3";
    rank.command = {
        "/home/alice/venv/bin/python3", "/home/alice/code/train.py", "--data", "/mnt/acme/patients", "--lr", "0.1"};
  }
  JobSnapshot& job = p.made.job;
  RankSnapshot& a = job.ranks[0];
  a.command.insert(a.command.end(),
                   {"--password", plant("pw-"), "--hf-token=" + plant("hf_"), "API_KEY=" + plant("x"), "-H",
                    "Authorization: Bearer " + plant("B"), "postgres://bob:" + plant("p") + "@10.20.30.40:5432/x",
                    plant("ghp_"), plant("AKIA", "IOSFODNN7EXAM"), "{\"client_secret\": \"" + plant("c") + "\"}"});
  a.threads[0].name = plant("sk-");
  a.threads[0].python_thread = PythonThread{1, "worker of alice@corp.example " + plant("ghp_")};
  a.dumped_by = plant("ghu_");
  a.threads[0].exception =
      CxxException{"std::" + plant("gsk_"), "my words: token=" + plant("t") + " of alice@corp.example"};
  a.threads[0].handles_cxx = HandledCxxException{{"std::" + plant("gsk_"), "my words: token=" + plant("t")}, {}};
  a.threads[0].raises_cxx = HandledCxxException{{"std::" + plant("gsk_"), "my words: token=" + plant("t")}, {}};
  a.threads[0].kernel_place = KernelPlace{plant("npm_", "9aZ8bY7cX6dW5eV4fU3gT2hS1kkkkkkk"), {plant("glpat-")}};
  a.problems.push_back({"cannot open /home/alice/x: password=" + plant("q") + " at node-b8",
                        "export SECRET=" + plant("e"), ProblemCode::kOther});
  a.signal = SignalInfo{6, "SIG" + plant("_"), a.pid, {}, {}};
  a.faulthandler = Faulthandler{{"SIG" + plant("_")}, {"SIG" + plant("_")}, 2};
  a.signal->place = FaultPlace{FaultRegion::kUnmapped, false, FaultMapping{"/home/alice/" + plant("hf_"), "r-x", 1},
                               FaultMapping{"/home/alice/" + plant("gho_"), plant("p_"), 2},
                               FaultMapping{"/home/alice/" + plant("ghu_"), "r-x", 3}};
  a.signal->instruction = FaultInstruction{"mov " + plant("hf_"), plant("ghp_"), {{plant("gho_"), 1}}};
  a.threads[0].raises = HandledException{"Err" + plant("_"), "my words, key " + plant("ghp_")};
  a.threads[0].raises->chain = {{ExceptionLink::kCause, "Err" + plant("_"), "my words, key " + plant("ghp_")}};
  a.abort_message =
      "train: /home/alice/x.c:3: main: Assertion `key != \"" + plant("xoxb-", "1234567890-aBcD") + "\"' failed.";
  a.coordinates = Coordinates{"by --token=" + plant("k"), {{"tp", 0}}};
  RankSnapshot& b = job.ranks[1];
  b.threads[0].syscall = call("recvfrom", 5, "tcp 10.20.30.41:29511 -> [fd12:3456::9]:80");
  b.threads[0].syscall->other_host = "10.20.30.42";
  b.threads[0].handles = HandledException{"Err" + plant("_"), "my words, key " + plant("xoxb-", "1234567890-aBcD")};
  b.threads[0].handles->chain = {{ExceptionLink::kCause, "Err" + plant("_"), "my words, key " + plant("ghp_")}};
  b.threads[0].python_lock = PythonLock{PythonLockKind::kModule, "alice.mod" + plant("_"), {}};
  b.threads[0].variables = {{0, {{plant("v_"), 3}}, ProcessGroup{"pg" + plant("_"), {0, 1}, plant("hf_")}, 0}};
  for (RankSnapshot* rank : {&a, &b}) {
    rank->modules = {{"NCCL " + plant("ghp_"), "/home/alice/" + plant("hf_") + "/libnccl.so.2", "aa" + plant("npm_"),
                      "2." + plant("glpat-"), VersionFrom::kText, "13." + plant("ghs_")}};
    rank->missing_files = {{"/home/alice/" + plant("hf_") + "/libgone.so", "ab" + plant("npm_"),
                            "torch 2." + plant("glpat-"), PackageFrom::kWheel, 1}};
    ProcessEnvironment& environment = rank->environment.emplace();
    environment.kernel = "6.8.0-" + plant("ghu_");
    environment.distribution = "Linux of node-a7 " + plant("gho_");
    environment.container = plant("hf_");
    environment.gpu_driver = "580." + plant("sk-");
    environment.cpus = "0-3," + plant("ghr_");
    environment.cpu_nodes = plant("gsk_");
    environment.memory_nodes = plant("nvapi-");
    environment.limits = {{"open " + plant("r8_"), 1, 2}};
    environment.variables_known = true;
    environment.variables = {{"FI_X_" + plant("ghp_"), "1"},
                             {"NCCL_API_KEY", plant("correct-horse-", "battery")},
                             {"NCCL_COMM_ID", "10.20.30.40:29511"},
                             {"NCCL_DEBUG", "INFO"},
                             {"NCCL_NET_PASSWORD", plant("pw")},
                             {"NCCL_SOCKET_IFNAME", "eth0"},
                             {"OMP_NUM_THREADS", "8"},
                             {"PYTHONPATH", "/home/alice/code:/mnt/acme/patients"},
                             {"TORCH_HOME", "/mnt/acme/" + plant("ghp_")},
                             {"TORCH_HUB", "https://bob:" + plant("p") + "@node-b8/x"},
                             {"TORCH_NOTE", "of alice: Bearer " + plant("B")},
                             {"UCX_TLS", "AKIA" + plant("", "IOSFODNN7EXAM")}};
  }
  b.path = "/home/bob/cores/" + plant("ghs_") + "/core.node-a7.1";
  RankSnapshot &c = job.ranks[2], &d = job.ranks[3];
  c.threads[0].syscall =
      call("read", 11, "/mnt/acme/patients/" + plant("AIza", "SyA1234567890abcdefghijklmnopqrstuv") + "-shard.bin");
  c.threads[0].syscall->others = {{4242, EndKind::kPipe, "mysql -p" + plant("m") + " -h node-b8 acme"}};
  c.threads[0].syscall->database = "/mnt/acme/" + plant("dapi", "0123456789abcdef0123456789abcdef") + ".db";
  p.made.thread(c, 900, "worker",
                {nat("loss_ns::" + plant("hf_") + "::run()"), nat("f", "/opt/" + plant("hvs.") + "/libx.so"),
                 py("go", "/home/alice/" + plant("r8_") + "/go.py", 3)});
  Frame qualified = py("q", "q.py", 1);
  qualified.qualname = "Q." + plant("ghu_");
  p.made.thread(c, 901, "worker", {qualified});
  GpuSnapshot gpu;
  gpu.pci = "0000:0a:00.0", gpu.name = "NVIDIA " + plant("nvapi-"), gpu.uuid = "GPU-" + plant("_");
  gpu.health.emplace().driver = "580." + plant("ghr_");
  gpu.health->throttle = {plant("shpat_", "0123456789abcdef0123456789abcdef")};
  gpu.execution.emplace().path = "/home/bob/" + plant("lin_api_");
  GpuKernel kernel;
  kernel.function = "kernel<" + plant("dop_v1_", "0123456789abcdef0123456789abcdef") + ">";
  kernel.blocks = kernel.warps = kernel.lanes = 1;
  gpu.execution->kernels = {kernel};
  RecordedOperation recorded;
  recorded.name = "all_reduce " + plant("ghs_");
  recorded.input_types = {plant("gho_")};
  recorded.frames = {{plant("hf_"), "/home/u/" + plant("glpat-") + "/train.py", 3}};
  RecordedGroup& group = a.flight_record.emplace().groups.emplace_back();
  a.flight_record->path = "/home/bob/" + plant("glpat-") + "/dump_0";
  a.flight_record->version = "2." + plant("gho_");
  group.description = plant("npm_", "0123456789abcdefghij0123456789ab");
  group.operations = {recorded};
  GpuException trap;
  trap.kind = "trap " + plant("rk_live_"), trap.kernel = plant("sk_live_");
  gpu.execution->exceptions = {trap};
  c.gpus = {gpu};
  for (RankSnapshot& rank : job.ranks)
    rank.pid_space = PidSpace{"0b007ed5-4a5b-4f27-b3e7-0c6f1d2a9e11", rank.host == a.host ? 4026531836u : 4026532567u};
  d.pid_space->boot_id = plant("hf_");
  job.not_looked_at = {{9, "node-b8.corp.internal", 77, c.pid_space}};
  job.kernel_log = {{d.host, 77, plant("xoxb-"), KernelKill::Cause::kFault, "2026-01-31T12:00:00.123Z",
                     "python3[77]: segfault at 8 ip 1 sp 2 error 4 in " + plant("AKIA", "IOSFODNN7EXAMPLE")}};
  NcclMember member;
  member.rank = 1, member.host = "10.20.30.41",
  member.process = NcclMember::Process{"node-a7.corp.internal", b.pid, b.pid_space};
  member.launched = {{"All" + plant("_"), 1}};
  job.nccl = NcclStatus{"2.28" + plant("_"), 1, {{plant("h_"), "0x1", 4, {member}, {}}}};
  d.host = "trainer-7d9f8b6c5d-x2k4q";
  job.nodes = {{d.host,
                NodeFault::kOther,
                "ssh " + plant("hf_"),
                "node-b8: Bearer " + plant("B"),
                "ssh -o Password=" + plant("pw") + " alice@node-b8.corp.internal",
                {3}}};
  d.python_version = "3.11" + plant("_");
  return p;
}

std::vector<std::string> formats_of(const redact::Redacted& shown, bool redacted) {
  return {report::text_report(shown.job, shown.analysis, {.all_threads = true}),
          report::json_report(shown.job, shown.analysis),
          report::markdown_report(shown.job, shown.analysis,
                                  {.max_bytes = 1 << 20, .ranks = {0, 1, 2, 3}, .redacted = redacted}),
          report::html_report(shown.job, shown.analysis, {.redacted = redacted}),
          report::folded_report(shown.job, shown.analysis, report::selected_ranks(shown.job, {}))};
}

redact::Redacted redacted(const JobSnapshot& job, redact::Request request) {
  return redact::redact(job, analyzers::analyze(job), request);
}

}  // namespace

TEST_CASE("no planted secret is in any format") {
  const Planted planted = planted_job();
  CHECK(planted.plant.secrets.size() >= 40);
  for (const bool names : {false, true}) {
    const redact::Redacted shown = redacted(planted.made.job, {.names = names});
    for (const std::string& text : formats_of(shown, names))
      for (const std::string& secret : planted.plant.secrets) {
        CAPTURE(names, secret, text.substr(0, 20));
        const std::size_t at = text.find(secret.substr(0, 20));
        if (at != std::string::npos) UNSCOPED_INFO(text.substr(at > 80 ? at - 80 : 0, 200));
        CHECK(at == std::string::npos);
      }
  }
}

TEST_CASE("with secrets, all is as it was") {
  const Planted planted = planted_job();
  const redact::Redacted shown = redacted(planted.made.job, {.names = false, .secrets = false});
  const std::string json = report::json_report(shown.job, shown.analysis);
  CHECK(json == report::json_report(planted.made.job, analyzers::analyze(planted.made.job)));
  for (const std::string& secret : planted.plant.secrets)
    if (secret.find('"') == std::string::npos) CHECK(json.find(secret) != std::string::npos);
}

TEST_CASE("nothing private is in a redacted report") {
  const Planted planted = planted_job();
  const redact::Redacted shown = redacted(planted.made.job, {.names = true});
  for (const std::string& text : formats_of(shown, true))
    for (const std::string& word : kPrivate) {
      const std::size_t at = text.find(word);
      CAPTURE(word);
      if (at != std::string::npos) UNSCOPED_INFO(text.substr(at > 100 ? at - 100 : 0, 200));
      CHECK(at == std::string::npos);
    }
}

TEST_CASE("what tells where it hangs stays, and the verdict with it") {
  const Planted planted = planted_job();
  const analyzers::Analysis before = analyzers::analyze(planted.made.job);
  REQUIRE(before.verdict.status == analyzers::VerdictStatus::kCulprit);
  const redact::Redacted shown = redacted(planted.made.job, {.names = true});
  REQUIRE(shown.analysis.verdict.suspects.size() == before.verdict.suspects.size());
  CHECK(shown.analysis.verdict.suspects[0].rank == before.verdict.suspects[0].rank);
  CHECK(shown.analysis.verdict.suspects[0].reason == before.verdict.suspects[0].reason);
  CHECK(shown.analysis.cluster_of == before.cluster_of);
  const std::string json = report::json_report(shown.job, shown.analysis);
  for (const std::string word :
       {"~/code/train.py", "torch/utils/data/_utils/fetch.py", "c10d::Reducer::finalize_backward()", "libc.so.6",
        "host-1", "host-2", "pod-1", "--data", "\"0.1\"", "-> /file-", "tcp ip-1:port-1"}) {
    CAPTURE(word);
    CHECK(json.find(word) != std::string::npos);
  }
  // One name for one thing, everywhere: NCCL's member is the process of rank 1.
  CHECK(shown.job.ranks[1].host == shown.job.nccl->communicators[0].members[0].process->host);
  CHECK(shown.job.ranks[2].host == shown.job.not_looked_at[0].host);
  CHECK(shown.job.ranks[0].problems[0].message == "cannot open ~/x: password=<token> at host-2");
}

TEST_CASE("a second redaction changes no more than numbers") {
  const Planted planted = planted_job();
  redact::Redacted once = redacted(planted.made.job, {.names = true});
  redact::Redacted twice = redacted(once.job, {.names = true});
  // What differed is known from the values as they were, two secrets among them that are one <token> now.
  CHECK(once.analysis.differences.size() > twice.analysis.differences.size());
  for (redact::Redacted* one : {&once, &twice}) one->analysis.differences.clear();
  CHECK(report::json_report(twice.job, twice.analysis).size() ==
        Approx(report::json_report(once.job, once.analysis).size()).epsilon(0.01));
  CHECK(twice.analysis.verdict.suspects.size() == once.analysis.verdict.suspects.size());
}

TEST_CASE("settings: numbers and words of libraries stay, differences stay, and no new ones come") {
  LiteralJob made;
  for (int r = 0; r < 4; ++r) {
    RankSnapshot& rank = made.rank(r, 4, waits_in_backward());
    rank.host = r < 2 ? "node-a7" : "node-b8";
    ProcessEnvironment& environment = rank.environment.emplace();
    environment.variables_known = true;
    rank.modules = {{"RDMA verbs", "/usr/lib/libibverbs.so.1.14.44.0", "", r == 2 ? "1.14.44.0" : "1.14.45.0"}};
    environment.variables = {{"NCCL_ALGO", "Ring"},
                             {"NCCL_AUTH_TOKEN", r == 3 ? "hunter2" : "swordfish"},
                             {"NCCL_SOCKET_IFNAME", r == 1 ? "ib0" : "eth0"},
                             {"OMP_NUM_THREADS", "8"},
                             {"PYTHONPATH", r == 0 ? "/mnt/acme" : "/usr/lib/python3"},
                             {"TORCH_HOME", "/mnt/acme/rank-" + std::to_string(r)}};
  }
  const redact::Redacted shown = redacted(made.job, {.names = true});
  std::vector<std::string> lines;
  for (const analyzers::Difference& difference : shown.analysis.differences)
    lines.push_back(analyzers::describe(shown.job, difference));
  CHECK(lines == std::vector<std::string>{"RDMA verbs 1.14.44.0 on rank 2, 1.14.45.0 on the 3 others",
                                          "NCCL_AUTH_TOKEN=<token> on rank 3, <token> on the 3 others",
                                          "NCCL_SOCKET_IFNAME=ib0 on rank 1, eth0 on the 3 others",
                                          "PYTHONPATH=value-1 on rank 0, /usr/lib/python3 on the 3 others"});
  const auto& variables = shown.job.ranks[2].environment->variables;
  CHECK(variables[0] == std::pair<std::string, std::string>("NCCL_ALGO", "Ring"));
  CHECK(variables[1].second == "<token>");
  CHECK(variables[3].second == "8");
  // Values that name their own rank are alike, also for the reader of a redacted report.
  CHECK(variables[5].second.starts_with("value-"));
  CHECK(variables[5].second == shown.job.ranks[0].environment->variables[5].second);
  std::vector<std::string> again;
  for (const analyzers::Difference& difference : analyzers::find_differences(shown.job))
    again.push_back(analyzers::describe(shown.job, difference));
  CHECK(again == std::vector<std::string>{lines[0], lines[2], lines[3]});
}

TEST_CASE("addresses and groups of digits are no numbers, versions are") {
  LiteralJob made;
  RankSnapshot& rank = made.rank(0, 1, waits_in_backward());
  rank.command = {"python3",
                  "train.py",
                  "--master_addr",
                  "10.1.2.3",
                  "--master_addr=10.1.2.4",
                  "10.1.2.3",
                  "10.1.2.3:29500",
                  "10.1.2.3,2",
                  "--ssn=123-45-6789",
                  "555-1234",
                  "10.1.2.3-1",
                  "--lr=1e-05",
                  "--eps",
                  "-0.1",
                  "2.28.9",
                  "12.4.1",
                  "--cpus=0-3,8",
                  "2026-01-31",
                  "--bind",
                  "0.0.0.0",
                  "127.0.0.2",
                  "--cuda-version",
                  "12.4.1.2",
                  "--version=1.2.3.4",
                  "123456789012"};
  ProcessEnvironment& environment = rank.environment.emplace();
  environment.variables_known = true;
  environment.variables = {{"GLOO_Y", "10.1.2.4"},
                           {"NCCL_TESTED", "2.28.3-1"},
                           {"NCCL_VERSION", "2.28.9.1-1"},
                           {"UCX_X", "10.1.2.3"},
                           {"UCX_Y", "127.0.0.1"}};
  rank.threads[0].syscall = call("recvfrom", 5, "tcp 10.1.2.4:1 -> 10.1.2.3:29500");
  const redact::Redacted shown = redacted(made.job, {.names = true});
  const RankSnapshot& hidden = shown.job.ranks[0];
  CHECK(hidden.command == std::vector<std::string>{"python3",
                                                   "train.py",
                                                   "--master_addr",
                                                   "ip-1",
                                                   "--master_addr=ip-2",
                                                   "ip-1",
                                                   "ip-1:port-1",
                                                   "arg-1",
                                                   "--ssn=arg-2",
                                                   "arg-3",
                                                   "arg-4",
                                                   "--lr=1e-05",
                                                   "--eps",
                                                   "-0.1",
                                                   "2.28.9",
                                                   "12.4.1",
                                                   "--cpus=0-3,8",
                                                   "2026-01-31",
                                                   "--bind",
                                                   "0.0.0.0",
                                                   "127.0.0.2",
                                                   "--cuda-version",
                                                   "12.4.1.2",
                                                   "--version=1.2.3.4",
                                                   "123456789012"});
  std::vector<std::string> values;
  for (const auto& [name, value] : hidden.environment->variables) values.push_back(value);
  CHECK(values == std::vector<std::string>{"ip-2", "2.28.3-1", "2.28.9.1-1", "ip-1", "127.0.0.1"});
  CHECK(hidden.threads[0].syscall->fd_target == "tcp ip-2:port-2 -> ip-1:port-1");
}

TEST_CASE("a watchdog's text keeps what the verdict needs of it") {
  LiteralJob made;
  RankSnapshot& rank = made.rank(0, 2, waits_in_backward());
  rank.threads[0].exception = CxxException{
      "c10::DistBackendError",
      "[PG ID 0 PG GUID 0(default_pg) Rank 1] of bob: WorkNCCL(SeqNum=5, OpType=_ALLGATHER_BASE, NumelIn=1024, "
      "NumelOut=2048, Timeout(ms)=12000) ran for 12004 milliseconds"};
  const redact::Redacted shown = redacted(made.job, {.names = true});
  CHECK(shown.job.ranks[0].threads[0].exception->what ==
        "message-1: PG GUID 0(default_pg) Rank WorkNCCL(SeqNum=5, OpType=_ALLGATHER_BASE, NumelIn=1024, NumelOut=2048, "
        "Timeout(ms)=12000) ran for 12004 milliseconds");
}

TEST_CASE("a verdict that redaction would change stays, in plain words") {
  // A user's name that is a part of what the rules ask for.
  LiteralJob made;
  for (int r = 0; r < 4; ++r) {
    RankSnapshot& rank = made.rank(r, 4, r == 2 ? in_getitem() : waits_in_backward());
    rank.executable = "/home/c10d/x";
  }
  const analyzers::Analysis before = analyzers::analyze(made.job);
  REQUIRE(before.verdict.suspects.size() == 1);
  const redact::Redacted shown = redacted(made.job, {.names = true});
  REQUIRE(shown.analysis.verdict.suspects.size() == 1);
  CHECK(shown.analysis.verdict.suspects[0].rank == 2);
  for (const std::string& text : formats_of(shown, true)) CHECK_FALSE(text.empty());
}
