"""One rank of a small training job over gloo, in which the ranks of HANGS_ODD are held up by something in their own process, as people
describe it in the bug trackers of training frameworks and of storage and tracking clients. The others wait for them in DDP's backward pass.

    field.py CASE

Held out: written without a look at the rules of the tool (docs/benchmark.md).
"""
import asyncio
import atexit
import fcntl
import logging
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from job import DIRECTORY, FULL_FIFO, SILENT_FIFO, announce, connect, connect_to_silent_server, end_with_parent, is_odd, rank

GOOD_STEPS, STEPS = 3, 40


def field_native():
    """(field_native.c as a library whose calls release the GIL, the same library keeping it)"""
    import ctypes
    path = os.environ["HANGS_FIELD_NATIVE"]
    return ctypes.CDLL(path), ctypes.PyDLL(path)


# --- clients of trackers and stores -----------------------------------------------------------------------------------------------------------------

class TrackerClient:
    """Sends metrics to a server, and sends again, after ever longer pauses, what could not be sent. Nothing listens at its port."""

    def __init__(self, longest_pause):
        self.longest_pause = longest_pause
        self.unused = socket.socket()
        self.unused.bind(("127.0.0.1", 0))

    def log(self, record):
        announce("settles")
        self.send_with_retries(record)

    def send_with_retries(self, record):
        pause = 0.1
        while True:
            try:
                with socket.create_connection(self.unused.getsockname(), timeout=10) as connection:
                    return connection.sendall(record)
            except OSError:
                self.back_off(pause)
                pause = min(10 * pause, self.longest_pause)

    @staticmethod
    def back_off(pause):
        time.sleep(pause)


def log_with_long_pauses(_):
    TrackerClient(600.0).log(b"loss=2.1")


def log_with_short_pauses(_):
    TrackerClient(0.1).log(b"loss=2.1")


class AsyncStore:
    """A client whose requests run in the event loop of a thread of its own; its callers wait for them, as fsspec's do."""

    def __init__(self):
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self.loop.run_forever, name="storeIO", daemon=True).start()

    async def request(self, text):
        reader, writer = await asyncio.open_connection("127.0.0.1", int(os.environ["HANGS_PORT"]))
        writer.write(text)
        return await reader.read(1 << 16)

    def call(self, text):
        answer, done = [], threading.Event()

        async def run():
            answer.append(await self.request(text))
            done.set()

        asyncio.run_coroutine_threadsafe(run(), self.loop)
        while not done.wait(1):
            pass
        return answer[0]


def read_vocabulary(_):
    store = AsyncStore()
    announce("settles")
    return store.call(b"GET vocabulary.txt")


class RemotePart:
    """A file in the store, as torch.save() writes it: each part is acknowledged."""

    def __init__(self, store):
        self.store = store

    def write(self, part):
        self.store.call(bytes(part))
        return len(part)

    def flush(self):
        pass


def save_to_store(trainer):
    store = AsyncStore()
    announce("settles")
    trainer.torch.save({"weights": trainer.torch.ones(4096)}, RemotePart(store))


def upload_parts(_):
    """The end of the `with` waits for all uploads."""
    connections = [connect_to_silent_server() for _ in range(4)]
    with ThreadPoolExecutor(4, thread_name_prefix="upload") as pool:
        for connection in connections:
            pool.submit(connection.recv, 1)
        announce()


class RemoteHandle:
    """Says good-bye to its server, and waits for the answer, when nobody needs it any more."""

    def __init__(self):
        self.connection = connect_to_silent_server()

    def __del__(self):
        self.connection.sendall(b"close")
        self.connection.recv(1)


def replace_handle(_):
    handle = RemoteHandle()
    announce()
    handle = None
    return handle


def native_client(_):
    """A client in C: the call waits on a condition until its network thread has the answer."""
    connection = connect_to_silent_server()
    announce()
    field_native()[0].client_call(connection.fileno())


def finish_run():
    announce()
    connect_to_silent_server().recv(1)


def leave_early(_):
    """Early stopping, which this rank has decided for itself. At its exit, the tracker uploads what is left."""
    atexit.register(finish_run)
    sys.exit(0)


# --- threads and locks ------------------------------------------------------------------------------------------------------------------------------

class Prefetcher:
    """Batches are prepared by a thread. An exception, which nothing has reported, has ended it."""

    def __init__(self):
        self.batches = queue.Queue(4)
        self.thread = threading.Thread(target=self.fill, name="prefetch", daemon=True)
        self.thread.start()

    def fill(self):
        raise ValueError("shard 7 is damaged")

    def next_batch(self):
        while True:
            try:
                return self.batches.get(timeout=0.5)
            except queue.Empty:
                continue


def take_prefetched(_):
    prefetcher = Prefetcher()
    prefetcher.thread.join()
    announce("settles")
    return prefetcher.next_batch()


def take_leaked_connection(_):
    """A pool of two connections; those who took them have not given them back."""
    permits = threading.BoundedSemaphore(2)
    for _ in range(2):
        permits.acquire()
    announce()
    with permits:
        pass


def meet_dead_thread(_):
    """Three threads augment and meet the main thread; one of them has died."""
    meeting = threading.Barrier(4)

    def augment(number):
        if number == 1:
            raise ValueError("image 7 is damaged")
        meeting.wait()

    for number in range(3):
        threading.Thread(target=augment, args=(number,), daemon=True).start()
    announce()
    meeting.wait()


def mutex_and_gil(_):
    """The main thread keeps the GIL and wants a mutex of a library; a thread has the mutex and wants the GIL, in order to call back."""
    import ctypes
    library, keeping = field_native()
    callback = ctypes.CFUNCTYPE(None)(lambda: None)
    threading.Thread(target=library.visit_rows, args=(callback,), name="visitor", daemon=True).start()
    while not library.rows_are_visited():
        time.sleep(0.01)
    announce()
    keeping.append_row()


def poll_device(_):
    """A driver polls a flag, asleep for a millisecond at a time."""
    announce("polls")
    field_native()[0].wait_for_device()


# --- files and processes ----------------------------------------------------------------------------------------------------------------------------

class PollingLock:
    """A lock file, tried again and again. It is held by a process outside of the job (the benchmark)."""

    def __init__(self, path):
        self.path = path

    def __enter__(self):
        self.descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT)
        while True:
            try:
                return fcntl.flock(self.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                time.sleep(0.05)

    def __exit__(self, *_):
        os.close(self.descriptor)


def build_cache(_):
    announce("polls")
    with PollingLock(os.path.join(DIRECTORY, "cache.lock")):
        pass


def await_stale_lock(_):
    """The process that created the file was killed; the file says that somebody downloads."""
    path = os.path.join(DIRECTORY, "vocabulary.downloading")
    with open(path, "w", encoding="ascii"):
        pass
    announce("settles")
    while os.path.exists(path):
        time.sleep(0.5)


def log_to_unread_pipe(_):
    """What reads this rank's output has stopped to do so, and the pipe is full."""
    logger = logging.getLogger("gradients")
    logger.addHandler(logging.StreamHandler(open(FULL_FIFO, "w", encoding="ascii")))     # pylint: disable=consider-using-with
    announce()
    logger.warning("gradient norm 17.5")


def save_on_signal(trainer):
    """The scheduler announces by a signal that the rank will be ended; its handler saves a checkpoint."""
    def on_preemption(*_):
        announce()
        trainer.torch.save({"weights": trainer.torch.ones(1 << 18)}, FULL_FIFO)

    signal.signal(signal.SIGUSR1, on_preemption)
    os.kill(os.getpid(), signal.SIGUSR1)


def unpack(_):
    announce()
    with subprocess.Popen(["bash", "-c", "cat '%s' | tar xf -" % SILENT_FIFO], stdout=subprocess.PIPE) as unpacking:
        unpacking.communicate()


def poll_child(_):
    """The child, a fork of the rank, reads; the rank looks every 100 ms whether it has ended."""
    child = os.fork()
    if child == 0:
        end_with_parent()
        announce(name="child")
        with open(SILENT_FIFO, "rb", buffering=0) as shard:
            shard.read(1)
        os._exit(0)
    announce("settles")
    while os.waitpid(child, os.WNOHANG)[0] == 0:
        time.sleep(0.1)


class Vocabulary:
    def look_up(self, _):
        announce(name="manager")
        with open(SILENT_FIFO, "rb", buffering=0) as words:
            return words.read(1)


def ask_manager(_):
    """A vocabulary that a process of its own keeps for the rank and its workers; that process reads a file."""
    from multiprocessing import get_context
    from multiprocessing.managers import BaseManager
    BaseManager.register("Vocabulary", Vocabulary)
    manager = BaseManager(ctx=get_context("fork"))
    manager.start(end_with_parent)
    vocabulary = manager.Vocabulary()
    announce()
    vocabulary.look_up("word")


HELD_UP = {
    "log-with-long-pauses": log_with_long_pauses, "log-with-short-pauses": log_with_short_pauses, "read-vocabulary": read_vocabulary,
    "save-to-store": save_to_store, "upload-parts": upload_parts, "replace-handle": replace_handle, "native-client": native_client,
    "leave-early": leave_early, "take-prefetched": take_prefetched, "take-leaked-connection": take_leaked_connection,
    "meet-dead-thread": meet_dead_thread, "mutex-and-gil": mutex_and_gil, "poll-device": poll_device, "build-cache": build_cache,
    "await-stale-lock": await_stale_lock, "log-to-unread-pipe": log_to_unread_pipe, "save-on-signal": save_on_signal, "unpack": unpack,
    "poll-child": poll_child, "ask-manager": ask_manager,
}
IN_BACKWARD_HOOK = ("log-to-unread-pipe", "take-leaked-connection")


class Trainer:
    def __init__(self, case):
        self.torch, self.dist = connect()
        self.case, self.number = case, 0
        self.model = self.torch.nn.parallel.DistributedDataParallel(self.torch.nn.Sequential(self.torch.nn.Linear(64, 64), self.torch.nn.Linear(64, 8)))
        self.optimizer = self.torch.optim.SGD(self.model.parameters(), lr=1e-4)

    def training_step(self, batch):
        self.optimizer.zero_grad()
        output = self.model(batch)
        if self.case in IN_BACKWARD_HOOK:
            output.register_hook(self.on_gradient)
        output.square().mean().backward()
        self.optimizer.step()

    def on_gradient(self, gradient):
        if is_odd() and self.number == GOOD_STEPS:
            HELD_UP[self.case](self)
        return gradient

    def on_step_begin(self):
        if self.number == GOOD_STEPS and not is_odd():
            announce()
        if self.number == GOOD_STEPS and is_odd() and self.case not in IN_BACKWARD_HOOK:
            HELD_UP[self.case](self)

    def fit(self):
        for self.number in range(STEPS):
            self.on_step_begin()
            self.training_step(self.torch.randn(16, 64))


# --- jobs of another form ---------------------------------------------------------------------------------------------------------------------------

def main_process_first():
    """Rank 0 fetches the data set, the others wait for it, before the training."""
    _, dist = connect()
    if rank() == 0:
        fetch_dataset()
    announce()
    dist.barrier()


def fetch_dataset():
    connection = connect_to_silent_server()
    announce()
    connection.sendall(b"GET /train.parquet HTTP/1.1\r\n\r\n")
    with connection.makefile("rb") as answer:
        return answer.readline()


def saving_threads():
    """Checkpoints are written by a thread, which meets those of the other ranks at a barrier of a group of its own. The main threads are
    alike: each waits for its thread before the next checkpoint."""
    torch, dist = connect()
    saving = dist.new_group(list(range(dist.get_world_size())))

    def save(number):
        if is_odd() and number == GOOD_STEPS:
            with open(FULL_FIFO, "wb", buffering=0) as out:
                torch.save({"weights": torch.ones(1 << 18)}, out)
        dist.barrier(group=saving)

    gradients = torch.ones(64)
    with ThreadPoolExecutor(1, thread_name_prefix="checkpoint") as pool:
        for number in range(STEPS):
            last = pool.submit(save, number)
            dist.all_reduce(gradients)
            if number == GOOD_STEPS:
                announce()
            last.result()


def event_loops():
    """Each rank's main thread runs an event loop, and collectives run in a thread of its executor. The odd rank awaits a message that no
    coroutine sends."""
    torch, dist = connect()
    gradients = torch.ones(64)

    async def train():
        loop, messages = asyncio.get_running_loop(), asyncio.Queue()
        for number in range(STEPS):
            if number == GOOD_STEPS:
                announce()
                if is_odd():
                    await messages.get()
            await loop.run_in_executor(None, dist.all_reduce, gradients)

    asyncio.run(train())


JOBS = {"main-process-first": main_process_first, "saving-threads": saving_threads, "event-loops": event_loops}


def main():
    end_with_parent()
    case = sys.argv[1]
    if case in JOBS:
        JOBS[case]()
    else:
        Trainer(case).fit()


if __name__ == "__main__":
    main()
