#include <catch2/catch.hpp>

#include "capture/job_groups.h"

#include <fmt/format.h>

#include "capture/job_names.h"
#include "support/literal_machine.h"

using namespace rankstacks;
using namespace rankstacks::capture;
using testing::Environment;
using testing::kSelf;

namespace {

struct Machine : testing::Machine {
  // A process that was started at that time.
  void start(Pid pid, Pid parent, const std::string& name, std::uint64_t ticks, Environment environment = {}) {
    add(pid, parent, name, std::move(environment));
    last().start_ticks = ticks;
  }
  std::vector<RankGroup> groups() const { return group_ranks(job(), table(), facts()); }

  // The ranks of each group by pid, in order of their numbers: "10 11 | 20".
  std::string shown() const {
    std::string text;
    for (const RankGroup& group : groups())
      text += fmt::format("{}{}", text.empty() ? "" : " | ", fmt::join(group.ranks, " "));
    return text;
  }
};

Environment rank(int number, int world, Environment more = {}) {
  more["RANK"] = std::to_string(number);
  if (world > 0) more["WORLD_SIZE"] = std::to_string(world);
  return more;
}

Environment at(const std::string& port, const std::string& address = "127.0.0.1") {
  return {{"MASTER_ADDR", address}, {"MASTER_PORT", port}};
}

Environment hydra(int number, int size) {
  return {{"PMI_RANK", std::to_string(number)}, {"PMI_SIZE", std::to_string(size)}};
}

Environment slurm(int number, int tasks, const std::string& job, const std::string& step, Environment more = {}) {
  more.insert({{"SLURM_PROCID", std::to_string(number)},
               {"SLURM_NTASKS", std::to_string(tasks)},
               {"SLURM_JOB_ID", job},
               {"SLURM_STEP_ID", step}});
  return more;
}

}  // namespace

TEST_CASE("two jobs of one launching script are distinguished by the port at which their ranks meet") {
  Machine m;
  m.add(5, 1, "bash");
  for (int r = 0; r < 2; ++r) {
    m.start(10 + r, 5, "train", 100, rank(r, 2, at("29500")));
    m.start(20 + r, 5, "train", 100, rank(r, 2, at("29501")));
  }
  CHECK(m.shown() == "10 11 | 20 21");
  CHECK(m.groups()[0].names == std::vector<std::string>{"localhost:29500"});
  CHECK(m.groups()[0].launcher == 5);
  CHECK(m.groups()[0].world_size == 2);
}

TEST_CASE("ranks of several launchers that meet are one job") {
  Machine m;
  for (int node = 0; node < 2; ++node) {
    m.start(5 + node, 1, "torchrun", 50);
    for (int r = 0; r < 2; ++r)
      m.start(10 + 10 * node + r, 5 + node, "train", 100, rank(2 * node + r, 4, at("29500", "node-a")));
  }
  CHECK(m.shown() == "10 11 20 21");
  CHECK_FALSE(m.groups()[0].launcher);
}

TEST_CASE("what is a loopback address for one rank and this host's name for another is one place") {
  Machine m;
  m.add(10, 1, "train", rank(0, 2, at("23456", "localhost")));
  m.add(11, 1, "train", rank(1, 2, at("23456", "job-master-0")));
  m.places[11] = {0, "net:[2]", "0::/\n", false};
  CHECK(m.shown() == "10 | 11");
  m.environments[10]["HOSTNAME"] = "job-master-0";
  CHECK(m.shown() == "10 11");
  CHECK(m.groups()[0].names == std::vector<std::string>{"job-master-0:23456"});
}

TEST_CASE("a loopback address means another place in another network namespace") {
  Machine m;
  m.add(5, 1, "start");
  for (int r = 0; r < 2; ++r) m.add(10 + r, 5, "train", rank(r, 2, at("29500")));
  m.places[11] = {0, "net:[2]", "0::/\n", false};
  CHECK(m.shown() == "10 | 11");
  m.places[11].network = "";  // it may not be read
  CHECK(m.shown() == "10 11");
  for (int r = 0; r < 2; ++r) m.environments[10 + r]["MASTER_ADDR"] = "10.0.0.1";
  m.places[11].network = "net:[2]";
  CHECK(m.shown() == "10 11");
}

TEST_CASE("nothing joins ranks of two users") {
  Machine m;
  m.add(5, 1, "start");
  for (int r = 0; r < 2; ++r) m.add(10 + r, 5, "train", rank(r, 2, at("29500")));
  m.places[11] = {1000, "net:[1]", "0::/\n", false};
  CHECK(m.shown() == "10 | 11");
  CHECK(m.groups()[1].user == 1000);
}

TEST_CASE("worlds of different sizes are different jobs") {
  Machine m;
  m.add(5, 1, "start");
  m.add(10, 5, "train", rank(0, 2));
  m.add(11, 5, "train", rank(1, 4));
  CHECK(m.shown() == "10 | 11");
  m.environments[11].erase("WORLD_SIZE");
  CHECK(m.shown() == "10 11");
}

TEST_CASE("a rank that lacks a name joins the job of its launcher") {
  Machine m;
  m.add(5, 1, "torchrun");
  m.add(10, 5, "train", rank(0, 3, at("29500")));
  m.add(11, 5, "train", rank(1, 3, at("29500")));
  m.add(12, 5, "train", rank(2, 3));
  m.add(6, 1, "torchrun");
  m.add(20, 6, "train", rank(2, 3, at("29501")));
  CHECK(m.shown() == "10 11 12 | 20");
}

TEST_CASE("leftovers of an earlier job on the same port") {
  Machine m;
  m.start(10, 1, "train", 100, rank(2, 3, at("29500")));  // its torchrun has ended
  m.start(6, 2, "torchrun", 500);
  for (int r = 0; r < 3; ++r) m.start(20 + r, 6, "train", 600 + r, rank(r, 3, at("29500")));
  CHECK(m.shown() == "10 | 20 21 22");
  m.entries.pop_back();
  SECTION("they do not fill a gap of the later job") { CHECK(m.shown() == "10 | 20 21"); }
  SECTION("they are children of the first process of a container") {
    m.start(2, 1, "entrypoint", 10);
    m.places[2] = {0, "net:[1]", "0::/\n", true};
    m.entries[0].parent = 2;
    CHECK(m.shown() == "10 | 20 21");
  }
  SECTION("ranks whose launcher was started before them may be of that job") {
    m.entries[0].start_ticks = 700;
    CHECK(m.shown() == "20 21 10");
  }
}

TEST_CASE("ranks without names or launcher are distinguished by their numbers and the time of their start") {
  Machine m;
  m.add(5, 1, "bash");
  m.start(11, 5, "train", 101, rank(1, 2));  // what is left of the first job
  m.start(20, 5, "train", 900, rank(0, 2));
  m.start(21, 5, "train", 901, rank(1, 2));
  m.start(30, 5, "train", 950, rank(0, 2));
  m.start(31, 5, "train", 951, rank(1, 2));
  CHECK(m.shown() == "11 | 20 21 | 30 31");
}

TEST_CASE("orphans of one control group are one job") {
  Machine m;
  for (int r = 0; r < 2; ++r) {
    m.start(10 + r, 1, "solver", 100, hydra(r, 2));
    m.start(20 + r, 1, "solver", 100, hydra(r, 2));
    m.places[20 + r] = {0, "net:[1]", "0::/user.slice/session-3.scope\n", false};
  }
  CHECK(m.shown() == "10 11 | 20 21");
}

TEST_CASE("jobs of MPICH have no name: each has its own proxy") {
  Machine m;
  for (int job = 0; job < 2; ++job) {
    m.start(100 + job, 1, "mpiexec", 50 + job);
    m.start(200 + job, 100 + job, "hydra_pmi_proxy", 50 + job);
    for (int r = 0; r < 3; ++r) m.start(300 + 10 * job + r, 200 + job, "solver", 60 + job, hydra(r, 3));
  }
  CHECK(m.shown() == "300 301 302 | 310 311 312");
  CHECK(m.groups()[0].names.empty());
  CHECK(m.groups()[0].launcher == 200);
}

TEST_CASE("a shell around each rank is not its launcher") {
  Machine m;
  m.add(5, 1, "mpiexec");
  for (int r = 0; r < 2; ++r) {
    m.add(10 + r, 5, "bash", hydra(r, 2));
    m.add(20 + r, 10 + r, "solver", hydra(r, 2));
    m.wrappers.push_back(10 + r);
  }
  CHECK(m.shown() == "20 21");
  CHECK(m.groups()[0].launcher == 5);
}

TEST_CASE("jobs of Open MPI are distinguished by their namespace, even with one inherited MASTER_PORT") {
  Machine m;
  const auto ompi = [](int number, const std::string& name) {
    return Environment{{"OMPI_COMM_WORLD_RANK", std::to_string(number)},
                       {"OMPI_COMM_WORLD_SIZE", "4"},
                       {"PMIX_NAMESPACE", name},
                       {"MASTER_ADDR", "localhost"},
                       {"MASTER_PORT", "29500"}};
  };
  m.add(5, 1, "bash");
  for (int r = 0; r < 2; ++r) {
    m.add(10 + r, 5, "solver", ompi(r, "3236102145"));
    m.add(20 + r, 5, "solver", ompi(2 + r, "3236102146"));
  }
  CHECK(m.shown() == "10 11 | 20 21");
}

TEST_CASE("jobs of Slurm") {
  Machine m;
  m.add(5, 1, "slurmstepd");
  m.add(6, 1, "slurmstepd");
  SECTION("two steps of one allocation are two jobs") {
    for (int r = 0; r < 2; ++r) {
      m.add(10 + r, 5, "train", slurm(r, 2, "4711", "0"));
      m.add(20 + r, 6, "train", slurm(r, 2, "4711", "1"));
    }
    CHECK(m.shown() == "10 11 | 20 21");
    CHECK(m.groups()[0].names == std::vector<std::string>{"slurm:4711.0", "slurm:4711"});
    CHECK(m.groups()[0].slurm_job == "4711");
  }
  SECTION("two jobs of one step are distinguished by their ports") {
    for (int r = 0; r < 2; ++r) {
      m.add(10 + r, 5, "train", slurm(0, 1, "4711", "0", rank(r, 2, at("29500"))));
      m.add(20 + r, 5, "train", slurm(0, 1, "4711", "0", rank(r, 2, at("29501"))));
    }
    CHECK(m.shown() == "10 11 | 20 21");
  }
  SECTION("ranks that meet are one job, although each has a step of its own") {
    for (int r = 0; r < 2; ++r)
      m.add(10 + r, 5 + r, "train", slurm(0, 1, "4711", std::to_string(r), rank(r, 2, at("29500", "node-a"))));
    CHECK(m.shown() == "10 11");
    CHECK(m.groups()[0].names == std::vector<std::string>{"slurm:4711", "node-a:29500"});
  }
  SECTION("two allocations never are one job") {
    for (int r = 0; r < 2; ++r)
      m.add(10 + r, 5, "train", slurm(0, 1, std::to_string(r), "0", rank(r, 2, at("29500", "node-a"))));
    CHECK(m.shown() == "10 | 11");
  }
  SECTION("a shell of srun's") {
    m.add(10, 5, "bash", slurm(0, 1, "4711", "0"));
    CHECK(m.groups().at(0).only_shells);
    m.last().name = "python3";
    CHECK_FALSE(m.groups().at(0).only_shells);
  }
}

TEST_CASE("two standalone torchruns are two jobs; \"none\" is no name of a run") {
  Machine m;
  m.add(5, 1, "start");
  for (int r = 0; r < 2; ++r) m.add(10 + r, 5, "train", rank(r, 2, {{"TORCHELASTIC_RUN_ID", r == 0 ? "a" : "b"}}));
  CHECK(m.shown() == "10 | 11");
  for (int r = 0; r < 2; ++r) m.environments[10 + r]["TORCHELASTIC_RUN_ID"] = "none";
  CHECK(m.shown() == "10 11");
  CHECK(m.groups()[0].names.empty());
}

TEST_CASE("ranks that a rank has started belong to its job, whatever they have set") {
  Machine m;
  m.add(5, 1, "python3", rank(0, 1, at("29500")));
  for (int r = 0; r < 4; ++r) m.add(10 + r, 5, "python3", rank(r, 4, at("12355")));
  CHECK(m.shown() == "5 11 12 13");  // 10 has the number of its parent: it is a child
}

TEST_CASE("pods of an indexed job are one job") {
  Machine m;
  for (int r = 0; r < 2; ++r) {
    m.add(5 + r, 1, "containerd-shim");
    m.add(10 + r, 5 + r, "train",
          {{"JOB_COMPLETION_INDEX", std::to_string(r)}, {"HOSTNAME", "sweep-" + std::to_string(r)}});
    m.places[10 + r] = {0, "net:[" + std::to_string(10 + r) + "]", "0::/kubepods/" + std::to_string(r) + "\n", false};
  }
  CHECK(m.shown() == "10 11");
  CHECK(m.groups()[0].names == std::vector<std::string>{"kubernetes:sweep"});
}

TEST_CASE("JAX and Horovod: the ranks' own meeting point goes before an inherited one") {
  const auto meeting = [](Environment environment) {
    environment.insert({{"MASTER_ADDR", "a"}, {"MASTER_PORT", "1"}});
    return job_names_of(environment, identity_from_environment(environment))[JobName::kMeeting];
  };
  CHECK(meeting({{"RANK", "0"}}) == "a:1");
  CHECK(meeting({{"JAX_PROCESS_ID", "0"}, {"JAX_COORDINATOR_ADDRESS", "10.0.0.1:77"}}) == "10.0.0.1:77");
  CHECK(meeting({{"JAX_PROCESS_ID", "0"}, {"JAX_COORDINATOR_ADDRESS", "[fe80::1]:77"}}) == "[fe80::1]:77");
  CHECK(meeting({{"JAX_PROCESS_ID", "0"}, {"JAX_COORDINATOR_ADDRESS", "none"}}) == "a:1");
  CHECK(
      meeting({{"HOROVOD_RANK", "0"}, {"HOROVOD_GLOO_RENDEZVOUS_ADDR", "H"}, {"HOROVOD_GLOO_RENDEZVOUS_PORT", "2"}}) ==
      "h:2");
  CHECK(meeting({{"JAX_PROCESS_ID", "0"}}) == "a:1");
  const std::string tensorflow = R"({"cluster": {"worker": ["W:3", "v:3"]}, "task": {"type": "worker", "index": 1}})";
  CHECK(meeting({{"TF_CONFIG", tensorflow}}) == "w:3");
  CHECK(meeting({{"RANK", "0"}, {"TF_CONFIG", tensorflow}}) == "a:1");
}

TEST_CASE("what is no port names no meeting point") {
  for (const char* port : {"", "0", "65536", "x", "29500 "}) {
    const Environment environment = rank(0, 2, at(port));
    CHECK(job_names_of(environment, identity_from_environment(environment))[JobName::kMeeting].empty());
  }
  const Environment alone = rank(0, 2, {{"MASTER_PORT", "29500"}});
  CHECK(job_names_of(alone, identity_from_environment(alone))[JobName::kMeeting] == "localhost:29500");
}

TEST_CASE("names as they are shown") {
  CHECK(shown_job_name(JobName::kSlurmStep, "4711.0") == "slurm:4711.0");
  CHECK(shown_job_name(JobName::kPmix, "prterun-host-77@1") == "pmix:prterun-host-77@1");
  CHECK(shown_job_name(JobName::kMeeting, "[::2]:1") == "[::2]:1");
  CHECK(shown_job_name(JobName::kRay, "").empty());
  // Hostile ones: nothing for a terminal or a shell, no other form of --job, and two never look alike.
  CHECK(shown_job_name(JobName::kTorchelastic, "a\x1b[31m$(x)\n") == "torchelastic:a__31m__x__~926fb928");
  CHECK(shown_job_name(JobName::kTorchelastic, "a b") != shown_job_name(JobName::kTorchelastic, "a\tb"));
  const std::string a(100, 'a');
  CHECK(shown_job_name(JobName::kTorchelastic, a).size() == std::string("torchelastic:").size() + 48 + 9);
  CHECK(shown_job_name(JobName::kTorchelastic, a) != shown_job_name(JobName::kTorchelastic, a + "a"));
  CHECK(shown_job_name(JobName::kMeeting, "pid:29500").empty());
  CHECK(shown_job_name(JobName::kMeeting, "user:29500").empty());
  CHECK(shown_job_name(JobName::kMeeting, "-x:29500").empty());
}

TEST_CASE("thousands of ranks with one number are grouped in a moment") {
  Machine m;
  for (int i = 0; i < 20000; ++i) m.start(10000 + i, 1, "train", 100, rank(0, 2, at("29500")));
  CHECK(m.groups().size() == 20000);
}
