"""Horovod with PyTorch on CPUs, over gloo.

    horovodrun -np RANKS --gloo PYTHON horovod_job.py CASE
"""
import os
import sys
import time

os.environ.setdefault("HANGS_RANK", os.environ["HOROVOD_RANK"])

from job import FOREVER, SILENT_FIFO, announce, end_with_parent, is_odd

GOOD_STEPS = 3


def connect():
    import torch
    import horovod.torch as hvd
    torch.set_num_threads(1)
    hvd.init()
    return torch, hvd


def augment():
    time.sleep(FOREVER)


def read_shard():
    with open(SILENT_FIFO, "rb") as stream:
        return stream.read(1)


def train(trouble):
    """Steps of an optimizer whose gradients are reduced over all ranks; before the fourth the odd ranks call `trouble`."""
    torch, hvd = connect()
    model = torch.nn.Sequential(*[torch.nn.Linear(32, 32) for _ in range(4)])
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=1e-4), named_parameters=model.named_parameters())
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    for step in range(1 << 40):
        if step == GOOD_STEPS:
            announce("moves" if trouble is None else "waits")
            if trouble is not None and is_odd():
                trouble()
        optimizer.zero_grad()
        model(torch.rand(4, 32)).sum().backward()
        optimizer.step()


def optimizer_step():
    train(read_shard)


def steps():
    train(None)


def barrier():
    """The others are at Horovod's barrier."""
    _, hvd = connect()
    hvd.barrier()
    announce("waits")
    if is_odd():
        augment()
    hvd.barrier()


CASES = {"optimizer": optimizer_step, "barrier": barrier, "steps": steps}


def main():
    end_with_parent()
    CASES[sys.argv[1]]()


if __name__ == "__main__":
    main()
