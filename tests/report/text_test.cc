#include <catch2/catch.hpp>
#include <fstream>
#include <regex>
#include <sstream>

#include "report/report.h"
#include "report/sanitize.h"
#include "support/literal_job.h"

using namespace rankstacks;
using namespace rankstacks::report;
using namespace rankstacks::testing;

namespace {

const std::string kLibTorch = "/opt/venv/lib/python3.11/site-packages/torch/lib/libtorch_cpu.so";
const std::string kTorchPython = "/opt/venv/lib/python3.11/site-packages/torch/lib/libtorch_python.so";
const std::string kTorch = "/opt/venv/lib/python3.11/site-packages/torch/";
const std::string kLibPython = "/usr/lib/libpython3.11.so.1.0";

Frame plumbing(const char* function) { return nat(function, kLibPython); }

const Stack kProgramStart = {plumbing("PyEval_EvalCode"),
                             plumbing("run_mod"),
                             plumbing("_PyRun_SimpleFileObject"),
                             plumbing("Py_RunMain"),
                             plumbing("Py_BytesMain"),
                             unknown(kLibc, 0x2724a),
                             libc("__libc_start_main"),
                             nat("_start", "/usr/bin/python3.11")};
const Stack kThreadStart = {unknown("/usr/lib/libstdc++.so.6", 0xd44a3), unknown(kLibc, 0x891f5),
                            unknown(kLibc, 0x1098ec)};

// As seen on a real job of torch 2.15, Python 3.11: 18 native frames of C++ below backward().
Stack hung_backward() {
  return Stack{
             unknown(kLibc, 0x85f16),
             libc("pthread_cond_wait"),
             nat("std::condition_variable::wait(std::unique_lock<std::mutex>&)", "/usr/lib/libstdc++.so.6"),
             nat("c10d::Reducer::finalize_backward()", kLibTorch),
             nat("std::_Function_handler<void (), c10d::Reducer::mark_variable_ready(unsigned "
                 "long)::{lambda()#1}>::_M_invoke(std::_Any_data const&)",
                 kLibTorch),
             nat("torch::autograd::GraphTask::exec_post_processing()", kLibTorch),
             nat("torch::autograd::GraphTask::mark_as_completed_and_run_post_processing()", kLibTorch),
             nat("torch::autograd::Engine::thread_main(std::shared_ptr<torch::autograd::GraphTask> const&)", kLibTorch),
             nat("torch::autograd::Engine::execute_with_graph_task(std::shared_ptr<torch::autograd::GraphTask> const&, "
                 "int)",
                 kLibTorch),
             nat("torch::autograd::python::PythonEngine::execute_with_graph_task(std::shared_ptr<torch::autograd::"
                 "GraphTask> const&, int)",
                 kTorchPython),
             nat("torch::autograd::Engine::execute(std::vector<torch::autograd::Edge, "
                 "std::allocator<torch::autograd::Edge> > const&)",
                 kLibTorch),
             nat("torch::autograd::python::PythonEngine::execute(std::vector<torch::autograd::Edge, "
                 "std::allocator<torch::autograd::Edge> > const&)",
                 kTorchPython),
             nat("THPEngine_run_backward(_object*, _object*, _object*)", kTorchPython),
             plumbing("cfunction_call"),
             plumbing("_PyObject_Call"),
             py("_engine_run_backward", kTorch + "autograd/graph.py", 1113),
             py("backward", kTorch + "autograd/__init__.py", 395),
             py("backward", kTorch + "_tensor.py", 623),
             py("train_one_epoch", "/home/u/project/train.py", 41),
             py("main", "/home/u/project/train.py", 80),
             py("<module>", "/home/u/project/train.py", 84)} +
         kProgramStart;
}

Stack hung_getitem() {
  return Stack{libc("read"),
               plumbing("_Py_read"),
               plumbing("os_read"),
               plumbing("cfunction_vectorcall_FASTCALL"),
               py("__getitem__", "/home/u/project/data.py", 9),
               py("<listcomp>", kTorch + "utils/data/_utils/fetch.py", 54),
               py("fetch", kTorch + "utils/data/_utils/fetch.py", 54),
               py("_next_data", kTorch + "utils/data/dataloader.py", 785),
               py("__next__", kTorch + "utils/data/dataloader.py", 725),
               py("train_one_epoch", "/home/u/project/train.py", 38),
               py("main", "/home/u/project/train.py", 80),
               py("<module>", "/home/u/project/train.py", 84)} +
         kProgramStart;
}

// Eight ranks of a DDP job on gloo; rank 2's data set blocks.
LiteralJob eight_ranks() {
  LiteralJob literal;
  literal.job.elapsed_ms = 210;
  const Stack worker_root = Stack{nat("c10d::ProcessGroupGloo::runLoop(int)", kLibTorch)} + kThreadStart;
  for (int r = 0; r < 8; ++r) {
    RankSnapshot& rank = literal.rank(r, 8, r == 2 ? hung_getitem() : hung_backward());
    rank.captured_offset_ms = 0.1 * r;
    rank.stopped_ms = 1.5 + 0.1 * r;
    rank.threads[0].syscall = r == 2 ? call("read", 5, "pipe:[123]") : call("futex");
    Tid tid = 1000 * (r + 1);
    auto add = [&](const char* name, const Stack& stack, const char* syscall) {
      literal.thread(rank, tid++, name, stack).syscall = call(syscall);
    };
    add("python3",
        Stack{libc("pthread_cond_wait"), nat("blas_thread_server", "/x/libopenblas.so.0"), unknown(kLibc, 0x891f5),
              unknown(kLibc, 0x1098ec)},
        "futex");
    add("gloo_tcp_loop", Stack{libc("epoll_wait"), nat("gloo::transport::tcp::Loop::run()", kLibTorch)} + kThreadStart,
        "epoll_wait");
    add("pt_gloo_runloop", Stack{libc("pthread_cond_wait")} + worker_root, "futex");
    if (r == 2) add("pt_gloo_runloop", Stack{libc("pthread_cond_wait")} + worker_root, "futex");
    else
      add("pt_gloo_runloop",
          Stack{libc("pthread_cond_timedwait"), nat("gloo::transport::tcp::UnboundBuffer::waitRecv(int*)", kLibTorch),
                nat("gloo::(anonymous namespace)::allreduce(gloo::Options const&)", kLibTorch),
                nat("c10d::AsyncAllreduceWork::allreduce(std::vector<at::Tensor>&)", kLibTorch),
                nat("c10d::ProcessGroupGloo::AsyncWork::execute(int)", kLibTorch)} +
              worker_root,
          "futex");
    if (r == 0)
      add("pt_tcpstore_uv",
          Stack{libc("epoll_pwait"), nat("uv.io_poll", kLibTorch), nat("uv_run", kLibTorch),
                nat("c10d::detail::LibUVStoreDaemon::run()", kLibTorch)} +
              kThreadStart,
          "epoll_pwait");
  }
  return literal;
}

std::string text_of(const JobSnapshot& job, TextOptions options = {}) {
  return text_report(job, analyzers::analyze(job), options);
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

void check_one_screen(const std::string& text) {
  INFO(text);
  CHECK(lines_of(text).size() <= 40);
  for (const std::string& line : lines_of(text)) CHECK(columns_of(line) <= 100);
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("the suspect is listed before an odd rank that waits") {
  LiteralJob literal;
  const std::string c10d = kTorch + "distributed/distributed_c10d.py";
  for (int r = 0; r < 4; ++r)
    literal.rank(r, 4,
                 r == 1   ? Stack{libc("clock_nanosleep")} + in_main(9)
                 : r == 0 ? Stack{libc("poll"), py("recv", c10d, 3)} + in_main(3)
                          : waits_in_all_reduce());
  const std::string text = text_report(literal.job, analyzers::analyze(literal.job), {});
  REQUIRE(text.find("> 0 (1 rank)  ODD") != std::string::npos);
  CHECK(text.find("> 1 (1 rank)  ODD") < text.find("> 0 (1 rank)  ODD"));
}

namespace {

// Without its line breaks.
std::string flat(const std::string& text) { return std::regex_replace(text, std::regex("\\s+"), " "); }

}  // namespace

TEST_CASE("ranks of a grid are named by their places, whole stages as such") {
  LiteralJob literal;
  for (int r = 0; r < 8; ++r) {
    RankSnapshot& rank = literal.rank(r, 8, r == 5 ? in_getitem() : waits_in_all_reduce(r < 4 ? 17 : 18));
    rank.coordinates =
        Coordinates{"Megatron, from the command line", {{"pp", r / 4}, {"dp", r / 2 % 2}, {"tp", r % 2}}};
  }
  TextOptions options;
  options.width = 200;
  options.all_threads = true;
  const std::string text = text_report(literal.job, analyzers::analyze(literal.job), options);
  CHECK(contains(text, "CULPRIT: rank 5 (pp 1, dp 0, tp 1) is in its data pipeline"));
  CHECK(contains(text, "; coordinates: Megatron, from the command line"));
  CHECK(contains(text, "> 5 (1 rank: pp 1, dp 0, tp 1)  ODD"));
  CHECK(contains(text, "> 0-3 (4 ranks, all ranks of pipeline stage 0)\n"));
  CHECK(contains(text, "> 4,6-7 (3 ranks)\n"));
  CHECK(contains(text, "rank 5  pid 105 on node-a  pp 1, dp 0, tp 1 (Megatron, from the command line)  live"));
}

TEST_CASE("the exception that a thread dies of is shown next to it") {
  LiteralJob literal;
  for (int r = 0; r < 2; ++r) literal.rank(r, 2, waits_in_all_reduce());
  literal
      .thread(literal.job.ranks[1], 900, "pt_nccl_watchdg",
              {libc("abort"), nat("std::terminate()", "/lib/libstdc++.so.6"),
               nat("c10d::ProcessGroupNCCL::Watchdog::run()")})
      .exception = CxxException{"c10::DistBackendError", "Watchdog caught \x1b[31ma timeout\nand more"};
  TextOptions options;
  options.width = 200;
  options.all_threads = true;
  const std::string text = text_report(literal.job, analyzers::analyze(literal.job), options);
  CHECK(contains(flat(text),
                 "the watchdog that ends rank 1 only reports it, with c10::DistBackendError: Watchdog caught "));
  CHECK(contains(text, "terminates with c10::DistBackendError: Watchdog caught "));
  CHECK_FALSE(contains(text, "and more"));
  CHECK_FALSE(contains(text, "\x1b"));
}

TEST_CASE("the exception that a thread handles is shown below its frame, and with its cluster") {
  LiteralJob literal;
  for (int r = 0; r < 4; ++r) {
    ThreadSnapshot& thread = literal.rank(r, 4, r == 2 ? in_getitem() : waits_in_all_reduce()).threads[0];
    if (r == 0) continue;
    const FrameId raised = literal.job.frames.intern(py("step", "/home/u/model.py", 9));
    thread.handles =
        HandledException{"RuntimeError", r == 3 ? "loss is\x1b[31m NaN" : "loss is inf", 4, raised, raised};
  }
  literal.thread(literal.job.ranks[0], 900, "python3", {py("work", "/home/u/train.py", 5)}).handles =
      HandledException{"KeyError", "k", {}, {}, {}};
  TextOptions options;
  options.width = 200;
  options.all_threads = true;
  const std::string text = text_report(literal.job, analyzers::analyze(literal.job), options);
  CHECK(contains(text,
                 "    #4   main  /home/u/train.py:17\n         handles RuntimeError(\"loss is inf\") raised in step at "
                 "model.py:9\n"));
  CHECK(contains(text, "\n         handles RuntimeError(\"loss is\\x1b[31m NaN\") raised in step at model.py:9\n"));
  CHECK(contains(text, "= handles RuntimeError(\"loss is inf\") raised in step at model.py:9\n"));
  CHECK(contains(text, "= 2 of 3 handle RuntimeError raised in step at model.py:9\n"));
  CHECK(contains(text, "  thread 900 \"python3\"  python  cluster 2\n         handles KeyError(\"k\")\n    #0   work"));
  CHECK_FALSE(contains(text, "\x1b"));
  // Of several exceptions it is said whose they are, the rarest first.
  literal.job.ranks[3].threads[0].handles->type = "ValueError";
  RankSnapshot& first = literal.job.ranks[0];
  first.threads[0].handles = literal.job.ranks[1].threads[0].handles;
  CHECK(contains(text_report(literal.job, analyzers::analyze(literal.job), options),
                 "= rank 3 handles ValueError raised in step at model.py:9, ranks 0-1 handle RuntimeError raised in "
                 "step at model.py:9\n"));
}

TEST_CASE("what led to an exception, and its traceback") {
  LiteralJob literal;
  for (int r = 0; r < 3; ++r) literal.rank(r, 3, waits_in_all_reduce());
  const auto place = [&](const char* function, int line) {
    return literal.job.frames.intern(py(function, "/home/u/model.py", line));
  };
  const FrameId load = place("load", 3);
  HandledException exception{"RuntimeError", "batch 7", 4, place("main", 1), place("step", 9)};
  exception.chain = {{ExceptionLink::kCause, "KeyError", "'shard'", load}};
  exception.traceback = {*exception.handler, place("epoch", 5), *exception.raised};
  for (RankSnapshot& rank : literal.job.ranks) rank.threads[0].handles = exception;
  TextOptions options;
  options.width = 200;
  const auto report = [&] { return text_report(literal.job, analyzers::analyze(literal.job), options); };
  CHECK(contains(report(),
                 "= all handle RuntimeError(\"batch 7\") raised in step at model.py:9\n    = raised from "
                 "KeyError raised in load at model.py:3: 'shard'\n"));
  literal.job.ranks[1].threads[0].handles->chain[0].message = "'\x1b[31m'";
  CHECK(contains(report(), "= raised from KeyError raised in load at model.py:3\n"));
  literal.job.ranks[1].threads[0].handles->type = "ValueError";
  CHECK_FALSE(contains(report(), "raised from"));
  for (RankSnapshot& rank : literal.job.ranks) {
    rank.threads[0].handles = exception;
    rank.threads[0].handles->chain.push_back({ExceptionLink::kContext, "OSError", {}});
  }
  CHECK(contains(report(), "= raised after 2 others, the first: OSError\n"));

  options.all_threads = true;
  CHECK(contains(report(),
                 "\n         handles RuntimeError(\"batch 7\") raised in step at model.py:9\n"
                 "           raised from KeyError('shard') raised in load at model.py:3\n"
                 "           raised while OSError was handled\n"
                 "           traceback: main at model.py:1 > epoch at model.py:5 > step at model.py:9\n"));
  ThreadSnapshot& thread = literal.job.ranks[0].threads[0];
  thread.raises = *std::exchange(thread.handles, std::nullopt);
  thread.raises->traceback.assign(30, load);
  thread.raises->traceback_omitted = OmittedFrames{10, 70};
  std::string traceback = "         traceback: load at model.py:3";
  for (int i = 0; i < 3; ++i) traceback += " > load at model.py:3";
  traceback += " > ... 84 more ...";
  for (int i = 0; i < 12; ++i) traceback += " > load at model.py:3";
  CHECK(contains(report(), traceback + "\n"));
}

TEST_CASE("the holder of the Python lock that a thread waits for is shown next to it") {
  LiteralJob literal;
  for (int r = 0; r < 2; ++r) literal.rank(r, 2, waits_in_all_reduce());
  RankSnapshot& rank = literal.job.ranks[1];
  literal.thread(rank, 900, "reporter\x1b[31m", {py("report", "/home/u/train.py", 5)});
  literal.thread(rank, 901, "x", {py("work", "/home/u/train.py", 6)}).python_lock =
      PythonLock{PythonLockKind::kLock, {}, 900};
  literal.thread(rank, 902, "x", {py("work", "/home/u/train.py", 7)}).python_lock =
      PythonLock{PythonLockKind::kModule, "torch\x1b", 999};
  literal.thread(rank, 903, "x", {py("work", "/home/u/train.py", 8)}).joins = 900;
  literal.thread(rank, 904, "x", {py("work", "/home/u/train.py", 9)}).python_lock =
      PythonLock{PythonLockKind::kCondition, {}, {}};
  TextOptions options;
  options.width = 200;
  options.all_threads = true;
  const std::string text = text_report(literal.job, analyzers::analyze(literal.job), options);
  CHECK(contains(
      text, "thread 901 \"x\"  python  cluster 2  waits for a Python lock held by thread 900 (reporter\\x1b[31m)\n"));
  CHECK(contains(text, "  waits for the import of torch\\x1b held by thread 999\n"));
  CHECK(contains(text, "  waits for the end of thread 900\n"));
  CHECK_FALSE(contains(text, "condition"));
  CHECK_FALSE(contains(text, "\x1b"));
}

TEST_CASE("the report says how ranks were compared if only the stacks were known") {
  LiteralJob literal;
  for (int r = 0; r < 4; ++r)
    literal.rank(r, 4,
                 Stack{libc("pthread_cond_wait"), nat("gloo::Context::wait()"),
                       py(r == 2 ? "broadcast" : "all_reduce", kTorch + "distributed/distributed_c10d.py", 3)} +
                     in_main(r == 2 ? 3 : 4));
  CHECK(contains(flat(text_report(literal.job, analyzers::analyze(literal.job), {})),
                 "(confidence 0.65; who should be alike: inferred from the stacks, most of which are alike)"));
}

TEST_CASE("eight hung ranks on one screen") {
  const std::string text = text_of(eight_ranks().job);
  check_one_screen(text);
  CHECK(text == 1 + R"(
CULPRIT: rank 2 is in its data pipeline (__getitem__ at data.py:9, blocked in read(fd 5 ->
  pipe:[123])) while ranks 0-1,3-7 wait in DDP's gradient all-reduce.
  -> look at what this rank reads: its storage, this sample, its loader workers; the others only
     wait for it (confidence 0.95)
8 ranks on 1 host, 41 threads; skew 0.7 ms, longest stop 2.2 ms, 210 ms in all
Main threads: 2 different stacks
  <module>                                    /home/u/project/train.py:84
  main                                        /home/u/project/train.py:80
  > 2 (1 rank)  ODD
      train_one_epoch                         /home/u/project/train.py:38
      __next__                                …/torch/utils/data/dataloader.py:725
      _next_data                              …/torch/utils/data/dataloader.py:785
      fetch                                   …/torch/utils/data/_utils/fetch.py:54
      <listcomp>                              …/torch/utils/data/_utils/fetch.py:54
      __getitem__                             /home/u/project/data.py:9
      . _Py_read                              libpython3.11.so.1.0
      . read                                  libc.so.6
      = blocked in read(fd 5 -> pipe:[123])
  > 0-1,3-7 (7 ranks)
      train_one_epoch                         /home/u/project/train.py:41
      backward                                …/torch/_tensor.py:623
      backward                                …/torch/autograd/__init__.py:395
      _engine_run_backward                    …/torch/autograd/graph.py:1113
      . THPEngine_run_backward(...)           libtorch_python.so
      . torch::autograd::python::PythonEngine::execute(...)  libtorch_python.so
      ... 7 native frames
      . c10d::Reducer::finalize_backward()    libtorch_cpu.so
      . std::condition_variable::wait(...)    libstdc++.so.6
      = blocked in futex
Other threads, by role
  gloo-loop       0-7 (8 ranks)              Loop::run
  gloo-worker     0-7 (8 ranks, 9 threads)   ProcessGroupGloo::runLoop
  gloo-worker     0-1,3-7 (7 ranks)          UnboundBuffer::waitRecv < … < ProcessGroupGloo::runLoop
  tcp-store       0 (1 rank)                 uv_run < LibUVStoreDaemon::run
  openmp          0-7 (8 ranks)              blas_thread_server
)");
}

TEST_CASE("colour changes nothing but colour") {
  const LiteralJob literal = eight_ranks();
  const std::string colored = text_of(literal.job, {.color = true});
  CHECK(contains(colored, "\x1b[1;31mCULPRIT\x1b[0m"));
  CHECK(contains(colored, "\x1b[1;31m> 2 (1 rank)  ODD\x1b[0m"));
  CHECK(std::regex_replace(colored, std::regex("\x1b\\[[0-9;]*m"), "") == text_of(literal.job));
}

TEST_CASE("loader workers and problems still fit, with more folded away") {
  LiteralJob literal = eight_ranks();
  const Stack worker_root = {py("_worker_loop", kTorch + "utils/data/_utils/worker.py", 302),
                             py("_bootstrap", "/usr/lib/python3.11/multiprocessing/process.py", 314),
                             py("<module>", "/home/u/project/train.py", 84)};
  for (Pid parent = 100; parent < 108; ++parent)
    for (int i = 0; i < 2; ++i)
      literal.child(parent,
                    Stack{libc("poll"), py("get", "/usr/lib/python3.11/multiprocessing/queues.py", 113)} + worker_root);
  literal.job.ranks[4].problems.push_back({"tid 5004: vanished while it was being stopped", "run it again"});
  literal.job.ranks[5].problems.push_back({"tid 5004: vanished while it was being stopped", "run it again"});
  const std::string text = text_of(literal.job);
  check_one_screen(text);
  CHECK(contains(text, "8 ranks and 16 child processes on 1 host"));
  CHECK(contains(text,
                 "Child processes: 16\n  data-loader     of 0-7 (16 processes)      get queues.py:113 < _worker_loop "
                 "worker.py:302\n"));
  CHECK(
      contains(text, "Problems\n  ranks 4-5: tid 5004: vanished while it was being stopped\n    hint: run it again\n"));
}

TEST_CASE("many different stacks: the odd ones stay, the rest is counted") {
  LiteralJob literal;
  for (int r = 0; r < 64; ++r)
    literal.rank(r, 64, Stack{libc("read"), py("f" + std::to_string(r), "/home/u/a.py", r)} + in_main(r % 7));
  const std::string text = text_of(literal.job);
  check_one_screen(text);
  CHECK(contains(text, "more stacks of"));
}

TEST_CASE("a branch at which one stack ends") {
  LiteralJob literal;
  literal.rank(0, 2, in_main(17), 'R');
  literal.rank(1, 2, Stack{py("f", "/home/u/train.py", 3)} + in_main(17), 'R');
  CHECK(contains(text_of(literal.job), 1 + R"(
  <module>                                    /home/u/train.py:90
  main                                        /home/u/train.py:17
  > 0 (1 rank)
      = running
  > 1 (1 rank)
      f                                       /home/u/train.py:3
      = running
)"));
}

TEST_CASE("unknown frames, stacks that ended early, GIL and waits") {
  LiteralJob literal;
  RankSnapshot& rank =
      literal.rank(0, 1, {unknown("/x/libfoo.so (deleted)", 0x1234), unknown("", 0x7f0000001234, 0x7f0000001234)});
  rank.threads[0].stack_end = StackEnd::kNoUnwindInfo;
  rank.threads[0].gil = Gil::kWaits;
  rank.threads[0].syscall = call("futex");
  const std::string text = text_of(literal.job);
  CHECK(contains(text, ". libfoo.so+0x1234"));
  CHECK(contains(text, ". 0x7f0000001234"));
  CHECK(contains(text, "= blocked in futex; waits for the GIL; outer frames are missing: no unwind information"));
}

TEST_CASE("failed ranks and ranks without a number are named by host and pid") {
  LiteralJob literal;
  RankSnapshot& failed = literal.process();
  failed.status = Status::kFailed;
  failed.problems.push_back({"pid 100: attach: Operation not permitted", "run as root"});
  RankSnapshot& other = literal.rank(0, 1, in_main(3));
  other.rank.reset();
  other.world_size.reset();
  const std::string text = text_of(literal.job);
  CHECK(contains(text, "2 ranks on 1 host, 1 thread, 1 could not be read"));
  CHECK(contains(text, "> node-a:101 (1 rank)"));
  CHECK(contains(text, "  rank node-a:100: pid 100: attach: Operation not permitted\n    hint: run as root\n"));
}

TEST_CASE("every thread in full") {
  LiteralJob literal = eight_ranks();
  literal.child(102, {libc("poll")});
  RankSnapshot& rank = literal.job.ranks[2];
  rank.threads[0].kernel_place = KernelPlace{"", {"pipe_read+0x1"}};
  rank.threads[0].omitted = OmittedFrames{1, 19000};
  rank.threads[0].state = 'D';
  TextOptions options;
  options.ranks = {"2"};
  const std::string text = text_of(literal.job, options);
  const std::string full = text.substr(text.find("\n\n") + 2);
  CHECK(contains(full, "rank 2  pid 102 on node-a  live  Python 3.11.2\n"));
  CHECK(contains(full,
                 "  thread 102 \"python3\"  main  cluster 0 (odd)  D  blocked in read(fd 5 -> pipe:[123])\n"
                 "    #0   0x0000000000000000 read  /usr/lib/x86_64-linux-gnu/libc.so.6\n"
                 "    ... 19000 frames left out here\n"
                 "    #1   0x0000000000000000 _Py_read  /usr/lib/libpython3.11.so.1.0\n"));
  CHECK(contains(full, "    #4   __getitem__  /home/u/project/data.py:9\n"));
  CHECK(contains(full, "libc.so.6+0x2724a  /usr/lib/x86_64-linux-gnu/libc.so.6+0x2724a\n"));
  CHECK(contains(full, "    in the kernel:\n      pipe_read+0x1\n"));
  CHECK(contains(full, "child node-a:108 of pid 102  live"));
  CHECK_FALSE(contains(full, "rank 3"));

  options.ranks = {"104"};  // a pid
  CHECK(contains(text_of(literal.job, options), "\nrank 4  pid 104"));
  options.ranks = {"node-a:105"};
  CHECK(contains(text_of(literal.job, options), "\nrank 5  pid 105"));
  options.ranks.clear();
  options.all_threads = true;
  for (int r = 0; r < 8; ++r) CHECK(contains(text_of(literal.job, options), "\nrank " + std::to_string(r) + "  pid"));
}

TEST_CASE("a host that is not known is not counted") {
  LiteralJob literal;
  literal.rank(0, 2, in_main(3));
  literal.rank(1, 2, in_main(3)).host = "unknown";
  CHECK(contains(text_of(literal.job), "2 ranks on 1 host, "));
  literal.job.ranks[0].host = "unknown";
  CHECK(contains(text_of(literal.job), "2 ranks on an unknown host, "));
}

TEST_CASE("nothing hostile reaches the terminal, wherever it is in the report") {
  const std::string evil = "\x1b[31m\n\x9b\xe2\x80\xae\xff\x07";
  LiteralJob literal;
  for (int r = 0; r < 4; ++r) {
    Frame frame = py(evil, "/home/" + evil, 3);
    frame.qualname = evil;
    Frame native = nat(evil, "/lib/" + evil);
    native.file = evil;
    RankSnapshot& rank = literal.rank(
        r, 4, r == 2 ? Stack{native, frame, unknown("/x/" + evil, 3)} + in_getitem() : waits_in_all_reduce());
    rank.host = evil;
    if (r == 3) rank.rank.reset();
    rank.path = evil;
    rank.python_version = evil;
    rank.command = {evil};
    rank.problems.push_back({evil, evil});
    rank.signal = SignalInfo{11, evil, rank.pid, 1, 0x10};
    rank.signal->place = FaultPlace{FaultRegion::kMapped, false, FaultMapping{evil, evil, 1}, {}, {}};
    rank.abort_message = evil;
    rank.threads[0].name = evil;
    rank.threads[0].handles = HandledException{evil, evil, {}, {}, {}};
    rank.threads[0].handles->chain = {{ExceptionLink::kCause, evil, evil}};
    rank.threads[0].kernel_place = KernelPlace{evil, {evil}};
    rank.threads[0].syscall = call(evil, 3, evil);
    literal.thread(rank, 50 + r, evil, {native, frame});
  }
  literal.child(102, {nat(evil)}).host = evil;
  TextOptions options;
  options.all_threads = true;
  const std::string text = text_of(literal.job, options);
  for (const char c : text) CHECK((c == '\n' || static_cast<unsigned char>(c) >= 0x20));
  CHECK_FALSE(contains(text, "\xe2\x80\xae"));
  CHECK_FALSE(contains(text, "\xff"));
  CHECK_FALSE(contains(text, "\n\\x9b"));  // the newline inside of the name was escaped
  CHECK(contains(text, "\\x1b[31m\\n\\x9b\\u202e\\xff\\x07"));
}

TEST_CASE("paths and names longer than the line") {
  LiteralJob literal;
  const std::string deep = "/home/u/" + std::string(120, 'd') + "/sub/train.py";
  literal.rank(0, 1,
               {py(std::string(150, 'f'), deep, 7), py("short", deep, 8),
                py("short", "/home/u/" + std::string(150, 'x') + ".py", 9)});
  const std::string text = text_of(literal.job);
  check_one_screen(text);
  CHECK(contains(text, "…/sub/train.py:8"));
  CHECK(contains(text, "xxx.py:9"));
}

TEST_CASE("narrow widths do not break") {
  const LiteralJob literal = eight_ranks();
  for (const int width : {0, 40, 60, 250}) CHECK_FALSE(text_of(literal.job, {.width = width}).empty());
}

TEST_CASE("nothing at all") {
  CHECK(text_of(JobSnapshot{}) == "UNDECIDED: there is no rank to look at.\n0 ranks on 0 hosts, 0 threads\n");
}

TEST_CASE("versions and what differs stand below the verdict, and nothing of a job of which nothing is known") {
  LiteralJob literal;
  for (int r = 0; r < 4; ++r) literal.rank(r, 4, waits_in_all_reduce());
  const auto text = [&] { return text_report(literal.job, analyzers::analyze(literal.job), {}); };
  CHECK(text().find("versions:") == std::string::npos);
  for (int r = 0; r < 4; ++r) {
    RankSnapshot& rank = literal.job.ranks[r];
    rank.modules = {{"torch", "/v/libtorch_cpu.so", "", "2.11.0", VersionFrom::kMetadata, ""}};
    ProcessEnvironment& environment = rank.environment.emplace();
    environment.kernel = "6.8.0";
    environment.variables_known = true;
    for (int n = 0; n < 8 && r == 2; ++n)
      environment.variables.emplace_back("NCCL_X" + std::to_string(n), "\x1b[31m" + std::to_string(n));
  }
  const std::string shown = text();
  CHECK(shown.find("\nversions: torch 2.11.0, Python 3.11.2; Linux 6.8.0\n"
                   "differs: NCCL_X0=\\x1b[31m0 on rank 2, not set on the 3 others\n") != std::string::npos);
  CHECK(shown.find("\ndiffers: ... and 2 more differences in the JSON report\n") != std::string::npos);
  CHECK(shown.find('\x1b') == std::string::npos);
}

TEST_CASE("what NCCL says of its communicators stands below the totals, of many communicators the first") {
  LiteralJob literal;
  for (int r = 0; r < 2; ++r) literal.rank(r, 2, waits_in_all_reduce());
  literal.job.nccl = NcclStatus{.version = "2.28.9"};
  NcclCommunicator one{.hash = "0x1", .size = 2};
  for (int r = 0; r < 2; ++r) {
    const RankSnapshot& rank = literal.job.ranks[static_cast<std::size_t>(r)];
    one.members.push_back({.rank = r, .process = NcclMember::Process{rank.host, rank.pid}});
  }
  const auto text = [&] { return text_report(literal.job, analyzers::analyze(literal.job), {}); };
  literal.job.nccl->communicators = {one};
  CHECK(text().find("NCCL:") == std::string::npos);
  one.members[1].async_error = 3;
  literal.job.nccl->communicators = {one};
  const std::string line = "\nNCCL: communicator of ranks 0-1: ncclInternalError at rank 1 (an error within NCCL)\n";
  CHECK(text().find(line) != std::string::npos);
  literal.job.nccl->communicators = std::vector<NcclCommunicator>(6, one);
  CHECK(text().find(line + line.substr(1) + line.substr(1) + line.substr(1) +
                    "NCCL: ... and 2 more in the JSON report\n") != std::string::npos);
}
