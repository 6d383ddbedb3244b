"""One rank of a job over gloo in which no rank is to blame: it gets on, it waits for work from outside, or all ranks wait for the same thing.

    night_well.py CASE

Held out: written without a look at the rules of the tool (docs/benchmark.md).
"""
import atexit
import fcntl
import http.server
import multiprocessing
import os
import socket
import subprocess
import threading
import sys
import time

from job import DIRECTORY, announce, connect, connect_to_silent_server, end_with_parent, rank

GOOD_STEPS, ENDLESS = 2, 1 << 40


def announce_after(number):
    if number == GOOD_STEPS:
        announce("moves")


def compile_kernels(torch, dist):
    """The first minutes of a job: each rank has its kernels compiled, one after the other, and then all meet."""
    for number in range(ENDLESS):
        source = os.path.join(DIRECTORY, "kernel%d.c" % rank())
        with open(source, "w", encoding="ascii") as out:
            out.write("".join("double f%d(double x) { return x * %d; }\n" % (line, number) for line in range(2000)))
        subprocess.run(["gcc", "-O1", "-shared", "-fPIC", "-o", source + ".so", source], check=True)
        dist.all_reduce(torch.ones(64))
        announce_after(number)


def serve_requests(torch, dist):
    """Rank 0 takes requests from users, of which there are none at night, and sends each to the other ranks."""
    work = [None]

    class Requests(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            work[0] = self.rfile.read(int(self.headers["Content-Length"]))
            dist.broadcast_object_list(work, src=0)
            self.send_response(200)
            self.end_headers()

    dist.barrier()
    announce("settles")
    if rank() == 0:
        http.server.HTTPServer(("127.0.0.1", 0), Requests).serve_forever()
    while True:
        dist.broadcast_object_list(work, src=0)


def tokenize(text):
    return sum(hash(text[start:start + 5]) % 7 for start in range(len(text) - 5))


def tokenize_in_pool(torch, dist):
    """Each rank's texts are tokenized by processes, for which its main thread waits most of the time."""
    with multiprocessing.get_context("fork").Pool(2, initializer=end_with_parent) as pool:
        for number in range(ENDLESS):
            texts = [str(number) * (20000 + part) for part in range(8)]
            dist.all_reduce(torch.tensor(float(sum(pool.imap(tokenize, texts)))))
            announce_after(number)


def download_model(torch, dist):
    """Rank 0 downloads the weights over a slow line; the others wait, as they should."""
    dist.all_reduce(torch.ones(64))
    if rank() == 0:
        with socket.create_server(("127.0.0.1", 0)) as server:
            threading.Thread(target=send_slowly, args=(server,), daemon=True).start()
            receive_weights(server.getsockname())
    announce()
    dist.barrier()


def send_slowly(server):
    connection, _ = server.accept()
    while True:
        connection.sendall(bytes(10000))
        time.sleep(0.25)


def receive_weights(address):
    connection = socket.create_connection(address)
    with open(os.path.join(DIRECTORY, "model.part"), "wb") as out:
        for number in range(ENDLESS):
            out.write(connection.recv(1 << 16))
            announce_after(number)


def all_wait_for_key(_, dist):
    """All look for a key of the store that an orchestrator of an older version would have set."""
    store = dist.distributed_c10d._get_default_store()
    announce("waits")
    store.wait(["schedule/next"])


def all_take_lock(torch, dist):
    """Another job has the lock of the shared cache."""
    dist.all_reduce(torch.ones(64))
    cache = os.open(os.path.join(DIRECTORY, "cache.lock"), os.O_RDWR)
    announce()
    fcntl.flock(cache, fcntl.LOCK_EX)


def all_finish(torch, dist):
    """The training has ended, and each rank waits until its last records have arrived at the tracker, which does not answer."""
    uploads = threading.Thread(target=upload_rest, name="uploads", daemon=True)
    uploads.start()
    atexit.register(finish, uploads)
    dist.all_reduce(torch.ones(64))


def upload_rest():
    connect_to_silent_server().recv(1)


def finish(uploads):
    announce()
    uploads.join()


CASES = {"compiles": compile_kernels, "serves": serve_requests, "tokenizes": tokenize_in_pool, "downloads": download_model, "key": all_wait_for_key,
         "lock": all_take_lock, "finish": all_finish}


def main():
    end_with_parent()
    CASES[sys.argv[1]](*connect())


if __name__ == "__main__":
    main()
