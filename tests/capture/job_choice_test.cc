#include <catch2/catch.hpp>

#include "capture/job_choice.h"

#include <fmt/format.h>

#include "support/literal_machine.h"

using namespace rankstacks;
using namespace rankstacks::capture;
using testing::Environment;
using testing::Machine;

namespace {

const char* const kPasswd =
    "root:x:0:0:root:/root:/bin/bash\nbroken\nalice:x:1000:1000::/home/alice:/bin/sh\n12:x:13:13::/:/bin/sh\n";

std::vector<Job> jobs_of(const Machine& m) { return name_jobs(group_ranks(m.job(), m.table(), m.facts())); }

std::string word_of(WhyNoJob why) {
  switch (why) {
    case WhyNoJob::kNoRank: return "no rank";
    case WhyNoJob::kSeveral: return "several";
    case WhyNoJob::kNoSuchName: return "no such name";
    case WhyNoJob::kNoSuchProcess: return "no such process";
    case WhyNoJob::kNoJobOfProcess: return "no job of the process";
    case WhyNoJob::kNoSuchUser: return "no such user";
    case WhyNoJob::kNoJobOfUser: return "no job of the user";
    case WhyNoJob::kNoJobInCgroup: return "no job in the cgroup";
  }
  return "?";
}

// The chosen job's ID, or why there is none and the IDs among which to choose.
std::string chosen(const Machine& m, const JobChoice& choice) {
  const std::vector<Job> jobs = jobs_of(m);
  const Chosen found = choose_job(jobs, choice, m.table(), m.facts(), UserNames(kPasswd));
  if (found.job) return jobs[*found.job].id;
  std::string text = word_of(found.why) + ":";
  for (const std::size_t i : found.candidates) text += " " + jobs[i].id;
  return text;
}

std::string chosen(const Machine& m, const std::string& word) {
  const auto choice = parse_job_choice(word);
  REQUIRE(choice);
  return chosen(m, *choice);
}

Environment rank(int number, const std::string& port, Environment more = {}) {
  more.insert({{"RANK", std::to_string(number)}, {"WORLD_SIZE", "2"}, {"MASTER_PORT", port}});
  return more;
}

// Root's job on port 29500 by torchrun (5), alice's on 29501 by torchrun (6), in her cgroup.
Machine two_jobs() {
  Machine m;
  m.add(4, 1, "sshd");
  m.add(5, 4, "torchrun");
  m.add(6, 4, "torchrun");
  for (int r = 0; r < 2; ++r) {
    m.add(10 + r, 5, "train", rank(r, "29500"));
    m.add(20 + r, 6, "train", rank(r, "29501"));
    m.places[20 + r] = {1000, "net:[1]", "4:memory:/slurm/uid_1000/job_8\n0::/user.slice/user-1000.slice\n", false};
  }
  m.add(12, 11, "pt_data_worker", rank(1, "29500"));
  return m;
}

}  // namespace

TEST_CASE("the one job that there is needs no name") {
  Machine m;
  CHECK(chosen(m, "") == "no rank:");
  m.add(5, 1, "torchrun");
  for (int r = 0; r < 2; ++r) m.add(10 + r, 5, "train", rank(r, "29500"));
  CHECK(chosen(m, "") == "localhost:29500");
}

TEST_CASE("of several jobs one is chosen by its ID, a process, its user or its control group") {
  const Machine m = two_jobs();
  CHECK(chosen(m, "") == "several: localhost:29500 localhost:29501");
  CHECK(chosen(m, "localhost:29501") == "localhost:29501");
  CHECK(chosen(m, "ppid:5") == "localhost:29500");
  CHECK(chosen(m, "localhost:2950") == "no such name: localhost:29500 localhost:29501");
  SECTION("a process") {
    for (const char* word : {"pid:10", "pid=10", "10", "pid:12", "pid:5"}) CHECK(chosen(m, word) == "localhost:29500");
    CHECK(chosen(m, "pid:21") == "localhost:29501");
    CHECK(chosen(m, "pid:4") == "several: localhost:29500 localhost:29501");
    CHECK(chosen(m, "pid:77") == "no such process: localhost:29500 localhost:29501");
  }
  SECTION("a user") {
    for (const char* word : {"user:alice", "user=alice", "user:1000"}) CHECK(chosen(m, word) == "localhost:29501");
    CHECK(chosen(m, "user:root") == "localhost:29500");
    CHECK(chosen(m, "user:bob") == "no such user: localhost:29500 localhost:29501");
    CHECK(chosen(m, "user:2000") == "no job of the user: localhost:29500 localhost:29501");
  }
  SECTION("a control group, or one above it") {
    for (const char* word : {"cgroup:/user.slice/user-1000.slice", "cgroup=/user.slice", "cgroup:/user.slice/",
                             "cgroup:/sys/fs/cgroup/user.slice", "cgroup:/slurm/uid_1000"})
      CHECK(chosen(m, word) == "localhost:29501");
    CHECK(chosen(m, "cgroup:/user") == "no job in the cgroup: localhost:29500 localhost:29501");
    CHECK(chosen(m, "cgroup:/") == "several: localhost:29500 localhost:29501");
  }
}

TEST_CASE("a process that belongs to no job") {
  Machine m = two_jobs();
  m.add(30, 1, "sleep");
  CHECK(chosen(m, "pid:30") == "no job of the process: localhost:29500 localhost:29501");
}

TEST_CASE("a process that has the pid of the one that was meant is another one") {
  Machine m = two_jobs();
  for (ProcessEntry& entry : m.entries) entry.start_ticks = 100;
  CHECK(chosen(m, JobChoice::of_process(10, 100)) == "localhost:29500");
  CHECK(chosen(m, JobChoice::of_process(10, 99)) == "no such process: localhost:29500 localhost:29501");
}

TEST_CASE("srun stands for the tasks of its job, of its user alone") {
  Machine m;
  m.add(3, 1, "srun", {{"SLURM_JOB_ID", "9"}});
  for (int job : {8, 9}) {
    m.add(10 * job, 1, "slurmstepd");
    for (int r = 0; r < 2; ++r)
      m.add(10 * job + 1 + r, 10 * job, "train",
            {{"SLURM_PROCID", std::to_string(r)}, {"SLURM_NTASKS", "2"}, {"SLURM_JOB_ID", std::to_string(job)}});
  }
  CHECK(chosen(m, "pid:3") == "slurm:9");
  m.places[3] = {1000, "net:[1]", "", false};
  CHECK(chosen(m, "pid:3") == "no job of the process: slurm:8 slurm:9");
}

TEST_CASE("an ID is a name that no other job has, and chooses its job again") {
  Machine m = two_jobs();
  SECTION("names that both have are not shown") {
    for (int r = 0; r < 2; ++r) {
      m.environments[10 + r].insert({{"SLURM_JOB_ID", "4711"}, {"SLURM_STEP_ID", "0"}});
      m.environments[20 + r].insert({{"SLURM_JOB_ID", "4711"}, {"SLURM_STEP_ID", "0"}});
    }
    CHECK(chosen(m, "slurm:4711.0") == "several: localhost:29500 localhost:29501");
  }
  SECTION("a job that copies all names of another one does not get its ID") {
    for (int r = 0; r < 2; ++r) m.environments[20 + r] = m.environments[10 + r];
    CHECK(chosen(m, "localhost:29500") == "several: ppid:5 ppid:6");
    CHECK(chosen(m, "ppid:5") == "ppid:5");
  }
  SECTION("nor by a meeting point that looks like a launcher") {
    for (int r = 0; r < 2; ++r) {
      m.environments[10 + r].erase("MASTER_PORT");
      m.environments[20 + r].insert_or_assign("MASTER_ADDR", "ppid");
      m.environments[20 + r].insert_or_assign("MASTER_PORT", "5");
    }
    CHECK(chosen(m, "ppid:5") == "several: pid:10 ppid:6");
  }
  for (const Job& job : jobs_of(m)) CHECK(chosen(m, job.id) == job.id);
}

TEST_CASE("a shell that srun has started is only a job where there is no other") {
  Machine m;
  const Environment shell = {
      {"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "1"}, {"SLURM_JOB_ID", "4"}, {"SLURM_STEP_ID", "0"}};
  m.add(4, 1, "slurmstepd");
  m.add(5, 4, "bash", shell);
  CHECK(chosen(m, "") == "slurm:4.0");
  m.add(6, 1, "torchrun");
  for (int r = 0; r < 2; ++r) m.add(10 + r, 6, "train", rank(r, "29500"));
  CHECK(chosen(m, "") == "localhost:29500");
  CHECK(chosen(m, "slurm:4.0") == "slurm:4.0");
}

TEST_CASE("what --job takes") {
  const auto by = [](const char* word) { return parse_job_choice(word)->by; };
  CHECK(by("") == JobChoice::By::kOnly);
  CHECK(by("slurm:4711.0") == JobChoice::By::kName);
  CHECK(by("users:x") == JobChoice::By::kName);
  CHECK(by("4711") == JobChoice::By::kPid);
  for (const char* word : {"pid:", "pid:x", "pid:0", "pid:-1", "99999999999", "user:", "cgroup:", "cgroup:a"})
    CHECK_FALSE(parse_job_choice(word));
}

TEST_CASE("users by name and by number") {
  const UserNames users(kPasswd);
  CHECK(users.name_of(1000) == "alice");
  CHECK(users.name_of(2000) == "2000");
  CHECK(users.uid_of("alice") == 1000);
  CHECK(users.uid_of("12") == 13);  // a user with that name
  CHECK(users.uid_of("14") == 14);
  CHECK_FALSE(users.uid_of("bob"));
  CHECK_FALSE(users.uid_of(""));
  CHECK_FALSE(users.uid_of("-1"));
}
