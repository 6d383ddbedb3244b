"""Jobs that are well, in which ranks poll shared memory for requests, sort, score, replay graphs, wait for threads, write to a slow
pipe, or push gradients to a server.

    twelfth_well.py CASE
"""
import collections
import concurrent.futures
import datetime
import multiprocessing.shared_memory
import os
import random
import threading
import time

from eleventh import start_rpc
from gpu_rank import announce, connect, gloo_group, rank, run, world
from healthy import compute, steps
from inside import ddp
from tenth import serve_in_background
from tenth_well import train_once
from training import model_of


def request_slots():
    """A server of embeddings without collectives. Each rank polls a slot of its own in shared memory for requests, a thousand times a
    second; a front end, which is no part of the job, puts one there every two seconds, or every three."""
    slots = multiprocessing.shared_memory.SharedMemory(create=True, size=4096)

    def send_requests():
        for number in range(1, 1 << 30):
            slots.buf[0] = number % 251 + 1
            time.sleep(2 + rank())

    serve_in_background(send_requests)
    torch, _ = connect()
    model, answered = model_of(torch), 0
    slots.unlink()
    while True:
        while slots.buf[0] == 0:
            time.sleep(0.001)
        slots.buf[0] = 0
        with torch.no_grad():
            model(torch.randn(8, 256, device="cuda")).sum().item()
        answered += 1
        if answered == 2:
            announce("settles")


def sorted_index():
    """In each step the second rank sorts the index of its data set, in one call that keeps the interpreter for a second or longer. The
    first rank waits for it."""
    torch, _ = connect()
    model = ddp(torch)
    index = [random.random() for _ in range(1 << 21)] if rank() == 1 else []

    def train_step(_):
        sorted(index)
        train_once(torch, model)

    steps(train_step)


def score(answer, reference):
    """How many of all runs of up to four words an answer and a reference have in common."""
    common = 0
    for length in range(1, 5):
        runs = [collections.Counter(tuple(words[at:at + length]) for at in range(len(words) - length + 1)) for words in (answer, reference)]
        common += sum((runs[0] & runs[1]).values())
    return common


def scores_on_first():
    """After some steps rank 0 scores what the model has said, in Python, for about five seconds; the other one waits for it in a monitored
    barrier, over gloo."""
    torch, dist = connect()
    meeting, model, words = gloo_group(dist), ddp(torch), ["word-%d" % (number * number % 97) for number in range(400)]

    def epoch(_):
        for _ in range(4):
            train_once(torch, model)
        end = time.monotonic() + 5
        while rank() == 0 and time.monotonic() < end:
            score(words, words[7:])
        dist.monitored_barrier(meeting, datetime.timedelta(hours=1))

    steps(epoch)


def replayed_graphs():
    """A graph of some tenths of a second is replayed six times before a rank reads its result, which all sum up. The GPUs compute nearly
    all the time, and the ranks wait for them."""
    torch, dist = connect()
    matrix = torch.randn(8192, 8192, device="cuda")
    compute(torch, 0.2, matrix)
    torch.cuda.synchronize()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        compute(torch, 0.2, matrix)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        output = matrix
        for _ in range(10):
            output = torch.tanh(output @ matrix)
        total = output.sum()

    def train_step(_):
        for _ in range(6):
            graph.replay()
        result = total.clone()
        dist.all_reduce(result)
        return result.item()

    steps(train_step)


def spectrum(numpy, seed, size):
    """In a thread of a pool: some tenths of a second, most of them without the interpreter."""
    return numpy.linalg.svd(numpy.random.default_rng(seed).standard_normal((size, size)), compute_uv=False)[0]


def pooled_features():
    """Before each step a rank has the features of four samples computed by the threads of a pool, and waits for all of them, for a second
    or two; those of the second rank are larger."""
    import numpy
    torch, _ = connect()
    model, pool = ddp(torch), concurrent.futures.ThreadPoolExecutor(2, thread_name_prefix="features")

    def train_step(number):
        size = 500 + 200 * rank()
        futures = [pool.submit(spectrum, numpy, 4 * number + sample, size) for sample in range(4)]
        concurrent.futures.wait(futures)
        train_once(torch, model)

    steps(train_step)


def read_slowly(path):
    """A process that is no part of the job: takes 64 KiB of a log at a time, and rests."""
    with open(path, "rb", buffering=0) as log:
        while log.read(1 << 16):
            time.sleep(0.2)


def slow_reader():
    """In each step the second rank writes some hundred KiB to a pipe, which another process reads slowly: it waits in write() for a second
    at a time, and the first rank for it."""
    path = os.path.join(os.environ["HANGS_DIRECTORY"], "log-%d" % rank())
    os.mkfifo(path)
    serve_in_background(lambda: read_slowly(path))
    torch, _ = connect()
    model = ddp(torch)
    with open(path, "wb", buffering=0) as log:
        def train_step(number):
            for line in range(6 if rank() == 1 else 0):
                log.write(b"%d %d\n" % (number, line) + bytes(1 << 16))
            train_once(torch, model)

        steps(train_step)


def slow_pusher():
    """A server of parameters on rank 0, by torch.distributed.rpc. A thread of the second rank reads its batch, for more than a second; the
    first rank waits for the second one's gradients, in its call. There is no collective."""
    torch, _ = connect()
    from twelfth_server import push_gradients
    rpc, model = start_rpc(), model_of(torch)

    def read_batch(batch):
        end = time.monotonic() + 1.3 * rank()
        while time.monotonic() < end:
            batch[:] = [number * 0.5 for number in range(256)]
            time.sleep(0.01)

    def train_step(number):
        batch = [0.5] * 256
        reader = threading.Thread(target=read_batch, args=(batch,), name="reader")
        reader.start()
        reader.join()
        model.zero_grad()
        train_once(torch, model, torch.tensor(batch, device="cuda").expand(32, 256))
        flat = torch.cat([parameter.grad.flatten() for parameter in model.parameters()])
        rpc.rpc_sync("trainer0", push_gradients, args=(number, world(), flat.cpu()))

    steps(train_step)


CASES = {"request-slots": request_slots, "sorted-index": sorted_index, "scores-on-first": scores_on_first, "replayed-graphs": replayed_graphs,
         "pooled-features": pooled_features, "slow-reader": slow_reader, "slow-pusher": slow_pusher}

if __name__ == "__main__":
    run(CASES)
