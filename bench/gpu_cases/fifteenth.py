"""A rank is held up in its own process: by its data, its environment, a lock in C, a kernel that sorts, an event loop, or an exception; or all ranks wait
for a seat.

    fifteenth.py CASE
"""
import asyncio
import ctypes
import fcntl
import gc
import io
import multiprocessing
import os
import queue
import subprocess
import tarfile
import threading
import time

from eleventh import tensor_parallel
from gpu_rank import FOREVER, GOOD_STEPS, announce, connect, is_odd, rank, run
from inside import ddp, train
from job import FULL_FIFO
from seventh import in_trouble
from training import sharded_model
from twelfth import train_accumulated

STREAM_SHARD = """
if [ "$2" = cut ]; then
    head -c 5000 "$1"
    exec sleep %d
fi
cat "$1"
""" % FOREVER


def write_shard(path):
    with tarfile.open(path, "w") as archive:
        for number in range(8):
            member = tarfile.TarInfo("%06d.features" % number)
            member.size = 1024
            archive.addfile(member, io.BytesIO(bytes(1024)))


def piped_shard():
    """The worker of a loader has a program fetch one shard after the other, as a client of an object store would, and unpacks the archive as it comes.
    That of the odd rank stops in the middle of a shard, and stays."""
    torch, _ = connect()
    path = os.path.join(os.environ["HANGS_DIRECTORY"], "shard-of-rank-%d.tar" % rank())
    write_shard(path)

    class Shards(torch.utils.data.IterableDataset):
        def __iter__(self):
            for number in range(FOREVER):
                command = ["sh", "-c", STREAM_SHARD, "fetch", path, "cut" if in_trouble(number) else "whole"]
                with subprocess.Popen(command, stdout=subprocess.PIPE) as fetcher:
                    with tarfile.open(fileobj=fetcher.stdout, mode="r|") as archive:
                        for member in archive:
                            yield torch.frombuffer(bytearray(archive.extractfile(member).read()), dtype=torch.float32)
                    fetcher.stdout.read()

    model = ddp(torch)
    loader = torch.utils.data.DataLoader(Shards(), batch_size=8, num_workers=1, multiprocessing_context="fork")
    for number, inputs in enumerate(loader):
        if number == GOOD_STEPS - 1:
            announce("settles")
        model(inputs.cuda()).square().mean().backward()
        torch.cuda.synchronize()


PINNED_SLOTS = threading.BoundedSemaphore(GOOD_STEPS + 1)


class Frames:
    """A dataset of frames."""

    def __len__(self):
        return 1 << 16

    def __getitem__(self, index):
        import torch
        return torch.full((256,), index % 7 / 7)


class PinnedBatch:
    """There are as many batches in pinned memory at a time as there are slots for them."""

    def __init__(self, frames):
        import torch
        self.frames = torch.stack(frames)

    def pin_memory(self):
        PINNED_SLOTS.acquire()
        self.frames = self.frames.pin_memory()
        return self

    def release(self):
        PINNED_SLOTS.release()


def pinned_slots():
    """A batch takes one of four slots as the loader's thread pins it, and gives it back when it has been learned from. The odd rank keeps all its batches,
    to replay those that were difficult: its thread waits for a slot, and the main thread for the loader's thread."""
    torch, _ = connect()
    model, difficult = ddp(torch), []
    loader = torch.utils.data.DataLoader(Frames(), batch_size=8, num_workers=1, pin_memory=True, collate_fn=PinnedBatch, multiprocessing_context="fork")
    for number, batch in enumerate(loader):
        if number == GOOD_STEPS:
            announce("settles")
        model(batch.frames.cuda(non_blocking=True)).square().mean().backward()
        torch.cuda.synchronize()
        if is_odd():
            difficult.append(batch)
        else:
            batch.release()


class Prefetcher(threading.Thread):
    """Reads the batches of an epoch ahead of their use."""

    def __init__(self, files):
        super().__init__(name="prefetcher", daemon=True)
        self.files, self.batches, self.stopped = files, queue.Queue(2), threading.Event()

    def run(self):
        for file in self.files:
            if self.stopped.is_set():
                return
            self.batches.put([file % 7 / 7] * 256)

    def close(self):
        self.stopped.set()
        self.join()


def epoch_prefetcher():
    """An epoch ends after three steps, and with it the thread that reads ahead. The list of the odd rank has more files than that: its thread waits
    for a place in the queue, which nobody takes from any more, and does not see that it should stop; the main thread joins it."""
    torch, _ = connect()
    model = ddp(torch)
    for epoch in range(FOREVER):
        if epoch == 1:
            announce("settles")
        prefetcher = Prefetcher(range(9 if is_odd() and epoch == 1 else 3))
        prefetcher.start()
        for _ in range(3):
            inputs = torch.tensor(prefetcher.batches.get(), device="cuda").expand(32, 256)
            model(inputs).square().mean().backward()
            torch.cuda.synchronize()
        prefetcher.close()


def simulate(connection, film):
    """The process of an environment: plays, and writes a film of that to a file when it is closed."""
    moves = 0
    while connection.recv() is not None:
        moves += 1
        connection.send(0.5 * moves)
    with open(film, "wb", buffering=0) as out:
        out.write(bytes(4096 * moves))


class Environment:
    """A game in a process of its own, which ends with this."""

    def __init__(self, film):
        context = multiprocessing.get_context("fork")
        self.connection, other = context.Pipe()
        self.process = context.Process(target=simulate, args=(other, film), daemon=True)
        self.process.start()
        other.close()
        self.on_end = self.play

    def play(self, action):
        self.connection.send(action)
        return self.connection.recv()

    def __del__(self):
        self.connection.send(None)
        self.process.join()


def environment_dropped():
    """A rank has a new environment for each episode, and leaves the old one to the collector, as it is in a cycle. That joins the environment's process.
    The one of the odd rank writes its film to a file system that takes nothing any more."""
    film = os.path.join(os.environ["HANGS_DIRECTORY"], "film-of-rank-%d" % rank())

    def play_episode(number):
        environment = Environment(FULL_FIFO if in_trouble(number) else film)
        rewards = [environment.play(action) for action in range(8)]
        del environment
        gc.collect()
        return rewards

    torch, _ = connect()
    train(torch, sharded_model(torch), play_episode)


class RowTable:
    """The rows of an embedding, under a lock of POSIX threads that many may have to read."""

    def __init__(self):
        self.library, self.guard, self.rows = ctypes.CDLL(None), ctypes.create_string_buffer(64), {}

    def insert(self, token):
        self.library.pthread_rwlock_wrlock(self.guard)
        self.rows[token] = len(self.rows)
        self.library.pthread_rwlock_unlock(self.guard)

    def row_of(self, token):
        self.library.pthread_rwlock_rdlock(self.guard)
        if token not in self.rows:
            self.insert(token)
        row = self.rows[token]
        self.library.pthread_rwlock_unlock(self.guard)
        return row


def embedding_rows():
    """A rank looks rows up in a table, under a lock in C. A token of the odd rank has no row: the function that looks it up inserts one, for which it takes
    the lock to write, which it has to read."""
    table = RowTable()
    for token in range(64):
        table.insert(token)

    def look_up(number):
        return [table.row_of(token) for token in (range(32, 96) if in_trouble(number) else range(64))]

    torch, _ = connect()
    train(torch, tensor_parallel(torch), look_up)


SORT_SCORES = """
// One block: exchanges neighbours that are in the wrong order, until there are none.
extern "C" __global__ void sort_scores(float* scores, int count) {
  __shared__ int exchanged;
  do {
    __syncthreads();
    if (threadIdx.x == 0) exchanged = 0;
    __syncthreads();
    for (int parity = 0; parity < 2; parity++) {
      for (int at = 2 * threadIdx.x + parity; at + 1 < count; at += 2 * blockDim.x) {
        float low = scores[at], high = scores[at + 1];
        if (!(low <= high)) {
          scores[at] = high;
          scores[at + 1] = low;
          exchanged = 1;
        }
      }
      __syncthreads();
    }
  } while (exchanged);
}
"""


def sorts_scores():
    """A rank sorts the scores of its samples by a kernel of its own, which is done when no neighbours are in the wrong order. A score of the odd rank is
    not a number, and in the wrong order wherever it is; the rank waits for the largest score."""
    torch, _ = connect()
    sort_scores = torch.cuda._compile_kernel(SORT_SCORES, "sort_scores")

    def largest_score(number):
        scores = torch.rand(128, device="cuda")
        if in_trouble(number):
            scores[40] = float("nan")
        sort_scores(grid=(1, 1, 1), block=(64, 1, 1), args=[scores, 128])
        return scores[-1].item()

    train(torch, ddp(torch), largest_score)


async def reward_of(number):
    loop = asyncio.get_running_loop()
    reward = loop.create_future()

    def score():
        time.sleep(0.3)
        if in_trouble(number):
            reward.set_result(0.0)
        else:
            loop.call_soon_threadsafe(reward.set_result, 0.5)

    threading.Thread(target=score, name="scorer").start()
    return await reward


def unwoken_loop():
    """Before each step a rank waits in its event loop for a reward, which a thread computes and hands over to the loop. For an answer that is empty the
    thread sets the result by itself, as it does on the odd rank: that does not wake the loop up."""
    torch, _ = connect()
    train_accumulated(torch, ddp(torch), lambda number: asyncio.run(reward_of(number)))


def label_clock():
    """A thread measures how long a rank needs for its labels. A label of the odd rank is out of range: the rank raises, and before anybody hears of it
    joins that thread, which waits for an end that nobody announces."""
    def log_duration(number, done):
        begin = time.monotonic()
        done.wait()
        print("step %d: labels in %.3f s" % (number, time.monotonic() - begin), flush=True)

    def check_labels(number):
        done = threading.Event()
        clock = threading.Thread(target=log_duration, args=(number, done), name="label-clock")
        clock.start()
        try:
            labels = [1000 if in_trouble(number) else number % 10] * 32
            if max(labels) >= 10:
                raise ValueError("label %d is out of range" % max(labels))
            done.set()
        finally:
            clock.join()

    torch, _ = connect()
    train(torch, ddp(torch), check_labels)


DECODE = """
head -c 32768 /dev/zero >"$1"
if [ "$2" = huge ]; then
    kill -KILL $$
fi
head -c 32768 /dev/zero >"$1"
"""


def frames_fifo():
    """A program decodes films for a rank into a named pipe, which the rank has open to read and write, so that it has no end between two films. A
    decoder of the odd rank is killed, as one that needs too much memory is, and the rank waits for the rest of the film."""
    path = os.path.join(os.environ["HANGS_DIRECTORY"], "frames-of-rank-%d" % rank())
    os.mkfifo(path)
    pipe = open(path, "r+b", buffering=0)           # pylint: disable=consider-using-with

    def read_film(number):
        decoder = subprocess.Popen(["sh", "-c", DECODE, "decode", path, "huge" if in_trouble(number) else "short"])
        frames = bytearray()
        while len(frames) < 65536:
            frames += pipe.read(65536 - len(frames))
        decoder.wait()
        return frames

    torch, _ = connect()
    train(torch, sharded_model(torch), read_film)


def license_seat():
    """After some steps all ranks need a seat of a licence for an evaluation, which is the lock of a file. Another job has it: all ranks are at the same
    place."""
    def take_seat(number):
        if number == GOOD_STEPS:
            with open(os.path.join(os.environ["HANGS_DIRECTORY"], "cache.lock"), "ab") as seat:
                fcntl.flock(seat, fcntl.LOCK_EX)

    torch, _ = connect()
    train(torch, ddp(torch), take_seat)


CASES = {"piped-shard": piped_shard, "pinned-slots": pinned_slots, "epoch-prefetcher": epoch_prefetcher, "environment-dropped": environment_dropped,
         "embedding-rows": embedding_rows, "sorts-scores": sorts_scores, "unwoken-loop": unwoken_loop, "label-clock": label_clock,
         "frames-fifo": frames_fifo, "license-seat": license_seat}

if __name__ == "__main__":
    run(CASES)
