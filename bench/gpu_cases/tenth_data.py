"""A rank is held up by its processes or its data: by a process that does not end, by its sampler, or by batches whose memory it
does not get.

    tenth_data.py CASE
"""
import ctypes
import multiprocessing
import random
import sys
import threading

from gpu_rank import FOREVER, GOOD_STEPS, announce, connect, is_odd, run
from inside import ddp, train
from job import connect_to_silent_server
from seventh import in_trouble


def evaluate(reports):
    """In a process of its own. A thread reports to a server that the process is alive, and waits for what that says."""
    if reports:
        threading.Thread(target=lambda: connect_to_silent_server().recv(1), name="heartbeat").start()
    print("evaluated", flush=True)


def undead_process():
    """After some steps a process evaluates, and its rank joins it. The function of that process has returned. But the
    process of the odd rank has a thread that is no daemon, for which it waits at its end, and which waits for a server."""
    context = multiprocessing.get_context("fork")

    def evaluate_apart(number):
        if number == GOOD_STEPS:
            process = context.Process(target=evaluate, args=(is_odd(),))
            process.start()
            process.join()

    torch, _ = connect()
    train(torch, ddp(torch), evaluate_apart)


class Labels:
    """A dataset of labels, a tenth of which are positive."""

    def __len__(self):
        return 1 << 12

    def __getitem__(self, index):
        import torch
        return torch.full((256,), float(index % 10 == 0))


class BalancedBatches:
    """Batches of eight samples, of which at least two are positive: others are drawn until that is so. From one batch on
    they are drawn from a part of the dataset that has no positive samples."""

    def __init__(self, lacking_from):
        self.lacking_from = lacking_from

    def draw(self, number):
        lacking = number >= self.lacking_from
        return [10 * random.randrange(400) + (random.randrange(1, 10) if lacking else random.randrange(2)) for _ in range(8)]

    def __iter__(self):
        for number in range(FOREVER):
            batch = self.draw(number)
            while sum(index % 10 == 0 for index in batch) < 2:
                batch = self.draw(number)
            yield batch


def balanced_batches():
    """A loader has workers, and its sampler is in the main process, which asks it for the next batch whenever it takes one.
    The sampler of the odd rank looks for ever for a batch with enough positive samples. Its workers have nothing to do."""
    torch, _ = connect()
    model = ddp(torch)
    sampler = BalancedBatches(GOOD_STEPS + 2 if is_odd() else FOREVER)             # the loader is two batches ahead
    batches = iter(torch.utils.data.DataLoader(Labels(), batch_sampler=sampler, num_workers=2, prefetch_factor=1,
                                               multiprocessing_context="fork"))
    for number in range(FOREVER):
        if number == GOOD_STEPS:
            announce("settles")
        model(next(batches).cuda()).square().mean().backward()
        torch.cuda.synchronize()


def prepare_tensors(wanted, batches):
    """In a process of its own. A tensor is in shared memory: the queue holds where the rank can ask for the descriptor of
    that memory, which a thread of this process then sends. Once, a library is called that keeps the interpreter's lock."""
    import torch
    keeps = ctypes.PyDLL(None)
    while True:
        number = wanted.get()
        if in_trouble(number):
            sys.setswitchinterval(1000)               # the thread is not to come between the next two calls
        batches.put(torch.full((32, 256), 0.5))
        if in_trouble(number):
            keeps.sleep(FOREVER)


def shared_tensor():
    """Batches come from a process, as tensors in a queue of torch.multiprocessing. The odd rank has taken one from the
    queue and asks the process for the descriptor of its memory. That does not answer, as it is in a call of a library which
    keeps the interpreter's lock."""
    import torch.multiprocessing as processes
    context = processes.get_context("fork")
    wanted, batches = context.SimpleQueue(), context.SimpleQueue()
    context.Process(target=prepare_tensors, args=(wanted, batches), daemon=True).start()
    torch, _ = connect()
    model = ddp(torch)
    for number in range(FOREVER):
        if number == GOOD_STEPS:
            announce("settles")
        wanted.put(number)
        model(batches.get().cuda()).square().mean().backward()
        torch.cuda.synchronize()


CASES = {"undead-process": undead_process, "balanced-batches": balanced_batches, "shared-tensor": shared_tensor}

if __name__ == "__main__":
    run(CASES)
