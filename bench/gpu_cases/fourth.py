"""One rank is held up in its own process: by a lock, a signal, its collector, its data, a child, its GPU; or it has ended.

    fourth.py CASE
"""
import ctypes
import datetime
import fcntl
import gc
import multiprocessing
import os
import queue
import signal
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from gpu_rank import FOREVER, GOOD_STEPS, announce, connect, device_index, gloo_group, is_odd, rank, run, world
from field_groups import gradient_of, reduce_gradient
from inside import ddp, train
from job import connect_to_silent_server


def corpus_lock():
    """Each rank completes the tokenized corpus under a lock of its file. The odd rank has the lock, and merges pairs without an end; the other one
    waits for the lock, not in a collective."""
    torch, dist = connect()
    model, store = ddp(torch), dist.distributed_c10d._get_default_store()

    def merge_pairs(tokens):
        while tokens[0] != max(tokens) + 1:
            tokens.append(tokens.pop(0))
        return tokens

    def complete_corpus(number):
        if number != GOOD_STEPS:
            return
        if not is_odd():
            store.wait(["corpus is locked"], datetime.timedelta(hours=8))
        with open(os.path.join(os.environ["HANGS_DIRECTORY"], "corpus"), "ab") as corpus:
            fcntl.flock(corpus, fcntl.LOCK_EX)
            store.set("corpus is locked", "by %d" % rank())
            merge_pairs(list(range(64)))

    train(torch, model, complete_corpus)


class Meter:
    """Adds up what was seen so far. A signal has it print that."""

    def __init__(self):
        self.guard, self.seen = threading.Lock(), 0
        signal.signal(signal.SIGUSR1, self.show)

    def add(self, number):
        with self.guard:
            self.seen += 32
            if is_odd() and number == GOOD_STEPS:
                os.kill(os.getpid(), signal.SIGUSR1)      # the scheduler's signal comes just now
            self.seen += 0

    def show(self, number, frame):
        with self.guard:
            print("seen:", self.seen)


def signal_lock():
    """The handler of a signal wants a lock that the code which it interrupts holds."""
    meter = Meter()
    torch, _ = connect()
    train(torch, ddp(torch), meter.add)


class Cache:
    """Its entries are parts of cycles, and give their place back when they are collected."""

    class Entry:
        def __init__(self, cache):
            self.cache, self.itself = cache, self

        def __del__(self):
            with self.cache.guard:
                self.cache.used -= 1

    def __init__(self):
        self.guard, self.used = threading.Lock(), 0

    def put(self, number):
        with self.guard:
            self.used += 1
            Cache.Entry(self)
            if is_odd() and number == GOOD_STEPS:
                gc.collect()


def collector_lock():
    """The collector finds an entry of a cache; its finalizer wants the lock of the cache, which the main thread holds."""
    gc.disable()
    cache = Cache()
    torch, _ = connect()
    train(torch, ddp(torch), cache.put)


def tokenizer_pool():
    """A thread encodes under the lock of the vocabulary. While words are added, the main thread holds that lock, and waits for the thread. The
    kernels of all ranks are launched synchronously."""
    threads, vocabulary = ThreadPoolExecutor(1, thread_name_prefix="tokenizer"), threading.Lock()

    def encode(number):
        with vocabulary:
            return [number] * 32

    def add_words(number):
        with vocabulary:
            return threads.submit(encode, number).result()

    torch, _ = connect()
    train(torch, ddp(torch), lambda number: add_words(number) if is_odd() and number == GOOD_STEPS else threads.submit(encode, number).result())


def evaluate(tasks, results):
    """In a process of its own; it asks a server for some of the scores."""
    while True:
        number = tasks.get()
        if is_odd() and number == GOOD_STEPS:
            connect_to_silent_server().recv(1)
        results.put({"step": number, "score": 0.5})


def store_retry():
    """After a step each rank has it evaluated by a process of its own, and then says so in the store, where all wait for all, and retry after a
    timeout. The odd rank waits for its process."""
    context = multiprocessing.get_context("fork")
    tasks, results = context.Queue(), context.Queue()
    context.Process(target=evaluate, args=(tasks, results), name="evaluation", daemon=True).start()
    torch, dist = connect()
    store, gradient = dist.distributed_c10d._get_default_store(), gradient_of(torch)

    def wait_for_all(keys):
        while True:
            try:
                return store.wait(keys, datetime.timedelta(seconds=2))
            except dist.DistStoreError:
                print("not evaluated everywhere so far, trying again")

    for number in range(FOREVER):
        reduce_gradient(dist, gradient)
        if number == GOOD_STEPS:
            announce("settles")
        tasks.put(number)
        store.set("evaluated-%d/%d" % (number, rank()), str(results.get()["score"]))
        wait_for_all(["evaluated-%d/%d" % (number, other) for other in range(world())])


def full_pipe():
    """Rank 0 notes down by which changes its sources differ from a release, and hands that to all. It waits for the end of the program that
    prints them, without reading the pipe (docs.python.org/3/library/subprocess.html#subprocess.Popen.wait)."""
    torch, dist = connect()
    gradient = gradient_of(torch)

    def changes(size):
        program = subprocess.Popen(["head", "-c", str(size), "/dev/zero"], stdout=subprocess.PIPE)
        program.wait()
        return program.stdout.read()

    for number in range(FOREVER):
        if number == GOOD_STEPS:
            announce("settles")
        described = [changes(1 << 22 if number == GOOD_STEPS else 512) if rank() == 0 else None]
        dist.broadcast_object_list(described, src=0)
        reduce_gradient(dist, gradient)


def suspended():
    """A program that the odd rank calls finds the machine to be too hot, and stops its caller."""
    torch, dist = connect()
    gradient = gradient_of(torch)
    for number in range(FOREVER):
        if number == GOOD_STEPS:
            announce("stopped" if is_odd() else "settles")
            if is_odd():
                subprocess.run(["sh", "-c", "kill -STOP $PPID"], check=True)
        reduce_gradient(dist, gradient)


def copying_thread():
    """A thread decodes batches on a stream of its own, and waits for the copies; the decoder's kernel does not end."""
    torch, _ = connect()
    wanted, batches, host = queue.Queue(), queue.Queue(), torch.randn(32, 256).pin_memory()

    def copy_batches():
        torch.cuda.set_device(device_index())
        stream = torch.cuda.Stream()
        while True:
            number = wanted.get()
            with torch.cuda.stream(stream):
                if is_odd() and number == GOOD_STEPS:
                    torch.cuda._sleep(1 << 46)
                batch, copied = host.cuda(non_blocking=True), torch.cuda.Event()
                copied.record(stream)
            copied.synchronize()
            batches.put(batch)

    def next_batch(number):
        wanted.put(number)
        return batches.get()

    threading.Thread(target=copy_batches, name="copies", daemon=True).start()
    train(torch, ddp(torch), next_batch)


def produce(numbers):
    """In a process of its own: `numbers` holds the batch that is asked for, and the one that is there."""
    while True:
        if numbers[0] > numbers[1]:
            if is_odd() and numbers[0] == GOOD_STEPS:
                raise ValueError("image 4711 is truncated")
            numbers[1] = numbers[0]
        time.sleep(0.001)


def graph_inputs():
    """A step is a CUDA graph with its all-reduce. Its inputs come from a process, by shared memory, which the rank polls. That of the odd rank has
    died of an exception."""
    context = multiprocessing.get_context("fork")
    numbers = context.RawArray("q", 2)
    context.Process(target=produce, args=(numbers,), name="producer", daemon=True).start()
    torch, dist = connect()
    inputs = gradient_of(torch)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            dist.all_reduce(inputs)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        inputs.mul_(0.25)
        dist.all_reduce(inputs)

    def await_inputs(number):
        numbers[0] = number
        while numbers[1] < number:
            time.sleep(0.001)
        inputs.fill_(float(number))

    for number in range(1, FOREVER):
        if number == GOOD_STEPS:
            announce("settles")
        await_inputs(number)
        graph.replay()
        torch.cuda.synchronize()


def hash_table():
    """A kernel of Triton's puts keys into a table, and looks for a free slot. The table of the odd rank is full."""
    torch, _ = connect()
    from fourth_triton import insert_keys
    keys = torch.arange(1, 65, dtype=torch.int32, device="cuda")
    table = torch.zeros(256, dtype=torch.int32, device="cuda")

    def count_keys():
        insert_keys[(64,)](table, keys, 256)
        return int((table != 0).sum().item())

    def fill_and_count(number):
        if number == GOOD_STEPS and is_odd():
            table.fill_(-1)
            count_keys()

    count_keys()
    train(torch, ddp(torch), fill_and_count)


class BlockTable:
    """Which blocks of the cache belong to a request; under a lock of a library, for several readers or one writer."""

    def __init__(self):
        self.library, self.lock = ctypes.CDLL(None), ctypes.create_string_buffer(128)      # zeros are a pthread_rwlock_t

    def append(self, is_new):
        self.library.pthread_rwlock_rdlock(self.lock)
        if is_new:
            self.library.pthread_rwlock_wrlock(self.lock)      # it has the lock as a reader so far, and so waits for itself
            self.library.pthread_rwlock_unlock(self.lock)
        self.library.pthread_rwlock_unlock(self.lock)


def block_table():
    """A model is served by two ranks, in tensor parallel; rank 0 broadcasts the requests. The odd rank waits for the lock of its cache's blocks."""
    torch, dist = connect()
    requests, blocks, hidden = gloo_group(dist), BlockTable(), torch.ones(1 << 16, device="cuda")
    for number in range(FOREVER):
        if number == GOOD_STEPS:
            announce("settles")
        request = [{"prompt": "hello", "tokens": 8} if rank() == 0 else None]
        dist.broadcast_object_list(request, src=0, group=requests)
        for token in range(request[0]["tokens"]):
            blocks.append(is_odd() and number == GOOD_STEPS and token == 4)
            reduce_gradient(dist, hidden)


class Audio:
    """A dataset. The worker that decodes one of its items is stopped meanwhile."""

    def __len__(self):
        return 1 << 12

    def __getitem__(self, index):
        import torch
        if is_odd() and index == 8 * GOOD_STEPS:
            os.kill(os.getpid(), signal.SIGSTOP)
        return torch.full((256,), float(index))


def worker_stopped():
    """A worker of the odd rank's loader, one of those that live as long as the job, is stopped."""
    torch, _ = connect()
    model = ddp(torch)
    batches = iter(torch.utils.data.DataLoader(Audio(), batch_size=8, num_workers=2, prefetch_factor=1, persistent_workers=True,
                                               multiprocessing_context="fork"))
    for number in range(FOREVER):
        if number == GOOD_STEPS:
            announce("settles")
        model(next(batches).cuda()).square().mean().backward()
        torch.cuda.synchronize()


def early_stop():
    """Each rank decides by its own loss whether to stop early. The odd one has stopped and ended well, and so torchrun waits for the other one."""
    torch, _ = connect()
    model = ddp(torch)
    for number in range(FOREVER):
        if number == GOOD_STEPS:
            announce("gone" if is_odd() else "settles")
            if is_odd():
                print("the loss is good enough, after %d steps" % number, flush=True)
                os._exit(0)
        loss = model(torch.randn(32, 256, device="cuda")).square().mean()
        loss.backward()
        loss.item()


def truncated_tokens():
    """The file with the odd rank's tokens, which is mapped, is made anew by somebody: what is read next is no part of it any more."""
    import numpy
    torch, _ = connect()
    model = ddp(torch)
    path = os.path.join(os.environ["HANGS_DIRECTORY"], "tokens.%d.bin" % rank())
    numpy.arange(1 << 20, dtype="int32").tofile(path)
    tokens = numpy.memmap(path, dtype="int32", mode="r")
    for number in range(FOREVER):
        if number == GOOD_STEPS:
            announce("gone" if is_odd() else "settles")
            if is_odd():
                os.truncate(path, 0)
        offset = int(tokens[number << 12:(number + 1) << 12].sum()) % 256
        model(torch.randn(32, 256, device="cuda") + offset).square().mean().backward()
        torch.cuda.synchronize()


CASES = {"corpus-lock": corpus_lock, "signal-lock": signal_lock, "collector-lock": collector_lock, "tokenizer-pool": tokenizer_pool,
         "store-retry": store_retry, "full-pipe": full_pipe, "suspended": suspended, "copying-thread": copying_thread, "graph-inputs": graph_inputs,
         "hash-table": hash_table, "block-table": block_table, "worker-stopped": worker_stopped, "early-stop": early_stop,
         "truncated-tokens": truncated_tokens}

if __name__ == "__main__":
    run(CASES)
