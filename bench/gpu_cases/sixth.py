"""One rank is held up in its own process: by a service or a child of it, its threads, an event loop, a handler, its data, its GPU.

    sixth.py CASE
"""
import asyncio
import http.server
import multiprocessing
import multiprocessing.connection
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor

from gpu_rank import FOREVER, GOOD_STEPS, announce, connect, is_odd, rank, run
from field_groups import gradient_of, reduce_gradient
from fifth import unread_pipe
from inside import ddp, train
from job import FULL_FIFO, connect_to_silent_server


def keep_runs(address, upload):
    """A process that takes what is logged by one rank, uploads it, and confirms it."""
    with multiprocessing.connection.Client(address) as connection:
        while True:
            upload(connection.recv())
            connection.send("confirmed")


def start_run_service(upload):
    """What the rank logs to."""
    address = os.path.join(os.environ["HANGS_DIRECTORY"], "runs.%d" % rank())
    with multiprocessing.connection.Listener(address) as listener:
        multiprocessing.get_context("fork").Process(target=keep_runs, args=(address, upload), name="run-service", daemon=True).start()
        return listener.accept()


def run_service():
    """Rank 0 logs its loss to a service, a process of its own, and waits until that has confirmed it. The service uploads to a server, which does
    not answer."""
    def upload(record):
        if record["step"] == GOOD_STEPS:
            connect_to_silent_server().recv(1)

    service = start_run_service(upload) if rank() == 0 else None
    torch, _ = connect()

    def log(number):
        if rank() == 0:
            service.send({"step": number, "loss": 0.5})
            service.recv()

    train(torch, ddp(torch), log)


TOKENIZER = """
import sys
for line in sys.stdin:
    print(" ".join(str(ord(letter)) for letter in line), flush=True)
"""


def tokenizer_pipes():
    """A program tokenizes line by line. A rank writes all lines of a batch, and then reads the tokens: for the long batch of the odd rank both pipes
    are full."""
    tokenizer = subprocess.Popen([sys.executable, "-c", TOKENIZER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def tokenize(number):
        lines = ["a line of batch %d\n" % number] * ((1 << 16) if is_odd() and number == GOOD_STEPS else 32)
        tokenizer.stdin.writelines(lines)
        tokenizer.stdin.flush()
        return [tokenizer.stdout.readline() for _ in lines]

    torch, _ = connect()
    train(torch, ddp(torch), tokenize)


def serve_apart(answer):
    """The port of an HTTP server, a process that is no child of the rank. `answer(path)` is the status and the body."""
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            status, body = answer(self.path)
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    child = os.fork()
    if child == 0:
        os.setsid()
        if os.fork() == 0:
            server.serve_forever()
        os._exit(0)
    os.waitpid(child, 0)
    server.server_close()
    return server.server_address[1]


def fetch(port, path):
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with direct.open("http://127.0.0.1:%d/%s" % (port, path)) as response:
        return response.read()


def fetch_with_retries(port, path):
    delay = 0.5
    while True:
        try:
            return fetch(port, path)
        except urllib.error.HTTPError as error:
            print("%s: %s, again in %.1f s" % (path, error, delay))
            time.sleep(delay)
            delay = min(2 * delay, 60)


def throttled_shards():
    """The shards of a dataset come from a server. For the odd rank it has too many requests, now and for ever, and the rank asks again and again,
    after a longer time each."""
    port = serve_apart(lambda path: (429, b"") if is_odd() and path == "/shard-%d" % GOOD_STEPS else (200, bytes(8192)))
    torch, _ = connect()

    class Shards(torch.utils.data.IterableDataset):
        def __iter__(self):
            for number in range(FOREVER):
                shard = fetch_with_retries(port, "shard-%d" % number)
                yield torch.frombuffer(bytearray(shard), dtype=torch.uint8).reshape(32, 256).float()

    batches = iter(torch.utils.data.DataLoader(Shards(), batch_size=None))
    model = ddp(torch)
    for number in range(FOREVER):
        if number == GOOD_STEPS:
            announce("settles")
        model(next(batches).cuda()).square().mean().backward()
        torch.cuda.synchronize()


class Images:
    """A dataset. One of its images is large enough for torch to use several threads."""

    def __len__(self):
        return 1 << 12

    def __getitem__(self, index):
        import torch
        if is_odd() and index == 8 * GOOD_STEPS:
            return torch.ones(1 << 22).exp().sum() * torch.ones(256)
        return torch.full((256,), float(index))


def forked_threads():
    """The workers of a loader may use four threads each. They are forked from a process that has had such threads, for which OpenMP waits in the
    worker, where they are not (github.com/pytorch/pytorch/issues/17199)."""
    torch, _ = connect()
    torch.set_num_threads(4)
    torch.ones(1 << 22).exp().sum()
    model = ddp(torch)
    batches = iter(torch.utils.data.DataLoader(Images(), batch_size=8, num_workers=1, prefetch_factor=1, multiprocessing_context="fork",
                                               worker_init_fn=lambda _: torch.set_num_threads(4)))
    for number in range(FOREVER):
        if number == GOOD_STEPS:
            announce("settles")
        model(next(batches).cuda()).square().mean().backward()
        torch.cuda.synchronize()


def engine_loop():
    """An engine is run by asyncio. For one request the odd rank calls a function that is not a coroutine, hands one to the loop and waits for its
    result: in the thread of the loop."""
    torch, dist = connect()
    gradient = gradient_of(torch)

    async def embed_image(number):
        await asyncio.sleep(0)
        return [float(number)] * 16

    def image_of(number, loop):
        return asyncio.run_coroutine_threadsafe(embed_image(number), loop).result()

    async def serve():
        for number in range(FOREVER):
            if number == GOOD_STEPS:
                announce("settles")
            if is_odd() and number == GOOD_STEPS:
                image_of(number, asyncio.get_running_loop())
            else:
                await embed_image(number)
            reduce_gradient(dist, gradient)

    asyncio.run(serve())


def nested_pool():
    """Two threads sum up the weights, layer by layer. For the odd rank's detailed summary each layer is cut into parts, of which the same two threads
    should take care, which wait for them."""
    threads = ThreadPoolExecutor(2, thread_name_prefix="summary")

    def summary_of_layer(layer, detailed):
        if not detailed:
            return float(layer)
        parts = [threads.submit(float, layer + part) for part in range(4)]
        return sum(part.result() for part in parts)

    def summarize(number):
        layers = [threads.submit(summary_of_layer, layer, is_odd() and number == GOOD_STEPS) for layer in range(8)]
        return sum(layer.result() for layer in layers)

    torch, _ = connect()
    train(torch, ddp(torch), summarize)


def forked_pool():
    """A process that the odd rank forks exports a table, by a thread that the rank has for that: in the process that thread is
    not."""
    threads = ThreadPoolExecutor(1, thread_name_prefix="export")

    def export(rows):
        list(threads.map(str, rows))

    def export_apart(number):
        export(range(8))
        if is_odd() and number == GOOD_STEPS:
            exporting = multiprocessing.get_context("fork").Process(target=export, args=(range(8),), name="export", daemon=True)
            exporting.start()
            exporting.join()

    torch, _ = connect()
    train(torch, ddp(torch), export_apart)


def split_k():
    """The programs of a kernel of Triton's add up one after the other, the last one first. There are more of them on the odd rank than its GPU takes
    at a time: those that are there wait for those that are not."""
    torch, _ = connect()
    from sixth_triton import add_in_turns
    parts, total, turn = torch.ones(1 << 16, device="cuda"), torch.zeros(1, device="cuda"), torch.zeros(1, dtype=torch.int32, device="cuda")

    def add_up(number):
        count = (1 << 16) if is_odd() and number == GOOD_STEPS else 64
        turn.fill_(count - 1)
        add_in_turns[(count,)](parts, total, turn)

    train(torch, ddp(torch), add_up)


def reaper():
    """A handler of SIGCHLD waits for the children that have ended, as it thinks: it waits for all, of which one lives as long as the rank."""
    board = subprocess.Popen(["sleep", str(FOREVER)])

    def reap(*_):
        try:
            while True:
                print("ended:", os.waitpid(-1, 0))
        except ChildProcessError:
            pass

    def link_newest(number):
        if number == GOOD_STEPS:
            signal.signal(signal.SIGCHLD, reap)
            if is_odd():
                subprocess.Popen(["ln", "-sfn", "step-%d" % number, os.path.join(os.environ["HANGS_DIRECTORY"], "newest")])

    torch, _ = connect()
    train(torch, ddp(torch), link_newest)
    board.terminate()


def memory_snapshot():
    """The odd rank runs out of memory, and dumps which memory it has, for people, where nobody reads."""
    torch, _ = connect()
    torch.cuda.memory._record_memory_history(stacks="python", max_entries=1000)
    torch.cuda.memory._dump_snapshot(os.path.join(os.environ["HANGS_DIRECTORY"], "begin.%d" % rank()))
    pipe = unread_pipe("snapshots") if is_odd() else None

    def widen(number):
        try:
            torch.empty((1 << 46) if is_odd() and number == GOOD_STEPS else 1024, device="cuda")
        except torch.cuda.OutOfMemoryError:
            torch.cuda.memory._dump_snapshot(pipe)
            raise

    train(torch, ddp(torch), widen)


def persist(wanted, guard, memory):
    """In a process of its own: writes what the rank has in shared memory, under a lock."""
    while True:
        number = wanted.get()
        path = FULL_FIFO if is_odd() and number == GOOD_STEPS else os.path.join(os.environ["HANGS_DIRECTORY"], "weights.%d" % rank())
        with guard, open(path, "wb") as out:
            out.write(bytes(memory))


def flash_checkpoint():
    """A rank copies its checkpoint to shared memory, and goes on; a process of its own writes it from there. The lock of that memory has the process,
    while it writes: for ever, on the odd rank."""
    context = multiprocessing.get_context("fork")
    wanted, guard, memory = context.SimpleQueue(), context.Lock(), context.RawArray("b", 4096)
    context.Process(target=persist, args=(wanted, guard, memory), name="saver", daemon=True).start()
    torch, _ = connect()

    def save_checkpoint(number):
        with guard:
            memory[0] = number % 100
        wanted.put(number)
        time.sleep(0.01)

    train(torch, ddp(torch), save_checkpoint)


CASES = {"run-service": run_service, "tokenizer-pipes": tokenizer_pipes, "throttled-shards": throttled_shards, "forked-threads": forked_threads,
         "engine-loop": engine_loop, "nested-pool": nested_pool, "forked-pool": forked_pool, "split-k": split_k, "reaper": reaper,
         "memory-snapshot": memory_snapshot, "flash-checkpoint": flash_checkpoint}

if __name__ == "__main__":
    run(CASES)
