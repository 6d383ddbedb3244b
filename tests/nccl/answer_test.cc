// The document that RAS answers with, and what of it concerns the processes in the report.
#include <catch2/catch.hpp>

#include "nccl/fake_ras.h"
#include "nccl/job_status.h"
#include "nccl/local_addresses.h"
#include "nccl/ras_answer.h"

using namespace rankstacks;
using namespace rankstacks::nccl;
using namespace rankstacks::testing;

namespace {

NcclStatus read(const std::string& text) {
  const auto status = parse_ras_answer(text, "ras");
  if (!status) FAIL(status.error().message());
  return *status;
}

std::string error_of(const std::string& text, ErrorCode code = ErrorCode::kMalformed) {
  const auto status = parse_ras_answer(text, "ras");
  if (status) return "it was read";
  CHECK(status.error().code == code);
  return status.error().message();
}

using Counts = std::vector<std::pair<std::string, std::int64_t>>;

}  // namespace

TEST_CASE("answers of real jobs") {
  const NcclStatus asleep = read(real_answer("asleep"));
  REQUIRE(asleep.communicators.size() == 1);
  const NcclCommunicator& communicator = asleep.communicators[0];
  CHECK(communicator.hash == "0xafc520aa7d804bf");
  CHECK(communicator.secondary_hash == "0xe2abe9ef2398eec5:0x65ab237772dffb1f");
  CHECK(communicator.size == 2);
  CHECK(communicator.missing.empty());
  REQUIRE(communicator.members.size() == 2);
  CHECK(communicator.members[0].rank == 0);
  CHECK(communicator.members[0].host == "192.0.2.2");
  CHECK(communicator.members[0].pid == 544);
  CHECK(communicator.members[0].launched ==
        Counts{{"AllGather", 1}, {"AllReduce", 4}, {"Broadcast", 4}, {"Reduce", 0}, {"ReduceScatter", 0}});
  CHECK(communicator.members[1].launched ==
        Counts{{"AllGather", 1}, {"AllReduce", 3}, {"Broadcast", 4}, {"Reduce", 0}, {"ReduceScatter", 0}});
  CHECK_FALSE(communicator.members[0].aborted);
  CHECK(communicator.members[0].async_error == 0);

  const NcclStatus mismatch = read(real_answer("collective-mismatch"));
  CHECK(mismatch.communicators.at(0).members.at(0).launched ==
        Counts{{"AllGather", 0}, {"AllReduce", 4}, {"Broadcast", 0}, {"Reduce", 0}, {"ReduceScatter", 0}});
  CHECK(mismatch.communicators.at(0).members.at(1).launched ==
        Counts{{"AllGather", 1}, {"AllReduce", 3}, {"Broadcast", 0}, {"Reduce", 0}, {"ReduceScatter", 0}});
}

TEST_CASE("missing ranks, as 2.28 writes them: without a comma") {
  const std::string broken =
      R"({"communicators": [{"hash": "0x1", "size": 3, "ranks": [{"rank": 0, "pid": 5, "host": "a \"quoted\" 7 \"name\": x",
    "status": {"async_error": 6, "finalize_called": false, "destroy_flag": true, "abort_flag": true}}],
    "missing_ranks": [{"rank": 1, "host": "10.0.0.1", "pid": 6, "nvml_dev": 1
      "status": {"unresponsive": true, "considered_dead": false}},
      {"rank": 2, "host": "unknown", "pid": -1, "nvml_dev": 1
      "status": {"unresponsive": true, "considered_dead": true}}]}]})";
  const NcclStatus status = read(broken);
  const NcclCommunicator& communicator = status.communicators.at(0);
  CHECK(communicator.members.at(0).host == "a \"quoted\" 7 \"name\": x");
  CHECK(communicator.members[0].async_error == 6);
  CHECK(communicator.members[0].aborted);
  CHECK(communicator.members[0].finalized);
  REQUIRE(communicator.missing.size() == 2);
  CHECK(communicator.missing[0].rank == 1);
  CHECK(communicator.missing[0].unresponsive);
  CHECK_FALSE(communicator.missing[0].dead);
  CHECK(communicator.missing[1].pid == 0);
  CHECK(communicator.missing[1].dead);
}

TEST_CASE("members that are missing, or of another type, have their defaults") {
  const NcclStatus status =
      read(R"({"nccl_version": 2, "communicators": [{"hash": "0x1", "size": "2", "missing_ranks": {}, "ranks": [
    {"rank": 7, "pid": 5, "host": 3, "status": [], "collective_counts": {"AllReduce": 3, "Broadcast": -1, "Reduce": "2", "AllGather": 1.5, "Gather": 18446744073709551615}}]}]})");
  CHECK(status.version.empty());
  CHECK(status.communicators.at(0).size == 0);
  const NcclMember& member = status.communicators[0].members.at(0);
  CHECK(member.rank == 7);
  CHECK(member.host.empty());
  CHECK(member.launched == Counts{{"AllReduce", 3}});
}

TEST_CASE("answers that are no such document") {
  CHECK(error_of("", ErrorCode::kGone) == "ras: it hung up without an answer");
  CHECK(error_of(" \n", ErrorCode::kGone) == "ras: it hung up without an answer");
  CHECK(error_of("NCCL version 2.28.9") == "ras: its answer is no JSON from character 1 on");
  CHECK(error_of("[]") == "ras: its answer has no communicators");
  CHECK(error_of("{}") == "ras: its answer has no communicators");
  CHECK(error_of(R"({"communicators": 3})") == "ras: its answer has no communicators");
  CHECK(error_of(R"({"communicators": [3]})") == "ras: its answer's communicators[0] has no hash");
  CHECK(error_of(R"({"communicators": [{"hash": "a"}, {"hash": 1}]})") ==
        "ras: its answer's communicators[1] has no hash");
  CHECK(error_of(R"({"communicators": [{"hash": "a", "ranks": [{"rank": 0, "pid": 1}, {"rank": 1}]}]})") ==
        "ras: its answer's communicators[0].ranks[1] has no rank or no pid");
  CHECK(error_of(R"({"communicators": [{"hash": "a", "ranks": [{"rank": 99999999999, "pid": 1}]}]})") ==
        "ras: its answer's communicators[0].ranks[0] has no rank or no pid");
  CHECK(error_of(R"({"communicators": [{"hash": "a", "missing_ranks": [[]]}]})") ==
        "ras: its answer's communicators[0].missing_ranks[0] has no rank or no pid");
  CHECK(error_of("{\"a\": \"\xff\"}") == "ras: its answer is no JSON from character 8 on");
  CHECK(error_of(R"({"a": 1e999})").starts_with("ras: its answer is no JSON"));
}

TEST_CASE("answers that would take all memory") {
  CHECK(error_of(std::string(1'000'000, '['), ErrorCode::kLimit) == "ras: its answer is nested deeper than 16 levels");
  std::string zeros = "[0";
  for (int i = 0; i < 4'000'000; ++i) zeros += ",0";
  CHECK(error_of(zeros, ErrorCode::kLimit) == "ras: its answer has more than 4000000 values");
  CHECK(error_of(std::string(1'000'000, '"')).starts_with("ras: its answer is no JSON"));
}

TEST_CASE("only communicators of processes in the report are kept") {
  const std::string text = R"({"communicators": [
    {"hash": "0x1", "ranks": [{"rank": 0, "pid": 5, "host": "10.0.0.1"}, {"rank": 1, "pid": 5, "host": "10.0.0.2"}]},
    {"hash": "0x2", "ranks": [{"rank": 0, "pid": 6, "host": "10.0.0.1"}]},
    {"hash": "0x3", "ranks": [{"rank": 0, "pid": 5, "host": "10.0.0.2"}]},
    {"hash": "0x4", "ranks": [{"rank": 0, "pid": 6, "host": "10.0.0.1"}], "missing_ranks": [{"rank": 1, "pid": 5, "host": "10.0.0.1"}]},
    {"hash": "0x5", "ranks": [{"rank": 0, "pid": -1, "host": "10.0.0.1"}]}]})";
  NcclStatus status = read(text);
  keep_own_communicators(status, {{{"node-a", 4711}, 5}}, {"127.0.0.1", "10.0.0.1"});
  REQUIRE(status.communicators.size() == 2);
  CHECK(status.communicators[0].hash == "0x1");
  CHECK(status.communicators[0].members[0].process == NcclMember::Process{"node-a", 4711});
  CHECK(status.communicators[0].members[0].pid == 5);
  CHECK_FALSE(status.communicators[0].members[1].process);
  CHECK(status.communicators[1].hash == "0x4");
  CHECK(status.communicators[1].missing[0].process == NcclMember::Process{"node-a", 4711});

  NcclStatus twins = read(text);
  keep_own_communicators(twins, {{{"node-a", 4711}, 5}, {{"node-a", 4811}, 5}}, {"10.0.0.1"});
  REQUIRE(twins.communicators.size() == 2);
  CHECK_FALSE(twins.communicators[0].members[0].process);
}

TEST_CASE("answers that contradict the machine") {
  const std::vector<std::string> addresses{"127.0.0.1", "10.0.0.1"};
  const std::vector<NcclProcess> processes{{{"node-a", 4711}, 5}};
  const auto local_process = [](Pid pid) {
    return pid == 6 ? LocalProcess::kPossible : pid == 7 ? LocalProcess::kNotOfNccl : LocalProcess::kNone;
  };
  const auto wrong = [&](const std::string& members, const std::string& rest = "") {
    return contradiction_in(read(R"({"communicators": [{"hash": "0x1", )" + rest + R"("ranks": [)" + members + "]}]}"),
                            processes, addresses, local_process)
        .value_or("");
  };
  const std::string own = R"({"rank": 0, "pid": 5, "host": "10.0.0.1"})";
  CHECK(wrong(own).empty());
  CHECK(wrong(own + R"(,{"rank": 1, "pid": 6, "host": "10.0.0.1"},{"rank": 2, "pid": 8, "host": "10.0.0.2"})").empty());
  CHECK(wrong(own + R"(,{"rank": 3, "pid": -1, "host": "10.0.0.1"})").empty());
  CHECK(wrong(own + R"(,{"rank": 1, "pid": 8, "host": "10.0.0.1"})") ==
        "it names pid 8 on this machine, which no process has");
  CHECK(wrong(own + R"(,{"rank": 1, "pid": 7, "host": "127.0.0.1"})") ==
        "it names pid 7 on this machine, which has no NCCL loaded");
  CHECK(wrong(own + R"(,{"rank": 2, "pid": 6, "host": "10.0.0.1"})", R"("size": 2, )") ==
        "it names rank 2 of communicator 0x1, which has 2 ranks");
  CHECK(wrong(own + "," + own) == "it names rank 0 of communicator 0x1 twice");
  // Nothing is claimed of ranks that do not answer: they may have ended.
  CHECK(wrong(own, R"("missing_ranks": [{"rank": 1, "pid": 8, "host": "10.0.0.1"}], )").empty());
}

TEST_CASE("counts that move between two answers") {
  NcclStatus first = read(R"({"communicators": [{"hash": "0x1", "ranks": [
    {"rank": 0, "pid": 5, "collective_counts": {"AllReduce": 3}}, {"rank": 1, "pid": 6, "collective_counts": {"AllReduce": 3}}, {"rank": 2, "pid": 7}]},
    {"hash": "0x1", "secondary_hash": "b", "ranks": [{"rank": 1, "pid": 6, "collective_counts": {"AllReduce": 4}}]}]})");
  const NcclStatus second = read(
      R"({"communicators": [{"hash": "0x1", "secondary_hash": "b", "ranks": [{"rank": 1, "pid": 6, "collective_counts": {"AllReduce": 4}}]},
    {"hash": "0x1", "ranks": [{"rank": 1, "pid": 6, "collective_counts": {"AllReduce": 4}}, {"rank": 0, "pid": 5, "collective_counts": {"AllReduce": 3}}]}]})");
  CHECK(first.answers == 1);
  compare_counts(first, second);
  CHECK(first.answers == 2);
  CHECK_FALSE(first.communicators[0].members[0].counts_move);
  CHECK(first.communicators[0].members[1].counts_move);
  CHECK_FALSE(first.communicators[0].members[2].counts_move);
  CHECK_FALSE(first.communicators[1].members[0].counts_move);
  CHECK(first.communicators[0].members[1].launched == Counts{{"AllReduce", 3}});
}

TEST_CASE("addresses of this machine") {
  CHECK(is_local_address("127.0.0.1"));
  CHECK(is_local_address("127.1.2.3"));
  CHECK_FALSE(is_local_address("192.0.2.1"));
  CHECK_FALSE(is_local_address("localhost"));
  for (const std::string& address : local_addresses()) CHECK(is_local_address(address));
}
