"""One rank of a healthy gloo job: it makes progress, however different its ranks are and however long some of them wait for others.

    moving.py CASE
"""
import queue
import sys
import threading
import time

from job import announce, connect, end_with_parent, is_odd, rank, world

GOOD_STEPS = 3


def announce_after_good_steps(step):
    """Announces this rank once, after its first GOOD_STEPS steps."""
    if step == GOOD_STEPS:
        announce("moves")


def training(torch, dist):
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(400, 400))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    for step in range(1 << 40):
        optimizer.zero_grad()
        model(torch.randn(64, 400)).sum().backward()
        optimizer.step()
        announce_after_good_steps(step)


def slow_steps(torch, dist):
    """0.3 s a step, most of it asleep (a rate limit of the input, say)."""
    gradients = torch.ones(64)
    for step in range(1 << 40):
        time.sleep(0.3)
        dist.all_reduce(gradients)
        announce_after_good_steps(step)


def micro_batch(torch, weights, seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        weights = torch.tanh(weights @ weights)
    return weights


def slow_rank(torch, dist):
    """2 s a step on the odd rank, which computes micro-batch by micro-batch; the others finish theirs quickly and wait for it."""
    weights = torch.rand(64, 64)
    for step in range(1 << 40):
        for micro_step in range(20):
            weights = micro_batch(torch, weights, 0.1 if is_odd() else 0.01)
            if step == 1 and micro_step == (5 if is_odd() else 0):
                announce("moves")          # by then the others are done with theirs
        dist.all_reduce(weights)


def pipeline(torch, dist):
    """Four pipeline stages that run different code by design."""
    stage, last = rank(), world() - 1

    def embed(batch):
        return micro_batch(torch, batch, 0.02)

    def transform(batch):
        return micro_batch(torch, batch, 0.03)

    def loss(batch):
        return micro_batch(torch, batch, 0.01).sum()

    activations = torch.rand(64, 64)
    for step in range(1 << 40):
        if stage > 0:
            dist.recv(activations, src=stage - 1)
        activations = {0: embed, last: loss}.get(stage, transform)(activations)
        if stage < last:
            dist.send(activations, dst=stage + 1)
        else:
            activations = torch.rand(64, 64)
        announce_after_good_steps(step)


def evaluation(torch, dist):
    """Rank 0 evaluates, batch by batch, and the others wait for it at a barrier, as intended."""
    gradients = torch.ones(64)
    for _ in range(GOOD_STEPS):
        dist.all_reduce(gradients)
    if rank() == 0:
        weights, correct = torch.rand(64, 64), 0.0
        for batch in range(1 << 40):
            correct += float(micro_batch(torch, weights, 0.02).sum())
            announce_after_good_steps(batch)
    announce()
    dist.barrier()


def parameter_server(torch, dist):
    """Rank 0 has nothing to do until a worker sends its gradients."""
    weights = torch.rand(64, 64)
    for step in range(1 << 40):
        if rank() == 0:
            worker = dist.recv(weights)
            dist.send(weights, dst=worker)
        else:
            dist.send(micro_batch(torch, weights, 0.3), dst=0)
            dist.recv(weights, src=0)
        announce_after_good_steps(step)


class SlowShards:
    def __len__(self):
        return 1 << 30

    def __getitem__(self, index):
        import torch
        time.sleep(0.05)                       # a slow disk
        return torch.full((8,), float(index % 7))


def slow_loaders(torch, dist):
    """All ranks wait for their loader workers most of the time, and do get their batches."""
    from torch.utils.data import DataLoader
    for step, batch in enumerate(DataLoader(SlowShards(), batch_size=2, num_workers=2)):
        dist.all_reduce(batch)
        announce_after_good_steps(step)


def requests(torch, dist):
    """A server: a request comes every second and a half, by a thread of rank 0 that sleeps in between. The others wait in the broadcast."""
    arrived, request = queue.Queue(), torch.zeros(64)

    def receive_requests():
        while True:
            time.sleep(1.5)
            arrived.put(1.0)

    if rank() == 0:
        threading.Thread(target=receive_requests, daemon=True).start()
    for step in range(1 << 40):
        if rank() == 0:
            request.fill_(arrived.get())
        dist.broadcast(request, src=0)
        dist.all_reduce(request)
        announce_after_good_steps(step)


CASES = {"training": training, "slow-steps": slow_steps, "slow-rank": slow_rank, "pipeline": pipeline, "evaluation": evaluation,
         "parameter-server": parameter_server, "slow-loaders": slow_loaders, "requests": requests}


def main():
    end_with_parent()
    CASES[sys.argv[1]](*connect())


if __name__ == "__main__":
    main()
