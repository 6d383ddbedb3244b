"""One rank is held up in its own process: by a child or what a child has left, a manager, a prompt, an event loop,
threads, a handler of an exception, a pipe, its GPU.

    seventh.py CASE
"""
import asyncio
import ctypes
import faulthandler
import getpass
import http.client
import json
import multiprocessing
import multiprocessing.managers
import os
import queue
import signal
import subprocess
import sys
import threading
import time

from gpu_rank import FOREVER, GOOD_STEPS, announce, connect, is_odd, rank, run
from fifth import unread_pipe
from inside import ddp, train
from job import SILENT_FIFO, connect_to_silent_server


def in_trouble(number):
    """Whether this is the odd rank, in the step in which it is held up."""
    return is_odd() and number == GOOD_STEPS


def daemon_pipe():
    """The odd rank runs a command and collects its output. The command starts a daemon and ends; the daemon has
    inherited the pipe of the output, whose end never comes."""
    def note_version(number):
        if number == GOOD_STEPS:
            command = "sleep %d & echo 1.4.2" % FOREVER if is_odd() else "echo 1.4.2"
            print("the agent's version:", subprocess.run(["sh", "-c", command], capture_output=True, check=True).stdout)

    torch, _ = connect()
    train(torch, ddp(torch), note_version)


def token_prompt():
    """The token of the odd rank for a service has expired. The client asks for a new one as a person would type it,
    in a rank whose terminal nobody looks at."""
    def log_in(number):
        if in_trouble(number):
            os.environ["TRACKING_TOKEN"] = getpass.getpass("Token: ")

    torch, _ = connect()
    train(torch, ddp(torch), log_in)


class Features:
    """Lives in the process of a manager, which all workers of a rank's loader ask."""

    def mean_of(self, index):
        if is_odd() and index == 8 * GOOD_STEPS:
            connect_to_silent_server().recv(1 << 12)
        return float(index)


class FeatureManager(multiprocessing.managers.BaseManager):
    pass


FeatureManager.register("Features", Features)


class Samples:
    """A dataset that asks the manager for the features of each sample."""

    def __init__(self, features):
        self.features = features

    def __len__(self):
        return 1 << 12

    def __getitem__(self, index):
        import torch
        return torch.full((256,), self.features.mean_of(index))


def manager_cache():
    """The workers of a loader take features from the process of a multiprocessing manager. For one sample of the odd
    rank the manager fetches them from a server, which does not answer."""
    manager = FeatureManager(ctx=multiprocessing.get_context("fork"))
    manager.start()
    features = manager.Features()
    torch, _ = connect()
    model = ddp(torch)
    loader = torch.utils.data.DataLoader(Samples(features), batch_size=8, num_workers=1, prefetch_factor=1,
                                         multiprocessing_context="fork")
    batches = iter(loader)
    for number in range(FOREVER):
        if number == GOOD_STEPS:
            announce("settles")
        model(next(batches).cuda()).square().mean().backward()
        torch.cuda.synchronize()


async def post_status(number):
    reader, writer = await asyncio.open_connection("127.0.0.1", int(os.environ["HANGS_PORT"]))
    body = json.dumps({"step": number, "rank": rank()}).encode()
    writer.write(b"POST /status HTTP/1.1\r\nHost: status\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
    await writer.drain()
    return await reader.readline()


def status_page():
    """The odd rank posts its progress by a client for asyncio, whose loop it runs until the answer is there. The server
    does not answer."""
    torch, _ = connect()
    train(torch, ddp(torch), lambda number: asyncio.run(post_status(number)) if in_trouble(number) else None)


def thread_barrier():
    """Three threads draw the tiles of an image and meet in a barrier after each tile. A thread of the odd rank raises
    and ends; the two others wait in the barrier, and the main thread joins them."""
    def draw(number):
        tiles = threading.Barrier(3)

        def draw_tiles(part):
            for tile in range(2):
                if in_trouble(number) and part == 2 and tile == 1:
                    raise ValueError("tile %d of part %d has no pixels" % (tile, part))
                tiles.wait()

        threads = [threading.Thread(target=draw_tiles, args=(part,), name="tiles-%d" % part) for part in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    torch, _ = connect()
    train(torch, ddp(torch), draw)


def count_samples(wanted, guard, counts):
    """In a process of its own. The kernel kills the process when the machine has no memory left."""
    while True:
        number = wanted.get()
        with guard:
            counts[0] += 1
            if in_trouble(number):
                os.kill(os.getpid(), signal.SIGKILL)


def killed_owner():
    """A process of the rank counts samples in shared memory, under a lock of multiprocessing. That of the odd rank is
    killed while it has the lock; the rank wants the lock to read the counts."""
    context = multiprocessing.get_context("fork")
    wanted, guard, counts = context.SimpleQueue(), context.Lock(), context.RawArray("q", 1)
    context.Process(target=count_samples, args=(wanted, guard, counts), name="counter", daemon=True).start()
    torch, _ = connect()

    def read_counts(number):
        wanted.put(number)
        with guard:
            return counts[0]

    train(torch, ddp(torch), read_counts)


def logged_loss():
    """A thread of each rank reads the loss from the GPU and logs it; the main thread waits until it has done so. The
    thread of rank 0 waits for the GPU, which is in the all-reduce; the odd rank reads a file that does not come."""
    torch, _ = connect()
    losses = queue.Queue()

    def log_losses():
        while True:
            print("loss: %.3f" % losses.get().item())
            losses.task_done()

    threading.Thread(target=log_losses, name="losses", daemon=True).start()
    model = ddp(torch)
    for number in range(FOREVER):
        if number == GOOD_STEPS:
            announce("settles")
        if in_trouble(number):
            with open(SILENT_FIFO, "rb", buffering=0) as schedule:
                schedule.read(4096)
        loss = model(torch.randn(32, 256, device="cuda")).square().mean()
        loss.backward()
        losses.put(loss.detach())
        losses.join()


def alert():
    """The loss of the odd rank is not finite. Before it raises again, its handler posts that to the chat of the team,
    whose server does not answer."""
    def post(text):
        connection = http.client.HTTPConnection("127.0.0.1", int(os.environ["HANGS_PORT"]))
        connection.request("POST", "/hooks/training", body=json.dumps({"text": text}))
        return connection.getresponse().status

    def check_loss(number):
        try:
            if in_trouble(number):
                raise FloatingPointError("the loss of step %d is not finite" % number)
        except FloatingPointError as error:
            post("rank %d: %s" % (rank(), error))
            raise

    torch, _ = connect()
    train(torch, ddp(torch), check_loss)


def keep_container(kind, error, trace):
    """Prints an exception that nobody has caught, and keeps the container for people who want to look at it."""
    sys.__excepthook__(kind, error, trace)
    print("the container is kept: touch %s/release to end it" % os.getcwd(), flush=True)
    while not os.path.exists("release"):
        time.sleep(5)


def kept_alive():
    """The odd rank raises, and nobody catches the exception. The hook for that prints it and does not end the process,
    and so torchrun sees nothing."""
    def look_up(number):
        return {"train": 0, "validation": 1}["test-%d" % number if in_trouble(number) else "train"]

    sys.excepthook = keep_container
    torch, _ = connect()
    train(torch, ddp(torch), look_up)


def stack_dump():
    """The step of the odd rank was slow, and it dumps the stacks of all its threads by faulthandler, into a pipe whose
    reader does not read."""
    path = unread_pipe("stacks") if is_odd() else None

    def dump_stacks(number):
        if in_trouble(number):
            with open(path, "w", encoding="utf-8") as out:
                faulthandler.dump_traceback(file=out, all_threads=True)

    torch, _ = connect()
    train(torch, ddp(torch), dump_stacks)


def consumer_first():
    """Two kernels of Triton's: one says that a number is reached, the other one waits for that. For one step the odd
    rank launches them in the other order, on one stream: the kernel that waits is before the one that it waits for."""
    torch, _ = connect()
    from seventh_triton import say_number, wait_and_scale
    flag, values = torch.zeros(1, dtype=torch.int32, device="cuda"), torch.ones(1024, device="cuda")

    def scale_values(number):
        if in_trouble(number):
            wait_and_scale[(1,)](values, flag, number + 2)
            say_number[(1,)](flag, number + 2)
        else:
            say_number[(1,)](flag, number + 2)
            wait_and_scale[(1,)](values, flag, number + 2)

    train(torch, ddp(torch), scale_values)


def stream_lock():
    """A thread of the odd rank reads an index by a stream of the C library, which keeps the lock of the stream while it
    reads. The main thread asks for the position in that stream."""
    library = ctypes.CDLL(None)
    library.fopen.restype = ctypes.c_void_p
    library.ftell.restype = ctypes.c_long
    for function in (library.fgetc, library.ftell, library.ftrylockfile, library.funlockfile):
        function.argtypes = [ctypes.c_void_p]

    def read_index(stream):
        while library.fgetc(stream) >= 0:
            pass

    def is_reading(stream):
        if library.ftrylockfile(stream) != 0:
            return True
        library.funlockfile(stream)
        return False

    def print_progress(number):
        if in_trouble(number):
            stream = library.fopen(SILENT_FIFO.encode(), b"r")
            threading.Thread(target=read_index, args=(stream,), name="index", daemon=True).start()
            while not is_reading(stream):
                time.sleep(0.01)
            print("bytes of the index: %d" % library.ftell(stream))

    torch, _ = connect()
    train(torch, ddp(torch), print_progress)


CASES = {"daemon-pipe": daemon_pipe, "token-prompt": token_prompt, "manager-cache": manager_cache,
         "status-page": status_page, "thread-barrier": thread_barrier, "killed-owner": killed_owner,
         "logged-loss": logged_loss, "alert": alert, "kept-alive": kept_alive, "stack-dump": stack_dump,
         "consumer-first": consumer_first, "stream-lock": stream_lock}

if __name__ == "__main__":
    run(CASES)
