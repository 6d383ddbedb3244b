"""Jobs that are well, in which ranks take items from a counter, send around what long kernels compute, answer requests with passes for others, wait
for a program that evaluates, sleep until the next tick, or validate.

    thirteenth_well.py CASE
"""
import hashlib
import multiprocessing
import os
import subprocess
import sys
import time

from gpu_rank import announce, connect, device_index, gloo_group, rank, run, world
from healthy import steps
from inside import ddp
from tenth import serve_in_background
from tenth_well import train_once
from training import model_of


def shared_counter():
    """Of twelve items in each step a rank takes the next one from a counter in the store until there are none left, each of which takes half a
    second on the second rank, and half of that on the first one. Then ranks sum up what they have."""
    torch, dist = connect()
    store, model, total = dist.distributed_c10d._get_default_store(), model_of(torch), torch.zeros(1, device="cuda")

    def simplify(item):
        end, digest = time.monotonic() + 0.25 * (1 + rank()), b"%d" % item
        while time.monotonic() < end:
            digest = hashlib.sha256(digest).digest()
        with torch.no_grad():
            return model(torch.full((8, 256), digest[0] / 256, device="cuda")).sum()

    def take_items(number):
        total.zero_()
        while True:
            item = store.add("items-%d" % number, 1)
            if item > 12:
                break
            total.add_(simplify(item))
        dist.all_reduce(total)
        total.item()

    steps(take_items)


def long_kernels():
    """Each rank runs one kernel for about a second, on the second rank for twice as long, and sends its result to the next rank, as it receives
    that of the other one. The ranks wait for their GPUs nearly all the time."""
    torch, dist = connect()
    cycles = int(2e9) * (1 + rank())
    result, other = torch.ones(1 << 22, device="cuda"), torch.empty(1 << 22, device="cuda")

    def exchange(_):
        torch.cuda._sleep(cycles)
        result.mul_(0.5).add_(0.5)
        operations = [dist.P2POp(dist.isend, result, (rank() + 1) % world()), dist.P2POp(dist.irecv, other, (rank() - 1) % world())]
        for work in dist.batch_isend_irecv(operations):
            work.wait()
        other.sum().item()

    steps(exchange)


def send_requests(requests):
    """The front end of a server, which is no part of the job: a request every three seconds."""
    number = 0
    while True:
        time.sleep(3)
        requests.put(number)
        number += 1


def dummy_passes():
    """Two replicas of a server share their experts. Only the first one gets requests. About twice a second they ask each other, over gloo, whether
    anybody has one, and if so both make sixteen passes, the second one of nothing."""
    requests = multiprocessing.get_context("fork").Queue()
    if rank() == 0:
        serve_in_background(lambda: send_requests(requests))
    torch, dist = connect()
    group, model, experts = gloo_group(dist), model_of(torch), torch.ones(1 << 16, device="cuda")
    answered = 0
    while True:
        time.sleep(0.5)
        has_request = torch.tensor([0 if requests.empty() else 1])
        if has_request.item():
            requests.get()
        dist.all_reduce(has_request, group=group)
        for _ in range(16 if has_request.item() else 0):
            with torch.no_grad():
                model(torch.randn(8, 256, device="cuda")).argmax(-1)
            dist.all_reduce(experts)
            experts.div_(world())
            torch.cuda.synchronize()
        answered += has_request.item()
        if has_request.item() and answered == 2:
            announce("moves")


EVALUATE = """
import hashlib, sys, time
end, digest = time.monotonic() + float(sys.argv[1]), b""
while time.monotonic() < end:
    digest = hashlib.sha256(digest).digest()
print(digest[0])
"""


def evaluation_program():
    """After some steps rank 0 has its answers evaluated by a program, once for each of three tasks, which take more than a second each. The other
    rank waits for it in a barrier."""
    torch, dist = connect()
    model = ddp(torch)

    def epoch(_):
        for _ in range(8):
            train_once(torch, model)
        for task in range(3 if rank() == 0 else 0):
            subprocess.run([sys.executable, "-c", EVALUATE, str(1.0 + 0.2 * task)], stdout=subprocess.DEVNULL, check=True)
        dist.barrier()
        torch.cuda.synchronize()

    steps(epoch)


def paced_steps():
    """A policy controls a machine: each step begins with the next tick of the clock, of which there is one every two seconds, and takes
    some milliseconds. All ranks sleep nearly all the time."""
    torch, _ = connect()
    model = ddp(torch)

    def control(_):
        time.sleep(2 - time.time() % 2)
        train_once(torch, model)

    steps(control)


def lightning_validates():
    """Lightning trains for four batches, and validates then. The texts of rank 0 are scored in Python, which takes it two seconds; the other rank
    waits for it where all average the score."""
    import torch
    import pytorch_lightning as lightning
    device, shared = device_index(), torch.cuda.device_count() < world()
    torch.cuda.set_device(device)
    if shared:
        os.environ["LOCAL_RANK"] = "0"       # of a machine of its own, which has one GPU

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.net, self.epochs = torch.nn.Linear(256, 256), 0

        def training_step(self, batch, _):
            return self.net(batch).square().mean()

        def validation_step(self, batch, _):
            end, words = time.monotonic() + (0.5 if self.global_rank == 0 else 0.05), 0
            while time.monotonic() < end:
                words += len("the answer of a batch".split())
            self.log("score", self.net(batch).square().mean(), sync_dist=True, on_epoch=True)

        def on_validation_epoch_end(self):
            self.epochs += 1
            if self.epochs == 2:
                announce("moves")

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.01)

    training, validation = (torch.utils.data.DataLoader(torch.randn(64, 256), batch_size=8) for _ in range(2))
    lightning.Trainer(accelerator="gpu", devices=[device] if shared else world(), num_nodes=world() if shared else 1, strategy="ddp", max_epochs=100000,
                      num_sanity_val_steps=0, enable_checkpointing=False, logger=False, enable_progress_bar=False,
                      enable_model_summary=False).fit(Module(), training, validation)


CASES = {"shared-counter": shared_counter, "long-kernels": long_kernels, "dummy-passes": dummy_passes, "evaluation-program": evaluation_program,
         "paced-steps": paced_steps, "lightning-validates": lightning_validates}

if __name__ == "__main__":
    run(CASES)
