#include "analyzers/communicator_errors.h"

#include <catch2/catch.hpp>

#include <map>

#include "analyzers/analysis.h"
#include "known/nccl_results.h"
#include "support/literal_gpu.h"

using namespace rankstacks;
using namespace rankstacks::analyzers;
using namespace rankstacks::testing;

namespace {

using Accused = std::map<std::size_t, std::string>;
using Strings = std::vector<std::string>;
using Counts = std::vector<std::pair<std::string, std::int64_t>>;

const Stack kSynchronizes =
    Stack{nat("cuStreamSynchronize", "libcuda.so.1"), py("synchronize", kPackages + "torch/cuda/__init__.py", 1162)};

// Ranks in one synchronisation.
LiteralJob all_synchronize(int ranks) {
  LiteralJob literal;
  for (int r = 0; r < ranks; ++r) {
    RankSnapshot& rank = literal.rank(r, ranks, kSynchronizes + in_main(30), 'R');
    literal.thread(rank, rank.pid + 1000, "x",
                   {libc("pthread_cond_wait"), nat("c10d::ProcessGroupNCCL::Watchdog::run()")});
    for (ThreadSnapshot& thread : rank.threads)
      thread.motion = Motion{.samples = 3, .places = 1, .cpu_ms = 700, .runs = 5, .span_ms = 700};
  }
  literal.job.nccl = NcclStatus{.version = "2.28.9", .answers = 2};
  return literal;
}

void replace(LiteralJob& literal, ThreadSnapshot& thread, const Stack& stack) {
  thread.frames.clear();
  for (const Frame& frame : stack) thread.frames.push_back(literal.job.frames.intern(frame));
}

NcclMember member(const LiteralJob& literal, std::size_t r, int error = 0, Counts launched = {{"AllReduce", 5}}) {
  const RankSnapshot& rank = literal.job.ranks[r];
  return {.rank = static_cast<int>(r),
          .host = "192.0.2.2",
          .pid = rank.pid,
          .process = NcclMember::Process{rank.host, rank.pid},
          .async_error = error,
          .launched = std::move(launched)};
}

NcclCommunicator& communicator(LiteralJob& literal, std::vector<NcclMember> members) {
  const int size = static_cast<int>(members.size());
  auto& all = literal.job.nccl->communicators;
  all.push_back({.hash = std::to_string(all.size()), .size = size, .members = std::move(members)});
  return all.back();
}

Accused accused(const LiteralJob& literal) {
  Accused reasons;
  for (const Suspect& s : analyze(literal.job).verdict.suspects) reasons[s.rank] = to_string(s.reason);
  return reasons;
}

Verdict verdict_of(const LiteralJob& literal) { return analyze(literal.job).verdict; }

const Accused kBoth = {{0, "collective-mismatch"}, {1, "collective-mismatch"}};

}  // namespace

TEST_CASE("two ranks wait alike, and NCCL has been sent more than a call takes") {
  LiteralJob literal = all_synchronize(2);
  NcclCommunicator& one = communicator(literal, {member(literal, 0, 5), member(literal, 1)});
  SECTION("both are accused: whoever takes less has the error, right or wrong") {
    const Verdict v = verdict_of(literal);
    CHECK(accused(literal) == kBoth);
    CHECK(v.summary ==
          "ranks 0-1 wait for the GPU (main at train.py:30); by NCCL their calls do not fit each other, as rank 0 has "
          "been sent more than its own call takes (ncclInvalidUsage): both cannot be right, and the stacks do not show "
          "which is");
    CHECK(v.doubt == Doubt::kNone);
    CHECK(v.reference == kFromLaunches);
  }
  SECTION("no error, or a call that has not ended, or that a peer is lost, says nothing of their calls") {
    for (const int error : {0, 1, 2, 3, 6, 7, 8, 99}) {
      one.members[0].async_error = error;
      INFO(error);
      CHECK(verdict_of(literal).status == VerdictStatus::kSymmetric);
    }
  }
  SECTION("it has been aborted, or is being finalized: they wait for something else") {
    one.members[1].aborted = true;
    CHECK(accused(literal).empty());
    one.members[1].aborted = false;
    one.members[1].finalized = true;
    CHECK(accused(literal).empty());
  }
  SECTION("they go on") {
    for (NcclMember& each : one.members) each.counts_move = true;
    CHECK(verdict_of(literal).status == VerdictStatus::kHealthy);
  }
  SECTION("a member is not there, or is none of those looked at") {
    one.size = 3;
    CHECK(accused(literal).empty());
    one.missing.push_back({.rank = 2, .host = "192.0.2.2", .pid = 9, .unresponsive = true});
    CHECK(accused(literal).empty());
    one.missing.clear();
    one.members.push_back({.rank = 2, .host = "192.0.2.3", .pid = 9, .launched = {{"AllReduce", 5}}});
    CHECK(accused(literal).empty());
  }
  SECTION("counts that differ say more") {
    one.members[1].launched = {{"AllReduce", 4}};
    CHECK(accused(literal) == Accused{{1, "behind"}});
  }
  SECTION("other ranks that wait are not accused") {
    literal = all_synchronize(4);
    communicator(literal, {member(literal, 0, 5), member(literal, 1)});
    communicator(literal, {member(literal, 0), member(literal, 1), member(literal, 2), member(literal, 3)});
    CHECK(accused(literal) == kBoth);
    // Rank 0's communicators share what has met it: which of them it was is not known.
    literal.job.nccl->communicators[1].members[0].async_error = 5;
    CHECK(accused(literal).empty());
  }
  SECTION("one of them is at something else") {
    ThreadSnapshot& main = literal.job.ranks[1].threads[0];
    replace(literal, main, Stack{libc("clock_nanosleep")} + in_main(35));
    main.state = 'S';
    main.motion = Motion{.samples = 20, .places = 1, .cpu_ms = 0, .runs = 0, .span_ms = 5000};
    CHECK(accused(literal) == Accused{{1, "user-code"}});
  }
}

TEST_CASE("two ranks wait at different places, and NCCL has been sent more than a call takes: it is no long step") {
  LiteralJob literal = all_synchronize(2);
  replace(literal, literal.job.ranks[1].threads[0], kSynchronizes + in_main(33));
  communicator(literal, {member(literal, 0), member(literal, 1)});
  CHECK(accused(literal) == kBoth);
  CHECK(verdict_of(literal).doubt == Doubt::kGpuWaits);
  literal.job.nccl->communicators[0].members[1].async_error = 5;
  CHECK(accused(literal) == kBoth);
  CHECK(verdict_of(literal).doubt == Doubt::kNone);
}

TEST_CASE("of three ranks whose calls do not fit, none is accused by that alone") {
  LiteralJob literal = all_synchronize(3);
  communicator(literal, {member(literal, 0), member(literal, 1, 5), member(literal, 2)});
  const Verdict v = verdict_of(literal);
  CHECK(v.status == VerdictStatus::kUndecided);
  CHECK(v.suspects.empty());
  CHECK(v.summary ==
        "ranks 0-2 wait for their GPUs at the same place; by NCCL the calls of ranks 0-2 do not all fit each other, as "
        "rank 1 has been sent more than its own call takes (ncclInvalidUsage): whose call is the odd one is not known");
  REQUIRE(v.candidates.size() == 1);
  CHECK(v.candidates[0].rank == 1);
  CHECK(v.candidates[0].would_decide == "--gpu, or dumps of PyTorch's Flight Recorder");
}

TEST_CASE("a rank that is missing, to which NCCL has lost a connection") {
  LiteralJob literal = all_synchronize(2);
  for (RankSnapshot& rank : literal.job.ranks) rank.world_size = 3;
  NcclCommunicator& one = communicator(literal, {member(literal, 0), member(literal, 1)});
  one.size = 3;
  one.missing.push_back({.rank = 2, .host = "192.0.2.2", .pid = 9, .unresponsive = true});
  const auto confidence = [&] {
    const Verdict v = verdict_of(literal);
    REQUIRE(v.suspects.size() == 1);
    CHECK((v.suspects[0].missing_rank == 2 && v.suspects[0].reason == Reason::kMissing));
    return v.suspects[0].confidence;
  };
  const double without = confidence();
  CHECK(!is_lost_peer(literal.job, 2));
  one.members[0].async_error = 6;
  CHECK(confidence() > without);
  CHECK(is_lost_peer(literal.job, 2));
  CHECK(!is_lost_peer(literal.job, 1));
  CHECK(
      verdict_of(literal).summary ==
      "rank 2 is not there (ended: NCCL has lost a connection, and has no answer from there) while ranks 0-1 wait for "
      "their GPUs");
  one.size = 2;  // a communicator of some ranks: its numbers are its own
  CHECK(!is_lost_peer(literal.job, 2));
}

TEST_CASE("what NCCL says of its communicators, in words") {
  LiteralJob literal = all_synchronize(3);
  CHECK(describe_communicator_errors(literal.job).empty());
  NcclCommunicator& one = communicator(literal, {member(literal, 0), member(literal, 1, 7), member(literal, 2)});
  CHECK(describe_communicator_errors(literal.job).empty());
  SECTION("errors, each with those that have met it") {
    one.size = 5;
    one.missing.push_back({.rank = 3, .host = "192.0.2.2", .pid = 8, .unresponsive = true});
    one.members.push_back({.rank = 4, .host = "192.0.2.3", .pid = 9, .async_error = 6});
    one.members[0].async_error = one.members[2].async_error = 6;
    one.members[1].async_error = 77;
    CHECK(describe_communicator_errors(literal.job) ==
          Strings{"communicator of ranks 0-2 and 2 others: ncclRemoteError at ranks 0,2 and 1 other (a connection to a "
                  "peer has ended, or the network has failed)",
                  "communicator of ranks 0-2 and 2 others: error 77 at rank 1"});
  }
  SECTION("an end that not all have come to") {
    one.members[1].finalized = one.members[2].aborted = true;
    CHECK(describe_communicator_errors(literal.job) ==
          Strings{"communicator of ranks 0-2: aborted by rank 2 (ncclCommAbort)",
                  "communicator of ranks 0-2: finalized or destroyed by rank 1, not by the others"});
    for (NcclMember& each : one.members) each.finalized = true, each.aborted = false;
    CHECK(describe_communicator_errors(literal.job).empty());
  }
}

TEST_CASE("NCCL's results have the names of nccl.h") {
  CHECK(known::nccl_result_name(known::kNcclInvalidUsage) == "ncclInvalidUsage");
  CHECK(known::nccl_result_name(known::kNcclRemoteError) == "ncclRemoteError");
  CHECK(known::nccl_result_name(9).empty());
  CHECK(known::nccl_result_meaning(-1).empty());
  CHECK((known::is_nccl_error(99) && !known::is_nccl_error(known::kNcclInProgress)));
}
