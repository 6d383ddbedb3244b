"""One rank of a job over gloo in which no rank is to blame: it gets on, in one of the ways that look like a hang, or all ranks wait for the
same thing.

    field_well.py CASE

Held out: written without a look at the rules of the tool (docs/benchmark.md).
"""
import asyncio
import http.server
import os
import sys
import threading
import time
import urllib.request

from job import DIRECTORY, SILENT_FIFO, announce, connect, connect_to_silent_server, end_with_parent, is_odd, rank

GOOD_STEPS, ENDLESS = 2, 1 << 40


def announce_after(number):
    if number == GOOD_STEPS:
        announce("moves")


def compute(torch, seconds, weights=None):
    weights = torch.rand(64, 64) if weights is None else weights
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        weights = torch.tanh(weights @ weights)
    return weights


def sleepy_steps(torch, dist):
    """The ranks of a simulation are paced: a step begins each second."""
    for number in range(ENDLESS):
        time.sleep(1)
        dist.all_reduce(torch.ones(64))
        announce_after(number)


def long_checkpoint(torch, dist):
    """Rank 0 writes a large checkpoint, block by block, to a slow disk; the others wait at the barrier, as they should."""
    dist.all_reduce(torch.ones(64))
    if rank() == 0:
        write_blocks(os.path.join(DIRECTORY, "checkpoint-3.pt"))
    announce()
    dist.barrier()


def write_blocks(path):
    block = os.urandom(1 << 16)
    for number in range(ENDLESS):
        with open(path, "wb" if number % 64 == 0 else "ab") as out:
            out.write(block)
            out.flush()
            os.fsync(out.fileno())
        time.sleep(0.15)
        announce_after(number)


def long_evaluation(torch, dist):
    """Rank 0 evaluates, a batch in 0.6 s, and reports each of them."""
    dist.all_reduce(torch.ones(64))
    if rank() == 0:
        for number in range(ENDLESS):
            score = float(compute(torch, 0.6).sum())
            print("batch %d: %.3f" % (number, score), flush=True)
            announce_after(number)
    announce()
    dist.barrier()


def pauses_between_epochs(torch, dist):
    """After each epoch of some steps, all ranks rest for 2 s, until the file system has caught up."""
    for epoch in range(ENDLESS):
        for _ in range(20):
            compute(torch, 0.005)
            dist.all_reduce(torch.ones(64))
        announce_after(epoch)
        time.sleep(2)


class SlowImages:
    def __len__(self):
        return 1 << 30

    def __getitem__(self, index):
        import torch
        if is_odd():
            time.sleep(0.6)
        return torch.full((8,), float(index % 7))


def one_slow_loader(torch, dist):
    """The disk of one rank is slow, but it delivers; the others wait for that rank most of the time."""
    from torch.utils.data import DataLoader
    for number, batch in enumerate(DataLoader(SlowImages(), batch_size=2, num_workers=1, multiprocessing_context="fork")):
        dist.all_reduce(batch)
        announce_after(number)


class SlowAnswer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        time.sleep(0.5)
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"shard")

    def log_message(self, *_):
        pass


def slow_server(torch, dist):
    """One rank fetches each of its batches from a server that takes half a second for it."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), SlowAnswer)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    for number in range(ENDLESS):
        if is_odd():
            with urllib.request.urlopen("http://127.0.0.1:%d/shard" % server.server_port) as answer:
                answer.read()
        dist.all_reduce(torch.ones(64))
        announce_after(number)


def uneven_micro_batches(torch, dist):
    """The ranks have one, two, three and four micro-batches in a step."""
    for number in range(ENDLESS):
        for _ in range(rank() + 1):
            compute(torch, 0.2)
        dist.all_reduce(torch.ones(64))
        announce_after(number)


def warm_up(torch, dist):
    """Each rank tries out its kernels before the first step, and nobody has met anybody yet since the start."""
    for number in range(ENDLESS):
        for size in range(16, 16 + 8 * (rank() + 2)):
            weights = torch.rand(size, size)
            weights @ weights
        announce_after(number)


def learner_and_actors(torch, dist):
    """Rank 0 learns from what the others play; it waits for whoever is next, and they play on while it learns."""
    if rank() == 0:
        for number in range(ENDLESS):
            dist.recv(torch.zeros(64))
            compute(torch, 0.05)
            announce_after(number)
    for number in range(ENDLESS):
        time.sleep(0.2 * rank())
        dist.send(compute(torch, 0.1)[0], 0)
        announce_after(number)


def event_loops(torch, dist):
    """Each rank's main thread is an event loop that wakes up each second, while a thread trains."""
    def train():
        for number in range(ENDLESS):
            compute(torch, 0.1)
            dist.all_reduce(torch.ones(64))
            announce_after(number)

    async def report():
        training = asyncio.get_running_loop().run_in_executor(None, train)
        while not training.done():
            await asyncio.sleep(1)

    asyncio.run(report())


def heartbeats(torch, dist):
    """A thread of each rank looks every 2 s whether the job gets on, and rank 1 keeps a lock for most of its step."""
    lock, beat = threading.Lock(), threading.Event()

    def watch():
        while not beat.wait(2):
            with lock:
                pass

    threading.Thread(target=watch, name="heartbeat", daemon=True).start()
    for number in range(ENDLESS):
        with lock:
            compute(torch, 0.4 if rank() == 1 else 0.05)
        dist.all_reduce(torch.ones(64))
        announce_after(number)


def all_start_tracker(torch, dist):
    """All ranks start a client of the same server, which does not answer."""
    announce()
    connect_to_silent_server().recv(1)


class DeadShards:
    def __len__(self):
        return 100

    def __getitem__(self, index):
        end_with_parent()
        with open(SILENT_FIFO, "rb", buffering=0) as shard:
            return shard.read(1)


def all_wait_for_loaders(torch, _):
    """The file system is gone: the loader workers of all ranks read, and no batch comes."""
    from torch.utils.data import DataLoader
    batches = iter(DataLoader(DeadShards(), batch_size=2, num_workers=2, multiprocessing_context="fork"))
    announce()
    next(batches)


def in_backward(torch, dist):
    """One rank sleeps, but the tool is given only others."""
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 8))
    for number in range(4):
        if number == 3:
            announce()
            if is_odd():
                time.sleep(100000)
        model(torch.rand(4, 64)).sum().backward()


CASES = {
    "sleepy-steps": sleepy_steps, "long-checkpoint": long_checkpoint, "long-evaluation": long_evaluation, "pauses-between-epochs": pauses_between_epochs,
    "one-slow-loader": one_slow_loader, "slow-server": slow_server, "uneven-micro-batches": uneven_micro_batches, "warm-up": warm_up,
    "learner-and-actors": learner_and_actors, "event-loops": event_loops, "heartbeats": heartbeats, "all-start-tracker": all_start_tracker,
    "all-wait-for-loaders": all_wait_for_loaders, "in-backward": in_backward,
}


def main():
    end_with_parent()
    CASES[sys.argv[1]](*connect())


if __name__ == "__main__":
    main()
