// Watchdogs that end their process, and what they carry.
#include <catch2/catch.hpp>

#include "analyzers/analysis.h"
#include "analyzers/watchdog_reporters.h"
#include "support/literal_job.h"

using namespace rankstacks;
using namespace rankstacks::analyzers;
using namespace rankstacks::testing;

namespace {

const Stack kEnds = Stack{libc("raise"),
                          libc("abort"),
                          nat("__gnu_cxx::__verbose_terminate_handler()", "/lib/libstdc++.so.6"),
                          nat("std::terminate()", "/lib/libstdc++.so.6"),
                          nat("std::rethrow_exception(std::__exception_ptr::exception_ptr)", "/lib/libstdc++.so.6"),
                          nat("c10d::ProcessGroupNCCL::Watchdog::run()"),
                          libc("start_thread")};

// Rank 2 loads data, the others wait; the watchdog of rank 0 has timed out.
LiteralJob timed_out(const Stack& watchdog = kEnds) {
  LiteralJob literal;
  for (int r = 0; r < 4; ++r) {
    RankSnapshot& rank = literal.rank(r, 4, r == 2 ? in_getitem() : waits_in_all_reduce());
    rank.source = Source::kCore;
    rank.threads[0].state.reset();
  }
  literal.thread(literal.job.ranks[0], 900, "pt_nccl_watchdg", watchdog);
  literal.job.ranks[0].signal = SignalInfo{6, "SIGABRT", 900, -6, {}};
  return literal;
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("a watchdog that ends its process is the reporter") {
  LiteralJob literal = timed_out();
  literal.job.ranks[0].threads[1].exception = CxxException{
      "c10::DistBackendError", "[Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=5)\nmore"};
  const Verdict v = analyze(literal.job).verdict;
  REQUIRE(v.status == VerdictStatus::kCulprit);
  REQUIRE(v.suspects.size() == 1);
  CHECK(v.suspects[0].reason == Reason::kDataLoading);
  CHECK(literal.job.ranks[v.suspects[0].rank].rank == 2);
  CHECK(has(v.summary,
            "; the watchdog that ends rank 0 only reports it, with c10::DistBackendError: [Rank 0] Watchdog caught "
            "collective operation timeout: WorkNCCL(SeqNum=5)"));
  CHECK(!has(v.summary, "more"));
}

TEST_CASE("what has timed out is said in words, once for all ranks that say the same") {
  const auto text = [](int rank, int number) {
    return CxxException{
        "c10::DistBackendError",
        "[PG ID 0 PG GUID 0(default_pg) Rank " + std::to_string(rank) +
            "] Process group watchdog thread terminated with exception: [Rank " + std::to_string(rank) +
            "] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=" + std::to_string(number) +
            ", OpType=ALLREDUCE, NumelIn=4, NumelOut=4, Timeout(ms)=12000) ran for 12073 milliseconds "
            "before timing out.\nException raised from checkTimeout"};
  };
  LiteralJob literal = timed_out();
  literal.job.ranks[0].threads[1].exception = text(0, 5);
  CHECK(analyze(literal.job)
            .verdict.summary.ends_with(
                "the watchdog that ends rank 0 only reports it, after 12 s in all-reduce 5 of group default_pg"));
  literal.thread(literal.job.ranks[1], 900, "pt_nccl_watchdg", kEnds).exception = text(1, 5);
  CHECK(analyze(literal.job)
            .verdict.summary.ends_with(
                "the watchdog that ends ranks 0-1 only reports it, after 12 s in all-reduce 5 of group default_pg"));
  literal.thread(literal.job.ranks[3], 900, "pt_nccl_watchdg", kEnds).exception = text(3, 4);
  CHECK(analyze(literal.job)
            .verdict.summary.ends_with("the watchdog that ends ranks 0-1,3 only reports it, after 12 s: ranks 0-1 in "
                                       "all-reduce 5 of group default_pg, "
                                       "rank 3 in all-reduce 4 of group default_pg"));
  // Where exceptions are listed.
  CHECK(describe_exception(text(0, 5)) ==
        "c10::DistBackendError: [PG ID 0 PG GUID 0(default_pg) Rank 0] Watchdog caught collective operation timeout: "
        "WorkNCCL(SeqNum=5, OpType=ALLREDUCE, NumelIn=4, NumelOut=4, Timeout(ms)=12000) ran for 12073 milliseconds");
}

TEST_CASE("without its text the report says where the cause is") {
  const Verdict v = analyze(timed_out().job).verdict;
  CHECK(has(v.summary,
            "the watchdog that ends rank 0 only reports it: its message is in that rank's own error output, the cause "
            "is with the ranks that the collective waited for"));
}

TEST_CASE("the heartbeat's abort, and a core that only names its thread") {
  CHECK(has(
      analyze(timed_out({libc("raise"), libc("abort"), nat("c10d::ProcessGroupNCCL::HeartbeatMonitor::runLoop()")}).job)
          .verdict.summary,
      "only reports it"));
  CHECK(has(analyze(timed_out({unknown("/lib/libc.so.6", 0x1234), nat("c10d::ProcessGroupNCCL::Watchdog::run()")}).job)
                .verdict.summary,
            "only reports it"));
}

TEST_CASE("a watchdog that waits brings no news, nor does the end of another thread") {
  LiteralJob literal = timed_out({libc("pthread_cond_timedwait"), nat("c10d::ProcessGroupNCCL::Watchdog::runLoop()"),
                                  nat("c10d::ProcessGroupNCCL::Watchdog::run()")});
  literal.job.ranks[0].signal.reset();
  literal.thread(literal.job.ranks[1], 901, "x", {libc("abort"), nat("mylib::check()", "/home/u/mylib.so")});
  CHECK(!has(analyze(literal.job).verdict.summary, "only reports it"));
}

TEST_CASE("all ranks end by their watchdogs: this is said once, with the message if there is one") {
  LiteralJob literal = timed_out();
  for (const std::size_t r : {1, 3}) literal.thread(literal.job.ranks[r], 900, "pt_nccl_watchdg", kEnds);
  literal.job.ranks[3].threads[1].exception = CxxException{"c10::DistBackendError", "timeout"};
  literal.job.ranks[0].threads[1].exception = CxxException{"c10::Error", {}};
  CHECK(has(analyze(literal.job).verdict.summary,
            "the watchdog that ends ranks 0-1,3 only reports it, with c10::DistBackendError: timeout"));
}

TEST_CASE("the suspect's own watchdog is among its evidence") {
  LiteralJob literal = timed_out();
  literal.thread(literal.job.ranks[2], 902, "pt_nccl_watchdg", kEnds);
  const Verdict v = analyze(literal.job).verdict;
  REQUIRE(v.suspects.size() == 1);
  const auto& evidence = v.suspects[0].evidence;
  REQUIRE(evidence.size() == 2);
  CHECK(evidence[1].thread == 1);
  CHECK(evidence[1].frame == 2);  // the first frame that says so
}

TEST_CASE("an exception that nobody caught is part of what crashed") {
  LiteralJob literal = timed_out();
  literal.job.ranks[0].signal.reset();
  literal.job.ranks[0].threads.resize(1);
  ThreadSnapshot& thread = literal.thread(
      literal.job.ranks[3], 77, "loader",
      {libc("abort"), nat("std::terminate()", "/lib/libstdc++.so.6"), nat("mylib::read()", "/home/u/mylib.so")});
  thread.exception = CxxException{"std::runtime_error", "no such file: shard-7"};
  literal.job.ranks[3].signal = SignalInfo{6, "SIGABRT", 77, -6, {}};
  const Verdict v = analyze(literal.job).verdict;
  REQUIRE(!v.suspects.empty());
  CHECK(v.suspects[0].reason == Reason::kCrashed);
  CHECK(has(v.suspects[0].summary, "std::runtime_error: no such file: shard-7"));
}

namespace {

constexpr const char* kIllegalAccess =
    "[PG ID 0 PG GUID 0(default_pg) Rank 1] Process group watchdog thread terminated with exception: "
    "CUDA error: an illegal memory access was encountered\nCUDA kernel errors might be";

// All ranks wait in all_reduce, also rank 1, whose watchdog throws its own GPU's error again.
LiteralJob gpu_failed(bool core) {
  LiteralJob literal;
  for (int r = 0; r < 4; ++r) {
    RankSnapshot& rank = literal.rank(r, 4, waits_in_all_reduce());
    if (!core) continue;
    rank.source = Source::kCore;
    rank.threads[0].state.reset();
  }
  literal.thread(literal.job.ranks[1], 900, "pt_nccl_watchdg", kEnds).exception =
      CxxException{"c10::DistBackendError", kIllegalAccess, ExceptionCause::kOwnGpu};
  if (core) literal.job.ranks[1].signal = SignalInfo{6, "SIGABRT", 900, -6, {}};
  return literal;
}

}  // namespace

TEST_CASE("a watchdog that dies of its own process's GPU error is no reporter: that rank crashed") {
  LiteralJob literal = gpu_failed(true);
  const Verdict v = analyze(literal.job).verdict;
  REQUIRE(v.status == VerdictStatus::kCulprit);
  REQUIRE(v.suspects.size() == 1);
  CHECK(v.suspects[0].reason == Reason::kCrashed);
  CHECK(literal.job.ranks[v.suspects[0].rank].rank == 1);
  CHECK(has(v.suspects[0].summary, "crashed with SIGABRT"));
  CHECK(has(v.suspects[0].summary, "CUDA error: an illegal memory access was encountered"));
  CHECK(has(v.suspects[0].advice, "compute-sanitizer"));
  CHECK(has(v.summary, "while ranks 0,2-3 wait in all_reduce"));
  CHECK(!has(v.summary, "only reports it"));

  // The others' watchdogs have timed out since: they stay reporters.
  for (const std::size_t r : {0, 2, 3}) {
    literal.thread(literal.job.ranks[r], 900, "pt_nccl_watchdg", kEnds).exception = CxxException{
        "c10::DistBackendError", "[Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=5)",
        ExceptionCause::kTimeout};
    literal.job.ranks[r].signal = SignalInfo{6, "SIGABRT", 900, -6, {}};
  }
  const Verdict all = analyze(literal.job).verdict;
  REQUIRE(all.suspects.size() == 1);
  CHECK(literal.job.ranks[all.suspects[0].rank].rank == 1);
  CHECK(has(all.summary,
            "the watchdog that ends ranks 0,2-3 only reports it, with c10::DistBackendError: [Rank 0] Watchdog "
            "caught"));
}

TEST_CASE("a rank that has failed on its GPU is asked for a GPU core, unless what ran there is known") {
  for (const bool core : {false, true}) {
    LiteralJob literal = gpu_failed(core);
    const auto asks = [&] {
      const Verdict v = analyze(literal.job).verdict;
      return v.suspects.size() == 1 && has(v.suspects[0].advice, "CUDA_ENABLE_COREDUMP_ON_EXCEPTION=1");
    };
    CHECK(asks());
    literal.job.ranks[1].gpus.emplace_back();
    CHECK(asks());
    literal.job.ranks[1].gpus.back().execution.emplace().source = GpuSource::kCore;
    const Verdict v = analyze(literal.job).verdict;
    REQUIRE(v.suspects.size() == 1);
    CHECK(has(v.suspects[0].advice, "compute-sanitizer"));
    CHECK(!asks());
  }
}

TEST_CASE("while it lives, such a rank has raised an exception") {
  const Verdict v = analyze(gpu_failed(false).job).verdict;
  REQUIRE(v.status == VerdictStatus::kCulprit);
  REQUIRE(v.suspects.size() == 1);
  CHECK(v.suspects[0].reason == Reason::kException);
  CHECK(v.suspects[0].summary ==
        "rank 1 ends by an error of its own GPU work (c10::DistBackendError: [PG ID 0 PG GUID 0(default_pg) Rank 1] "
        "CUDA error: an illegal memory access was encountered)");
  REQUIRE(v.suspects[0].evidence.size() == 1);
  CHECK(v.suspects[0].evidence[0].thread == 1);
  CHECK(v.suspects[0].evidence[0].frame == 2);
}

TEST_CASE(
    "a report saved before causes were recorded still names the reporter, and what all ranks share accuses none") {
  LiteralJob literal = gpu_failed(true);
  literal.job.ranks[1].threads[1].exception->cause.reset();
  CHECK(has(analyze(literal.job).verdict.summary, "the watchdog that ends rank 1 only reports it"));

  LiteralJob shared = gpu_failed(false);
  for (const std::size_t r : {0, 2, 3}) {
    shared.thread(shared.job.ranks[r], 900, "pt_nccl_watchdg", kEnds).exception =
        CxxException{"c10::DistBackendError", kIllegalAccess, ExceptionCause::kOwnGpu};
  }
  CHECK(analyze(shared.job).verdict.suspects.empty());
}

TEST_CASE("texts are cut to a line, between characters") {
  CHECK(describe_exception({"std::bad_alloc", {}}) == "std::bad_alloc");
  CHECK(describe_exception({"E", "one\r\ntwo"}) == "E: one");
  CHECK(describe_exception({"E", "It has ended."}) == "E: It has ended");
  const std::string text = describe_exception({"E", std::string(319, 'x') + "üyz"});
  CHECK(text == "E: " + std::string(319, 'x') + "…");
}

namespace {

// Cores of four ranks that abort; in all but rank 2 a connection has broken.
LiteralJob connections_broke() {
  LiteralJob literal;
  for (int r = 0; r < 4; ++r) {
    RankSnapshot& rank = literal.rank(r, 4, {libc("abort"), py("main", "/home/u/train.py", 3)});
    rank.source = Source::kCore;
    rank.threads[0].state.reset();
    rank.signal = SignalInfo{6, "SIGABRT", rank.threads[0].tid, -6, {}};
    rank.threads[0].handles = HandledException{"RuntimeError", "Connection closed by peer", {}, {}, {}};
    if (r != 2) rank.threads[0].handles->cause = ExceptionCause::kPeer;
  }
  literal.job.ranks[2].threads[0].handles->message = "label 17";
  return literal;
}

void crash_by(RankSnapshot& rank) { rank.signal = SignalInfo{11, "SIGSEGV", rank.threads[0].tid, 1, 0x8}; }

}  // namespace

TEST_CASE("of ranks that abort, those whose connections broke follow from the other one") {
  LiteralJob literal = connections_broke();
  const auto check = [&] {
    const Verdict v = analyze(literal.job).verdict;
    CAPTURE(v.summary);
    REQUIRE(v.suspects.size() == 1);
    CHECK(literal.job.ranks[v.suspects[0].rank].rank == 2);
    CHECK(v.suspects[0].reason == Reason::kCrashed);
    CHECK(has(v.summary, "handles RuntimeError(\"label 17\")"));
    CHECK(has(v.summary, "ranks 0-1,3 lost their connections"));
  };
  check();
  crash_by(literal.job.ranks[1]);  // in what it does after that
  check();
}

TEST_CASE("a rank without a core is the one whose connections broke, if no core says another cause") {
  LiteralJob literal = connections_broke();
  literal.job.ranks.erase(literal.job.ranks.begin() + 2);
  crash_by(literal.job.ranks[0]);
  Verdict v = analyze(literal.job).verdict;
  REQUIRE(v.suspects.size() == 1);
  CHECK(v.suspects[0].missing_rank == 2);
  CHECK(v.suspects[0].reason == Reason::kMissing);
  CHECK(has(v.summary, "ranks 0-1,3 lost their connections"));
  // Nobody is missing, and nobody says more.
  for (RankSnapshot& rank : literal.job.ranks) rank.world_size = 3;
  literal.job.ranks[2].rank = 2;
  literal.job.ranks[0].signal->number = 6;
  v = analyze(literal.job).verdict;
  CHECK(v.status == VerdictStatus::kUndecided);
  CHECK(has(v.summary, "which rank was the first to end is not in these cores"));
}

namespace {

// Ranks 0, 1 and 3 have aborted, or live in the handler of that error; rank 2 reads its data.
LiteralJob blame_others(ExceptionCause cause, bool live) {
  LiteralJob literal;
  for (int r = 0; r < 4; ++r) {
    RankSnapshot& rank =
        literal.rank(r, 4, r == 2 ? in_getitem() : Stack{libc("pause"), py("main", "/home/u/train.py", 3)});
    if (r != 2)
      rank.threads[0].handles = HandledException{.type = "RuntimeError",
                                                 .message = "of the library",
                                                 .frame = {},
                                                 .handler = {},
                                                 .raised = {},
                                                 .cause = cause};
    if (live) continue;
    rank.source = Source::kCore;
    rank.threads[0].state.reset();
    rank.signal = SignalInfo{6, "SIGABRT", rank.threads[0].tid, -6, {}};
    rank.signal->sender = r == 2 ? 4711 : rank.pid;
  }
  return literal;
}

}  // namespace

TEST_CASE("a rank that was ended from outside is the one for which the others have not waited longer") {
  for (const ExceptionCause cause : {ExceptionCause::kTimeout, ExceptionCause::kPeer}) {
    LiteralJob literal = blame_others(cause, false);
    const Verdict v = analyze(literal.job).verdict;
    CAPTURE(v.summary);
    REQUIRE(v.suspects.size() == 1);
    CHECK(literal.job.ranks[v.suspects[0].rank].rank == 2);
    CHECK(v.suspects[0].reason == Reason::kDataLoading);
    CHECK(has(v.summary, cause == ExceptionCause::kTimeout ? "while ranks 0-1,3 timed out"
                                                           : "while ranks 0-1,3 lost their connections"));
  }
}

TEST_CASE("ranks that live and handle the loss of a connection are not accused of the end of a rank that is missing") {
  LiteralJob literal = blame_others(ExceptionCause::kPeer, true);
  // Nobody is missing: a connection may break for any reason, and rank 2 is not known to have broken it.
  CHECK(analyze(literal.job).verdict.status != VerdictStatus::kCulprit);
  literal.job.ranks.erase(literal.job.ranks.begin() + 2);
  // Rank 0 has not noticed it yet.
  literal.job.ranks[0].threads[0].handles.reset();
  LiteralJob waiting;
  const RankSnapshot& in_all_reduce = waiting.rank(0, 4, waits_in_all_reduce());
  literal.job.ranks[0].threads[0].frames.clear();
  for (const FrameId id : in_all_reduce.threads[0].frames)
    literal.job.ranks[0].threads[0].frames.push_back(literal.job.frames.intern(waiting.job.frames[id]));
  const Verdict v = analyze(literal.job).verdict;
  CAPTURE(v.summary);
  REQUIRE(v.suspects.size() == 1);
  CHECK(v.suspects[0].missing_rank == 2);
  CHECK(has(v.summary, "while ranks 1,3 lost their connections, and rank 0 waits in "));
}

TEST_CASE("ranks that abort without a reason, and one that is missing") {
  LiteralJob literal = connections_broke();
  for (RankSnapshot& rank : literal.job.ranks) rank.threads[0].handles.reset();
  CHECK(analyze(literal.job).verdict.status == VerdictStatus::kSymmetric);
  literal.job.ranks.erase(literal.job.ranks.begin() + 2);
  literal.job.ranks[1].threads[0].handles = HandledException{"ConnectionResetError", {}, {}, {}, {}};
  Verdict v = analyze(literal.job).verdict;
  CAPTURE(v.summary);
  REQUIRE(v.suspects.size() == 1);
  CHECK(v.suspects[0].missing_rank == 2);
  CHECK(v.suspects[0].confidence == Approx(0.5));
  // One that has a reason of its own is another matter.
  literal.job.ranks[1].threads[0].handles = HandledException{"ValueError", {}, {}, {}, {}};
  v = analyze(literal.job).verdict;
  for (const Suspect& suspect : v.suspects) CHECK(suspect.missing_rank == -1);
}

namespace {

const Stack kOwnWatchdog = Stack{libc("pthread_kill"),
                                 libc("raise"),
                                 libc("abort"),
                                 nat("os_abort", "/usr/bin/python3.11"),
                                 py("collective_watchdog", "/home/u/train.py", 7),
                                 py("run", "/usr/lib/python3.11/threading.py", 975)};

// Rank 3 is in its own code, the others wait; a thread of the program's own has aborted rank 0.
LiteralJob aborted_itself(const Stack& thread, const Stack& waits = waits_in_all_reduce(),
                          const Stack& odd = Stack{py("smooth", "/home/u/train.py", 11)} + in_main(19)) {
  LiteralJob literal;
  for (int r = 0; r < 4; ++r) {
    RankSnapshot& rank = literal.rank(r, 4, r == 3 ? odd : waits);
    rank.source = Source::kCore;
    rank.threads[0].state.reset();
  }
  literal.thread(literal.job.ranks[0], 900, "python3", thread);
  literal.job.ranks[0].signal = SignalInfo{6, "SIGABRT", 900, -6, {}};
  return literal;
}

const Suspect& only_suspect(const Verdict& v) {
  CAPTURE(v.summary);
  REQUIRE(v.suspects.size() == 1);
  return v.suspects[0];
}

}  // namespace

TEST_CASE("a watchdog of the program's own is the reporter, and a thread that is none crashes") {
  const auto crashes = [](const LiteralJob& literal) {
    const Verdict v = analyze(literal.job).verdict;
    const Suspect& s = only_suspect(v);
    return s.rank == 0 && s.reason == Reason::kCrashed;
  };
  LiteralJob literal = aborted_itself(kOwnWatchdog);
  {
    const Verdict v = analyze(literal.job).verdict;
    CHECK((only_suspect(v).rank == 3 && v.suspects[0].reason == Reason::kUserCode));
    CHECK(has(v.summary,
              "; rank 0 was ended by its own watchdog (collective_watchdog at train.py:7), which only reports it"));
  }
  SECTION("nobody is elsewhere") {
    literal = aborted_itself(kOwnWatchdog, waits_in_all_reduce(), waits_in_all_reduce());
    CHECK(crashes(literal));
  }
  SECTION("its own main thread is where no other rank is") {
    literal = aborted_itself(kOwnWatchdog);
    std::swap(literal.job.ranks[0].threads[0].frames, literal.job.ranks[3].threads[0].frames);
    CHECK(crashes(literal));
  }
  SECTION("the main thread has aborted") {
    literal.job.ranks[0].signal->tid = literal.job.ranks[0].pid;
    CHECK(crashes(literal));
  }
  SECTION("by kill() of its own process, which the main thread gets") {
    RankSnapshot& rank = literal.job.ranks[0];
    rank.signal = SignalInfo{6, "SIGABRT", rank.pid, 0, {}};
    rank.signal->sender = rank.pid;
    CHECK(only_suspect(analyze(literal.job).verdict).rank == 3);
    rank.threads[1].frames.edit().erase(rank.threads[1].frames.edit().begin(),
                                        rank.threads[1].frames.edit().begin() + 5);
    CHECK(crashes(literal));  // there is no watchdog
  }
  SECTION("the C library has found an error") {
    literal.job.ranks[0].abort_message = "free(): invalid pointer";
    CHECK(crashes(literal));
  }
  SECTION("an exception of its own") {
    literal.job.ranks[0].threads[1].handles = HandledException{"OSError", "disk full", {}, {}, {}};
    CHECK(crashes(literal));
  }
  SECTION("the interpreter has found an error") {
    CHECK(crashes(aborted_itself(Stack{libc("raise"), libc("abort"), nat("fatal_error_exit", "/usr/bin/python3.11"),
                                       nat("_Py_FatalErrorFunc", "/usr/bin/python3.11"),
                                       py("collective_watchdog", "/home/u/train.py", 7)})));
  }
  SECTION("a library has found an error") {
    CHECK(crashes(aborted_itself(Stack{libc("raise"), libc("abort"), nat("check(bool)", "/usr/lib/libcodec.so.1"),
                                       py("collective_watchdog", "/home/u/train.py", 7)})));
  }
  SECTION("a thread with another name and work") {
    const Stack prefetch = Stack{libc("raise"), libc("abort"), py("prefetch", "/home/u/data.py", 7)};
    literal = aborted_itself(prefetch);
    CHECK(crashes(literal));
    // The same thread of another rank sleeps between its looks.
    literal.thread(literal.job.ranks[1], 901, "python3",
                   Stack{libc("clock_nanosleep"), py("prefetch", "/home/u/data.py", 5)});
    CHECK(only_suspect(analyze(literal.job).verdict).rank == 3);
  }
  SECTION("another rank has crashed by itself") {
    literal.job.ranks[3].signal = SignalInfo{11, "SIGSEGV", literal.job.ranks[3].pid, 1, 0x8};
    const Verdict v = analyze(literal.job).verdict;
    const auto of_rank_3 =
        std::find_if(v.suspects.begin(), v.suspects.end(), [](const Suspect& s) { return s.rank == 3; });
    REQUIRE(of_rank_3 != v.suspects.end());
    CHECK(of_rank_3->reason == Reason::kCrashed);
  }
}

TEST_CASE("what a program's own watchdog reports is a wait, although no rule knows it") {
  const std::string program = "/home/u/solver";
  const Stack waits = {libc("recv"), nat("Comm::sum_all(double&)", program), nat("main", program)};
  const Stack spins = {nat("collatz(unsigned)", program), nat("main", program)};
  const Stack watchdog = {libc("raise"), libc("abort"), nat("hang_detector(int)", program), libc("start_thread")};
  LiteralJob literal = aborted_itself(watchdog, waits, spins);
  for (RankSnapshot& rank : literal.job.ranks) {
    rank.python_version.reset();
    rank.executable = program;
    if (rank.rank != 3) rank.threads[0].syscall = call("recvfrom", 4);
  }
  const Verdict v = analyze(literal.job).verdict;
  CHECK((only_suspect(v).rank == 3 && v.suspects[0].reason == Reason::kUserCode));
  CHECK(v.suspects[0].confidence < 0.6);
  CHECK(has(v.summary, "while ranks 0-2 wait at one place (Comm::sum_all(...) in solver)"));
  CHECK(has(v.summary, "rank 0 was ended by its own watchdog (hang_detector(...) in solver), which only reports it"));
  // One that waits at another place may be waited for, too.
  literal.job.ranks[2].threads[0].frames.edit()[1] = literal.job.frames.intern(nat("Comm::gather()", program));
  CHECK(only_suspect(analyze(literal.job).verdict).reason == Reason::kCrashed);
}
