#include <catch2/catch.hpp>

#include "analyzers/analysis.h"
#include "analyzers/roles.h"
#include "support/literal_job.h"

using namespace rankstacks;
using namespace rankstacks::analyzers;
using namespace rankstacks::testing;

namespace {

// The role of a thread that is not main.
std::string role_of(const Stack& stack, const std::string& name = "python3") {
  LiteralJob literal;
  RankSnapshot& rank = literal.rank(0, 1, in_main(1));
  literal.thread(rank, 999, name, stack);
  return known::to_string(assign_roles(literal.job)[0][1]);
}

std::string child_role(const Stack& stack) {
  LiteralJob literal;
  literal.child(1, stack);
  return known::to_string(assign_roles(literal.job)[0][0]);
}

// Whether a thread with this stack, in the role that it has, is idle.
std::string idle_role(const Stack& stack, std::optional<std::string> syscall = {}) {
  LiteralJob literal;
  RankSnapshot& rank = literal.rank(0, 1, in_main(1));
  ThreadSnapshot& thread = literal.thread(rank, 999, "python3", stack);
  if (syscall) thread.syscall = call(*syscall);
  const known::Role role = assign_roles(literal.job)[0][1];
  return std::string(is_idle(literal.job, literal.job.ranks[0].threads[1], role) ? "idle " : "busy ") +
         known::to_string(role);
}

const Stack kThreadStart = {unknown("/lib/libstdc++.so.6", 0xd44a3), libc("start_thread"), libc("clone3")};

}  // namespace

TEST_CASE("roles by frames") {
  const Stack wait = {libc("pthread_cond_clockwait")};
  auto native = [&](const char* function) { return role_of(wait + Stack{nat(function)} + kThreadStart); };
  CHECK(native("c10d::ProcessGroupNCCL::Watchdog::runLoop()") == "nccl-watchdog");
  CHECK(native("c10d::ProcessGroupNCCL::ncclCommWatchdog()") == "nccl-watchdog");
  CHECK(native("c10d::ProcessGroupNCCL::workCleanupLoop()") == "nccl-watchdog");
  CHECK(native("c10d::ProcessGroupNCCL::HeartbeatMonitor::runLoop()") == "nccl-heartbeat");
  CHECK(native("c10d::ProcessGroupNCCL::heartbeatMonitor()") == "nccl-heartbeat");
  CHECK(native("c10d::ProcessGroupNCCL::runHookLoop()") == "nccl-monitor");
  CHECK(native("ncclProxyProgress(void*)") == "nccl-proxy");
  CHECK(native("ncclProxyService(void*)") == "nccl-service");
  CHECK(native("ncclProxyServiceUDS(void*)") == "nccl-service");
  CHECK(native("persistentSocketThread(void*)") == "nccl-service");
  CHECK(native("rasThreadMain(void*)") == "nccl-ras");
  CHECK(native("gloo::transport::tcp::Loop::run()") == "gloo-loop");
  CHECK(native("c10d::ProcessGroupGloo::runLoop(int)") == "gloo-worker");
  CHECK(native("c10d::detail::TCPStoreMasterDaemon::run()") == "tcp-store");
  CHECK(native("c10d::detail::LibUVStoreDaemon::run()") == "tcp-store");
  CHECK(native("c10::ThreadPool::main_loop(unsigned long)") == "idle-pool");
  CHECK(native("blas_thread_server") == "openmp");
  CHECK(native("grpc_core::ThreadPool::Loop()") == "grpc");
  CHECK(native("some_function") == "native");
  CHECK(role_of({libc("futex_wait"), unknown("/usr/lib/libgomp.so.1", 0x1d2a2),
                 unknown("/usr/lib/libgomp.so.1", 0x1a00), libc("start_thread"), libc("clone3")}) == "openmp");
  CHECK(role_of({libc("poll"), unknown("/usr/lib/libcuda.so.1", 0x100), libc("start_thread"), libc("clone3")}) ==
        "cuda");
  // gloo's own queue wait is inside the worker's loop, under a collective too
  CHECK(role_of(wait +
                Stack{nat("gloo::transport::tcp::UnboundBuffer::waitRecv(int*)"),
                      nat("c10d::ProcessGroupGloo::runLoop(int)")} +
                kThreadStart) == "gloo-worker");
}

TEST_CASE("the engine's own threads are autograd, the caller of backward is not") {
  CHECK(role_of({libc("pthread_cond_wait"), nat("torch::autograd::ReadyQueue::pop()"),
                 nat("torch::autograd::Engine::thread_main(int)"), nat("torch::autograd::Engine::thread_init(int)")}) ==
        "autograd");
  CHECK(role_of({libc("pthread_cond_wait"), nat("torch::autograd::Engine::thread_main(int)"),
                 nat("torch::autograd::Engine::execute(int)"), py("backward", "/x/torch/_tensor.py", 1),
                 nat("thread_run", "/usr/bin/python3.11")}) == "python");
}

TEST_CASE("roles of Python threads") {
  const Stack start = {py("run", "/usr/lib/python3.11/threading.py", 975),
                       py("_bootstrap", "/usr/lib/python3.11/threading.py", 995), unknown("/usr/bin/python3.11", 0x1)};
  CHECK(role_of(Stack{libc("poll"), py("_pin_memory_loop", kPackages + "torch/utils/data/_utils/pin_memory.py", 50)} +
                start) == "data-loader");
  CHECK(role_of(Stack{libc("write"), py("save", kPackages + "torch/distributed/checkpoint/state_dict_saver.py", 50)} +
                start) == "checkpoint");
  CHECK(role_of(Stack{libc("sem_wait"), py("_worker", "/usr/lib/python3.11/concurrent/futures/thread.py", 81)} +
                start) == "idle-pool");
  CHECK(role_of(Stack{libc("read"), py("fetch", "/home/u/x.py", 8),
                      py("run", "/usr/lib/python3.11/concurrent/futures/thread.py", 58),
                      py("_worker", "/usr/lib/python3.11/concurrent/futures/thread.py", 83)} +
                start) == "python");
  CHECK(role_of(Stack{libc("read"), py("_pin_memory_loop", "/home/u/mine.py", 1)} + start) == "python");
}

TEST_CASE("names count only if frames show nothing, and an inherited name means nothing") {
  CHECK(role_of({libc("poll")}, "pt_nccl_watchdg") == "nccl-watchdog");
  CHECK(role_of({libc("poll")}, "NCCL Progress 1") == "nccl-proxy");
  CHECK(role_of({libc("poll")}, "cuda-EvtHandlr") == "cuda");
  CHECK(role_of({libc("poll"), nat("c10d::ProcessGroupGloo::runLoop(int)")}, "pt_nccl_watchdg") == "gloo-worker");
  CHECK(role_of({libc("poll")}, "pt_main_thread") == "native");
  LiteralJob literal;
  RankSnapshot& rank = literal.rank(0, 1, in_main(1));
  rank.threads[0].name = "pt_autograd_0";  // main took it over; its threads inherit it
  literal.thread(rank, 999, "pt_autograd_0", {libc("poll")});
  const auto roles = assign_roles(literal.job);
  CHECK(roles[0][0] == known::Role::kMain);
  CHECK(roles[0][1] == known::Role::kNative);
}

TEST_CASE("main is the thread whose id is the process's, whatever its frames; a loader worker's is data-loader") {
  CHECK(child_role({libc("poll"), py("_worker_loop", kPackages + "torch/utils/data/_utils/worker.py", 269)}) ==
        "data-loader");
  CHECK(child_role({libc("read"), py("main", kPackages + "torch/_inductor/compile_worker/__main__.py", 50)}) ==
        "jit-compile");
  CHECK(child_role(in_main(3)) == "main");
  LiteralJob literal;
  literal.rank(0, 1, Stack{libc("poll"), nat("c10d::ProcessGroupGloo::runLoop(int)")});
  CHECK(assign_roles(literal.job)[0][0] == known::Role::kMain);
}

TEST_CASE("roles of other runtimes' threads, by frames") {
  const Stack wait = {libc("pthread_cond_wait")};
  auto native = [&](const char* function, const char* module = "/x/lib.so") {
    return role_of(wait + Stack{nat(function, module)} + kThreadStart);
  };
  CHECK(native("c10d::ProcessGroupMPI::runLoop()") == "mpi");
  CHECK(native("c10d::Watchdog::Impl::run()") == "nccl-monitor");
  CHECK(native("torch::distributed::autograd::DistEngine::globalCpuThread(std::shared_ptr<int> const&)") == "autograd");
  CHECK(native("torch::distributed::rpc::TensorPipeAgent::pollTimeoutRpcs()") == "rpc");
  CHECK(native("tensorpipe::EpollLoop::loop()") == "rpc");
  CHECK(native("std::thread::_State_impl<std::thread::_Invoker<std::tuple<void (tensorpipe::EpollLoop::*)(), "
               "tensorpipe::EpollLoop*> > >::_M_run()") == "rpc");
  CHECK(native("c10d::control_plane::WorkerServer::WorkerServer(std::string const&, int)::{lambda()#1}::operator()() "
               "const") == "rpc");
  CHECK(native("ncclGinProgress(ncclGinState*)") == "nccl-proxy");
  CHECK(native("ncclRmaProxyProgressThread(ncclRmaProxyState*)") == "nccl-proxy");
  CHECK(native("ncclIbPortRecoveryAsyncThreadMain()") == "nccl-service");
  CHECK(native("ncclAsyncJobMain(void*)") == "nccl-service");
  CHECK(native("bootstrapRoot(void*)") == "nccl-service");
  CHECK(native("nvshmemi_proxy_progress(void*)") == "nccl-proxy");
  CHECK(native("ucs_async_thread_func") == "mpi");
  CHECK(native("horovod::common::(anonymous namespace)::BackgroundThreadLoop(horovod::common::HorovodGlobalState&)") ==
        "mpi");
  CHECK(native("tsl::(anonymous namespace)::PThread::ThreadFn(void*)") == "xla");
  CHECK(native("Eigen::ThreadPoolTempl<onnxruntime::Env>::WorkerLoop(int)") == "idle-pool");
  CHECK(native("zmq::thread_routine(void*)") == "rpc");
  CHECK(native("ray::core::CoreWorker::RunIOService()") == "rpc");
  CHECK(native("deepspeed_aio_thread_t::run()") == "checkpoint");
  CHECK(native("tbb::detail::r1::rml::private_worker::thread_routine(void*)") == "openmp");
  // Without symbols
  auto stripped = [&](const char* module) {
    return role_of(
        {libc("poll"), unknown(module, 0x1000), unknown(module, 0x2000), libc("start_thread"), libc("clone3")});
  };
  CHECK(stripped("/usr/lib/libnccl.so.2") == "nccl-service");
  CHECK(stripped("/usr/lib/libpmix.so.2") == "mpi");
  CHECK(stripped("/usr/lib/libopen-pal.so.40") == "mpi");
  CHECK(stripped("/usr/lib/libucs.so.0") == "mpi");
  CHECK(stripped("/usr/lib/libfabric.so.1") == "mpi");
  CHECK(stripped("/x/numpy.libs/libscipy_openblas64_-6.so") == "openmp");
  CHECK(stripped("/x/ray/_raylet.so") == "rpc");
  CHECK(stripped("/x/jax_plugins/xla_cuda12/xla_cuda_plugin.so") == "xla");
  CHECK(stripped("/x/tensorflow/libtensorflow_framework.so.2") == "xla");
  CHECK(stripped("/x/libmine.so") == "native");
}

TEST_CASE("the store's daemon of a torch without symbols: it polls right in its thread's function") {
  const Stack own = {unknown("/usr/lib/x86_64-linux-gnu/libtorch_cpu.so.1.13.0", 0x5000)};
  CHECK(idle_role(Stack{libc("poll")} + own + kThreadStart) == "idle tcp-store");
  CHECK(idle_role(Stack{libc("pthread_cond_wait")} + own + kThreadStart) == "busy native");
  CHECK(idle_role(Stack{libc("poll")} + own + own + kThreadStart) == "busy native");
  CHECK(idle_role(Stack{libc("poll"), nat("f()"), unknown(kTorchCpu, 0x5000)} + kThreadStart) == "busy native");
}

TEST_CASE("an MPI call of a thread of the user's own is not MPI's thread") {
  CHECK(role_of({libc("poll"), unknown("/usr/lib/libopen-pal.so.40", 0x10), nat("PMPI_Recv", "/usr/lib/libmpi.so.40"),
                 nat("receiver(void*)", "/home/u/app"), libc("start_thread"), libc("clone3")}) == "native");
}

TEST_CASE("the role of a runtime's thread that runs Python is known from its Python frames") {
  const Stack task = {libc("read"), py("answer", "/home/u/serve.py", 4)};
  CHECK(role_of(task + Stack{nat("c10::ThreadPool::main_loop(unsigned long)")} + kThreadStart) == "python");
  CHECK(role_of(task + Stack{unknown("/usr/lib/libcuda.so.1", 0x100)} + kThreadStart) == "python");
  CHECK(role_of(task + Stack{unknown("/x/ray/_raylet.so", 0x100)} + kThreadStart) == "python");
}

TEST_CASE("roles of other Python threads: by what they were started for, not by what they call") {
  const Stack start = {py("run", "/usr/lib/python3.11/threading.py", 975),
                       py("_bootstrap", "/usr/lib/python3.11/threading.py", 995), unknown("/usr/bin/python3.11", 0x1)};
  const Stack wait = {libc("sem_clockwait"), py("wait", "/usr/lib/python3.11/threading.py", 331)};
  auto started = [&](const char* function, const std::string& file) {
    return role_of(wait + Stack{py(function, file, 10)} + start);
  };
  CHECK(started("run", kPackages + "tqdm/_monitor.py") == "logging");
  CHECK(started("_run", kPackages + "tensorboard/summary/writer/event_file_writer.py") == "logging");
  const Stack timed = {libc("__futex_abstimed_wait_common"), nat("PyThread_acquire_lock_timed")};
  CHECK(role_of(timed + Stack{nat("faulthandler_thread"), nat("pythread_wrapper")}) == "faulthandler");
  CHECK(started("message_loop", kPackages + "wandb/sdk/interface/router.py") == "logging");
  CHECK(started("_watchdog_loop", kPackages + "torch/distributed/elastic/timer/file_based_local_timer.py") ==
        "elastic");
  CHECK(started("_run", kPackages + "torch/distributed/elastic/rendezvous/utils.py") == "elastic");
  CHECK(started("_run_loop", kPackages + "torch/distributed/_watchdog.py") == "nccl-monitor");
  CHECK(started("process_input_sockets", kPackages + "vllm/v1/engine/core.py") == "rpc");
  CHECK(started("_read_thread", kPackages + "torch/_inductor/compile_worker/subproc_pool.py") == "jit-compile");
  CHECK(started("_feed", "/usr/lib/python3.11/multiprocessing/queues.py") == "idle-pool");
  CHECK(started("_handle_workers", "/usr/lib/python3.11/multiprocessing/pool.py") == "idle-pool");
  CHECK(role_of(Stack{libc("write"), py("_send", "/usr/lib/python3.11/multiprocessing/connection.py", 384),
                      py("_feed", "/usr/lib/python3.11/multiprocessing/queues.py", 270)} +
                start) == "python");
  CHECK(role_of(wait + Stack{py("log", kPackages + "wandb/sdk/wandb_run.py", 10), py("report", "/home/u/train.py", 3)} +
                start) == "python");
  CHECK(role_of(wait +
                Stack{py("tail_logfile", kPackages + "torch/distributed/elastic/multiprocessing/tail_log.py", 40),
                      py("run", "/usr/lib/python3.11/concurrent/futures/thread.py", 58),
                      py("_worker", "/usr/lib/python3.11/concurrent/futures/thread.py", 83)} +
                start) == "elastic");
}

TEST_CASE("threads of a process that nobody knows and that wait alike are a pool; one with work is not") {
  LiteralJob literal;
  RankSnapshot& rank = literal.rank(0, 1, in_main(1));
  const Stack loop = Stack{nat("fw::Pool::loop()", "/opt/fw/libfw.so")} + kThreadStart;
  for (Tid tid = 1001; tid <= 1003; ++tid) literal.thread(rank, tid, "fw", Stack{libc("pthread_cond_wait")} + loop);
  literal.thread(rank, 1004, "fw", Stack{libc("sched_yield"), nat("cudaEventQuery", "/opt/fw/libfw.so")} + loop);
  for (Tid tid = 1005; tid <= 1007; ++tid)
    literal.thread(rank, tid, "fw",
                   Stack{libc("pthread_cond_wait"), nat("MPI_Allreduce", "/usr/lib/libmpi.so.40"),
                         nat("fw::reduce()", "/opt/fw/libfw.so")} +
                       loop);
  for (Tid tid = 1008; tid <= 1009; ++tid)
    literal.thread(rank, tid, "fw",
                   Stack{libc("pthread_cond_wait"), nat("fw::pair()", "/opt/fw/libfw.so")} + kThreadStart);
  for (Tid tid = 1010; tid <= 1012; ++tid)
    literal.thread(rank, tid, "fw",
                   Stack{libc("pthread_mutex_lock"), nat("fw::Pool::take()", "/opt/fw/libfw.so")} + kThreadStart);
  const auto roles = assign_roles(literal.job)[0];
  for (std::size_t t = 1; t <= 3; ++t)
    CHECK((roles[t] == known::Role::kIdlePool && is_idle(literal.job, literal.job.ranks[0].threads[t], roles[t])));
  for (std::size_t t = 4; t <= 12; ++t)
    CHECK((roles[t] == known::Role::kNative && !is_idle(literal.job, literal.job.ranks[0].threads[t], roles[t])));
}

TEST_CASE("idle: a thread without work, in its role's way to wait") {
  auto in = [&](const char* call, Stack own) { return idle_role(Stack{libc(call)} + own + kThreadStart); };
  CHECK(in("pthread_cond_clockwait", {nat("c10d::ProcessGroupNCCL::Watchdog::runLoop()"),
                                      nat("c10d::ProcessGroupNCCL::Watchdog::run()")}) == "idle nccl-watchdog");
  CHECK(in("pthread_cond_timedwait", {nat("c10d::ProcessGroupNCCL::workCleanupLoop()")}) == "idle nccl-watchdog");
  CHECK(in("clock_nanosleep", {nat("c10d::ProcessGroupNCCL::Watchdog::runLoop()")}) == "busy nccl-watchdog");
  CHECK(in("pthread_cond_wait", {nat("ncclCommAbort"), nat("c10d::NCCLComm::abort()"),
                                 nat("c10d::ProcessGroupNCCL::Watchdog::runLoop()")}) == "busy nccl-watchdog");
  CHECK(
      idle_role(Stack{libc("raise"), libc("abort"), unknown("/lib/libstdc++.so.6", 0xa0),
                      nat("std::terminate()", "/lib/libstdc++.so.6"), nat("c10d::ProcessGroupNCCL::Watchdog::run()")} +
                kThreadStart) == "busy nccl-watchdog");
  CHECK(in("pthread_cond_clockwait", {nat("c10d::ProcessGroupNCCL::HeartbeatMonitor::runLoop()")}) ==
        "idle nccl-heartbeat");
  CHECK(in("pthread_cond_wait", {nat("ncclProxyGetPostedOps(ncclProxyState*, int*)"),
                                 nat("ncclProxyProgress(void*)")}) == "idle nccl-proxy");
  CHECK(in("sched_yield", {nat("ncclProxyProgress(void*)")}) == "busy nccl-proxy");
  CHECK(in("poll", {nat("ncclProxyService(void*)")}) == "idle nccl-service");
  CHECK(in("accept", {nat("ncclSocketAccept(ncclSocket*, ncclSocket*)"), nat("bootstrapRoot(void*)")}) ==
        "busy nccl-service");
  CHECK(in("poll", {nat("rasThreadMain(void*)")}) == "idle nccl-ras");
  CHECK(in("epoll_wait", {nat("gloo::transport::tcp::Loop::run()")}) == "idle gloo-loop");
  CHECK(in("recv", {nat("gloo::transport::tcp::Pair::read()"), nat("gloo::transport::tcp::Loop::run()")}) ==
        "busy gloo-loop");
  CHECK(in("pthread_cond_wait", {nat("c10d::ProcessGroupGloo::runLoop(int)")}) == "idle gloo-worker");
  CHECK(in("pthread_cond_wait", {nat("gloo::transport::tcp::UnboundBuffer::waitRecv(int*)"),
                                 nat("c10d::ProcessGroupGloo::runLoop(int)")}) == "busy gloo-worker");
  CHECK(in("epoll_pwait", {nat("uv__io_poll"), nat("uv_run"), nat("c10d::detail::LibUVStoreDaemon::run()")}) ==
        "idle tcp-store");
  CHECK(in("poll", {nat("c10d::detail::TCPStoreMasterDaemon::run()")}) == "idle tcp-store");
  CHECK(in("pthread_cond_wait",
           {nat("std::condition_variable::wait(std::unique_lock<std::mutex>&)", "/lib/libstdc++.so.6"),
            nat("torch::autograd::ReadyQueue::pop()"), nat("torch::autograd::Engine::thread_main(int)"),
            nat("torch::autograd::Engine::thread_init(int)")}) == "idle autograd");
  CHECK(in("pthread_cond_wait", {nat("c10d::Work::wait()"), nat("torch::autograd::Engine::thread_main(int)"),
                                 nat("torch::autograd::Engine::thread_init(int)")}) == "busy autograd");
  CHECK(in("pthread_cond_wait", {nat("c10::ThreadPool::main_loop(unsigned long)")}) == "idle idle-pool");
  CHECK(in("pthread_cond_wait", {nat("work()", "/x/libmine.so"), nat("c10::ThreadPool::main_loop(unsigned long)")}) ==
        "busy idle-pool");
  CHECK(in("pthread_cond_wait",
           {nat("std::_Function_handler<void (), work()::{lambda()#1}>::_M_invoke(std::_Any_data const&)"),
            nat("c10::ThreadPool::main_loop(unsigned long)")}) == "busy idle-pool");
  CHECK(in("pthread_mutex_lock", {nat("c10::ThreadPool::main_loop(unsigned long)")}) == "busy idle-pool");
  CHECK(in("pthread_cond_wait", {nat("blas_thread_server")}) == "idle openmp");
  CHECK(idle_role(Stack{unknown("/usr/lib/libgomp.so.1", 0x1d2), unknown("/usr/lib/libgomp.so.1", 0x1a0)} +
                  kThreadStart) == "idle openmp");
  CHECK(idle_role(Stack{unknown("/usr/lib/libgomp.so.1", 0x1d2), nat("solve(int) [clone ._omp_fn.0]", "/x/libmine.so"),
                        unknown("/usr/lib/libgomp.so.1", 0x1a0)} +
                  kThreadStart) == "busy openmp");
  CHECK(in("poll", {unknown("/usr/lib/libcuda.so.1", 0x100), unknown("/usr/lib/libcuda.so.1", 0x200)}) == "idle cuda");
  CHECK(in("poll", {nat("callback(void*)", "/x/libmine.so"), unknown("/usr/lib/libcuda.so.1", 0x200)}) == "busy cuda");
  CHECK(in("epoll_wait", {nat("epoll_dispatch", "/usr/lib/libevent_core-2.1.so.7"),
                          nat("event_base_loop", "/usr/lib/libevent_core-2.1.so.7"),
                          unknown("/usr/lib/libpmix.so.2", 0x100)}) == "idle mpi");
  CHECK(in("epoll_wait", {nat("ucs_event_set_wait", "/usr/lib/libucs.so.0"), unknown("/usr/lib/libucs.so.0", 0x100)}) ==
        "idle mpi");
  CHECK(in("pthread_cond_wait", {nat("Eigen::ThreadPoolTempl<tsl::thread::EigenEnvironment>::WaitForWork(int*, int*)"),
                                 nat("tsl::(anonymous namespace)::PThread::ThreadFn(void*)")}) == "idle xla");
  CHECK(in("syscall", {nat("absl::lts_20230802::synchronization_internal::FutexWaiter::Wait()"),
                       nat("xla::Rendezvous()"), nat("tsl::(anonymous namespace)::PThread::ThreadFn(void*)")}) ==
        "busy xla");
  CHECK(in("pthread_cond_wait", {nat("some_function")}) == "busy native");
}

TEST_CASE("idle: if the C library has no symbols, the system call shows it") {
  const Stack stack = Stack{unknown(kLibc, 0x85f16), nat("c10d::ProcessGroupNCCL::Watchdog::runLoop()")} + kThreadStart;
  CHECK(idle_role(stack, "futex") == "idle nccl-watchdog");
  CHECK(idle_role(stack, "clock_nanosleep") == "busy nccl-watchdog");
  CHECK(idle_role(stack) == "busy nccl-watchdog");
  CHECK(idle_role(Stack{unknown(kLibc, 0x85f16), libc("pthread_mutex_lock"),
                        nat("c10d::ProcessGroupNCCL::Watchdog::runLoop()")} +
                      kThreadStart,
                  "futex") == "busy nccl-watchdog");
}

TEST_CASE(
    "idle: Python threads that wait for an item; not those that hold or want the interpreter, are stopped, or run the "
    "user's code") {
  const Stack get = {libc("poll"),
                     unknown("/usr/bin/python3.11", 0x9),
                     py("select", "/usr/lib/python3.11/selectors.py", 415),
                     py("wait", "/usr/lib/python3.11/multiprocessing/connection.py", 947),
                     py("_poll", "/usr/lib/python3.11/multiprocessing/connection.py", 440),
                     py("poll", "/usr/lib/python3.11/multiprocessing/connection.py", 257),
                     py("get", "/usr/lib/python3.11/multiprocessing/queues.py", 113)};
  const Stack loop = {py("_worker_loop", kPackages + "torch/utils/data/_utils/worker.py", 269)};
  LiteralJob literal;
  auto worker = [&](const Stack& stack) -> ThreadSnapshot& { return literal.child(100, stack).threads[0]; };
  CHECK(is_idle(literal.job, worker(get + loop), known::Role::kDataLoader));
  CHECK(!is_idle(literal.job, worker(get + loop), known::Role::kMain));
  CHECK(!is_idle(literal.job, worker(get + Stack{py("__getitem__", "/home/u/data.py", 9)} + loop),
                 known::Role::kDataLoader));
  CHECK(!is_idle(literal.job, worker(Stack{libc("write")} + loop), known::Role::kDataLoader));
  ThreadSnapshot& wants = worker(get + loop);
  wants.gil = Gil::kWaits;
  CHECK(!is_idle(literal.job, wants, known::Role::kDataLoader));
  ThreadSnapshot& stopped = worker(get + loop);
  stopped.state = 'T';
  CHECK(!is_idle(literal.job, stopped, known::Role::kDataLoader));
  const Stack wait = {libc("sem_clockwait"), unknown("/usr/bin/python3.11", 0x9),
                      py("wait", "/usr/lib/python3.11/threading.py", 331)};
  CHECK(idle_role(wait + Stack{py("run", kPackages + "tqdm/_monitor.py", 60)}) == "idle logging");
  CHECK(idle_role(Stack{libc("__futex_abstimed_wait_common"), nat("PyThread_acquire_lock_timed"),
                        nat("faulthandler_thread"), nat("pythread_wrapper")}) == "idle faulthandler");
  CHECK(idle_role(wait + Stack{py("_feed", "/usr/lib/python3.11/multiprocessing/queues.py", 231)}) == "idle idle-pool");
  CHECK(idle_role(Stack{libc("sem_wait"), py("_worker", "/usr/lib/python3.11/concurrent/futures/thread.py", 81)}) ==
        "idle idle-pool");
  CHECK(idle_role(wait + Stack{py("do_one_step", kPackages + "torch/utils/data/_utils/pin_memory.py", 31),
                               py("_pin_memory_loop", kPackages + "torch/utils/data/_utils/pin_memory.py", 55)}) ==
        "idle data-loader");
  CHECK(idle_role(wait + Stack{py("work", "/home/u/train.py", 3)}) == "busy python");
  // A core has no system calls, and libc's inner functions have no names.
  CHECK(idle_role(Stack{unknown(kLibc, 0x8), unknown(kLibc, 0x9),
                        nat("PyThread_acquire_lock_timed", "/usr/bin/python3.11"),
                        py("_worker", "/usr/lib/python3.11/concurrent/futures/thread.py", 81)}) == "idle idle-pool");
}
