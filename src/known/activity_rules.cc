// What frames that wait for no other rank say about their thread. The order only matters within one frame: the first
// matching rule decides. PyTorch names are from 1.13 to 2.15.
#include "known/rules.h"

namespace rankstacks::known {
namespace {

using A = Activity;
using C = Collective;
using K = OperationKind;
using M = ActivityMatch;

constexpr NamedOperation kTeardown{.kind = K::kTeardown};

// clang-format off
constexpr ActivityRule kRules[] = {
    // A debugger prompt. `python -m pdb` keeps bdb.run in every stack, and who counts lines by bdb.Bdb has dispatch_line in
    // many: only the functions that wait for a person count.
    {M::kPython, "interaction", "/pdb.py", A::kDebugger, "cpython Lib/pdb.py"},
    {M::kPython, "_cmdloop", "/pdb.py", A::kDebugger, "cpython Lib/pdb.py"},
    {M::kPython, "cmdloop", "/cmd.py", A::kDebugger, "cpython Lib/cmd.py"},
    {M::kPython, "interaction", "pudb/", A::kDebugger, "pudb debugger.py"},
    {M::kPython, "cmdloop", "IPython/", A::kDebugger, "ipython terminal/debugger.py, core/debugger.py"},
    {M::kPython, "_do_wait_suspend", "pydevd", A::kDebugger, "pydevd: debugpy, PyCharm"},
    {M::kPython, "do_wait_suspend", "pydevd", A::kDebugger, "pydevd: debugpy, PyCharm"},
    {M::kPython, "interact", "/code.py", A::kDebugger, "cpython Lib/code.py"},
    {M::kNativePrefix, "builtin_input", "", A::kDebugger, "cpython Python/bltinmodule.c"},
    {M::kNativePrefix, "builtin_breakpoint", "", A::kDebugger, "cpython Python/bltinmodule.c"},
    {M::kNativePrefix, "PyOS_Readline", "", A::kDebugger, "cpython Parser/myreadline.c"},
    {M::kNativePrefix, "rl_getc", "", A::kDebugger, "readline input.c"},

    // CPython: Modules/gcmodule.c, Python/gc.c
    {M::kNativePrefix, "gc_collect_main", "", A::kGarbageCollection, "cpython Modules/gcmodule.c; Python/gc.c, 3.13-"},
    {M::kNativePrefix, "gc_collect_with_callback", "", A::kGarbageCollection, "cpython Modules/gcmodule.c; Python/gc.c, 3.13-"},
    {M::kNativePrefix, "gc_collect_generations", "", A::kGarbageCollection, "cpython Modules/gcmodule.c; Python/gc.c, 3.13-"},
    {M::kNativePrefix, "gc_collect_internal", "", A::kGarbageCollection, "cpython Modules/gcmodule.c; Python/gc.c, 3.13-"},
    {M::kNativePrefix, "collect_with_callback", "", A::kGarbageCollection, "cpython Modules/gcmodule.c, up to 3.8"},
    {M::kNativePrefix, "_PyGC_Collect", "", A::kGarbageCollection, "cpython Modules/gcmodule.c; Python/gc.c, 3.13-"},
    {M::kNativePrefix, "PyGC_Collect", "", A::kGarbageCollection, "cpython Modules/gcmodule.c; Python/gc.c, 3.13-"},

    // Raised: unwinding, printing, atexit, interpreter teardown
    {M::kNativePrefix, "__cxa_throw", "", A::kException, "gcc libstdc++-v3/libsupc++"},
    {M::kNativePrefix, "__cxa_rethrow", "", A::kException, "gcc libstdc++-v3/libsupc++"},
    {M::kNativePrefix, "_Unwind_RaiseException", "", A::kException, "gcc libgcc/unwind.inc"},
    {M::kNativePrefix, "_Unwind_Resume", "", A::kException, "gcc libgcc/unwind.inc"},
    {M::kNativePrefix, "std::terminate", "", A::kException, "gcc libstdc++-v3/libsupc++"},
    {M::kNativePrefix, "__gnu_cxx::__verbose_terminate_handler", "", A::kException, "gcc libstdc++-v3/libsupc++"},
    {M::kNativePrefix, "PyErr_Print", "", A::kException, "cpython Python/pythonrun.c"},
    {M::kNativePrefix, "_PyErr_Print", "", A::kException, "cpython Python/pythonrun.c"},
    {M::kNativePrefix, "PyErr_Display", "", A::kException, "cpython Python/pythonrun.c"},
    {M::kNativePrefix, "_PyErr_Display", "", A::kException, "cpython Python/pythonrun.c"},
    {M::kNativePrefix, "atexit_callfuncs", "", A::kException, "cpython Modules/atexitmodule.c", kTeardown},
    {M::kNativePrefix, "_PyAtExit_Call", "", A::kException, "cpython Modules/atexitmodule.c", kTeardown},
    {M::kNativePrefix, "Py_Finalize", "", A::kException, "cpython Python/pylifecycle.c", kTeardown},
    {M::kNativePrefix, "Py_Exit", "", A::kException, "cpython Python/pylifecycle.c", kTeardown},
    {M::kNativePrefix, "wait_for_thread_shutdown", "", A::kException, "cpython Python/pylifecycle.c", kTeardown},
    {M::kNativePrefix, "__run_exit_handlers", "", A::kException, "glibc stdlib/exit.c", kTeardown},
    {M::kPython, "print_exception", "/traceback.py", A::kException, "cpython Lib/traceback.py"},
    {M::kPython, "print_exc", "/traceback.py", A::kException, "cpython Lib/traceback.py"},
    {M::kPython, "format_exception", "/traceback.py", A::kException, "cpython Lib/traceback.py"},
    {M::kPython, "format_exc", "/traceback.py", A::kException, "cpython Lib/traceback.py"},
    {M::kPython, "_shutdown", "/threading.py", A::kException, "cpython Lib/threading.py", kTeardown},
    {M::kPython, "_python_exit", "concurrent/futures/", A::kException, "cpython Lib/concurrent/futures: thread.py, process.py", kTeardown},
    {M::kPython, "_exit_function", "multiprocessing/util.py", A::kException, "cpython Lib/multiprocessing/util.py", kTeardown},

    // A wait for tasks that looks for them again and again, in a thread or in a pool of processes.
    {M::kPython, "_retrieve", "joblib/parallel.py", A::kPythonLock, "joblib parallel.py: Parallel, 1.3-"},

    // Compiling. torch/_dynamo/eval_frame.py and inductor's output_code.py are in every call of compiled code, so they
    // are not listed.
    {M::kPythonFile, "", "torch/_dynamo/convert_frame.py", A::kCompiling, "pytorch _dynamo/convert_frame.py"},
    {M::kPythonFile, "", "torch/_dynamo/symbolic_convert.py", A::kCompiling, "pytorch _dynamo/symbolic_convert.py"},
    {M::kPythonFile, "", "torch/_dynamo/output_graph.py", A::kCompiling, "pytorch _dynamo/output_graph.py"},
    {M::kPython, "compile_fx", "torch/_inductor/compile_fx.py", A::kCompiling, "pytorch _inductor/compile_fx.py"},
    {M::kPython, "compile_fx_inner", "torch/_inductor/compile_fx.py", A::kCompiling, "pytorch _inductor/compile_fx.py"},
    {M::kPython, "fx_codegen_and_compile", "torch/_inductor/compile_fx.py", A::kCompiling, "pytorch _inductor/compile_fx.py"},
    {M::kPythonFile, "", "torch/_inductor/async_compile.py", A::kCompiling, "pytorch _inductor/async_compile.py"},
    {M::kPythonFile, "", "torch/_inductor/cpp_builder.py", A::kCompiling, "pytorch _inductor/cpp_builder.py"},
    {M::kPythonFile, "", "torch/_inductor/graph.py", A::kCompiling, "pytorch _inductor/graph.py"},
    {M::kPythonFile, "", "torch/_inductor/scheduler.py", A::kCompiling, "pytorch _inductor/scheduler.py"},
    {M::kPythonFile, "", "torch/_inductor/select_algorithm.py", A::kCompiling, "pytorch _inductor/select_algorithm.py"},
    {M::kPythonFile, "", "torch/_inductor/compile_worker/", A::kCompiling, "pytorch _inductor/compile_worker/"},
    {M::kPythonFile, "", "torch/utils/cpp_extension.py", A::kCompiling, "pytorch utils/cpp_extension.py"},
    {M::kPython, "wait", "torch/utils/file_baton.py", A::kCompiling, "pytorch utils/file_baton.py: pytorch/pytorch#189245, a stale lock", {"FileBaton.wait", "a build lock (FileBaton)", C::kUnknown, K::kFileBaton}},
    {M::kPythonFile, "", "triton/compiler/", A::kCompiling, "triton triton/compiler/"},
    {M::kPythonFile, "", "triton/runtime/build.py", A::kCompiling, "triton triton/runtime/build.py"},
    {M::kPython, "_compile_and_write_remote_cache", "jax/_src/compiler.py", A::kCompiling, "jax _src/compiler.py"},
    {M::kPython, "backend_compile", "jax/_src/", A::kCompiling, "jax _src/"},
    {M::kNativePrefix, "nvrtcCompileProgram", "", A::kCompiling, "nvrtc nvrtc.h"},

    // The data pipeline
    {M::kPythonFile, "", "torch/utils/data/", A::kDataLoading, "pytorch utils/data/"},
    {M::kPythonFile, "", "paddle/io/", A::kDataLoading, "paddle io/dataloader/"},
    {M::kPythonFile, "", "/torchdata/", A::kDataLoading, "torchdata"},
    {M::kPythonFile, "", "/webdataset/", A::kDataLoading, "webdataset"},
    {M::kPythonFile, "", "-packages/datasets/", A::kDataLoading, "hugging face datasets"},
    {M::kPythonFile, "", "-packages/streaming/", A::kDataLoading, "mosaicml streaming"},
    {M::kPythonFile, "", "nvidia/dali/", A::kDataLoading, "dali"},
    {M::kPythonFile, "", "/ffcv/", A::kDataLoading, "ffcv"},
    {M::kPythonFile, "", "megatron/core/datasets/", A::kDataLoading, "megatron-core"},
    {M::kPythonFile, "", "/grain/_src/", A::kDataLoading, "grain"},
    {M::kPythonFile, "", "deepspeed/runtime/dataloader.py", A::kDataLoading, "deepspeed"},
    {M::kPythonFile, "", "-packages/ray/data/", A::kDataLoading, "ray data: iterators and executors"},
    {M::kPythonFile, "", "tensorflow/python/data/", A::kDataLoading, "tensorflow"},
    {M::kNative, "tensorflow::data::", "", A::kDataLoading, "tensorflow core/data"},
    {M::kNativePrefix, "dali::", "", A::kDataLoading, "dali"},
    // Programs without a known framework, by common names of data pipelines.
    {M::kNative, "DataLoader::", "", A::kDataLoading, "what data pipelines of C++ programs are called: caffe2, libtorch's torch::data"},
    {M::kNative, "DataReader::", "", A::kDataLoading, "what data pipelines of C++ programs are called: caffe2, libtorch's torch::data"},
    {M::kNative, "::data::", "", A::kDataLoading, "what data pipelines of C++ programs are called: caffe2, libtorch's torch::data"},
    {M::kNative, "LoadBatch", "", A::kDataLoading, "what data pipelines of C++ programs are called"},
    {M::kNative, "load_batch", "", A::kDataLoading, "what data pipelines of C++ programs are called"},
    {M::kNative, "ReadBatch", "", A::kDataLoading, "what data pipelines of C++ programs are called"},
    {M::kNative, "read_batch", "", A::kDataLoading, "what data pipelines of C++ programs are called"},
    {M::kNative, "NextBatch", "", A::kDataLoading, "what data pipelines of C++ programs are called"},
    {M::kNative, "next_batch", "", A::kDataLoading, "what data pipelines of C++ programs are called"},

    // Checkpoints
    {M::kPythonFile, "", "torch/serialization.py", A::kCheckpointIo, "pytorch serialization.py"},
    {M::kPythonFile, "", "torch/distributed/checkpoint/", A::kCheckpointIo, "pytorch distributed/checkpoint/"},
    {M::kPythonFile, "", "/safetensors/", A::kCheckpointIo, "safetensors"},
    {M::kPythonFile, "", "/checkpointing.py", A::kCheckpointIo, "megatron-lm megatron/training/checkpointing.py; many users' own"},
    {M::kPythonFile, "", "deepspeed/runtime/checkpoint_engine/", A::kCheckpointIo, "deepspeed"},
    {M::kPythonFile, "", "megatron/core/dist_checkpointing/", A::kCheckpointIo, "megatron-core"},
    {M::kPythonFile, "", "/orbax/checkpoint/", A::kCheckpointIo, "orbax"},
    {M::kPythonFile, "", "flax/training/checkpoints.py", A::kCheckpointIo, "flax"},
    {M::kNative, "deepspeed_io_handle_t::wait", "", A::kCheckpointIo, "deepspeed csrc/aio/py_lib/deepspeed_py_io_handle.cpp, 0.15-"},
    {M::kNative, "deepspeed_aio_handle_t::wait", "", A::kCheckpointIo, "deepspeed csrc/aio/py_lib/deepspeed_py_aio_handle.cpp"},
    {M::kPython, "save_checkpoint", "", A::kCheckpointIo, "deepspeed, megatron-lm, fairseq, lightning: all have it by this name"},
    {M::kPython, "load_checkpoint", "", A::kCheckpointIo, "deepspeed, megatron-lm, fairseq, lightning: all have it by this name"},
    {M::kPython, "save_pretrained", "", A::kCheckpointIo, "hugging face transformers, diffusers"},
    {M::kPython, "from_pretrained", "", A::kCheckpointIo, "hugging face transformers, diffusers"},
    {M::kNative, "caffe2::serialize::PyTorchStream", "", A::kCheckpointIo, "pytorch caffe2/serialize/inline_container.cc"},

    // Locks of files that are tried again and again
    {M::kPython, "acquire", "/filelock/", A::kFileIo, "filelock _api.py: it sleeps between two attempts"},
    {M::kPython, "acquire", "/portalocker/", A::kFileIo, "portalocker utils.py"},
    {M::kPython, "acquire", "/fasteners/", A::kFileIo, "fasteners process_lock.py"},

    // Children
    {M::kPython, "wait", "/subprocess.py", A::kSubprocess, "cpython Lib/subprocess.py"},
    {M::kPython, "_wait", "/subprocess.py", A::kSubprocess, "cpython Lib/subprocess.py"},
    {M::kPython, "communicate", "/subprocess.py", A::kSubprocess, "cpython Lib/subprocess.py"},
    {M::kPython, "_communicate", "/subprocess.py", A::kSubprocess, "cpython Lib/subprocess.py"},
    {M::kPython, "_execute_child", "/subprocess.py", A::kSubprocess, "cpython Lib/subprocess.py"},
    {M::kPython, "wait", "multiprocessing/popen_", A::kSubprocess, "cpython Lib/multiprocessing: popen_fork.py, popen_spawn_posix.py, popen_forkserver.py"},
    {M::kPython, "_launch", "multiprocessing/popen_spawn_posix.py", A::kSubprocess, "cpython Lib/multiprocessing/popen_spawn_posix.py"},
    {M::kPython, "_launch", "multiprocessing/popen_forkserver.py", A::kSubprocess, "cpython Lib/multiprocessing/popen_forkserver.py: until the server has forked"},
    {M::kPython, "join", "multiprocessing/process.py", A::kSubprocess, "cpython Lib/multiprocessing/process.py"},
    {M::kPython, "get", "multiprocessing/queues.py", A::kSubprocess, "cpython Lib/multiprocessing/queues.py"},
    {M::kPython, "recv", "multiprocessing/connection.py", A::kSubprocess, "cpython Lib/multiprocessing/connection.py"},
    {M::kPython, "_send", "multiprocessing/connection.py", A::kSubprocess, "cpython Lib/multiprocessing/connection.py"},
    {M::kPython, "join", "torch/multiprocessing/spawn.py", A::kSubprocess, "pytorch multiprocessing/spawn.py"},
    {M::kNativePrefix, "os_system", "", A::kSubprocess, "cpython Modules/posixmodule.c"},
    {M::kNativePrefix, "os_wait", "", A::kSubprocess, "cpython Modules/posixmodule.c"},

    // The network
    {M::kPythonFile, "", "/http/client.py", A::kNetworkIo, "cpython Lib/http/client.py"},
    {M::kPythonFile, "", "/urllib/request.py", A::kNetworkIo, "cpython Lib/urllib/request.py"},
    {M::kPythonFile, "", "/socket.py", A::kNetworkIo, "cpython Lib/socket.py"},
    {M::kPythonFile, "", "/ssl.py", A::kNetworkIo, "cpython Lib/ssl.py"},
    {M::kPythonFile, "", "/requests/", A::kNetworkIo, "requests"},
    {M::kPythonFile, "", "/urllib3/", A::kNetworkIo, "urllib3"},
    {M::kPythonFile, "", "/httpx/", A::kNetworkIo, "httpx"},
    {M::kPythonFile, "", "/aiohttp/", A::kNetworkIo, "aiohttp"},
    {M::kPythonFile, "", "/botocore/", A::kNetworkIo, "botocore: boto3, s3fs"},
    {M::kPythonFile, "", "/google/cloud/", A::kNetworkIo, "google-cloud-*"},
    {M::kPythonFile, "", "/psycopg", A::kNetworkIo, "psycopg, psycopg2"},
    {M::kPythonFile, "", "/pymysql/", A::kNetworkIo, "pymysql"},
    {M::kPythonFile, "", "/redis/", A::kNetworkIo, "redis-py"},
    {M::kPythonFile, "", "/pymongo/", A::kNetworkIo, "pymongo"},
    {M::kPythonFile, "", "-packages/wandb/", A::kNetworkIo, "wandb"},
    {M::kPythonFile, "", "-packages/mlflow/", A::kNetworkIo, "mlflow"},
    {M::kNativePrefix, "sock_connect", "", A::kNetworkIo, "cpython Modules/socketmodule.c"},
    {M::kNativePrefix, "sock_recv", "", A::kNetworkIo, "cpython Modules/socketmodule.c"},
    {M::kNativePrefix, "sock_accept", "", A::kNetworkIo, "cpython Modules/socketmodule.c"},
    {M::kNativePrefix, "sock_send", "", A::kNetworkIo, "cpython Modules/socketmodule.c"},
    {M::kNativePrefix, "getaddrinfo", "", A::kNetworkIo, "glibc nss/getaddrinfo.c"},
    {M::kNativePrefix, "curl_", "", A::kNetworkIo, "libcurl"},
    {M::kNativePrefix, "Curl_", "", A::kNetworkIo, "libcurl"},
    {M::kNativePrefix, "PQexec", "", A::kNetworkIo, "libpq"},

    // The GPU
    {M::kNativePrefix, "cudaStreamSynchronize", "", A::kGpuWait, "cuda runtime cuda_runtime_api.h"},
    {M::kNativePrefix, "cudaDeviceSynchronize", "", A::kGpuWait, "cuda runtime cuda_runtime_api.h"},
    {M::kNativePrefix, "cudaEventSynchronize", "", A::kGpuWait, "cuda runtime cuda_runtime_api.h"},
    {M::kNativePrefix, "cudaMemcpy", "", A::kGpuWait, "cuda runtime cuda_runtime_api.h"},
    {M::kNativePrefix, "cudaFree", "", A::kGpuWait, "cuda runtime cuda_runtime_api.h"},
    // A launch that waits: the queue is full, or a module is being loaded, which waits for the device
    // (CUDA_MODULE_LOADING=LAZY).
    {M::kNativePrefix, "cuLaunchKernel", "", A::kGpuWait, "cuda driver cuda.h: waits where the queue is full"},
    {M::kNativePrefix, "cudaLaunchKernel", "", A::kGpuWait, "cuda runtime cuda_runtime_api.h"},
    {M::kNativePrefix, "cuLibraryLoadData", "", A::kGpuWait, "cuda driver cuda.h: waits for the device, CUDA_MODULE_LOADING=LAZY"},
    {M::kNativePrefix, "cuModuleLoad", "", A::kGpuWait, "cuda driver cuda.h: waits for the device, CUDA_MODULE_LOADING=LAZY"},
    {M::kNativePrefix, "cuStreamSynchronize", "", A::kGpuWait, "cuda driver cuda.h"},
    {M::kNativePrefix, "cuCtxSynchronize", "", A::kGpuWait, "cuda driver cuda.h"},
    {M::kNativePrefix, "cuEventSynchronize", "", A::kGpuWait, "cuda driver cuda.h"},
    {M::kNativePrefix, "cuMemcpy", "", A::kGpuWait, "cuda driver cuda.h"},
    {M::kNativePrefix, "cuMemFree", "", A::kGpuWait, "cuda driver cuda.h"},
    {M::kNativePrefix, "hipStreamSynchronize", "", A::kGpuWait, "rocm hip_runtime_api.h"},
    {M::kNativePrefix, "hipDeviceSynchronize", "", A::kGpuWait, "rocm hip_runtime_api.h"},
    {M::kNativePrefix, "hipEventSynchronize", "", A::kGpuWait, "rocm hip_runtime_api.h"},
    {M::kNativePrefix, "c10::cuda::device_synchronize", "", A::kGpuWait, "pytorch c10/cuda/CUDAFunctions.cpp"},
    {M::kPython, "synchronize", "torch/cuda/", A::kGpuWait, "pytorch cuda/"},

    // The main thread waits for the threads of an engine: in a backward pass on a device for autograd's, for the value
    // of an array that XLA computes, or for TensorFlow's executor.
    {M::kNative, "c10::ivalue::Future::wait", "", A::kAutograd, "pytorch aten/src/ATen/core/ivalue_inl.h"},
    {M::kNative, "torch::autograd::ReadyQueue::pop", "", A::kAutograd, "pytorch autograd/engine.cpp"},
    {M::kNativePrefix, "tsl::BlockUntilReady", "", A::kAutograd, "xla tsl/concurrency/async_value.cc: also of the conversion by numpy.asarray"},
    {M::kNative, "BlockUntilReadyWithCancel", "", A::kAutograd, "jaxlib util.cc"},
    {M::kNative, "PyArray::BlockUntilReady", "", A::kAutograd, "jaxlib py_array.cc"},
    {M::kNative, "xla::PjRtFuture<", "", A::kAutograd, "xla pjrt/pjrt_future.h, -2025"},
    {M::kNative, "xla::PjRtBuffer::ToLiteralSync", "", A::kAutograd, "xla pjrt/pjrt_client.h"},
    {M::kNative, "tensorflow::ProcessFunctionLibraryRuntime::RunSync", "", A::kAutograd, "tensorflow core/common_runtime/process_function_library_runtime.cc"},
    {M::kNative, "tensorflow::DirectSession::WaitForNotification", "", A::kAutograd, "tensorflow core/common_runtime/direct_session.cc"},
    {M::kPython, "block_until_ready", "jax/_src/", A::kAutograd, "jax _src/array.py, _src/api.py"},
    {M::kPython, "_value", "jax/_src/array.py", A::kAutograd, "jax _src/array.py: the conversion to numpy's array"},
    {M::kPython, "device_get", "jax/_src/api.py", A::kAutograd, "jax _src/api.py"},
};
// clang-format on

}  // namespace

std::span<const ActivityRule> built_in_activities() { return kRules; }

}  // namespace rankstacks::known
