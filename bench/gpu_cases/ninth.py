"""A rank is held up in its own process by a lock and the interpreter's, its collector, an upload, its data, its threads, a
program, or an archive; all ranks wait for the same server; or one is gone, with or without an error of its GPU.

    ninth.py CASE
"""
import ctypes
import datetime
import gc
import http.client
import multiprocessing
import os
import queue
import random
import subprocess
import tarfile
import threading
import time
import urllib.request

from gpu_rank import FOREVER, GOOD_STEPS, announce, connect, is_odd, rank, run, world
from inside import ddp, train
from job import FULL_FIFO, SILENT_FIFO
from seventh import in_trouble


def sorted_by(library, lengths, compare):
    """The C library's qsort(), with a function of Python's."""
    values = (ctypes.c_int * len(lengths))(*lengths)
    library.qsort(values, ctypes.c_size_t(len(lengths)), ctypes.c_size_t(ctypes.sizeof(ctypes.c_int)), compare)
    return list(values)


def callback_lock():
    """A library sorts under its mutex, and calls a function of Python's to compare; for each call it needs the
    interpreter's lock. Meanwhile a thread of the odd rank asks the library for a number, by a call that keeps the
    interpreter's lock and wants the mutex: each of both threads has what the other one waits for."""
    releases, keeps, mutex = ctypes.CDLL(None), ctypes.PyDLL(None), ctypes.create_string_buffer(64)
    asked = threading.Event()

    @ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_int), ctypes.POINTER(ctypes.c_int))
    def compare(left, right):
        return left[0] - right[0]

    def count_sorted():
        asked.wait()
        keeps.pthread_mutex_lock(mutex)
        keeps.pthread_mutex_unlock(mutex)

    def sort_lengths(number):
        releases.pthread_mutex_lock(mutex)
        if in_trouble(number):
            asked.set()
        sorted_by(releases, [(place * 7919) % 104729 for place in range(1 << 14)], compare)
        releases.pthread_mutex_unlock(mutex)

    if is_odd():
        threading.Thread(target=count_sorted, name="statistics", daemon=True).start()
    torch, _ = connect()
    train(torch, ddp(torch), sort_lengths)


def memory_limit():
    """A rank collects garbage until it has less memory than its limit. What the odd rank has is no garbage: its cache of
    documents is larger than the limit, and it collects again and again."""
    documents = []

    def resident():
        with open("/proc/self/statm", encoding="ascii") as pages:
            return int(pages.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def keep_below(limit, torch):
        while resident() > limit:
            gc.collect()
            torch.cuda.empty_cache()

    torch, _ = connect()

    def tidy_up(number):
        if in_trouble(number):
            documents.extend({"words": [word, str(word)], "tags": {}} for word in range(400000))
        keep_below(1 << 27 if in_trouble(number) else 1 << 50, torch)

    train(torch, ddp(torch), tidy_up)


def artifact_upload():
    """Rank 0 uploads a table of what the model has predicted, 64 MiB, by a PUT over HTTP. The server has accepted the
    connection and reads nothing, so that the rank cannot send more than what the sockets hold."""
    def upload(number):
        if in_trouble(number):
            url = "http://127.0.0.1:%s/artifacts/predictions" % os.environ["HANGS_PORT"]
            request = urllib.request.Request(url, data=bytes(1 << 26), method="PUT")
            with urllib.request.urlopen(request) as answer:
                answer.read()

    torch, _ = connect()
    train(torch, ddp(torch), upload)


class Pictures:
    """A dataset in shards of 24 samples, three batches each. A sample that is damaged is replaced by another one of its
    shard, at random. All those of the odd rank's second shard are damaged."""

    shard = 8 * GOOD_STEPS

    def __len__(self):
        return self.shard << 8

    def decode(self, index):
        import torch
        if is_odd() and index // self.shard == 1:
            raise ValueError("sample %d is not a picture" % index)
        return torch.full((256,), float(index % 7))

    def __getitem__(self, index):
        begin = index - index % self.shard
        while True:
            try:
                return self.decode(index)
            except ValueError:
                index = random.randrange(begin, begin + self.shard)


def bad_samples():
    """The workers of the odd rank's loader look for a sample that is not damaged, for ever, as there is none in the
    shard; the rank waits for its batch."""
    torch, _ = connect()
    model = ddp(torch)
    batches = iter(torch.utils.data.DataLoader(Pictures(), batch_size=8, num_workers=2, persistent_workers=True, pin_memory=True,
                                               multiprocessing_context="fork"))
    for number in range(FOREVER):
        if number == GOOD_STEPS:
            announce("settles")
        model(next(batches).cuda(non_blocking=True)).square().mean().backward()
        torch.cuda.synchronize()


class BadRecord(Exception):
    """It can be pickled, and not be unpickled, as that calls the class with one argument."""

    def __init__(self, path, line):
        super().__init__("%s: line %d is no record" % (path, line))


def parse(text):
    """In a process of the pool."""
    if not text.startswith("{"):
        raise BadRecord("part-0007.jsonl", 3)
    return len(text)


def unpicklable_error():
    """A pool of processes parses records. For one of the odd rank a process raises an exception that cannot be unpickled:
    the thread of the pool that takes the results ends by that, and the main thread waits for its result for ever."""
    pool = multiprocessing.get_context("fork").Pool(2)
    torch, _ = connect()

    def parse_records(number):
        pool.map(parse, ["<html>" if in_trouble(number) else "{}"] * 4)

    train(torch, ddp(torch), parse_records)


def stopped_program():
    """The answers of a model are graded by a program. That of the odd rank has been stopped, as by a person who has
    suspended it, and nobody has it go on; the rank waits for its end."""
    def grade(number):
        script = "kill -STOP $$; exit 0" if in_trouble(number) else "exit 0"
        subprocess.run(["sh", "-c", script], check=True)

    torch, _ = connect()
    train(torch, ddp(torch), grade)


def packed_checkpoint():
    """Rank 0 writes its checkpoint to the local disk, and packs that into an archive on a shared file system, which takes
    nothing any more."""
    torch, _ = connect()
    model, path = ddp(torch), os.path.join(os.environ["HANGS_DIRECTORY"], "weights.pt")

    def save_and_pack(number):
        if rank() == 0:
            torch.save(model.module.state_dict(), path)
            archive = FULL_FIFO if in_trouble(number) else os.path.join(os.environ["HANGS_DIRECTORY"], "packed.tar")
            with tarfile.open(archive, "w|") as packed:
                packed.add(path, "weights.pt")

    train(torch, model, save_and_pack)


def storage_outage():
    """Each rank gets its batches from the same object store over HTTP, which answers nobody any more: all ranks wait for
    it, at the same place."""
    def fetch_batch(number):
        if number >= GOOD_STEPS:
            connection = http.client.HTTPConnection("127.0.0.1", int(os.environ["HANGS_PORT"]))
            connection.request("GET", "/shards/%d/%d" % (rank(), number))
            connection.getresponse().read()

    torch, _ = connect()
    train(torch, ddp(torch), fetch_batch)


def marker_file():
    """At the end of the epoch rank 0 unpacks the data of the next one, by a program, and makes a file that says so; the
    other rank looks for that file twice in a second. The program reads an archive that does not come."""
    marker = os.path.join(os.environ["HANGS_DIRECTORY"], "epoch-%d.ready")

    def prepare_epoch(number):
        if rank() == 0:
            archive = SILENT_FIFO if in_trouble(number) else "/dev/null"
            subprocess.run(["dd", "if=" + archive, "of=/dev/null"], stderr=subprocess.DEVNULL, check=True)
            with open(marker % number, "w", encoding="ascii"):
                pass
        while not os.path.exists(marker % number):
            time.sleep(0.5)

    torch, _ = connect()
    train(torch, ddp(torch), prepare_epoch)


def left_without_key():
    """Each rank evaluates its part and puts its result into the store; rank 0 waits there for that of the other one. This
    one has found that its part is empty, and has ended well, without a result."""
    torch, dist = connect()
    results, model = dist.PrefixStore("results", dist.distributed_c10d._get_default_store()), ddp(torch)
    for _ in range(GOOD_STEPS):
        model(torch.randn(32, 256, device="cuda")).square().mean().backward()
    torch.cuda.synchronize()
    announce("gone" if is_odd() else "settles")
    if is_odd():
        print("nothing to evaluate", flush=True)
        os._exit(0)
    results.set(str(rank()), "0.71")
    results.wait([str(other) for other in range(world())], datetime.timedelta(hours=8))


def queue_join():
    """The losses of some steps are given to a thread by a queue, and the main thread joins the queue, until all of them
    are noted. A loss of the odd rank is not finite: the thread leaves it out, and does not say task_done() for it."""
    losses, noted = queue.Queue(), []

    def note_losses():
        while True:
            loss = losses.get()
            if loss != loss:
                continue
            noted.append(loss)
            losses.task_done()

    threading.Thread(target=note_losses, name="losses", daemon=True).start()

    def flush_losses(number):
        losses.put(float("nan") if in_trouble(number) else 0.5)
        losses.join()

    torch, _ = connect()
    train(torch, ddp(torch), flush_losses)


def device_assert():
    """The odd rank has a token that is not in the vocabulary: the lookup of its embedding fails on the GPU, by an
    assertion, while the main thread prepares the next batch. The watchdog of the rank finds the error of the GPU and
    ends the process; the other rank goes on waiting."""
    torch, dist = connect()
    embedding, tokens = torch.nn.Embedding(1000, 256).cuda(), torch.arange(64, device="cuda")
    for number in range(FOREVER):
        if number == GOOD_STEPS:
            announce("gone" if is_odd() else "settles")
        if in_trouble(number):
            torch.cuda._sleep(1 << 29)                # the GPU is busy meanwhile, and the error comes after the launches
            tokens = tokens + 1000
        mean = embedding(tokens).detach().mean()
        dist.all_reduce(mean)
        if in_trouble(number):
            prepare_batch()
        mean.item()


def prepare_batch():
    end, counts = time.monotonic() + 60, {}
    while time.monotonic() < end:
        for word in "a token that is not in the vocabulary".split():
            counts[word] = counts.get(word, 0) + 1
    return counts


CASES = {"callback-lock": callback_lock, "memory-limit": memory_limit, "artifact-upload": artifact_upload, "bad-samples": bad_samples,
         "unpicklable-error": unpicklable_error, "stopped-program": stopped_program, "packed-checkpoint": packed_checkpoint,
         "storage-outage": storage_outage, "marker-file": marker_file, "left-without-key": left_without_key,
         "queue-join": queue_join, "device-assert": device_assert}

if __name__ == "__main__":
    run(CASES)
