"""One rank of a gloo job in which the ranks of HANGS_ODD block outside the collective that the others wait in.

    elsewhere.py CASE [all_reduce|ddp|barrier|objects|store]        where the others wait
"""
import asyncio
import atexit
import ctypes
import fcntl
import gc
import os
import resource
import signal
import sqlite3
import subprocess
import sys
import threading
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor

from job import (DIRECTORY, FOREVER, FULL_FIFO, SILENT_FIFO, UNOPENED_FIFO, announce, connect, connect_to_silent_server, end_with_parent, is_odd, native,
                 rank, world)

GOOD_STEPS = 3


# --- what a rank does elsewhere ---------------------------------------------------------------------------------------------------------------------

def sleep():
    announce()
    time.sleep(FOREVER)


def two_ways():
    """Two causes at once: the first odd rank sleeps, the second waits for a server."""
    sleep() if rank() == 1 else receive()


class Flag:
    ready = False


def wait_busily():
    """Spins on a flag that nothing sets: it uses the CPU and makes no progress."""
    announce("spins")
    flag = Flag()
    while not flag.ready:
        pass


def native_loop():
    announce("spins")
    native()[0].simulate_particles()


def gil_holder():
    """A thread is in native code that never releases the GIL; the main thread wants it."""
    announce("polls")
    threading.Thread(target=native()[1].simulate_particles, name="simulation", daemon=True).start()
    while True:
        Flag.ready = not Flag.ready


def python_locks():
    """Two threads take two locks in opposite order."""
    model, metrics = threading.Lock(), threading.Lock()
    both = threading.Barrier(2)

    def report_metrics():
        with metrics:
            both.wait()
            with model:
                pass

    threading.Thread(target=report_metrics, name="metrics", daemon=True).start()
    with model:
        both.wait()
        announce()
        with metrics:
            pass


def reporter():
    """A thread holds the lock that the main thread wants, and sleeps."""
    metrics, held = threading.Lock(), threading.Event()

    def write_report():
        with metrics:
            held.set()
            time.sleep(FOREVER)

    threading.Thread(target=write_report, name="reporter", daemon=True).start()
    held.wait()
    announce()
    with metrics:
        pass


def native_locks():
    announce()
    native()[0].update_statistics()


def subprocess_run():
    announce()
    subprocess.run(["sleep", str(FOREVER)], check=True)


def shell():
    announce()
    os.system("sleep %d" % FOREVER)


def debugger():
    announce()
    import pdb
    pdb.set_trace()
    time.sleep(0)


def ask():
    announce()
    input("continue? ")


def stop():
    announce("stopped")
    os.kill(os.getpid(), signal.SIGSTOP)


def file_lock():
    """The lock is held by a process that is not part of the job (the benchmark)."""
    announce()
    with open(os.path.join(DIRECTORY, "cache.lock"), "w", encoding="ascii") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)


def store_trial():
    """The database is locked by a process that is not part of the job (the benchmark)."""
    announce("polls")
    with sqlite3.connect(os.path.join(DIRECTORY, "shared.db"), timeout=FOREVER) as trials:
        trials.execute("INSERT INTO trials VALUES (1)")


def read_config():
    announce()
    with open(UNOPENED_FIFO, encoding="utf-8") as stream:
        return stream.read()


def receive():
    connection = connect_to_silent_server()
    announce()
    return connection.recv(4096)


def download():
    announce()
    with urllib.request.urlopen("http://127.0.0.1:%s/vocabulary.txt" % os.environ["HANGS_PORT"]) as answer:
        return answer.read()


def future():
    """The main thread waits for a result that a thread of a pool waits for from a server."""
    connection = connect_to_silent_server()
    pool = ThreadPoolExecutor(2)
    announce()
    return pool.submit(connection.recv, 4096).result()


def save():
    import torch
    announce()
    torch.save({"weights": torch.ones(1 << 18)}, FULL_FIFO)


class RemoteFile:
    """A file in a store across the network, with the methods that torch.load needs."""

    def __init__(self, path):
        self.stream = open(path, "rb", buffering=0)      # pylint: disable=consider-using-with

    def tell(self):
        return 0

    def seek(self, *_):
        return 0

    def read(self, size=-1):
        return self.stream.read(size)

    def readline(self):
        return self.stream.readline()


def load():
    import torch
    announce()
    return torch.load(RemoteFile(SILENT_FIFO))


def baton():
    """The lock file of a build that was killed: nothing removes it."""
    from torch.utils.file_baton import FileBaton
    path = os.path.join(DIRECTORY, "lock")
    with open(path, "w", encoding="ascii"):
        pass
    announce("polls")
    FileBaton(path).wait()


def extension():
    """A C++ extension whose compilation does not end."""
    from torch.utils import cpp_extension
    compiler, source = os.path.join(DIRECTORY, "c++"), os.path.join(DIRECTORY, "fused.cpp")
    with open(compiler, "w", encoding="ascii") as out:
        out.write('#!/bin/sh\ncase " $* " in *" -c "*) echo "$$ asleep" >"$0.new" && mv "$0.new" "%s/at.compiler"; exec sleep %d;; esac\n'
                  'exec /usr/bin/c++ "$@"\n' % (DIRECTORY, FOREVER))
    os.chmod(compiler, 0o755)
    with open(source, "w", encoding="ascii") as out:
        out.write("#include <torch/extension.h>\n")
    os.environ["CXX"] = compiler
    announce()
    cpp_extension.load("fused", [source], build_directory=DIRECTORY)


class Cache:
    """Part of a reference cycle, so that only the collector can free it; its finalizer never returns."""

    def __init__(self):
        self.own = self

    def __del__(self):
        time.sleep(FOREVER)


def collector():
    Cache()
    announce()
    gc.collect()


def collector_busy():
    """There are so many objects that the rank is in the collector nearly all the time."""
    kept = [[] for _ in range(1 << 20)]
    announce("spins")
    while kept:
        gc.collect()


def raise_into_atexit():
    atexit.register(time.sleep, FOREVER)
    announce()
    raise RuntimeError("loss is NaN")


def upload_log(*_):
    connect_to_silent_server().recv(1)


def raise_into_hook():
    sys.excepthook = upload_log
    announce()
    raise RuntimeError("loss is NaN")


def raise_with_thread_alive():
    """The interpreter cannot exit: a non-daemon thread still runs."""
    threading.Thread(target=time.sleep, args=(FOREVER,), name="uploader").start()
    announce()
    raise RuntimeError("loss is NaN")


def fill(batches):
    end_with_parent()
    announce(name="worker")
    time.sleep(FOREVER)
    batches.put(0)


def dead_worker():
    """A loader of the job's own, whose worker is killed (for example when memory runs out); its parent goes on waiting."""
    import multiprocessing
    batches = multiprocessing.Queue()
    worker = multiprocessing.Process(target=fill, args=(batches,), daemon=True)
    worker.start()
    while not os.path.exists(os.path.join(DIRECTORY, "at.worker")):
        time.sleep(0.01)
    os.kill(worker.pid, signal.SIGKILL)
    announce("gone", name="worker", pid=worker.pid)
    announce()
    batches.get()


def crash():
    resource.setrlimit(resource.RLIMIT_CORE, (resource.getrlimit(resource.RLIMIT_CORE)[1],) * 2)
    os.chdir(DIRECTORY)
    announce("gone")
    native()[0].interpolate_table(ctypes.c_void_p(0))


def raise_into_finally():
    """The clean-up of the odd rank expects the others at a barrier, as after a good epoch; they are in the all-reduce of the step."""
    import torch.distributed as dist
    announce()
    try:
        raise RuntimeError("loss is NaN")
    finally:
        dist.barrier()


def raise_into_handler():
    """The exception handler sends a message to the other ranks, which do not receive it."""
    import torch.distributed as dist
    announce()
    try:
        raise OSError("shard 7 cannot be read")
    except OSError as error:
        dist.broadcast_object_list([str(error)], src=rank())


def raise_into_last_collective():
    import torch.distributed as dist
    atexit.register(dist.barrier)
    announce()
    raise RuntimeError("loss is NaN")


def await_server():
    """An asyncio client waits for an answer that does not come."""
    async def fetch():
        reader, _ = await asyncio.open_connection("127.0.0.1", int(os.environ["HANGS_PORT"]))
        announce()
        return await reader.read(4096)

    asyncio.run(fetch())


def fan_out():
    """Native code joins its threads, which wait for a mutex whose owner never releases it."""
    announce()
    native()[0].update_all_tables()


def native_engine():
    """A native library that the tool has no rules for: the call waits for a thread of its own, which reads a file."""
    announce()
    native()[0].run_engine(SILENT_FIFO.encode())


def join_threads():
    """Native code joins its thread, which joins another one, which never ends."""
    announce()
    native()[0].close_store()


def read_behind_writer():
    """Native code waits for a read lock while a thread holds the write lock."""
    announce()
    native()[0].look_up_in_index()


def tokenize_shard():
    end_with_parent()
    announce(name="tokenizer")
    time.sleep(FOREVER)


def join_process():
    """The data of the odd rank are prepared by a process that it has started itself."""
    import multiprocessing
    tokenizer = multiprocessing.get_context("fork").Process(target=tokenize_shard, daemon=True)
    tokenizer.start()
    announce()
    tokenizer.join()


def fetch_vocabulary(done):
    connect_to_silent_server().recv(4096)
    done.set()


def wait_for_event():
    """A thread fetches something from a server, and would set an event afterwards."""
    done = threading.Event()
    threading.Thread(target=fetch_vocabulary, args=(done,), name="fetcher", daemon=True).start()
    announce()
    done.wait()


def read_shard(_):
    end_with_parent()
    announce(name="reader")
    with open(SILENT_FIFO, "rb", buffering=0) as shard:
        return shard.read(4096)


def map_in_pool():
    """A pool of processes, one of whose workers reads a file."""
    import multiprocessing
    pool = multiprocessing.get_context("fork").Pool(2)
    announce()
    pool.map(read_shard, [0])


def run_in_executor():
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor
    executor = ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("fork"))
    announce()
    executor.submit(read_shard, 0).result()


def produce(batches):
    batches.put("first")
    raise ValueError("shard 7 is damaged")


def dead_producer():
    """The thread that fills the queue was ended by an exception."""
    import queue
    batches = queue.Queue()
    producer = threading.Thread(target=produce, args=(batches,), name="producer", daemon=True)
    producer.start()
    batches.get()
    producer.join()
    announce()
    batches.get()


def leave():
    announce("gone")
    sys.exit(0)


class ShardDataset:
    """The odd rank's seventh sample comes from a file, or a server, that does not answer; or the rank is asleep instead of reading."""

    def __init__(self, torch, source):
        self.torch, self.source = torch, source

    def __len__(self):
        return 400

    def __getitem__(self, index):
        if index == 6 and is_odd():
            self.fetch()
        return self.torch.full((8,), float(index))

    def fetch(self):
        from torch.utils.data import get_worker_info
        if get_worker_info():
            end_with_parent()
        connection = connect_to_silent_server() if self.source == "server" else None
        announce(name="worker" if get_worker_info() else None)
        if self.source == "sleep":
            return self.augment()
        if connection:
            return connection.recv(4096)
        with open(SILENT_FIFO, "rb", buffering=0) as shard:
            return shard.read(4096)

    def augment(self):
        time.sleep(FOREVER)


def loader(workers, source):
    def run(trainer):
        batches = trainer.torch.utils.data.DataLoader(ShardDataset(trainer.torch, source), batch_size=2, num_workers=workers)
        for step, batch in enumerate(batches):
            if step == GOOD_STEPS - 1 and (workers or not is_odd()):
                announce()                 # the next step, or the wait for its batch, is where it will block
            trainer.step(batch)
    return run


ELSEWHERE = {
    "sleep": sleep, "two-ways": two_ways, "busy-wait": wait_busily, "native-loop": native_loop, "gil-holder": gil_holder,
    "python-locks": python_locks, "reporter": reporter, "native-locks": native_locks, "subprocess": subprocess_run, "shell": shell, "debugger": debugger, "input": ask,
    "stop": stop, "file-lock": file_lock, "database-lock": store_trial, "read-config": read_config, "receive": receive, "download": download, "future": future, "save": save,
    "load": load, "baton": baton, "extension": extension, "collector": collector, "collector-busy": collector_busy, "atexit": raise_into_atexit,
    "excepthook": raise_into_hook, "thread-at-exit": raise_with_thread_alive, "dead-worker": dead_worker, "crash": crash, "leave": leave,
    "finally": raise_into_finally, "handler": raise_into_handler, "last-collective": raise_into_last_collective, "async-client": await_server,
    "fan-out": fan_out, "native-engine": native_engine, "event": wait_for_event, "pool": map_in_pool, "executor": run_in_executor, "dead-producer": dead_producer,
    "join-threads": join_threads, "read-behind-writer": read_behind_writer, "join-process": join_process,
}
LOADERS = {"loader": loader(0, "file"), "loader-worker": loader(2, "file"), "loader-worker-remote": loader(1, "server"),
           "loader-worker-asleep": loader(2, "sleep")}


# --- where the others wait --------------------------------------------------------------------------------------------------------------------------

class Trainer:
    def __init__(self, way):
        self.torch, self.dist = connect()
        self.way = way
        self.gradients = self.torch.ones(64)
        if way == "ddp":
            self.model = self.torch.nn.parallel.DistributedDataParallel(self.torch.nn.Linear(8, 8))
            self.optimizer = self.torch.optim.SGD(self.model.parameters(), lr=1e-4)

    def step(self, batch):
        getattr(self, self.way)(batch)

    def all_reduce(self, _):
        self.dist.all_reduce(self.gradients)

    def ddp(self, batch):
        self.optimizer.zero_grad()
        self.model(batch).sum().backward()
        self.optimizer.step()

    def barrier(self, _):
        self.dist.barrier()

    def objects(self, _):
        everyones = [None] * world()
        self.dist.all_gather_object(everyones, {"rank": rank()})

    def store(self, batch):
        """A barrier made with the store: connections between ranks are not used, so that a rank that ends does not make the others fail."""
        import datetime
        store = self.dist.distributed_c10d._get_default_store()
        step = int(batch[0, 0])
        store.set("step-%d/%d" % (step, rank()), "done")
        store.wait(["step-%d/%d" % (step, other) for other in range(world())], datetime.timedelta(hours=8))


def main():
    end_with_parent()
    case, way = sys.argv[1], (sys.argv[2:] or ["all_reduce"])[0]
    trainer = Trainer(way)
    if case in LOADERS:
        LOADERS[case](trainer)
    for step in range(400):
        if step == GOOD_STEPS:
            if is_odd():
                ELSEWHERE[case]()
            announce()
        trainer.step(trainer.torch.full((2, 8), float(step)))


if __name__ == "__main__":
    main()
