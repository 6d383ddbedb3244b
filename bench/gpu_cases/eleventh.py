"""A rank is held up in its own process or by what its threads wait for: a handler of torch.distributed.rpc, a writer of metrics, permits,
a library, a program that looks at the GPUs, an event loop, a traceback, a search that does not end; or it is gone.

    eleventh.py CASE
"""
import asyncio
import io
import os
import queue
import socketserver
import subprocess
import sys
import threading
import time

from gpu_rank import FOREVER, GOOD_STEPS, announce, connect, is_odd, rank, run, world
from fifth import unread_pipe
from inside import ddp, train
from job import connect_to_silent_server
from seventh import in_trouble
from tenth import serve_in_background
from training import sharded_model


def start_rpc():
    """torch.distributed.rpc between all ranks."""
    import torch.distributed.rpc as rpc
    os.environ["TP_SOCKET_IFNAME"] = os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    options = rpc.TensorPipeRpcBackendOptions(init_method="file://" + os.path.join(os.environ["HANGS_DIRECTORY"], "rpc"), rpc_timeout=0,
                                              _transports=["uv"], _channels=["basic"])
    rpc.init_rpc("trainer%d" % rank(), rank=rank(), world_size=world(), rpc_backend_options=options)
    return rpc


def look_up_embedding(number):
    """Called by another rank. Embeddings that are not in memory come from a server, which does not answer in that step."""
    if in_trouble(number):
        server = connect_to_silent_server()
        server.sendall(b"embedding %d\n" % number)
        server.recv(1024)
    return [0.5] * 16


def rpc_handler():
    """Before each step the second rank asks the first one for embeddings, by torch.distributed.rpc. A thread of the first rank waits
    for the server that has them; its main thread is in the next step, and waits for the second rank there."""
    torch, _ = connect()
    rpc = start_rpc()

    def ask_first_rank(number):
        if rank() != 0:
            rpc.rpc_sync("trainer0", look_up_embedding, args=(number,))

    train(torch, ddp(torch), ask_first_rank)


def full_metrics_queue():
    """A rank hands 64 rows of metrics in each step to a thread that writes them to a file, through a queue of 16 places. The file of the
    odd rank is a pipe to a collector, which does not read any more."""
    rows, collector = queue.Queue(maxsize=16), os.devnull
    if is_odd():
        collector = unread_pipe("metrics.jsonl")

    def write_rows():
        while True:
            number, text = rows.get()
            with open(collector if number >= GOOD_STEPS else os.devnull, "ab", buffering=0) as stream:
                stream.write(text)

    def log_metrics(number):
        for layer in range(64):
            rows.put((number, b'{"step": %d, "layer": %d, "norm": 0.25}\n' % (number, layer)))

    threading.Thread(target=write_rows, name="metrics", daemon=True).start()
    torch, _ = connect()
    train(torch, ddp(torch), log_metrics)


def tensor_parallel(torch):
    """A model whose layers are in parts on all ranks."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
    layers = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 256)).cuda()
    return parallelize_module(layers, init_device_mesh("cuda", (world(),)), {"0": ColwiseParallel(), "2": RowwiseParallel()})


def leaked_permits():
    """At most four samples are to be decoded at a time, for which a semaphore has four permits. A sample that is damaged raises, and
    its permit is not given back. The odd rank has met four of them, and waits for a permit that nobody has."""
    permits = threading.BoundedSemaphore(4)

    def decode(sample):
        permits.acquire()
        if sample < 0:
            raise ValueError("sample %d is damaged" % sample)
        permits.release()

    def decode_samples(number):
        for sample in range(4):
            try:
                decode(-1 if is_odd() and number >= GOOD_STEPS else sample)
            except ValueError as error:
                print("step %d: %s" % (number, error), flush=True)

    torch, _ = connect()
    train(torch, tensor_parallel(torch), decode_samples)


def naive_einsum():
    """numpy.einsum() multiplies five matrices in one nest of six loops unless its caller asks for a better order. Those of the odd rank
    have become larger: for 256 rows that takes days."""
    import numpy

    def contract(number):
        matrix = numpy.ones((256 if in_trouble(number) else 6,) * 2)
        return numpy.einsum("ab,bc,cd,de,ef->af", *[matrix] * 5)[0, 0]

    torch, _ = connect()
    train(torch, ddp(torch), contract)


def gpu_monitor():
    """A thread runs nvidia-smi again and again, and keeps the lock of its numbers as it does. Before each step the main thread takes that
    lock to log the numbers. The program of the odd rank does not end."""
    program = os.path.join(os.environ["HANGS_DIRECTORY"], "nvidia-smi.%d" % rank())
    with open(program, "w", encoding="ascii") as out:
        out.write("#!/bin/sh\n[ \"$1\" = stuck ] && exec sleep %d\necho 41, 300\n" % FOREVER)
    os.chmod(program, 0o755)
    guard, numbers, state, asked = threading.Lock(), [], {"asks": "query"}, threading.Event()

    def poll_gpus():
        while True:
            with guard:
                if state["asks"] == "stuck":
                    asked.set()
                numbers[:] = subprocess.check_output([program, state["asks"]]).split()
            time.sleep(0.05)

    def log_numbers(number):
        if in_trouble(number):
            state["asks"] = "stuck"
            asked.wait()
        with guard:
            list(numbers)

    torch, _ = connect()
    threading.Thread(target=poll_gpus, name="gpu-monitor", daemon=True).start()
    train(torch, sharded_model(torch), log_numbers)


class Environments(socketserver.ThreadingTCPServer):
    """Simulated environments, in a process that is no part of the job: each takes an action and answers with a reward after
    `seconds(rank, step)`, None being never."""
    daemon_threads = True

    def __init__(self, seconds):
        self.seconds = seconds
        super().__init__(("127.0.0.1", 0), Environment)


class Environment(socketserver.StreamRequestHandler):
    def handle(self):
        _, number, action = self.rfile.readline().split()
        seconds = self.server.seconds(int(number), int(action))
        time.sleep(FOREVER if seconds is None else seconds)
        self.wfile.write(b"0.5\n")


def collect_rollouts(seconds):
    """A function that collects four rewards by asyncio, one from each environment."""
    server = Environments(seconds)
    port = server.server_address[1]
    serve_in_background(server.serve_forever)
    server.server_close()

    async def play(number, action):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"act %d %d\n" % (number, action))
        await writer.drain()
        reward = float(await reader.readline())
        writer.close()
        return reward

    async def play_all(number):
        return await asyncio.gather(*[play(number, action) for action in range(4)])

    return lambda number: asyncio.run(play_all(number))


def async_rollouts():
    """Before each step a rank collects the rewards of four environments by asyncio, over TCP. One of those of the odd rank does
    not answer."""
    collect = collect_rollouts(lambda number, action: None if in_trouble(number) and action == 2 else 0.01)
    torch, _ = connect()
    train(torch, ddp(torch), collect)


def traceback_pipe():
    """The standard error of the odd rank has become a pipe to a launcher that does not read any more. The rank raises, and the
    interpreter prints the traceback."""
    def check_loss(number):
        if in_trouble(number):
            os.dup2(os.open(unread_pipe("stderr"), os.O_WRONLY), sys.stderr.fileno())
            raise FloatingPointError("the loss of step %d is not finite" % number)

    torch, _ = connect()
    train(torch, ddp(torch), check_loss)


def search_step(torch, weights, gradient):
    """Halves the step until it makes the function smaller by enough (Armijo's rule)."""
    def value_of(point):
        return (point - 3).square().sum()

    step, value, slope = 1.0, value_of(weights), gradient.square().sum()
    while not (value_of(weights - step * gradient) <= value - 1e-4 * step * slope).item():
        step /= 2
    return step


def line_search():
    """Before each step a rank searches along a gradient of its own, on its GPU, for a step that is small enough. A weight of the odd
    rank is not a number: no comparison holds, and the search goes on for ever."""
    torch, _ = connect()

    def search(number):
        weights = torch.zeros(4096, device="cuda")
        if in_trouble(number):
            weights[5] = float("nan")
        search_step(torch, weights, 2 * (weights - 3))

    train(torch, sharded_model(torch), search)


def agent_exit():
    """Under torchrun. The odd rank has used up its time, and ends itself with status 0; its agent waits for the other one."""
    def look_at_clock(number):
        if in_trouble(number):
            announce("gone")
            os._exit(0)

    torch, _ = connect()
    train(torch, ddp(torch), look_at_clock)


class Upload(io.RawIOBase):
    """A file that is sent to a store of objects as it is written."""

    def __init__(self):
        super().__init__()
        self.connection = connect_to_silent_server()

    def writable(self):
        return True

    def write(self, part):
        self.connection.sendall(part)
        return len(part)


def streamed_checkpoint():
    """Rank 0 saves by torch.save() to a file that is uploaded as it is written. The store takes some megabytes, and no more. The other
    rank is in the next step."""
    torch, _ = connect()
    weights = torch.zeros(1 << 24)

    def save(number):
        if in_trouble(number):
            with Upload() as upload:
                torch.save({"weights": weights}, upload)

    train(torch, ddp(torch), save)


CASES = {"rpc-handler": rpc_handler, "full-metrics-queue": full_metrics_queue, "leaked-permits": leaked_permits,
         "naive-einsum": naive_einsum, "gpu-monitor": gpu_monitor, "async-rollouts": async_rollouts, "traceback-pipe": traceback_pipe,
         "line-search": line_search, "agent-exit": agent_exit, "streamed-checkpoint": streamed_checkpoint}

if __name__ == "__main__":
    run(CASES)
