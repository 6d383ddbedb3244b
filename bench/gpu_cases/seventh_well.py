"""Jobs that are well, in which ranks collect garbage, run programs, take turns with a lock, retry, are idle, evaluate
in a thread, or do little but communicate.

    seventh_well.py CASE
"""
import fcntl
import gc
import http.server
import os
import queue
import subprocess
import sys
import threading
import time

from gpu_rank import announce, connect, gloo_group, rank, run
from healthy import steps
from inside import ddp
from sixth import fetch_with_retries, serve_apart
from training import model_of


def large_heap():
    """Rank 0 keeps some millions of small objects, and collects garbage by hand in each step; the other one waits for
    it in the all-reduce."""
    torch, _ = connect()
    model = ddp(torch)
    index = [[number] for number in range(3 << 20)] if rank() == 0 else []

    def train_step(number):
        if rank() == 0:
            index[number % len(index)] = [number]
            gc.collect()
        loss = model(torch.randn(32, 256, device="cuda")).square().mean()
        loss.backward()
        loss.item()

    steps(train_step)


PROGRAM = """
import time
end = time.monotonic() + %f
while time.monotonic() < end:
    sum(number * number for number in range(1000))
"""


def code_reward():
    """Each rank runs the program that its model has written, in a process that takes half a second or a whole one, and
    rewards what comes out; then the ranks reduce their gradients."""
    torch, _ = connect()
    model = ddp(torch)

    def train_step(number):
        program = PROGRAM % (0.4 + 0.6 * ((number + rank()) % 2))
        done = subprocess.run([sys.executable, "-S", "-c", program], capture_output=True, check=True)
        loss = model(torch.randn(32, 256, device="cuda")).square().mean() * (1.0 + len(done.stdout))
        loss.backward()
        loss.item()

    steps(train_step)


def locked_cache():
    """Each rank completes a cache of tokens in each step, for half a second and under the lock of its file: the other
    one waits for the lock meanwhile."""
    import numpy
    torch, _ = connect()
    model = ddp(torch)
    path = os.path.join(os.environ["HANGS_DIRECTORY"], "tokens.lock")

    def complete_cache(number):
        with open(path, "ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            keys, end = numpy.random.default_rng(number).random(1 << 20), time.monotonic() + 0.5
            while time.monotonic() < end:
                keys = numpy.argsort(keys).astype("float64")

    def train_step(number):
        complete_cache(number)
        loss = model(torch.randn(32, 256, device="cuda")).square().mean()
        loss.backward()
        loss.item()

    steps(train_step)


def retried_batches():
    """The batches come from a server that is not always available: a rank asks again after half a second and after
    another one, and gets its batch then."""
    asked = {}

    def answer(path):
        asked[path] = asked.get(path, 0) + 1
        return (503, b"") if asked[path] <= int(path.rsplit("-", 1)[-1]) % 3 else (200, bytes(8192))

    port = serve_apart(answer)
    torch, _ = connect()
    model = ddp(torch)

    def train_step(number):
        batch = bytearray(fetch_with_retries(port, "batch-%d" % (number + rank())))
        loss = model(torch.frombuffer(batch, dtype=torch.uint8).reshape(32, 256).float().cuda()).square().mean()
        loss.backward()
        loss.item()

    steps(train_step)


def idle_front_end():
    """A server without requests. Those that come are put into a queue by threads of rank 0, whose main thread hands
    them to all ranks; the first ones are its own."""
    torch, dist = connect()
    orders, model, requests = gloo_group(dist), model_of(torch), queue.Queue()

    class FrontEnd(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            requests.put(self.path)
            self.send_response(202)
            self.end_headers()

    if rank() == 0:
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), FrontEnd)
        threading.Thread(target=server.serve_forever, name="front-end", daemon=True).start()
        for number in range(3):
            requests.put("/warm-up-%d" % number)

    def next_request():
        handed = [requests.get() if rank() == 0 else None]
        dist.broadcast_object_list(handed, src=0, group=orders)
        return handed[0]

    hidden, count = torch.ones(8, 256, device="cuda"), 0
    while True:
        if count == 3:
            announce("settles")
        next_request()
        with torch.no_grad():
            output = model(hidden)
        dist.all_reduce(output)
        output.sum().item()
        count += 1


def all_communication():
    """Large tensors are reduced one after the other, and nothing else takes time: a GPU is in NCCL nearly always, and
    its rank waits for it."""
    torch, dist = connect()
    tensors = [torch.ones(1 << 26, device="cuda") for _ in range(4)]

    def reduce_all(_):
        for _ in range(10):
            for tensor in tensors:
                dist.all_reduce(tensor, op=dist.ReduceOp.MAX)
        torch.cuda.synchronize()

    steps(reduce_all)


def evaluation_thread():
    """After some steps a thread of rank 0 evaluates on a stream of its own, for about a second, and the main thread
    joins it; the other rank waits in a barrier over gloo."""
    torch, dist = connect()
    model, epochs = ddp(torch), gloo_group(dist)

    def evaluate():
        end = time.monotonic() + 1.0
        with torch.no_grad(), torch.cuda.stream(torch.cuda.Stream(model.device)):
            while time.monotonic() < end:
                model.module(torch.randn(256, 256, device=model.device)).square().mean().item()

    def epoch(_):
        for _ in range(10):
            loss = model(torch.randn(32, 256, device="cuda")).square().mean()
            loss.backward()
            loss.item()
        if rank() == 0:
            evaluation = threading.Thread(target=evaluate, name="evaluation")
            evaluation.start()
            evaluation.join()
        dist.barrier(group=epochs)

    steps(epoch)


CASES = {"large-heap": large_heap, "code-reward": code_reward, "locked-cache": locked_cache,
         "retried-batches": retried_batches, "idle-front-end": idle_front_end, "all-communication": all_communication,
         "evaluation-thread": evaluation_thread}

if __name__ == "__main__":
    run(CASES)
