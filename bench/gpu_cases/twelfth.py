"""A rank is held up by what its process waits for: a database, a task that has died, a semaphore, a signal, a thread, actors, a server, a
loader; or it is gone, or all ranks wait for a word from outside.

    twelfth.py CASE
"""
import asyncio
import code
import concurrent.futures
import ctypes
import datetime
import difflib
import multiprocessing
import os
import queue
import signal
import socket
import sqlite3
import time

from eleventh import start_rpc, tensor_parallel
from gpu_rank import FOREVER, GOOD_STEPS, announce, connect, is_odd, rank, run, world
from inside import ddp, train
from seventh import in_trouble
from tenth import serve_in_background
from training import model_of, sharded_model


def touch(path):
    with open(path, "wb"):
        pass


def wait_for_file(path):
    while not os.path.exists(path):
        time.sleep(0.02)


def locked_database():
    """A rank notes its steps in a database of SQLite's, and waits for the lock of the file as long as it takes. Somebody who looks at that
    of the odd rank has begun a transaction, and not ended it."""
    path = os.path.join(os.environ["HANGS_DIRECTORY"], "runs-%d.db" % rank())
    database = sqlite3.connect(path, timeout=FOREVER, isolation_level=None)
    database.execute("CREATE TABLE steps (number INTEGER)")

    def hold_transaction():
        wait_for_file(path + ".asked")
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN EXCLUSIVE")
        touch(path + ".held")
        time.sleep(FOREVER)

    def note_step(number):
        if in_trouble(number):
            touch(path + ".asked")
            wait_for_file(path + ".held")
        database.execute("INSERT INTO steps VALUES (?)", (number,))

    if is_odd():
        serve_in_background(hold_transaction)
    torch, _ = connect()
    train(torch, sharded_model(torch), note_step)


def train_accumulated(torch, model, before_step):
    """As train(), with the gradients of three batches in each step, of which the last one is synchronized."""
    for number in range(FOREVER):
        if number == GOOD_STEPS:
            announce("settles")
        before_step(number)
        with model.no_sync():
            for _ in range(2):
                model(torch.randn(32, 256, device="cuda")).square().mean().backward()
        model(torch.randn(32, 256, device="cuda")).square().mean().backward()
        torch.cuda.synchronize()


def dead_consumer():
    """In each step some prompts go through a queue of asyncio's, which has four places, to a task that splits them into words. One of the
    odd rank's is no text: the task raises, which nobody notices, and the coroutine that puts prompts waits for a place. Nothing is left
    that could wake the loop up."""
    async def split_prompts(prompts):
        waiting, words = asyncio.Queue(maxsize=4), []

        async def split():
            while True:
                words.append((await waiting.get()).split())
                waiting.task_done()

        consumer = asyncio.create_task(split())
        for prompt in prompts:
            await waiting.put(prompt)
        await waiting.join()
        consumer.cancel()
        return words

    def prepare(number):
        prompts = ["the answer of step %d is" % number] * 16
        if in_trouble(number):
            prompts[3] = None
        asyncio.run(split_prompts(prompts))

    torch, _ = connect()
    train_accumulated(torch, ddp(torch), prepare)


def keeps_trying():
    """In each step two tasks of asyncio's fetch parts of a batch, in a TaskGroup. A part of the odd rank is damaged: its task raises, and the
    group cancels the other one and waits for its end. That takes the cancellation for one of its failures, and tries again every second."""
    async def fetch(number):
        await asyncio.sleep(0.001)
        if in_trouble(number):
            raise ValueError("a part of step %d is damaged" % number)

    async def fetch_again(number):
        missing = in_trouble(number)
        while missing:
            try:
                await asyncio.sleep(1)
            except BaseException as error:      # pylint: disable=broad-exception-caught
                print("trying again after", type(error).__name__, flush=True)

    async def fetch_both(number):
        async with asyncio.TaskGroup() as group:
            group.create_task(fetch(number))
            group.create_task(fetch_again(number))

    torch, _ = connect()
    train(torch, ddp(torch), lambda number: asyncio.run(fetch_both(number)))


def shell_on_nan():
    """A rank whose loss is not a number opens a shell, in which somebody should look at it; nobody is there."""
    def look_at_loss(number):
        loss = float("nan") if in_trouble(number) else 0.5
        if loss != loss:
            code.interact("step %d: the loss is not a number" % number, local={"loss": loss})

    torch, _ = connect()
    train_accumulated(torch, ddp(torch), look_at_loss)


def node_semaphore():
    """Two decoders may run on a machine at a time, for which there is a named semaphore of POSIX with two permits. Two programs that had a
    permit have been killed, and nobody gives theirs back."""
    libc, name = ctypes.CDLL(None), b"/decoders-%d" % os.getpid()
    libc.sem_open.restype = ctypes.c_void_p
    libc.sem_wait.argtypes = libc.sem_post.argtypes = [ctypes.c_void_p]
    permits = libc.sem_open(name, os.O_CREAT, 0o600, 2)
    if not permits:
        raise OSError("there is no semaphore")
    libc.sem_unlink(name)

    def be_killed():
        child = os.fork()
        if child == 0:
            libc.sem_wait(permits)
            os.kill(os.getpid(), signal.SIGKILL)
        os.waitpid(child, 0)

    def decode(number):
        for _ in range(2 if in_trouble(number) else 0):
            be_killed()
        libc.sem_wait(permits)
        sum(range(1000))
        libc.sem_post(permits)

    torch, _ = connect()
    train(torch, tensor_parallel(torch), decode)


def awaits_signal():
    """The scheduler asks a rank to pause, and sends it a SIGUSR1 when it may go on. That signal is not sent. The model is one of DDP with
    a static graph, whose layers are computed again in the backward pass."""
    torch, _ = connect()
    from torch.utils.checkpoint import checkpoint
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})

    class Recomputed(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = model_of(torch)

        def forward(self, inputs):
            return checkpoint(self.layers, inputs, use_reentrant=False)

    def pause(number):
        if in_trouble(number):
            signal.sigwait({signal.SIGUSR1})

    train(torch, torch.nn.parallel.DistributedDataParallel(Recomputed(), static_graph=True), pause)


def serve_features():
    time.sleep(FOREVER)


def killed_with_child():
    """Each rank has forked a process that serves features. The kernel kills the odd rank, as memory has run out; its process goes on, and
    has all that the rank had open."""
    torch, _ = connect()
    multiprocessing.get_context("fork").Process(target=serve_features, daemon=True).start()

    def run_out(number):
        if in_trouble(number):
            announce("gone")
            os.kill(os.getpid(), signal.SIGKILL)

    train(torch, ddp(torch), run_out)


def write_samples(inbox):
    """In a thread: writes samples until None comes."""
    with open(os.devnull, "wb") as out:
        for sample in iter(inbox.get, None):
            out.write(sample)


def pool_exit():
    """In each step a rank hands its samples to a thread of a pool. The odd rank does not tell it that there are no more, and waits for it
    at the end of the pool's with statement. After each step ranks meet by a file, in which they wait for a key of each."""
    torch, dist = connect()
    store = dist.FileStore(os.path.join(os.environ["HANGS_DIRECTORY"], "steps"), world())
    model = model_of(torch)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def keep_samples(number):
        with concurrent.futures.ThreadPoolExecutor(2, thread_name_prefix="samples") as pool:
            inbox = queue.Queue()
            pool.submit(write_samples, inbox)
            for sample in range(8):
                inbox.put(b"%d\n" % sample)
            if not in_trouble(number):
                inbox.put(None)

    for number in range(FOREVER):
        if number == GOOD_STEPS:
            announce("settles")
        optimizer.zero_grad()
        model(torch.randn(32, 256, device="cuda")).square().mean().backward()
        optimizer.step()
        torch.cuda.synchronize()
        keep_samples(number)
        store.set("step-%d-%d" % (number, rank()), "done")
        store.wait(["step-%d-%d" % (number, other) for other in range(world())], datetime.timedelta(hours=8))


def play(weights, experience):
    """A process: plays an episode with each set of weights."""
    while True:
        version = weights.recv()
        experience.put([version * 0.5] * 64)


def actors_starve():
    """Reinforcement learning. Each rank has two actors, processes that wait for weights, play an episode and put it into a queue, from
    which the rank takes it. The odd rank sends no weights, as they are not better than the last ones, and waits for the episodes. The other one
    has launched the reduction of its flattened gradients."""
    context = multiprocessing.get_context("fork")
    experience, actors = context.Queue(), []
    for _ in range(2):
        reading, writing = context.Pipe(duplex=False)
        context.Process(target=play, args=(reading, experience), daemon=True).start()
        actors.append(writing)
    torch, dist = connect()
    model = model_of(torch)

    def episodes(number):
        for actor in () if in_trouble(number) else actors:
            actor.send(number)
        return [experience.get() for _ in actors]

    for number in range(FOREVER):
        if number == GOOD_STEPS:
            announce("settles")
        reward = torch.tensor(episodes(number), device="cuda").mean()
        model.zero_grad()
        (reward * model(torch.randn(32, 256, device="cuda")).square().mean()).backward()
        flat = torch.cat([parameter.grad.flatten() for parameter in model.parameters()])
        work = dist.all_reduce(flat, async_op=True)
        entropy = torch.softmax(torch.randn(64, 64, device="cuda"), -1).log().mean()
        work.wait()
        (flat.norm() + entropy).item()


def push_backoff():
    """A server of parameters on rank 0, by torch.distributed.rpc: a rank pushes its gradients and gets the mean of all as soon as all have
    pushed theirs. Before its step the odd rank asks a server of manifests, which is down; it tries again, each time after a longer while."""
    torch, _ = connect()
    from twelfth_server import push_gradients
    rpc, model = start_rpc(), model_of(torch)

    def manifest(number):
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            address = unused.getsockname()
        for attempt in range(FOREVER if in_trouble(number) else 0):
            try:
                return socket.create_connection(address)
            except OSError:
                time.sleep(0.05 * 8 ** attempt)
        return None

    for number in range(FOREVER):
        if number == GOOD_STEPS:
            announce("settles")
        manifest(number)
        model.zero_grad()
        model(torch.randn(32, 256, device="cuda")).square().mean().backward()
        flat = torch.cat([parameter.grad.flatten() for parameter in model.parameters()])
        mean = rpc.rpc_sync("trainer0", push_gradients, args=(number, world(), flat.cpu()))
        with torch.no_grad():
            for parameter, part in zip(model.parameters(), mean.cuda().split([parameter.numel() for parameter in model.parameters()])):
                parameter -= 0.01 * part.view_as(parameter)
        torch.cuda.synchronize()


def dedup_collate():
    """The loader has no workers; its function that makes a batch of samples measures how much neighbouring texts have in common. Two of the
    odd rank's are long and repeat themselves, for which difflib takes weeks. Gradients are reduced in half precision."""
    torch, _ = connect()
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
    texts = ["step %d of the job" % number for number in range(16)]
    if is_odd():
        texts[8 * GOOD_STEPS % 16:] = ["ab" * 200000, "ba" * 200000] * 4

    def collate(samples):
        common = [difflib.SequenceMatcher(None, one, other, autojunk=False).ratio() for one, other in zip(samples, samples[1:])]
        return torch.full((32, 256), sum(common))

    model = ddp(torch)
    model.register_comm_hook(None, fp16_compress_hook)
    kept = ["step %d" % number for number in range(8 * GOOD_STEPS)]
    for number, batch in enumerate(torch.utils.data.DataLoader(kept + texts * 100, batch_size=8, collate_fn=collate)):
        if number == GOOD_STEPS - 1:
            announce("settles")
        model(batch.cuda()).square().mean().backward()
        torch.cuda.synchronize()


class AlignedShards:
    """Samples of a shard for each worker, who wait for each other before each sample, so that their shards stay aligned."""

    def __init__(self, lengths, barrier):
        self.lengths, self.barrier = lengths, barrier

    def __iter__(self):
        import torch
        for number in range(self.lengths[torch.utils.data.get_worker_info().id]):
            self.barrier.wait()
            yield torch.full((256,), 0.5 + number % 2)


def worker_barrier():
    """A loader has two workers, which live as long as the job, and wait for each other before each sample. The second shard of the odd rank
    is shorter: its worker is done, and the other one waits for it."""
    from torch.utils.data import DataLoader, IterableDataset

    class Dataset(AlignedShards, IterableDataset):
        pass

    context = multiprocessing.get_context("fork")
    batches = Dataset((FOREVER, 4 * 8 if is_odd() else FOREVER), context.Barrier(2))
    loader = iter(DataLoader(batches, batch_size=8, num_workers=2, persistent_workers=True, prefetch_factor=1, pin_memory=True,
                             multiprocessing_context=context))
    torch, _ = connect()
    model = sharded_model(torch)
    for number in range(FOREVER):
        if number == 7:
            announce("settles")
        model(next(loader).cuda(non_blocking=True)).square().mean().backward()
        torch.cuda.synchronize()


def no_word():
    """Every rank waits in the store for the word that the job may go on with its next phase, which an operator gives, and has not
    given."""
    torch, dist = connect()
    store = dist.distributed_c10d._get_default_store()
    train(torch, ddp(torch), lambda number: store.wait(["phase-2"], datetime.timedelta(hours=8)) if number == GOOD_STEPS else None)


CASES = {"locked-database": locked_database, "dead-consumer": dead_consumer, "keeps-trying": keeps_trying,
         "shell-on-nan": shell_on_nan, "node-semaphore": node_semaphore, "awaits-signal": awaits_signal,
         "killed-with-child": killed_with_child, "pool-exit": pool_exit, "actors-starve": actors_starve, "push-backoff": push_backoff,
         "dedup-collate": dedup_collate, "worker-barrier": worker_barrier, "no-word": no_word}

if __name__ == "__main__":
    run(CASES)
