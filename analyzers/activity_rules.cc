#include "analyzers/activity_rules.h"

#include <string>

#include "analyzers/names.h"

namespace rankstacks {
namespace {

using A = Activity;
using C = Collective;
using K = OperationKind;
using M = ActivityMatch;

constexpr NamedOperation kTeardown{.kind = K::kTeardown};   // CPython: Modules/atexitmodule.c, Python/pylifecycle.c; glibc: stdlib/exit.c

// Order matters within one frame only: the first that holds. PyTorch names are from 1.13 to 2.15.
constexpr ActivityRule kRules[] = {
    // The rendezvous store. torch/csrc/distributed/c10d: TCPStore.cpp, PrefixStore.cpp, FileStore.cpp, HashStore.cpp, socket.cpp
    {M::kNative, "c10d::TCPStore::", "", A::kStoreWait, {"TCPStore", "the rendezvous store (TCPStore)"}},
    {M::kNative, "c10d::PrefixStore::", "", A::kStoreWait, {"Store", "the rendezvous store"}},
    {M::kNative, "c10d::FileStore::", "", A::kStoreWait, {"FileStore", "the rendezvous store (FileStore)"}},
    {M::kNative, "c10d::HashStore::", "", A::kStoreWait, {"Store", "the rendezvous store"}},
    {M::kNative, "c10d::Store::", "", A::kStoreWait, {"Store", "the rendezvous store"}},
    {M::kNative, "GlooStore::", "", A::kStoreWait, {"Store", "the rendezvous store"}},
    {M::kNative, "c10d::detail::TCPClient", "", A::kStoreWait, {"TCPStore", "the rendezvous store (TCPStore)"}},
    {M::kNative, "c10d::detail::Socket", "", A::kStoreWait, {"TCPStore", "the rendezvous store (TCPStore)"}},
    {M::kNative, "c10d::ProcessGroupNCCL::broadcastUniqueNCCLID", "", A::kStoreWait, {"broadcastUniqueNCCLID", "the exchange of NCCL's id"}},
    {M::kPython, "_store_based_barrier", "torch/distributed/distributed_c10d.py", A::kStoreWait, {"_store_based_barrier", "the store's barrier"}},
    {M::kPythonFile, "", "torch/distributed/rendezvous.py", A::kStoreWait, {"rendezvous", "rendezvous"}},
    {M::kPythonFile, "", "torch/distributed/elastic/rendezvous/", A::kStoreWait, {"rendezvous", "rendezvous"}},
    {M::kPythonFile, "", "torch/distributed/elastic/utils/store.py", A::kStoreWait, {"Store", "the rendezvous store"}},
    {M::kPython, "init_process_group", "torch/distributed/distributed_c10d.py", A::kStoreWait},
    {M::kPython, "new_group", "torch/distributed/distributed_c10d.py", A::kStoreWait},
    {M::kPython, "_new_process_group_helper", "torch/distributed/distributed_c10d.py", A::kStoreWait, {"new_group"}},

    // Teardown while others may still run: pytorch/pytorch#122358
    {M::kPython, "destroy_process_group", "torch/distributed/distributed_c10d.py", A::kException},
    {M::kPython, "_abort_process_group", "torch/distributed/distributed_c10d.py", A::kException},
    {M::kNative, "c10d::ProcessGroupNCCL::~ProcessGroupNCCL", "", A::kException},
    {M::kNative, "c10d::ProcessGroupNCCL::abort", "", A::kException},
    {M::kNative, "c10d::ProcessGroupNCCL::shutdown", "", A::kException},
    {M::kNativePrefix, "ncclCommAbort", "", A::kException},

    // Point to point
    {M::kPython, "send", "torch/distributed/distributed_c10d.py", A::kPointToPoint},
    {M::kPython, "recv", "torch/distributed/distributed_c10d.py", A::kPointToPoint},
    {M::kPython, "isend", "torch/distributed/distributed_c10d.py", A::kPointToPoint},
    {M::kPython, "irecv", "torch/distributed/distributed_c10d.py", A::kPointToPoint},
    {M::kPython, "batch_isend_irecv", "torch/distributed/distributed_c10d.py", A::kPointToPoint},
    {M::kPython, "send_object_list", "torch/distributed/distributed_c10d.py", A::kPointToPoint},
    {M::kPython, "recv_object_list", "torch/distributed/distributed_c10d.py", A::kPointToPoint},
    {M::kNativeOp, "send", "c10d::", A::kPointToPoint},
    {M::kNativeOp, "recv", "c10d::", A::kPointToPoint},
    {M::kNativeOp, "recvAnysource", "c10d::", A::kPointToPoint},
    {M::kNative, "c10d::ProcessGroupGloo::SendWork::wait", "", A::kPointToPoint, {"send"}},
    {M::kNative, "c10d::ProcessGroupGloo::RecvWork::wait", "", A::kPointToPoint, {"recv"}},
    {M::kNativePrefix, "ncclSend", "", A::kPointToPoint},
    {M::kNativePrefix, "ncclRecv", "", A::kPointToPoint},
    {M::kNativePrefix, "MPI_Send", "", A::kPointToPoint},
    {M::kNativePrefix, "MPI_Ssend", "", A::kPointToPoint},
    {M::kNativePrefix, "MPI_Recv", "", A::kPointToPoint},
    {M::kNativePrefix, "MPI_Mrecv", "", A::kPointToPoint},
    {M::kNativePrefix, "MPI_Probe", "", A::kPointToPoint},
    {M::kNativePrefix, "MPI_Mprobe", "", A::kPointToPoint},
    {M::kNativePrefix, "MPI_Wait", "", A::kPointToPoint},
    {M::kNativePrefix, "MPI_Sendrecv", "", A::kPointToPoint},

    // Collectives, Python side: every public function of distributed_c10d.py that talks to all ranks of a group
    {M::kPython, "all_reduce", "torch/distributed/distributed_c10d.py", A::kCollective},
    {M::kPython, "all_reduce_coalesced", "torch/distributed/distributed_c10d.py", A::kCollective},
    {M::kPython, "reduce", "torch/distributed/distributed_c10d.py", A::kCollective},
    {M::kPython, "broadcast", "torch/distributed/distributed_c10d.py", A::kCollective},
    {M::kPython, "broadcast_object_list", "torch/distributed/distributed_c10d.py", A::kCollective},
    {M::kPython, "all_gather", "torch/distributed/distributed_c10d.py", A::kCollective},
    {M::kPython, "all_gather_single", "torch/distributed/distributed_c10d.py", A::kCollective},
    {M::kPython, "all_gather_coalesced", "torch/distributed/distributed_c10d.py", A::kCollective},
    {M::kPython, "all_gather_into_tensor", "torch/distributed/distributed_c10d.py", A::kCollective},
    {M::kPython, "_all_gather_base", "torch/distributed/distributed_c10d.py", A::kCollective, {"all_gather_into_tensor"}},
    {M::kPython, "all_gather_object", "torch/distributed/distributed_c10d.py", A::kCollective},
    {M::kPython, "gather", "torch/distributed/distributed_c10d.py", A::kCollective},
    {M::kPython, "gather_single", "torch/distributed/distributed_c10d.py", A::kCollective},
    {M::kPython, "gather_object", "torch/distributed/distributed_c10d.py", A::kCollective},
    {M::kPython, "scatter", "torch/distributed/distributed_c10d.py", A::kCollective},
    {M::kPython, "scatter_object_list", "torch/distributed/distributed_c10d.py", A::kCollective},
    {M::kPython, "reduce_scatter", "torch/distributed/distributed_c10d.py", A::kCollective},
    {M::kPython, "reduce_scatter_single", "torch/distributed/distributed_c10d.py", A::kCollective},
    {M::kPython, "reduce_scatter_tensor", "torch/distributed/distributed_c10d.py", A::kCollective},
    {M::kPython, "_reduce_scatter_base", "torch/distributed/distributed_c10d.py", A::kCollective, {"reduce_scatter_tensor"}},
    {M::kPython, "all_to_all", "torch/distributed/distributed_c10d.py", A::kCollective},
    {M::kPython, "all_to_all_single", "torch/distributed/distributed_c10d.py", A::kCollective},
    {M::kPython, "barrier", "torch/distributed/distributed_c10d.py", A::kCollective},
    {M::kPython, "monitored_barrier", "torch/distributed/distributed_c10d.py", A::kCollective},
    {M::kPython, "split_group", "torch/distributed/distributed_c10d.py", A::kCollective},
    {M::kPython, "wait_tensor", "torch/distributed/_functional_collectives.py", A::kCollective},
    {M::kPython, "wait_for", "multiprocessing/synchronize.py", A::kCollective, {"Barrier.wait", "a multiprocessing barrier", C::kBarrier}},   // under Barrier.wait
    {M::kPython, "synchronize", "horovod/", A::kCollective, {"horovod", "a Horovod collective"}},
    {M::kPython, "sync_global_devices", "jax/", A::kCollective},
    // Native side: c10d/Work.cpp, ProcessGroup*.cpp, reducer.cpp; gloo; nccl.h; mpi.h
    {M::kNative, "c10d::Reducer::finalize_backward", "", A::kCollective, {"Reducer::finalize_backward", "DDP's gradient all-reduce", C::kAllReduce}},
    {M::kNative, "c10d::Reducer::sync_bucket_indices", "", A::kCollective, {"Reducer::sync_bucket_indices", "DDP's bucket broadcast", C::kBroadcast}},
    {M::kNative, "c10d::verify_params_across_processes", "", A::kCollective, {"verify_params_across_processes", "DDP's parameter check", C::kAllGather}},
    {M::kNative, "c10d::broadcast_coalesced", "", A::kCollective, {"broadcast_coalesced", "DDP's parameter broadcast", C::kBroadcast}},
    {M::kNative, "c10d::ProcessGroupNCCL::initNCCLComm", "", A::kCollective, {"ncclCommInitRank", "NCCL's communicator set-up", C::kUnknown, K::kSetUp}},
    {M::kNative, "c10d::ProcessGroupNCCL::getNCCLComm", "", A::kCollective, {"ncclCommInitRank", "NCCL's communicator set-up", C::kUnknown, K::kSetUp}},
    {M::kNative, "WorkNCCL::synchronize", "", A::kCollective, {"Work::wait", "a collective's Work::wait", C::kUnknown, K::kNone, true}},
    {M::kNative, "Work::wait", "", A::kCollective, {"Work::wait", "a collective's Work::wait", C::kUnknown, K::kNone, true}},
    {M::kNativeOp, "allreduce", "c10d::", A::kCollective, {"all_reduce"}},
    {M::kNativeOp, "allreduce_coalesced", "c10d::", A::kCollective, {"all_reduce_coalesced"}},
    {M::kNativeOp, "broadcast", "c10d::", A::kCollective},
    {M::kNativeOp, "reduce", "c10d::", A::kCollective},
    {M::kNativeOp, "allgather", "c10d::", A::kCollective, {"all_gather"}},
    {M::kNativeOp, "_allgather_base", "c10d::", A::kCollective, {"all_gather_into_tensor"}},
    {M::kNativeOp, "allgather_coalesced", "c10d::", A::kCollective, {"all_gather_coalesced"}},
    {M::kNativeOp, "gather", "c10d::", A::kCollective},
    {M::kNativeOp, "scatter", "c10d::", A::kCollective},
    {M::kNativeOp, "reduce_scatter", "c10d::", A::kCollective},
    {M::kNativeOp, "_reduce_scatter_base", "c10d::", A::kCollective, {"reduce_scatter_tensor"}},
    {M::kNativeOp, "alltoall", "c10d::", A::kCollective, {"all_to_all"}},
    {M::kNativeOp, "alltoall_base", "c10d::", A::kCollective, {"all_to_all_single"}},
    {M::kNativeOp, "barrier", "c10d::", A::kCollective},
    {M::kNativeOp, "monitoredBarrier", "c10d::", A::kCollective, {"monitored_barrier"}},
    {M::kNative, "gloo::transport::tcp::UnboundBuffer::wait", "", A::kCollective, {"UnboundBuffer::wait", "a gloo collective", C::kUnknown, K::kNone, true}},
    {M::kNative, "gloo::transport::tcp::Pair::waitUntilConnected", "", A::kCollective, {"connectFullMesh", "gloo's connection set-up", C::kUnknown, K::kSetUp}},
    {M::kNative, "gloo::rendezvous::Context::connectFullMesh", "", A::kCollective, {"connectFullMesh", "gloo's connection set-up", C::kUnknown, K::kSetUp}},
    {M::kNativeOp, "allreduce", "gloo::", A::kCollective, {"all_reduce"}},
    {M::kNativeOp, "barrier", "gloo::", A::kCollective},
    {M::kNativePrefix, "ncclAll", "", A::kCollective},
    {M::kNativePrefix, "ncclBroadcast", "", A::kCollective},
    {M::kNativePrefix, "ncclBcast", "", A::kCollective},
    {M::kNativePrefix, "ncclReduce", "", A::kCollective},
    {M::kNativePrefix, "ncclGroupEnd", "", A::kCollective},
    {M::kNativePrefix, "ncclCommInit", "", A::kCollective, {"ncclCommInitRank", "NCCL's communicator set-up", C::kUnknown, K::kSetUp}},
    {M::kNativePrefix, "ncclCommSplit", "", A::kCollective, {"ncclCommInitRank", "NCCL's communicator set-up", C::kUnknown, K::kSetUp}},
    {M::kNativePrefix, "ncclCommFinalize", "", A::kCollective},
    {M::kNative, "horovod::common::", "", A::kCollective, {"horovod", "a Horovod collective"}},
    {M::kNativePrefix, "MPI_", "", A::kCollective},
    {M::kNativePrefix, "nvshmem_barrier", "", A::kCollective},
    {M::kNativePrefix, "shmem_barrier", "", A::kCollective},

    // Remote calls. torch/distributed/rpc/api.py: shutdown waits in _all_gather until all ranks have no call open
    {M::kPython, "rpc_sync", "torch/distributed/rpc/", A::kPeerWait, {"rpc_sync", "a remote call (rpc_sync)", C::kUnknown, K::kRemoteCall}},
    {M::kPython, "init_rpc", "torch/distributed/rpc/", A::kStoreWait, {"init_rpc", "the set-up of RPC"}},
    {M::kPython, "_all_gather", "torch/distributed/rpc/", A::kCollective, {"_wait_all_workers", "RPC's barrier", C::kBarrier}},
    {M::kPython, "_barrier", "torch/distributed/rpc/", A::kCollective, {"_wait_all_workers", "RPC's barrier", C::kBarrier}},
    {M::kPython, "_wait_all_workers", "torch/distributed/rpc/", A::kCollective, {"_wait_all_workers", "RPC's barrier", C::kBarrier}},
    {M::kPython, "shutdown", "torch/distributed/rpc/", A::kCollective, {"shutdown", "RPC's shutdown"}},

    // A person at a prompt. `python -m pdb` keeps bdb.run in every stack: only the functions that stop count.
    {M::kPython, "interaction", "/pdb.py", A::kDebugger},
    {M::kPython, "_cmdloop", "/pdb.py", A::kDebugger},
    {M::kPython, "cmdloop", "/cmd.py", A::kDebugger},
    {M::kPython, "dispatch_line", "/bdb.py", A::kDebugger},
    {M::kPython, "interaction", "pudb/", A::kDebugger},
    {M::kPython, "cmdloop", "IPython/", A::kDebugger},
    {M::kPython, "_do_wait_suspend", "pydevd", A::kDebugger},
    {M::kPython, "do_wait_suspend", "pydevd", A::kDebugger},
    {M::kPython, "interact", "/code.py", A::kDebugger},
    {M::kNativePrefix, "builtin_input", "", A::kDebugger},
    {M::kNativePrefix, "builtin_breakpoint", "", A::kDebugger},
    {M::kNativePrefix, "PyOS_Readline", "", A::kDebugger},
    {M::kNativePrefix, "rl_getc", "", A::kDebugger},

    // CPython: Modules/gcmodule.c, Python/gc.c
    {M::kNativePrefix, "gc_collect_main", "", A::kGarbageCollection},
    {M::kNativePrefix, "gc_collect_with_callback", "", A::kGarbageCollection},
    {M::kNativePrefix, "gc_collect_generations", "", A::kGarbageCollection},
    {M::kNativePrefix, "gc_collect_internal", "", A::kGarbageCollection},
    {M::kNativePrefix, "collect_with_callback", "", A::kGarbageCollection},   // up to 3.8
    {M::kNativePrefix, "_PyGC_Collect", "", A::kGarbageCollection},
    {M::kNativePrefix, "PyGC_Collect", "", A::kGarbageCollection},

    // Raised: unwinding, printing, atexit, interpreter teardown
    {M::kNativePrefix, "__cxa_throw", "", A::kException},
    {M::kNativePrefix, "__cxa_rethrow", "", A::kException},
    {M::kNativePrefix, "_Unwind_RaiseException", "", A::kException},
    {M::kNativePrefix, "_Unwind_Resume", "", A::kException},
    {M::kNativePrefix, "std::terminate", "", A::kException},
    {M::kNativePrefix, "__gnu_cxx::__verbose_terminate_handler", "", A::kException},
    {M::kNativePrefix, "PyErr_Print", "", A::kException},
    {M::kNativePrefix, "_PyErr_Print", "", A::kException},
    {M::kNativePrefix, "PyErr_Display", "", A::kException},
    {M::kNativePrefix, "_PyErr_Display", "", A::kException},
    {M::kNativePrefix, "atexit_callfuncs", "", A::kException, kTeardown},
    {M::kNativePrefix, "_PyAtExit_Call", "", A::kException, kTeardown},
    {M::kNativePrefix, "Py_Finalize", "", A::kException, kTeardown},
    {M::kNativePrefix, "Py_Exit", "", A::kException, kTeardown},
    {M::kNativePrefix, "wait_for_thread_shutdown", "", A::kException, kTeardown},
    {M::kNativePrefix, "__run_exit_handlers", "", A::kException, kTeardown},
    {M::kPython, "print_exception", "/traceback.py", A::kException},
    {M::kPython, "print_exc", "/traceback.py", A::kException},
    {M::kPython, "format_exception", "/traceback.py", A::kException},
    {M::kPython, "format_exc", "/traceback.py", A::kException},
    {M::kPython, "_shutdown", "/threading.py", A::kException, kTeardown},
    {M::kPython, "_python_exit", "concurrent/futures/", A::kException, kTeardown},
    {M::kPython, "_exit_function", "multiprocessing/util.py", A::kException, kTeardown},

    // Compiling. torch/_dynamo/eval_frame.py and inductor's output_code.py are in every call of compiled code: not listed.
    {M::kPythonFile, "", "torch/_dynamo/convert_frame.py", A::kCompiling},
    {M::kPythonFile, "", "torch/_dynamo/symbolic_convert.py", A::kCompiling},
    {M::kPythonFile, "", "torch/_dynamo/output_graph.py", A::kCompiling},
    {M::kPython, "compile_fx", "torch/_inductor/compile_fx.py", A::kCompiling},
    {M::kPython, "compile_fx_inner", "torch/_inductor/compile_fx.py", A::kCompiling},
    {M::kPython, "fx_codegen_and_compile", "torch/_inductor/compile_fx.py", A::kCompiling},
    {M::kPythonFile, "", "torch/_inductor/async_compile.py", A::kCompiling},
    {M::kPythonFile, "", "torch/_inductor/cpp_builder.py", A::kCompiling},
    {M::kPythonFile, "", "torch/_inductor/graph.py", A::kCompiling},
    {M::kPythonFile, "", "torch/_inductor/scheduler.py", A::kCompiling},
    {M::kPythonFile, "", "torch/_inductor/select_algorithm.py", A::kCompiling},
    {M::kPythonFile, "", "torch/_inductor/compile_worker/", A::kCompiling},
    {M::kPythonFile, "", "torch/utils/cpp_extension.py", A::kCompiling},
    {M::kPython, "wait", "torch/utils/file_baton.py", A::kCompiling, {"FileBaton.wait", "a build lock (FileBaton)", C::kUnknown, K::kFileBaton}},   // pytorch/pytorch#189245: a stale lock
    {M::kPythonFile, "", "triton/compiler/", A::kCompiling},
    {M::kPythonFile, "", "triton/runtime/build.py", A::kCompiling},
    {M::kPython, "_compile_and_write_remote_cache", "jax/_src/compiler.py", A::kCompiling},
    {M::kPython, "backend_compile", "jax/_src/", A::kCompiling},
    {M::kNativePrefix, "nvrtcCompileProgram", "", A::kCompiling},

    // The data pipeline
    {M::kPythonFile, "", "torch/utils/data/", A::kDataLoading},
    {M::kPythonFile, "", "/torchdata/", A::kDataLoading},
    {M::kPythonFile, "", "/webdataset/", A::kDataLoading},
    {M::kPythonFile, "", "-packages/datasets/", A::kDataLoading},
    {M::kPythonFile, "", "-packages/streaming/", A::kDataLoading},
    {M::kPythonFile, "", "nvidia/dali/", A::kDataLoading},
    {M::kPythonFile, "", "/ffcv/", A::kDataLoading},
    {M::kPythonFile, "", "megatron/core/datasets/", A::kDataLoading},
    {M::kPythonFile, "", "tensorflow/python/data/", A::kDataLoading},
    {M::kNative, "tensorflow::data::", "", A::kDataLoading},
    {M::kNativePrefix, "dali::", "", A::kDataLoading},
    // Programs of nobody's framework, by what data pipelines are called
    {M::kNative, "DataLoader::", "", A::kDataLoading},
    {M::kNative, "DataReader::", "", A::kDataLoading},
    {M::kNative, "::data::", "", A::kDataLoading},
    {M::kNative, "LoadBatch", "", A::kDataLoading},
    {M::kNative, "load_batch", "", A::kDataLoading},
    {M::kNative, "ReadBatch", "", A::kDataLoading},
    {M::kNative, "read_batch", "", A::kDataLoading},
    {M::kNative, "NextBatch", "", A::kDataLoading},
    {M::kNative, "next_batch", "", A::kDataLoading},

    // Checkpoints
    {M::kPythonFile, "", "torch/serialization.py", A::kCheckpointIo},
    {M::kPythonFile, "", "torch/distributed/checkpoint/", A::kCheckpointIo},
    {M::kPythonFile, "", "/safetensors/", A::kCheckpointIo},
    {M::kPythonFile, "", "/checkpointing.py", A::kCheckpointIo},
    {M::kPythonFile, "", "deepspeed/runtime/checkpoint_engine/", A::kCheckpointIo},
    {M::kPython, "save_checkpoint", "", A::kCheckpointIo},
    {M::kPython, "load_checkpoint", "", A::kCheckpointIo},
    {M::kPython, "save_pretrained", "", A::kCheckpointIo},
    {M::kPython, "from_pretrained", "", A::kCheckpointIo},
    {M::kNative, "caffe2::serialize::PyTorchStream", "", A::kCheckpointIo},

    // Children
    {M::kPython, "wait", "/subprocess.py", A::kSubprocess},
    {M::kPython, "_wait", "/subprocess.py", A::kSubprocess},
    {M::kPython, "communicate", "/subprocess.py", A::kSubprocess},
    {M::kPython, "_communicate", "/subprocess.py", A::kSubprocess},
    {M::kPython, "_execute_child", "/subprocess.py", A::kSubprocess},
    {M::kPython, "wait", "multiprocessing/popen_", A::kSubprocess},
    {M::kPython, "join", "multiprocessing/process.py", A::kSubprocess},
    {M::kPython, "get", "multiprocessing/queues.py", A::kSubprocess},
    {M::kPython, "recv", "multiprocessing/connection.py", A::kSubprocess},
    {M::kPython, "_send", "multiprocessing/connection.py", A::kSubprocess},
    {M::kPython, "join", "torch/multiprocessing/spawn.py", A::kSubprocess},
    {M::kNativePrefix, "os_system", "", A::kSubprocess},
    {M::kNativePrefix, "os_wait", "", A::kSubprocess},

    // The network
    {M::kPythonFile, "", "/http/client.py", A::kNetworkIo},
    {M::kPythonFile, "", "/urllib/request.py", A::kNetworkIo},
    {M::kPythonFile, "", "/socket.py", A::kNetworkIo},
    {M::kPythonFile, "", "/ssl.py", A::kNetworkIo},
    {M::kPythonFile, "", "/requests/", A::kNetworkIo},
    {M::kPythonFile, "", "/urllib3/", A::kNetworkIo},
    {M::kPythonFile, "", "/httpx/", A::kNetworkIo},
    {M::kPythonFile, "", "/aiohttp/", A::kNetworkIo},
    {M::kPythonFile, "", "/botocore/", A::kNetworkIo},
    {M::kPythonFile, "", "/google/cloud/", A::kNetworkIo},
    {M::kPythonFile, "", "/psycopg", A::kNetworkIo},
    {M::kPythonFile, "", "/pymysql/", A::kNetworkIo},
    {M::kPythonFile, "", "/redis/", A::kNetworkIo},
    {M::kPythonFile, "", "/pymongo/", A::kNetworkIo},
    {M::kPythonFile, "", "-packages/wandb/", A::kNetworkIo},
    {M::kPythonFile, "", "-packages/mlflow/", A::kNetworkIo},
    {M::kNativePrefix, "sock_connect", "", A::kNetworkIo},
    {M::kNativePrefix, "sock_recv", "", A::kNetworkIo},
    {M::kNativePrefix, "sock_accept", "", A::kNetworkIo},
    {M::kNativePrefix, "sock_send", "", A::kNetworkIo},
    {M::kNativePrefix, "getaddrinfo", "", A::kNetworkIo},
    {M::kNativePrefix, "curl_", "", A::kNetworkIo},
    {M::kNativePrefix, "Curl_", "", A::kNetworkIo},
    {M::kNativePrefix, "PQexec", "", A::kNetworkIo},

    // The GPU
    {M::kNativePrefix, "cudaStreamSynchronize", "", A::kGpuWait},
    {M::kNativePrefix, "cudaDeviceSynchronize", "", A::kGpuWait},
    {M::kNativePrefix, "cudaEventSynchronize", "", A::kGpuWait},
    {M::kNativePrefix, "cudaMemcpy", "", A::kGpuWait},
    {M::kNativePrefix, "cudaFree", "", A::kGpuWait},
    // A launch that waits: the queue is full, or a module is loaded, which waits for the device (CUDA_MODULE_LOADING=LAZY)
    {M::kNativePrefix, "cuLaunchKernel", "", A::kGpuWait},
    {M::kNativePrefix, "cudaLaunchKernel", "", A::kGpuWait},
    {M::kNativePrefix, "cuLibraryLoadData", "", A::kGpuWait},
    {M::kNativePrefix, "cuModuleLoad", "", A::kGpuWait},
    {M::kNativePrefix, "cuStreamSynchronize", "", A::kGpuWait},
    {M::kNativePrefix, "cuCtxSynchronize", "", A::kGpuWait},
    {M::kNativePrefix, "cuEventSynchronize", "", A::kGpuWait},
    {M::kNativePrefix, "cuMemcpy", "", A::kGpuWait},
    {M::kNativePrefix, "cuMemFree", "", A::kGpuWait},
    {M::kNativePrefix, "hipStreamSynchronize", "", A::kGpuWait},
    {M::kNativePrefix, "hipDeviceSynchronize", "", A::kGpuWait},
    {M::kNativePrefix, "hipEventSynchronize", "", A::kGpuWait},
    {M::kNativePrefix, "c10::cuda::device_synchronize", "", A::kGpuWait},
    {M::kPython, "synchronize", "torch/cuda/", A::kGpuWait},

    // The main thread of a backward pass on a device waits for the engine's threads.
    {M::kNative, "c10::ivalue::Future::wait", "", A::kAutograd},
};

bool contains(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

// "c10d::ProcessGroupGloo::allreduce(std::vector<...>&)" -> "allreduce"
std::string last_component(std::string_view function) {
  std::string name = short_function(function);
  if (const std::size_t bracket = name.rfind('('); bracket != std::string::npos && name.ends_with(')')) name.resize(bracket);
  if (const std::size_t angle = name.find('<'); angle != std::string::npos && name.ends_with("<...>")) name.resize(angle);
  const std::size_t colon = name.rfind("::");
  return colon == std::string::npos ? name : name.substr(colon + 2);
}

bool holds(const ActivityRule& rule, const Frame& frame, const std::string& component) {
  switch (rule.match) {
    case ActivityMatch::kNative:
      return contains(*frame.function, rule.what);
    case ActivityMatch::kNativePrefix:
      return frame.function->starts_with(rule.what);
    case ActivityMatch::kNativeOp:
      return component == rule.what && contains(*frame.function, rule.file);
    case ActivityMatch::kPython:
      return frame.function == rule.what && contains(frame.file.value_or(""), rule.file);
    case ActivityMatch::kPythonFile:
      return contains(frame.file.value_or(""), rule.file);
  }
  return false;
}

}  // namespace

const ActivityRule* activity_rule_of(const Frame& given) {
  if (!given.function) return nullptr;
  // MPI's profiling interface: PMPI_Recv is MPI_Recv.
  const bool profiling = given.kind == FrameKind::kNative && given.function->starts_with("PMPI_");
  Frame without_prefix;
  if (profiling) {
    without_prefix = given;
    without_prefix.function->erase(0, 1);
  }
  const Frame& frame = profiling ? without_prefix : given;
  const bool python = frame.kind == FrameKind::kPython;
  const std::string component = python ? std::string() : last_component(*frame.function);
  for (const ActivityRule& rule : kRules) {
    const bool python_rule = rule.match == ActivityMatch::kPython || rule.match == ActivityMatch::kPythonFile;
    if (python == python_rule && holds(rule, frame, component)) return &rule;
  }
  return nullptr;
}

}  // namespace rankstacks
