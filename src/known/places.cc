#include "known/places.h"

#include <algorithm>
#include <iterator>

#include "base/text.h"
#include "known/known_programs.h"

namespace rankstacks::known {
namespace {

using M = FileMatch;
using P = Place;

// clang-format off
constexpr PlaceRule kRules[] = {
    {P::kWait, "wait", M::kSuffix, "/threading.py", "cpython Lib/threading.py: Condition, Event, Barrier"},
    {P::kWait, "wait_for", M::kSuffix, "/threading.py", "cpython Lib/threading.py: Condition"},
    {P::kWait, "acquire", M::kSuffix, "/threading.py", "cpython Lib/threading.py: Semaphore, _RLock"},
    {P::kWait, "__enter__", M::kSuffix, "/threading.py", "cpython Lib/threading.py: Condition"},
    {P::kWait, "get", M::kSuffix, "/queue.py", "cpython Lib/queue.py"},
    {P::kWait, "select", M::kSuffix, "/selectors.py", "cpython Lib/selectors.py"},
    {P::kWait, "wait", M::kSuffix, "multiprocessing/connection.py", "cpython Lib/multiprocessing/connection.py"},
    {P::kWait, "_poll", M::kSuffix, "multiprocessing/connection.py", "cpython Lib/multiprocessing/connection.py"},
    {P::kWait, "poll", M::kSuffix, "multiprocessing/connection.py", "cpython Lib/multiprocessing/connection.py"},
    {P::kWait, "accept", M::kSuffix, "multiprocessing/connection.py", "cpython Lib/multiprocessing/connection.py: Listener"},
    {P::kWait, "recv", M::kSuffix, "multiprocessing/connection.py", "cpython Lib/multiprocessing/connection.py"},
    {P::kWait, "recv_bytes", M::kSuffix, "multiprocessing/connection.py", "cpython Lib/multiprocessing/connection.py"},
    {P::kWait, "_recv_bytes", M::kSuffix, "multiprocessing/connection.py", "cpython Lib/multiprocessing/connection.py"},
    {P::kWait, "_recv", M::kSuffix, "multiprocessing/connection.py", "cpython Lib/multiprocessing/connection.py"},
    {P::kWait, "get", M::kSuffix, "multiprocessing/queues.py", "cpython Lib/multiprocessing/queues.py"},
    {P::kWait, "accept", M::kSuffix, "/socket.py", "cpython Lib/socket.py"},
    {P::kWait, "__enter__", M::kSuffix, "multiprocessing/synchronize.py", "cpython Lib/multiprocessing/synchronize.py: SemLock"},
    {P::kWait, "acquire", M::kSuffix, "multiprocessing/synchronize.py", "cpython Lib/multiprocessing/synchronize.py: SemLock"},
    {P::kWait, "poll", M::kContains, "/zmq/", "pyzmq sugar/poll.py, sugar/socket.py"},
    {P::kWait, "recv", M::kContains, "/zmq/", "pyzmq sugar/socket.py"},
    {P::kWait, "recv_multipart", M::kContains, "/zmq/", "pyzmq sugar/socket.py"},
    {P::kWait, "recv_pyobj", M::kContains, "/zmq/", "pyzmq sugar/socket.py"},

    {P::kLock, "wait", M::kSuffix, "/threading.py", "cpython Lib/threading.py: Condition, Event, Barrier"},
    {P::kLock, "acquire", M::kSuffix, "/threading.py", "cpython Lib/threading.py: Semaphore, _RLock"},
    {P::kLock, "__enter__", M::kSuffix, "/threading.py", "cpython Lib/threading.py: Condition"},
    {P::kLock, "join", M::kSuffix, "/threading.py", "cpython Lib/threading.py: Thread, 3.13-"},
    {P::kLock, "_wait_for_tstate_lock", M::kSuffix, "/threading.py", "cpython Lib/threading.py: Thread.join, 3.2-3.12"},
    {P::kLock, "get", M::kSuffix, "/queue.py", "cpython Lib/queue.py"},
    {P::kLock, "put", M::kSuffix, "/queue.py", "cpython Lib/queue.py"},
    {P::kLock, "join", M::kSuffix, "/queue.py", "cpython Lib/queue.py"},
    {P::kLock, "wait", M::kContains, "concurrent/futures/", "cpython Lib/concurrent/futures/_base.py"},
    {P::kLock, "result", M::kContains, "concurrent/futures/", "cpython Lib/concurrent/futures/_base.py: Future"},
    {P::kLock, "__enter__", M::kContains, "concurrent/futures/", "cpython Lib/concurrent/futures/_base.py: _AcquireFutures"},
    {P::kLock, "wait", M::kSuffix, "multiprocessing/synchronize.py", "cpython Lib/multiprocessing/synchronize.py: Condition, Event"},
    {P::kLock, "acquire", M::kSuffix, "multiprocessing/synchronize.py", "cpython Lib/multiprocessing/synchronize.py: SemLock"},
    {P::kLock, "__enter__", M::kSuffix, "multiprocessing/synchronize.py", "cpython Lib/multiprocessing/synchronize.py: SemLock"},

    {P::kUnlock, "__exit__", M::kSuffix, "/threading.py", "cpython Lib/threading.py: Condition, Semaphore"},
    {P::kUnlock, "release", M::kSuffix, "/threading.py", "cpython Lib/threading.py: Semaphore, _RLock"},
    {P::kUnlock, "_release_save", M::kSuffix, "/threading.py", "cpython Lib/threading.py: Condition, _RLock"},
    {P::kUnlock, "__exit__", M::kSuffix, "multiprocessing/synchronize.py", "cpython Lib/multiprocessing/synchronize.py: SemLock, Condition"},

    {P::kTask, "join", M::kSuffix, "/threading.py", "cpython Lib/threading.py: Thread"},
    {P::kTask, "_wait_for_tstate_lock", M::kSuffix, "/threading.py", "cpython Lib/threading.py: Thread.join, 3.2-3.12"},
    {P::kTask, "", M::kContains, "concurrent/futures/", "cpython Lib/concurrent/futures"},
    {P::kTask, "", M::kSuffix, "multiprocessing/pool.py", "cpython Lib/multiprocessing/pool.py"},
    {P::kTask, "", M::kSuffix, "joblib/parallel.py", "joblib parallel.py: Parallel, 1.3-"},

    {P::kQueue, "", M::kSuffix, "/queue.py", "cpython Lib/queue.py"},
    {P::kQueueGet, "get", M::kSuffix, "/queue.py", "cpython Lib/queue.py: Queue"},
    {P::kQueuePut, "put", M::kSuffix, "/queue.py", "cpython Lib/queue.py: Queue"},
    {P::kQueueJoin, "join", M::kSuffix, "/queue.py", "cpython Lib/queue.py: Queue"},
    {P::kThreading, "", M::kSuffix, "/threading.py", "cpython Lib/threading.py"},
    {P::kThreadingWait, "wait", M::kSuffix, "/threading.py", "cpython Lib/threading.py: Condition; Event, Barrier around it"},
    {P::kThreadingBarrier, "_wait", M::kSuffix, "/threading.py", "cpython Lib/threading.py: Barrier, until the others have come"},
    {P::kThreadingBarrier, "_enter", M::kSuffix, "/threading.py", "cpython Lib/threading.py: Barrier, until those before have left"},
    {P::kThreadingAcquire, "acquire", M::kSuffix, "/threading.py", "cpython Lib/threading.py: Semaphore, _RLock"},
    {P::kThreadingJoin, "join", M::kSuffix, "/threading.py", "cpython Lib/threading.py: Thread, 3.13-"},
    {P::kThreadingJoin, "_wait_for_tstate_lock", M::kSuffix, "/threading.py", "cpython Lib/threading.py: Thread.join, 3.2-3.12"},
    {P::kPool, "", M::kSuffix, "multiprocessing/pool.py", "cpython Lib/multiprocessing/pool.py"},
    {P::kPool, "", M::kSuffix, "joblib/parallel.py", "joblib parallel.py: Parallel, 1.3-"},
    {P::kFutures, "", M::kContains, "concurrent/futures/", "cpython Lib/concurrent/futures"},
    {P::kChildOutput, "communicate", M::kSuffix, "/subprocess.py", "cpython Lib/subprocess.py: Popen"},
    {P::kChildOutput, "_communicate", M::kSuffix, "/subprocess.py", "cpython Lib/subprocess.py: Popen"},
    {P::kImport, "", M::kSuffix, "<frozen importlib._bootstrap>", "cpython Lib/importlib/_bootstrap.py"},
    {P::kImportWait, "acquire", M::kSuffix, "<frozen importlib._bootstrap>", "cpython Lib/importlib/_bootstrap.py: _ModuleLock"},
    {P::kImportWait, "_lock_unlock_module", M::kSuffix, "<frozen importlib._bootstrap>", "cpython Lib/importlib/_bootstrap.py"},
    {P::kProcessQueue, "", M::kSuffix, "multiprocessing/queues.py", "cpython Lib/multiprocessing/queues.py"},
    {P::kProcessQueueWait, "get", M::kSuffix, "multiprocessing/queues.py", "cpython Lib/multiprocessing/queues.py: Queue, SimpleQueue"},
    {P::kProcessQueueWait, "put", M::kSuffix, "multiprocessing/queues.py", "cpython Lib/multiprocessing/queues.py: Queue, SimpleQueue"},
    {P::kProcessPipe, "", M::kSuffix, "multiprocessing/connection.py", "cpython Lib/multiprocessing/connection.py"},
    {P::kProcessLock, "", M::kSuffix, "multiprocessing/synchronize.py", "cpython Lib/multiprocessing/synchronize.py"},

    {P::kEventLoop, "_run_once", M::kSuffix, "asyncio/base_events.py", "cpython Lib/asyncio/base_events.py"},
    {P::kLoopChild, "_do_waitpid", M::kSuffix, "asyncio/unix_events.py", "cpython Lib/asyncio/unix_events.py: ThreadedChildWatcher"},
    {P::kServerLoop, "_run_once", M::kSuffix, "asyncio/base_events.py", "cpython Lib/asyncio/base_events.py"},
    {P::kServerLoop, "serve_forever", M::kSuffix, "/socketserver.py", "cpython Lib/socketserver.py"},
    {P::kServerLoop, "_worker", M::kSuffix, "concurrent/futures/thread.py", "cpython Lib/concurrent/futures/thread.py"},
    {P::kLoopWait, "", M::kSuffix, "/selectors.py", "cpython Lib/selectors.py"},
    {P::kLoopWait, "accept", M::kSuffix, "/socket.py", "cpython Lib/socket.py"},

    {P::kThreadStart, "_bootstrap", M::kSuffix, "/threading.py", "cpython Lib/threading.py: Thread"},
    {P::kThreadStart, "_bootstrap_inner", M::kSuffix, "/threading.py", "cpython Lib/threading.py: Thread"},
    {P::kThreadStart, "run", M::kSuffix, "/threading.py", "cpython Lib/threading.py: Thread"},
    {P::kThreadStart, "_bootstrap", M::kSuffix, "multiprocessing/process.py", "cpython Lib/multiprocessing/process.py: BaseProcess"},
    {P::kThreadStart, "run", M::kSuffix, "multiprocessing/process.py", "cpython Lib/multiprocessing/process.py: BaseProcess"},
    {P::kThreadEntry, "", M::kSuffix, "/threading.py", "cpython Lib/threading.py"},
    {P::kThreadEntry, "", M::kSuffix, "concurrent/futures/thread.py", "cpython Lib/concurrent/futures/thread.py"},
    {P::kProcessStart, "_bootstrap", M::kSuffix, "multiprocessing/process.py", "cpython Lib/multiprocessing/process.py: BaseProcess"},
    {P::kPoolWorker, "", M::kSuffix, "multiprocessing/pool.py", "cpython Lib/multiprocessing/pool.py"},
    {P::kPoolWorker, "", M::kSuffix, "concurrent/futures/process.py", "cpython Lib/concurrent/futures/process.py"},
    {P::kPoolWorker, "", M::kSuffix, "loky/process_executor.py", "loky process_executor.py, also in joblib"},
    {P::kPoolLoop, "worker", M::kSuffix, "multiprocessing/pool.py", "cpython Lib/multiprocessing/pool.py"},
    {P::kPoolTask, "run", M::kSuffix, "concurrent/futures/thread.py", "cpython Lib/concurrent/futures/thread.py: _WorkItem"},
    {P::kNoWork, "", M::kContains, "/multiprocessing/", "cpython Lib/multiprocessing: a worker without work, a helper"},
    {P::kNoWork, "", M::kContains, "/loky/", "loky process_executor.py, backend/: a worker without work, a helper"},
    {P::kNoWork, "", M::kSuffix, "/threading.py", "cpython Lib/threading.py"},
    {P::kNoWork, "", M::kSuffix, "/selectors.py", "cpython Lib/selectors.py: a server between two requests"},

    {P::kOperation, "", M::kContains, "torch/distributed/", "pytorch torch/distributed"},
    {P::kOperation, "", M::kSuffix, "deepspeed/utils/nvtx.py", "deepspeed utils/nvtx.py: around most functions of ZeRO-3"},
    {P::kC10d, "", M::kSuffix, "torch/distributed/distributed_c10d.py", "pytorch distributed_c10d.py"},
    {P::kRemoteCalls, "", M::kContains, "torch/distributed/rpc/", "pytorch distributed/rpc"},
    {P::kRemoteCall, "_run_function", M::kContains, "torch/distributed/rpc/", "pytorch distributed/rpc/internal.py"},
    {P::kLoaderLoop, "_worker_loop", M::kSuffix, "torch/utils/data/_utils/worker.py", "pytorch utils/data/_utils/worker.py"},
    {P::kLoaderLoop, "_worker_loop", M::kSuffix, "paddle/io/dataloader/worker.py", "paddle io/dataloader/worker.py"},
    {P::kLoaderWork, "", M::kSuffix, "torch/utils/data/_utils/fetch.py", "pytorch utils/data/_utils/fetch.py"},
    {P::kLoaderWork, "", M::kSuffix, "paddle/io/dataloader/fetcher.py", "paddle io/dataloader/fetcher.py"},
    {P::kLoaderWork, "", M::kSuffix, "torch/utils/data/_utils/collate.py", "pytorch utils/data/_utils/collate.py"},
};
// clang-format on

bool is_of_file(const PlaceRule& rule, std::string_view file) {
  return rule.match == FileMatch::kSuffix ? file.ends_with(rule.file) : contains(file, rule.file);
}

}  // namespace

std::span<const PlaceRule> built_in_places() { return kRules; }

bool is_place(Place place, std::string_view function, std::string_view file) {
  const auto rules = known_places(place);
  return std::any_of(rules.begin(), rules.end(), [&](const PlaceRule& rule) {
    return (rule.what.empty() || rule.what == function) && is_of_file(rule, file);
  });
}

bool is_file_of(Place place, std::string_view file) {
  const auto rules = known_places(place);
  return std::any_of(rules.begin(), rules.end(), [&](const PlaceRule& rule) { return is_of_file(rule, file); });
}

}  // namespace rankstacks::known
