#include "analyzers/flight_records.h"

#include <catch2/catch.hpp>

#include <fmt/format.h>
#include <map>

#include "analyzers/analysis.h"
#include "support/literal_gpu.h"

using namespace rankstacks;
using namespace rankstacks::analyzers;
using namespace rankstacks::testing;

namespace {

using Accused = std::map<std::size_t, std::string>;
using Operations = std::vector<RecordedOperation>;

RecordedOperation called(std::int64_t sequence, const std::string& name, std::int64_t elements = 1024,
                         RecordedState state = RecordedState::kScheduled, const std::string& type = "Float") {
  return {.sequence = sequence,
          .is_message = name.starts_with("send ") || name.starts_with("recv "),
          .name = name,
          .state = state,
          .input_sizes = {{elements}},
          .input_types = {type}};
}
RecordedOperation ended(std::int64_t sequence, const std::string& name = "all_reduce") {
  return called(sequence, name, 1024, RecordedState::kCompleted);
}

RecordedGroup group(const Operations& operations, std::vector<int> ranks, const std::string& name = "0") {
  RecordedGroup one{.name = name, .description = "g", .library = "nccl", .ranks = std::move(ranks)};
  for (const RecordedOperation& operation : operations) {
    if (operation.is_message) continue;
    one.last_enqueued = std::max(one.last_enqueued.value_or(0), operation.sequence);
    if (operation.state == RecordedState::kCompleted) one.last_completed = operation.sequence;
  }
  one.operations = operations;
  return one;
}

// Ranks at one place, all of which wait for their GPUs; rank 1 at another place if `elsewhere`.
LiteralJob waiting(int ranks, const std::vector<std::vector<RecordedGroup>>& recorded, bool elsewhere = false) {
  LiteralJob literal;
  for (int r = 0; r < ranks; ++r) {
    Stack stack = waits_for_gpu();
    if (elsewhere && r == 1) stack.insert(stack.end() - 2, py("simulate", "/home/u/train.py", 7));
    RankSnapshot& rank = nccl_rank(literal, r, ranks, stack);
    if (static_cast<std::size_t>(r) < recorded.size() && !recorded[r].empty())
      rank.flight_record = FlightRecord{
          .path = "/tmp/trace_" + std::to_string(r), .version = "2.10", .age_ms = 100.0, .groups = recorded[r]};
  }
  return literal;
}

// Dumps of the recorders, and nothing else, `last_call_ms` after the last calls.
LiteralJob recorded_alone(const std::vector<std::vector<RecordedGroup>>& recorded, double last_call_ms = 600'000) {
  LiteralJob literal = waiting(static_cast<int>(recorded.size()), recorded);
  for (RankSnapshot& rank : literal.job.ranks) {
    rank.source = Source::kDump;
    rank.threads.clear();
    rank.gpus.clear();
    rank.world_size.reset();
    if (!rank.flight_record) continue;
    rank.flight_record->age_ms.reset();
    rank.flight_record->last_call_ms = last_call_ms;
  }
  return literal;
}

Accused accused(const LiteralJob& literal) {
  Accused reasons;
  for (const Suspect& s : analyze(literal.job).verdict.suspects) reasons[s.rank] = to_string(s.reason);
  return reasons;
}
std::string summary(const LiteralJob& literal) { return analyze(literal.job).verdict.summary; }

const std::vector<int> kFour{0, 1, 2, 3}, kTwo{0, 1};
const RecordedGroup kReduces = group({ended(3), called(4, "all_reduce")}, kFour);

}  // namespace

TEST_CASE("another operation under one number of a group") {
  const RecordedGroup gathers = group({ended(3), called(4, "_all_gather_base")}, kFour);
  const LiteralJob job = waiting(4, {{kReduces}, {gathers}, {kReduces}, {kReduces}});
  CHECK(accused(job) == Accused{{1, "collective-mismatch"}});
  CHECK(summary(job).find("operation 4 of group 0 (g) is _all_gather_base of 1024 Float for rank 1, and all_reduce of "
                          "1024 Float for ranks 0,2-3") != std::string::npos);
  CHECK(analyze(job.job).verdict.reference == kFromFlightRecords);
  SECTION("of another size, or type") {
    CHECK(accused(waiting(4, {{kReduces}, {group({called(4, "all_reduce", 64)}, kFour)}, {kReduces}, {kReduces}})) ==
          Accused{{1, "collective-mismatch"}});
    const RecordedGroup half = group({called(4, "all_reduce", 1024, RecordedState::kScheduled, "Half")}, kFour);
    CHECK(accused(waiting(4, {{kReduces}, {kReduces}, {kReduces}, {half}})) == Accused{{3, "collective-mismatch"}});
  }
  SECTION("two against two") { CHECK(accused(waiting(4, {{kReduces}, {gathers}, {gathers}, {kReduces}})).size() == 4); }
  SECTION("a size that depends on the rank") {
    CHECK(accused(
              waiting(2, {{group({called(4, "all_to_all", 10)}, kTwo)}, {group({called(4, "all_to_all", 90)}, kTwo)}}))
              .empty());
  }
  SECTION("one that has ended everywhere") {
    const RecordedGroup odd = group({ended(3, "broadcast"), called(4, "all_reduce")}, kFour);
    CHECK(accused(waiting(4, {{kReduces}, {odd}, {kReduces}, {kReduces}})).empty());
  }
}

TEST_CASE("a rank whose own kernels keep it from a call may be in a long step") {
  const auto job_of = [](double span_ms) {
    LiteralJob job = waiting(2, {{group({ended(3), called(4, "all_reduce")}, kTwo)}, {group({ended(3)}, kTwo)}}, true);
    for (RankSnapshot& rank : job.job.ranks)
      rank.threads[0].motion = Motion{.samples = 3, .places = 1, .cpu_ms = span_ms * 0.9, .span_ms = span_ms};
    return job;
  };
  const Verdict brief = analyze(job_of(800).job).verdict;
  CHECK(accused(job_of(800)) == Accused{{1, "gpu-wait"}});
  CHECK(brief.doubt == Doubt::kGpuWaits);
  CHECK(accused(job_of(7000)) == Accused{{1, "gpu-wait"}});
  CHECK(analyze(job_of(7000).job).verdict.doubt == Doubt::kNone);
  for (const double last_call_ms : {11'000.0, 14'000.0}) {
    LiteralJob job = job_of(7000);
    FlightRecord& record = *job.job.ranks[1].flight_record;
    record.last_call_ms = last_call_ms;
    record.longest_gap_ms = 13'000;
    CHECK(accused(job) == (last_call_ms > 13'000 ? Accused{{1, "gpu-wait"}} : Accused{}));
  }
}

TEST_CASE("a dump that does not belong to these stacks accuses nobody") {
  const RecordedGroup gathers = group({called(4, "_all_gather_base")}, kFour);
  LiteralJob job = waiting(4, {{kReduces}, {gathers}, {kReduces}, {kReduces}});
  SECTION("older") { job.job.ranks[1].flight_record->age_ms = 90'000; }
  SECTION("of unknown age") { job.job.ranks[1].flight_record->age_ms.reset(); }
  SECTION("none") { job.job.ranks[1].flight_record.reset(); }
  SECTION("a group of other members") { job.job.ranks[1].flight_record->groups[0].ranks = {1, 2}; }
  SECTION("a group whose members are unknown") {
    for (RankSnapshot& rank : job.job.ranks) rank.flight_record->groups[0].ranks.clear();
  }
  SECTION("of another library") { job.job.ranks[1].flight_record->groups[0].library = "gloo"; }
  CHECK(accused(job).empty());
}

TEST_CASE("a record from memory is compared with a dump of another rank") {
  const RecordedGroup gathers = group({called(4, "_all_gather_base")}, kFour);
  LiteralJob job = waiting(4, {{kReduces}, {gathers}, {kReduces}, {kReduces}});
  job.job.ranks[1].flight_record->from_memory = true;
  CHECK(accused(job) == Accused{{1, "collective-mismatch"}});
  SECTION("in which its library is not known, as no operation of it is left") {
    RecordedGroup& empty = job.job.ranks[1].flight_record->groups[0];
    empty = group({}, kFour);
    empty.library.clear();
    empty.last_enqueued = empty.last_completed = 3;
    CHECK(accused(job) == Accused{{1, "behind"}});
  }
}

TEST_CASE("dumps of cores may be older, as the watchdog ends its process later") {
  LiteralJob job = waiting(2, {{group({called(4, "all_reduce")}, kTwo)}, {group({called(4, "broadcast")}, kTwo)}});
  for (RankSnapshot& rank : job.job.ranks) rank.source = Source::kCore, rank.flight_record->age_ms = 90'000;
  CHECK(accused(job).size() == 2);
}

TEST_CASE("a rank that has not called what the others wait in") {
  const RecordedGroup behind = group({ended(3)}, kFour);
  CHECK(accused(waiting(4, {{kReduces}, {behind}, {kReduces}, {kReduces}})) == Accused{{1, "behind"}});
  CHECK(accused(waiting(4, {{kReduces}, {behind}, {kReduces}, {kReduces}}, true)) == Accused{{1, "gpu-wait"}});
  SECTION("CPUs that are ahead of their GPUs by different numbers") {
    const RecordedGroup ahead = group({ended(3), called(4, "all_reduce"), called(5, "all_reduce")}, kFour);
    CHECK(accused(waiting(4, {{kReduces}, {ahead}, {ahead}, {ahead}})).empty());
  }
  SECTION("most of them") { CHECK(accused(waiting(4, {{kReduces}, {behind}, {behind}, {behind}})).empty()); }
  SECTION("one of which nothing is known") {
    RecordedGroup unknown = group({}, kFour);
    CHECK(accused(waiting(4, {{kReduces}, {unknown}, {kReduces}, {kReduces}})).empty());
  }
}

TEST_CASE("groups in another order by the dumps") {
  const auto in = [](const std::string& name, bool called_it) {
    return group(called_it ? Operations{ended(1), called(2, "all_reduce")} : Operations{ended(1)}, kFour, name);
  };
  CHECK(accused(waiting(4, {{in("1", true), in("2", false)},
                            {in("1", false), in("2", true)},
                            {in("1", true), in("2", false)},
                            {in("1", true), in("2", false)}})) == Accused{{1, "process-group-order"}});
}

TEST_CASE("the rank that did otherwise than in every step before") {
  // Ranks 0 and 3 sum in a group of their own, then all do.
  const std::vector<int> ends = {0, 3};
  const RecordedGroup waits_in_all = group({ended(4), called(5, "all_reduce")}, kFour);
  std::vector<std::vector<RecordedGroup>> recorded = {
      {group({ended(4)}, kFour), group({ended(3), called(4, "all_reduce")}, ends, "1")},
      {waits_in_all},
      {waits_in_all},
      {waits_in_all, group({ended(3)}, ends, "1")}};
  const auto accused_with = [&](std::vector<std::uint32_t> of_0, std::vector<std::uint32_t> of_3) {
    LiteralJob job = waiting(4, recorded);
    job.job.ranks[0].flight_record->recent_calls = std::move(of_0);
    job.job.ranks[3].flight_record->recent_calls = std::move(of_3);
    return accused(job);
  };
  const Accused alone = {{0, "collective-mismatch"}}, left_out = {{3, "collective-mismatch"}};
  CHECK(accused_with({0, 1, 0, 1, 0, 1, 0, 1}, {0, 1, 0, 1, 0, 1, 0, 0}) == left_out);
  // The other order: rank 0 has left out the call of all.
  CHECK(accused_with({0, 1, 0, 1, 0, 1, 0, 1, 1}, {0, 1, 0, 1, 0, 1, 0, 1, 0}) == alone);
  // Another operation than in all the steps: the epoch has ended for it, and rank 0 has a step more.
  for (const std::size_t r : {1U, 2U, 3U}) recorded[r][0] = group({ended(4), called(5, "_all_gather_base")}, kFour);
  CHECK(accused_with({0, 1, 0, 1, 0, 1, 0, 1}, {0, 1, 0, 1, 0, 1, 0, 0}) == alone);
  for (const std::size_t r : {1U, 2U, 3U}) recorded[r][0] = waits_in_all;
  // There is no habit, or too short a one.
  CHECK(accused_with({0, 1, 0, 1, 0, 1, 0, 1}, {0, 1, 0, 1, 1, 0, 1, 0, 0}) == alone);
  CHECK(accused_with({0, 1, 0, 1}, {0, 1, 0, 0}) == alone);
  CHECK(accused_with({}, {}) == alone);
}

TEST_CASE("gloo's records, of whose groups the ranks' frames have the members") {
  const auto of_gloo = [](const Operations& operations) {
    RecordedGroup one = group(operations, {}, "1");
    one.library = "gloo";
    return one;
  };
  LiteralJob job = waiting(2, {{group({ended(3)}, kTwo), of_gloo({ended(6), called(7, "all_gather")})},
                               {group({ended(3), called(4, "scatter")}, kTwo), of_gloo({ended(6)})}});
  const auto name = [](RankSnapshot& rank, std::vector<int> ranks) {
    rank.threads[0].variables.push_back({.numbers = {}, .group = ProcessGroup{"1", std::move(ranks)}});
  };
  CHECK(analyze(job.job).verdict.summary.find("operation 7") == std::string::npos);
  name(job.job.ranks[0], kTwo);
  CHECK(accused(job) == Accused{{0, "process-group-order"}, {1, "process-group-order"}});
  CHECK(summary(job).find("operation 7 of group 1 (g), and rank 1 waits in operation 4") != std::string::npos);
  // Two groups of that name.
  name(job.job.ranks[1], {1});
  CHECK(analyze(job.job).verdict.summary.find("operation 7") == std::string::npos);
}

TEST_CASE("three groups, in each of which a rank waits for the next one") {
  const auto pair = [](int a, int b, bool has_called) {
    return has_called ? group({ended(3), called(4, "all_reduce")}, {a, b}, std::to_string(a + b))
                      : group({ended(3)}, {a, b}, std::to_string(a + b));
  };
  const LiteralJob job = waiting(3, {{pair(0, 1, true), pair(0, 2, false)},
                                     {pair(1, 2, true), pair(0, 1, false)},
                                     {pair(0, 2, true), pair(1, 2, false)}});
  CHECK(accused(job) == Accused{{0, "process-group-order"}, {1, "process-group-order"}, {2, "process-group-order"}});
  CHECK(summary(job).find("by the Flight Recorder each of 3 groups needs a rank that waits in another: rank 0 waits in "
                          "operation 4 of group 1 (g)") != std::string::npos);
  SECTION("not so if one of them needs nobody") {
    CHECK(accused(waiting(3, {{pair(0, 1, true), pair(0, 2, false)},
                              {pair(1, 2, true), pair(0, 1, false)},
                              {pair(0, 2, false), pair(1, 2, false)}}))
              .size() < 3);
  }
}

TEST_CASE("a message whose peer has nothing left to do, by its record, and is elsewhere") {
  const LiteralJob job =
      waiting(2, {{group({ended(1)}, kTwo)}, {group({ended(1), called(5, "recv 1<-0")}, kTwo)}}, true);
  CHECK(accused(job) == Accused{{1, "unmatched-p2p"}});
  SECTION("which is not known of a list that is full") {
    RecordedGroup full = group({ended(1)}, kTwo);
    full.left_out = 3;
    CHECK(accused(waiting(2, {{full}, {group({ended(1), called(5, "recv 1<-0")}, kTwo)}}, true)) !=
          Accused{{1, "unmatched-p2p"}});
  }
}

TEST_CASE("messages without a counterpart in the dumps") {
  const RecordedGroup sends = group({ended(3), called(1, "send 0->1")}, kTwo);
  CHECK(accused(waiting(2, {{sends}, {group({ended(3), called(4, "all_reduce")}, kTwo)}})) ==
        Accused{{0, "unmatched-p2p"}});
  CHECK(accused(waiting(2, {{sends}, {group({ended(3), called(1, "recv 1<-0")}, kTwo)}})).empty());
  const std::vector<std::vector<RecordedGroup>> receive = {{group({called(1, "recv 0<-1")}, kTwo)},
                                                           {group({called(1, "recv 1<-0")}, kTwo)}};
  CHECK(accused(waiting(2, receive)).empty());  // both do the same
  CHECK(accused(waiting(2, receive, true)) == Accused{{0, "unmatched-p2p"}, {1, "unmatched-p2p"}});
}

TEST_CASE("a group of all ranks, and one of some: who waits alone") {
  const std::vector<int> some = {2, 3};
  const RecordedGroup waits_in_all = group({ended(4), called(5, "all_reduce")}, kFour),
                      not_in_all = group({ended(4)}, kFour);
  CHECK(accused(waiting(4, {{waits_in_all},
                            {waits_in_all},
                            {not_in_all, group({ended(4), called(5, "all_to_all")}, some, "2")},
                            {waits_in_all, group({ended(4)}, some, "2")}})) == Accused{{2, "collective-mismatch"}});
}

TEST_CASE("one has called a collective of a group more often, and all wait in one of another group") {
  const RecordedGroup all = group({ended(4), called(5, "all_reduce")}, kTwo);
  const std::vector<RecordedGroup> more = {all, group({ended(9), called(10, "all_reduce")}, kTwo, "1")},
                                   less = {all, group({ended(9)}, kTwo, "1")};
  CHECK(accused(waiting(2, {more, less})) == Accused{{0, "collective-mismatch"}, {1, "collective-mismatch"}});
}

TEST_CASE("an exchange that has ended where all that was sent has come") {
  RecordedOperation ends = called(8, "all_to_all", 100, RecordedState::kCompleted),
                    waits = called(8, "all_to_all", 100);
  ends.output_sizes = {{100}};
  waits.output_sizes = {{150}};
  const std::vector<std::vector<RecordedGroup>> recorded = {{group({ends, called(9, "all_reduce")}, kTwo)},
                                                            {group({waits, called(9, "all_reduce")}, kTwo)}};
  CHECK(accused(waiting(2, recorded)) == Accused{{1, "collective-mismatch"}});
  waits.output_sizes = {{100}};  // its GPU may be in something else
  CHECK(accused(waiting(2, {recorded[0], {group({waits, called(9, "all_reduce")}, kTwo)}})).empty());
}

TEST_CASE("messages are compared in the order in which they have to end") {
  const auto recorded = [](const std::vector<std::pair<int, std::string>>& messages) {
    Operations operations;
    for (const auto& [number, name] : messages) operations.push_back(called(number, name));
    return group(operations, kTwo);
  };
  SECTION("the other one sends only after it has received more") {
    CHECK(accused(waiting(2, {{recorded({{56, "send 0->1"}, {56, "recv 0<-1"}, {57, "send 0->1"}})},
                              {recorded({{57, "recv 1<-0"}, {58, "recv 1<-0"}, {63, "send 1->0"}})}})) ==
          Accused{{0, "unmatched-p2p"}, {1, "unmatched-p2p"}});
  }
  SECTION("all of them meet") {
    CHECK(accused(waiting(2, {{recorded({{56, "send 0->1"}, {57, "recv 0<-1"}})},
                              {recorded({{57, "recv 1<-0"}, {58, "send 1->0"}})}}))
              .empty());
  }
}

TEST_CASE("a ring of messages that one rank leaves out") {
  std::vector<std::vector<RecordedGroup>> recorded;
  for (int r = 0; r < 4; ++r) {
    const std::string to = fmt::format("send {}->{}", r, (r + 1) % 4),
                      from = fmt::format("recv {}<-{}", r, (r + 3) % 4);
    const auto state = r == 0 ? RecordedState::kCompleted : RecordedState::kScheduled;
    Operations operations = {called(11, to, 8, RecordedState::kCompleted),
                             called(11, from, 8, RecordedState::kCompleted)};
    if (r != 2) operations.insert(operations.end(), {called(12, to, 8, state), called(12, from, 8, state)});
    operations.push_back(called(5, "all_reduce"));
    recorded.push_back({group(operations, kFour)});
  }
  CHECK(accused(waiting(4, recorded)) == Accused{{2, "collective-mismatch"}});
}

TEST_CASE("stages that wait for each other in a line, the last of which has gone on") {
  const std::vector<int> three = {0, 1, 2};
  const auto job = [&](int line) {
    LiteralJob literal = waiting(
        2, {{group({ended(1), called(12, "recv 0<-1")}, three)}, {group({ended(1), called(12, "recv 1<-2")}, three)}});
    for (RankSnapshot& rank : literal.job.ranks) rank.world_size = 3;
    nccl_rank(literal, 2, 3, waits_in_all_reduce(line)).flight_record =
        FlightRecord{.path = "/tmp/trace_2",
                     .version = "2.10",
                     .age_ms = 100.0,
                     .groups = {group({ended(1)}, three), group({called(4, "all_reduce")}, three, "1")}};
    return accused(literal);
  };
  // The others wait at line 17.
  CHECK(job(18) == Accused{{2, "collective-mismatch"}});
  CHECK(job(16) == Accused{{1, "unmatched-p2p"}});
}

TEST_CASE("a record in memory, and a watchdog that cannot note what has ended") {
  const RecordedGroup sends = group({ended(3), called(1, "send 0->1")}, kTwo);
  LiteralJob job = waiting(2, {{sends}, {group({ended(3), called(4, "all_reduce")}, kTwo)}});
  for (RankSnapshot& rank : job.job.ranks) rank.flight_record->from_memory = true;
  CHECK(accused(job) == Accused{{0, "unmatched-p2p"}});
  SECTION("in a call of the driver") {
    Frame driver = nat("cuEventQuery");
    driver.module = "/usr/lib/libcuda.so.580.1";
    job.thread(job.job.ranks[0], 900, "pt_nccl_watchdg", {driver, nat("c10d::ProcessGroupNCCL::Watchdog::runLoop()")});
    CHECK(accused(job).empty());
    CHECK(describe_recorded_wait(job.job, job.job.ranks[0], analyze(job.job).roles[0]).empty());
  }
  SECTION("it sleeps") {
    job.thread(job.job.ranks[0], 900, "pt_nccl_watchdg",
               {libc("pthread_cond_timedwait"), nat("c10d::ProcessGroupNCCL::Watchdog::runLoop()")});
    CHECK(accused(job) == Accused{{0, "unmatched-p2p"}});
  }
  SECTION("the default groups of two libraries") {
    RecordedGroup of_gloo = group({called(1, "barrier")}, kTwo);
    of_gloo.library = "gloo";
    job.job.ranks[0].flight_record->groups.push_back(of_gloo);
    CHECK(accused(job) == Accused{{0, "unmatched-p2p"}});
  }
}

TEST_CASE("the operation that a dump says a rank waits in") {
  const LiteralJob job = waiting(4, {{kReduces}, {kReduces}, {kReduces}, {kReduces}});
  CHECK(describe_recorded_wait(job.job, job.job.ranks[0], analyze(job.job).roles[0]) ==
        "all_reduce, number 4 of group 0 (g)");
  bool named = false;
  for (const WaitNode& node : analyze(job.job).waits.nodes())
    named |= node.text.find("all_reduce, number 4 of group 0") != std::string::npos;
  CHECK(named);
  CHECK(recorded_differences(job.job).empty());
  const auto differences =
      recorded_differences(waiting(4, {{kReduces}, {group({ended(3)}, kFour)}, {kReduces}, {kReduces}}).job);
  REQUIRE(differences.size() == 1);
  CHECK(differences[0].group == "group 0 (g)");
  REQUIRE(differences[0].positions.size() == 2);
  CHECK(differences[0].positions[0].text == "called 4, ended 3, waits in all_reduce of 1024 Float");
  CHECK(differences[0].positions[1].text == "called 3, ended 3");
}

TEST_CASE("dumps alone: another operation, a rank that has not called, a message") {
  const RecordedGroup gathers = group({ended(3), called(4, "_all_gather_base")}, kFour);
  const LiteralJob other = recorded_alone({{kReduces}, {gathers}, {kReduces}, {kReduces}});
  CHECK(accused(other) == Accused{{1, "collective-mismatch"}});
  CHECK(analyze(other.job).verdict.reference == kFromFlightRecords);
  CHECK(analyze(other.job).verdict.suspects[0].confidence <
        analyze(waiting(4, {{kReduces}, {gathers}, {kReduces}, {kReduces}}).job).verdict.suspects[0].confidence);
  CHECK(summary(other).find("rank 1 waits in _all_gather_base, number 4 of group 0 (g) while") == 0);

  const LiteralJob late = recorded_alone({{kReduces}, {kReduces}, {group({ended(3)}, kFour)}, {kReduces}});
  CHECK(accused(late) == Accused{{2, "behind"}});
  CHECK(summary(late).find(
            "not called operation 4 of group 0 (g), all_reduce of 1024 Float, in which ranks 0-1,3 wait") !=
        std::string::npos);

  const LiteralJob alone =
      recorded_alone({{group({ended(1), called(5, "recv 0<-1")}, kTwo)}, {group({ended(1)}, kTwo)}});
  CHECK(accused(alone).empty());  // rank 1 is held up, or that receive is one too many
  REQUIRE(!analyze(alone.job).verdict.candidates.empty());
  CHECK(analyze(alone.job).verdict.candidates[0].rank == 1);
}

TEST_CASE("dumps alone, of a moment: who has not called yet may do so") {
  const std::vector<std::vector<RecordedGroup>> late{{kReduces}, {kReduces}, {group({ended(3)}, kFour)}, {kReduces}};
  LiteralJob job = recorded_alone(late, 300);
  const Verdict verdict = analyze(job.job).verdict;
  CHECK(verdict.status == VerdictStatus::kUndecided);
  REQUIRE(verdict.candidates.size() == 1);
  CHECK(verdict.candidates[0].rank == 2);
  CHECK(verdict.candidates[0].reason == Reason::kBehind);
  job = recorded_alone(late, 30'000);
  CHECK(accused(job) == Accused{{2, "behind"}});
  for (RankSnapshot& rank : job.job.ranks) rank.flight_record->longest_gap_ms = 40'000;  // a checkpoint
  CHECK(accused(job).empty());
  job.job.ranks[2].flight_record->age_ms = 86'400'000;  // of another time
  CHECK(analyze(job.job).verdict.candidates.front().reason != Reason::kBehind);
  // A message that the peer has not called yet; another operation under one number is no matter of time.
  CHECK(accused(recorded_alone({{group({ended(1), called(5, "recv 0<-1")}, kTwo)}, {group({ended(1)}, kTwo)}}, 300))
            .empty());
  const RecordedGroup gathers = group({ended(3), called(4, "_all_gather_base")}, kFour);
  CHECK(accused(recorded_alone({{kReduces}, {gathers}, {kReduces}, {kReduces}}, 300)) ==
        Accused{{1, "collective-mismatch"}});
}

TEST_CASE("dumps alone: all wait in the same, some of them at least, or a dump is not there") {
  const LiteralJob same = recorded_alone({{kReduces}, {kReduces}, {kReduces}, {kReduces}});
  CHECK(analyze(same.job).verdict.status == VerdictStatus::kSymmetric);
  CHECK(summary(same).find("ranks 0-3 wait in all_reduce, number 4 of group 0 (g)") != std::string::npos);

  const LiteralJob three = recorded_alone({{kReduces}, {kReduces}, {kReduces}});
  CHECK(analyze(three.job).verdict.status == VerdictStatus::kUndecided);
  CHECK(summary(three).find("no dump of rank 3, which is of the group, is here") != std::string::npos);

  const LiteralJob none = recorded_alone({{group({ended(3)}, kTwo)}, {group({ended(3)}, kTwo)}});
  CHECK(analyze(none.job).verdict.status == VerdictStatus::kUndecided);
}

TEST_CASE("a rank of which there is a dump alone, among others with stacks") {
  LiteralJob mixed = waiting(3, {{kReduces}, {kReduces}, {kReduces}});
  mixed.job.ranks[1].source = Source::kDump;
  mixed.job.ranks[1].threads.clear();
  CHECK(summary(mixed).find("of rank 1 only the dump of a Flight Recorder is at hand") != std::string::npos);
  CHECK(accused(mixed).empty());

  // Of the others there are records as well, all of dumps: they decide, but a crash that a stack shows comes first.
  LiteralJob all =
      recorded_alone({{kReduces}, {group({ended(3), called(4, "_all_gather_base")}, kFour)}, {kReduces}, {kReduces}});
  RankSnapshot& first = all.job.ranks[0];
  first.threads = waiting(1, {}).job.ranks[0].threads;
  for (ThreadSnapshot& thread : first.threads) thread.frames.edit().clear();  // of another job
  CHECK(accused(all) == Accused{{1, "collective-mismatch"}});
  first.signal = SignalInfo{.number = 11, .name = "SIGSEGV", .tid = first.threads[0].tid};
  CHECK(accused(all) == Accused{{0, "crashed"}});
}
