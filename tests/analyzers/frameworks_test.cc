// Jobs of frameworks that the tables know by name: servers, Ray, DeepSpeed, Megatron-LM, JAX, Horovod.
#include <catch2/catch.hpp>

#include "analyzers/analysis.h"
#include "analyzers/roles.h"
#include "support/odd_rank.h"

using namespace rankstacks;
using namespace rankstacks::analyzers;
using namespace rankstacks::testing;

namespace {

const std::string kPython = "/usr/lib/python3.11/";

Stack sleeps_in(const std::string& function) { return {libc("clock_nanosleep"), py(function, "/home/u/model.py", 7)}; }

// vLLM 0.8 to 0.12, as its workers show it: acquire_read is a generator of contextlib's.
const Stack kBusyLoop = {py("worker_busy_loop", kPackages + "vllm/v1/executor/multiproc_executor.py", 650),
                         py("worker_main", kPackages + "vllm/v1/executor/multiproc_executor.py", 600)};
const Stack kAcquireRead = {
    libc("sched_yield"), py("sched_yield", kPackages + "vllm/distributed/utils.py", 40),
    py("acquire_read", kPackages + "vllm/distributed/device_communicators/shm_broadcast.py", 460),
    py("__enter__", kPython + "contextlib.py", 137),
    py("dequeue", kPackages + "vllm/distributed/device_communicators/shm_broadcast.py", 500)};
const Stack kIdleWorker = kAcquireRead + kBusyLoop;
const Stack kEngineLoop = {py("run_busy_loop", kPackages + "vllm/v1/engine/core.py", 720),
                           py("run_engine_core", kPackages + "vllm/v1/engine/core.py", 690)};
const Stack kIdleEngine =
    Stack{libc("sem_wait"), py("wait", kPython + "threading.py", 320), py("get", kPython + "queue.py", 171),
          py("_process_input_queue", kPackages + "vllm/v1/engine/core.py", 735)} +
    kEngineLoop;
const Stack kWaitingEngine = kAcquireRead +
                             Stack{py("get_response", kPackages + "vllm/v1/executor/multiproc_executor.py", 250),
                                   py("collective_rpc", kPackages + "vllm/v1/executor/multiproc_executor.py", 280),
                                   py("execute_model", kPackages + "vllm/v1/executor/multiproc_executor.py", 190)} +
                             kEngineLoop;

// Workers with these stacks, and the engine.
LiteralJob server(const std::vector<Stack>& workers, const Stack& engine) {
  LiteralJob literal;
  for (std::size_t r = 0; r < workers.size(); ++r)
    literal.rank(static_cast<int>(r), static_cast<int>(workers.size()), workers[r]).command = {"VLLM::Worker_TP" +
                                                                                               std::to_string(r)};
  RankSnapshot& director = literal.process();
  director.python_version = "3.11.2";
  director.command = {"VLLM::EngineCore"};
  literal.thread(director, director.pid, "VLLM::EngineCor", engine).state = 'S';
  return literal;
}

// "culprit 1 user-code", "healthy"
std::string verdict_text(LiteralJob& literal) {
  const Verdict v = verdict_of(literal);
  std::string text(to_string(v.status));
  for (const Suspect& s : v.suspects)
    text += " " + rank_label(literal.job.ranks[s.rank]) + " " + std::string(to_string(s.reason));
  return text;
}

}  // namespace

TEST_CASE("vLLM: idle, a worker that is stuck, an engine that is stuck") {
  LiteralJob idle = server({kIdleWorker, kIdleWorker, kIdleWorker}, kIdleEngine);
  CHECK(verdict_text(idle) == "healthy");
  LiteralJob worker = server({kIdleWorker, sleeps_in("forward") + kBusyLoop, kIdleWorker}, kWaitingEngine);
  CHECK(verdict_text(worker) == "culprit 1 user-code");
  LiteralJob engine = server({kIdleWorker, kIdleWorker, kIdleWorker}, sleeps_in("schedule") + kEngineLoop);
  CHECK(verdict_text(engine) == "culprit node-a:103 user-code");
  // The engine alone waits for work; the workers' ranks are the only ones that were given.
  LiteralJob alone = server({kIdleWorker, sleeps_in("forward") + kBusyLoop, kIdleWorker}, kIdleEngine);
  alone.job.ranks.pop_back();
  CHECK(verdict_text(alone) == "culprit 1 user-code");
  // The workers wait for work, and the engine for their answers: neither is idle.
  LiteralJob lost = server({kIdleWorker, kIdleWorker}, kWaitingEngine);
  CHECK(verdict_of(lost).status != VerdictStatus::kHealthy);
}

TEST_CASE("servers' own watchdogs only report what hangs") {
  const std::string executor = kPackages + "vllm/v1/executor/multiproc_executor.py";
  // execute_model took longer than VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS: the engine ends, and waits for its workers' end.
  LiteralJob engine = server({waits_in_all_reduce() + kBusyLoop, sleeps_in("forward") + kBusyLoop},
                             Stack{libc("clock_nanosleep"), py("wait_for_termination", executor, 420),
                                   py("_ensure_worker_termination", executor, 430), py("shutdown", executor, 460),
                                   py("shutdown", kPackages + "vllm/v1/engine/core.py", 560),
                                   py("run_engine_core", kPackages + "vllm/v1/engine/core.py", 700)});
  engine.job.ranks.back().threads[0].handles =
      HandledException{"TimeoutError", "RPC call to execute_model timed out.", 5, {}, {}};
  engine.job.ranks.back().threads[0].handles->chain = {{ExceptionLink::kCause, "TimeoutError", {}}};
  CHECK(verdict_text(engine) == "culprit 1 user-code");

  // watchdog_timeout: py-spy looks at all schedulers, and the server is ended.
  const std::string file = kPackages + "sglang/srt/managers/scheduler.py";
  const Stack loop = {py("event_loop_overlap", file, 800), py("run_scheduler_process", file, 2300)};
  LiteralJob schedulers;
  schedulers.rank(0, 2, waits_in_all_reduce() + Stack{py("run_batch", file, 1500)} + loop);
  schedulers.rank(1, 2, sleeps_in("forward") + Stack{py("run_batch", file, 1500)} + loop);
  for (RankSnapshot& rank : schedulers.job.ranks)
    schedulers.thread(
        rank, rank.pid + 7, "python3",
        {libc("poll"), py("communicate", kPython + "subprocess.py", 1209), py("run", kPython + "subprocess.py", 550),
         py("pyspy_dump_schedulers", kPackages + "sglang/srt/utils/common.py", 2000),
         py("_watchdog_once", kPackages + "sglang/srt/utils/watchdog.py", 160),
         py("_watchdog_thread", kPackages + "sglang/srt/utils/watchdog.py", 130)});
  CHECK(verdict_text(schedulers) == "culprit 1 user-code");
}

TEST_CASE("SGLang: the first scheduler asks for requests, the others wait for what it sends") {
  const std::string file = kPackages + "sglang/srt/managers/scheduler.py";
  const Stack loop = {py("event_loop_overlap", file, 800), py("run_scheduler_process", file, 2300)};
  const Stack receives =
      Stack{libc("pthread_cond_wait"), nat("c10d::ProcessGroupGloo::AsyncWork::wait()"),
            py("broadcast", kPackages + "torch/distributed/distributed_c10d.py", 2000),
            py("broadcast_pyobj", kPackages + "sglang/srt/utils.py", 900), py("recv_requests", file, 900)} +
      loop;
  LiteralJob literal;
  literal.rank(
      0, 3,
      Stack{libc("poll"), py("recv_pyobj", kPackages + "zmq/sugar/socket.py", 980), py("recv_requests", file, 880)} +
          loop);
  literal.rank(1, 3, receives);
  literal.rank(2, 3, receives);
  CHECK(verdict_text(literal) == "healthy");
  LiteralJob stuck;
  stuck.rank(0, 2, sleeps_in("forward") + Stack{py("run_batch", file, 1500)} + loop);
  stuck.rank(1, 2, receives);
  CHECK(verdict_text(stuck) == "culprit 0 user-code");
}

TEST_CASE("TensorFlow: the thread of the collective shows what the main thread waits for") {
  const std::string cc = kPackages + "tensorflow/libtensorflow_cc.so.2";
  const Stack waits = {libc("syscall"), nat("absl::Notification::WaitForNotification() const", cc),
                       nat("tensorflow::ProcessFunctionLibraryRuntime::RunSync(tensorflow::Options const&) const", cc),
                       py("quick_execute", kPackages + "tensorflow/python/eager/execute.py", 53),
                       py("fit", "/home/u/train.py", 42)};
  const Stack reduces = {libc("syscall"), nat("tensorflow::RingAlg::PCQueue::Dequeue()", cc),
                         nat("tensorflow::RingReducer::RunAsyncParts()", cc),
                         nat("tensorflow::BaseCollectiveExecutor::ExecuteAsync(tensorflow::OpKernelContext*)", cc),
                         nat("tsl::UnboundedWorkQueue::PooledThreadFunc()", cc)};
  LiteralJob literal;
  for (int r = 0; r < 3; ++r) {
    RankSnapshot& rank = literal.rank(r, 3, r == 1 ? sleeps_in("log_metrics") : waits);
    if (r != 1) literal.thread(rank, rank.pid + 7, "collective_ops", reduces);
  }
  CHECK(verdict_text(literal) == "culprit 1 user-code");
  CHECK(verdict_of(literal).summary.find("TensorFlow's all-reduce") != std::string::npos);
  // A parameter server waits for requests, and for its end.
  LiteralJob server;
  for (int r = 0; r < 2; ++r)
    server.rank(r, 2,
                {libc("__pthread_clockjoin_ex"), nat("tensorflow::GrpcServer::Join()", cc), nat("TF_ServerJoin", cc),
                 py("join", kPackages + "tensorflow/python/training/server_lib.py", 185)});
  CHECK(verdict_text(server) == "healthy");
}

TEST_CASE("torch.distributed.rpc: a future is the answer of another rank") {
  const std::string api = kPackages + "torch/distributed/rpc/api.py";
  const Stack future = {libc("pthread_cond_wait"), nat("torch::jit::PythonFutureWrapper::wait()"),
                        py("<module>", "/home/u/train.py", 15)};
  const Stack leaves = {libc("sem_wait"), py("wait", kPython + "threading.py", 327), py("_all_gather", api, 257),
                        py("shutdown", api, 382), py("<module>", "/home/u/train.py", 16)};
  const Stack serves = Stack{libc("read"), py("grads", "/home/u/train.py", 7)} +
                       Stack{py("_run_function", kPackages + "torch/distributed/rpc/internal.py", 209)};
  const Stack polls = {libc("pthread_cond_timedwait"),
                       nat("torch::distributed::rpc::TensorPipeAgent::pollTimeoutRpcs()")};
  LiteralJob literal;
  for (int r = 0; r < 4; ++r) {
    RankSnapshot& rank = literal.rank(r, 4, r == 0 ? future : leaves);
    literal.thread(rank, rank.pid + 7, "python3", polls);
    if (r == 2) literal.thread(rank, rank.pid + 8, "pt_thread_pool", serves);
  }
  const Verdict v = verdict_of(literal);
  REQUIRE(v.suspects.size() == 1);
  CHECK(literal.job.ranks[v.suspects[0].rank].rank == 2);
  // Without RPC such a future is one of the process's own, and the others wait for this rank.
  LiteralJob own;
  for (int r = 0; r < 4; ++r) own.rank(r, 4, r == 0 ? future : waits_in_all_reduce());
  CHECK(verdict_text(own).starts_with("culprit 0"));
}

TEST_CASE("Ray: a driver waits for its actors, actors for tasks") {
  const Stack main_loop = {py("main_loop", kPackages + "ray/_private/worker.py", 879),
                           py("<module>", kPackages + "ray/_private/workers/default_worker.py", 297)};
  const Stack waits =
      Stack{libc("pthread_cond_wait"), py("get_objects", kPackages + "ray/_private/worker.py", 770),
            py("get", kPackages + "ray/_private/worker.py", 2600),
            py("wrapper", kPackages + "ray/_private/client_mode_hook.py", 103), py("main", "/home/u/driver.py", 30)};
  LiteralJob literal;
  for (int r = 0; r < 3; ++r) {
    RankSnapshot& process = literal.process();
    process.python_version = "3.11.2";
    literal
        .thread(process, process.pid, "ray",
                r == 0   ? waits
                : r == 1 ? sleeps_in("augment") + main_loop
                         : waits_in_all_reduce() + main_loop)
        .state = 'S';
  }
  CHECK(verdict_text(literal) == "culprit node-a:101 user-code");
  LiteralJob idle;
  for (int r = 0; r < 3; ++r) idle.rank(r, 3, Stack{libc("pthread_cond_wait")} + main_loop);
  CHECK(verdict_text(idle) == "healthy");
}

TEST_CASE("waits of DeepSpeed, Megatron-LM, Horovod, JAX and Orbax") {
  const auto says = [](const Stack& stack) {
    LiteralJob literal;
    for (int r = 0; r < 3; ++r) literal.rank(r, 3, (r == 1 ? sleeps_in("augment") : stack) + in_main(17));
    const Verdict v = verdict_of(literal);
    return verdict_text(literal) + ": " + v.summary.substr(v.summary.rfind(" in ") + 4);
  };
  const Stack on_gpu = {libc("sched_yield"), nat("cudaStreamSynchronize", "/x/libcudart.so.12")};
  CHECK(says(on_gpu +
             Stack{py("fetch_sub_module", kPackages + "deepspeed/runtime/zero/partitioned_param_coordinator.py", 290),
                   py("pre_sub_module_forward_function", kPackages + "deepspeed/runtime/zero/parameter_offload.py",
                      470)}) == "culprit 1 user-code: ZeRO-3's all-gather of parameters");
  CHECK(says(Stack{libc("pthread_cond_wait"), nat("c10d::Work::wait(std::chrono::duration<long>)"),
                   py("_communicate", kPackages + "megatron/core/pipeline_parallel/p2p_communication.py", 330),
                   py("recv_forward", kPackages + "megatron/core/pipeline_parallel/p2p_communication.py", 400)}) ==
        "culprit 1 user-code: recv_forward");
  CHECK(says(Stack{libc("pthread_cond_wait"), unknown("/x/horovod/torch/mpi_lib_v2.so", 0x100),
                   py("synchronize", kPackages + "horovod/torch/mpi_ops.py", 1200)}) ==
        "culprit 1 user-code: a Horovod collective");
  CHECK(says(Stack{libc("pthread_cond_wait"), unknown("/x/jaxlib/libjax_common.so", 0x100),
                   py("sync_global_devices", kPackages + "jax/experimental/multihost_utils.py", 90)}) ==
        "culprit 1 user-code: sync_global_devices");
  CHECK(says(Stack{libc("pthread_cond_wait"), unknown("/x/jaxlib/libjax_common.so", 0x100),
                   py("sync_global_processes", kPackages + "orbax/checkpoint/_src/multihost/multihost.py", 200),
                   py("save", kPackages + "orbax/checkpoint/checkpoint_manager.py", 900)}) ==
        "culprit 1 user-code: sync_global_processes");
}

TEST_CASE("Orbax: main threads wait for the end of a checkpoint, whose threads wait for each other") {
  const std::string orbax = kPackages + "orbax/checkpoint/";
  const Stack joins = {libc("sem_wait"), py("_wait_for_tstate_lock", kPython + "threading.py", 1139),
                       py("join", kPython + "threading.py", 1119)};
  const Stack thread_begins = {py("run", kPython + "threading.py", 982),
                               py("_bootstrap_inner", kPython + "threading.py", 1045)};
  const auto job = [&](bool rank_1_writes) {
    LiteralJob literal;
    for (int r = 0; r < 3; ++r) {
      RankSnapshot& rank = literal.rank(
          r, 3, joins + Stack{py("wait_until_finished", orbax + "checkpoint_manager.py", 2096)} + in_main(30));
      const Tid finalizes = rank.pid + 10, commits = rank.pid + 20;
      rank.threads[0].joins = finalizes;
      literal
          .thread(rank, finalizes, "finalize",
                  joins +
                      Stack{py("wait_until_finished", orbax + "_src/checkpointers/async_checkpointer.py", 313),
                            py("_finalize", orbax + "checkpoint_manager.py", 2191)} +
                      thread_begins)
          .joins = commits;
      const std::string file = orbax + "_src/checkpointers/async_checkpointer.py";
      literal.thread(rank, commits, "async_save",
                     (r == 1 && rank_1_writes
                          ? Stack{libc("write"), py("write_statistics", "/home/u/train.py", 35)}
                          : Stack{libc("syscall"),
                                  nat("xla::DistributedRuntimeCoordinationServiceClient::WaitAtBarrier(std::string)",
                                      "/x/jaxlib.so"),
                                  py("_fn", orbax + "_src/multihost/multihost.py", 309)}) +
                         Stack{py("_background_wait_for_commit_futures", file, 119), py("_thread_func", file, 239)} +
                         thread_begins);
    }
    return literal;
  };
  LiteralJob one = job(true);
  CHECK(verdict_text(one) == "culprit 1 checkpoint-io");
  CHECK(verdict_of(one).summary.find("the coordination service's barrier") != std::string::npos);
  LiteralJob all = job(false);
  CHECK(verdict_text(all) == "symmetric");
}

TEST_CASE("Grain: the main thread of a loader's worker waits for threads that read") {
  const std::string grain = kPackages + "grain/_src/python/dataset/transformations/";
  const Stack worker_begins = {py("_put_dataset_elements_in_buffer", grain + "process_prefetch.py", 250),
                               py("run", kPython + "multiprocessing/process.py", 108)};
  const Stack reads = {libc("clock_nanosleep"), py("__getitem__", "<dynamic-code>", 9),
                       py("_getitem", grain + "prefetch.py", 91),
                       py("run", kPython + "concurrent/futures/thread.py", 58),
                       py("_worker", kPython + "concurrent/futures/thread.py", 83)};
  LiteralJob literal =
      one_differs(Stack{libc("sem_wait"), py("wait", kPython + "threading.py", 327),
                        py("get", kPython + "queue.py", 171), py("__next__", grain + "prefetch.py", 635)} +
                  in_main(15));
  RankSnapshot& worker = literal.child(102, Stack{libc("sem_wait"), py("wait", kPython + "threading.py", 327),
                                                  py("result", kPython + "concurrent/futures/_base.py", 451),
                                                  py("__next__", grain + "prefetch.py", 264)} +
                                                worker_begins);
  literal.thread(worker, worker.pid + 50, "python3", reads);
  literal.thread(worker, worker.pid + 51, "python3", reads);
  for (RankSnapshot& rank : literal.job.ranks)
    for (ThreadSnapshot& thread : rank.threads) thread.motion = Motion{.samples = 3, .places = 1, .span_ms = 900};
  CHECK(verdict_text(literal) == "culprit 2 data-loading");
  CHECK(verdict_of(literal).summary.find("its loader worker, pid 104, is in __getitem__ at <dynamic-code>:9") !=
        std::string::npos);
  // The other reader comes to the next element.
  literal.job.ranks[4].threads[2].motion->counted = true;
  CHECK(verdict_of(literal).status == VerdictStatus::kHealthy);
}
