// The dumps in fixtures/dumps are those of three ranks of fixtures/dumps/train.py (torch 1.13, gloo): rank 1 sleeps in
// its data loader, the others wait in all_reduce.
#include "dumps/dump.h"

#include <catch2/catch.hpp>

#include <algorithm>

#include <fmt/format.h>

#include "analyzers/analysis.h"
#include "analyzers/motion.h"
#include "base/text.h"

#include "support/dump_texts.h"

using namespace rankstacks;

namespace {

std::string text_of(const std::string& name) { return testing::text_of_fixture("dumps/" + name); }

const Frame& frame(const JobSnapshot& job, std::size_t thread, std::size_t i) {
  const auto& threads = job.ranks.at(0).threads;
  return job.frames[threads.at(thread).frames.at(i)];
}

// "function file:line" or "function module", innermost first.
std::vector<std::string> stack(const JobSnapshot& job, std::size_t thread = 0) {
  std::vector<std::string> lines;
  for (std::size_t i = 0; i < job.ranks.at(0).threads.at(thread).frames.size(); ++i) {
    const Frame& f = frame(job, thread, i);
    lines.push_back(f.function.value_or("?") + " " + (f.line ? *f.file + ":" + std::to_string(*f.line) : f.module));
  }
  return lines;
}

bool says(const RankSnapshot& rank, ProblemCode code, const std::string& part) {
  return std::any_of(rank.problems.begin(), rank.problems.end(), [&](const Problem& problem) {
    return problem.code == code && problem.message.find(part) != std::string::npos;
  });
}

}  // namespace

TEST_CASE("each tool is recognised by its text") {
  CHECK(dumps::tool_of(text_of("py-spy/rank1.txt")) == "py-spy");
  CHECK(dumps::tool_of(text_of("py-spy-json-native/rank1.json")) == "py-spy");
  CHECK(dumps::tool_of(text_of("pystack-native-all/rank1.txt")) == "pystack");
  CHECK(dumps::tool_of(text_of("gdb/rank1.txt")) == "gdb");
  CHECK(dumps::tool_of(text_of("eu-stack-msv/rank1.txt")) == "eu-stack");
  CHECK(dumps::tool_of(text_of("faulthandler/rank1.log")) == "faulthandler");
  CHECK(dumps::tool_of("#0  0x00007f0000000010 in poll () from /lib/libc.so.6\n") == "gdb");
  for (const char* other :
       {"", "{\"schema\": 1}", "Thread pool started\n#0 first\n", "[1, 2]", "Process 3: loading data\n"})
    CHECK(dumps::tool_of(other).empty());
}

TEST_CASE("py-spy: state, GIL, qualified names, native frames") {
  const JobSnapshot job = testing::read_dump(text_of("py-spy-native/rank0.txt"));
  const RankSnapshot& rank = job.ranks.at(0);
  CHECK(rank.source == Source::kDump);
  CHECK(rank.dumped_by == "py-spy");
  CHECK(rank.pid == 29327);
  CHECK(rank.python_version == "3.11.2");
  CHECK(rank.executable == "/usr/bin/python3.11");
  CHECK(rank.command == std::vector<std::string>{"/usr/bin/python3", "train.py"});
  CHECK(rank.threads.at(0).state == 'S');
  CHECK(frame(job, 0, 0).address == 0x7efd8541ff16);
  CHECK_FALSE(frame(job, 0, 0).function);
  const auto lines = stack(job);
  CHECK(lines.at(2) == "c10d::Work::wait libtorch_cpu.so.1.13.0");
  CHECK(lines.at(5) == "all_reduce torch/distributed/distributed_c10d.py:1541");
  CHECK(frame(job, 0, 5).kind == FrameKind::kPython);
  CHECK(says(rank, ProblemCode::kFromOtherTool, "py-spy: no system calls"));

  const JobSnapshot python = testing::read_dump(text_of("py-spy-locals/rank1.txt"));
  CHECK(stack(python).size() == 8);  // the variables are none
  CHECK(frame(python, 0, 0).qualname == "Samples.__getitem__");
  CHECK(frame(python, 0, 0).function == "__getitem__");
  CHECK(says(python.ranks[0], ProblemCode::kFromOtherTool, "no native frames"));
  CHECK_FALSE(says(python.ranks[0], ProblemCode::kMalformed, "not understood"));

  const JobSnapshot two = testing::read_dump(
      "Process 7: a\nThread 7 (active+gil): \"MainThread\"\n    f (a.py:1)\nProcess 8: a\n"
      "Thread 8 (idle): \"MainThread\"\n    g (a.py:2)\nwhat is this\n",
      "rank3.txt");
  CHECK(two.ranks.size() == 2);
  CHECK(two.ranks[0].threads[0].gil == Gil::kHolds);
  CHECK(two.ranks[0].threads[0].state == 'R');
  CHECK_FALSE(two.ranks[0].rank);  // which of the two it is, is not known
  CHECK(says(two.ranks[1], ProblemCode::kMalformed, "1 line of the text was not understood"));
}

TEST_CASE("py-spy's JSON says the same as its text, and may end anywhere") {
  const JobSnapshot job = testing::read_dump(text_of("py-spy-json/rank1.json"));
  CHECK(job.ranks.at(0).pid == 29328);
  CHECK(stack(job).front() == "__getitem__ /job/train.py:23");
  CHECK(stack(job).size() == 8);
  const std::string whole = text_of("py-spy-json-native/rank1.json");
  const JobSnapshot cut = testing::read_dump(whole.substr(0, whole.size() / 2));
  CHECK_FALSE(stack(cut).empty());
  CHECK(stack(cut).size() < stack(testing::read_dump(whole)).size());
  CHECK(says(cut.ranks[0], ProblemCode::kMalformed, "not understood"));
}

TEST_CASE("pystack: innermost last in the text, first here") {
  const JobSnapshot job = testing::read_dump(text_of("pystack-native-all/rank0.txt"));
  CHECK(job.ranks.at(0).pid == 29327);
  CHECK(job.ranks[0].threads.size() == 6);
  CHECK(job.ranks[0].threads[0].name == "python3");
  const auto lines = stack(job);
  CHECK(lines.front() == "__futex_abstimed_wait_common64 ./nptl/futex-internal.c:57");
  CHECK(frame(job, 0, 0).inlined);
  CHECK(frame(job, 0, 0).module == "/usr/lib/x86_64-linux-gnu/libc.so.6");
  CHECK(lines.back() == "_start /usr/bin/python3.11");
  CHECK(std::find(lines.begin(), lines.end(), "train /job/train.py:32") != lines.end());
  const JobSnapshot gil = testing::read_dump(
      "Traceback for thread 5 (python) [Has the GIL,Garbage collecting] (most recent call last):\n"
      "    (Python) File \"/a.py\", line 3, in f\n        x = 1\n");
  CHECK(gil.ranks[0].threads[0].gil == Gil::kHolds);
  CHECK(gil.ranks[0].threads[0].collecting);
}

TEST_CASE("gdb: the main thread is its last one, modules are derived") {
  const JobSnapshot job = testing::read_dump(text_of("gdb/rank0.txt"));
  const RankSnapshot& rank = job.ranks.at(0);
  CHECK(rank.pid == 29327);
  CHECK(rank.threads.size() == 6);
  CHECK(rank.threads[0].tid == 29327);
  CHECK(rank.threads[1].name == "python3");
  CHECK(rank.python_version == "");
  const auto lines = stack(job);
  CHECK(lines.size() == 22);
  CHECK(lines.at(0) == "__futex_abstimed_wait_common64 ./nptl/futex-internal.c:57");
  CHECK(frame(job, 0, 0).module == "libc.so.6");
  CHECK(lines.at(5) ==
        "c10d::Work::wait(std::chrono::duration<long, std::ratio<1l, 1000l> >) "
        "/lib/x86_64-linux-gnu/libtorch_cpu.so.1.13");
  CHECK(frame(job, 0, 12).module == "python3");  // ?? (), between functions of the interpreter
  CHECK(says(rank, ProblemCode::kFromOtherTool, "no Python frames"));
  CHECK_FALSE(says(rank, ProblemCode::kMalformed, "not understood"));
  CHECK(stack(testing::read_dump(text_of("gdb-full/rank0.txt"))).size() == 8);
}

TEST_CASE("gdb: arguments with brackets, a narrow terminal, stacks that end early, no threads") {
  const JobSnapshot job = testing::read_dump(
      "#0  f (s=0x1 \"a) at b (\", n=2) at x.c:7\n"
      "#1  0x10 in operator() (x=1)\n    at y.cc:8\n"
      "#2  (anonymous namespace)::g(int) (n=1) from /lib/libg.so\n"
      "Backtrace stopped: previous frame inner to this frame (corrupt stack?)\n");
  CHECK(stack(job) ==
        std::vector<std::string>{"f x.c:7", "operator() y.cc:8", "(anonymous namespace)::g(int) /lib/libg.so"});
  CHECK(job.ranks[0].threads[0].stack_end == StackEnd::kNoUnwindInfo);
}

TEST_CASE("eu-stack: with and without modules and sources") {
  const JobSnapshot plain = testing::read_dump(text_of("eu-stack/rank1.txt"));
  CHECK(plain.ranks.at(0).pid == 29328);
  CHECK(plain.ranks[0].threads.size() == 5);
  CHECK(frame(plain, 0, 0).module == "libc.so.6");
  const JobSnapshot all = testing::read_dump(text_of("eu-stack-msv/rank1.txt"));
  CHECK(stack(all).at(0) == "__GI___clock_nanosleep ../sysdeps/unix/sysv/linux/clock_nanosleep.c:48");
  CHECK(stack(all).at(3) == "PyObject_Vectorcall /usr/bin/python3.11");
  CHECK(stack(all).at(1) == "? /usr/bin/python3.11");
  CHECK_FALSE(says(all.ranks[0], ProblemCode::kMalformed, "not understood"));
}

TEST_CASE("faulthandler: in a log, the last of several dumps, names of 3.14") {
  const JobSnapshot job = testing::read_dump(
      "step 1\nTimeout (0:00:05)!\nThread 0x01 (most recent call first):\n  File \"a.py\", line 1 in old\n"
      "step 2\nTimeout (0:00:05)!\nThread 0x02 [worker] (most recent call first):\n  <no Python frame>\n\n"
      "Current thread 0x01 (most recent call first):\n  Garbage-collecting\n"
      "  File \"a.py\", line 9 in f\n  File \"a.py\", line 10 in <module>\nstep 3\n");
  REQUIRE(job.ranks.size() == 1);
  CHECK(stack(job) == std::vector<std::string>{"f a.py:9", "<module> a.py:10"});
  CHECK(job.ranks[0].threads[0].collecting);
  CHECK(job.ranks[0].threads.at(1).name == "worker");
  CHECK(job.ranks[0].threads[1].tid != job.ranks[0].threads[0].tid);
}

TEST_CASE("coredumpctl") {
  const JobSnapshot job = testing::read_dump(
      "           PID: 4711 (python3)\n        Signal: 6 (ABRT)\n      Hostname: node-a\n"
      "       Message: Process 4711 (python3) of user 1000 dumped core.\n\n"
      "                Stack trace of thread 4719:\n"
      "                #0  0x00007f8d8c1a9e3c pthread_kill (libc.so.6 + 0x8ae3c)\n"
      "                #1  0x00007f8d8c15afb2 n/a (libfoo.so + 0x3bfb2)\n"
      "                Stack trace of thread 4711:\n"
      "                #0  0x00007f8d8c20b26f __poll (libc.so.6 + 0xec26f)\n");
  const RankSnapshot& rank = job.ranks.at(0);
  CHECK(rank.pid == 4711);
  CHECK(rank.host == "node-a");
  CHECK(rank.signal->name == "SIGABRT");
  CHECK(rank.signal->tid == 4719);
  CHECK(stack(job, 1) == std::vector<std::string>{"pthread_kill libc.so.6", "? libfoo.so"});
  CHECK(frame(job, 1, 1).offset == 0x3bfb2);
}

TEST_CASE("logs with launchers' prefixes") {
  for (const char* name : {"prefixed/torchrun.log", "prefixed/srun.log", "prefixed/mpirun.log"}) {
    INFO(name);
    const JobSnapshot job = testing::read_dump(text_of(name));
    REQUIRE(job.ranks.size() == 3);
    for (int r = 0; r < 3; ++r) CHECK(job.ranks[static_cast<std::size_t>(r)].rank == r);
    CHECK(stack(job).front() == "all_reduce /usr/lib/python3/dist-packages/torch/distributed/distributed_c10d.py:1541");
  }
  CHECK_FALSE(dumps::is_dump("0: hello\n1: hello\n"));
}

TEST_CASE("torch's debug server: a file with the answers of all ranks, and its page") {
  for (const char* name : {"torch-debug/stacks.txt", "torch-debug/stacks.html", "torch-debug/pyspy_dump.txt"}) {
    INFO(name);
    CHECK(dumps::is_dump(text_of(name)));
    const JobSnapshot job = testing::read_dump(text_of(name));
    REQUIRE(job.ranks.size() == 3);
    for (int r = 0; r < 3; ++r) {
      const RankSnapshot& rank = job.ranks[static_cast<std::size_t>(r)];
      CHECK(rank.rank == r);
      CHECK(rank.host == "node-a");
      CHECK(rank.status == Status::kComplete);
      CHECK_FALSE(says(rank, ProblemCode::kMalformed, "not understood"));
    }
    CHECK(stack(job).front().find("all_reduce ") == 0);
    CHECK(stack(job).back().find("<module> ") == 0);
  }
}

TEST_CASE("torch's debug server: a rank that has not answered") {
  const JobSnapshot job = testing::read_dump(text_of("torch-debug/stacks-partial.txt"));
  REQUIRE(job.ranks.size() == 3);
  CHECK(job.ranks[0].world_size == 3);
  CHECK(job.ranks[2].status == Status::kFailed);
  CHECK(job.ranks[2].rank == 2);
  CHECK(job.ranks[2].host == "node-a");
  CHECK(says(job.ranks[2], ProblemCode::kTimeout, "Read timed out"));

  const std::string answer =
      "Current thread 0x01 (most recent call first):\n  File \"a.py\", line 1 in &lt;module&gt;\n";
  const JobSnapshot page =
      testing::read_dump("<h2>Rank 0: http://[fd00::1]:1/handler/dump_traceback?</h2>\n<pre>" + answer +
                         "</pre>\n<h2>Rank 12: http://b:1/handler/dump_traceback?</h2>\n        \n"
                         "            <p>Failed to fetch: status=503</p>\n<pre>ConnectionError: &#39;b&#39;</pre>\n");
  REQUIRE(page.ranks.size() == 2);
  CHECK(page.ranks[0].host == "fd00::1");
  CHECK(stack(page) == std::vector<std::string>{"<module> a.py:1"});
  CHECK(page.ranks[1].rank == 12);
  CHECK(says(page.ranks[1], ProblemCode::kUnreadable, "Error: 503"));
  // Without any stack it is no dump.
  CHECK_FALSE(dumps::is_dump("=== Rank 0: http://a:1/handler/dump_traceback? ===\nError: 503\n"));
}

TEST_CASE("ranks from names") {
  CHECK(dumps::rank_from_dump_name("/x/rank3") == 3);
  CHECK(dumps::rank_from_dump_name("rank-3.txt") == 3);
  CHECK(dumps::rank_from_dump_name("stacks.rank_12.log") == 12);
  CHECK(dumps::rank_from_dump_name("stacks.3.txt") == 3);
  CHECK(dumps::rank_from_dump_name("stacks.3") == 3);
  for (const char* none : {"stacks.txt", "stacks3.txt", "3.d/stacks", "stacks.-1.txt", "a.99999999999.txt", "a.b.c"}) {
    INFO(none);
    CHECK_FALSE(dumps::rank_from_dump_name(none));
  }
}

TEST_CASE("of two dumps of one process the better one is kept") {
  JobSnapshot job = testing::read_dump(text_of("py-spy/rank0.txt"), "a.0.txt");
  for (const char* name : {"gdb/rank0.txt", "py-spy-native/rank0.txt", "faulthandler/rank0.log"}) {
    JobSnapshot more = testing::read_dump(text_of(name), "b.0.txt");
    for (ThreadSnapshot& thread : more.ranks[0].threads)
      for (FrameId& id : thread.frames.edit()) id = job.frames.intern(more.frames[id]);
    job.ranks.push_back(std::move(more.ranks[0]));
  }
  dumps::keep_one_dump_of_each(job);
  REQUIRE(job.ranks.size() == 1);
  CHECK(job.ranks[0].dumped_by == "py-spy");
  CHECK(job.ranks[0].threads[0].frames.size() == 10);
  CHECK(says(job.ranks[0], ProblemCode::kMismatch, "b.0.txt, of gdb"));
  CHECK(says(job.ranks[0], ProblemCode::kMismatch, "b.0.txt, of faulthandler"));
}

namespace {

// The process of the texts, which a tool has printed one after the other.
JobSnapshot job_of_samples(const std::vector<std::string>& texts) {
  JobSnapshot job;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    JobSnapshot one = testing::read_dump(texts[i], "dump" + std::to_string(i) + ".0.txt");
    for (ThreadSnapshot& thread : one.ranks[0].threads)
      for (FrameId& id : thread.frames.edit()) id = job.frames.intern(one.frames[id]);
    job.ranks.push_back(std::move(one.ranks[0]));
  }
  analyzers::fold_earlier(job, dumps::keep_one_dump_of_each(job));
  REQUIRE(job.ranks.size() == 1);
  return job;
}

std::string with_line(std::string text, const std::string& before, const std::string& after) {
  const std::size_t at = text.find(before);
  REQUIRE(at != std::string::npos);
  return text.replace(at, before.size(), after);
}

}  // namespace

TEST_CASE("earlier dumps of the same tool show what moves") {
  const std::string text = text_of("py-spy/rank1.txt");
  const std::string elsewhere = with_line(text, "train.py:23", "train.py:24");

  JobSnapshot job = job_of_samples({text, text});
  REQUIRE(job.ranks[0].threads[0].motion);
  CHECK(job.ranks[0].threads[0].motion->samples == 2);
  CHECK_FALSE(job.ranks[0].threads[0].motion->moved);
  CHECK(says(job.ranks[0], ProblemCode::kFromOtherTool, "2 samples"));
  CHECK_FALSE(says(job.ranks[0], ProblemCode::kMismatch, "left out"));

  job = job_of_samples({elsewhere, text, text});
  CHECK(job.ranks[0].threads[0].motion->samples == 3);
  CHECK(job.ranks[0].threads[0].motion->moved);
  CHECK(frame(job, 0, 0).line == 23);  // the last one is shown

  // Out of a wait for others, and into it.
  const std::string waits = text_of("py-spy/rank0.txt");
  const std::string works = with_line(waits, "    all_reduce (torch/distributed/distributed_c10d.py:1541)\n", "");
  CHECK(job_of_samples({waits, works}).ranks[0].threads[0].motion->left_wait);
  CHECK_FALSE(job_of_samples({works, waits}).ranks[0].threads[0].motion->left_wait);

  // Another tool's, or one with other frames, is no sample of it.
  job = job_of_samples({text_of("gdb/rank1.txt"), text});
  CHECK_FALSE(job.ranks[0].threads[0].motion);
  CHECK(says(job.ranks[0], ProblemCode::kFromOtherTool, "one sample"));
  CHECK(says(job.ranks[0], ProblemCode::kMismatch, "left out"));
  CHECK_FALSE(job_of_samples({text, text_of("py-spy-native/rank1.txt")}).ranks[0].threads[0].motion);
}

TEST_CASE("pystack: a line of source that calls what sleeps") {
  const auto state_at = [](const std::string& line) {
    return testing::read_dump(
               "Traceback for thread 7 (python3) [] (most recent call last):\n"
               "    (Python) File \"/job/train.py\", line 3, in <module>\n        time.sleep(1)\n"
               "    (Python) File \"/job/train.py\", line 2, in step\n        " +
               line + "\n      Locals:\n        note: 'sleep(1)'\n")
        .ranks[0]
        .threads[0]
        .state;
  };
  for (const char* line : {"time.sleep(30)", "sleep(3)", "data = connection.recv(4096)", "lock.acquire()"}) {
    INFO(line);
    CHECK(state_at(line) == 'S');
  }
  for (const char* line : {"loss.backward()", "oversleep(1)", "self._sleep(1)", "pread(1)", ""}) {
    INFO(line);
    CHECK_FALSE(state_at(line));
  }
}

TEST_CASE("a text that was cut off gives what is there") {
  for (const char* name : {"py-spy/rank1.txt", "pystack-native/rank1.txt", "gdb/rank1.txt", "eu-stack-msv/rank1.txt",
                           "faulthandler/rank1.log"}) {
    const std::string text = text_of(name);
    for (std::size_t length = 0; length <= text.size(); length += 41) {
      const auto job = dumps::read_dump(text.substr(0, length), "x", 1);
      if (!job) continue;
      INFO(name << " " << length);
      CHECK_FALSE(job->ranks.at(0).threads.empty());
    }
  }
  CHECK_FALSE(dumps::read_dump("nothing\n", "x", 1));
}

namespace {

// Ranks 0, 1, 2 with these dumps.
JobSnapshot job_of(const std::vector<std::string>& names) {
  JobSnapshot job;
  for (std::size_t rank = 0; rank < names.size(); ++rank) {
    JobSnapshot one = testing::read_dump(text_of(names[rank]), "rank" + std::to_string(rank));
    for (ThreadSnapshot& thread : one.ranks[0].threads)
      for (FrameId& id : thread.frames.edit()) id = job.frames.intern(one.frames[id]);
    job.ranks.push_back(std::move(one.ranks[0]));
  }
  return job;
}

analyzers::Verdict verdict_of(const JobSnapshot& job) { return analyzers::analyze(job).verdict; }

}  // namespace

TEST_CASE("what no other tool can tell lowers the confidence") {
  JobSnapshot job =
      job_of({"py-spy-json-native/rank0.json", "py-spy-json-native/rank1.json", "py-spy-json-native/rank2.json"});
  const auto of_dumps = verdict_of(job);
  for (RankSnapshot& rank : job.ranks) rank.source = Source::kCore;
  const auto of_cores = verdict_of(job);
  REQUIRE(of_dumps.suspects.size() == 1);
  REQUIRE(of_cores.suspects.size() == 1);
  CHECK(of_dumps.suspects[0].rank == 1);
  CHECK(of_dumps.suspects[0].confidence < of_cores.suspects[0].confidence);
}

TEST_CASE("dumps that lack frames do not show that ranks are alike") {
  using analyzers::VerdictStatus;
  CHECK(verdict_of(job_of({"gdb/rank0.txt", "gdb/rank0.txt"})).status == VerdictStatus::kUndecided);
  CHECK(verdict_of(job_of({"pystack-native/rank0.txt", "pystack-native/rank0.txt"})).status ==
        VerdictStatus::kSymmetric);
  CHECK(verdict_of(job_of({"faulthandler/rank0.log", "faulthandler/rank0.log"})).status == VerdictStatus::kSymmetric);
}

TEST_CASE("of ranks at different places one may wait for another") {
  JobSnapshot job = job_of({"pystack/rank0.txt", "pystack/rank1.txt", "pystack/rank1.txt"});
  CHECK(verdict_of(job).suspects.empty());  // two at one place: perhaps on their way
  CHECK(verdict_of(job_of({"pystack/rank0.txt", "pystack/rank1.txt"})).suspects.size() == 1);
  Frame elsewhere = job.frames[job.ranks[2].threads[0].frames[0]];
  elsewhere.line = 1;
  job.ranks[2].threads[0].frames.edit()[0] = job.frames.intern(elsewhere);
  CHECK(verdict_of(job).status == analyzers::VerdictStatus::kUndecided);
}

TEST_CASE("who is not seen to be blocked may be on the way") {
  // Ranks 0 and 1 are in all_reduce, rank 2 elsewhere.
  const auto suspects = [](const std::string& of_two) {
    const auto text = [](int pid, const std::string& innermost) {
      return fmt::format(
          "Process {0}: python3 train.py\nPython v3.11.2 (/usr/bin/python3.11)\n\n{1}"
          "    main (/job/train.py:37)\n    <module> (/job/train.py:41)\n",
          pid, fmt::format(fmt::runtime(innermost), pid));
    };
    const std::string waits =
        "Thread {} (idle): \"MainThread\"\n    all_reduce (/venv/torch/distributed/distributed_c10d.py:1541)\n";
    JobSnapshot job;
    for (int rank = 0; rank < 3; ++rank) {
      JobSnapshot one = testing::read_dump(text(100 + rank, rank == 2 ? of_two : waits), "rank" + std::to_string(rank));
      for (ThreadSnapshot& thread : one.ranks[0].threads)
        for (FrameId& id : thread.frames.edit()) id = job.frames.intern(one.frames[id]);
      job.ranks.push_back(std::move(one.ranks[0]));
    }
    return verdict_of(job).suspects.size();
  };
  const std::string barrier = ": \"MainThread\"\n    barrier (/venv/torch/distributed/distributed_c10d.py:3152)\n";
  CHECK(suspects("Thread {} (idle)" + barrier) == 1);
  CHECK(suspects("Thread {} (active)" + barrier) == 0);
  const std::string own = ": \"MainThread\"\n    step (/job/train.py:12)\n";
  CHECK(suspects("Thread {} (idle)" + own) == 1);
  CHECK(suspects("Thread {} (active)" + own) == 0);

  // Without states and native frames, the line of source may say it.
  JobSnapshot job = job_of({"pystack/rank0.txt", "pystack/rank1.txt", "pystack/rank0.txt"});
  ThreadSnapshot& thread = job.ranks[1].threads[0];
  for (const FrameId id : std::vector<FrameId>(thread.frames))
    if (contains(*job.frames[id].file, "torch/")) std::erase(thread.frames.edit(), id);
  CHECK(verdict_of(job).suspects.size() == 1);
  thread.state.reset();
  CHECK(verdict_of(job).suspects.empty());
}
