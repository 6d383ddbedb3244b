// What counts as moved, which process and thread is which, and what else differs between two reports (docs/diff.md).
#include <catch2/catch.hpp>
#include <functional>
#include <nlohmann/json.hpp>

#include "diff/diff_json.h"
#include "diff/diff_text.h"
#include "diff/diff_words.h"
#include "diff/job_diff.h"
#include "support/literal_job.h"

using namespace rankstacks;
using namespace rankstacks::diff;
using namespace rankstacks::testing;
using Json = nlohmann::json;

namespace {

const std::string kBoot = "0d5b8f8e-2f6c-4f0e-9d3c-d5a5a7b1c001";

// Two reports of one job, five minutes apart.
struct Reports {
  LiteralJob old, now;

  Reports() { now.job.captured_at = "2026-01-31T12:05:12.123Z"; }

  // A rank of both, with these stacks of its main thread; one process.
  void rank(int number, const Stack& before, const Stack& after) {
    for (const auto& [job, stack] : {std::pair{&old, &before}, std::pair{&now, &after}}) {
      RankSnapshot& rank = job->rank(number, 4, *stack);
      rank.pid_space = PidSpace{kBoot, 4026531836};
      rank.start_ticks = 1000;
      rank.threads[0].cpu_ms = 500;
    }
  }
  RankSnapshot& before() { return old.job.ranks.back(); }
  RankSnapshot& after() { return now.job.ranks.back(); }

  Sides sides() const {
    return with_common_frames({old.job, analyzers::analyze(old.job)}, {now.job, analyzers::analyze(now.job)});
  }
  JobDiff diff() const { return diff_jobs(sides()); }
  std::string text(bool all = false) const {
    const Sides both = sides();
    return diff_text(both, diff_jobs(both), {.all_threads = all});
  }
  Json json() const {
    const Sides both = sides();
    return Json::parse(diff_json(both, diff_jobs(both), "old.json", "new.json"));
  }
};

// "stood", "moved by place": of the only rank's main thread.
std::string main_thread(const Reports& reports) {
  const JobDiff diff = reports.diff();
  REQUIRE(diff.processes.size() == 1);
  REQUIRE_FALSE(diff.processes[0].threads.empty());
  const ThreadChange& thread = diff.processes[0].threads[0];
  CHECK(thread.movement == diff.processes[0].movement);
  std::string text(to_string(thread.movement));
  if (thread.moved_by) text += " by " + std::string(to_string(*thread.moved_by));
  return text;
}

Motion between_samples() {
  Motion motion;
  motion.samples = 3;
  return motion;
}

}  // namespace

TEST_CASE("a thread stood if its place is the same and nothing shows that it left it") {
  Reports r;
  r.rank(0, in_getitem(), in_getitem());
  CHECK(main_thread(r) == "stood");
  CHECK(r.diff().outcome == Outcome::kStood);
  r.after().threads[0].cpu_ms = 510;  // a tick of the kernel's account
  CHECK(main_thread(r) == "stood");
  r.after().threads[0].cpu_ms = 520;
  CHECK(main_thread(r) == "ran");
  CHECK(r.diff().processes[0].threads[0].ran_ms == 20.0);
  r.after().threads[0].motion = r.before().threads[0].motion = between_samples();
  r.after().threads[0].cpu_ms = 500;
  CHECK(main_thread(r) == "stood");
}

TEST_CASE("a thread moved by its place: another line, another function") {
  Reports line, function;
  line.rank(0, in_main(14), in_main(15));
  CHECK(main_thread(line) == "moved by place");
  function.rank(0, in_getitem(), waits_in_all_reduce());
  CHECK(main_thread(function) == "moved by place");
  CHECK(function.diff().outcome == Outcome::kMoved);
}

TEST_CASE("inside of a wait for other ranks nothing is a place") {
  Reports r;
  r.rank(0, waits_in_all_reduce(),
         Stack{libc("sched_yield"), nat("c10d::ProcessGroupGloo::AsyncWork::wait(std::chrono::duration<long>)"),
               py("all_reduce", kPackages + "torch/distributed/distributed_c10d.py", 2000),
               py("wrapper", kPackages + "torch/distributed/c10d_logger.py", 80)} +
             in_main(17));
  CHECK(main_thread(r) == "stood");
  Reports called_elsewhere;
  called_elsewhere.rank(0, waits_in_all_reduce(17), waits_in_all_reduce(18));
  CHECK(main_thread(called_elsewhere) == "moved by place");
}

TEST_CASE("a thread moved by a counter of its frames, unless that counts faster than work can") {
  Reports r;
  r.rank(0, waits_in_all_reduce(), waits_in_all_reduce());
  const std::size_t main = r.before().threads[0].frames.size() - 2;
  r.before().threads[0].variables = {{main, {{"epoch", 1}, {"step", 12}}, {}, 1}};
  r.after().threads[0].variables = {{main, {{"epoch", 1}, {"step", 20}}, {}, 1}};
  CHECK(main_thread(r) == "moved by counter");
  const auto counters = r.diff().processes[0].threads[0].counters;
  REQUIRE(counters.size() == 1);
  CHECK((counters[0].name == "step" && counters[0].old == 12 && counters[0].now == 20));
  r.after().threads[0].variables.edit()[0].numbers[1].second = 1'000'000'000;
  CHECK(main_thread(r) == "stood");
  r.after().threads[0].variables.edit()[0].numbers[1].second = 12;
  CHECK(main_thread(r) == "stood");
}

TEST_CASE("a thread moved between the samples of one of the reports") {
  for (const bool of_old : {true, false})
    for (const auto flag : {&Motion::moved, &Motion::counted, &Motion::left_wait}) {
      Reports r;
      r.rank(0, in_main(14), in_main(14));
      auto& motion = (of_old ? r.before() : r.after()).threads[0].motion;
      motion = between_samples();
      (*motion).*flag = true;
      CHECK(main_thread(r) == "moved by samples");
    }
}

TEST_CASE("a stack that is missing, or ended early, shows no motion") {
  Reports missing;
  missing.rank(0, in_main(14), {});
  CHECK(main_thread(missing) == "unknown");
  CHECK(missing.diff().outcome == Outcome::kUnknown);
  Reports cut;
  Stack inner = in_getitem();
  inner.resize(3);
  cut.rank(0, in_getitem(), inner);
  CHECK(main_thread(cut) == "moved by place");
  cut.after().threads[0].stack_end = StackEnd::kMemoryUnavailable;
  CHECK(main_thread(cut) == "stood");
}

TEST_CASE("where one report has no native frames, the Python frames are compared") {
  Reports r;
  Stack python;
  for (const Frame& frame : in_getitem())
    if (frame.kind == FrameKind::kPython) python.push_back(frame);
  r.rank(0, in_getitem(), python);
  CHECK(main_thread(r) == "stood");
  Reports other;
  other.rank(0, waits_in_all_reduce(), python);
  CHECK(main_thread(other) == "moved by place");
}

TEST_CASE("some ranks moved, one stood: each is reported") {
  Reports r;
  for (const int rank : {0, 1, 2, 3})
    r.rank(rank, rank == 2 ? in_getitem() : in_main(14), rank == 2 ? in_getitem() : waits_in_all_reduce());
  CHECK(r.diff().outcome == Outcome::kPartlyMoved);
  const std::string text = r.text();
  CAPTURE(text);
  CHECK(text.find(
            "PARTLY MOVED: rank 2 stands where it stood 5 min 12 s ago, and has not run; ranks 0-1,3 have moved.") ==
        0);
  CHECK(text.find("\n  stood      2 (1 rank)            __getitem__ at data.py:9\n") != std::string::npos);
  CHECK(text.find("\n  moved      0-1,3 (3 ranks)       main at train.py:14 -> main at train.py:17\n") !=
        std::string::npos);
}

TEST_CASE("a process is the same by its identity, whatever the reports call it") {
  Reports r;
  r.rank(0, in_main(14), in_main(14));
  r.after().host = "renamed";
  CHECK(r.diff().processes.at(0).pair.match == Match::kProcess);
  r.after().start_ticks = 2000;  // the same host, pid and rank, and another process
  r.after().host = r.before().host;
  const JobDiff diff = r.diff();
  CHECK(diff.processes.at(0).pair.match == Match::kRank);
  CHECK(diff.processes[0].threads.at(0).movement == Movement::kSamePlace);
  CHECK(diff.outcome == Outcome::kStartedAnew);
}

TEST_CASE("reports without identities: host, pid and rank decide") {
  const auto match_of = [](const std::function<void(RankSnapshot&, RankSnapshot&)>& change) {
    Reports r;
    r.rank(0, in_main(14), in_main(14));
    r.after().pid_space.reset();
    change(r.before(), r.after());
    const JobDiff diff = r.diff();
    if (diff.processes.empty()) return std::string("none");
    return std::string(to_string(diff.processes[0].pair.match));
  };
  using Rank = RankSnapshot&;
  CHECK(match_of([](Rank, Rank) {}) == "process");
  CHECK(match_of([](Rank, Rank b) { b.pid = 7; }) == "rank");
  CHECK(match_of([](Rank, Rank b) { b.host = "node-b"; }) == "rank");
  CHECK(match_of([](Rank, Rank b) { b.rank = 1; }) == "none");
  CHECK(match_of([](Rank a, Rank b) { a.rank.reset(), b.pid = 7; }) == "none");
  // A core: the host may be unknown, the pid is that of the process's own namespace.
  CHECK(match_of([](Rank, Rank b) { b.host = "unknown", b.source = Source::kCore; }) == "process");
  CHECK(match_of([](Rank a, Rank b) {
          a.own_pid = NamespacedPid{7, 7}, b.pid = 7, b.host = "unknown", b.source = Source::kCore;
        }) == "process");
  CHECK(match_of([](Rank, Rank b) { b.host = "unknown", b.source = Source::kCore, b.rank.reset(); }) == "none");
  // Dumps of other tools: no host, perhaps no pid.
  CHECK(match_of([](Rank a, Rank b) {
          a.host = b.host = "unknown", a.source = b.source = Source::kDump, a.rank = b.rank = std::nullopt;
        }) == "process");
  CHECK(match_of([](Rank a, Rank b) { a.pid = b.pid = 0, a.rank = b.rank = std::nullopt; }) == "rank");
}

TEST_CASE("threads of one process by number, of a rank that was started anew by role, stack and name") {
  Reports r;
  r.rank(0, in_main(14), in_main(14));
  r.old.thread(r.before(), 200, "a", {nat("acme::a()")});
  r.old.thread(r.before(), 201, "b", {nat("acme::b()")});
  r.now.thread(r.after(), 201, "a", {nat("acme::a()")});
  r.now.thread(r.after(), 202, "c", {nat("acme::c()")});
  JobDiff diff = r.diff();
  REQUIRE(diff.processes[0].threads.size() == 2);
  CHECK(diff.processes[0].threads[1].movement == Movement::kMoved);
  CHECK(diff.processes[0].pair.ended == std::vector<std::size_t>{1});
  CHECK(diff.processes[0].pair.begun == std::vector<std::size_t>{2});

  r.after().start_ticks = 2000;
  diff = r.diff();
  REQUIRE(diff.processes[0].threads.size() == 3);
  CHECK(diff.processes[0].threads[1].movement == Movement::kSamePlace);
  CHECK(diff.processes[0].threads[1].pair.old == 1);
  CHECK(diff.processes[0].threads[2].movement == Movement::kElsewhere);
  CHECK(diff.processes[0].pair.ended.empty());
}

TEST_CASE("children: the same processes, or those of a rank that was started anew in their order") {
  const auto add_children = [](LiteralJob& job, Pid first, std::uint64_t start) {
    for (Pid pid = first; pid < first + 2; ++pid) {
      RankSnapshot& child =
          job.child(job.job.ranks[0].pid, {py("_worker_loop", kPackages + "torch/utils/data/_utils/worker.py", 1)});
      child.pid = child.threads[0].tid = pid;
      child.pid_space = PidSpace{kBoot, 4026531836};
      child.start_ticks = start;
    }
  };
  Reports r;
  r.rank(0, in_main(14), in_main(14));
  add_children(r.old, 500, 1001);
  add_children(r.now, 501, 1001);
  JobDiff diff = r.diff();
  CHECK(diff.processes.size() == 2);
  CHECK(diff.gone.size() == 1);
  CHECK(diff.joined.size() == 1);
  CHECK(r.text().find("\nChild processes: 1 gone, 1 new, 1 stood\n") != std::string::npos);

  for (RankSnapshot& process : r.now.job.ranks) process.start_ticks += 5000;
  diff = r.diff();
  REQUIRE(diff.processes.size() == 3);
  CHECK(diff.processes[1].pair.match == Match::kRank);
  CHECK(r.old.job.ranks[diff.processes[1].pair.old].pid == 500);
  CHECK(diff.gone.empty());
}

TEST_CASE("ranks of one report alone: gone, not examined, of a host that is not there") {
  Reports r;
  r.rank(0, in_main(14), in_main(14));
  for (const int rank : {1, 2, 3}) r.old.rank(rank, 4, in_main(14)).pid_space = PidSpace{kBoot, 4026531836};
  r.old.job.ranks[3].host = "node-b";
  r.now.job.not_looked_at = {{2, "node-a", r.old.job.ranks[2].pid, PidSpace{kBoot, 4026531836}}};
  const JobDiff diff = r.diff();
  REQUIRE(diff.gone.size() == 3);
  CHECK(diff.gone[0].absence == Absence::kGone);
  CHECK(diff.gone[1].absence == Absence::kNotExamined);
  CHECK(diff.gone[2].absence == Absence::kNoHost);
  CHECK(summary_of(r.sides(), diff) ==
        "rank 0 stands where it stood 5 min 12 s ago, and has not run; rank 1 is gone; rank 2 was not examined in NEW; "
        "rank 3 is of a host that is not in NEW");
}

TEST_CASE("reports of different jobs") {
  Reports r;
  r.old.rank(0, 2, in_main(14));
  r.now.rank(1, 2, in_main(14)).pid = 9;
  CHECK(r.diff().outcome == Outcome::kUnrelated);
  CHECK(r.text().find("UNRELATED: no process and no rank of OLD is in NEW") == 0);
}

TEST_CASE("clusters that came, went, and changed their members") {
  Reports r;
  r.rank(0, in_main(14), in_main(14));
  r.rank(1, in_main(14), waits_in_all_reduce());
  r.rank(2, in_getitem(), in_main(14));
  const Json clusters = r.json()["clusters"];
  REQUIRE(clusters.size() == 3);
  CHECK(clusters[0]["fate"] == "came");
  CHECK(clusters[0]["ranks"] == Json{1});
  CHECK(clusters[0]["old_ranks"].empty());
  CHECK(clusters[1]["fate"] == "went");
  CHECK(clusters[1]["old_ranks"] == Json{2});
  CHECK(clusters[2]["fate"] == "stayed");
  CHECK(clusters[2]["joined"] == Json{2});
  CHECK(clusters[2]["left"] == Json{1});
  CHECK(clusters[2]["frames"].size() == 2);
  const std::string text = r.text();
  CHECK(text.find("\nClusters: 1 came, 1 went, 1 stayed\n") != std::string::npos);
  CHECK(text.find("joined by 2; left by 1; main train.py:14") != std::string::npos);
}

TEST_CASE("the verdict: the same, another reason, another suspect") {
  Reports r;
  for (const int rank : {0, 1, 2})
    r.rank(rank, rank == 2 ? in_getitem() : waits_in_all_reduce(), rank == 2 ? in_getitem() : waits_in_all_reduce());
  CHECK(r.diff().verdict.same);
  CHECK(r.text().find("5 min 12 s later: the same verdict\n") != std::string::npos);
  Reports other;
  for (const int rank : {0, 1, 2})
    other.rank(rank, rank == 2 ? in_getitem() : waits_in_all_reduce(),
               rank == 1 ? in_getitem() : waits_in_all_reduce());
  const JobDiff diff = other.diff();
  CHECK_FALSE(diff.verdict.same);
  REQUIRE(diff.verdict.suspects.size() == 2);
  CHECK((diff.verdict.suspects[0].old && !diff.verdict.suspects[0].now));
  const Json suspects = other.json()["verdict"]["suspects"];
  CHECK(suspects[0] ==
        Json::parse(
            R"({"rank": 2, "old_reason": "data-loading", "old_confidence": 0.0, "reason": null, "confidence": null})")
            .patch(Json::array(
                {{{"op", "replace"}, {"path", "/old_confidence"}, {"value", suspects[0]["old_confidence"]}}})));
  CHECK(suspects[1]["rank"] == 1);
  CHECK(other.text().find(
            "\n    rank 2 is no suspect any more: data-loading\n    rank 1 is a suspect now: data-loading\n") !=
        std::string::npos);
}

TEST_CASE("settings that changed, each with its ranks") {
  Reports r;
  for (const int rank : {0, 1, 2}) r.rank(rank, in_main(14), in_main(14));
  for (RankSnapshot& rank : r.now.job.ranks) rank.python_version = "3.12.1";
  r.now.job.ranks[1].command = {"python3", "train.py", "--lr", "0.1 x"};
  r.now.job.tool_version = "9";
  const std::string text = r.text();
  CAPTURE(text);
  CHECK(text.find("\nSettings\n  rankstacks: 0.1.0 -> 9\n  command: none -> python3 train.py --lr '0.1 x' (rank 1)\n"
                  "  python: 3.11.2 -> 3.12.1 (ranks 0-2)\n") != std::string::npos);
  r.old.job.ranks[1].command = {"python3", "train.py", "--lr", "0.2", "--all"};
  r.now.job.ranks[1].command.push_back("--all");
  CHECK(r.text().find("\n  command: … 0.2 … -> … '0.1 x' … (rank 1)\n") != std::string::npos);
  r.old.job.ranks[1].command = r.now.job.ranks[1].command;
  r.old.job.ranks[1].command.push_back("-v");
  CHECK(r.text().find("\n  command: … -v -> none (rank 1)\n") != std::string::npos);
  r.old.job.ranks[1].command.clear();
  CHECK(r.json()["settings"][2] ==
        Json::parse(R"({"setting": "python", "old": "3.11.2", "new": "3.12.1", "ranks": [0, 1, 2]})"));
  // What a rank runs with.
  for (LiteralJob* side : {&r.old, &r.now})
    for (RankSnapshot& rank : side->job.ranks) {
      rank.python_version = "3.11.2";
      rank.command.clear();
      ProcessEnvironment& environment = rank.environment.emplace();
      environment.variables_known = true;
      environment.variables = {{"NCCL_ALGO", "Ring"}, {"NCCL_DEBUG", "INFO"}};
      environment.limits = {{"core", 0, {}}, {"open-files", 1024, 4096}};
      environment.cgroup = CgroupLimits{1 << 30, {}, {}};
      environment.clock = ClockState{true, 0, 0};
      rank.modules = {{"NCCL", "/a/libnccl.so.2", "aa", "2.27.3"},
                      {"UCX", "/a/libucp.so.0", "bb", ""},
                      {"torch", "/a/libtorch_cpu.so.1.13", "", "1.13"}};
    }
  r.now.job.tool_version = r.old.job.tool_version;
  for (const std::size_t i : {0u, 1u}) {
    RankSnapshot& rank = r.now.job.ranks[i];
    rank.environment->variables = {{"NCCL_DEBUG", "INFO"}, {"NCCL_PROTO", "LL"}};
    rank.environment->limits[0].soft.reset();
    rank.environment->cgroup->memory_bytes = 1 << 29;
    rank.environment->clock->synchronized = false;
    rank.modules.edit()[0].version = "2.28.9";
    rank.modules.edit()[1].build_id = "cc";
    rank.modules.edit()[2].version = "1.13.0";                           // says more, and the same
    rank.modules.push_back({"cuDNN", "/a/libcudnn.so.9", "dd", "9.1"});  // loaded meanwhile
  }
  const std::string changed = r.text();
  CAPTURE(changed);
  CHECK(
      changed.find("\nSettings\n  version of NCCL: 2.27.3 -> 2.28.9 (ranks 0-1)\n  build of UCX: bb -> cc (ranks 0-1)\n"
                   "  NCCL_ALGO: Ring -> none (ranks 0-1)\n  NCCL_PROTO: none -> LL (ranks 0-1)\n"
                   "  limit of core: 0 -> unlimited (ranks 0-1)\n"
                   "  memory-limit: 1073741824 -> 536870912 (ranks 0-1)\n"
                   "  clock: synchronized -> not synchronized (ranks 0-1)\n"
                   "Differences between ranks\n  came ") != std::string::npos);
  CHECK(changed.find("NCCL 2.27.3 on rank 2, 2.28.9 on") != std::string::npos);
  CHECK(r.json()["settings"][2] ==
        Json::parse(R"({"setting": "variable", "name": "NCCL_ALGO", "old": "Ring", "new": null, "ranks": [0, 1]})"));
  const Json differences = r.json()["differences"];
  CHECK(differences[0]["fate"] == "came");
  CHECK(differences[0]["kind"] == "version");
  CHECK(differences[0]["name"] == "NCCL");
  std::swap(r.old, r.now);
  CHECK(r.json()["differences"][0]["fate"] == "went");
  // What a core does not have is not a change.
  Reports core;
  core.rank(0, in_main(14), in_main(14));
  core.before().executable = "/usr/bin/python3";
  core.after().source = Source::kCore;
  core.after().host = "unknown";
  core.after().pid_space.reset();
  CHECK(core.diff().settings.empty());
}

TEST_CASE("what NCCL and the Flight Recorder count") {
  Reports r;
  for (const int rank : {0, 1}) r.rank(rank, waits_in_all_reduce(), waits_in_all_reduce());
  for (auto* job : {&r.old.job, &r.now.job}) {
    NcclCommunicator& communicator = job->nccl.emplace().communicators.emplace_back();
    communicator.hash = "0xafc";
    for (const int rank : {0, 1}) {
      NcclMember& member = communicator.members.emplace_back();
      member.rank = rank;
      member.process =
          NcclMember::Process{"node-a", job->ranks[static_cast<std::size_t>(rank)].pid, job->ranks[0].pid_space};
      member.launched = {{"AllReduce", job == &r.now.job && rank == 0 ? 150 : 120}, {"Broadcast", 1}};
    }
    job->ranks[1].flight_record.emplace().groups = {{"0", "default_pg", "nccl", {}, 121, {}, 120, {}, 0}};
  }
  const std::string text = r.text();
  CAPTURE(text);
  CHECK(text.find("\n  NCCL's launches on 0xafc: 0: 121 -> 151\n") != std::string::npos);
  CHECK(text.find("\n  NCCL's launches on 0xafc: 1: stayed at 121\n") != std::string::npos);
  CHECK(text.find("\n  Flight Recorder, group 0, last completed: 1: stayed at 120\n") != std::string::npos);
  CHECK(r.json()["counters"].size() == 4);
}

TEST_CASE("reports in reverse, and times that cannot be read") {
  Reports r;
  r.rank(0, in_main(14), in_main(14));
  std::swap(r.old.job.captured_at, r.now.job.captured_at);
  CHECK(r.json()["between_ms"] == -312'000.0);
  CHECK(r.text().find("5 min 12 s BEFORE it") != std::string::npos);
  r.now.job.captured_at = "yesterday";
  CHECK(r.json()["between_ms"] == nullptr);
  CHECK(r.text().find("rank 0 stands where it stood in OLD") != std::string::npos);
}

TEST_CASE("durations") {
  CHECK(duration_text(900) == "0.9 s");
  CHECK(duration_text(-59'999) == "59 s");
  CHECK(duration_text(312'000) == "5 min 12 s");
  CHECK(duration_text(11'100'000) == "3 h 5 min");
  CHECK(duration_text(187'200'000) == "2 d 4 h");
  CHECK(duration_text(1e300) == "11574074 d 1 h");
}

TEST_CASE("every thread, on request; hostile names do nothing") {
  Reports r;
  r.rank(0, in_main(14), in_main(14));
  r.old.thread(r.before(), 200, "x", {nat("acme::a()")}).cpu_ms = 0;
  r.now.thread(r.after(), 200, "x", {py("evil\x1b[2J\n", "/x/\u202e.py", 3)}).cpu_ms = 1200;
  const std::string text = r.text(true);
  CAPTURE(text);
  CHECK(text.find("\nrank 0\n") != std::string::npos);
  CHECK(text.find("(ran 1200 ms)") != std::string::npos);
  CHECK(text.find('\x1b') == std::string::npos);
  CHECK(text.find("\u202e") == std::string::npos);
}
