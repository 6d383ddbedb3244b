// Waits for another rank through a pipe, a socket or a lock of the job's own, known from the process at the other end.
#include <catch2/catch.hpp>

#include <map>

#include "analyzers/analysis.h"
#include "support/literal_gpu.h"
#include "support/literal_job.h"

using namespace rankstacks;
using namespace rankstacks::analyzers;
using namespace rankstacks::testing;

namespace {

Stack in_ring() { return Stack{libc("recv"), py("average", "/home/u/ring.py", 34)} + in_main(20); }
Stack at_work() {
  return Stack{nat("simulate()", "/home/u/engine.so"), py("step", "/home/u/ring.py", 44)} + in_main(18);
}

// The rank waits for something that `others` have the other end of.
void blocked(RankSnapshot& rank, std::vector<Pid> others, const std::string& call = "recvfrom",
             EndKind kind = EndKind::kSocket) {
  SyscallInfo info;
  info.name = call;
  info.fd = 5;
  for (const Pid pid : others) info.others.push_back({.pid = pid, .kind = kind, .command = {}});
  rank.threads[0].syscall = std::move(info);
}

Verdict verdict_of(const LiteralJob& literal) { return analyze(literal.job).verdict; }

std::map<int, std::string> accused(const LiteralJob& literal) {
  std::map<int, std::string> reasons;
  for (const Suspect& s : verdict_of(literal).suspects) reasons[*literal.job.ranks[s.rank].rank] = to_string(s.reason);
  return reasons;
}
using Accused = std::map<int, std::string>;

Pid pid_of(int rank) { return 100 + rank; }  // as LiteralJob numbers processes

}  // namespace

TEST_CASE("a ring of sockets leads to the rank that is at work") {
  LiteralJob literal;
  for (int r = 0; r < 4; ++r) {
    RankSnapshot& rank = literal.rank(r, 4, r == 2 ? at_work() : in_ring(), r == 2 ? 'R' : 'S');
    if (r != 2) blocked(rank, {pid_of((r + 3) % 4)});
  }
  CHECK(accused(literal) == Accused{{2, "user-code"}});
  CHECK(verdict_of(literal).reference == kFromGroups);
}

TEST_CASE("a server that reads a request: whoever has sent the half of it") {
  const Stack reads = Stack{libc("recv"), py("readinto", "/usr/lib/python3.11/socket.py", 706)};
  LiteralJob literal;
  for (int r = 0; r < 4; ++r)
    literal.rank(r, 4,
                 r == 0   ? reads + Stack{py("serve", "/home/u/server.py", 25)} + in_main(20)
                 : r == 2 ? Stack{libc("read"), py("load", "/home/u/data.py", 31)} + in_main(30)
                          : Stack{libc("recv"), py("ask", "/home/u/client.py", 42)} + in_main(40));
  auto& ranks = literal.job.ranks;
  blocked(ranks[0], {pid_of(2)});
  ranks[2].threads[0].syscall = call("read", 7, "/data/gradients");
  // The server has not accepted these connections, and all processes have inherited its socket.
  for (const int r : {1, 3}) {
    blocked(ranks[r], {pid_of(0), pid_of(2), pid_of(4 - r)});
    ranks[r].threads[0].syscall->own_end = true;
  }
  CHECK(accused(literal) == Accused{{2, "file-io"}});
}

TEST_CASE("a server in a rank that waits in a group without the one that asks") {
  const auto job = [](std::vector<int> members) {
    LiteralJob literal;
    blocked(literal.rank(0, 3, in_ring()), {pid_of(1)});
    RankSnapshot& server = nccl_rank(literal, 1, 3, waits_for_gpu());
    RecordedGroup group{.name = "1", .description = "g", .library = "nccl", .ranks = std::move(members)};
    group.last_enqueued = 4, group.last_completed = 3;
    RecordedOperation& waits = group.operations.emplace_back();
    waits.sequence = 4, waits.name = "all_reduce", waits.state = RecordedState::kStarted;
    server.flight_record =
        FlightRecord{.path = "/tmp/trace_1", .version = "2.10", .age_ms = 100.0, .groups = {std::move(group)}};
    literal.rank(2, 3, at_work(), 'R');
    return accused(literal);
  };
  CHECK(job({1, 2}) == Accused{{2, "user-code"}});
  CHECK(job({0, 1, 2}).contains(0));  // it is what the collective lacks
}

TEST_CASE("all of a ring wait: nobody differs") {
  LiteralJob literal;
  for (int r = 0; r < 4; ++r) blocked(literal.rank(r, 4, in_ring()), {pid_of((r + 3) % 4)});
  const Verdict v = verdict_of(literal);
  CHECK(v.status == VerdictStatus::kSymmetric);
  CHECK(v.suspects.empty());
}

TEST_CASE("a file lock that a rank holds") {
  LiteralJob literal;
  for (int r = 0; r < 4; ++r)
    literal.rank(r, 4,
                 r < 2    ? waits_in_all_reduce()
                 : r == 2 ? Stack{libc("flock"), py("read_cache", "/home/u/cache.py", 7)} + in_main(12)
                          : Stack{libc("clock_nanosleep"), py("write_cache", "/home/u/cache.py", 20)} + in_main(12));
  blocked(literal.job.ranks[2], {pid_of(3)}, "flock", EndKind::kLock);
  CHECK(accused(literal) == Accused{{3, "user-code"}});
}

namespace {

// Each rank waits for its loader worker. Those of ranks 0 and 2 want a lock, that of rank 1 sleeps.
LiteralJob workers_at_a_lock() {
  const std::string queues = "/usr/lib/python3.11/multiprocessing/queues.py";
  const std::string loader = kPackages + "torch/utils/data/";
  const Stack waits = Stack{libc("poll"), py("get", queues, 113), py("_next_data", loader + "dataloader.py", 1316),
                            py("__next__", loader + "dataloader.py", 628)} +
                      in_main(28);
  const Stack loads =
      Stack{py("fetch", loader + "_utils/fetch.py", 51), py("_worker_loop", loader + "_utils/worker.py", 302)};
  LiteralJob literal;
  for (int r = 0; r < 3; ++r) literal.rank(r, 3, waits);
  for (int r = 0; r < 3; ++r)
    literal.child(pid_of(r), (r == 1 ? Stack{libc("clock_nanosleep"), py("__getitem__", "/home/u/data.py", 25)}
                                     : Stack{libc("flock"), py("__getitem__", "/home/u/data.py", 24)}) +
                                 loads);
  return literal;
}

}  // namespace

TEST_CASE("a lock that a loader worker of another rank holds") {
  LiteralJob literal = workers_at_a_lock();
  SECTION("the holder is known") {
    for (const int r : {0, 2}) blocked(literal.job.ranks[3 + r], {104}, "flock", EndKind::kLock);
    CHECK(accused(literal) == Accused{{1, "data-loading"}});
    const Analysis analysis = analyze(literal.job);
    CHECK(analysis.verdict.summary.find("its loader worker, pid 104, is in __getitem__ at data.py:25") !=
          std::string::npos);
    CHECK(analysis.verdict.summary.ends_with("while ranks 0,2 wait in flock (a lock held by rank 1)"));
    const auto& nodes = analysis.waits.nodes();
    CHECK(std::any_of(analysis.waits.edges().begin(), analysis.waits.edges().end(), [&](const WaitEdge& edge) {
      return nodes[edge.from].rank == std::optional<std::size_t>(3) && nodes[edge.to].kind == NodeKind::kOperation &&
             edge.evidence == WaitEvidence::kSystemCall;
    }));
  }
  SECTION("it is not: the workers differ") {
    const Verdict v = verdict_of(literal);
    CHECK(v.status == VerdictStatus::kUndecided);
    CHECK(v.summary.starts_with("rank 1 differs"));
  }
  SECTION("the workers are alike") {
    literal.job.ranks[4].threads[0].frames = literal.job.ranks[3].threads[0].frames;
    CHECK(verdict_of(literal).status == VerdictStatus::kSymmetric);
  }
  SECTION("cores, and none of a worker") {
    literal.job.ranks.resize(3);
    CHECK(verdict_of(literal).status == VerdictStatus::kSymmetric);
    for (RankSnapshot& rank : literal.job.ranks) {
      rank.source = Source::kCore;
      rank.threads[0].state.reset();
    }
    CHECK(verdict_of(literal).status == VerdictStatus::kUndecided);
  }
}

TEST_CASE("a child of a rank in a collective holds the lock that another rank wants") {
  LiteralJob literal;
  for (int r = 0; r < 3; ++r)
    literal.rank(r, 3,
                 r < 2 ? waits_in_all_reduce() : Stack{libc("flock"), py("want", "/home/u/cache.py", 7)} + in_main(12));
  literal.child(pid_of(1), {libc("clock_nanosleep"), py("hold", "/home/u/cache.py", 20)});
  blocked(literal.job.ranks[2], {103}, "flock", EndKind::kLock);
  SECTION("and sleeps") {
    CHECK(accused(literal) == Accused{{1, "subprocess"}});
    CHECK(verdict_of(literal).summary ==
          "rank 1 has a child process that holds a lock which another rank waits for: pid 103, in hold at cache.py:20 "
          "(sleeping) while ranks 0,2 wait for the other ranks");
  }
  SECTION("and waits for its parent") {
    blocked(literal.job.ranks[3], {pid_of(1)}, "read", EndKind::kPipe);
    CHECK(accused(literal) == Accused{{2, "file-io"}});
  }
  SECTION("so does the rank itself: its own wait counts") {
    literal.job.ranks[2].threads[0].syscall->others.push_back(
        {.pid = pid_of(1), .kind = EndKind::kLock, .command = {}});
    CHECK(accused(literal) == Accused{{2, "file-io"}});
  }
}

TEST_CASE("a lock whose holder is not known, as in a core") {
  LiteralJob literal;
  for (int r = 0; r < 3; ++r)
    literal.rank(r, 3,
                 r == 0   ? waits_in_all_reduce()
                 : r == 1 ? Stack{libc("flock"), py("read_cache", "/home/u/cache.py", 7)} + in_main(12)
                          : Stack{libc("clock_nanosleep"), py("write_cache", "/home/u/cache.py", 20)} + in_main(12));
  SECTION("a rank that waits for nothing of the kind comes first") {
    CHECK(accused(literal) == Accused{{2, "user-code"}});
  }
  SECTION("there is no other") {
    literal.job.ranks[2].threads[0].frames = literal.job.ranks[0].threads[0].frames;
    CHECK(accused(literal) == Accused{{1, "file-io"}});
  }
  SECTION("of the others not all is known") {
    literal.job.ranks[2].threads[0].frames.clear();
    literal.job.ranks[2].threads[0].stack_end = StackEnd::kMemoryUnavailable;
    CHECK(verdict_of(literal).status == VerdictStatus::kUndecided);
    CHECK(verdict_of(literal).summary.find("who holds that lock is not known") != std::string::npos);
  }
  SECTION("a process outside of the job holds it") {
    blocked(literal.job.ranks[1], {4711}, "flock", EndKind::kLock);
    literal.job.ranks[1].threads[0].syscall->others[0].command = "vim";
    CHECK(accused(literal) == Accused{{1, "file-io"}, {2, "user-code"}});
  }
}

TEST_CASE("ranks that wait for each other are all to blame, and nobody who waits for them") {
  LiteralJob literal;
  for (int r = 0; r < 5; ++r)
    literal.rank(r, 5,
                 r < 2 ? waits_in_all_reduce() : Stack{libc("x"), py("take", "/home/u/cache.py", r)} + in_main(12));
  auto& ranks = literal.job.ranks;
  SECTION("by locks of files") {
    blocked(ranks[2], {pid_of(3)}, "flock", EndKind::kLock);
    blocked(ranks[3], {pid_of(2)}, "flock", EndKind::kLock);
    blocked(ranks[4], {pid_of(3)}, "flock", EndKind::kLock);  // it wants what one of them has
    CHECK(accused(literal) == Accused{{2, "file-io"}, {3, "file-io"}});
  }
  SECTION("by messages") {
    for (int r = 2; r < 5; ++r) blocked(ranks[r], {pid_of(r == 4 ? 2 : r + 1)});
    CHECK(accused(literal) == Accused{{2, "unmatched-p2p"}, {3, "unmatched-p2p"}, {4, "unmatched-p2p"}});
  }
}

TEST_CASE("a database that a rank has locked") {
  const std::string sqlite = "/usr/lib/libsqlite3.so.0.8.6";
  LiteralJob literal;
  for (int r = 0; r < 4; ++r)
    literal.rank(r, 4,
                 r < 2    ? waits_in_all_reduce()
                 : r == 2 ? Stack{libc("clock_nanosleep"), nat("sqlite3_step", sqlite),
                                  py("read_cache", "/home/u/cache.py", 7)} +
                                in_main(12)
                          : Stack{libc("clock_nanosleep"), py("write_cache", "/home/u/cache.py", 20)} + in_main(12));
  CHECK(accused(literal) == Accused{{3, "user-code"}});
  blocked(literal.job.ranks[2], {pid_of(3)}, "clock_nanosleep", EndKind::kDatabase);
  literal.job.ranks[2].threads[0].syscall->fd.reset();
  SECTION("its path is known") {
    literal.job.ranks[2].threads[0].syscall->database = "/data/trials.db";
    const Analysis analysis = analyze(literal.job);
    const auto& nodes = analysis.waits.nodes();
    CHECK(std::any_of(nodes.begin(), nodes.end(), [](const auto& node) {
      return node.text == "in a lock of the database trials.db (held by rank 3)";
    }));
  }
  SECTION("one of several") {}
  CHECK(accused(literal) == Accused{{3, "user-code"}});
}

TEST_CASE("a queue that another rank serves by name") {
  const std::string kLib = "/usr/lib/python3.11/multiprocessing/";
  LiteralJob literal;
  for (int r = 0; r < 4; ++r)
    literal.rank(r, 4,
                 r < 2 ? waits_in_all_reduce()
                 : r == 2
                     ? Stack{libc("read"), py("_recv", kLib + "connection.py", 378),
                             py("recv", kLib + "connection.py", 249), py("_callmethod", kLib + "managers.py", 822)} +
                           in_main(12)
                     : at_work());
  RankSnapshot& rank = literal.job.ranks[2];
  SECTION("the manager is in rank 3") {
    blocked(rank, {pid_of(3)}, "read");
    CHECK(accused(literal) == Accused{{3, "user-code"}});
  }
  SECTION("in its own child") {
    RankSnapshot child = literal.job.ranks[3];
    child.kind = RankKind::kChild;
    child.rank.reset();
    child.pid = 900;
    child.parent = pid_of(2);
    literal.job.ranks.push_back(child);
    blocked(literal.job.ranks[2], {900}, "read");
    CHECK(accused(literal).contains(2));
  }
}

TEST_CASE("main threads wait on a condition for what threads of theirs receive from other ranks") {
  const std::string mesh = "/home/u/mesh";
  const Stack waits = {libc("pthread_cond_wait"), nat("mesh::Inbox::wait_for(int)", mesh), nat("main", mesh)};
  const Stack receives = {libc("read"), nat("mesh::Connection::receive(mesh::Inbox&)", mesh)};
  LiteralJob literal;
  for (int r = 0; r < 4; ++r) {
    RankSnapshot& rank = literal.rank(
        r, 4, r == 2 ? Stack{libc("clock_nanosleep"), nat("mesh::ask_coordinator()", mesh), nat("main", mesh)} : waits);
    rank.python_version.reset();
    rank.executable = mesh;
    for (int other = 0; other < 4; ++other) {  // all are connected to rank 0
      if ((r == 0) == (other == 0)) continue;
      ThreadSnapshot& thread = literal.thread(rank, rank.pid * 10 + other, "mesh", receives);
      thread.state = 'S';
      thread.syscall = call("read", 4, "unix");
      thread.syscall->others.push_back({.pid = pid_of(other), .kind = EndKind::kSocket, .command = {}});
    }
  }
  CHECK(accused(literal) == Accused{{2, "user-code"}});
  SECTION("another thread of theirs is at work: it may be what they wait for") {
    for (int r : {0, 1, 3})
      literal.thread(literal.job.ranks[r], 5000 + r, "mesh", {nat("mesh::refine()", mesh)}).state = 'R';
    CHECK(accused(literal).empty());
  }
  SECTION("messages arrive again and again: the job moves") {
    for (RankSnapshot& rank : literal.job.ranks)
      for (ThreadSnapshot& thread : rank.threads) {
        thread.motion.emplace();
        thread.motion->samples = 8;
        thread.motion->places = 1;
        thread.motion->runs = 4000;
        thread.motion->span_ms = 900;
        if (thread.tid == rank.pid && rank.rank != 2) thread.syscall = call("futex");
      }
    CHECK(verdict_of(literal).status == VerdictStatus::kHealthy);
    for (const int r : {0, 1, 3}) literal.job.ranks[r].threads[0].motion->runs = 0;
    CHECK(accused(literal) == Accused{{2, "user-code"}});
  }
  SECTION("nobody receives from the rank that differs") {
    auto& connections = literal.job.ranks[0].threads;
    connections.erase(connections.begin() + 2);
    CHECK(accused(literal).empty());
  }
}

TEST_CASE("a rank in a read that returned again and again between the samples has got what it waited for") {
  LiteralJob literal;
  for (int r = 0; r < 4; ++r) {
    RankSnapshot& rank = literal.rank(r, 4, r == 0 ? in_ring() : Stack{libc("clock_nanosleep")} + at_work(), 'S');
    if (r == 0) blocked(rank, {pid_of(1)});
    Motion motion{.samples = 8, .places = 1, .cpu_ms = 30, .runs = 32, .span_ms = 2700};
    rank.threads[0].motion = motion;
  }
  CHECK(verdict_of(literal).status == VerdictStatus::kHealthy);
  SECTION("one that did not") {
    literal.job.ranks[0].threads[0].motion->runs = 1;
    CHECK(accused(literal) == Accused{{1, "user-code"}});
  }
}

TEST_CASE("a rank whose reads return again and again gets what it reads, while others wait for it") {
  const auto job = [](std::int64_t runs, double span_ms) {
    LiteralJob literal;
    for (int r = 0; r < 4; ++r) {
      RankSnapshot& rank = literal.rank(
          r, 4,
          r == 1 ? Stack{libc("read"), py("restore", "/home/u/train.py", 70)} + in_main(3) : waits_in_all_reduce());
      if (r == 1) {
        blocked(rank, {4711}, "read", EndKind::kPipe);
        rank.threads[0].syscall->fd_target = "/tmp/shard";
      }
      rank.threads[0].motion =
          Motion{.samples = 8, .places = 1, .runs = r == 1 ? runs : 0, .span_ms = span_ms, .in_one_function = true};
    }
    return verdict_of(literal);
  };
  CHECK(job(0, 5000).suspects.at(0).reason == Reason::kFileIo);
  CHECK(job(200, 5000).status != VerdictStatus::kCulprit);
}

TEST_CASE("what is no wait for another rank") {
  LiteralJob literal;
  for (int r = 0; r < 4; ++r) literal.rank(r, 4, r == 2 ? in_ring() : waits_in_all_reduce());
  RankSnapshot& rank = literal.job.ranks[2];
  SECTION("a server in a rank that has arrived: it is what the others lack") { blocked(rank, {pid_of(0)}); }
  SECTION("several ranks have the other end") { blocked(rank, {pid_of(0), pid_of(1)}); }
  SECTION("a process outside of the job has it as well") { blocked(rank, {pid_of(3), 9}); }
  SECTION("its own other thread may write there") {
    blocked(rank, {pid_of(3)});
    rank.threads[0].syscall->own_end = true;
  }
  SECTION("another machine's process of that number") {
    literal.job.ranks[3].host = "node-b";
    blocked(rank, {pid_of(3)});
  }
  const auto suspects = accused(literal);
  REQUIRE(suspects.size() == 1);
  CHECK(suspects.contains(2));
}

namespace {

Stack in_accept() {
  return Stack{libc("accept4"), py("accept", "/usr/lib/python3.11/socket.py", 294), py("gather", "/home/u/hub.py", 9)} +
         in_main(20);
}

// Rank 0 takes the connections of the others, of which ranks 1 and 2 have connected; rank 3 is somewhere else.
LiteralJob hub(const Stack& odd, char state = 'S') {
  LiteralJob literal;
  for (int r = 0; r < 4; ++r) literal.rank(r, 4, r == 0 ? in_accept() : r == 3 ? odd : in_ring(), r == 3 ? state : 'S');
  literal.job.ranks[0].threads[0].syscall = call("accept4", 4, "tcp 127.0.0.1:21820 (listening)");
  for (const int r : {1, 2}) blocked(literal.job.ranks[r], {pid_of(0)});
  return literal;
}

}  // namespace

TEST_CASE("a rank in accept() waits for the rank that has not connected yet") {
  LiteralJob literal = hub(at_work(), 'R');
  CHECK(accused(literal) == Accused{{3, "user-code"}});
  const std::string summary = verdict_of(literal).summary;
  CHECK(summary.find("ranks 0-2 wait for the other ranks") != std::string::npos);
  SECTION("with a timeout: the interpreter polls before the call") {
    literal.job.ranks[0].threads[0].frames.edit()[0] = literal.job.frames.intern(libc("poll"));
    literal.job.ranks[0].threads[0].syscall = call("poll", 4);
    CHECK(accused(literal) == Accused{{3, "user-code"}});
  }
  SECTION("in a poll of its listening socket alone, which a server that has these connections would not be in") {
    ThreadSnapshot& thread = literal.job.ranks[0].threads[0];
    thread.frames.edit()[0] = literal.job.frames.intern(libc("poll"));
    thread.frames.edit()[1] = literal.job.frames.intern(nat("Hub::gather(int)", "/home/u/hub.so"));
    thread.syscall = call("poll", 4);
    thread.syscall->listens = true;
    CHECK(accused(literal) == Accused{{3, "user-code"}});
    thread.syscall->name = "epoll_wait";
    CHECK_FALSE(accused(literal).contains(3));
  }
  SECTION("of a core, which shows no other end") {
    for (RankSnapshot& rank : literal.job.ranks) rank.source = Source::kCore;
    for (const int r : {1, 2}) literal.job.ranks[r].threads[0].frames.clear();
    for (const int r : {1, 2})
      for (const Frame& frame : waits_in_all_reduce())
        literal.job.ranks[r].threads[0].frames.push_back(literal.job.frames.intern(frame));
    CHECK(accused(literal) == Accused{{3, "user-code"}});
  }
  SECTION("in a file, or in its own sleep") {
    literal = hub(Stack{libc("read"), py("stage_in", "/home/u/data.py", 31)} + in_main(30));
    literal.job.ranks[3].threads[0].syscall = call("read", 7, "/data/input.tar");
    CHECK(accused(literal) == Accused{{3, "file-io"}});
    literal = hub(Stack{libc("clock_nanosleep"), py("download", "/home/u/data.py", 31)} + in_main(30));
    CHECK(accused(literal) == Accused{{3, "user-code"}});
  }
  SECTION("which is not there") {
    literal.job.ranks.pop_back();
    const Verdict v = verdict_of(literal);
    REQUIRE(v.suspects.size() == 1);
    CHECK(v.suspects[0].missing_rank == 3);
  }
}

TEST_CASE("a rank in accept() that no rank of the job is known to leave alone") {
  SECTION("all others wait for it") {
    LiteralJob literal = hub(in_ring());
    blocked(literal.job.ranks[3], {pid_of(0)});
    CHECK(accused(literal) == Accused{{0, "network-io"}});
  }
  SECTION("the one that is elsewhere has connected: a thread of the hub reads from it") {
    LiteralJob literal = hub(at_work(), 'R');
    ThreadSnapshot& reader =
        literal.thread(literal.job.ranks[0], 900, "python3", {libc("recv"), py("serve", "/home/u/hub.py", 30)});
    reader.syscall = call("recvfrom");
    reader.syscall->others.push_back({.pid = pid_of(3), .kind = EndKind::kSocket, .command = {}});
    CHECK(accused(literal).contains(0));
  }
  SECTION("the others are in a collective, and nobody else is elsewhere") {
    LiteralJob literal;
    for (int r = 0; r < 4; ++r) literal.rank(r, 4, r == 2 ? in_accept() : waits_in_all_reduce());
    literal.job.ranks[2].threads[0].syscall = call("accept4", 4);
    CHECK(accused(literal) == Accused{{2, "network-io"}});
  }
  SECTION("two ranks accept, and neither connects") {
    LiteralJob literal = hub(in_accept());
    literal.job.ranks[3].threads[0].syscall = call("accept4", 4);
    CHECK(accused(literal).contains(0));
  }
}
