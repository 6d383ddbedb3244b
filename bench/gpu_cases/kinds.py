"""Kinds of jobs that the other programs lack: ranks that PyTorch's heartbeat monitor aborts, one process with two GPUs (JAX,
DataParallel, NCCL called by two threads), CUDA C++ that a job compiles as it starts, cublasLt behind a collective, MPI with
GPU buffers, and cores of ranks whose GPU left a core as well.

    kinds.py CASE
"""
import datetime
import os
import sys
import threading

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

from gpu_rank import FOREVER, GOOD_STEPS, TROUBLES, announce, connect, is_odd, rank, run
from inside import ddp, read_shard, train
from job import connect_to_silent_server
from seventh import in_trouble


def heartbeat_destroy():
    """Rank 0 has launched the last all-reduce and destroys its process group: NCCL waits for that all-reduce, and the rank
    keeps the lock of its communicator meanwhile. NCCL's watchdog of rank 0 looks for errors of the communicator, waits for
    that lock, and makes no progress, so that the heartbeat monitor aborts rank 0. The odd rank is not in the all-reduce: it
    sends its results to a server, which does not answer."""
    torch, dist = connect()
    tensor = torch.ones(1024, device="cuda")
    for _ in range(GOOD_STEPS):
        dist.all_reduce(tensor)
    torch.cuda.synchronize()
    announce("settles")
    if is_odd():
        connect_to_silent_server().recv(1 << 12)
    dist.all_reduce(tensor)
    dist.destroy_process_group()


def heartbeat_store():
    """Rank 0 has launched an all-reduce and waits in the store for a number that the odd rank puts there before it comes to
    the all-reduce. A client of the store has one lock, which rank 0 keeps while it waits. With TORCH_NCCL_DESYNC_DEBUG the
    watchdog of rank 0 notes the all-reduce in the store, waits for that lock, and makes no progress, so that the heartbeat
    monitor aborts rank 0. The odd rank has put nothing there: it reads a file that does not come."""
    torch, dist = connect()
    store = dist.PrefixStore("tokens", dist.distributed_c10d._get_default_store())
    tensor = torch.ones(1024, device="cuda")
    for number in range(FOREVER):
        key = "step-%d" % number
        if number == GOOD_STEPS:
            announce("settles")
        if is_odd():
            if in_trouble(number):
                read_shard()
            store.set(key, "4096")
        work = dist.all_reduce(tensor, async_op=True)
        store.wait([key], datetime.timedelta(hours=8))
        work.wait()
        torch.cuda.synchronize()


def mesh_of_two(jax):
    """(the mesh of two GPUs of this process, numbers that each of them has a half of)"""
    from jax.sharding import Mesh, NamedSharding, PartitionSpec
    devices = jax.local_devices()[:2]
    if len(devices) < 2:
        sys.exit("JAX sees fewer than two devices")
    mesh = Mesh(devices, ("data",))
    batch = jax.device_put(jax.numpy.ones((64, 256)), NamedSharding(mesh, PartitionSpec("data")))
    return mesh, batch


def jax_mesh():
    """One process of JAX trains on two GPUs, each of which has a half of the batch; the gradients are summed up over both.
    All is well."""
    import jax
    from jax.sharding import NamedSharding, PartitionSpec
    mesh, batch = mesh_of_two(jax)
    weights = jax.device_put(jax.numpy.full((256, 256), 0.01), NamedSharding(mesh, PartitionSpec()))

    @jax.jit
    def train_step(weights, batch):
        loss, gradient = jax.value_and_grad(lambda weights: ((batch @ weights) ** 2).mean())(weights)
        return weights - 0.001 * gradient, loss

    for number in range(FOREVER):
        if number == GOOD_STEPS:
            announce("moves")
        weights, loss = train_step(weights, batch)
        loss.block_until_ready()


def jax_host_callback():
    """One process of JAX computes on two GPUs. For each half of the batch the computation calls Python on the host, which
    looks weights up in a table, and sums up over both GPUs. At the last step the call for the second GPU reads a file that
    does not come: the first GPU waits for the second one, and the main thread for the result."""
    import jax
    from jax.sharding import PartitionSpec
    mesh, batch = mesh_of_two(jax)
    steps = {"done": 0}
    half = jax.ShapeDtypeStruct((32, 256), "float32")

    def look_up(device, part):
        if steps["done"] == GOOD_STEPS and int(device) == 1:
            read_shard()
        return part

    def weigh(part):
        weighted = jax.pure_callback(look_up, half, jax.lax.axis_index("data"), part)
        return jax.lax.psum((weighted * part).sum(), "data")

    step = jax.jit(jax.shard_map(weigh, mesh=mesh, in_specs=PartitionSpec("data"), out_specs=PartitionSpec()))
    for number in range(FOREVER):
        if number == GOOD_STEPS:
            announce("settles")
        steps["done"] = number
        step(batch).block_until_ready()


def nccl_library():
    """NCCL as torch has loaded it, by its own functions: torch's Python calls for communicators of threads fail with
    CPython 3.12 (PY_SSIZE_T_CLEAN)."""
    import ctypes
    library = ctypes.CDLL("libnccl.so.2")

    class UniqueId(ctypes.Structure):
        _fields_ = [("internal", ctypes.c_char * 128)]

    library.ncclCommInitRank.argtypes = [ctypes.POINTER(ctypes.c_void_p), ctypes.c_int, UniqueId, ctypes.c_int]
    library.ncclAllReduce.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]
    return library, UniqueId


def must_succeed(result):
    if result != 0:
        raise RuntimeError("NCCL: result %d" % result)


FLOAT32, SUM = 7, 0  # ncclDataType_t, ncclRedOp_t


def in_two_threads(compute_part, before_reduce):
    """One process has two GPUs, with a thread and a communicator of NCCL for each. In each step both compute their part, and
    sum it up over both GPUs. before_reduce(replica, step) is called by each thread before its all-reduce."""
    import ctypes
    import torch
    nccl, unique_id = nccl_library()
    identity, both = unique_id(), threading.Barrier(2)
    must_succeed(nccl.ncclGetUniqueId(ctypes.byref(identity)))

    def train_replica(replica):
        torch.cuda.set_device(replica)
        communicator = ctypes.c_void_p()
        must_succeed(nccl.ncclCommInitRank(ctypes.byref(communicator), 2, identity, replica))
        weights = torch.randn(1024, 1024, device="cuda")
        for number in range(FOREVER):
            both.wait()
            part = compute_part(torch, weights)
            before_reduce(replica, number)
            stream = torch.cuda.current_stream().cuda_stream
            must_succeed(nccl.ncclAllReduce(part.data_ptr(), part.data_ptr(), part.numel(), FLOAT32, SUM, communicator, stream))
            torch.cuda.synchronize()

    threads = [threading.Thread(target=train_replica, args=(replica,), name="replica-%d" % replica, daemon=True) for replica in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def products(torch, weights):
    hidden = weights
    for _ in range(20):
        hidden = torch.tanh(hidden @ weights)
    return hidden


def two_threads():
    """The thread of the second GPU asks a server for its part of the batch, which does not answer, and does not come to its
    all-reduce. The thread of the first GPU has launched its own, and waits for its GPU; the main thread waits for both
    threads."""
    def fetch_batch(replica, number):
        if replica == 0 and number == GOOD_STEPS:
            announce("settles")
        if replica == 1 and number == GOOD_STEPS:
            connect_to_silent_server().recv(1 << 12)

    in_two_threads(products, fetch_batch)


def two_replicas():
    """Both threads come to their all-reduce in each step. All is well."""
    def note(replica, number):
        if replica == 0 and number == GOOD_STEPS:
            announce("moves")

    in_two_threads(products, note)


def data_parallel():
    """One process trains on two GPUs by DataParallel, which copies the model to the second GPU for each step and gathers
    the outputs on the first one. All is well."""
    import torch
    layers = [torch.nn.Linear(512, 512) for _ in range(4)]
    model = torch.nn.DataParallel(torch.nn.Sequential(*layers).cuda(0), device_ids=[0, 1])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    for number in range(FOREVER):
        if number == GOOD_STEPS:
            announce("moves")
        optimizer.zero_grad()
        loss = model(torch.randn(256, 512, device="cuda:0")).square().mean()
        loss.backward()
        optimizer.step()
        loss.item()


SEARCH = """
#include <cuda_runtime.h>

// Looks for the first slot, from each thread's own, that is free. The number of slots is a power of two.
__global__ void find_free_slots(const volatile int* slots, int count, int* found) {
  int slot = (blockIdx.x * blockDim.x + threadIdx.x) % count;
  while (slots[slot] != 0) slot = (slot + 1) % count;
  found[blockIdx.x * blockDim.x + threadIdx.x] = slot;
}

extern "C" int launch_find_free_slots(const int* slots, int count, int* found, void* stream) {
  find_free_slots<<<4, 64, 0, static_cast<cudaStream_t>(stream)>>>(slots, count, found);
  return static_cast<int>(cudaGetLastError());
}
"""


def build_search():
    """The kernels, compiled by nvcc as the job starts, in a directory that the ranks share: one of them compiles."""
    import ctypes
    os.environ["PATH"] = os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"], "/usr/local/cuda/bin"])
    from torch.utils import cpp_extension
    os.environ.setdefault("TORCH_EXTENSIONS_DIR", os.path.join(os.environ["HANGS_DIRECTORY"], "extensions"))
    name = "slots"
    cpp_extension.load_inline(name, cpp_sources="", cuda_sources=SEARCH, is_python_module=False, no_implicit_headers=True)
    library = ctypes.CDLL(os.path.join(os.environ["TORCH_EXTENSIONS_DIR"], name, name + ".so"))
    library.launch_find_free_slots.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]
    return library.launch_find_free_slots


def inline_extension():
    """Each rank looks for free slots of its cache on the GPU, by a kernel that the job compiles with nvcc as it starts. No
    slot of the odd rank is free: its kernel does not end, and the rank waits for what it has found. The other rank waits in
    the all-reduce of its backward pass."""
    torch, _ = connect()
    os.environ.setdefault("TORCH_CUDA_ARCH_LIST", "%d.%d" % torch.cuda.get_device_capability())
    launch = build_search()
    slots, found = torch.zeros(1 << 12, dtype=torch.int32, device="cuda"), torch.zeros(256, dtype=torch.int32, device="cuda")

    def find_slots(number):
        if in_trouble(number):
            slots.fill_(1)
        failed = launch(slots.data_ptr(), slots.numel(), found.data_ptr(), torch.cuda.current_stream().cuda_stream)
        if failed:
            raise RuntimeError("the kernel was not launched: error %d of CUDA" % failed)
        return found.max().item()

    train(torch, ddp(torch), find_slots)


def cublaslt_backward():
    """After some steps of warm-up the backward pass multiplies in bfloat16 with a bias, by cublasLt, which this job has not
    used before; cuBLAS it has. Rank 0 launches its backward pass behind an all-reduce: some elementwise kernels, then only
    those of cublasLt, of which there are more than the queue of launches holds. So autograd's thread waits within cublasLt,
    in its first use or for room in the queue, and the main thread for autograd's. The odd rank is not in the all-reduce: it
    asks a server, which does not answer."""
    torch, dist = connect()
    weights = torch.randn(512, 512, device="cuda", dtype=torch.bfloat16) * 0.01
    bias, tensor = torch.zeros(512, device="cuda", dtype=torch.bfloat16), torch.ones(1 << 20, device="cuda")
    dense, lengths = torch.randn(512, 512, device="cuda") * 0.01, {"layers": 0}

    class Layers(torch.autograd.Function):
        @staticmethod
        def forward(context, hidden):
            return torch.tanh(hidden)

        @staticmethod
        def backward(context, gradient):
            for _ in range(16):
                gradient = torch.tanh(gradient)
            gradient = gradient.to(torch.bfloat16)
            for _ in range(lengths["layers"]):
                gradient = torch.nn.functional.linear(gradient, weights, bias)
            return gradient.to(torch.float32)

    hidden = torch.randn(256, 512, device="cuda", requires_grad=True)
    for number in range(FOREVER):
        if number == GOOD_STEPS:
            torch.cuda.synchronize()
            lengths["layers"] = 4000
            announce("settles")
        if in_trouble(number):
            TROUBLES["receive"]()
        dist.all_reduce(tensor)
        Layers.apply(hidden @ dense).sum().backward()


def mpi_buffers():
    """A job of MPI whose arrays are in the GPUs' memory: mpi4py and CuPy, without torch. The odd rank reads a file that does
    not come; the others wait for it in MPI_Allreduce."""
    import cupy
    from mpi4py import MPI
    world = MPI.COMM_WORLD
    cupy.cuda.Device(int(os.environ.get("OMPI_COMM_WORLD_LOCAL_RANK", rank())) % cupy.cuda.runtime.getDeviceCount()).use()
    gradient, total = cupy.ones(1 << 16, dtype=cupy.float32), cupy.empty(1 << 16, dtype=cupy.float32)
    for number in range(FOREVER):
        if number == GOOD_STEPS:
            announce("settles")
        if in_trouble(number):
            read_shard()
        gradient *= 0.5
        cupy.cuda.get_current_stream().synchronize()
        world.Allreduce(gradient, total)


def fails_in(trouble):
    """Training in which a kernel of the odd rank fails; the GPU leaves a core, and the driver then aborts the rank. The other
    rank goes on waiting in its all-reduce, and leaves no core."""
    torch, dist = connect()
    total = torch.zeros(1, device="cuda")
    for number in range(FOREVER):
        if number == GOOD_STEPS:
            announce("gone" if is_odd() else "settles")
        if in_trouble(number):
            trouble(torch)
        dist.all_reduce(total)
        torch.cuda.synchronize()


def core_illegal_address():
    """A kernel of the odd rank writes outside of all memory of its GPU."""
    def scatter(torch):
        source = 'extern "C" __global__ void scatter_rows(float* rows) { rows[(1ull << 40) + threadIdx.x] = 1; }'
        scatter_rows = torch.cuda._compile_kernel(source, "scatter_rows")
        scatter_rows(grid=(1, 1, 1), block=(32, 1, 1), args=[torch.zeros(32, device="cuda")])

    fails_in(scatter)


CASES = {"heartbeat-destroy": heartbeat_destroy, "heartbeat-store": heartbeat_store, "jax-mesh": jax_mesh,
         "jax-host-callback": jax_host_callback, "two-threads": two_threads, "two-replicas": two_replicas,
         "data-parallel": data_parallel, "inline-extension": inline_extension, "cublaslt-backward": cublaslt_backward,
         "mpi-buffers": mpi_buffers, "core-illegal-address": core_illegal_address}

if __name__ == "__main__":
    run(CASES)
