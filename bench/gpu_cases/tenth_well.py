"""Jobs that are well, in which one rank pins memory, computes a preconditioner or retries a batch that is too large, or whose
loaders have new workers all the time.

    tenth_well.py CASE
"""
import time

from gpu_rank import connect, rank, run
from healthy import steps
from inside import ddp
from roles import compute


def train_once(torch, model, batch=None):
    loss = model(torch.randn(32, 256, device="cuda") if batch is None else batch).square().mean()
    loss.backward()
    return loss.item()


def pins_anew():
    """In each step the second rank takes some buffers of 256 MiB, pins them by the driver, copies them to its GPU and gives
    them back, for more than a second; the first rank waits for it."""
    torch, _ = connect()
    model, runtime = ddp(torch), torch.cuda.cudart()

    def copy_pinned():
        buffer = torch.empty(1 << 28, dtype=torch.uint8)
        if int(runtime.cudaHostRegister(buffer.data_ptr(), buffer.numel(), 0)) != 0:
            raise RuntimeError("cudaHostRegister")
        buffer.cuda(non_blocking=True)
        torch.cuda.synchronize()
        if int(runtime.cudaHostUnregister(buffer.data_ptr())) != 0:
            raise RuntimeError("cudaHostUnregister")

    def train_step(_):
        end = time.monotonic() + 1.2
        while rank() == 1 and time.monotonic() < end:
            copy_pinned()
        train_once(torch, model)

    steps(train_step)


class Tones:
    """A dataset of 32 samples, each of which takes some hundredths of a second."""

    def __len__(self):
        return 32

    def __getitem__(self, index):
        import torch
        time.sleep(0.03)
        return torch.full((256,), float(index % 7))


def workers_anew():
    """Epochs of four batches. The loader has two workers, which begin with each epoch and end with it: at any time some of
    them have just ended, and their rank waits for others."""
    torch, _ = connect()
    model = ddp(torch)

    def epoch(_):
        for batch in torch.utils.data.DataLoader(Tones(), batch_size=8, num_workers=2, multiprocessing_context="fork"):
            train_once(torch, model, batch.cuda())

    steps(epoch)


def halved_batch():
    """The batches of the second rank do not fit into the memory of its GPU. It catches the exception, logs it, and computes
    the batch in four parts, each of which takes some tenths of a second; the first rank waits for it."""
    torch, _ = connect()
    model = ddp(torch)

    def forward_large(parts):
        if parts < 4:
            torch.empty(1 << 50, device="cuda")
        for _ in range(parts):
            compute(torch, 300)
            torch.cuda.synchronize()

    def train_step(number):
        parts = 1
        while rank() == 1 and parts <= 4:
            try:
                forward_large(parts)
                break
            except torch.cuda.OutOfMemoryError as error:
                print("step %d, %d parts: %s" % (number, parts, str(error)[:80]), flush=True)
                torch.cuda.empty_cache()
                parts *= 2
        train_once(torch, model)

    steps(train_step)


def preconditioner():
    """In each step the second rank decomposes the statistics of some layers into eigenvectors, on its GPU, as Shampoo does,
    for more than a second. The first rank owns no layer of that size, and waits for it."""
    torch, _ = connect()
    model, statistics = ddp(torch), torch.randn(1024, 1024, device="cuda")
    statistics = statistics @ statistics.T

    def train_step(_):
        end = time.monotonic() + 1.2
        while rank() == 1 and time.monotonic() < end:
            values, vectors = torch.linalg.eigh(statistics)
            (vectors @ torch.diag(values.clamp(min=1e-6).rsqrt()) @ vectors.T).sum().item()
        train_once(torch, model)

    steps(train_step)


CASES = {"pins-anew": pins_anew, "workers-anew": workers_anew, "halved-batch": halved_batch, "preconditioner": preconditioner}

if __name__ == "__main__":
    run(CASES)
