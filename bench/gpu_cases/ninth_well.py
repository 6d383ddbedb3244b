"""Jobs that are well, in which one rank prefills for the other, shards are accumulated, communication is overlapped, rank 0
evaluates, one rank compiles or unpacks alone, programs decode, or one rank has more batches.

    ninth_well.py CASE
"""
import datetime
import lzma
import queue
import subprocess
import threading
import time

from gpu_rank import connect, rank, run
from healthy import steps
from inside import ddp
from roles import compute
from training import model_of, sharded_model


def train_once(torch, model):
    loss = model(torch.randn(32, 256, device="cuda")).square().mean()
    loss.backward()
    return loss.item()


def prefill_decode():
    """Disaggregated serving: rank 0 takes a request, of which there is one about every second, computes its cache and
    sends it to rank 1 by NCCL; rank 1 generates some tokens from it, and waits on its GPU for the next cache."""
    torch, dist = connect()
    model, cache, requests = model_of(torch), torch.zeros(1 << 20, device="cuda"), queue.Queue()

    def send_requests():
        for number in range(1 << 20):
            requests.put(number)
            time.sleep(0.9 + 0.3 * (number % 2))

    def prefill(_):
        cache.fill_(float(requests.get() % 7))
        with torch.no_grad():
            model(torch.randn(512, 256, device="cuda"))
        dist.send(cache, 1)
        torch.cuda.synchronize()

    def decode(_):
        dist.recv(cache, 0)
        with torch.no_grad():
            for _ in range(16):
                model(cache[:256].unsqueeze(0)).argmax().item()

    if rank() == 0:
        threading.Thread(target=send_requests, name="clients", daemon=True).start()
    steps(prefill if rank() == 0 else decode)


def accumulated_shards():
    """FSDP2, whose gradients are summed up over six micro-batches of some hundred milliseconds each before they are
    reduced. The loss is read once in a step."""
    torch, _ = connect()
    model = sharded_model(torch)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def train_step(_):
        for part in range(6):
            compute(torch, 300)
            model.set_requires_gradient_sync(part == 5)
            loss = model(torch.randn(32, 256, device="cuda")).square().mean() / 6
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        loss.item()

    steps(train_step)


def overlapped_communication():
    """Large gradients are reduced in the background while the next layers are computed: each GPU has a kernel of NCCL's and
    one of a product at nearly any time, and its rank waits for both."""
    torch, dist = connect()
    gradients = [torch.zeros(1 << 27, device="cuda") for _ in range(4)]

    def train_step(_):
        work = []
        for _ in range(8):
            work += [dist.all_reduce(gradient, op=dist.ReduceOp.MAX, async_op=True) for gradient in gradients]
            compute(torch, 12)
        for one in work:
            one.wait()
        torch.cuda.synchronize()

    steps(train_step)


def evaluation_in_store():
    """After a few steps rank 0 evaluates for a second or two, batch by batch, and puts the score into the store, where the
    other rank waits for it."""
    torch, dist = connect()
    store, model = dist.distributed_c10d._get_default_store(), ddp(torch)

    def epoch(number):
        for _ in range(4):
            train_once(torch, model)
        if rank() == 0:
            with torch.no_grad():
                correct = 0
                for _ in range(150):
                    correct += int(model.module(torch.randn(32, 256, device="cuda")).sum().item() > 0)
                    time.sleep(0.01)
            store.set("score-%d" % number, str(correct))
        store.wait(["score-%d" % number], datetime.timedelta(minutes=10))

    steps(epoch)


def compiles_alone():
    """In each step the second rank has a batch of a new kind, for which Inductor compiles a function, some tenths of a
    second or longer; the first rank waits for it in its backward pass."""
    torch, _ = connect()
    model = ddp(torch)

    def train_step(number):
        if rank() == 1:
            torch._dynamo.reset()
            inputs = torch.randn(32, 256 + 8 * (number % 64), device="cuda")
            torch.compile(lambda values: torch.sigmoid(values * (number + 0.5)).sum(-1) - number)(inputs)
        train_once(torch, model)

    steps(train_step)


class Films:
    """A dataset each of whose samples a program decodes, for three tenths of a second."""

    def __len__(self):
        return 1 << 16

    def __getitem__(self, index):
        import torch
        done = subprocess.run(["sh", "-c", "sleep 0.3; echo %d" % (index % 7)], stdout=subprocess.PIPE, check=True)
        return torch.full((256,), float(done.stdout))


def decoded_by_programs():
    """The workers of all loaders run a program for each sample; all ranks wait for their batches nearly all the time."""
    torch, _ = connect()
    model = ddp(torch)
    batches = iter(torch.utils.data.DataLoader(Films(), batch_size=4, num_workers=2, prefetch_factor=1, pin_memory=True,
                                               multiprocessing_context="fork"))

    def train_step(_):
        model(next(batches).cuda(non_blocking=True)).square().mean().backward()
        torch.cuda.synchronize()

    steps(train_step)


def unpacked_by_turns():
    """A shard is unpacked before each step, by a library: on one rank for a second or longer, on the other one for some
    tenths of it, by turns."""
    torch, _ = connect()
    model, packed = ddp(torch), lzma.compress(bytes(range(256)) * (1 << 15))

    def train_step(number):
        end = time.monotonic() + (1.2 if (number + rank()) % 2 else 0.2)
        while time.monotonic() < end:
            lzma.decompress(packed)
        train_once(torch, model)

    steps(train_step)


def uneven_epochs():
    """Epochs under DDP's join(), which answers the collectives of a rank that has no more batches. The second rank has
    three times as many as the first one, each of which takes a quarter of a second."""
    torch, _ = connect()
    model = ddp(torch)

    def epoch(_):
        with model.join():
            for _ in range(3 if rank() == 0 else 9):
                time.sleep(0.25)
                train_once(torch, model)

    steps(epoch)


CASES = {"prefill-decode": prefill_decode, "accumulated-shards": accumulated_shards, "overlapped-communication": overlapped_communication,
         "evaluation-in-store": evaluation_in_store, "compiles-alone": compiles_alone, "decoded-by-programs": decoded_by_programs,
         "unpacked-by-turns": unpacked_by_turns, "uneven-epochs": uneven_epochs}

if __name__ == "__main__":
    run(CASES)
