"""A job of Ray's actors on this machine. The driver starts HANGS_RANKS actors and waits for them with ray.get.

    ray_job.py CASE
"""
import datetime
import os
import sys
import time

import ray

from job import FOREVER, SILENT_FIFO, announce, end_with_parent, odd_ranks

GOOD_STEPS = 3


def augment():
    time.sleep(FOREVER)


def read_shard():
    with open(SILENT_FIFO, "rb") as stream:
        return stream.read(1)


def connect(number, by_environment):
    import torch
    import torch.distributed as dist
    torch.set_num_threads(1)
    size, wait = int(os.environ["HANGS_RANKS"]), datetime.timedelta(hours=8)
    if by_environment:
        os.environ.update(RANK=str(number), WORLD_SIZE=str(size), LOCAL_RANK=str(number))
        dist.init_process_group("gloo", timeout=wait)
    else:
        dist.init_process_group("gloo", init_method="tcp://127.0.0.1:" + os.environ["MASTER_PORT"], rank=number, world_size=size, timeout=wait)
    return torch, dist


@ray.remote(num_cpus=0)
class Trainer:
    def __init__(self, number):
        self.number = number

    def train(self, case):
        torch, dist = connect(self.number, case == "environment")
        gradients = torch.ones(8)
        for _ in range(GOOD_STEPS):
            dist.all_reduce(gradients)
        announce(name=self.number)
        if self.number in odd_ranks():
            (augment if case == "environment" else read_shard)()
        dist.all_reduce(gradients)

    def steps(self):
        torch, dist = connect(self.number, False)
        gradients = torch.ones(8)
        for number in range(1 << 40):
            dist.all_reduce(gradients)
            if number == GOOD_STEPS:
                announce("moves", name=self.number)
            time.sleep(0.01)

    def rest(self):
        """The actor waits for its next method."""
        announce("waits", name=self.number)

    def count(self):
        announce(name=self.number)
        augment()

    def ask(self, other):
        announce("waits", name=self.number)
        return ray.get(other.count.remote())


def main():
    end_with_parent()
    case, size = sys.argv[1], int(os.environ["HANGS_RANKS"])
    ray.init(num_cpus=size, include_dashboard=False, _temp_dir=os.path.join(os.environ["HANGS_DIRECTORY"], "ray"))
    actors = [Trainer.remote(number) for number in range(size)]
    if case == "idle":
        ray.get([actor.rest.remote() for actor in actors])
        time.sleep(FOREVER)
    if case == "asks":
        odd = odd_ranks()[0]
        ray.get([actor.ask.remote(actors[odd]) for number, actor in enumerate(actors) if number != odd])
    if case == "steps":
        ray.get([actor.steps.remote() for actor in actors])
    ray.get([actor.train.remote(case) for actor in actors])


if __name__ == "__main__":
    main()
