#include <catch2/catch.hpp>

#include "analyzers/analysis.h"
#include "analyzers/motion.h"
#include "support/literal_job.h"

using namespace rankstacks;
using namespace rankstacks::analyzers;
using namespace rankstacks::testing;

namespace {

// Another sample of the same processes, with the frames of `literal`.
std::vector<RankSnapshot> sample_again(LiteralJob& literal, const std::vector<Stack>& stacks) {
  std::vector<RankSnapshot> ranks = literal.job.ranks;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    ranks[r].threads[0].frames.clear();
    for (const Frame& frame : stacks[r]) ranks[r].threads[0].frames.push_back(literal.job.frames.intern(frame));
  }
  return ranks;
}

LiteralJob four(const Stack& stack) {
  LiteralJob literal;
  for (int r = 0; r < 4; ++r) literal.rank(r, 4, stack);
  return literal;
}

const Motion& motion_of(const LiteralJob& literal, std::size_t rank) {
  return *literal.job.ranks[rank].threads[0].motion;
}

Motion still() { return {.samples = 3, .places = 1, .span_ms = 900}; }
Motion moved() {
  return {.samples = 3, .places = 3, .moved = true, .travelled = true, .cpu_ms = 20, .runs = 50, .span_ms = 900};
}
Motion loops() {
  return {.samples = 3, .places = 2, .moved = true, .cpu_ms = 880, .runs = 9, .span_ms = 900};
}  // two lines of one function
Motion spins() { return {.samples = 3, .places = 1, .cpu_ms = 880, .runs = 9, .span_ms = 900}; }

void all_have(LiteralJob& literal, const Motion& motion) {
  for (RankSnapshot& rank : literal.job.ranks)
    for (ThreadSnapshot& thread : rank.threads) thread.motion = motion;
}

}  // namespace

TEST_CASE("a sample of which only a part of the stack is known is no other place") {
  const Stack synchronizes =
      Stack{nat("cuStreamSynchronize", "libcuda.so.1"), nat("cudaStreamSynchronize", "libcudart.so.13")} + in_main(17);
  Stack in_driver = Stack{libc("ioctl")} + in_main(17);
  for (Frame& frame : in_driver)
    if (frame.kind == FrameKind::kPython) frame.origin = FrameOrigin::kSeparate;
  const auto fold = [](LiteralJob& literal, const Stack& first, const Stack& second) {
    const auto later = {sample_again(literal, {first, first, first, first}),
                        sample_again(literal, {second, second, second, second})};
    fold_samples(
        literal.job, later,
        [](Tid) {
          return Ran{800, 9};
        },
        900);
  };
  SECTION("the interpreter's frames, which could not be read at that moment") {
    const Stack polls = Stack{libc("sched_yield"), nat("WaitAndClear", "mpi_lib.so")};
    LiteralJob literal = four(polls + in_main(17));
    fold(literal, polls + Stack{nat("_PyEval_EvalFrameDefault", "/usr/bin/python3.11")}, polls + in_main(17));
    CHECK_FALSE(motion_of(literal, 0).moved);
    CHECK(motion_of(literal, 0).in_one_function);
  }
  SECTION("of a later sample") {
    LiteralJob literal = four(synchronizes);
    fold(literal, in_driver, synchronizes);
    CHECK_FALSE(motion_of(literal, 0).moved);
    CHECK_FALSE(motion_of(literal, 0).travelled);
    CHECK(motion_of(literal, 0).in_one_function);
  }
  SECTION("of the first one") {
    LiteralJob literal = four(in_driver);
    fold(literal, synchronizes, synchronizes);
    CHECK_FALSE(motion_of(literal, 0).moved);
    literal = four(in_driver);
    fold(literal, synchronizes, in_main(18));
    CHECK(motion_of(literal, 0).moved);
  }
  SECTION("of all: these are compared") {
    LiteralJob literal = four(in_driver);
    Stack other = in_driver;
    other[1].line = 18;
    fold(literal, in_driver, other);
    CHECK(motion_of(literal, 0).moved);
  }
}

TEST_CASE("later samples show what moves") {
  LiteralJob literal = four(waits_in_all_reduce(17));
  // 0 does not move; 1 is elsewhere inside of the same wait; 2 waits at another line; 3 has left the wait
  const Stack elsewhere_inside =
      Stack{nat("gloo::somewhere()"), nat("c10d::ProcessGroupGloo::AsyncWork::wait(std::chrono::duration<long>)"),
            py("all_reduce", kPackages + "torch/distributed/distributed_c10d.py", 2001),
            py("wrapper", kPackages + "torch/distributed/c10d_logger.py", 80)} +
      in_main(17);
  const auto later =
      sample_again(literal, {waits_in_all_reduce(17), elsewhere_inside, waits_in_all_reduce(18), in_main(17)});
  fold_samples(
      literal.job, {later},
      [](Tid tid) {
        return Ran{tid == 100 ? 0.0 : 5.0, tid == 100 ? 0 : 7};
      },
      450);
  CHECK(motion_of(literal, 0) == Motion{.samples = 2, .places = 1, .span_ms = 450, .in_one_function = true});
  CHECK(motion_of(literal, 1) ==
        Motion{.samples = 2, .places = 2, .cpu_ms = 5, .runs = 7, .span_ms = 450, .in_one_function = true});
  CHECK(motion_of(literal, 2).left_wait);
  CHECK(motion_of(literal, 3).left_wait);
  CHECK(motion_of(literal, 2).moved);
  CHECK_FALSE(motion_of(literal, 2).travelled);
  CHECK_FALSE(motion_of(literal, 3).in_one_function);  // all_reduce is on its stack no longer
  CHECK(motion_of(literal, 3).moved);
}

TEST_CASE("a counter that differs between two samples is motion, a thread that was seen once has none") {
  LiteralJob literal = four(waits_in_all_reduce());
  for (RankSnapshot& rank : literal.job.ranks)
    rank.threads[0].variables = {{.frame = 4, .numbers = {{"step", 41}}, .group = {}}};
  auto later = sample_again(literal, std::vector<Stack>(4, waits_in_all_reduce()));
  later[1].threads[0].variables.edit()[0].numbers[0].second = 42;
  later.erase(later.begin() + 3);
  fold_samples(
      literal.job, {later}, [](Tid) { return Ran{}; }, 450);
  CHECK_FALSE(motion_of(literal, 0).counted);
  CHECK(motion_of(literal, 1).counted);
  CHECK_FALSE(motion_of(literal, 1).moved);
  CHECK_FALSE(literal.job.ranks[3].threads[0].motion);
  later[1].threads[0].variables.edit()[0].numbers[0].second = 4'000'000;  // a loop that does nothing
  fold_samples(
      literal.job, {later}, [](Tid) { return Ran{}; }, 450);
  CHECK_FALSE(motion_of(literal, 1).counted);
}

TEST_CASE("what is 0 or 1 in every sample may be a flag, and counts nothing") {
  const auto counted = [](std::int64_t first, std::int64_t second) {
    LiteralJob literal = four(in_main(30));
    for (RankSnapshot& rank : literal.job.ranks)
      rank.threads[0].variables = {{.frame = 0, .numbers = {{"step", first}}, .group = {}}};
    auto later = sample_again(literal, std::vector<Stack>(4, in_main(30)));
    later[1].threads[0].variables = {{.frame = 0, .numbers = {{"step", second}}, .group = {}}};
    fold_samples(
        literal.job, {later}, [](Tid) { return Ran{}; }, 450);
    return motion_of(literal, 1).counted;
  };
  CHECK_FALSE(counted(0, 1));
  CHECK_FALSE(counted(1, 0));
  CHECK(counted(1, 2));
  CHECK(counted(0, 2));
  CHECK(counted(-1, 0));
}

TEST_CASE("of a thread that runs for microseconds at a time only the places where it waits count") {
  const Stack waits = {libc("usleep"), nat("Poller::Wait()"), nat("Poller::Run()")};
  const Stack asks = {nat("isDone()"), nat("Poller::Wait()"), nat("Poller::Run()")};
  const Stack waits_elsewhere = {libc("usleep"), nat("Load()"), nat("Poller::Run()")};
  LiteralJob literal = four(waits);
  auto later = sample_again(literal, {asks, asks, waits_elsewhere, asks});
  literal.job.ranks[3].threads[0].frames = later[0].threads[0].frames;  // awake in both samples
  const SyscallInfo sleeps{.name = "clock_nanosleep", .number = 230};
  for (std::size_t r = 0; r < 3; ++r) literal.job.ranks[r].threads[0].syscall = sleeps;
  later[2].threads[0].syscall = sleeps;
  // 100 runs: of 9 us each, but for rank 1, which works for a millisecond at a time
  fold_samples(
      literal.job, {later},
      [](Tid tid) {
        return Ran{tid == 101 ? 100.0 : 0.9, 100};
      },
      450);
  CHECK_FALSE(motion_of(literal, 0).moved);
  CHECK(motion_of(literal, 0).samples == 2);
  CHECK(motion_of(literal, 0).places == 1);
  CHECK(motion_of(literal, 1).moved);
  CHECK(motion_of(literal, 2).moved);
  CHECK_FALSE(motion_of(literal, 3).moved);
}

TEST_CASE("a number of what a loop goes over is motion if it goes one way in every sample") {
  const auto counts = [](const std::vector<std::int64_t>& values) {
    LiteralJob literal = four(in_main(30));
    std::vector<std::vector<RankSnapshot>> samples;
    for (const std::int64_t value : values) {
      auto& sample = samples.emplace_back(sample_again(literal, std::vector<Stack>(4, in_main(30))));
      for (RankSnapshot& rank : sample)
        rank.threads[0].variables = {{.frame = 0, .numbers = {{"shard", value}}, .group = {}, .loops = 1}};
    }
    literal.job.ranks = samples.front();
    samples.erase(samples.begin());
    fold_samples(
        literal.job, samples, [](Tid) { return Ran{}; }, 900);
    return motion_of(literal, 1).counted;
  };
  CHECK(counts({3, 3, 4, 7}));
  CHECK(counts({90, 60, 60, 11}));
  CHECK_FALSE(counts({3, 4, 7}));          // too few: a short loop, which begins anew, may look like this
  CHECK_FALSE(counts({3, 512, 88, 700}));  // as this one
  CHECK_FALSE(counts({3, 3, 3, 3}));
  CHECK_FALSE(counts({3, 4, 7, 90'000}));  // nothing but the loop
  CHECK_FALSE(counts({0, 0, 1, 1}));       // a flag
}

TEST_CASE("within a get from a multiprocessing queue, only an item that another process took is motion") {
  const std::string lib = "/usr/lib/python3.11/multiprocessing/";
  const Stack user = {py("next_task", "/home/u/job.py", 55)};
  const Stack lock = Stack{libc("sem_wait"), py("get", lib + "queues.py", 108)} + user;
  const Stack polls =
      Stack{libc("poll"), py("poll", lib + "connection.py", 256), py("get", lib + "queues.py", 113)} + user;
  const Stack reads =
      Stack{libc("read"), py("_recv", lib + "connection.py", 378), py("get", lib + "queues.py", 103)} + user;
  const auto moves = [](const Stack& first, const Stack& then, const std::string& call_then) {
    LiteralJob literal = four(first);
    auto later = sample_again(literal, std::vector<Stack>(4, then));
    for (RankSnapshot& rank : later) rank.threads[0].syscall = call(call_then);
    fold_samples(
        literal.job, {later}, [](Tid) { return Ran{}; }, 900);
    return motion_of(literal, 1).moved;
  };
  CHECK_FALSE(moves(lock, polls, "poll"));  // a get with a timeout, which begins again and again
  CHECK_FALSE(moves(polls, lock, "futex"));
  CHECK(moves(lock, reads, "read"));
  CHECK(moves(polls, {py("next_task", "/home/u/job.py", 57)}, "futex"));
}

TEST_CASE("all ranks at one place: a late return after a sample is no sign of progress, waking up again and again is") {
  LiteralJob literal = four(Stack{py("work", "/home/u/train.py", 40)} + in_main(30));
  all_have(literal, {.samples = 20, .places = 1, .span_ms = 1900});
  CHECK(analyze(literal.job).verdict.status == VerdictStatus::kSymmetric);
  literal.job.ranks[3].threads[0].motion->runs = 2;
  CHECK(analyze(literal.job).verdict.status == VerdictStatus::kSymmetric);
  literal.job.ranks[3].threads[0].motion->runs = 200;
  CHECK(analyze(literal.job).verdict.status == VerdictStatus::kUndecided);
}

TEST_CASE("ranks that wait for loader workers, and ask after them now and then, do not get on by that") {
  const std::string loader = kPackages + "torch/utils/data/";
  const Stack waits =
      Stack{libc("poll"), py("_try_get_data", loader + "dataloader.py", 1120),
            py("_next_data", loader + "dataloader.py", 1316), py("__next__", loader + "dataloader.py", 628)} +
      in_main(15);
  const Stack reads = {libc("read"), py("__getitem__", "/home/u/data.py", 9),
                       py("fetch", loader + "_utils/fetch.py", 51),
                       py("_worker_loop", loader + "_utils/worker.py", 302)};
  const auto verdict_of = [&](std::int64_t runs_of_ranks, std::int64_t runs_of_workers) {
    LiteralJob literal;
    for (int r = 0; r < 4; ++r) literal.rank(r, 4, waits);
    for (int r = 0; r < 4; ++r) literal.child(100 + r, reads);
    for (RankSnapshot& process : literal.job.ranks) {
      process.threads[0].motion = still();
      process.threads[0].motion->runs = process.kind == RankKind::kChild ? runs_of_workers : runs_of_ranks;
    }
    return analyze(literal.job).verdict.status;
  };
  CHECK(verdict_of(0, 0) == VerdictStatus::kSymmetric);
  CHECK(verdict_of(1, 0) == VerdictStatus::kSymmetric);
  CHECK(verdict_of(1, 1) == VerdictStatus::kHealthy);
}

TEST_CASE("a rank that is waited for and counts on is slow, not stuck") {
  LiteralJob literal;
  for (int r = 0; r < 4; ++r)
    literal.rank(r, 4, r == 2 ? Stack{py("work", "/home/u/train.py", 40)} + in_main(30) : waits_in_all_reduce(31));
  all_have(literal, still());
  Motion counts = moved();
  literal.job.ranks[2].threads[0].motion = counts;
  CHECK(analyze(literal.job).verdict.status == VerdictStatus::kCulprit);
  counts.counted = true;
  literal.job.ranks[2].threads[0].motion = counts;
  const Verdict v = analyze(literal.job).verdict;
  CHECK(v.status == VerdictStatus::kHealthy);
  CHECK(v.summary.find("rank 2 is slower than the others") != std::string::npos);
}

TEST_CASE("a rank that counts on beyond the step in which the others wait") {
  const int odd = GENERATE(2, 0);  // rank 0 has duties, but none that leaves out what it is needed for
  LiteralJob literal;
  for (int r = 0; r < 4; ++r) {
    RankSnapshot& rank = literal.rank(
        r, 4, r == odd ? Stack{py("load", "/home/u/train.py", 40)} + in_main(30) : waits_in_all_reduce(31));
    rank.threads[0].variables.push_back({.frame = rank.threads[0].frames.size() - 2,
                                         .numbers = {{"step", r == odd ? 57 : 3}},
                                         .group = {},
                                         .loops = 1});
  }
  const auto looked_for = [&](double span_ms) {
    all_have(literal, still());
    Motion counts = moved();
    counts.counted = true;
    literal.job.ranks[static_cast<std::size_t>(odd)].threads[0].motion = counts;
    for (RankSnapshot& rank : literal.job.ranks) rank.threads[0].motion->span_ms = span_ms;
    return analyze(literal.job).verdict;
  };
  SECTION("for a second: it may count something else, and come") {
    const Verdict v = looked_for(900);
    CHECK(v.status == VerdictStatus::kHealthy);
    CHECK(v.doubt == Doubt::kPassedBy);
  }
  SECTION("for longer than that takes: it does not come") {
    const Verdict v = looked_for(7000);
    REQUIRE(v.suspects.size() == 1);
    CHECK((v.suspects[0].rank == static_cast<std::size_t>(odd) && v.suspects[0].reason == Reason::kUserCode));
    CHECK(v.summary.find("step 57, past the step 3 in which they wait") != std::string::npos);
  }
  SECTION("in a loop inside of the one in which they are, it counts something of its own: an evaluation, say") {
    literal.job.ranks[static_cast<std::size_t>(odd)].threads[0].variables.edit()[0].loops = 2;
    CHECK(looked_for(7000).status == VerdictStatus::kHealthy);
  }
  SECTION("at an earlier step it is slow, however long that takes") {
    literal.job.ranks[static_cast<std::size_t>(odd)].threads[0].variables.edit()[0].numbers = {{"step", 2}};
    CHECK(looked_for(7000).status == VerdictStatus::kHealthy);
  }
}

TEST_CASE("a job whose waits end between the samples is healthy") {
  SECTION("all wait alike, and move") {
    LiteralJob literal = four(waits_in_all_reduce());
    all_have(literal, moved());
    CHECK(analyze(literal.job).verdict.status == VerdictStatus::kHealthy);
  }
  SECTION("all wait alike, and do not move") {
    LiteralJob literal = four(waits_in_all_reduce());
    all_have(literal, still());
    CHECK(analyze(literal.job).verdict.status == VerdictStatus::kSymmetric);
  }
  SECTION("a rank in its own code while waits of others move is no culprit") {
    LiteralJob literal = four(waits_in_all_reduce());
    literal.job.ranks[2].threads[0].frames.clear();
    for (const Frame& frame : in_main(30))
      literal.job.ranks[2].threads[0].frames.push_back(literal.job.frames.intern(frame));
    all_have(literal, moved());
    CHECK(analyze(literal.job).verdict.status == VerdictStatus::kHealthy);
    all_have(literal, still());
    CHECK(analyze(literal.job).verdict.status == VerdictStatus::kCulprit);
  }
  SECTION("gloo's thread and the one that waits for it both ran: messages came") {
    LiteralJob literal = four(waits_in_all_reduce());
    for (RankSnapshot& rank : literal.job.ranks)
      literal.thread(rank, rank.pid + 1000, "gloo", {libc("epoll_wait"), nat("gloo::transport::tcp::Loop::run()")});
    Motion ran = still();
    ran.runs = 40;
    ran.cpu_ms = 4;
    all_have(literal, ran);
    CHECK(analyze(literal.job).verdict.status == VerdictStatus::kHealthy);
    for (RankSnapshot& rank : literal.job.ranks) rank.threads[1].motion = still();
    CHECK(analyze(literal.job).verdict.status == VerdictStatus::kSymmetric);
  }
}

TEST_CASE("rank 0 at work that moves is waited for rightly; at a standstill, or any other rank, it is not") {
  const auto one_works = [](int which, const Motion& motion) {
    LiteralJob literal;
    for (int r = 0; r < 4; ++r)
      literal.rank(r, 4,
                   r == which ? Stack{py("evaluate", "/home/u/train.py", 50)} + in_main(30) : waits_in_all_reduce(31));
    all_have(literal, still());
    literal.job.ranks[static_cast<std::size_t>(which)].threads[0].motion = motion;
    return analyze(literal.job).verdict;
  };
  CHECK(one_works(0, moved()).status == VerdictStatus::kHealthy);
  CHECK(one_works(0, still()).suspects.at(0).reason == Reason::kUserCode);
  CHECK(one_works(0, loops()).suspects.at(0).reason == Reason::kUserCode);
  CHECK(one_works(0, spins()).suspects.at(0).reason == Reason::kUserCode);
  CHECK(one_works(2, moved()).suspects.at(0).reason == Reason::kUserCode);
  CHECK(one_works(2, moved()).suspects.at(0).confidence < one_works(2, still()).suspects.at(0).confidence);
}

TEST_CASE("a rank at work that was seen to leave a wait: the job moves") {
  LiteralJob literal;
  for (int r = 0; r < 4; ++r)
    literal.rank(r, 4, r == 0 ? waits_in_all_reduce(31) : Stack{py("work", "/home/u/train.py", 40)} + in_main(30), 'R');
  all_have(literal, spins());
  CHECK(analyze(literal.job).verdict.status == VerdictStatus::kUndecided);
  Motion left = spins();
  left.moved = left.left_wait = true;
  literal.job.ranks[2].threads[0].motion = left;
  CHECK(analyze(literal.job).verdict.status == VerdictStatus::kHealthy);
  left.moved = false;
  literal.job.ranks[2].threads[0].motion = left;
  const Verdict v = analyze(literal.job).verdict;
  CHECK(v.status == VerdictStatus::kHealthy);
  CHECK(v.summary.starts_with("nothing is stuck: rank 2 moved between the samples"));
}

TEST_CASE("a rank that moves at an earlier step than those that wait for it is behind") {
  LiteralJob literal;
  for (int r = 0; r < 4; ++r) {
    RankSnapshot& rank =
        literal.rank(r, 4, r == 2 ? Stack{py("work", "/home/u/train.py", 40)} + in_main(30) : waits_in_all_reduce(31));
    rank.threads[0].variables = {{.frame = r == 2 ? 1u : 4u, .numbers = {{"step", r == 2 ? 7 : 9}}, .group = {}}};
  }
  all_have(literal, still());
  literal.job.ranks[2].threads[0].motion = moved();
  const Verdict v = analyze(literal.job).verdict;
  REQUIRE(v.suspects.size() == 1);
  CHECK((v.suspects[0].rank == 2 && v.suspects[0].reason == Reason::kBehind));
}

TEST_CASE("a rank that waits in MPI has left its wait if its pool for parallel regions was woken") {
  const auto job = [](char worker, std::int64_t runs, bool another_thread) {
    LiteralJob literal;
    for (int r = 0; r < 3; ++r) {
      const Stack stack = {
          nat(r == 1 ? "forces(int)" : "PMPI_Allreduce", r == 1 ? "/home/u/solver" : "/usr/lib/libmpi.so.12"),
          nat("main", "/home/u/solver")};
      RankSnapshot& rank = literal.rank(r, 3, stack, 'R');
      rank.python_version.reset();
      Motion motion;
      motion.samples = 8, motion.places = 1, motion.runs = 60, motion.cpu_ms = 4200, motion.span_ms = 4240;
      rank.threads[0].motion = motion;
      ThreadSnapshot& pool = literal.thread(
          rank, 500 + r, "solver", {libc("syscall"), unknown("/usr/lib/libgomp.so.1", 0x1cd68), libc("clone3")});
      pool.state = worker;
      motion.runs = runs, motion.cpu_ms = 60;
      pool.motion = motion;
      pool.syscall = call("futex");
      if (another_thread)
        literal.thread(rank, 600 + r, "loader", {libc("read"), nat("load()", "/home/u/solver"), libc("clone3")}).state =
            'S';
    }
    return analyze(literal.job).verdict.status;
  };
  CHECK(job('S', 20, false) == VerdictStatus::kHealthy);
  CHECK(job('S', 3, false) == VerdictStatus::kCulprit);
  CHECK(job('R', 20, false) == VerdictStatus::kCulprit);
  CHECK(job('S', 20, true) == VerdictStatus::kCulprit);  // it may have woken them
}
