"""One rank of a training job over gloo whose data loader has workers. In the ranks of HANGS_ODD a worker, a fork of the rank, does not
deliver its fourth batch. The others wait in DDP's backward pass.

    field_data.py CASE

Held out: written without a look at the rules of the tool (docs/benchmark.md).
"""
import logging
import os
import pdb
import signal
import sys
import threading
import time

from field import AsyncStore, field_native
from job import DIRECTORY, SILENT_FIFO, announce, connect, end_with_parent, is_odd, rank

GOOD_STEPS, BATCH = 3, 2


class MetricsHandler(logging.Handler):
    """Writes under a lock that the logging module does not know, and so does not renew in a child."""

    def __init__(self):
        super().__init__()
        self.stream_lock, self.written = threading.Lock(), 0

    def emit(self, record):
        self.write_record(record)

    def write_record(self, _):
        with self.stream_lock:
            self.written += 1


class Images:
    """`prepare` runs in the rank, before its workers are forked, `decode` in a worker, `after_fork` in the rank again."""

    def __init__(self, torch):
        self.torch = torch
        self.prepare()

    def __len__(self):
        return 400

    def __getitem__(self, index):
        if index == GOOD_STEPS * BATCH and is_odd():
            end_with_parent()
            self.decode()
        return self.torch.full((64,), index / 400)

    def prepare(self):
        pass

    def after_fork(self):
        pass

    def decode(self):
        raise NotImplementedError


class Logged(Images):
    """A thread writes a log record while the workers are forked."""

    def prepare(self):
        self.handler = MetricsHandler()
        held, self.forked = threading.Event(), threading.Event()

        def flush():
            with self.handler.stream_lock:
                held.set()
                self.forked.wait()

        threading.Thread(target=flush, name="metrics", daemon=True).start()
        held.wait()

    def after_fork(self):
        self.forked.set()

    def decode(self):
        announce(name="worker")
        logging.getLogger("images").addHandler(self.handler)
        logging.getLogger("images").warning("image 6 has no colour profile")


class Remote(Images):
    """The event loop of the store belongs to a thread of the rank, which the worker does not have."""

    def prepare(self):
        self.store = AsyncStore()

    def decode(self):
        announce("settles", name="worker")
        self.store.call(b"GET image 6")


class Resized(Images):
    """An image library whose threads exist in the rank; the worker believes that it has them, too."""

    def prepare(self):
        self.library = field_native()[0]
        self.library.resize_image()

    def decode(self):
        announce(name="worker")
        self.library.resize_image()


class Stopped(Images):
    """The worker is stopped once it has delivered its first batches."""

    def decode(self):
        while not os.path.exists(os.path.join(DIRECTORY, "at.%d" % rank())):
            time.sleep(0.01)
        announce("stopped", name="worker")
        os.kill(os.getpid(), signal.SIGSTOP)


class Debugged(Images):
    """A breakpoint in a worker, which reads the rank's standard input again for it."""

    def decode(self):
        announce(name="worker")
        sys.stdin = open("/dev/stdin", encoding="utf-8")      # pylint: disable=consider-using-with
        pdb.Pdb().set_trace()
        return self.torch.zeros(64)


class Persistent(Images):
    """It reads a file of a file system that does not answer, in the second epoch."""

    epoch = 0

    def __len__(self):
        return 8 * BATCH

    def __getitem__(self, index):
        self.epoch += index in (0, BATCH)      # each of the two workers sees one of them in each epoch
        return super().__getitem__(index if self.epoch > 1 else 1)

    def decode(self):
        announce(name="worker")
        with open(SILENT_FIFO, "rb", buffering=0) as image:
            image.read(1)


DATASETS = {"logged": Logged, "remote": Remote, "resized": Resized, "stopped": Stopped, "debugged": Debugged, "persistent": Persistent}


def main():
    end_with_parent()
    torch, _ = connect()
    from torch.utils.data import DataLoader
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    images = DATASETS[sys.argv[1]](torch)
    persistent = sys.argv[1] == "persistent"
    loader = DataLoader(images, batch_size=BATCH, num_workers=2, multiprocessing_context="fork", persistent_workers=persistent)
    for epoch in range(10):
        batches = iter(loader)
        images.after_fork()
        for number, batch in enumerate(batches):
            if number == GOOD_STEPS - 1 and epoch == int(persistent):
                announce()               # it will block in the step that follows, or in the wait for the batch after it
            optimizer.zero_grad()
            model(batch).square().mean().backward()
            optimizer.step()


if __name__ == "__main__":
    main()
