"""One rank of a small job over gloo, in which the ranks of HANGS_ODD are held up by something in their own process, as it happens in long runs
at night. The others wait for them in an all-reduce.

    night.py CASE

Held out: written without a look at the rules of the tool (docs/benchmark.md).
"""
import asyncio
import gc
import http.server
import itertools
import logging
import logging.handlers
import multiprocessing
import os
import queue
import re
import signal
import socket
import ssl
import subprocess
import sys
import tarfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from job import DIRECTORY, FOREVER, SILENT_FIFO, announce, connect, connect_to_silent_server, end_with_parent, is_odd

GOOD_STEPS, STEPS = 3, 40


# --- data -------------------------------------------------------------------------------------------------------------------------------------------

def read_shard_through_pipe():
    """Samples of a tar archive, which a command copies from the store to a pipe."""
    with subprocess.Popen("cat '%s'" % SILENT_FIFO, shell=True, stdout=subprocess.PIPE) as copying:
        announce()
        with tarfile.open(fileobj=copying.stdout, mode="r|") as shard:
            return next(iter(shard))


class StreamingDataset:
    """A thread reads the records of an HTTP answer ahead. The server has sent the first of them."""

    def __init__(self):
        self.records = queue.Queue(8)
        self.connection = connect_to_silent_server()
        threading.Thread(target=self.read_ahead, name="read-ahead", daemon=True).start()

    def read_ahead(self):
        self.connection.sendall(b"GET /train-00017 HTTP/1.1\r\nHost: store\r\n\r\n")
        with self.connection.makefile("rb") as answer:
            for line in answer:
                self.records.put(line)

    def __iter__(self):
        while True:
            yield self.records.get()


def take_streamed():
    dataset = StreamingDataset()
    announce()
    return next(iter(dataset))


def clean_text():
    """An expression that tries every way to divide a line into words."""
    announce("spins")
    return re.match(r"(\w+\s?)+$", "a" * 64 + "!")


def remove_duplicates():
    """A thread of a pool compares endless rows; the main thread waits for its result."""
    def compare_rows():
        seen = set()
        for row in itertools.count():
            seen.add(row % 1000)

    with ThreadPoolExecutor(2, thread_name_prefix="clean") as pool:
        announce()
        pool.submit(compare_rows).result()


# --- clients ----------------------------------------------------------------------------------------------------------------------------------------

def shake_hands():
    connection = connect_to_silent_server()
    announce()
    return ssl.create_default_context().wrap_socket(connection, server_hostname="store")


class Overloaded(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(503)
        self.end_headers()

    def log_message(self, *_):
        pass


def fetch_with_backoff():
    """The store answers that it is overloaded, and the client waits longer each time."""
    import urllib3
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Overloaded) as store:
        threading.Thread(target=store.serve_forever, daemon=True).start()
        retries = urllib3.util.retry.Retry(total=100, backoff_factor=20, status_forcelist=[503])
        announce("settles")
        urllib3.PoolManager(retries=retries).request("GET", "http://127.0.0.1:%d/model.safetensors" % store.server_port)


def serve_tracker(path):
    """A service next to the rank: takes records at a socket, and sends them to a server."""
    end_with_parent()
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(path + ".new")
    listening.listen()
    os.rename(path + ".new", path)
    client, _ = listening.accept()
    while client.recv(1 << 16):
        upload()
        client.sendall(b"ok")


def upload():
    connection = connect_to_silent_server()
    connection.sendall(b"POST /runs/7\r\n\r\n")
    return connection.recv(1 << 16)


def log_to_service():
    path = os.path.join(DIRECTORY, "tracker.sock")
    subprocess.Popen([sys.executable, os.path.abspath(__file__), "serve-tracker", path], start_new_session=True)  # pylint: disable=consider-using-with
    service = socket.socket(socket.AF_UNIX)
    while not os.path.exists(path):
        time.sleep(0.05)
    service.connect(path)
    service.sendall(b"loss=2.1")
    announce()
    return service.recv(2)


class BlockingQueueHandler(logging.handlers.QueueHandler):
    """Waits where there is no room, so that no record is lost."""

    def enqueue(self, record):
        self.queue.put(record)


def log_without_listener():
    """The thread that takes the records has died of one that it could not format."""
    records = queue.Queue(4)

    def write_records():
        while True:
            print(records.get().getMessage(), file=sys.stderr)

    listener = threading.Thread(target=write_records, name="log-writer", daemon=True)
    listener.start()
    logger = logging.getLogger("steps")
    logger.addHandler(BlockingQueueHandler(records))
    records.put("no record")
    listener.join()
    announce()
    for step in range(5):
        logger.warning("step %d", step)


# --- signals, exit ----------------------------------------------------------------------------------------------------------------------------------

class Meter:
    """Counts, also at a signal."""

    def __init__(self):
        self.lock, self.count = threading.Lock(), 0

    def add(self, *_):
        with self.lock:
            self.count += 1

    def report(self):
        with self.lock:
            announce()
            os.kill(os.getpid(), signal.SIGUSR1)
            return self.count


def count_at_signal():
    meter = Meter()
    signal.signal(signal.SIGUSR1, meter.add)
    meter.report()


def leave_with_thread():
    """The rank has ended its work, and the interpreter waits for a thread that waits for work."""
    work = queue.Queue()
    threading.Thread(target=work.get, name="augment").start()
    announce()
    sys.exit(0)


def try_again_without_memory():
    """Each try ends without memory, and the next one is to have more luck."""
    announce("settles")
    while True:
        try:
            allocate_activations()
        except MemoryError:
            gc.collect()
            time.sleep(FOREVER)


def allocate_activations():
    return bytearray(1 << 60)


# --- children ---------------------------------------------------------------------------------------------------------------------------------------

def convert_in_event_loop():
    async def convert():
        child = await asyncio.create_subprocess_exec("sleep", "100000")
        announce()
        await child.wait()

    asyncio.run(convert())


def decode(number):
    if number == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def map_with_killed_worker():
    """The kernel has killed a worker that used too much memory. The pool has started another one, and the task is lost."""
    with multiprocessing.get_context("fork").Pool(2, initializer=end_with_parent) as pool:
        announce("settles")
        return pool.map(decode, range(4), chunksize=1)


def run_script():
    """The script has ended; what it has left in the background still has its output open."""
    announce()
    subprocess.run(["sh", "-c", "sleep 100000 & echo started"], capture_output=True, check=True)


def take_lock_of_killed():
    """A child was killed while it had the lock of the cache."""
    context = multiprocessing.get_context("fork")
    lock = context.Lock()

    def write_cache():
        with lock:
            os.kill(os.getpid(), signal.SIGKILL)

    child = context.Process(target=write_cache)
    child.start()
    child.join()
    announce()
    with lock:
        pass


HELD_UP = {
    "tar-pipe": read_shard_through_pipe, "streamed": take_streamed, "expression": clean_text, "duplicates": remove_duplicates, "handshake": shake_hands,
    "backoff": fetch_with_backoff, "service": log_to_service, "log-queue": log_without_listener, "signal-lock": count_at_signal,
    "leaves": leave_with_thread, "memory": try_again_without_memory, "async-child": convert_in_event_loop, "killed-worker": map_with_killed_worker,
    "inherited": run_script, "lock-of-killed": take_lock_of_killed,
}


def main():
    if sys.argv[1] == "serve-tracker":
        serve_tracker(sys.argv[2])
        return
    end_with_parent()
    torch, dist = connect()
    gradients = torch.ones(64)
    for number in range(STEPS):
        if number == GOOD_STEPS:
            if is_odd():
                HELD_UP[sys.argv[1]]()
            announce()
        dist.all_reduce(gradients)


if __name__ == "__main__":
    main()
