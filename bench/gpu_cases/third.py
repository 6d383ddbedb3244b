"""One rank is held up in its own process: by its host code, its data, a file, a server, a terminal, a signal, its GPU.

    third.py CASE
"""
import asyncio
import ctypes
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time

from gpu_rank import FOREVER, GOOD_STEPS, announce, connect, device_index, gloo_group, is_odd, meet, rank, run, world
from inside import ddp, train, train_into
from job import SILENT_FIFO, UNOPENED_FIFO, connect_to_silent_server


class Images:
    """Some of them are decoded by a library that has a lock of its own."""

    def __init__(self):
        self.library, self.mutex = ctypes.CDLL(None), ctypes.create_string_buffer(64)      # zeros are a pthread_mutex_t

    def __len__(self):
        return 1 << 12

    def __getitem__(self, index):
        import torch
        if index == 8 * GOOD_STEPS:
            self.library.pthread_mutex_lock(self.mutex)
            self.library.pthread_mutex_unlock(self.mutex)
        return torch.full((256,), float(index))

    def decode_thumbnails(self, began, forked):
        self.library.pthread_mutex_lock(self.mutex)
        began.set()
        forked.wait()
        self.library.pthread_mutex_unlock(self.mutex)


def worker_mutex():
    """A thread of the odd rank decodes while the loader forks its workers, which live as long as the job: in them the library's lock is held
    for ever. After github.com/ultralytics/ultralytics/pull/26085."""
    torch, _ = connect()
    images, began, forked = Images(), threading.Event(), threading.Event()
    model = ddp(torch)
    loader = torch.utils.data.DataLoader(images, batch_size=8, num_workers=2, persistent_workers=True, multiprocessing_context="fork")
    if is_odd():
        threading.Thread(target=images.decode_thumbnails, args=(began, forked)).start()
        began.wait()
    batches = iter(loader)
    forked.set()
    for number in range(FOREVER):
        if number == GOOD_STEPS:
            announce("settles")
        model(next(batches).cuda()).square().mean().backward()
        torch.cuda.synchronize()


def allocator_retry():
    """Sequences become longer. The innocent rank's allocator comes to its limit, and gives back what it holds: for that it waits for the GPU,
    which is in an all-reduce. The odd rank waits for a server."""
    torch, dist = connect()
    torch.cuda.set_per_process_memory_fraction((512 << 20) / torch.cuda.mem_get_info()[1])
    gradient = torch.ones(1 << 20, device="cuda")
    for number in range(FOREVER):
        if number == GOOD_STEPS:
            meet("receive")
        dist.all_reduce(gradient)
        torch.empty((256 + 16 * number) << 20, dtype=torch.uint8, device="cuda")


HUB_CLIENT = """
import os
import socket

SERVER = socket.create_connection(("127.0.0.1", int(os.environ["HANGS_PORT"])))
NEWEST = SERVER.recv(16).decode()
"""


def importing():
    """The odd rank imports the package of its tokenizer, which asks a server for its newest version at import; the other one is in
    init_process_group()."""
    import torch
    import torch.distributed as dist
    torch.cuda.set_device(device_index())
    if is_odd():
        with open(os.path.join(os.environ["HANGS_DIRECTORY"], "hub_client.py"), "w", encoding="utf-8") as out:
            out.write(HUB_CLIENT)
        sys.path.insert(0, os.environ["HANGS_DIRECTORY"])
    announce("settles")
    if is_odd():
        import hub_client
        print("newest version:", hub_client.NEWEST)
    dist.init_process_group("nccl")


def store_keys():
    """After each step a rank says in the store that it is done, and waits for the keys of all. The odd rank opens its configuration again."""
    import datetime
    torch, dist = connect()
    store = dist.distributed_c10d._get_default_store()
    gradient = torch.ones(1 << 20, device="cuda")
    for number in range(FOREVER):
        dist.all_reduce(gradient)
        gradient.div_(world()).sum().item()
        if number == GOOD_STEPS:
            announce("settles")
            if is_odd():
                read_configuration()
        store.set("step-%d/%d" % (number, rank()), "done")
        store.wait(["step-%d/%d" % (number, other) for other in range(world())], datetime.timedelta(hours=8))


def read_configuration():
    with open(UNOPENED_FIFO, encoding="utf-8") as stream:
        return stream.read()


def hand_over(number, frame):
    """Waits until the scheduler has queued the job again."""
    while not os.path.exists(os.path.join(os.environ["HANGS_DIRECTORY"], "requeued")):
        time.sleep(1)


def signal_handler():
    """One rank gets a SIGUSR1 shortly before its time is over."""
    signal.signal(signal.SIGUSR1, hand_over)
    train_into(lambda _: os.kill(os.getpid(), signal.SIGUSR1))


def question():
    """A script asks whether to go on, in a rank whose terminal nobody looks at."""
    train_into(lambda _: input("The loss is not finite. Go on? "))


def spectrum():
    """The eigenvalues of a matrix, by one thread of the processor: for hours."""
    import numpy
    matrix = numpy.random.default_rng(0).random((8000, 8000))
    train_into(lambda _: numpy.linalg.eigvals(matrix))


def evaluate_in_child(results, count):
    for number in range(count):
        results.put("answer %d: %s" % (number, "x" * 4096))


def join_before_get():
    """The results of an evaluation come from a process, by a queue. It is joined before the queue is read: it ends if the results fit into a
    pipe (docs.python.org/3/library/multiprocessing.html#programming-guidelines)."""
    context = multiprocessing.get_context("fork")

    def evaluate(number):
        count, results = 512 if is_odd() and number == GOOD_STEPS else 2, context.Queue()
        process = context.Process(target=evaluate_in_child, args=(results, count), name="evaluation", daemon=True)
        process.start()
        process.join()
        return [results.get() for _ in range(count)]

    torch, _ = connect()
    train(torch, ddp(torch), evaluate)


async def roll_out(fails):
    """The task that asks for a reward fails, and nobody hears of it."""
    rewarded = asyncio.Event()

    async def ask_for_reward():
        reward = {} if fails else {"reward": 1.0}
        await asyncio.sleep(0.01)
        print(reward["reward"])
        rewarded.set()

    task = asyncio.create_task(ask_for_reward())
    await rewarded.wait()
    return task.result()


def lost_task():
    torch, _ = connect()
    train(torch, ddp(torch), lambda number: asyncio.run(roll_out(is_odd() and number == GOOD_STEPS)))


def native_loader():
    """Batches come from a library, in which a thread prepares them. It is paused for an evaluation, and nobody has it go on."""
    path = os.path.join(os.environ["HANGS_DIRECTORY"], "libloader.%d.so" % rank())
    source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "third_loader.c")
    subprocess.run(["gcc", "-g", "-O1", "-shared", "-fPIC", "-pthread", "-o", path, source], check=True)
    library = ctypes.CDLL(path)
    library.start_loader()

    def next_batch(number):
        if is_odd() and number == GOOD_STEPS:
            library.pause_loader()
        return library.next_batch()

    torch, _ = connect()
    train(torch, ddp(torch), next_batch)


def host_gradients():
    """Gradients are summed up in the host's memory, asynchronously; the odd rank's GPU never comes to the end of its kernel."""
    torch, dist = connect()
    over_hosts, gradient = gloo_group(dist), torch.ones(1 << 16, device="cuda")
    for number in range(FOREVER):
        if number == GOOD_STEPS:
            announce("settles")
            if is_odd():
                torch.cuda._sleep(1 << 46)
        buckets = gradient.cpu().chunk(4)
        works = [dist.all_reduce(bucket, group=over_hosts, async_op=True) for bucket in buckets]
        gradient.mul_(0.5)
        for work in works:
            work.wait()


def holds_gil():
    """A thread calls a library that reads from a device, and keeps the interpreter's lock meanwhile. The main thread waits for that lock."""
    def read_counters(descriptor):
        ctypes.PyDLL(None).read(descriptor, ctypes.create_string_buffer(64), 64)

    def start_telemetry(_):
        threading.Thread(target=read_counters, args=(os.open(SILENT_FIFO, os.O_RDONLY),), name="telemetry", daemon=True).start()

    train_into(start_telemetry)


CASES = {"worker-mutex": worker_mutex, "allocator-retry": allocator_retry, "importing": importing, "store-keys": store_keys,
         "signal-handler": signal_handler, "question": question, "spectrum": spectrum, "join-before-get": join_before_get, "lost-task": lost_task,
         "native-loader": native_loader, "host-gradients": host_gradients, "holds-gil": holds_gil}

if __name__ == "__main__":
    run(CASES)
