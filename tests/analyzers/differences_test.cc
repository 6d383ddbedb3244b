#include "analyzers/differences.h"

#include <catch2/catch.hpp>

#include "analyzers/analysis.h"
#include "analyzers/difference_words.h"
#include "analyzers/own_value.h"
#include "known/components.h"
#include "known/settings.h"
#include "support/literal_job.h"

using namespace rankstacks;
using namespace rankstacks::analyzers;
using namespace rankstacks::testing;

namespace {

// Ranks that have an environment, four on each host, all alike.
LiteralJob alike(int ranks) {
  LiteralJob literal;
  for (int r = 0; r < ranks; ++r) {
    RankSnapshot& rank = literal.rank(r, ranks, waits_in_all_reduce());
    rank.host = r < 4 ? "node-a" : r < 8 ? "node-b" : "node-c";
    rank.local_rank = r % 4;
    rank.modules = {{"NCCL", "/v/libnccl.so.2", "aa11", "2.28.9", VersionFrom::kText, "13.0"},
                    {"torch", "/v/libtorch_cpu.so", "bb22", "2.11.0", VersionFrom::kMetadata, "13.0"}};
    ProcessEnvironment& environment = rank.environment.emplace();
    environment.variables_known = true;
    environment.variables = {{"NCCL_DEBUG", "INFO"}};
    environment.kernel = "6.8.0";
    environment.cpus = "0-15";
    environment.limits = {{"open-files", 1024, 4096}};
  }
  return literal;
}

std::vector<std::string> words(const JobSnapshot& job) {
  std::vector<std::string> lines;
  for (const Difference& difference : find_differences(job)) lines.push_back(describe(job, difference));
  return lines;
}

using Lines = std::vector<std::string>;

void set(RankSnapshot& rank, const std::string& name, const std::string& value) {
  auto& variables = rank.environment->variables;
  std::erase_if(variables, [&](const auto& one) { return one.first == name; });
  variables.emplace_back(name, value);
  std::sort(variables.begin(), variables.end());
}

}  // namespace

TEST_CASE("ranks that are alike differ in nothing") {
  CHECK(words(alike(8).job).empty());
  CHECK(words(LiteralJob().job).empty());
}

TEST_CASE("a version of a few ranks comes first, by host where a host has but one") {
  LiteralJob literal = alike(12);
  for (int r = 4; r < 8; ++r) literal.job.ranks[r].modules.edit()[0].version = "2.27.3";
  CHECK(words(literal.job) == Lines{"NCCL 2.27.3 on node-b (ranks 4-7), 2.28.9 on the 8 others"});
  literal.job.ranks[0].modules.edit()[0].version = "2.27.3";
  CHECK(words(literal.job) == Lines{"NCCL 2.27.3 on ranks 0,4-7, 2.28.9 on the 7 others"});
  const Difference difference = find_differences(literal.job).at(0);
  CHECK(difference.kind == DifferenceKind::kVersion);
  CHECK(difference.concerns_communication);
  CHECK(difference.sides ==
        std::vector<DifferenceSide>{{"2.27.3", {0, 4, 5, 6, 7}}, {"2.28.9", {1, 2, 3, 8, 9, 10, 11}}});
}

TEST_CASE("two ranks, each with its version, are both named") {
  LiteralJob literal = alike(2);
  literal.job.ranks[1].modules.edit()[1].version = "2.10.0";
  CHECK(words(literal.job) == Lines{"torch 2.10.0 on rank 1, 2.11.0 on rank 0"});
}

TEST_CASE("a version that says less, or that is not known, does not differ") {
  LiteralJob literal = alike(4);
  literal.job.ranks[1].modules.edit()[1].version = "2.11";
  literal.job.ranks[2].modules.edit()[0].version = "";
  literal.job.ranks[3].modules.clear();  // not loaded yet
  CHECK(words(literal.job).empty());
  literal.job.ranks[1].modules.edit()[1].version = "2.1";
  CHECK(words(literal.job) == Lines{"torch 2.1 on rank 1, 2.11.0 on the 2 others"});
}

TEST_CASE("another build of the same version is a difference") {
  LiteralJob literal = alike(4);
  literal.job.ranks[2].modules.edit()[0].build_id = "cc33dd44ee55ff66";
  CHECK(words(literal.job) == Lines{"NCCL: build cc33dd44 on rank 2, aa11 on the 3 others"});
}

TEST_CASE("variables: on one rank only, another value, none") {
  LiteralJob literal = alike(4);
  set(literal.job.ranks[3], "NCCL_ALGO", "Ring");
  set(literal.job.ranks[2], "NCCL_DEBUG", "WARN");
  literal.job.ranks[1].environment->variables.emplace_back("OMP_NUM_THREADS", "");
  CHECK(words(literal.job) == Lines{"NCCL_ALGO=Ring on rank 3, not set on the 3 others",
                                    "NCCL_DEBUG=WARN on rank 2, INFO on the 3 others",
                                    "OMP_NUM_THREADS=\"\" on rank 1, not set on the 3 others"});
  literal.job.ranks[1].environment->variables_known = false;
  literal.job.ranks[1].environment->variables.clear();
  CHECK(words(literal.job).size() == 2);
}

TEST_CASE("values that differ by their nature are no differences") {
  LiteralJob literal = alike(8);
  for (int r = 0; r < 8; ++r) {
    RankSnapshot& rank = literal.job.ranks[r];
    const std::string number = std::to_string(r), local = std::to_string(r % 4);
    set(rank, "CUDA_VISIBLE_DEVICES", local);
    set(rank, "NCCL_DEBUG_FILE", "/log/" + number);
    set(rank, "GLOO_LOG", "/opt/cuda-12.0/1/" + number);
    set(rank, "TORCH_HOME", "/scratch/rank-" + number + "/" + rank.host);
    set(rank, "UCX_TCP_CM_ADDRESS", "10.0.0.1:" + std::to_string(29500 + r));
    set(rank, "PYTHONUSERBASE", "/tmp/local" + local);
    set(rank, "CUDA_LOG_FILE", "/tmp/x." + std::to_string(rank.pid));
  }
  CHECK(words(literal.job).empty());
  set(literal.job.ranks[6], "TORCH_HOME", "/scratch/rank-5/node-b");
  CHECK(words(literal.job).size() == 1);
}

TEST_CASE("a quantity does not name its rank") {
  LiteralJob literal = alike(2);
  for (int r = 0; r < 2; ++r) set(literal.job.ranks[r], "OMP_NUM_THREADS", std::to_string(r));
  CHECK(words(literal.job) == Lines{"OMP_NUM_THREADS=0 on rank 0, 1 on rank 1"});
  CHECK(differ_by_own_names_alone(literal.job, {0, 1}, {"h:29500", "h:29501"}));
  CHECK_FALSE(differ_by_own_names_alone(literal.job, {0, 1}, {"h:29500", "h:29502"}));
  CHECK_FALSE(differ_by_own_names_alone(literal.job, {0, 1}, {"/a/0/11", "/a/1"}));
  CHECK(differ_by_own_names_alone(literal.job, {}, {}));
}

TEST_CASE("every rule of values that differ by their nature is of a setting, and says why") {
  CHECK(!known::own_value_rules().empty());
  for (const known::OwnValueRule& rule : known::own_value_rules()) {
    CAPTURE(rule.name);
    CHECK(known::is_setting(rule.name));
    CHECK(!rule.why.empty());
    CHECK(known::own_value_rule(rule.name) == &rule);
  }
  for (const char* name : {"NCCL_DEBUG", "TORCH_NCCL_BLOCKING_WAIT", "CUDA_HOME", "OMP_NUM_THREADS",
                           "GLOO_SOCKET_IFNAME", "UCX_TLS", "FI_PROVIDER", "PYTHONPATH"})
    CHECK(known::is_setting(name));
  for (const char* name :
       {"AWS_SECRET_ACCESS_KEY", "PATH", "TORCHELASTIC_RUN_ID", "HF_TOKEN", "NCCL_\x1b[31m", "NCCL_A=B"})
    CHECK_FALSE(known::is_setting(name));
}

TEST_CASE("every rule of components is found by a file of its name, and has a source") {
  for (const known::ComponentRule& rule : known::component_rules()) {
    CAPTURE(rule.component, rule.file);
    const auto* found = known::component_of(std::string(rule.file) + "x");
    REQUIRE(found != nullptr);
    const auto rules = known::rules_of_file(*found);
    CHECK(std::any_of(rules.begin(), rules.end(), [&](const known::ComponentRule& one) { return &one == &rule; }));
    CHECK(!rule.source.empty());
  }
  CHECK(known::component_of("libm.so.6") == nullptr);
}

TEST_CASE("kernels, distributions, containers, limits, processors and clocks") {
  LiteralJob literal = alike(8);
  for (int r = 0; r < 8; ++r) {
    ProcessEnvironment& environment = *literal.job.ranks[r].environment;
    const bool b = r >= 4;
    environment.kernel = b ? "6.1.0" : "6.8.0";
    environment.distribution = b ? "Debian GNU/Linux 12" : "Ubuntu 24.04";
    environment.container = b ? "" : "docker";
    environment.gpu_driver = b ? "535.1" : "580.95.05";
    environment.limits = {{"open-files", 1024, 4096}, {"stack-size", b ? 8388608u : 16777216u, {}}};
    environment.cgroup = CgroupLimits{b ? std::optional<std::uint64_t>(std::uint64_t{16} << 30) : std::nullopt, {}, {}};
    environment.clock = ClockState{!b, 0, 1000};
  }
  literal.job.ranks[2].environment->cpus = "3";
  const auto sides = [](const std::string& a, const std::string& b) {
    return a + " on node-a (ranks 0-3), " + b + " on node-b (ranks 4-7)";
  };
  const auto sides_b = [](const std::string& a, const std::string& b) {
    return a + " on node-b (ranks 4-7), " + b + " on node-a (ranks 0-3)";
  };
  CHECK(words(literal.job) ==
        Lines{sides_b("GPU driver 535.1", "580.95.05"), sides_b("Linux 6.1.0", "6.8.0"),
              sides_b("distribution: Debian GNU/Linux 12", "Ubuntu 24.04"), sides("container: docker", "none"),
              sides("limit of stack size: 16 MiB", "8 MiB"), sides("memory of the control group: unlimited", "16 GiB"),
              "CPUs to run on: 1 on rank 2, 16 on the 7 others", sides_b("clock: not synchronized", "synchronized")});
}

TEST_CASE("affinities of local ranks are no differences, their sizes are") {
  LiteralJob literal = alike(4);
  for (int r = 0; r < 4; ++r)
    literal.job.ranks[r].environment->cpus = std::to_string(4 * r) + "-" + std::to_string(4 * r + 3);
  CHECK(words(literal.job).empty());
  literal.job.ranks[1].environment->cpus = "4";
  CHECK(words(literal.job) == Lines{"CPUs to run on: 1 on rank 1, 4 on the 3 others"});
}

TEST_CASE("a driver that is too old for the CUDA runtime, or of another version than its library") {
  LiteralJob literal = alike(4);
  for (RankSnapshot& rank : literal.job.ranks) {
    rank.modules.push_back({"CUDA runtime", "/v/libcudart.so.13", "", "13.0.88", VersionFrom::kMetadata, ""});
    rank.modules.push_back(
        {"CUDA driver", "/usr/lib/libcuda.so.580.95.05", "", "580.95.05", VersionFrom::kFileName, ""});
    rank.environment->gpu_driver = "580.95.05";
  }
  CHECK(words(literal.job).empty());
  literal.job.ranks[3].modules.edit().back().version = "535.104.12";
  literal.job.ranks[3].environment->gpu_driver = "535.104.12";
  CHECK(words(literal.job) == Lines{"CUDA driver 535.104.12 on rank 3, 580.95.05 on the 3 others",
                                    "GPU driver 535.104.12 on rank 3, 580.95.05 on the 3 others",
                                    "driver 535.104.12 is too old for CUDA 13.0.88, which needs 580: rank 3"});
  literal.job.ranks[3].modules.edit().back().version = "580.95.05";
  CHECK(words(literal.job).back() == "libcuda 580.95.05 with the kernel's driver 535.104.12: rank 3");
  literal.job.ranks[3].modules.edit().back().path = "/usr/local/cuda-13.0/compat/libcuda.so.580.95.05";
  CHECK(words(literal.job) == Lines{"GPU driver 535.104.12 on rank 3, 580.95.05 on the 3 others"});
}

TEST_CASE("the driver that NVML names, where the process's environment is not known") {
  LiteralJob literal;
  for (int r = 0; r < 3; ++r) {
    GpuSnapshot& gpu = literal.rank(r, 3, waits_in_all_reduce()).gpus.emplace_back();
    gpu.health.emplace().driver = r == 1 ? "535.104.12" : "580.95.05";
  }
  CHECK(words(literal.job) == Lines{"GPU driver 535.104.12 on rank 1, 580.95.05 on the 2 others"});
}

TEST_CASE("children, and dumps of other tools, are not compared") {
  LiteralJob literal = alike(2);
  RankSnapshot& child = literal.child(100, {});
  child.modules = {{"NCCL", "/v/libnccl.so.2", "", "1.0.0", VersionFrom::kText, ""}};
  child.environment.emplace().variables_known = true;
  literal.rank(2, 3, waits_in_all_reduce()).source = Source::kDump;
  CHECK(words(literal.job).empty());
}

TEST_CASE("a core states the numbers of the kernel's version alone") {
  LiteralJob literal = alike(2);
  literal.job.ranks[1].source = Source::kCore;
  literal.job.ranks[1].environment->kernel = "6.8.12";
  CHECK(words(literal.job).empty());
}

TEST_CASE("a healthy or hanging job with differences has the verdict that it has without") {
  LiteralJob plain = alike(4);
  plain.job.ranks[2].threads[0].frames.clear();
  for (const Frame& frame : in_getitem())
    plain.job.ranks[2].threads[0].frames.push_back(plain.job.frames.intern(frame));
  const Verdict before = analyze(plain.job).verdict;
  CHECK(before.status == VerdictStatus::kCulprit);
  plain.job.ranks[1].modules.edit()[0].version = "2.0.0";
  const Analysis after = analyze(plain.job);
  CHECK(after.differences.size() == 1);
  CHECK(after.verdict.summary == before.summary);
  CHECK(after.verdict.differences.empty());
  CHECK(after.verdict.suspects.size() == before.suspects.size());
}

TEST_CASE("an undecided verdict mentions what may be the cause, and nothing else") {
  LiteralJob literal = alike(1);
  CHECK(analyze(literal.job).verdict.differences.empty());
  LiteralJob pair = alike(2);
  for (RankSnapshot& rank : pair.job.ranks) rank.threads.clear();
  const Verdict before = analyze(pair.job).verdict;
  REQUIRE(before.status == VerdictStatus::kUndecided);
  pair.job.ranks[0].environment->kernel = "5.0.0";
  CHECK(analyze(pair.job).verdict.summary == before.summary);
  pair.job.ranks[0].modules.edit()[0].version = "2.27.3";
  const Verdict after = analyze(pair.job).verdict;
  CHECK(after.status == before.status);
  CHECK(after.summary == before.summary + "; note: NCCL 2.27.3 on rank 0, 2.28.9 on rank 1");
  CHECK(after.differences == std::vector<std::size_t>{0});
}

TEST_CASE("where all ranks are stuck in the same, what differs between them may be the cause") {
  LiteralJob literal = alike(4);
  REQUIRE(analyze(literal.job).verdict.status == VerdictStatus::kSymmetric);
  set(literal.job.ranks[2], "NCCL_ALGO", "Ring");
  const Verdict verdict = analyze(literal.job).verdict;
  CHECK(verdict.status == VerdictStatus::kSymmetric);
  CHECK(verdict.suspects.empty());
  CHECK(verdict.differences == std::vector<std::size_t>{0});
  CHECK(verdict.summary.ends_with("; note: NCCL_ALGO=Ring on rank 2, not set on the 3 others"));
}

TEST_CASE("versions in one line, with a mark where ranks differ") {
  LiteralJob literal = alike(4);
  CHECK(describe_versions(LiteralJob().job).empty());
  CHECK(describe_versions(literal.job) == "torch 2.11.0, NCCL 2.28.9, CUDA 13.0, Python 3.11.2; Linux 6.8.0");
  literal.job.ranks[1].modules.edit()[0].version = "2.27.3";
  CHECK(describe_versions(literal.job) == "torch 2.11.0, NCCL 2.28.9*, CUDA 13.0, Python 3.11.2; Linux 6.8.0");
}

TEST_CASE("versions in one line, of dumps whose frames' paths state them") {
  LiteralJob literal = alike(2);
  for (RankSnapshot& rank : literal.job.ranks) {
    rank.environment.reset();
    rank.python_version = "";
    rank.modules = {{"Python", "/usr/bin/python3.11", "", "3.11", VersionFrom::kFileName, ""},
                    {"torch", "libtorch_cpu.so.1.13", "", "1.13", VersionFrom::kFileName, ""}};
  }
  CHECK(describe_versions(literal.job) == "torch 1.13, Python 3.11 (by the names of files)");
  // Another rank's report says more, and the same.
  literal.job.ranks[1].python_version = "3.11.2";
  CHECK(describe_versions(literal.job) == "torch 1.13, Python 3.11* (libraries: by the names of files)");
  literal.job.ranks[1].environment.emplace();
  CHECK(find_differences(literal.job).empty());
  CHECK(describe_versions(literal.job).find("names of files") == std::string::npos);
}

TEST_CASE("a made-up report with many names takes bounded time") {
  LiteralJob literal = alike(64);
  for (std::size_t r = 0; r < 64; ++r)
    for (int n = 0; n < 200; ++n) {
      literal.job.ranks[r].environment->variables.emplace_back("NCCL_X" + std::to_string(1000 * r + n), "1");
      literal.job.ranks[r].modules.push_back({"c" + std::to_string(1000 * r + n), "/x", "", std::to_string(r), {}, ""});
    }
  CHECK(find_differences(literal.job).size() <= 512);
}
