"""One rank of a gloo job in which rank 0 waits for something that the odd rank holds or has to send, outside of any library of collectives.
The other ranks are in an all-reduce.

    between.py CASE

Each case is a pair: what the odd rank does before it blocks in its own code, and what rank 0 does, which waits for the odd rank.
"""
import fcntl
import os
import socket
import sqlite3
import sys
import threading
import time
from multiprocessing.managers import BaseManager

from job import DIRECTORY, FOREVER, announce, connect, end_with_parent, is_odd, rank

GOOD_STEPS = 3
LOCK, OTHER_LOCK, DATABASE, FIFO, SOCKET = (os.path.join(DIRECTORY, name) for name in ("dataset.lock", "index.lock", "trials.db", "batches", "server.sock"))
LONG = 1e6


def refresh_cache():
    announce()
    time.sleep(FOREVER)


def aggregate_gradients():
    announce()
    time.sleep(FOREVER)


class Pair:
    """`prepare` and rank 0's `prepare_too` run before the two ranks meet at a barrier, `hold` and `want` after it."""

    def prepare(self):
        pass

    def prepare_too(self):
        pass

    def want(self):
        raise NotImplementedError

    def hold(self):
        refresh_cache()


class Flock(Pair):
    """A lock file that is shared by all processes of the machine, locked by flock(2)."""
    lock = staticmethod(fcntl.flock)

    def prepare(self):
        self.file = open(LOCK, "w", encoding="ascii")        # pylint: disable=consider-using-with
        self.lock(self.file, fcntl.LOCK_EX)

    def want(self):
        with open(LOCK, "w", encoding="ascii") as file:
            announce()
            self.lock(file, fcntl.LOCK_EX)


class CrossedFlocks(Flock):
    """Each of the two ranks holds the lock of one shard and wants the lock of the other."""

    def prepare_too(self):
        self.file = open(OTHER_LOCK, "w", encoding="ascii")  # pylint: disable=consider-using-with
        self.lock(self.file, fcntl.LOCK_EX)

    def hold(self):
        with open(OTHER_LOCK, "w", encoding="ascii") as file:
            announce()
            self.lock(file, fcntl.LOCK_EX)


class RecordLock(Flock):
    """The same with fcntl(2)."""
    lock = staticmethod(fcntl.lockf)


class Database(Pair):
    """A table of trials in SQLite; `mode` is the journal mode."""

    def __init__(self, mode):
        self.mode = mode

    def prepare(self):
        self.connection = sqlite3.connect(DATABASE, timeout=LONG, isolation_level=None)
        self.connection.execute("PRAGMA journal_mode=" + self.mode)
        self.connection.execute("CREATE TABLE trials (number INTEGER)")
        self.connection.execute("BEGIN IMMEDIATE")

    def want(self):
        announce("polls")
        sqlite3.connect(DATABASE, timeout=LONG).execute("INSERT INTO trials VALUES (1)")


class Fifo(Pair):
    """Batches arrive through a named pipe."""

    def prepare(self):
        os.mkfifo(FIFO)

    def hold(self):
        with open(FIFO, "wb", buffering=0) as stream:
            refresh_cache()
            stream.write(b"batch")

    def want(self):
        with open(FIFO, "rb", buffering=0) as stream:
            announce()
            stream.read(5)


class Server(Pair):
    """A parameter server that is written with plain sockets."""

    def prepare(self):
        self.listener = self.bound()
        self.listener.listen(1)

    def hold(self):
        connection, _ = self.listener.accept()
        connection.recv(64)
        aggregate_gradients()
        connection.sendall(b"weights")

    def want(self):
        connection = self.connected()
        connection.sendall(b"gradients")
        announce()
        connection.recv(64)


class UnixServer(Server):
    def bound(self):
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(SOCKET)
        return listener

    def connected(self):
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(SOCKET)
        return connection


class TcpServer(Server):
    def bound(self):
        listener = socket.socket()
        listener.bind(("127.0.0.1", 0))
        with open(SOCKET, "w", encoding="ascii") as out:
            out.write(str(listener.getsockname()[1]))
        return listener

    def connected(self):
        with open(SOCKET, encoding="ascii") as port:
            return socket.create_connection(("127.0.0.1", int(port.read())))


class NamedQueue(Pair):
    """A queue that the odd rank serves under an address (multiprocessing.managers), and fills."""

    def prepare(self):
        import queue
        batches = queue.Queue()
        BaseManager.register("batches", callable=lambda: batches)
        server = BaseManager(address=SOCKET, authkey=b"hangs").get_server()
        threading.Thread(target=server.serve_forever, name="queue-server", daemon=True).start()

    def want(self):
        BaseManager.register("batches")
        manager = BaseManager(address=SOCKET, authkey=b"hangs")
        manager.connect()
        batches = manager.batches()
        announce()
        batches.get()


CASES = {"flock": Flock(), "crossed-flocks": CrossedFlocks(), "record-lock": RecordLock(), "database-rollback": Database("delete"), "database-wal": Database("wal"), "fifo": Fifo(),
         "unix-server": UnixServer(), "tcp-server": TcpServer(), "named-queue": NamedQueue()}


def main():
    end_with_parent()
    pair = CASES[sys.argv[1]]
    torch, dist = connect()
    gradients = torch.ones(64)
    for _ in range(GOOD_STEPS):
        dist.all_reduce(gradients)
    if is_odd():
        pair.prepare()
    if rank() == 0:
        pair.prepare_too()
    dist.barrier()
    if is_odd():
        pair.hold()
    if rank() == 0:
        pair.want()
    announce()
    dist.all_reduce(gradients)


if __name__ == "__main__":
    main()
