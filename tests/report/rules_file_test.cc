#include <catch2/catch.hpp>

#include <sys/resource.h>

#include <fmt/format.h>

#include "analyzers/analysis.h"
#include "analyzers/names.h"
#include "analyzers/roles.h"
#include "report/rules_file.h"
#include "support/literal_job.h"

using namespace rankstacks;
using namespace rankstacks::report;
using namespace rankstacks::testing;

namespace {

// The whole error line, without the tool's name.
std::string error_of(const std::string& text) {
  const auto rules = read_rules(text, "acme.json");
  if (rules) return "read";
  CHECK(rules.error().hint ==
        "docs/rules.md describes the form; `rankstacks rules --format json` prints the built-in rules in it");
  return rules.error().message();
}

std::string with(const std::string& section) { return "{\n  \"rules\": 1,\n" + section + "\n}\n"; }

// The rules of a text are in effect until the end of the test.
class Added {
 public:
  explicit Added(const std::string& text) {
    auto rules = read_rules(text, "acme.json");
    REQUIRE(rules);
    known::install_added_programs(std::move(*rules));
  }
  ~Added() { known::install_added_programs({}); }
};

const Stack kPythonStart = {py("run", "/usr/lib/python3.11/threading.py", 975),
                            py("_bootstrap", "/usr/lib/python3.11/threading.py", 995)};

// Ranks 0 and 1 wait in the framework's all_reduce, over a socket; 2 sleeps in its own code.
LiteralJob framework_job() {
  LiteralJob literal;
  const Stack waits = Stack{libc("recv"), nat("sock_recv_into", "/usr/bin/python3.11"),
                            py("_receive", "/opt/acme/comm.py", 30), py("all_reduce", "/opt/acme/comm.py", 60)} +
                      in_main(17);
  for (const int number : {0, 1})
    literal.rank(number, 3, waits).threads[0].syscall = call("recvfrom", 5, "tcp 10.0.0.1:4 -> 10.0.0.2:5");
  literal.rank(2, 3, Stack{libc("clock_nanosleep"), py("forward", "/home/u/model.py", 12)} + in_main(15))
      .threads[0]
      .syscall = call("clock_nanosleep");
  return literal;
}

const std::string kFramework = with(R"(  "source": "acme 3.2",
  "activities": [
    {"match": "python", "function": "all_reduce", "file": "acme/comm.py", "activity": "collective"}
  ],
  "library_files": [{"contains": "/acme/"}])");

}  // namespace

TEST_CASE("rules: an in-house framework is recognised by its file") {
  const LiteralJob literal = framework_job();
  const analyzers::Analysis before = analyzers::analyze(literal.job);
  CHECK_FALSE((before.activities[0] && before.activities[0]->kind == "in-collective"));
  {
    const Added added(kFramework);
    const analyzers::Analysis after = analyzers::analyze(literal.job);
    REQUIRE(after.activities[0]);
    CHECK(after.activities[0]->kind == "in-collective");
    CHECK(after.activities[0]->operation == "all_reduce");
    CHECK(after.verdict.status == analyzers::VerdictStatus::kCulprit);
    REQUIRE(after.verdict.suspects.size() == 1);
    CHECK(after.verdict.suspects[0].rank == 2);
    CHECK(after.verdict.suspects[0].reason == analyzers::Reason::kUserCode);
  }
  const analyzers::Analysis again = analyzers::analyze(literal.job);
  CHECK(again.verdict.summary == before.verdict.summary);
}

TEST_CASE("rules: without over_transport the socket decides, as for the built-in ones") {
  const LiteralJob literal = framework_job();
  const Added added(with(
      R"("activities": [{"match": "python", "function": "all_reduce", "file": "acme/comm.py", "activity": "collective", "over_transport": false}])"));
  const analyzers::Analysis analysis = analyzers::analyze(literal.job);
  REQUIRE(analysis.activities[0]);
  CHECK(analysis.activities[0]->kind == "network-io");
}

TEST_CASE("rules: a user's rule comes before the built-in ones, and may say that a frame shows nothing") {
  LiteralJob literal;
  literal.rank(0, 1, Stack{libc("nanosleep"), py("save_checkpoint", "/home/u/trainer.py", 5)} + in_main(3))
      .threads[0]
      .syscall = call("clock_nanosleep");
  CHECK(analyzers::analyze(literal.job).activities[0]->kind == "checkpoint-io");
  {
    const Added added(with(
        R"("activities": [{"match": "python", "function": "save_checkpoint", "file": "trainer.py", "activity": "none"}])"));
    CHECK(analyzers::analyze(literal.job).activities[0]->kind != "checkpoint-io");
  }
  {
    const Added added(
        with(R"("activities": [{"match": "python-file", "file": "/home/u/trainer.py", "activity": "data-loading"}])"));
    CHECK(analyzers::analyze(literal.job).activities[0]->kind == "data-loading");
  }
}

TEST_CASE("rules: roles, names and idle states of threads") {
  LiteralJob literal;
  RankSnapshot& rank = literal.rank(0, 1, in_main(1));
  literal.thread(rank, 901, "python3",
                 Stack{libc("sem_wait"), py("wait", "/usr/lib/python3.11/threading.py", 324),
                       py("_send_loop", "/opt/acme/agent.py", 9)} +
                     kPythonStart);
  literal.thread(rank, 902, "acme-io3",
                 {libc("epoll_wait"), unknown("/opt/acme/libacme.so.3", 0x100), libc("start_thread"), libc("clone3")});
  literal.thread(rank, 903, "python3",
                 {libc("epoll_wait"), nat("acme::Transport::loop(int)", "/opt/acme/libacme.so.3"), libc("start_thread"),
                  libc("clone3")});
  literal.child(rank.pid, {libc("read"), py("serve", "/opt/acme/worker.py", 5)});
  CHECK(std::string(known::to_string(analyzers::assign_roles(literal.job)[0][1])) == "python");
  CHECK_FALSE(analyzers::is_idle(literal.job, literal.job.ranks[0].threads[3], known::Role::kNcclProxy));
  const Added added(with(R"("roles": [
      {"match": "python-waits", "file": "/acme/agent.py", "role": "rpc"},
      {"match": "function", "function": "acme::Transport::loop", "role": "nccl-proxy"},
      {"match": "python-file", "file": "/acme/worker.py", "of": "child", "role": "data-loader"}
    ],
    "thread_names": [{"prefix": "acme-io", "role": "grpc"}],
    "idle": [{"match": "only", "module": "libacme", "role": "nccl-proxy", "wait": "poll"}])"));
  const auto roles = analyzers::assign_roles(literal.job);
  CHECK(roles[0] ==
        std::vector<known::Role>{known::Role::kMain, known::Role::kRpc, known::Role::kGrpc, known::Role::kNcclProxy});
  CHECK(roles[1] == std::vector<known::Role>{known::Role::kDataLoader});
  CHECK(analyzers::is_idle(literal.job, literal.job.ranks[0].threads[3], known::Role::kNcclProxy));
  CHECK_FALSE(analyzers::is_idle(literal.job, literal.job.ranks[0].threads[3],
                                 known::Role::kGrpc));  // the rule is of another role
}

TEST_CASE("rules: files of the user and of libraries; the user's first") {
  CHECK_FALSE(known::is_library_file("/opt/acme/comm.py"));
  CHECK(known::is_library_file("/usr/lib/python3/dist-packages/mymodel/net.py"));
  const Added added(with(
      R"("library_files": [{"contains": "/acme/"}, {"suffix": "/launch.py"}], "user_files": [{"contains": "-packages/mymodel/"}, {"contains": "/acme/recipes/"}])"));
  CHECK(known::is_library_file("/opt/acme/comm.py"));
  CHECK_FALSE(known::is_library_file("/opt/acme/recipes/llm.py"));
  CHECK(known::is_library_file("/home/u/launch.py"));
  CHECK_FALSE(known::is_library_file("/home/u/launch.py.py"));
  CHECK_FALSE(known::is_library_file("/usr/lib/python3/dist-packages/mymodel/net.py"));
  CHECK(known::is_library_file("/usr/lib/python3/dist-packages/torch/_tensor.py"));
}

TEST_CASE("rules: a loop that waits for the next request, and a runtime in which no code is") {
  LiteralJob literal;
  literal
      .rank(0, 1,
            Stack{libc("epoll_wait"), nat("wait(int)", "/opt/acme/libacme_rt.so.3"),
                  py("_next_request", "/opt/acme/serve.py", 30), py("serve", "/opt/acme/serve.py", 12)} +
                in_main(3))
      .threads[0]
      .syscall = call("epoll_wait", 4);
  CHECK(analyzers::analyze(literal.job).activities[0]->kind != "idle");
  CHECK_FALSE(analyzers::is_opaque("/opt/acme/libacme_rt.so.3"));
  const Added added(with(
      R"("places": [{"place": "loop-wait", "function": "_next_request", "suffix": "/acme/serve.py"}, {"place": "server-loop", "function": "serve", "contains": "/acme/"}],
    "modules": [{"prefix": "libacme_rt", "kind": "runtime"}])"));
  CHECK(analyzers::analyze(literal.job).activities[0]->kind == "idle");
  CHECK(analyzers::is_opaque("/opt/acme/libacme_rt.so.3"));
}

TEST_CASE("rules: functions of one's own that wait as the standard library's do") {
  const std::string file = "/opt/acme/runtime.py";
  const auto reason_of_0 = [&](const std::string& function) {
    LiteralJob literal;
    for (const int rank : {0, 1})
      literal.rank(rank, 2,
                   rank == 1 ? waits_in_all_reduce()
                             : Stack{libc("sem_wait"), nat("PyThread_acquire_lock_timed", "/usr/bin/python3.11"),
                                     py("wait", "/usr/lib/python3.11/threading.py", 320), py(function, file, 5)} +
                                   in_main(30));
    const analyzers::Verdict verdict = analyzers::analyze(literal.job).verdict;
    return verdict.suspects.empty() ? verdict.summary : verdict.suspects[0].summary;
  };
  const auto has = [](const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
  };
  CHECK(has(reason_of_0("take"), "waits for a condition of its own threads"));
  std::string places = "\"library_files\": [{\"contains\": \"/acme/\"}], \"places\": [";
  const std::vector<std::pair<std::string, std::string>> expected = {
      {"queue-get", "waits for a queue to be filled"},
      {"queue-put", "waits for room in a queue"},
      {"queue-join", "waits for a queue's tasks to be done"},
      {"threading-wait", "waits for an event of its own threads"},
      {"threading-barrier", "waits at a barrier"},
      {"threading-acquire", "waits for a semaphore"},
      {"threading-join", "waits for a thread to end"},
      {"import-wait", "waits for another thread's import"}};
  for (const auto& [place, words] : expected)
    places += fmt::format("{}{{\"place\": \"{}\", \"function\": \"f_{}\", \"suffix\": \"/acme/runtime.py\"}}",
                          places.ends_with('[') ? "" : ", ", place, place);
  const Added added(with(places + "]"));
  for (const auto& [place, words] : expected) CHECK(has(reason_of_0("f_" + place), words));
  CHECK(has(reason_of_0("take"), "waits for a condition of its own threads"));
}

TEST_CASE("rules: a queue between processes of one's own, and a pool's loop") {
  LiteralJob peers;
  for (int i = 0; i < 2; ++i) {
    RankSnapshot& rank = peers.rank(i, 2, Stack{libc("read"), py("take", "/opt/acme/runtime.py", 5)} + in_main(30));
    rank.rank.reset();
    rank.world_size.reset();
  }
  LiteralJob pool;
  const std::string lib = "/usr/lib/python3.11/";
  RankSnapshot& rank =
      pool.rank(0, 1,
                Stack{libc("sem_wait"), nat("PyThread_acquire_lock_timed", "/usr/bin/python3.11"),
                      py("wait", lib + "threading.py", 1), py("get", lib + "multiprocessing/pool.py", 3)} +
                    in_main(50));
  pool.child(rank.pid, {py("_loop", "/opt/acme/pool.py", 5), py("run", lib + "multiprocessing/process.py", 6),
                        py("_bootstrap", lib + "multiprocessing/process.py", 7)});
  const auto kind = [](const LiteralJob& literal) { return analyzers::analyze(literal.job).activities[0]->kind; };
  const std::string before = kind(peers);
  CHECK(before != "in-collective");
  CHECK(analyzers::analyze(peers.job).activities[0]->operation == std::nullopt);
  CHECK(kind(pool) == "python-lock");
  {
    const Added added(with(
        R"("places": [{"place": "process-queue-wait", "function": "take", "suffix": "/acme/runtime.py"}, {"place": "pool-worker", "suffix": "/acme/pool.py"}])"));
    CHECK(analyzers::analyze(peers.job).activities[0]->operation == "a multiprocessing queue");
    CHECK(kind(pool) == "subprocess");
  }
  const Added added(with(
      R"("places": [{"place": "pool-worker", "suffix": "/acme/pool.py"}, {"place": "pool-loop", "function": "_loop", "suffix": "/acme/pool.py"}])"));
  CHECK(kind(pool) == "python-lock");
}

TEST_CASE("rules: ten thousand that all hold take no memory for each frame") {
  std::string many = "\"roles\": [";
  for (std::size_t i = 0; i < kMaxRules; ++i)
    many +=
        fmt::format("{}{{\"match\": \"python-file\", \"file\": \"acme/\", \"role\": \"rpc\"}}", i == 0 ? "" : ",\n");
  const Added added(with(many + "]"));
  LiteralJob literal;
  RankSnapshot& rank = literal.rank(0, 1, in_main(1));
  Stack stack;
  for (int i = 0; i < 10000; ++i) stack.push_back(py(fmt::format("f{}", i), "/opt/acme/deep.py", i));
  literal.thread(rank, 901, "python3", stack + kPythonStart);
  const auto most_kib = [] {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss;
  };
  const long before = most_kib();
  CHECK(analyzers::assign_roles(literal.job)[0] == std::vector<known::Role>{known::Role::kMain, known::Role::kRpc});
  CHECK(most_kib() - before < 100 * 1024);  // a list for each frame: 400 MB
}

TEST_CASE("rules: a file whose name is no UTF-8") {
  const auto rules = read_rules(
      kFramework.substr(0, kFramework.find("  \"source\"")) + "  \"user_files\": [{\"contains\": \"/recipes/\"}]\n}",
      "caf\xe9.json");
  REQUIRE(rules);
  CHECK(json_of_rules(rules->rules).find("\"source\":\"caf\xef\xbf\xbd.json\"") != std::string::npos);
  CHECK(text_of_rules(rules->rules, {}, {}).find("caf\\xe9.json") != std::string::npos);
}

TEST_CASE("rules: what is printed as JSON can be read, and says the same") {
  const known::KnownPrograms& built_in = known::built_in_programs();
  const std::string printed = json_of_rules(built_in);
  auto read = read_rules(printed, "printed.json");
  REQUIRE(read);
  CHECK(json_of_rules(read->rules) == printed);
  CHECK(read->rules.size() == built_in.size());
  REQUIRE(read->rules.activities.size() == built_in.activities.size());
  for (std::size_t i = 0; i < built_in.activities.size(); ++i) {
    const known::ActivityRule &a = built_in.activities[i], &b = read->rules.activities[i];
    INFO(a.what << " in " << a.file);
    CHECK((a.match == b.match && a.what == b.what && a.file == b.file && a.activity == b.activity &&
           a.source == b.source && a.operation == b.operation && a.over_transport == b.over_transport));
  }
  const auto same_role = [](const known::RoleRule& a, const known::RoleRule& b) {
    return a.match == b.match && a.what == b.what && a.file == b.file && a.role == b.role && a.source == b.source;
  };
  CHECK(std::equal(built_in.thread_roles.begin(), built_in.thread_roles.end(), read->rules.thread_roles.begin(),
                   read->rules.thread_roles.end(), same_role));
  CHECK(std::equal(built_in.child_roles.begin(), built_in.child_roles.end(), read->rules.child_roles.begin(),
                   read->rules.child_roles.end(), same_role));
  CHECK(std::equal(built_in.idle.begin(), built_in.idle.end(), read->rules.idle.begin(), read->rules.idle.end(),
                   [](const known::IdleRule& a, const known::IdleRule& b) {
                     return a.role == b.role && a.match == b.match && a.what == b.what && a.file == b.file &&
                            a.wait == b.wait && a.source == b.source;
                   }));
}

TEST_CASE("rules: all that is printed as text names its source, and what is added is marked") {
  const Added added(kFramework);
  const std::string text = text_of_rules(known::added_programs(), known::built_in_programs(), {});
  CHECK(text.find("+ collective         python all_reduce in acme/comm.py") != std::string::npos);
  CHECK(text.find("acme 3.2") != std::string::npos);
  CHECK(text.find("  collective         python all_reduce in torch/distributed/distributed_c10d.py") !=
        std::string::npos);
}

TEST_CASE("rules: several files, the first to be asked first") {
  auto first = read_rules(with(R"("thread_names": [{"prefix": "a", "role": "rpc"}])"), "first.json");
  auto second = read_rules(with(R"("thread_names": [{"prefix": "ab", "role": "grpc"}])"), "second.json");
  REQUIRE((first && second));
  first->append(std::move(*second));
  REQUIRE(first->rules.thread_names.size() == 2);
  CHECK(first->rules.thread_names[0].prefix == "a");
  CHECK(first->rules.thread_names[0].source == "first.json");
  CHECK(first->rules.thread_names[1].prefix == "ab");
  CHECK(first->rules.thread_names[1].source == "second.json");
}

TEST_CASE("rules: what is no JSON") {
  CHECK(error_of("") ==
        "acme.json: line 1, column 1: syntax error while parsing value - unexpected end of input; expected '[', '{', "
        "or a literal");
  CHECK(error_of("{\n  \"rules\": 1,\n  \"idle\": [ }\n") ==
        "acme.json: line 3, column 13: syntax error while parsing value - unexpected '}'; expected '[', '{', or a "
        "literal");
  CHECK(error_of("{\"rules\": 1} x") ==
        "acme.json: line 1, column 14: syntax error while parsing value - invalid literal; expected end of input");
  CHECK(error_of("{\"rules\": 1e999}") == "acme.json: line 1: found a number out of range");
  CHECK(error_of("{\n\"rules\":\n-1e999\n}") == "acme.json: line 3: found a number out of range");
  CHECK(error_of("{\"rules\": \"\x1b[2J\"}").find('\x1b') == std::string::npos);
  CHECK(error_of("{\"rules\": \"\xff\"}").find('\xff') == std::string::npos);
}

TEST_CASE("rules: each defect is reported with its line, what was found and what was expected") {
  CHECK(error_of("[]") == "acme.json: line 1: the document: found an array, expected an object");
  CHECK(error_of("{}") == "acme.json: line 1: the document: found no key \"rules\", expected one");
  CHECK(error_of("{\n \"rules\": 2}") == "acme.json: line 2: /rules: found 2, expected 1");
  CHECK(error_of("{\n \"rules\":\n 7\n}") == "acme.json: line 3: /rules: found 7, expected 1");
  CHECK(error_of(with("  \"activites\": []")) ==
        "acme.json: line 3: the document: found the key \"activites\", expected no other than $schema, rules, source, "
        "activities, roles, thread_names, idle, user_files, library_files, places, modules");
  CHECK(error_of(with("  \"idle\": {}")) == "acme.json: line 3: /idle: found an object, expected an array");
  CHECK(error_of(with("  \"idle\": [\n    7\n  ]")) == "acme.json: line 4: /idle/0: found 7, expected an object");
  CHECK(error_of(with("  \"idle\": [], \"idle\": []")) ==
        "acme.json: line 3: found \"idle\" a second time in one object, expected each name once");
  const std::string long_name(100, 'n');
  CHECK(error_of(with("  \"" + long_name + "\": 1, \"" + long_name + "\": 2")) ==
        "acme.json: line 3: found \"" + std::string(59, 'n') +
            "…\" a second time in one object, expected each name once");
  CHECK(error_of(with("  \"source\": \"\"")) ==
        "acme.json: line 3: /source: found \"\", expected a text that is not empty");
  CHECK(error_of(with("  \"thread_names\": [\n    {\"prefix\": \"x\", \"role\": \"rpc\"},\n    {\"prefix\": \"longer "
                      "than sixteen\", \"role\": \"rpc\"}]")) ==
        "acme.json: line 5: /thread_names/1/prefix: found \"longer than sixteen\", expected at most 15 bytes: the "
        "kernel keeps no more of a thread's name");
  CHECK(error_of(with("  \"user_files\": [{}]")) ==
        "acme.json: line 3: /user_files/0: expected one of the keys contains, suffix");
  CHECK(error_of(with("  \"user_files\": [{\"contains\": true}]")) ==
        "acme.json: line 3: /user_files/0/contains: found true, expected a string");
}

TEST_CASE("rules: defects of activities and roles") {
  const auto activity = [](const std::string& members) {
    return error_of(with("  \"activities\": [\n    {" + members + "}]"));
  };
  CHECK(activity("") == "acme.json: line 4: /activities/0: found no key \"match\", expected one");
  CHECK(activity("\"match\": \"pyton\"") ==
        "acme.json: line 4: /activities/0/match: found \"pyton\", expected one of native, native-prefix, native-op, "
        "python, python-file, python-waits");
  CHECK(activity("\"match\": \"python\", \"activity\": \"collective\"") ==
        "acme.json: line 4: /activities/0: found no key \"function\", expected one");
  CHECK(activity("\"match\": \"native\", \"function\": \"f\", \"file\": \"x.py\", \"activity\": \"collective\"") ==
        "acme.json: line 4: /activities/0: found the key \"file\", expected no other than match, function, activity, "
        "operation, over_transport, source");
  CHECK(activity("\"match\": \"native\", \"function\": \"f\", \"activity\": \"colective\"") ==
        "acme.json: line 4: /activities/0/activity: found \"colective\", expected one of collective, point-to-point, "
        "store-wait, peer-wait, autograd, data-loading, checkpoint-io, file-io, network-io, "
        "subprocess, debugger, compiling, gpu-wait, garbage-collection, exception, python-lock, native-lock, "
        "user-code, none");
  CHECK(activity("\"match\": \"native\", \"function\": \"f\", \"activity\": \"compiling\", \"over_transport\": true") ==
        "acme.json: line 4: /activities/0/over_transport: found it with an activity that waits for no other rank, "
        "expected it with collective, point-to-point, store-wait or peer-wait alone");
  CHECK(activity("\"match\": \"native\", \"function\": \"f\", \"activity\": \"collective\", \"operation\": "
                 "{\"collective\": \"allreduce\"}") ==
        "acme.json: line 4: /activities/0/operation/collective: found \"allreduce\", expected one of AllGather, "
        "AllReduce, AllToAll, Barrier, Broadcast, Gather, Reduce, ReduceScatter, Scatter, SendRecv");
  CHECK(error_of(
            with("  \"roles\": [{\"match\": \"python\", \"function\": \"f\", \"file\": \"x.py\", \"role\": \"main\"}]"))
            .find("/roles/0/role: found \"main\", expected one of python, autograd,") != std::string::npos);
}

TEST_CASE("rules: what is too large or too deep") {
  CHECK(error_of(std::string(kMaxRulesBytes + 1, ' ')) == "acme.json: found 1048577 bytes, expected at most 1048576");
  CHECK(error_of(std::string(100000, '[')) == "acme.json: line 1: nested deeper than 8 levels");
  std::string names = "{\"0\": 0";
  for (int i = 1; i <= 64; ++i) names += fmt::format(",\n\"{}\": 0", i);
  CHECK(error_of(names + "}") == "acme.json: line 65: more than 64 names in one object");
  std::string many = "\"user_files\": [";
  for (std::size_t i = 0; i <= kMaxRules; ++i) many += fmt::format("{}{{\"suffix\":\"{}\"}}", i == 0 ? "" : ",\n", i);
  CHECK(error_of(with(many + "]")) ==
        "acme.json: line 10003: /user_files/10000: found another rule, expected at most 10000 in one file");
}
