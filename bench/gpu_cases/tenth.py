"""A rank is held up in its own process by an answer that got lost or comes byte by byte, by its log, a thread that was woken
in its place, a key, its collector, a pool of threads, or its GPU.

    tenth.py CASE
"""
import gc
import hashlib
import http.server
import logging
import logging.handlers
import os
import queue
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from gpu_rank import FOREVER, connect, rank, run
from inside import ddp, train
from job import connect_to_silent_server
from seventh import in_trouble
from sixth import fetch


def serve_in_background(serve):
    """Calls serve() in a process that is no child of the rank."""
    child = os.fork()
    if child == 0:
        os.setsid()
        if os.fork() == 0:
            serve()
        os._exit(0)
    os.waitpid(child, 0)


def lost_datagram():
    """Before each step a rank asks for the address of a server of features, by a datagram, as name servers are asked. The
    answer to the odd rank gets lost, and its client waits for it without a timeout."""
    names, client = (socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2))
    names.bind(("127.0.0.1", 0))
    address = names.getsockname()

    def answer():
        while True:
            question, asking = names.recvfrom(512)
            if not in_trouble(int(question)):
                names.sendto(b"10.0.0.7", asking)

    def look_up(number):
        client.sendto(b"%d" % number, address)
        client.recvfrom(512)

    serve_in_background(answer)
    names.close()
    torch, _ = connect()
    train(torch, ddp(torch), look_up)


class Mirror(http.server.BaseHTTPRequestHandler):
    """Hands out shards; that of the odd rank by one byte every two seconds."""

    def do_GET(self):
        slow = in_trouble(int(self.path[1:]))
        self.send_response(200)
        self.send_header("Content-Length", str(1 << 26 if slow else 1 << 13))
        self.end_headers()
        while slow:
            self.wfile.write(b"\0")
            time.sleep(2)
        self.wfile.write(bytes(1 << 13))

    def log_message(self, *_):
        pass


def trickle_download():
    """Before each step a rank downloads a shard over HTTP. For one of rank 0 the mirror sends a byte every two seconds, of
    64 MiB: no timeout of the socket comes to its end, and nor does the download."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Mirror)
    serve_in_background(server.serve_forever)
    port = server.server_address[1]
    server.server_close()
    torch, _ = connect()
    train(torch, ddp(torch), lambda number: fetch(port, str(number)))


def full_journal():
    """A rank logs to a daemon of its machine, by datagrams to a Unix socket. The odd rank has a warning for each of some
    thousands of samples. The daemon does not read any more: as soon as the socket holds all that it can, the rank waits for
    a place in it."""
    path = os.path.join(os.environ["HANGS_DIRECTORY"], "journal.%d" % rank())
    journal = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    journal.bind(path)
    serve_in_background(lambda: time.sleep(FOREVER))
    journal.close()
    logger = logging.getLogger("samples")
    logger.addHandler(logging.handlers.SysLogHandler(path))
    logger.propagate = False

    def check_samples(number):
        for sample in range(5000 if in_trouble(number) else 1):
            logger.warning("step %d: sample %d is longer than the context", number, sample)

    torch, _ = connect()
    train(torch, ddp(torch), check_samples)


def notify_one():
    """A thread prepares a batch and calls notify() of a condition, for which the main thread waits. On the odd rank a thread
    for the statistics waits for the same condition, since before: notify() wakes that one, which has to wait on, and
    nobody wakes the main thread."""
    filled, waiting = threading.Condition(), threading.Event()
    wanted, batches, ended = queue.Queue(), [], []

    def prepare():
        while True:
            number = wanted.get()
            with filled:
                batches.append(number)
                filled.notify()

    def print_statistics():
        with filled:
            waiting.set()
            while not ended:
                filled.wait()

    def take_batch(number):
        if in_trouble(number):
            threading.Thread(target=print_statistics, name="statistics", daemon=True).start()
            waiting.wait()
        with filled:
            wanted.put(number)
            while not batches:
                filled.wait()
            batches.pop()

    threading.Thread(target=prepare, name="batches", daemon=True).start()
    torch, _ = connect()
    train(torch, ddp(torch), take_batch)


def key_derivation():
    """Shards are encrypted, and the header of each says by how many iterations its key is derived. That of the odd rank is
    damaged, and says two thousand million: the rank is in the library that derives the key, for many hours."""
    def open_shard(number):
        iterations = (1 << 31) - 1 if in_trouble(number) else 1000
        hashlib.pbkdf2_hmac("sha256", b"a pass phrase", b"shard-%d" % number, iterations, dklen=1 << 11)

    torch, _ = connect()
    train(torch, ddp(torch), open_shard)


def collector_callback():
    """A rank notes how often garbage is collected, by a function in gc.callbacks. That of the odd rank hands its numbers to
    a server, which does not answer. The collector is called by the interpreter, while a batch is prepared."""
    state = {"hands": False, "collections": 0}

    def note_collection(phase, _):
        state["collections"] += phase == "stop"
        if phase == "stop" and state["hands"]:
            server = connect_to_silent_server()
            server.sendall(b"%d" % state["collections"])
            server.recv(1)

    def prepare_batch(number):
        state["hands"] = in_trouble(number)
        return [[word] for word in range(20000)]

    gc.callbacks.append(note_collection)
    torch, _ = connect()
    train(torch, ddp(torch), prepare_batch)


def raises_in_pool():
    """Samples are uploaded by the threads of a pool, while the main thread counts them. That of the odd rank raises within
    the with statement of the pool, whose end waits for all uploads before anybody sees the exception; the server takes
    one of them and does not answer."""
    def upload(answered):
        if not answered:
            connect_to_silent_server().recv(1)

    def upload_and_count(number):
        with ThreadPoolExecutor(2, thread_name_prefix="uploads") as pool:
            pool.submit(upload, not in_trouble(number))
            counts = {} if in_trouble(number) else {"samples": 32}
            return counts["samples"]

    torch, _ = connect()
    train(torch, ddp(torch), upload_and_count)


def wrapped_angle():
    """A function of torch.cuda.jiterator brings angles into one turn, by taking turns away until they are small enough. An
    angle of the odd rank is infinite, and its kernel does not end; the rank waits for the largest angle."""
    torch, _ = connect()
    wrap = torch.cuda.jiterator._create_jit_fn(
        "template <typename T> T wrap(T angle) { while (angle > T(3.1415927)) angle -= T(6.2831853); return angle; }")

    def rotate(number):
        angles = torch.linspace(0, 20, 4096, device="cuda")
        if in_trouble(number):
            angles[17] = float("inf")
        wrap(angles).max().item()

    train(torch, ddp(torch), rotate)


CASES = {"lost-datagram": lost_datagram, "trickle-download": trickle_download, "full-journal": full_journal,
         "notify-one": notify_one, "key-derivation": key_derivation, "collector-callback": collector_callback,
         "raises-in-pool": raises_in_pool, "wrapped-angle": wrapped_angle}

if __name__ == "__main__":
    run(CASES)
