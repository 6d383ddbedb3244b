"""A rank is held up in its own process: by barriers within a kernel, a socket that is full, reads of which one is missing, a lock that a library looks at,
a lock of its event loop, a program or a server of processes that do not end or begin, the loader of libraries, or a batch that it asks for again and again;
or the kernels of all ranks do not end.

    seventeenth.py CASE
"""
import asyncio
import ctypes
import multiprocessing
import os
import queue
import socket
import struct
import subprocess
import threading
import time

from gpu_rank import FOREVER, GOOD_STEPS, announce, connect, is_odd, rank, run
from inside import ddp, train
from job import UNOPENED_FIFO, connect_to_silent_server
from seventh import in_trouble
from tenth import serve_in_background
from tenth_well import train_once
from training import sharded_model
from twelfth import train_accumulated

PASS_TILES = """
extern "C" __device__ void wait_for(unsigned barrier, unsigned parity) {
  unsigned done = 0;
  while (!done) {
    asm volatile("{ .reg .pred p; mbarrier.test_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                 : "=r"(done) : "r"(barrier), "r"(parity) : "memory");
  }
}

extern "C" __device__ void arrive_at(unsigned barrier) {
  asm volatile("{ .reg .b64 state; mbarrier.arrive.shared.b64 state, [%0]; }" : : "r"(barrier) : "memory");
}

// One warp puts tiles into shared memory, and one adds them up. `readers`: how many threads have to have read a tile before the next one comes.
extern "C" __global__ void pass_tiles(float* sums, const float* values, int tiles, int readers) {
  __shared__ unsigned long long barriers[2];
  __shared__ float tile[32];
  unsigned filled = (unsigned)__cvta_generic_to_shared(&barriers[0]), freed = (unsigned)__cvta_generic_to_shared(&barriers[1]);
  int lane = threadIdx.x % 32;
  if (threadIdx.x == 0) {
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" : : "r"(filled), "r"(32) : "memory");
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" : : "r"(freed), "r"(readers) : "memory");
  }
  __syncthreads();
  for (int number = 0; number < tiles; number++) {
    if (threadIdx.x < 32) {
      if (number > 0) wait_for(freed, (number - 1) & 1);
      tile[lane] = values[number * 32 + lane];
      arrive_at(filled);
    } else {
      wait_for(filled, number & 1);
      sums[lane] += tile[lane];
      arrive_at(freed);
    }
  }
}
"""


def barrier_phase():
    """One warp of a kernel puts tiles into shared memory, and another one adds them up; each waits for the other one by a barrier in that memory. The odd
    rank has a setting for two warps that add up, where there is one: the phase of the barrier does not end, and the first warp waits for it."""
    torch, _ = connect()
    pass_tiles = torch.cuda._compile_kernel(PASS_TILES, "pass_tiles")
    values = torch.ones(256, device="cuda")

    def add_up(number):
        sums = torch.zeros(32, device="cuda")
        pass_tiles(grid=(1, 1, 1), block=(64, 1, 1), args=[sums, values, 8, 64 if in_trouble(number) else 32])
        return sums.sum().item()

    train(torch, ddp(torch), add_up)


def take_reports(listener):
    """An agent of the machine, which takes what a rank reports. That of the odd rank is stuck after some of them, and takes no connection any more."""
    for _ in range(GOOD_STEPS if is_odd() else FOREVER):
        connection, _ = listener.accept()
        with connection:
            while connection.recv(4096):
                pass
    time.sleep(FOREVER)


def full_backlog():
    """Before each step a rank reports to an agent of its machine, over a Unix socket, and does not wait for an answer. The agent of the odd rank takes no
    connection any more: some more wait until it does, and as there is no place for another one, the rank waits as it connects."""
    path = os.path.join(os.environ["HANGS_DIRECTORY"], "agent-of-rank-%d" % rank())
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(4)
    serve_in_background(lambda: take_reports(listener))
    listener.close()

    def report(number):
        with socket.socket(socket.AF_UNIX) as agent:
            agent.connect(path)
            agent.sendall(b"step %d\n" % number)

    torch, _ = connect()
    train(torch, ddp(torch), report)


BLOCK = 4096
IO_SETUP, IO_GETEVENTS, IO_SUBMIT = 206, 208, 209         # of Linux on x86-64


class BlockReader:
    """Reads blocks of a file by the kernel's asynchronous I/O: all are asked for at once, and waited for together."""

    def __init__(self, path, blocks):
        self.syscall, self.context = ctypes.CDLL(None, use_errno=True).syscall, ctypes.c_ulong(0)
        self.syscall.restype = ctypes.c_long
        self.file = os.open(path, os.O_RDONLY)
        self.memory, self.events = ctypes.create_string_buffer(blocks * BLOCK), ctypes.create_string_buffer(blocks * 32)
        self.blocks, self.requests = blocks, []
        self.call(IO_SETUP, ctypes.c_long(blocks), ctypes.byref(self.context))

    def call(self, number, *arguments):
        result = self.syscall(ctypes.c_long(number), *arguments)
        if result < 0:
            raise OSError(ctypes.get_errno(), "system call %d" % number)
        return result

    def submit(self, blocks):
        self.requests = [ctypes.create_string_buffer(struct.pack("<QIIHhIQQqQII", block, 0, 0, 0, 0, self.file, ctypes.addressof(self.memory) + block * BLOCK,
                                                                 BLOCK, block * BLOCK, 0, 0, 0), 64) for block in blocks]
        pointers = (ctypes.c_void_p * len(blocks))(*map(ctypes.addressof, self.requests))
        if self.call(IO_SUBMIT, self.context, ctypes.c_long(len(blocks)), pointers) != len(blocks):
            raise OSError("not all reads were taken")

    def wait(self, count):
        return self.call(IO_GETEVENTS, self.context, ctypes.c_long(count), ctypes.c_long(self.blocks), self.events, None)


def missing_read():
    """The optimizer's state is in a file, whose eight blocks a rank reads by the kernel's asynchronous I/O. The odd rank has one of them in memory still
    and does not ask for it; but it waits until eight have been read."""
    path = os.path.join(os.environ["HANGS_DIRECTORY"], "state-of-rank-%d" % rank())
    with open(path, "wb") as out:
        out.write(bytes(8 * BLOCK))
    reader = BlockReader(path, 8)

    def read_state(number):
        reader.submit(range(1 if in_trouble(number) else 0, 8))
        reader.wait(8)

    torch, _ = connect()
    train(torch, sharded_model(torch), read_state)


def shared_hub():
    """Models are in a cache that all jobs of the machine share, and each has a lock, by filelock: a library that looks twenty times a second whether it may
    have the lock of a file. The odd rank needs a model whose lock another job has, and does not give back."""
    from filelock import FileLock

    def load_adapter(number):
        name = "cache.lock" if in_trouble(number) else "adapter-of-rank-%d.lock" % rank()
        with FileLock(os.path.join(os.environ["HANGS_DIRECTORY"], name)):
            return number

    torch, _ = connect()
    train(torch, ddp(torch), load_adapter)


class SampleBuffer:
    """Samples for coroutines, under a lock of asyncio's."""

    def __init__(self):
        self.guard, self.samples = asyncio.Lock(), []

    async def refill(self):
        async with self.guard:
            await asyncio.sleep(0.01)
            self.samples += [0.5] * 8

    async def take(self, count):
        async with self.guard:
            if len(self.samples) < count:
                await self.refill()
            taken, self.samples = self.samples[:count], self.samples[count:]
            return taken


async def take_samples(count):
    buffer = SampleBuffer()
    await buffer.refill()
    return await buffer.take(count)


def refill_in_lock():
    """Before each step a rank takes samples from a buffer in its event loop, under a lock of asyncio's. The odd rank wants more than there are, and has the
    buffer filled, for which a coroutine takes that lock once more: nothing is left that would ever wake the loop up."""
    torch, _ = connect()
    train_accumulated(torch, ddp(torch), lambda number: asyncio.run(take_samples(16 if in_trouble(number) else 8)))


GRADER = """
if [ "$1" = keeps ]; then
    trap '' TERM
fi
echo graded
while :; do
    sleep 1
done
"""


def ignores_sigterm():
    """Before each step a rank starts a program that grades answers, reads its grade, asks it to end by a SIGTERM and waits for that. The program of the odd
    rank is writing its cache and ignores the signal, and nobody kills it."""
    def grade(number):
        with subprocess.Popen(["sh", "-c", GRADER, "grade", "keeps" if in_trouble(number) else "ends"], stdout=subprocess.PIPE) as grader:
            grader.stdout.readline()
            grader.terminate()
            grader.wait()

    torch, _ = connect()
    train(torch, sharded_model(torch), grade)


def evaluate(number):
    """In a process that the fork server has forked."""
    return number


def fork_server():
    """After some steps a rank has a process evaluate, by multiprocessing's fork server, which first imports what all of its processes need. On the odd rank
    that reads a table of words from a file that does not come: the server forks nothing, and the rank waits for the number of its process."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["seventeenth_preload"])

    def evaluate_apart(number):
        if number == GOOD_STEPS:
            process = context.Process(target=evaluate, args=(number,))
            process.start()
            process.join()

    torch, _ = connect()
    train(torch, ddp(torch), evaluate_apart)


def loader_lock():
    """A thread of the odd rank loads a plugin, a library on a file system that does not answer, and has the lock of the loader of libraries meanwhile. The
    main thread loads a library as well, one that it uses in each step, and waits for that lock."""
    load = ctypes.CDLL(None).dlopen

    def load_plugin():
        load(UNOPENED_FIFO.encode(), os.RTLD_NOW)

    def load_functions(number):
        if in_trouble(number):
            threading.Thread(target=load_plugin, name="plugins", daemon=True).start()
            time.sleep(0.5)
        ctypes.CDLL("libm.so.6")

    torch, _ = connect()
    train(torch, ddp(torch), load_functions)


def still_waiting():
    """A thread of a rank fetches batches, and the main thread says each second for how long it has waited for one, as long as there is none. For the odd
    rank's thread the server does not answer: the rank goes on to say so, for ever."""
    asked = queue.Queue()

    def fetch_batches():
        while True:
            number, batch, ready = asked.get()
            if in_trouble(number):
                server = connect_to_silent_server()
                server.sendall(b"batch %d\n" % number)
                batch += server.recv(4096)
            batch += bytes(16)
            ready.set()

    def next_batch(number):
        batch, ready, seconds = bytearray(), threading.Event(), 0
        asked.put((number, batch, ready))
        while not ready.wait(1.0):
            seconds += 1
            print("rank %d has waited for batch %d for %d s" % (rank(), number, seconds), flush=True)
        return batch

    torch, _ = connect()
    threading.Thread(target=fetch_batches, name="fetch", daemon=True).start()
    model = ddp(torch)
    for number in range(FOREVER):
        if number == GOOD_STEPS:
            announce("settles")
        next_batch(number)
        train_once(torch, model)


FIND_ROOTS = """
// Newton's method, until the error is less than the limit.
extern "C" __global__ void find_roots(float* roots, const float* values, const float* limit) {
  float value = values[threadIdx.x], root = value, error;
  do {
    root = 0.5f * (root + value / root);
    error = fabsf(root * root - value) / value;
  } while (!(error < *limit));
  roots[threadIdx.x] = root;
}
"""


def limit_of_all():
    """Each rank scales by roots that a kernel finds, up to a limit, which a schedule makes smaller. From some step on it is 0 for all ranks, and no error is
    less than that: no rank's kernel ends, and all are at the same place."""
    torch, _ = connect()
    find_roots = torch.cuda._compile_kernel(FIND_ROOTS, "find_roots")
    values = torch.arange(2, 66, device="cuda").float()

    def largest_root(number):
        roots, limit = torch.zeros(64, device="cuda"), torch.tensor([0.0 if number == GOOD_STEPS else 1e-3], device="cuda")
        find_roots(grid=(1, 1, 1), block=(64, 1, 1), args=[roots, values, limit])
        return roots.max().item()

    train(torch, ddp(torch), largest_root)


CASES = {"barrier-phase": barrier_phase, "full-backlog": full_backlog, "missing-read": missing_read, "shared-hub": shared_hub,
         "refill-in-lock": refill_in_lock, "ignores-sigterm": ignores_sigterm, "fork-server": fork_server, "loader-lock": loader_lock,
         "still-waiting": still_waiting, "limit-of-all": limit_of_all}

if __name__ == "__main__":
    run(CASES)
