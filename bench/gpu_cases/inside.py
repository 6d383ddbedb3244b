"""One rank is held up by something in its own process: a thread, a lock, a stream of its GPU, a compiler, its data, its exit.

    inside.py CASE
"""
import ctypes
import gc
import logging
import logging.handlers
import multiprocessing
import os
import queue
import signal
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from gpu_rank import FOREVER, GOOD_STEPS, announce, connect, is_odd, run
from job import SILENT_FIFO, connect_to_silent_server
from training import model_of


def train(torch, model, before_step):
    """Trains for ever, with before_step(number) before each step; every rank announces itself once its good steps are done."""
    for number in range(FOREVER):
        if number == GOOD_STEPS:
            announce("settles")
        before_step(number)
        model(torch.randn(32, 256, device="cuda")).square().mean().backward()
        torch.cuda.synchronize()


def ddp(torch, *layers):
    return torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(model_of(torch), *layers))


def train_into(trouble):
    """The odd rank runs into the trouble between two steps of DDP."""
    torch, _ = connect()
    train(torch, ddp(torch), lambda number: trouble(torch) if is_odd() and number == GOOD_STEPS else None)


def read_shard():
    with open(SILENT_FIFO, "rb", buffering=0) as shard:
        return shard.read(4096)


def offload():
    """A thread copies activations to the host; the backward pass fetches them from there. The odd rank's thread fails, and nobody hears of it."""
    torch, _ = connect()
    to_copy, state = queue.Queue(), {"fails": False}

    class Offloaded:
        def __init__(self, tensor):
            self.tensor, self.host, self.ready = tensor, None, threading.Event()
            to_copy.put(self)

        def fetch(self):
            self.ready.wait()
            return self.host.cuda()

    def copy_to_host():
        while True:
            activation = to_copy.get()
            if state["fails"]:
                raise MemoryError("no pinned memory is left")
            activation.host, activation.tensor = activation.tensor.cpu(), None
            activation.ready.set()

    def fail(number):
        state["fails"] = is_odd() and number == GOOD_STEPS

    threading.Thread(target=copy_to_host, name="offload", daemon=True).start()
    model = ddp(torch)
    with torch.autograd.graph.saved_tensors_hooks(Offloaded, Offloaded.fetch):
        train(torch, model, fail)


def host_callback():
    """A function that a stream calls on the host wants the lock that the main thread holds while it waits for the stream."""
    guard, losses = threading.Lock(), []

    @ctypes.CFUNCTYPE(None, ctypes.c_void_p)
    def note_loss(_):
        with guard:
            losses.append(time.time())

    def flush_losses(torch):
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        with guard:
            if ctypes.CDLL("libcuda.so.1").cuLaunchHostFunc(stream, note_loss, None) != 0:
                raise RuntimeError("cuLaunchHostFunc")
            torch.cuda.synchronize()

    train_into(flush_losses)


def stream_flag():
    """A stream waits for a number in memory that its producer never writes: no kernel runs."""
    def wait_for_producer(torch):
        flag = torch.zeros(1, dtype=torch.int32, device="cuda")
        torch.cuda.synchronize()
        stream = torch.cuda.Stream()
        handle = ctypes.c_void_p(stream.cuda_stream)
        if ctypes.CDLL("libcuda.so.1").cuStreamWaitValue32_v2(handle, ctypes.c_uint64(flag.data_ptr()), ctypes.c_uint32(1), ctypes.c_uint(0)) != 0:
            raise RuntimeError("cuStreamWaitValue32")
        torch.cuda.synchronize()

    train_into(wait_for_producer)


def remote_gradients():
    """The backward pass of a layer takes its gradient from a queue that a thread fills from a server, until that falls silent."""
    torch, _ = connect()
    asked, answers = queue.Queue(), queue.Queue()

    def ask_server():
        while True:
            if asked.get() == "remote":
                connect_to_silent_server().recv(1)
            answers.put(1.0)

    threading.Thread(target=ask_server, name="gradients", daemon=True).start()
    state = {"server": "local"}

    class Remote(torch.autograd.Function):
        @staticmethod
        def forward(ctx, inputs):
            return inputs.clone()

        @staticmethod
        def backward(ctx, gradient):
            asked.put(state["server"])
            return gradient * answers.get()

    class Layer(torch.nn.Module):
        def forward(self, inputs):
            return Remote.apply(inputs)

    def go_remote(number):
        state["server"] = "remote" if is_odd() and number == GOOD_STEPS else "local"

    train(torch, ddp(torch, Layer()), go_remote)


def feeder_killed():
    """Batches come from a process of the rank's own, which is killed when the machine has no memory left."""
    batches = multiprocessing.get_context("fork").SimpleQueue()

    def produce():
        for number in range(FOREVER):
            if is_odd() and number == GOOD_STEPS:
                os.kill(os.getpid(), signal.SIGKILL)
            batches.put(number)

    multiprocessing.get_context("fork").Process(target=produce, name="feeder", daemon=True).start()
    torch, _ = connect()
    train(torch, ddp(torch), lambda number: batches.get())


def fork_lock():
    """The odd rank's loader forks its workers while a thread holds the lock of the vocabulary: in the workers it is held for ever."""
    torch, _ = connect()
    vocabulary = threading.Lock()

    class Words:
        def __len__(self):
            return 8 * GOOD_STEPS

        def __getitem__(self, index):
            with vocabulary:
                return torch.full((256,), float(index))

    def reload_vocabulary():
        with vocabulary:
            time.sleep(2)

    model = ddp(torch)
    loader = torch.utils.data.DataLoader(Words(), batch_size=8, num_workers=2, multiprocessing_context="fork")
    for epoch in range(FOREVER):
        if epoch == 1:
            if is_odd():
                threading.Thread(target=reload_vocabulary).start()
                while not vocabulary.locked():
                    time.sleep(0.01)
            announce("settles")
        for inputs in loader:
            model(inputs.cuda()).square().mean().backward()
            torch.cuda.synchronize()


class Batch:
    """A batch that has a way of its own to be pinned."""

    def __init__(self, items):
        import torch
        self.inputs = torch.stack(items)

    def pin_memory(self):
        if is_odd() and self.inputs[0, 0] == 8 * GOOD_STEPS:
            connect_to_silent_server().recv(1)
        self.inputs = self.inputs.pin_memory()
        return self


def pin_memory():
    """The thread that pins batches asks a server that does not answer."""
    torch, _ = connect()
    items = [torch.full((256,), float(index)) for index in range(1 << 12)]
    batches = iter(torch.utils.data.DataLoader(items, batch_size=8, num_workers=2, pin_memory=True, persistent_workers=True, collate_fn=Batch,
                                               multiprocessing_context="fork"))
    model = ddp(torch)
    for number in range(FOREVER):
        if number == GOOD_STEPS:
            announce("settles")
        model(next(batches).inputs.cuda(non_blocking=True)).square().mean().backward()
        torch.cuda.synchronize()


def prefetch_died():
    """A thread prefetches batches. The odd rank's meets a record that it cannot parse, prints that and is gone."""
    batches = queue.Queue(maxsize=2)

    def prefetch():
        for number in range(FOREVER):
            record = "%d" % number if not is_odd() or number < GOOD_STEPS else "<<<<<<< HEAD"
            batches.put(int(record))

    threading.Thread(target=prefetch, name="prefetch", daemon=True).start()
    torch, _ = connect()

    def next_batch(_):
        return batches.get()

    train(torch, ddp(torch), next_batch)


def log_lock():
    """A thread posts a warning to a server of logs that does not answer, and keeps the handler's lock; the main thread has something to log too."""
    logger = logging.getLogger("train")
    logger.setLevel(logging.INFO)

    def log_step(number):
        if is_odd() and number == GOOD_STEPS:
            logger.addHandler(logging.handlers.HTTPHandler("127.0.0.1:" + os.environ["HANGS_PORT"], "/log", method="POST"))
            threading.Thread(target=logger.warning, args=("GPU is hot",), name="monitor", daemon=True).start()
            time.sleep(0.5)
        logger.info("step %d", number)

    torch, _ = connect()
    train(torch, ddp(torch), log_step)


def tool():
    """A pipe of programs counts the bytes of a shard."""
    def count_bytes(torch):
        return int(subprocess.check_output("cat '%s' | wc -c" % SILENT_FIFO, shell=True))

    train_into(count_bytes)


def stale_build_lock():
    """An extension is built under a lock, a file that a job which was killed has left behind."""
    def load_extension(torch):
        from torch.utils import cpp_extension
        directory = os.path.join(os.environ["HANGS_DIRECTORY"], "fused_ops")
        os.mkdir(directory)
        for name, text in (("lock", ""), ("fused_ops.cpp", "#include <torch/extension.h>\n")):
            with open(os.path.join(directory, name), "w", encoding="utf-8") as out:
                out.write(text)
        cpp_extension.load("fused_ops", [os.path.join(directory, "fused_ops.cpp")], build_directory=directory)

    train_into(load_extension)


def triton_compiler():
    """Triton calls a C compiler for what launches a kernel, and that does not come back."""
    def scale_gradients(torch):
        directory = os.environ["HANGS_DIRECTORY"]
        compiler = os.path.join(directory, "gcc-13")
        with open(compiler, "w", encoding="utf-8") as out:
            out.write("#!/bin/sh\ncat '%s'\n" % SILENT_FIFO)
        os.chmod(compiler, 0o755)
        os.environ.update(CC=compiler, TRITON_CACHE_DIR=os.path.join(directory, "triton"))
        from triton_kernels import scale
        scale[(1,)](torch.ones(128, device="cuda"), 0.5, 128)
        torch.cuda.synchronize()

    train_into(scale_gradients)


class Session:
    """A session with a tracking server, which is notified when it ends."""

    def __init__(self):
        self.connection, self.myself = connect_to_silent_server(), self

    def __del__(self):
        self.connection.sendall(b"bye")
        self.connection.recv(1)


def finalizer():
    """The collector is called every few steps, and finds a session to end."""
    def collect(_):
        Session()
        gc.collect()

    gc.disable()
    train_into(collect)


def breakpoint_in_backward():
    """Somebody has left a breakpoint in a backward pass; autograd's thread is in it."""
    torch, _ = connect()
    state = {"step": 0}

    class Clip(torch.autograd.Function):
        @staticmethod
        def forward(ctx, inputs):
            return inputs.clone()

        @staticmethod
        def backward(ctx, gradient):
            if is_odd() and state["step"] == GOOD_STEPS:
                breakpoint()  # pylint: disable=forgotten-debug-statement
            return gradient.clamp(-1, 1)

    class Layer(torch.nn.Module):
        def forward(self, inputs):
            return Clip.apply(inputs)

    train(torch, ddp(torch, Layer()), lambda number: state.update(step=number))


def exit_joins():
    """The odd rank raises; at its exit the interpreter joins the thread of an executor, which reads a shard."""
    def prefetch_and_raise(torch):
        ThreadPoolExecutor(1, thread_name_prefix="shards").submit(read_shard)
        raise ValueError("the shards have different schemas")

    train_into(prefetch_and_raise)


def ema_locks():
    """The average of the weights is updated under a lock. Main thread and evaluation take the locks of weights and average in different orders."""
    weights, average = threading.Lock(), threading.Lock()
    both = threading.Barrier(2)

    def evaluate():
        with average:
            both.wait()
            with weights:
                pass

    def update_average(torch):
        threading.Thread(target=evaluate, name="evaluation", daemon=True).start()
        with weights:
            both.wait()
            with average:
                pass

    train_into(update_average)


def checkpoint():
    """torch.distributed.checkpoint. The file of the odd rank is a pipe that nobody reads; the others wait for its result."""
    torch, _ = connect()
    import torch.distributed.checkpoint as dcp
    model = ddp(torch)
    directory = os.path.join(os.environ["HANGS_DIRECTORY"], "step-%d")

    def save(number):
        path = directory % number
        os.makedirs(path, exist_ok=True)
        if number == GOOD_STEPS - 1:
            announce("settles")
            if is_odd():
                os.mkfifo(os.path.join(path, "__%s_0.distcp" % os.environ["RANK"]))
        dcp.save({"model": {"of rank " + os.environ["RANK"]: model.module[0][0].weight}}, checkpoint_id=path)

    for number in range(FOREVER):
        model(torch.randn(32, 256, device="cuda")).square().mean().backward()
        torch.cuda.synchronize()
        save(number)


def jax_callback():
    """A computation calls Python on the host, which reads a table."""
    import jax_job
    jax = jax_job.connect()
    step, values = jax_job.summing(jax)
    for _ in range(GOOD_STEPS):
        step(values).block_until_ready()
    announce("settles")
    if is_odd():
        def look_up(x):
            read_shard()
            return x

        shape = jax.ShapeDtypeStruct((4,), "float32")
        jax.jit(lambda x: jax.pure_callback(look_up, shape, x) * 2)(jax.numpy.ones(4)).block_until_ready()
    step(values).block_until_ready()


CASES = {"offload": offload, "host-callback": host_callback, "stream-flag": stream_flag, "remote-gradients": remote_gradients,
         "feeder-killed": feeder_killed, "fork-lock": fork_lock, "pin-memory": pin_memory, "prefetch-died": prefetch_died, "log-lock": log_lock, "tool": tool,
         "stale-build-lock": stale_build_lock, "triton-compiler": triton_compiler, "finalizer": finalizer, "breakpoint": breakpoint_in_backward,
         "exit-joins": exit_joins, "ema-locks": ema_locks, "checkpoint": checkpoint, "jax-callback": jax_callback}

if __name__ == "__main__":
    run(CASES)
