#include <catch2/catch.hpp>

#include "capture/job_processes.h"
#include "support/literal_machine.h"

using namespace rankstacks;
using namespace rankstacks::capture;
using testing::Environment;
using testing::kSelf;
using testing::Machine;

namespace {

std::string shown(const std::vector<PlannedTarget>& plan) {
  std::string text;
  for (const auto& t : plan) {
    if (!text.empty()) text += " ";
    text += std::to_string(t.pid);
    if (t.identity.rank) text += "=" + std::to_string(*t.identity.rank);
    if (t.parent) text += "<" + std::to_string(*t.parent);
  }
  return text;
}

Environment torch(int rank) {
  return {{"RANK", std::to_string(rank)}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", std::to_string(rank)}};
}

}  // namespace

TEST_CASE("a pid means that process, and its children are included") {
  Machine m;
  m.add(10, 1, "python3", torch(0));
  m.add(11, 10, "pt_data_worker", torch(0));
  m.add(12, 11, "helper", torch(0));
  CHECK(shown(m.pids({10})) == "10=0 11<10 12<10");
}

TEST_CASE("the pid of torchrun means its ranks, under srun too") {
  Machine m;
  m.add(5, 1, "torchrun", {{"SLURM_PROCID", "3"}, {"SLURM_NTASKS", "4"}});
  for (int r = 0; r < 2; ++r) {
    Environment e = torch(r);
    e["SLURM_PROCID"] = "3";
    m.add(10 + r, 5, "python3", e);
  }
  CHECK(shown(m.pids({5})) == "10=0 11=1");
  CHECK(shown(m.job()) == "10=0 11=1");
}

TEST_CASE("a shell that waits for its only child is replaced by that child") {
  Machine m;
  m.add(5, 1, "bash", torch(1));
  m.add(6, 5, "python3", torch(1));
  m.wrappers = {5};
  CHECK(shown(m.pids({5})) == "6=1");
  m.wrappers = {};
  CHECK(shown(m.pids({5})) == "5=1 6<5");
}

TEST_CASE("a rank that waits in system() stays the rank") {
  Machine m;
  m.add(5, 1, "solver", torch(0));
  m.add(6, 1, "solver", torch(1));
  m.add(7, 6, "sleep", torch(1));
  m.wrappers = {6};
  CHECK(shown(m.pids({5, 6})) == "5=0 6=1 7<6");
  CHECK(shown(m.pids({6})) == "6=1 7<6");
  CHECK(shown(m.job()) == "5=0 6=1 7<6");
  SECTION("by a shell, too") {
    m.last() = {7, 6, "sh", 'S', 1, false};
    m.add(8, 7, "rsync", torch(1));
    m.wrappers = {6, 7};
    CHECK(shown(m.pids({5, 6})) == "5=0 6=1 7<6 8<6");
    m.last().name = "render";
    CHECK(shown(m.pids({5, 6})) == "5=0 6=1 7<6 8<6");
  }
  SECTION("for a program that may be a rank, if the same program is another rank that works itself") {
    m.last().name = "render";
    CHECK(shown(m.pids({5, 6})) == "5=0 6=1 7<6");
    m.environments[5]["WORLD_SIZE"] = "3";  // of another job
    CHECK(shown(m.pids({6})) == "7=1");
  }
  SECTION("for any program, if it has loaded what ranks communicate with") {
    m.entries[0].name = "other";
    m.last().name = "render";
    CHECK(shown(m.pids({6})) == "7=1");
    m.trainers = {6};
    CHECK(shown(m.pids({6})) == "6=1 7<6");
  }
}

TEST_CASE("a program that no rule knows is replaced by what it starts in every rank") {
  Machine m;
  for (int r = 0; r < 2; ++r) {
    m.add(10 + r, 1, "solver", torch(r));
    m.add(20 + r, 10 + r, "solver", torch(r));  // forked, so that it can be started again
    m.wrappers.push_back(10 + r);
  }
  CHECK(shown(m.pids({10, 11})) == "20=0 21=1");
}

TEST_CASE("a script that has not started its program yet is the rank") {
  Machine m;
  m.add(5, 1, "train.sh", torch(1));
  m.titles[5] = "/bin/bash";
  m.add(6, 5, "sleep", torch(1));
  m.wrappers = {5};
  CHECK(shown(m.pids({5})) == "5=1 6<5");
  m.add(7, 1, "train.sh", torch(0));
  m.titles[7] = "/bin/bash";
  m.last().state = 'R';
  m.entries[1].name = "solver";
  CHECK(shown(m.pids({5})) == "6=1");  // the shell of the other rank works, and is no rank by that
}

TEST_CASE("a script is replaced by the only training program below it") {
  Machine m;
  m.add(5, 1, "sh", torch(1));
  m.add(6, 5, "python3", torch(1));
  m.add(7, 5, "tee", torch(1));
  m.add(8, 6, "pt_data_worker", torch(1));
  CHECK(shown(m.pids({5})) == "5=1 6<5 8<5 7<5");
  m.trainers = {6, 8};
  CHECK(shown(m.pids({5})) == "6=1 8<6");
  CHECK(shown(m.job()) == "6=1 8<6");
  m.trainers = {5, 6, 8};
  CHECK(shown(m.pids({5})) == "5=1 6<5 8<5 7<5");
  m.trainers = {6, 7};  // it is not known which of them is the rank
  CHECK(shown(m.pids({5})) == "5=1 6<5 8<5 7<5");
}

TEST_CASE("ranks that a rank has started are ranks") {
  Machine m;
  m.add(5, 1, "python3", torch(0));
  m.add(6, 5, "python3", torch(0));  // a helper: the same rank
  m.add(7, 5, "python3", torch(1));
  CHECK(shown(m.pids({5})) == "5=0 6<5 7=1");
}

TEST_CASE("a pid named twice, as a child and by itself, is one rank") {
  Machine m;
  m.add(5, 1, "python3");
  m.add(6, 5, "python3");
  CHECK(shown(m.pids({5, 6, 5})) == "5 6");
}

TEST_CASE("a rank's worker that is named as well stays its child, in any order") {
  Machine m;
  m.add(5, 1, "python3", torch(0));
  m.add(6, 5, "python3", torch(0));
  m.add(7, 6, "python3", torch(0));
  m.add(8, 5, "python3", torch(1));
  CHECK(shown(m.pids({5, 6, 7, 8})) == "5=0 6<5 7<5 8=1");
  CHECK(shown(m.pids({7, 6, 8, 5})) == "7<5 6<5 8=1 5=0");
  CHECK(shown(m.pids({6})) == "6=0 7<6");  // given alone, it is looked at itself
}

TEST_CASE("a pid without a process stays in the plan, so that the report can say so") {
  Machine m;
  CHECK(shown(m.pids({77})) == "77");
}

TEST_CASE("the pid of srun means the tasks of its job") {
  Machine m;
  m.add(3, 1, "srun", {{"SLURM_JOB_ID", "9"}});
  m.add(4, 1, "slurmstepd");
  m.add(5, 4, "python3", {{"SLURM_PROCID", "0"}, {"SLURM_JOB_ID", "9"}});
  m.add(6, 4, "python3", {{"SLURM_PROCID", "1"}, {"SLURM_JOB_ID", "9"}});
  m.add(7, 4, "python3", {{"SLURM_PROCID", "0"}, {"SLURM_JOB_ID", "8"}});
  CHECK(shown(m.pids({3})) == "5=0 6=1");
}

TEST_CASE("this tool, and a process that only waits for it, is no rank of a job") {
  const Environment shell = {{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "1"}};
  Machine m;
  m.add(5, 1, "bash", shell);
  m.add(6, 5, "timeout", shell);
  m.add(kSelf, 6, "rankstacks", shell);
  m.last().start_ticks = 1000;
  CHECK(shown(m.job()) == "");
  SECTION("the reader of its output is none either") {
    m.add(10000, 5, "less", shell);
    m.last().start_ticks = 1000;
    CHECK(shown(m.job()) == "");
    m.last().start_ticks = 1001;
    CHECK(shown(m.job()) == "");
  }
  SECTION("ranks of the same shell are found, without the shell's other children") {
    m.add(7, 5, "torchrun", shell);
    m.add(8, 7, "python3", torch(0));
    m.add(9, 8, "python3", torch(0));
    m.add(10, 7, "python3", torch(1));
    m.add(11, 5, "ssh-agent", shell);
    m.wrappers = {6};
    CHECK(shown(m.job()) == "8=0 9<8 10=1");
  }
  SECTION("a rank that has its number from the same shell is found") {
    m.add(7, 5, "python3", shell);
    m.add(8, 5, "tail", shell);
    CHECK(shown(m.job()) == "7=0");
    m.entries.erase(m.entries.end() - 2);
    CHECK(shown(m.job()) == "8=0");  // if no other process looks more like a rank
  }
}

TEST_CASE("the pids of launchers that the tool runs under mean the other ranks below them") {
  Machine m;
  m.add(4, 1, "mpirun");
  m.add(5, 4, "bash", torch(0));
  m.add(6, 4, "train", torch(1));
  m.add(7, 5, "train", torch(0));
  m.last().threads = 9;
  m.add(kSelf, 5, "rankstacks", torch(0));
  CHECK(shown(m.job()) == "6=1 7=0");
}

TEST_CASE("a rank whose watchdog has started the tool is a rank") {
  Machine m;
  m.add(5, 1, "python3", torch(0));
  m.last().threads = 30;
  m.add(6, 5, "pt_data_worker", torch(0));
  m.add(7, 5, "sh", torch(0));
  m.add(kSelf, 7, "rankstacks", torch(0));
  m.add(8, 1, "python3", torch(1));
  CHECK(shown(m.job()) == "5=0 6<5 8=1");
  CHECK(shown(m.pids({5, 8})) == "5=0 6<5 8=1");
  for (Pid pid : {5, 6, 7, kSelf}) m.environments[pid] = {{"SLURM_PROCID", "0"}};  // as in a notebook
  CHECK(shown(m.job()) == "8=1");
}

TEST_CASE("an ancestor of the tool is looked at if it is given, without the tool") {
  for (const Environment& environment : {Environment{}, torch(0)}) {
    Machine m;
    m.add(5, 1, "bash", environment);
    m.add(6, 5, "timeout", environment);
    m.add(kSelf, 6, "rankstacks", environment);
    m.wrappers = {5, 6};
    const std::string number = environment.empty() ? "" : "=0";
    CHECK(shown(m.pids({5})) == "5" + number);
    CHECK(shown(m.pids({6})) == "6" + number);
    m.add(7, 5, "sleep", environment);
    m.wrappers = {6};
    CHECK(shown(m.pids({5})) == "5" + number + " 7<5");
    CHECK(shown(m.pids({kSelf})) == "9999");  // the capture reports what it is
  }
}

TEST_CASE("a kernel thread means itself, and is no process's child") {
  Machine m;
  m.add(2, 0, "kthreadd");
  m.last().kernel_thread = true;
  m.add(3, 2, "kworker/0:0");
  m.last().kernel_thread = true;
  CHECK(shown(m.pids({2})) == "2");
}

TEST_CASE("ranks of the job that run on this machine and were not given") {
  Machine m;
  const auto of = [](int rank, const std::string& world, const std::string& port) {
    return Environment{{"RANK", std::to_string(rank)}, {"WORLD_SIZE", world}, {"MASTER_PORT", port}};
  };
  for (int r = 0; r < 4; ++r) m.add(10 + r, 1, "python3", of(r, "4", "29500"));
  m.add(20, 1, "python3", of(3, "4", "29501"));      // another job of the same size
  m.add(21, 1, "python3", of(3, "8", "29500"));      // of another size
  m.add(22, 1, "tensorboard", of(3, "4", "29500"));  // another program
  const auto unseen = [&](const std::vector<Pid>& named) {
    return find_unseen(m.pids(named), ProcessTable(m.entries), m.facts(), "node-a", 9999);
  };
  CHECK(unseen({10, 12}) == std::vector<UnseenRank>{{1, "node-a", 11}, {3, "node-a", 13}});
  CHECK(unseen({10, 11, 12, 13}).empty());
  m.entries[3].state = 'Z';
  CHECK(unseen({10, 11, 12}).empty());
}

TEST_CASE("a cycle in a process table that was not read in one instant ends") {
  Machine m;
  m.add(5, 6, "a");
  m.add(6, 5, "b");
  CHECK_FALSE(m.pids({5}).empty());
}

TEST_CASE("how many ranks are on the machine of a rank") {
  const auto stated = [](std::map<std::string, std::string> environment) {
    environment.insert({{"RANK", "3"}, {"WORLD_SIZE", "8"}});
    return identity_from_environment(environment).local_world_size;
  };
  CHECK(stated({{"LOCAL_WORLD_SIZE", "4"}, {"MASTER_ADDR", "10.0.0.1"}}) == 4);
  CHECK_FALSE(stated({{"MASTER_ADDR", "10.0.0.1"}}));
  CHECK_FALSE(stated({}));
  // An address that no other machine can reach.
  CHECK(stated({{"MASTER_ADDR", "127.0.0.1"}}) == 8);
  CHECK(stated({{"MASTER_ADDR", "localhost"}}) == 8);
  CHECK(stated({{"MASTER_ADDR", "::1"}}) == 8);
  CHECK(stated({{"JAX_COORDINATOR_ADDRESS", "127.0.0.1:1234"}}) == 8);
  CHECK(identity_from_environment({{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}})
            .local_world_size == 2);
}

TEST_CASE("rank numbers come from one launcher's variables, the nearest to the program") {
  CHECK(identity_from_environment({{"RANK", "3"}, {"WORLD_SIZE", "8"}, {"SLURM_PROCID", "0"}}).rank == 3);
  CHECK(identity_from_environment(
            {{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "4"}, {"OMPI_COMM_WORLD_LOCAL_RANK", "1"}})
            .local_rank == 1);
  CHECK(identity_from_environment({{"PMI_RANK", "2"}, {"PMI_SIZE", "4"}}).world_size == 4);
  CHECK(identity_from_environment({{"PMIX_RANK", "2"}, {"SLURM_PROCID", "2"}, {"SLURM_NTASKS", "16"}}).world_size ==
        16);
  CHECK(identity_from_environment({{"SLURM_PROCID", "5"}, {"SLURM_NTASKS", "6"}, {"SLURM_LOCALID", "1"}}).rank == 5);
  CHECK(identity_from_environment({{"MV2_COMM_WORLD_RANK", "7"}}).rank == 7);
  CHECK(identity_from_environment({{"HOROVOD_RANK", "3"}, {"HOROVOD_SIZE", "4"}}).world_size == 4);
  CHECK(identity_from_environment({{"JAX_PROCESS_ID", "1"}, {"JAX_NUM_PROCESSES", "2"}}).world_size == 2);
  CHECK(identity_from_environment({{"JOB_COMPLETION_INDEX", "6"}}).rank == 6);
  CHECK_FALSE(identity_from_environment({{"RANK", "first"}}).rank);
  CHECK_FALSE(identity_from_environment({{"RANK", "-1"}}).rank);
  CHECK_FALSE(identity_from_environment({{"RANK", "99999999999"}}).rank);
  CHECK_FALSE(identity_from_environment({{"WORLD_SIZE", "4"}}).rank);
}

TEST_CASE("TensorFlow: a task's place in TF_CONFIG") {
  const auto of = [](const std::string& text, Environment environment = {}) {
    environment["TF_CONFIG"] = text;
    return identity_from_environment(environment);
  };
  const auto task = [](const std::string& type, const std::string& index) {
    return R"({"cluster": {"ps": ["p:1", "q:1"], "worker": ["b:2", "c:2"], "chief": ["a:2"], "evaluator": ["e:2"]},
               "task": {"type": ")" +
           type + R"(", "index": )" + index + R"(}, "environment": "cloud", "rpc_layer": "grpc"})";
  };
  const RankIdentity chief = of(task("chief", "0")), worker = of(task("worker", "1"));
  CHECK((chief.rank == 0 && chief.world_size == 3 && !chief.local_world_size));
  CHECK((worker.rank == 2 && worker.world_size == 3 && worker.precedence == RankIdentity::kTensorflow));
  CHECK(of(task("worker", "\"1\"")).rank == 2);  // TensorFlow takes it as well
  for (const char* none : {"ps", "evaluator", "", "driver"}) CHECK_FALSE(of(task(none, "0")).rank);
  for (const char* wrong : {"2", "-1", "1.5", "null", "99999999999999999999", "18446744073709551616", "[0]"})
    CHECK_FALSE(of(task("worker", wrong)).rank);
  // Without a chief; all on this machine.
  const RankIdentity local =
      of(R"({"task": {"index": 1, "type": "worker"}, "cluster": {"worker": ["localhost:1", "127.0.0.1:2"]}})");
  CHECK((local.rank == 1 && local.world_size == 2 && local.local_world_size == 2));
  // Any other variable goes first; of the same number the size counts.
  CHECK(of(task("worker", "1"), {{"RANK", "0"}}).rank == 0);
  CHECK_FALSE(of(task("worker", "1"), {{"RANK", "0"}}).world_size);
  CHECK(of(task("worker", "1"), {{"JOB_COMPLETION_INDEX", "2"}}).world_size == 3);
  // The number of a pod is none of a task that is no rank.
  for (const char* none : {"ps", "evaluator"}) {
    CHECK_FALSE(of(task(none, "0"), {{"JOB_COMPLETION_INDEX", "2"}}).rank);
    CHECK(of(task(none, "0"), {{"RANK", "2"}}).rank == 2);
  }
  CHECK(of(R"({"task": {"type": "ps", "index": 0}})", {{"JOB_COMPLETION_INDEX", "2"}}).rank == 2);  // of no cluster
  CHECK(of(R"({"cluster": {"worker": ["a:1"], "worker": ["b:1", "c:1"]}, "task": {"type": "worker", "index": 1}})")
            .world_size == 2);
}

TEST_CASE("TensorFlow: a TF_CONFIG that is none") {
  const auto has_rank = [](const std::string& text) {
    return identity_from_environment({{"TF_CONFIG", text}}).rank.has_value();
  };
  const std::string task = R"("task": {"type": "worker", "index": 0})";
  const std::string good = R"({"cluster": {"worker": ["a:1"]}, )" + task;
  CHECK(has_rank(good + "}"));
  for (const std::string& text : std::vector<std::string>{
           "", "{", "{}", "null", "[]", "7", "\"worker\"", "\xff", good, "{" + task + "}",
           R"({"cluster": [["a:1"]], )" + task + "}", R"({"cluster": {"worker": []}, )" + task + "}",
           R"({"cluster": {"worker": "a:1"}, )" + task + "}", R"({"cluster": {"worker": [["a:1"]]}, )" + task + "}",
           R"({"cluster": {"worker": ["a:1"]}, "task": "worker"})",
           R"([{"cluster": {"worker": ["a:1"]}, )" + task + "}]"})
    CHECK_FALSE(has_rank(text));
  CHECK(has_rank(good + R"(, "x": [[[[1]]]]})"));
  CHECK_FALSE(has_rank(good + ", \"x\": " + std::string(100'000, '[') + std::string(100'000, ']') + "}"));
  CHECK_FALSE(has_rank(good + ", \"x\": " + std::string(100'000, '[')));
  CHECK_FALSE(has_rank(good + ", \"x\": \"" + std::string(2 << 20, 'x') + "\"}"));
}

TEST_CASE("what a framework has in memory says more than the environment") {
  const auto of = [](std::map<std::string, std::string> environment) { return identity_from_environment(environment); };
  const RankIdentity jax = of({{"jax:process_id", "3"}, {"jax:num_processes", "4"}, {"SLURM_PROCID", "0"}});
  CHECK((jax.rank == 3 && jax.world_size == 4 && !jax.local_world_size));
  CHECK(of({{"jax:process_id", "3"}, {"jax:num_processes", "4"}, {"jax:coordinator_address", "localhost:99"}})
            .local_world_size == 4);
  // The number of a machine, from which the program has made those of its ranks.
  CHECK(of({{"torch:rank", "9"}, {"torch:world_size", "16"}, {"RANK", "1"}, {"WORLD_SIZE", "2"}}).rank == 9);
  const RankIdentity both = of({{"torch:rank", "1"}, {"torch:world_size", "2"}, {"RANK", "1"}, {"LOCAL_RANK", "1"}});
  CHECK((both.world_size == 2 && both.local_rank == 1 && both.precedence == RankIdentity::kFirstOfEnvironment));
}

TEST_CASE("ranks that only memory numbers, in a shell that has a number too") {
  Machine m;
  const Environment shell = {{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "1"}};
  m.add(5, 1, "python3", shell);
  for (int r = 0; r < 3; ++r) {
    Environment e = shell;
    e["torch:rank"] = std::to_string(r);
    e["torch:world_size"] = "3";
    m.add(10 + r, 5, "python3", e);
    m.add(20 + r, 10 + r, "python3", shell);                          // a helper with the shell's environment
    m.add(30 + r, 10 + r, "pt_data_worker", m.environments[10 + r]);  // forked: with the rank's memory
  }
  CHECK(shown(m.pids({5})) == "10=0 20<10 30<10 11=1 21<11 31<11 12=2 22<12 32<12");
  CHECK(shown(m.job()) == shown(m.pids({5})));
}

TEST_CASE("a server's workers, and what directs them") {
  Machine m;
  m.add(5, 1, "vllm");
  m.add(6, 5, "VLLM::EngineCor");
  m.titles[6] = "VLLM::EngineCore";
  for (int r = 0; r < 2; ++r) {
    m.add(10 + r, 6, "VLLM::Worker_TP", {{"SLURM_PROCID", "0"}});
    m.titles[10 + r] = "VLLM::Worker_TP" + std::to_string(r);
  }
  m.add(20, 10, "python3", {{"SLURM_PROCID", "0"}});
  CHECK(shown(m.pids({5})) == "10=0 20<10 11=1 6");
  CHECK(shown(m.pids({6})) == "10=0 20<10 11=1 6");
  CHECK(shown(m.pids({10, 11})) == "10=0 20<10 11=1");
  CHECK(shown(m.job()) == "10=0 20<10 11=1 6");
  m.entries.resize(2);  // the engine runs the model itself
  CHECK(shown(m.pids({5})) == "6");
}

TEST_CASE("Ray's actors below a driver, unless they have numbers") {
  Machine m;
  m.add(5, 1, "python3");
  m.add(6, 5, "raylet");
  for (const auto& [pid, title] : {std::pair(10, "ray::Trainer.train"), {11, "ray::Trainer"}, {12, "ray::IDLE"}}) {
    m.add(pid, 6, "ray");
    m.titles[pid] = title;
  }
  CHECK(shown(m.pids({5})) == "10 11");
  m.environments[10] = torch(0);
  m.environments[11] = torch(1);
  CHECK(shown(m.pids({5})) == "10=0 11=1");
  CHECK(shown(m.job()) == "10=0 11=1");
}

TEST_CASE("a core's file name may contain its rank") {
  CHECK(rank_from_file_name("/x/core.rank3.4711") == 3);
  CHECK(rank_from_file_name("train_Rank-12.core.zst") == 12);
  CHECK(rank_from_file_name("rank_0") == 0);
  CHECK_FALSE(rank_from_file_name("core.4711"));
  CHECK_FALSE(rank_from_file_name("frank-2.core"));
  CHECK_FALSE(rank_from_file_name("/rank7/core"));
}
