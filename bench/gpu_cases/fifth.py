"""One rank is held up in its own process: by a thread that keeps the interpreter, a lock, a debugger, a pipe, its data, its GPU.

    fifth.py CASE
"""
import contextlib
import datetime
import os
import pdb
import queue
import re
import socket
import ssl
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from gpu_rank import FOREVER, GOOD_STEPS, announce, connect, device_index, is_odd, rank, run
from inside import ddp, train
from job import UNOPENED_FIFO, connect_to_silent_server


def unread_pipe(name):
    """The path of a pipe that is full, and that a process which is no part of the job has open and does not read."""
    path = os.path.join(os.environ["HANGS_DIRECTORY"], name)
    os.mkfifo(path)
    end = os.open(path, os.O_RDWR | os.O_NONBLOCK)
    with contextlib.suppress(BlockingIOError):
        while os.write(end, bytes(4096)):
            pass
    subprocess.run(["sh", "-c", "sleep %d &" % FOREVER], pass_fds=(end,), check=True)
    os.close(end)
    return path


SECRETS = re.compile(r"(?:[\w.-]+\s?)+=\s*\S+")


def redact_logs():
    """A thread removes what may be a secret from the lines of the log. For a line of the odd rank its expression is never done with that, and
    keeps the interpreter meanwhile."""
    lines = queue.Queue()

    def write_lines():
        while True:
            print(SECRETS.sub("***", lines.get()), flush=True)

    def log(number):
        lines.put("step=%d" % number)
        if is_odd() and number == GOOD_STEPS:
            lines.put("the largest gradient is that of model.decoder.layers.31.self_attention.linear_projection.weight, of 8192 x 8192")

    torch, _ = connect()
    threading.Thread(target=write_lines, name="log", daemon=True).start()
    train(torch, ddp(torch), log)


def reentrant():
    """The odd rank takes the lock of its statistics around a backward pass, in which a function counts under that lock again. A thread may do so;
    but the backward pass on the GPU is in autograd's thread."""
    torch, _ = connect()
    guard, seen = threading.RLock(), []

    class Count(torch.autograd.Function):
        @staticmethod
        def forward(ctx, inputs):
            return inputs.clone()

        @staticmethod
        def backward(ctx, gradient):
            with guard:
                seen.append(gradient.shape[0])
            return gradient

    class Counting(torch.nn.Module):
        def forward(self, inputs):
            return Count.apply(inputs)

    model = ddp(torch, Counting())
    for number in range(FOREVER):
        if number == GOOD_STEPS:
            announce("settles")
        loss = model(torch.randn(32, 256, device="cuda")).square().mean()
        with guard if is_odd() and number == GOOD_STEPS else contextlib.nullcontext():
            loss.backward()
        torch.cuda.synchronize()


class RemotePdb(pdb.Pdb):
    """A debugger for processes without a terminal: whoever wants to use it connects to its port."""

    def __init__(self):
        listener = socket.create_server(("127.0.0.1", 0))
        print("the debugger waits on port %d" % listener.getsockname()[1], flush=True)
        stream = listener.accept()[0].makefile("rw")
        super().__init__(stdin=stream, stdout=stream)


def open_debugger():
    RemotePdb().set_trace(sys._getframe(1))


def remote_debugger():
    """A breakpoint that was left in the code; nobody connects to its debugger."""
    def check(number):
        if is_odd() and number == GOOD_STEPS:
            breakpoint()  # pylint: disable=forgotten-debug-statement

    sys.breakpointhook = open_debugger
    torch, _ = connect()
    train(torch, ddp(torch), check)


def generate_batches(wanted, batches):
    """In a process of its own, on the rank's GPU."""
    import torch
    torch.cuda.set_device(device_index())
    while True:
        number = wanted.get()
        batch = torch.empty(32, 256, device="cuda")
        if is_odd() and number == GOOD_STEPS:
            torch.cuda._sleep(1 << 46)
        batch.normal_()
        batches.put(batch)


def shared_batches():
    """A process generates batches on the same GPU, and shares their memory with its rank, whose stream waits for an event of that process. The
    kernel before that event does not end."""
    torch, _ = connect()
    import torch.multiprocessing
    context, held = torch.multiprocessing.get_context("spawn"), []
    wanted, batches = context.Queue(), context.Queue()
    context.Process(target=generate_batches, args=(wanted, batches), name="generator", daemon=True).start()
    model = ddp(torch)
    for number in range(FOREVER):
        if number == GOOD_STEPS:
            announce("settles")
        wanted.put(number)
        held[:] = [batches.get()]
        model(held[0]).square().mean().backward()
        torch.cuda.synchronize()


def profiled():
    """Every other step is profiled. The odd rank's table goes into a pipe of a program that looks at such tables, and reads no more of them."""
    pipe, state = unread_pipe("tables") if is_odd() else None, {"step": 0}

    def write_table(profile):
        path = pipe if is_odd() and state["step"] == GOOD_STEPS else os.path.join(os.environ["HANGS_DIRECTORY"], "table.%d" % rank())
        with open(path, "w", encoding="utf-8") as out:
            out.write(profile.key_averages().table(row_limit=20))

    torch, _ = connect()
    profile = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], schedule=torch.profiler.schedule(wait=0, warmup=1, active=1),
                                     on_trace_ready=write_table)
    profile.start()

    def next_step(number):
        state["step"] = number
        profile.step()

    train(torch, ddp(torch), next_step)


def nccl_log():
    """NCCL of the odd rank prints what it does, into a pipe whose reader does not read: it does not come to its first communicator."""
    if is_odd():
        os.environ.update(NCCL_DEBUG="INFO", NCCL_DEBUG_FILE=unread_pipe("collected-logs"))
    import torch
    import torch.distributed as dist
    torch.cuda.set_device(device_index())
    tensor = torch.ones(8, device="cuda")
    dist.init_process_group("nccl", timeout=datetime.timedelta(hours=8))
    announce("settles")
    dist.all_reduce(tensor)
    torch.cuda.synchronize()


class Shards:
    """A dataset of one short epoch."""

    def __len__(self):
        return 8 * GOOD_STEPS

    def __getitem__(self, index):
        import torch
        return torch.full((256,), float(index))


def epoch_workers():
    """Each epoch has workers of its own, which read a configuration before they begin. That of the odd rank's second epoch is on a file system
    that does not answer."""
    torch, _ = connect()
    model, state = ddp(torch), {"epoch": 0}

    def read_configuration(worker):
        with open(UNOPENED_FIFO if is_odd() and state["epoch"] == 1 else os.devnull, "rb") as stream:
            stream.read()

    loader = torch.utils.data.DataLoader(Shards(), batch_size=8, num_workers=1, worker_init_fn=read_configuration, multiprocessing_context="fork")
    for epoch in range(FOREVER):
        state["epoch"] = epoch
        if epoch == 1:
            announce("settles")
        for batch in loader:
            model(batch.cuda()).square().mean().backward()
            torch.cuda.synchronize()


def handshake():
    """The odd rank notes its progress down in a service behind TLS, which accepts the connection and says nothing."""
    def note_progress(number):
        if is_odd() and number == GOOD_STEPS:
            with ssl.create_default_context().wrap_socket(connect_to_silent_server(), server_hostname="runs.example") as service:
                service.sendall(b"step %d" % number)

    torch, _ = connect()
    train(torch, ddp(torch), note_progress)


def in_flight():
    """At most two posts of metrics are on their way at a time. A post of the odd rank that fails does not give its place back."""
    places, threads = threading.BoundedSemaphore(2), ThreadPoolExecutor(2, thread_name_prefix="metrics")

    def post(number):
        if is_odd() and GOOD_STEPS - 2 <= number:
            raise ConnectionError("the metrics of step %d are refused" % number)
        places.release()

    def post_metrics(number):
        places.acquire()
        threads.submit(post, number)

    torch, _ = connect()
    train(torch, ddp(torch), post_metrics)


TRACKING = """
import os, socket
newest = socket.create_connection(("127.0.0.1", int(os.environ["HANGS_PORT"]))).recv(64)
"""


def lazy_import():
    """A thread of the odd rank imports a package, which asks a server for its newest version. The main thread imports it too, and waits for the
    lock of the import."""
    directory = os.path.join(os.environ["HANGS_DIRECTORY"], "packages")
    if is_odd():
        os.makedirs(directory)
        with open(os.path.join(directory, "experiment_tracking.py"), "w", encoding="utf-8") as out:
            out.write(TRACKING)
        sys.path.insert(0, directory)

    def start_tracking():
        import experiment_tracking
        experiment_tracking.start()

    def track(number):
        if is_odd() and number == GOOD_STEPS:
            threading.Thread(target=start_tracking, name="tracking", daemon=True).start()
            while "experiment_tracking" not in sys.modules:
                time.sleep(0.01)
            import experiment_tracking
            experiment_tracking.log(number)

    torch, _ = connect()
    train(torch, ddp(torch), track)


CASES = {"redact-logs": redact_logs, "reentrant": reentrant, "remote-debugger": remote_debugger,
         "shared-batches": shared_batches, "profiled": profiled, "nccl-log": nccl_log, "epoch-workers": epoch_workers, "handshake": handshake,
         "in-flight": in_flight, "lazy-import": lazy_import}

if __name__ == "__main__":
    run(CASES)
