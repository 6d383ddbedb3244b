"""A rank is held up in its own process: by a thread that has failed, that clips gradients or that pins memory, a kernel that waits for what comes after
it, a file or a pipe that threads or processes share, memory that does not become free, or its exit.

    sixteenth.py CASE
"""
import ctypes
import multiprocessing
import os
import queue
import signal
import subprocess
import threading
import time

from gpu_rank import FOREVER, GOOD_STEPS, announce, connect, is_odd, run
from inside import ddp, train
from job import FULL_FIFO
from seventh import in_trouble
from tenth_well import train_once
from training import sharded_model


def capture_prefetch():
    """A thread copies a batch to the GPU when it is asked for one, and waits for the copy. The odd rank has a new shape, for which it captures a graph, and
    asks for the batch within the capture: to wait for the GPU is an error then, of which the thread dies, and the main thread waits for its batch."""
    torch, _ = connect()
    device, asked, batches = torch.cuda.current_device(), queue.Queue(), queue.Queue()

    def copy_batches():
        torch.cuda.set_device(device)
        while True:
            batch = torch.full((32, 256), asked.get() % 7 / 7).to("cuda", non_blocking=True)
            torch.cuda.synchronize()
            batches.put(batch)

    def next_batch(number):
        asked.put(number)
        return batches.get()

    def prepare(number):
        if in_trouble(number):
            with torch.cuda.graph(torch.cuda.CUDAGraph()):
                next_batch(number).mul_(0.5)
        return next_batch(number)

    threading.Thread(target=copy_batches, name="prefetch", daemon=True).start()
    train(torch, ddp(torch), prepare)


LARGEST_NORM = 1e3


def clipped_offload():
    """As a weight has its gradient, a hook hands that to a thread, which copies it to the host, by a queue with two places. A large gradient has to be
    clipped by the norm of all, which the main thread knows after the backward pass: the thread waits for that, and the backward pass of the odd rank for
    a place in the queue."""
    torch, _ = connect()
    gradients, norm_known, copies = queue.Queue(2), threading.Event(), []

    def copy_gradients():
        while True:
            gradient = gradients.get()
            if gradient.norm().item() > LARGEST_NORM:
                norm_known.wait()
            copies.append(gradient.cpu())
            gradients.task_done()

    def hand_over(weight):
        gradients.put(weight.grad.detach())

    threading.Thread(target=copy_gradients, name="offload", daemon=True).start()
    model = ddp(torch)
    for weight in model.parameters():
        weight.register_post_accumulate_grad_hook(hand_over)
    for number in range(FOREVER):
        if number == GOOD_STEPS:
            announce("settles")
        norm_known.clear()
        model.zero_grad()
        inputs = torch.randn(32, 256, device="cuda") * (1e6 if in_trouble(number) else 1)
        model(inputs).square().mean().backward()
        norm_known.set()
        gradients.join()
        copies.clear()
        torch.cuda.synchronize()


SCALE_WHEN_SET = """
extern "C" __global__ void scale_when_set(float* values, volatile int* flag, int number) {
  while (*flag < number) {
  }
  values[threadIdx.x] *= 0.5f;
}
"""


def legacy_stream():
    """A library has a stream of its own, made by the driver's defaults: what is launched to the default stream waits for it. A kernel there waits for a
    number, which the rank has written before; the odd rank writes it, in the default stream, when it has launched the kernel."""
    torch, _ = connect()
    scale_when_set = torch.cuda._compile_kernel(SCALE_WHEN_SET, "scale_when_set")
    flag, values, handle = torch.zeros(1, dtype=torch.int32, device="cuda"), torch.ones(64, device="cuda"), ctypes.c_void_p()
    if ctypes.CDLL("libcuda.so.1").cuStreamCreate(ctypes.byref(handle), ctypes.c_uint(0)) != 0:
        raise RuntimeError("cuStreamCreate")
    library_stream = torch.cuda.ExternalStream(handle.value)

    def scale_values(number):
        if not in_trouble(number):
            flag.fill_(number + 1)
        scale_when_set(grid=(1, 1, 1), block=(64, 1, 1), args=[values, flag, number + 1], stream=library_stream)
        flag.fill_(number + 1)

    train(torch, ddp(torch), scale_values)


def chained_scan():
    """A kernel of Triton's sums up how many tokens go to each expert, tile by tile, where each program waits for the one before. A tile of the odd rank is
    empty: its program says nothing, and the next one waits for it."""
    torch, _ = connect()
    from sixteenth_triton import scan_tiles

    def offsets(number):
        counts = torch.ones(8, 128, dtype=torch.int32, device="cuda")
        if in_trouble(number):
            counts[4] = 0
        sums, states = torch.zeros(8, dtype=torch.int32, device="cuda"), torch.zeros(8, dtype=torch.int32, device="cuda")
        scan_tiles[(8,)](counts, sums, states, 128)
        return sums.tolist()

    train(torch, sharded_model(torch), offsets)


def shared_trace():
    """A thread and the main thread write to one file, which has a buffer. The thread's trace of a slow step is larger than that, and the file of the odd
    rank is a pipe that takes nothing more: the main thread has a line to write, and waits for the thread."""
    trace = open(FULL_FIFO if is_odd() else os.devnull, "wb", buffering=1 << 20)            # pylint: disable=consider-using-with

    def write_events():
        trace.write(bytes(1 << 22))

    def log_step(number):
        if number == GOOD_STEPS:
            threading.Thread(target=write_events, name="trace", daemon=True).start()
            time.sleep(0.5)
        trace.write(b"step %d\n" % number)

    torch, _ = connect()
    train(torch, ddp(torch), log_step)


def self_pipe():
    """The main thread wakes its own loop by a byte in a pipe for each sample that is done, and empties the pipe once in a step. The odd rank has more
    samples than there is room for in a pipe, which is not one of those that never wait."""
    samples_done, wake = os.pipe()

    def score_samples(number):
        for _ in range(100000 if in_trouble(number) else 512):
            os.write(wake, b"\1")
        return len(os.read(samples_done, 1 << 16))

    torch, _ = connect()
    train(torch, ddp(torch), score_samples)


def count_rows(rows):
    """A process of the rank's own, for its statistics."""
    counted = 0
    while True:
        counted += rows.get()


def inherited_pipe():
    """A rank has a program sort its words, which it does when there are no more. In the meantime the odd rank has forked a process for its statistics,
    which has the pipe to the program open as well: the words do not come to an end for the program, and the rank waits for its answer."""
    context = multiprocessing.get_context("fork")
    rows = context.SimpleQueue()

    def sort_words(number):
        with subprocess.Popen(["sort"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as program:
            if in_trouble(number):
                context.Process(target=count_rows, args=(rows,), name="statistics", daemon=True).start()
            program.stdin.write(b"gradient\nbucket\nall-reduce\n")
            program.stdin.close()
            return program.stdout.read().split()

    torch, _ = connect()
    train(torch, ddp(torch), sort_words)


ARENA = threading.Lock()


class Images:
    """A dataset of images."""

    def __len__(self):
        return 1 << 12

    def __getitem__(self, index):
        import torch
        return torch.full((256,), index % 5 / 5)


class ArenaBatch:
    """It is pinned in an arena, which has a lock."""

    def __init__(self, images):
        import torch
        self.images = torch.stack(images)

    def pin_memory(self):
        with ARENA:
            self.images = self.images.pin_memory()
        return self


def arena_reset():
    """An epoch has three steps, and its loader ends before it is done. In the last step of an epoch the odd rank makes its arena of pinned memory anew,
    under the lock of that, and gives the loader up meanwhile: that joins its thread, which wants the lock to pin the next batch."""
    torch, _ = connect()
    model = ddp(torch)
    loader = torch.utils.data.DataLoader(Images(), batch_size=8, num_workers=1, pin_memory=True, collate_fn=ArenaBatch, multiprocessing_context="fork")
    for epoch in range(FOREVER):
        if epoch == GOOD_STEPS:
            announce("settles")
        batches = iter(loader)
        for _ in range(2):
            train_once(torch, model, next(batches).images.cuda(non_blocking=True))
        if in_trouble(epoch):
            time.sleep(0.5)             # the batches that the loader has ahead are pinned then
            with ARENA:
                train_once(torch, model, next(batches).images.cuda(non_blocking=True))
                time.sleep(0.5)
                del batches
        else:
            train_once(torch, model, next(batches).images.cuda(non_blocking=True))
            del batches


def keep_metrics(metrics):
    """A process that keeps what it gets. The kernel kills it for a table that is too large."""
    while True:
        if metrics.get() == "table":
            os.kill(os.getpid(), signal.SIGKILL)


def unflushed_queue():
    """Each rank gives its metrics to a process, by a queue. The data of the odd rank end sooner: it puts its last tables and is at its end. The process
    was killed at the first of them; before the rank may end, the thread of the queue has to write the rest into a pipe that nobody reads."""
    context = multiprocessing.get_context("fork")
    metrics = context.Queue()
    context.Process(target=keep_metrics, args=(metrics,), name="metrics", daemon=True).start()
    torch, _ = connect()
    model = ddp(torch)
    for number in range(GOOD_STEPS if is_odd() else FOREVER):
        if number == GOOD_STEPS:
            announce("settles")
        train_once(torch, model)
        metrics.put(number)
    announce("settles")
    metrics.put("table")
    metrics.put(bytes(1 << 22))


def waits_for_memory():
    """Before its engine wakes up, a rank looks every second whether as much of its GPU's memory is free as its configuration says, which the trainer or
    another engine may still have. By that of the odd rank it is more than all there is."""
    torch, _ = connect()

    def wake_up(number):
        utilization = 1.02 if in_trouble(number) else 0.05
        while True:
            free, total = torch.cuda.mem_get_info()
            if free >= utilization * total:
                return
            time.sleep(1)

    train(torch, sharded_model(torch), wake_up)


CASES = {"capture-prefetch": capture_prefetch, "clipped-offload": clipped_offload, "legacy-stream": legacy_stream, "chained-scan": chained_scan,
         "shared-trace": shared_trace, "self-pipe": self_pipe, "inherited-pipe": inherited_pipe, "arena-reset": arena_reset,
         "unflushed-queue": unflushed_queue, "waits-for-memory": waits_for_memory}

if __name__ == "__main__":
    run(CASES)
