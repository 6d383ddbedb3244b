"""One rank is held up in its own process: by the end of its program, its terminal, its data, an expression, a server
of its own, a debugger, or a child.

    eighth.py CASE
"""
import http.server
import itertools
import multiprocessing
import os
import queue
import socket
import subprocess
import termios
import threading
import time

from gpu_rank import FOREVER, GOOD_STEPS, announce, connect, is_odd, run
from inside import ddp, train
from job import connect_to_silent_server
from seventh import in_trouble


def uploader_exit():
    """The shard of the odd rank is shorter: it leaves its loop, and its program is at its end. The interpreter then
    waits for the thread that uploads the metrics, whose server does not answer."""
    metrics = queue.Queue()

    def upload():
        while True:
            if metrics.get() == "the last one":
                connect_to_silent_server().recv(1)

    torch, _ = connect()
    model = ddp(torch)
    threading.Thread(target=upload, name="uploader").start()
    for number in range(GOOD_STEPS if is_odd() else FOREVER):
        if number == GOOD_STEPS:
            announce("settles")
        model(torch.randn(32, 256, device="cuda")).square().mean().backward()
        torch.cuda.synchronize()
        metrics.put(number)
    announce("settles")
    metrics.put("the last one")


def paused_terminal():
    """The progress goes to a terminal. That of the odd rank is paused, as Ctrl-S does, and once its buffer is full the
    rank cannot write to it."""
    screen, descriptor = os.openpty()
    subprocess.Popen(["cat"], stdin=screen, stdout=subprocess.DEVNULL)
    terminal = os.fdopen(descriptor, "w", encoding="utf-8")

    def show_progress(number):
        if in_trouble(number):
            termios.tcflow(descriptor, termios.TCOOFF)
        for batch in range(2000):
            print("epoch 1: batch %d of step %d" % (batch, number), file=terminal, flush=True)

    torch, _ = connect()
    train(torch, ddp(torch), show_progress)


class Pairs:
    """A dataset whose samples are made of what the training has found to be hard."""

    def __init__(self, hard):
        self.hard = hard

    def __len__(self):
        return 1 << 12

    def __getitem__(self, index):
        import torch
        return torch.full((32, 256), float(self.hard.get()))


def hard_negatives():
    """Before it takes a batch, a rank tells the worker of its loader, by a queue, which sample was hard. The odd rank
    has found none, and tells the worker nothing: that waits for the rank, and the rank for its batch."""
    context = multiprocessing.get_context("fork")
    hard = context.SimpleQueue()
    torch, _ = connect()
    model = ddp(torch)
    batches = iter(torch.utils.data.DataLoader(Pairs(hard), batch_size=None, num_workers=1, prefetch_factor=1,
                                               multiprocessing_context="fork"))
    for number in range(FOREVER):
        if number == GOOD_STEPS:
            announce("settles")
        if not in_trouble(number):
            hard.put(number)
        model(next(batches).cuda()).square().mean().backward()
        torch.cuda.synchronize()


def endless_count():
    """Norms are logged in the even steps: `step in itertools.count(0, 2)`, which is never done with an odd number. The
    odd rank has resumed, and its steps have become odd."""
    def log_norms(number):
        step = 2 * number + (1 if in_trouble(number) else 0)
        if step in itertools.count(0, 2):
            print("norms of step %d" % step)

    torch, _ = connect()
    train(torch, ddp(torch), log_norms)


def stop_server():
    """Each rank serves its metrics by a thread. The odd rank stops its server, and waits until the thread has left its
    loop; the thread answers a request, for which it asks another server that does not answer."""
    asked = threading.Event()

    class Metrics(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            asked.set()
            connect_to_silent_server().recv(1 << 12)
            self.send_response(200)
            self.end_headers()

    server = http.server.HTTPServer(("127.0.0.1", 0), Metrics)
    threading.Thread(target=server.serve_forever, name="metrics", daemon=True).start()
    scrapers = []

    def stop(number):
        if in_trouble(number):
            scrapers.append(socket.create_connection(server.server_address))
            scrapers[0].sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
            asked.wait()
            server.shutdown()

    torch, _ = connect()
    train(torch, ddp(torch), stop)


def backward_breakpoint():
    """A breakpoint was left in a hook that looks at gradients which are not finite, as those of the odd rank: it is
    autograd's thread that the debugger stops, and the main thread waits for that."""
    torch, _ = connect()
    model = ddp(torch)
    state = {"number": 0}

    def look_at(gradient):
        if in_trouble(state["number"]):
            breakpoint()
        return gradient

    for number in range(FOREVER):
        if number == GOOD_STEPS:
            announce("settles")
        state["number"] = number
        output = model(torch.randn(32, 256, device="cuda"))
        output.register_hook(look_at)
        output.square().mean().backward()
        torch.cuda.synchronize()


def score(torch, device, scores):
    """In a process that was forked: it may not use the GPU, and raises if it does."""
    scores.put(float(torch.ones(8, device=device).sum()))


def forked_scorer():
    """Samples are scored in a process that is forked for that, on the processor. The odd rank asks for the GPU, which
    is an error there: the process prints its exception and ends, and the rank waits for its scores."""
    context = multiprocessing.get_context("fork")
    torch, _ = connect()

    def score_samples(number):
        scores = context.SimpleQueue()
        scorer = context.Process(target=score, args=(torch, "cuda" if in_trouble(number) else "cpu", scores), name="scorer")
        scorer.start()
        total = scores.get()
        scorer.join()
        return total

    train(torch, ddp(torch), score_samples)


def prepared_child():
    """A program is run with a function that prepares the child, which logs under the lock of the log. When the odd rank
    forks, a thread of it has that lock: in the child nobody will release it, and the rank waits for the child."""
    guard, lines = threading.Lock(), []

    def write_log():
        with guard:
            time.sleep(1.0)

    def prepare():
        with guard:
            lines.append("starts")
        os.nice(1)

    def run_program(number):
        if in_trouble(number):
            threading.Thread(target=write_log, name="log", daemon=True).start()
            while not guard.locked():
                time.sleep(0.001)
        subprocess.run(["true"], preexec_fn=prepare, check=True)

    torch, _ = connect()
    train(torch, ddp(torch), run_program)


CASES = {"uploader-exit": uploader_exit, "paused-terminal": paused_terminal, "hard-negatives": hard_negatives,
         "endless-count": endless_count, "stop-server": stop_server, "backward-breakpoint": backward_breakpoint,
         "forked-scorer": forked_scorer, "prepared-child": prepared_child}

if __name__ == "__main__":
    run(CASES)
