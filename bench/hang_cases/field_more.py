"""One rank of a gloo job, as field.py: a second set, written after the rules had been changed for the first one, and without a look at what
the tool says of these.

    field_more.py CASE

Held out (docs/benchmark.md).
"""
import http.server
import os
import queue
import selectors
import socket
import sqlite3
import subprocess
import sys
import threading
import time

from field import field_native
from job import DIRECTORY, FOREVER, FULL_FIFO, SILENT_FIFO, announce, connect, end_with_parent, is_odd, rank, world

GOOD_STEPS, STEPS, ENDLESS = 3, 40, 1 << 40


# --- one rank is held up, the others are in an all-reduce -------------------------------------------------------------------------------------------

def native_barrier(_):
    """Four threads of a library meet at a barrier; one of them reads a file instead."""
    announce()
    field_native()[0].transform_in_parallel(SILENT_FIFO.encode())


def start_child(_):
    """The child reads before it becomes another program, and its parent waits for that."""
    def prepare():
        with open(SILENT_FIFO, "rb", buffering=0) as configuration:
            configuration.read(1)

    announce()
    subprocess.Popen(["true"], preexec_fn=prepare).wait()      # pylint: disable=consider-using-with,subprocess-popen-preexec-fn


def child_with_full_pipe(_):
    """The child's output fills the pipe, which nobody reads before the child has ended."""
    announce()
    subprocess.Popen(["dd", "if=/dev/zero", "bs=4096"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).wait()      # pylint: disable=consider-using-with


def await_tasks(_):
    """All tasks of a queue have been done, but one of them was not declared as done."""
    tasks = queue.Queue()
    for number in range(3):
        tasks.put(number)

    def work():
        while True:
            if tasks.get() != 1:
                tasks.task_done()

    threading.Thread(target=work, name="augment", daemon=True).start()
    announce()
    tasks.join()


def serve_own_loop(_):
    """A loop of the rank's own over sockets, from which nothing comes."""
    connection = socket.create_connection(("127.0.0.1", int(os.environ["HANGS_PORT"])))
    with selectors.DefaultSelector() as selector:
        selector.register(connection, selectors.EVENT_READ)
        announce()
        while not selector.select():
            pass


def import_after_thread(_):
    """A thread imports a module, which reads a file at its top level; the main thread imports the same module."""
    with open(os.path.join(DIRECTORY, "vocabulary.py"), "w", encoding="ascii") as out:
        out.write("import __main__\n__main__.BEGUN.set()\nwith open(%r, 'rb', buffering=0) as stream:\n    WORDS = stream.read(1)\n" % SILENT_FIFO)
    begun = sys.modules["__main__"].BEGUN = threading.Event()
    sys.path.insert(0, DIRECTORY)
    threading.Thread(target=__import__, args=("vocabulary",), name="tokenizer", daemon=True).start()
    begun.wait()
    announce()
    __import__("vocabulary")


def two_of_eight(_):
    """One reads a file, another one has locked itself out."""
    if rank() == 2:
        announce()
        with open(SILENT_FIFO, "rb", buffering=0) as shard:
            shard.read(1)
    lock = threading.Lock()
    with lock:
        announce()
        with lock:
            pass


HELD_UP = {"native-barrier": native_barrier, "start-child": start_child, "child-with-full-pipe": child_with_full_pipe, "await-tasks": await_tasks,
           "serve-own-loop": serve_own_loop, "import-after-thread": import_after_thread, "two-of-eight": two_of_eight}


class CachedShards:
    """A worker's cache is a database that a process outside of the job has locked."""

    def __len__(self):
        return 400

    def __getitem__(self, index):
        import torch
        if index == 2 * GOOD_STEPS and is_odd():
            end_with_parent()
            announce("settles", name="worker")
            self.remember(index)
        return torch.full((64,), index / 400)

    def remember(self, index):
        with sqlite3.connect(os.path.join(DIRECTORY, "shared.db"), timeout=FOREVER) as cache:
            cache.execute("INSERT INTO trials VALUES (%d)" % index)


def worker_with_database(torch, dist):
    loader = torch.utils.data.DataLoader(CachedShards(), batch_size=2, num_workers=1, multiprocessing_context="fork")
    for number, batch in enumerate(loader):
        if number == GOOD_STEPS - 1:
            announce()
        dist.all_reduce(batch)


# --- ranks that disagree, or wait for each other by files -------------------------------------------------------------------------------------------

def broadcast_from_other_source(torch, dist):
    """The best of all is broadcast by the rank that has it; one rank takes itself for that."""
    weights = torch.ones(64)
    for number in range(STEPS):
        if number == GOOD_STEPS:
            announce()
        dist.broadcast(weights, src=rank() if is_odd() and number == GOOD_STEPS else 0)
        dist.all_reduce(weights)


def send_to_wrong_rank(torch, dist):
    """Rank 1 sends what rank 2 waits for to rank 3, which is with rank 0 at the barrier."""
    block = torch.ones(64)
    dist.all_reduce(block)
    announce()
    if rank() == 1:
        dist.send(block, 3)
    if rank() == 2:
        dist.recv(block, 1)
    dist.barrier()


def await_marker(torch, dist):
    """Rank 0 saves, and then creates a file; the others look for that file."""
    dist.all_reduce(torch.ones(64))
    if is_odd():
        with open(FULL_FIFO, "wb", buffering=0) as out:
            announce()
            torch.save({"weights": torch.ones(1 << 18)}, out)
    poll_for(os.path.join(DIRECTORY, "saved"))


def poll_for(path):
    announce("settles")
    while not os.path.exists(path):
        time.sleep(0.3)


# --- no rank is to blame ----------------------------------------------------------------------------------------------------------------------------

def prepares_for_others(torch, dist):
    """Rank 0 prepares the data set, file by file, and the others look every 0.3 s whether it is done."""
    dist.all_reduce(torch.ones(64))
    if rank() != 0:
        poll_for(os.path.join(DIRECTORY, "prepared"))
    for shard in range(ENDLESS):
        with open(os.path.join(DIRECTORY, "shard"), "w", encoding="ascii") as out:
            out.write(" ".join(str(value * value) for value in range(200000)))
        if shard == GOOD_STEPS:
            announce("moves")


def serves_metrics(torch, dist):
    """The main thread serves the rank's metrics, a thread trains."""
    def train():
        weights = torch.rand(64, 64)
        for number in range(ENDLESS):
            end = time.monotonic() + 0.2
            while time.monotonic() < end:
                weights = torch.tanh(weights @ weights)
            dist.all_reduce(weights)
            if number == GOOD_STEPS:
                announce("moves")

    threading.Thread(target=train, name="training", daemon=True).start()
    http.server.ThreadingHTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler).serve_forever()


def one_pauses(torch, dist):
    """One rank pauses for 1.5 s in each step, until its device has cooled down."""
    for step in range(ENDLESS):
        if is_odd():
            time.sleep(1.5)
        dist.all_reduce(torch.ones(64))
        if step == GOOD_STEPS:
            announce("moves")


def one_compresses(torch, dist):
    """Rank 0 compresses what it has learned in each step, for some tenths of a second in one call; the others wait for it."""
    import zlib
    data = os.urandom(1 << 22)
    for step in range(ENDLESS):
        if rank() == 0:
            zlib.compress(data, 9)
        dist.all_reduce(torch.ones(64))
        if step == GOOD_STEPS:
            announce("moves")


JOBS = {"worker-with-database": worker_with_database, "broadcast-from-other-source": broadcast_from_other_source,
        "send-to-wrong-rank": send_to_wrong_rank, "await-marker": await_marker, "prepares-for-others": prepares_for_others,
        "serves-metrics": serves_metrics, "one-pauses": one_pauses, "one-compresses": one_compresses}


def main():
    end_with_parent()
    case = sys.argv[1]
    torch, dist = connect()
    if case in JOBS:
        JOBS[case](torch, dist)
        return
    gradients = torch.ones(64)
    for number in range(STEPS):
        if number == GOOD_STEPS:
            if is_odd():
                HELD_UP[case](torch)
            announce()
        dist.all_reduce(gradients)


if __name__ == "__main__":
    main()
