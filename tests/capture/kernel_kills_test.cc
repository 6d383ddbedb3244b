// Which lines of the kernel's log may be of processes that a job lacks.
#include <unistd.h>
#include <catch2/catch.hpp>

#include "capture/kernel_kills.h"

using namespace rankstacks;
using namespace rankstacks::capture;
using Cause = KernelKill::Cause;

namespace {

KernelKill kill_of(const std::string& name, Pid pid = 7) {
  return {.host = "", .pid = pid, .name = name, .cause = Cause::kOutOfMemory, .at = "", .text = ""};
}

// Rank 0 of two on node-a, started 100 s after boot, with two threads.
JobSnapshot one_of_two() {
  JobSnapshot job;
  RankSnapshot& rank = job.ranks.emplace_back();
  rank.rank = 0, rank.world_size = 2, rank.host = "node-a", rank.pid = 4711;
  rank.executable = "/usr/bin/python3.11";
  rank.start_ticks = 100 * static_cast<std::uint64_t>(sysconf(_SC_CLK_TCK));
  rank.threads.resize(2);
  rank.threads[0].name = "pt_main_thread", rank.threads[1].name = "pt_autograd_0";
  return job;
}

std::vector<std::string> names(const std::vector<KernelKill>& kills) {
  std::vector<std::string> all;
  for (const KernelKill& kill : kills) all.push_back(kill.name);
  return all;
}

}  // namespace

TEST_CASE("the log is read if somebody is missing") {
  JobSnapshot job = one_of_two();
  CHECK(lacks_processes(job));
  job.not_looked_at = {{1, "node-a", 4712, {}}};
  CHECK_FALSE(lacks_processes(job));
  job.not_looked_at.clear();
  job.ranks[0].local_world_size = 1;  // the other one is on another machine
  CHECK_FALSE(lacks_processes(job));
  job.ranks[0].threads[0].state = 'Z';
  CHECK(lacks_processes(job));
  job.ranks[0].threads[0].state = 'S';
  job.ranks[0].status = Status::kFailed;
  CHECK(lacks_processes(job));
}

TEST_CASE("lines since the job's start, with names that its threads have") {
  const auto kills = kills_in_job(one_of_two(), "node-a",
                                  {{50, kill_of("pt_main_thread")},
                                   {150, kill_of("pt_main_thread")},
                                   {151, kill_of("pt_autograd_0")},
                                   {152, kill_of("python3.11")},
                                   {153, kill_of("firefox")}});
  CHECK(names(kills) == std::vector<std::string>{"pt_main_thread", "pt_autograd_0", "python3.11"});
  CHECK(kills[0].host == "node-a");
  CHECK(kills_in_job(one_of_two(), "node-b", {{150, kill_of("pt_main_thread")}}).empty());
}

TEST_CASE("the newest lines") {
  std::vector<std::pair<double, KernelKill>> logged;
  for (Pid pid = 1; pid <= 40; ++pid) logged.emplace_back(200 + pid, kill_of("pt_main_thread", pid));
  const auto kills = kills_in_job(one_of_two(), "node-a", logged);
  REQUIRE(kills.size() == 16);
  CHECK(kills.back().pid == 40);
}
