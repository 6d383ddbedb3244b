// Processes that a host's name and a pid do not tell apart.
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "analyzers/analysis.h"
#include "model/process_key.h"
#include "report/report.h"
#include "report/text_threads.h"
#include "support/literal_job.h"

using namespace rankstacks;
using namespace rankstacks::report;
using namespace rankstacks::testing;
using Json = nlohmann::json;

namespace {

const std::string kBoot = "0d5b8f8e-2f6c-4f0e-9d3c-d5a5a7b1c001", kOtherBoot = "77777777-2f6c-4f0e-9d3c-d5a5a7b1c001";
constexpr std::uint64_t kRoot = 4026531836, kFirst = 4026532501, kSecond = 4026532602;

// As the tool reads it inside of the container of this namespace.
RankSnapshot& inside(RankSnapshot& rank, std::uint64_t space, Pid pid, std::uint64_t start) {
  rank.pid = pid;
  if (!rank.threads.empty()) rank.threads[0].tid = pid;
  rank.pid_space = PidSpace{kBoot, space};
  rank.own_pid = NamespacedPid{space, pid};
  rank.start_ticks = start;
  return rank;
}

}  // namespace

TEST_CASE("two containers of one host, in each of which a rank has the same pid, have two ranks") {
  LiteralJob a, b;
  inside(a.rank(0, 2, waits_in_all_reduce()), kFirst, 7, 1000);
  inside(b.rank(1, 2, in_getitem()), kSecond, 7, 1000);
  const JobSnapshot merged = merge_snapshots({a.job, b.job});
  REQUIRE(merged.ranks.size() == 2);
  CHECK(merged.ranks[0].problems.empty());
  const analyzers::Verdict verdict = analyzers::analyze(merged).verdict;
  REQUIRE(verdict.suspects.size() == 1);
  CHECK(verdict.suspects[0].rank == 1);
}

TEST_CASE("one process of which there are two reports is one, whatever host and pid each has for it") {
  LiteralJob a, b;
  inside(a.rank(0, 2, in_main(1)), kFirst, 7, 1000);
  RankSnapshot& outside = b.rank(0, 2, in_main(1));
  outside.host = "node-b";
  outside.pid = 40'007;
  outside.pid_space = PidSpace{kBoot, kRoot};
  outside.own_pid = NamespacedPid{kFirst, 7};
  outside.start_ticks = 1000;
  b.rank(1, 2, in_main(1)).host = "node-b";
  const JobSnapshot merged = merge_snapshots({a.job, b.job});
  REQUIRE(merged.ranks.size() == 2);
  CHECK(merged.ranks[0].problems.at(0).message ==
        "node-b:40007 is in more than one of the merged reports; the first is shown");
  CHECK(merged.ranks[1].rank == 1);
}

TEST_CASE("what tells processes apart: boot, namespace, start, rank; and what an older report lacks") {
  LiteralJob job;
  const RankSnapshot a = inside(job.rank(0, 2, {}), kFirst, 7, 1000);
  CHECK(same_process(a, a) == true);
  RankSnapshot other = a;
  other.pid_space->boot_id = kOtherBoot;
  CHECK(same_process(a, other) == false);
  other = a;
  other.start_ticks = 2000;
  CHECK(same_process(a, other) == false);
  other.start_ticks = 0;  // a rank that could not be read
  CHECK(same_process(a, other) == true);
  other.rank = 1;
  CHECK(same_process(a, other) == false);
  other = a;
  other.pid_space.reset();
  CHECK(same_process(a, other) == std::nullopt);
  // As before: the same host and pid.
  LiteralJob now, older;
  now.job.ranks = {a};
  older.job.ranks = {other};
  CHECK(merge_snapshots({now.job, older.job}).ranks.size() == 1);
  CHECK(merge_snapshots({older.job, now.job}).ranks.size() == 1);
}

TEST_CASE("children, other ends and NCCL's members are those of the process's own container") {
  LiteralJob a, b;
  inside(a.rank(0, 2, waits_in_all_reduce()), kFirst, 7, 1000);
  inside(a.child(7, in_main(1)), kFirst, 9, 1001);
  inside(b.rank(1, 2, in_getitem()), kSecond, 7, 1000);
  inside(b.child(7, in_main(2)), kSecond, 9, 1001);
  const JobSnapshot merged = merge_snapshots({b.job, a.job});
  REQUIRE(merged.ranks.size() == 4);
  CHECK(merged.ranks[0].rank == 0);
  CHECK(merged.ranks[1].pid_space->pid_namespace == kFirst);
  CHECK(merged.ranks[3].pid_space->pid_namespace == kSecond);
  CHECK(is_parent(merged.ranks[0], merged.ranks[1]));
  CHECK_FALSE(is_parent(merged.ranks[0], merged.ranks[3]));
  CHECK_FALSE(process_key(merged.ranks[0]) == process_key(merged.ranks[2]));
  CHECK(process_key(NcclMember::Process{"node-a", 7, PidSpace{kBoot, kSecond}}) == process_key(merged.ranks[2]));
}

TEST_CASE("processes of one host and pid have names that differ, also after the merged report was saved") {
  LiteralJob a, b;
  inside(a.process(), kFirst, 7, 1000);
  inside(b.process(), kSecond, 7, 1000);
  JobSnapshot merged = merge_snapshots({a.job, b.job});
  const std::string text = json_report(merged, analyzers::analyze(merged));
  merged = merge_snapshots({read_json_report(text, "report").value()});
  REQUIRE(merged.ranks.size() == 2);
  CHECK(rank_label(merged.ranks[0]) == "node-a:7@4026532501");
  CHECK(rank_label(merged.ranks[1]) == "node-a:7@4026532602");
  CHECK(selected_ranks(merged, {"node-a:7@4026532602"}) == std::vector<std::size_t>{1});
  CHECK(selected_ranks(merged, {"node-a:7"}) == std::vector<std::size_t>{0, 1});

  merged.ranks[1].own_pid = merged.ranks[0].own_pid;  // two machines that have the same name
  merged.ranks[1].pid_space = PidSpace{kOtherBoot, kFirst};
  name_apart(merged);
  CHECK(rank_label(merged.ranks[0]) == "node-a:7@0d5b8f8e");
  CHECK(rank_label(merged.ranks[1]) == "node-a:7@77777777");
  merged.ranks.pop_back();
  name_apart(merged);
  CHECK(rank_label(merged.ranks[0]) == "node-a:7");
}

TEST_CASE("an identity that a report states and no kernel has is refused") {
  const std::string head = R"({"schema": 1, "captured_at": "x", "ranks": [{"host": "h", "pid": 1, "source": "live",
    "status": "complete", "threads": [], "identity": )";
  CHECK(read_json_report(head + R"({"boot_id": "x", "pid_namespace": 1}}]})", "r"));
  for (const char* bad : {"7", R"({"boot_id": "x"})", R"({"boot_id": "x", "pid_namespace": -1})",
                          R"({"boot_id": 3, "pid_namespace": 1})"}) {
    CAPTURE(bad);
    const auto read = read_json_report(head + bad + "}]}", "r");
    REQUIRE_FALSE(read);
    CHECK(read.error().code == ErrorCode::kMalformed);
    CHECK(read.error().what.find("ranks[0].identity") != std::string::npos);
  }
}
