"""After incidents that users have reported: one rank is held up in its own process, by its GPU, a thread, a server, its data, an exception.

    field.py CASE
"""
import ctypes
import gc
import mmap
import multiprocessing
import os
import pdb
import queue
import signal
import struct
import subprocess
import sys
import threading
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor

from gpu_rank import FOREVER, GOOD_STEPS, announce, connect, device_index, is_odd, meet, rank, run, world
from inside import ddp, read_shard, train
from job import SILENT_FIFO, connect_to_silent_server


def at_last_step(torch, trouble):
    """Trains with DDP, until the odd rank runs into the trouble."""
    train(torch, ddp(torch), lambda number: trouble() if is_odd() and number == GOOD_STEPS else None)


def triton_lock():
    """Blocks of a kernel add up under a lock in the GPU's memory, which a kernel before has not released."""
    torch, _ = connect()
    from triton_kernels import add_under_lock
    lock, total = torch.zeros(1, dtype=torch.int32, device="cuda"), torch.zeros(1, device="cuda")
    add_under_lock[(4,)](lock, total, 0.5)
    torch.cuda.synchronize()

    def add_norms():
        lock.fill_(1)
        add_under_lock[(4,)](lock, total, 0.5)
        total.item()

    at_last_step(torch, add_norms)


def cupy_kernel(name, source):
    """A kernel that is compiled already."""
    import cupy
    cupy.cuda.Device(device_index()).use()
    kernel = cupy.RawKernel(source, name)
    kernel.compile()
    return kernel


def address_of(tensor):
    import numpy
    return numpy.uint64(tensor.data_ptr())


def mapped_flag():
    """A kernel polls a number in the host's memory, which a thread writes once a server has sent the cache."""
    torch, _ = connect()
    wait_for_cache = cupy_kernel("wait_for_cache", 'extern "C" __global__ void wait_for_cache(volatile int* ready) { while (*ready == 0) {} }')

    def attend():
        ready = torch.zeros(1, dtype=torch.int32).pin_memory()

        def receive_cache():
            connect_to_silent_server().recv(1)
            ready.fill_(1)

        threading.Thread(target=receive_cache, name="cache-transfer", daemon=True).start()
        wait_for_cache((1,), (32,), (address_of(ready),))
        torch.cuda.synchronize()

    at_last_step(torch, attend)


GRID_BARRIER = r"""
extern "C" __global__ void norm_of_blocks(int* arrived, float* out, int empty_block) {
    if ((int)blockIdx.x == empty_block) return;
    if (threadIdx.x == 0) {
        atomicAdd(arrived, 1);
        while (atomicAdd(arrived, 0) < (int)gridDim.x) {}
    }
    __syncthreads();
    out[blockIdx.x] = 1;
}
"""


def grid_barrier():
    """The blocks of a kernel meet in a barrier of its own; a block that has nothing to do returns before."""
    torch, _ = connect()
    import numpy
    norm_of_blocks = cupy_kernel("norm_of_blocks", GRID_BARRIER)

    def log_norm():
        arrived, out = torch.zeros(1, dtype=torch.int32, device="cuda"), torch.zeros(8, device="cuda")
        norm_of_blocks((8,), (64,), (address_of(arrived), address_of(out), numpy.int32(3)))
        out.sum().item()

    at_last_step(torch, log_norm)


def prefetch_stream():
    """The next batch is prepared on a stream of its own, by a kernel that does not end; the training's stream waits for it."""
    torch, _ = connect()
    stream = torch.cuda.Stream()

    def prefetch():
        with torch.cuda.stream(stream):
            torch.cuda._sleep(1 << 46)
        torch.cuda.current_stream().wait_stream(stream)

    at_last_step(torch, prefetch)


def host_function():
    """A stream calls a function on the host that reads the file of an index; the rank waits for the copy behind it."""
    torch, _ = connect()

    @ctypes.CFUNCTYPE(None, ctypes.c_void_p)
    def look_up(_):
        read_shard()

    def copy_batch():
        stream = torch.cuda.Stream()
        if ctypes.CDLL("libcuda.so.1").cuLaunchHostFunc(ctypes.c_void_p(stream.cuda_stream), look_up, None) != 0:
            raise RuntimeError("cuLaunchHostFunc")
        with torch.cuda.stream(stream):
            batch = torch.ones(1 << 20, pin_memory=True).to("cuda", non_blocking=True)
        copied = torch.cuda.Event()
        copied.record(stream)
        copied.synchronize()
        return batch

    at_last_step(torch, copy_batch)


class Staging:
    """A buffer, part of a cycle, that is given back once the GPU is done with it."""

    def __init__(self, torch):
        self.torch, self.itself = torch, self

    def __del__(self):
        self.torch.cuda.synchronize()


def finalizer_sync():
    """The innocent rank's collector finds a buffer, whose finalizer waits for an all-reduce, which waits for the odd rank."""
    torch, dist = connect()
    tensor = torch.ones(1 << 20, device="cuda")
    gc.disable()
    for number in range(FOREVER):
        if number == GOOD_STEPS:
            meet("receive")
        dist.all_reduce(tensor)
        tensor.div_(world())
        Staging(torch)
        gc.collect()


def coalesced():
    """The weights of a layer are gathered by one launch; the odd rank waits for a lock."""
    torch, dist = connect()
    shards = [torch.ones(1 << 20, device="cuda") for _ in range(4)]
    weights = [torch.empty(world() << 20, device="cuda") for _ in shards]
    for number in range(FOREVER):
        if number == GOOD_STEPS:
            meet("lock")
        with dist._coalescing_manager(async_ops=True) as gathering:
            for weight, shard in zip(weights, shards):
                dist.all_gather_into_tensor(weight, shard)
        gathering.wait()
        torch.cuda.synchronize()


def waiting_thread():
    """Gradients are reduced asynchronously, and a thread waits for that; the main thread waits for the thread."""
    torch, dist = connect()
    gradient = torch.ones(1 << 20, device="cuda")
    waiters = ThreadPoolExecutor(1, thread_name_prefix="gradients", initializer=torch.cuda.set_device, initargs=(device_index(),))

    def finish(work):
        work.wait()
        return gradient.div_(world()).sum().item()

    for number in range(FOREVER):
        if number == GOOD_STEPS:
            meet("subprocess")
        waiters.submit(finish, dist.all_reduce(gradient, async_op=True)).result()


def memory_retry():
    """The odd rank runs out of memory, and tries again, for ever."""
    torch, _ = connect()

    def allocate_cache():
        while True:
            try:
                return torch.empty(1 << 50, device="cuda")
            except torch.OutOfMemoryError:
                torch.cuda.empty_cache()
                time.sleep(1)

    at_last_step(torch, allocate_cache)


def post_mortem():
    """The odd rank raises; its script opens a debugger, which asks a terminal that nobody looks at."""
    torch, _ = connect()

    def check_loss():
        raise FloatingPointError("loss is NaN")

    try:
        at_last_step(torch, check_loss)
    except FloatingPointError:
        pdb.post_mortem()


def reward_thread():
    """A thread computes the rewards. That of the odd rank calls sys.exit(), which ends the thread alone, without a word."""
    torch, _ = connect()
    samples, rewards = queue.Queue(), queue.Queue()

    def compute_rewards():
        while True:
            sample = samples.get()
            if sample < 0:
                sys.exit("no reward for %d" % sample)
            rewards.put(1.0)

    threading.Thread(target=compute_rewards, name="rewards", daemon=True).start()

    def ask(number):
        samples.put(-1 if is_odd() and number == GOOD_STEPS else number)
        return rewards.get()

    train(torch, ddp(torch), ask)


def reward_server():
    """Rewards are asked from a server over HTTP, by some threads at a time. That of the odd rank does not answer."""
    torch, _ = connect()
    clients = ThreadPoolExecutor(4, thread_name_prefix="reward-client")

    def score(answer):
        with urllib.request.urlopen("http://127.0.0.1:%s/score?answer=%d" % (os.environ["HANGS_PORT"], answer)) as response:
            return response.read()

    at_last_step(torch, lambda: list(clients.map(score, range(4))))


def tokenize(number):
    """In a worker of the pool. The kernel kills a process when the machine has no memory left."""
    if number < 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return number * number


def pool_killed():
    """A pool of processes tokenizes. One that has a task is killed; the pool starts another one, and the task is lost."""
    pool = multiprocessing.get_context("fork").Pool(2)
    torch, _ = connect()
    train(torch, ddp(torch), lambda number: pool.map(tokenize, [number, -1 if is_odd() and number == GOOD_STEPS else 1], chunksize=1))


class Videos:
    """Decoded by a program, in a worker of the loader."""

    def __len__(self):
        return 1 << 12

    def __getitem__(self, index):
        import torch
        if is_odd() and index == 8 * GOOD_STEPS:
            self.decode()
        return torch.full((256,), float(index))

    def decode(self):
        return subprocess.check_output(["cat", SILENT_FIFO])


def decoder():
    torch, _ = connect()
    batches = torch.utils.data.DataLoader(Videos(), batch_size=8, num_workers=2, prefetch_factor=1, multiprocessing_context="fork")
    model = ddp(torch)
    for number, inputs in enumerate(batches):
        if number == GOOD_STEPS - 1:
            announce("settles")
        model(inputs.cuda()).square().mean().backward()
        torch.cuda.synchronize()


def shards_end():
    """The odd rank has no more shards, leaves its loop and ends; the others have more
    (github.com/webdataset/webdataset/issues/188)."""
    torch, dist = connect()
    gradient = torch.ones(1 << 20, device="cuda")
    for number in range(FOREVER):
        if number == GOOD_STEPS:
            announce("gone" if is_odd() else "settles")
            if is_odd():
                os._exit(0)
        dist.all_reduce(gradient)
        gradient.div_(world()).sum().item()


def endless_rollout():
    """Ranks generate until the end token comes, each on its own, and then agree. The odd rank's model never says it.
    After github.com/verl-project/verl/issues/3908."""
    torch, dist = connect()
    weights, finished = torch.randn(256, 256, device="cuda"), torch.ones(1, device="cuda")

    def generate(ends):
        state, count = torch.randn(1, 256, device="cuda"), 0
        while True:
            state, count = torch.tanh(state @ weights), count + 1
            token = int(state.argmax().item())
            if ends and count + token % 2 >= 50:
                return count

    for number in range(FOREVER):
        if number == GOOD_STEPS:
            announce("settles")
        generate(not (is_odd() and number == GOOD_STEPS))
        dist.all_reduce(finished)
        finished.div_(world()).item()


class Board:
    """A page of shared memory: rank 0 writes the number of the step that the others may take, and these poll it."""

    def __init__(self):
        path = os.path.join(os.environ["HANGS_DIRECTORY"], "board")
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        os.ftruncate(descriptor, mmap.PAGESIZE)
        self.page = mmap.mmap(descriptor, mmap.PAGESIZE)
        os.close(descriptor)

    def enqueue(self, step):
        self.page[:8] = struct.pack("q", step)

    def dequeue(self, step):
        while struct.unpack("q", self.page[:8])[0] < step:
            os.sched_yield()


def shared_memory_engine():
    """An engine: rank 0 hands out the steps over shared memory. For a request it fetches the cache of its prefix from a server, which is silent;
    the workers poll the shared memory. After github.com/vllm-project/vllm/issues/7454."""
    torch, dist = connect()
    board, hidden = Board(), torch.ones(1 << 16, device="cuda")

    def fetch_prefix():
        connect_to_silent_server().recv(1)

    for step in range(1, FOREVER):
        if step == GOOD_STEPS:
            announce("settles")
        if rank() == 0:
            if step == GOOD_STEPS:
                fetch_prefix()
            board.enqueue(step)
        else:
            board.dequeue(step)
        dist.all_reduce(hidden)
        hidden.div_(world()).sum().item()


CASES = {"triton-lock": triton_lock, "mapped-flag": mapped_flag, "grid-barrier": grid_barrier, "prefetch-stream": prefetch_stream,
         "host-function": host_function, "finalizer-sync": finalizer_sync, "coalesced": coalesced, "waiting-thread": waiting_thread,
         "memory-retry": memory_retry, "post-mortem": post_mortem, "reward-thread": reward_thread, "reward-server": reward_server,
         "pool-killed": pool_killed, "decoder": decoder, "shards-end": shards_end, "endless-rollout": endless_rollout,
         "shared-memory-engine": shared_memory_engine}

if __name__ == "__main__":
    run(CASES)
