#include <optional>
#include <set>

#include <catch2/catch.hpp>

#include "analyzers/analysis.h"
#include "support/collective_calls.h"
#include "support/literal_gpu.h"

using namespace rankstacks;
using namespace rankstacks::analyzers;
using namespace rankstacks::testing;

TEST_CASE("messages without a counterpart") {
  LiteralJob literal;
  SECTION("a receive from a rank in a collective") {
    for (int r = 0; r < 4; ++r) {
      if (r == 1) arguments(literal.rank(r, 4, in_call("recv", 20)), kWorld, {{"src", 3}});
      else arguments(literal.rank(r, 4, in_call("all_reduce", 9)), kWorld);
    }
    CHECK(accused(literal) == Accused{{1, "unmatched-p2p"}});
    CHECK(analyze(literal.job).verdict.summary.find("recv from rank 3") != std::string::npos);
  }
  SECTION("MPI's receives, peers unknown: nobody sends") {
    for (int r = 0; r < 4; ++r)
      literal.rank(r, 4,
                   {nat("progress", "libmpi.so.40"), nat(r < 2 ? "PMPI_Mprobe" : "PMPI_Allreduce", "libmpi.so.40"),
                    nat("main", "/home/u/a.out")});
    CHECK(accused(literal) == Accused{{0, "unmatched-p2p"}, {1, "unmatched-p2p"}});
    CHECK(analyze(literal.job).activities[0]->operation == "MPI_Mprobe");
    CHECK(analyze(literal.job).verdict.suspects[0].advice.starts_with("find out which rank it"));
  }
  SECTION("two receive from each other") {
    for (int r = 0; r < 4; ++r) {
      if (r < 2) arguments(literal.rank(r, 4, in_call("recv", 20 + r)), kWorld, {{"src", 1 - r}});
      else arguments(literal.rank(r, 4, in_call("barrier", 30)), kWorld);
    }
    CHECK(accused(literal) == Accused{{0, "unmatched-p2p"}, {1, "unmatched-p2p"}});
  }
  SECTION("a send and a receive that name each other") {
    const auto pair = [](int tag, const std::string& group, int step) {
      LiteralJob job;
      arguments(job.rank(0, 2, in_call("recv", 20)), ProcessGroup{"1", {0, 1}}, {{"src", 1}, {"tag", 3}}, 3);
      arguments(job.rank(1, 2, in_call("send", 22)), ProcessGroup{group, {0, 1}}, {{"dst", 0}, {"tag", tag}}, step);
      return accused(job);
    };
    const Accused both = {{0, "unmatched-p2p"}, {1, "unmatched-p2p"}};
    CHECK(pair(3, "1", 3).empty());
    CHECK(pair(4, "1", 3) == both);
    CHECK(pair(4, "1", 4) == both);
    CHECK(pair(3, "2", 3) == both);
  }
  SECTION("in a ring, one receives from the neighbour that it sends to") {
    // Rank 1 has turned to rank 2, which waits for it; the sends of ranks 0 and 3 wait for what is behind them.
    for (int r = 0; r < 4; ++r) {
      if (r == 1 || r == 2) arguments(literal.rank(r, 4, in_call("recv", 20)), kWorld, {{"src", 3 - r}});
      else arguments(literal.rank(r, 4, in_call("send", 21)), kWorld, {{"dst", (r + 1) % 4}});
    }
    CHECK(accused(literal) == Accused{{1, "unmatched-p2p"}});
  }
  SECTION("two receive from each other, one of them in the step that the other has left") {
    for (int r = 0; r < 4; ++r) {
      if (r != 1 && r != 2) {
        arguments(literal.rank(r, 4, in_call("barrier", 30)), kWorld);
        continue;
      }
      RankSnapshot& rank = literal.rank(r, 4, in_call("recv", 20));
      arguments(rank, kWorld, {{"src", 3 - r}});
      rank.threads[0].variables.push_back({rank.threads[0].frames.size() - 2, {{"step", r == 1 ? 3 : 4}}, {}, 1});
    }
    CHECK(accused(literal) == Accused{{1, "unmatched-p2p"}});
  }
  SECTION("two receive from each other, by a variable that is no counter: only if it can be nothing but a loop's") {
    const auto ring = [](const std::vector<int>& numbers, int loops = 1) {
      LiteralJob literal;
      for (int r = 0; r < 4; ++r) {
        const bool receives = r == 1 || r == 2;
        RankSnapshot& rank = literal.rank(r, 4, receives ? in_call("recv", 20) : in_call("wait", 21));
        if (receives) arguments(rank, kWorld, {{"src", 3 - r}});
        rank.threads[0].variables.push_back(
            {rank.threads[0].frames.size() - 2, {{"number", numbers[static_cast<std::size_t>(r)]}}, {}, loops});
      }
      return accused(literal);
    };
    const Accused both = {{1, "unmatched-p2p"}, {2, "unmatched-p2p"}};
    CHECK(ring({3, 3, 4, 4}) == Accused{{1, "unmatched-p2p"}});
    CHECK(ring({4, 4, 3, 3}) == Accused{{2, "unmatched-p2p"}});
    CHECK(ring({0, 0, 1, 1}) == both);  // rows of a grid
    CHECK(ring({4, 5, 6, 7}) == both);  // ranks
    CHECK(ring({3, 3, 9, 9}) == both);  // what two ranks have each
    CHECK(ring({3, 3, 4, 4}, 0) == both);
  }
  SECTION("neighbours that receive from each other at two lines, as the passes of a pipeline do: both") {
    for (int r = 0; r < 4; ++r) {
      if (r == 1 || r == 2) arguments(literal.rank(r, 4, in_call("recv", 20 + r)), kWorld, {{"src", 3 - r}});
      else arguments(literal.rank(r, 4, in_call("send", 30)), kWorld, {{"dst", (r + 1) % 4}});
    }
    CHECK(accused(literal) == Accused{{1, "unmatched-p2p"}, {2, "unmatched-p2p"}});
  }
  SECTION("in a pipeline, one receives from a stage that is no neighbour") {
    const auto pipeline = [](int peer_of_2, int world) {
      LiteralJob job;
      for (int r = 0; r < world; ++r) {
        if (r < 2) arguments(job.rank(r, world, in_call("send", 21)), kWorld, {{"dst", r + 1}});
        else arguments(job.rank(r, world, in_call("recv", 20)), kWorld, {{"src", r == 2 ? peer_of_2 : r - 1}});
      }
      return job;
    };
    CHECK(accused(pipeline(0, 4)) == Accused{{2, "unmatched-p2p"}});
    CHECK(accused(pipeline(0, 6)) == Accused{{2, "unmatched-p2p"}});
    CHECK(analyze(pipeline(0, 4).job).verdict.summary.find("while ranks 0-1 wait in send (main at") !=
          std::string::npos);  // not to one rank
    // Of so few, none is like most.
    const LiteralJob three = pipeline(0, 3);
    CHECK(accused(three).size() == 3);
    CHECK(
        analyze(three.job).verdict.summary.find("rank 0 waits in send to rank 1 (main at train.py:21), rank 1 waits in "
                                                "send to rank 2 (main at train.py:21) and rank 2 waits in recv from "
                                                "rank 0") == 0);
  }
  SECTION("all of a ring receive: nobody differs") {
    for (int r = 0; r < 4; ++r) arguments(literal.rank(r, 4, in_call("recv", 20)), kWorld, {{"src", (r + 3) % 4}});
    CHECK(analyze(literal.job).verdict.status == VerdictStatus::kSymmetric);
  }
  SECTION("a chain that leads to a rank elsewhere: that one") {
    for (int r = 0; r < 3; ++r) arguments(literal.rank(r, 4, in_call("recv", 20)), kWorld, {{"src", r + 1}});
    literal.rank(3, 4, in_getitem());
    CHECK(accused(literal) == Accused{{3, "data-loading"}});
  }
}

TEST_CASE("a receive from any rank while the others wait for their GPUs, which may compute") {
  LiteralJob literal;
  nccl_rank(literal, 0, 3, in_call("recv", 20));
  for (const int r : {1, 2}) nccl_rank(literal, r, 3, waits_for_gpu());
  for (RankSnapshot& rank : literal.job.ranks)
    for (ThreadSnapshot& thread : rank.threads) thread.motion = Motion{.samples = 3, .places = 1, .span_ms = 800};
  CHECK(accused(literal) == Accused{{0, "unmatched-p2p"}});
  CHECK(analyze(literal.job).verdict.doubt == Doubt::kGpuWaits);
}

TEST_CASE("a connection for a message that nobody else sets up") {
  const Stack sends = Stack{libc("accept"),
                            nat("bootstrapRecv(void*, int, int, void*, int)", "libnccl.so.2"),
                            nat("ncclTransportP2pSetup(ncclComm*, ncclTopoGraph*, int)", "libnccl.so.2"),
                            nat("ncclP2PPreconnectFunc(ncclAsyncJob*)", "libnccl.so.2"),
                            nat("ncclGroupEndInternal(ncclSimInfo_v22200*)", "libnccl.so.2"),
                            nat("c10d::ProcessGroupNCCL::groupEnd()")} +
                      in_main(16);
  const Stack receives =
      Stack{libc("recv"), py("recv", kPackages + "torch/distributed/distributed_c10d.py", 2500)} + in_main(18);
  LiteralJob literal;
  for (int r = 0; r < 4; ++r) literal.rank(r, 4, r == 1 ? sends : receives);
  CHECK(accused(literal) == Accused{{1, "unmatched-p2p"}});
  SECTION("half of them set up connections: with each other, as far as is known") {
    LiteralJob two;
    for (int r = 0; r < 4; ++r) two.rank(r, 4, r < 2 ? sends : receives);
    CHECK(accused(two).count(1) == 0);
  }
}

TEST_CASE("most ranks exchange messages at one place of the program, and one is in a collective") {
  const auto exchanges = [](int line) {
    return Stack{libc("recv"), py("batch_isend_irecv", kPackages + "torch/distributed/distributed_c10d.py", 2700)} +
           in_main(line);
  };
  LiteralJob literal;
  for (int r = 0; r < 4; ++r) literal.rank(r, 4, r == 2 ? waits_in_all_reduce() : exchanges(18));
  CHECK(accused(literal) == Accused{{2, "collective-mismatch"}});
  SECTION("at several places, as the stages of a pipeline") {
    LiteralJob stages;
    for (int r = 0; r < 4; ++r) stages.rank(r, 4, r == 2 ? waits_in_all_reduce() : exchanges(18 + r));
    CHECK(accused(stages).count(2) == 0);
  }
}

namespace {

// In a loop of main(), at a line of it, in the n-th step.
RankSnapshot& in_step(LiteralJob& literal, int r, int world, const Stack& call, int line, std::optional<int> step) {
  RankSnapshot& rank = literal.rank(r, world, call + in_main(line));
  FrameVariables loop{.frame = call.size(), .numbers = {}, .group = {}, .loops = 1};
  if (step) loop.numbers = {{"step", *step}};
  rank.threads[0].variables.push_back(std::move(loop));
  return rank;
}

const Stack kWaitsForSend = {libc("pthread_cond_clockwait"), nat("gloo::transport::tcp::UnboundBuffer::waitSend(int*)"),
                             nat("c10d::ProcessGroupGloo::SendWork::wait(std::chrono::duration<long>)")};
const Stack kInAllReduce = {libc("pthread_cond_wait"), nat("c10d::Work::wait(std::chrono::duration<long>)"),
                            py("all_reduce", kC10d, 2000)};

// Those that wait for a message at line 20, and the others in the all-reduce of another line.
Accused exchange(int world, const std::set<int>& waits, int line = 30, std::optional<int> step = 3,
                 const Stack& message = kWaitsForSend) {
  LiteralJob literal;
  for (int r = 0; r < world; ++r) {
    if (waits.contains(r)) in_step(literal, r, world, message, 20, 3);
    else in_step(literal, r, world, kInAllReduce, line, step);
  }
  return accused(literal);
}

}  // namespace

TEST_CASE("an exchange with neighbours that one rank has left out: those that wait for it are innocent") {
  CHECK(exchange(8, {2, 4}) == Accused{{3, "collective-mismatch"}});
  CHECK(exchange(9, {1, 3, 5, 7}) == Accused{{4, "collective-mismatch"}});   // in a grid of three rows
  CHECK(exchange(16, {1, 9, 4, 6}) == Accused{{5, "collective-mismatch"}});  // of four, 1 and 9 in its column
  CHECK(exchange(8, {0, 6}) == Accused{{7, "collective-mismatch"}});         // around the ring
  CHECK(exchange(8, {2, 3}).empty());                                        // nobody is in the middle
  CHECK(exchange(4, {1, 3}).empty());                                        // both others are, if it is a ring
  CHECK(exchange(8, {2, 4}, 10).empty());                                    // the others have not come there
  CHECK(exchange(8, {2, 4}, 30, 2).empty());                                 // they are in an earlier step
  CHECK(exchange(8, {2, 4}, 30, std::nullopt).empty());                      // in which step, is not known
  const Stack sendrecv = {nat("progress", "libmpi.so.40"), nat("PMPI_Sendrecv", "libmpi.so.40")},
              receive = {nat("progress", "libmpi.so.40"), nat("PMPI_Recv", "libmpi.so.40")};
  CHECK(exchange(8, {2, 4}, 30, 3, sendrecv) == Accused{{3, "collective-mismatch"}});
  // Each receives from the other, as far as is known.
  CHECK(exchange(8, {2, 4}, 30, 3, receive) == Accused{{2, "unmatched-p2p"}, {4, "unmatched-p2p"}});
  SECTION("those between which it is not decided are the candidates") {
    LiteralJob literal;
    for (int r = 0; r < 4; ++r) in_step(literal, r, 4, r % 2 ? kWaitsForSend : kInAllReduce, r % 2 ? 20 : 30, 3);
    const Verdict verdict = analyze(literal.job).verdict;
    CHECK(verdict.status == VerdictStatus::kUndecided);
    REQUIRE(verdict.candidates.size() == 2);
    CHECK(verdict.candidates[0].rank == 0);
    CHECK(verdict.candidates[1].rank == 2);
  }
}

TEST_CASE("several ranks receive from one that is further on in the program") {
  const Stack receives = {libc("pthread_cond_wait"), nat("gloo::transport::tcp::UnboundBuffer::waitRecv(int*)"),
                          py("recv", kC10d, 2000)};
  const auto job = [&](int line, int step) {
    LiteralJob literal;
    for (int r = 0; r < 6; ++r) {
      const bool receiver = r == 1 || r == 3;
      RankSnapshot& rank = in_step(literal, r, 6, receiver ? receives : kInAllReduce, receiver ? 20 + r : line, step);
      rank.threads[0].variables.push_back({.frame = 2, .numbers = {}, .group = ProcessGroup{"0", {0, 1, 2, 3, 4, 5}}});
      if (receiver) rank.threads[0].variables.edit().back().numbers = {{"src", 2}};
      if (receiver) rank.threads[0].variables.edit().front().numbers = {{"step", 3}};
    }
    return accused(literal);
  };
  const Accused receivers = {{1, "unmatched-p2p"}, {3, "unmatched-p2p"}};
  CHECK(job(30, 3) == Accused{{2, "collective-mismatch"}});
  CHECK(job(10, 3) == receivers);  // they have left out the collective of the others
  CHECK(job(30, 2) == receivers);
}

TEST_CASE("ranks wait for each other in a line, at one place, and the last of them for one that is further on") {
  const Stack receives = {libc("pthread_cond_wait"), nat("gloo::transport::tcp::UnboundBuffer::waitRecv(int*)"),
                          py("recv", kC10d, 2000)};
  const auto job = [&](int receivers, int line, int own_line, int source = 4) {
    LiteralJob literal;
    for (int r = 0; r < 5; ++r) {
      const bool receiver = r < 4 && r >= 4 - receivers;
      RankSnapshot& rank = in_step(literal, r, 5, receiver ? receives : kInAllReduce,
                                   !receiver ? line
                                   : r == 3  ? own_line
                                             : 20,
                                   3);
      rank.threads[0].variables.push_back({.frame = 2, .numbers = {}, .group = ProcessGroup{"0", {0, 1, 2, 3, 4}}});
      if (receiver) rank.threads[0].variables.edit().back().numbers = {{"src", r == 3 ? source : r + 1}};
    }
    return accused(literal);
  };
  CHECK(job(4, 30, 20) == Accused{{4, "collective-mismatch"}});
  const Accused receiver = {{3, "unmatched-p2p"}};
  CHECK(job(4, 10, 20) == receiver);  // they have left out its collective
  CHECK(job(4, 30, 22) == receiver);  // its own receive is another one
  CHECK(job(2, 30, 20) == Accused{{4, "collective-mismatch"}});
  CHECK(job(2, 30, 20, 1) == receiver);  // it does not receive from its neighbour, as the other one does
}
