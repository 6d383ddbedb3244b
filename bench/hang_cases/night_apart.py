"""One rank of a job over gloo whose ranks wait for each other in some other way than all in one collective.

    night_apart.py CASE

Held out: written without a look at the rules of the tool (docs/benchmark.md).
"""
import os
import subprocess
import sys
import time

from job import DIRECTORY, SILENT_FIFO, announce, connect, end_with_parent, is_odd, rank, world
from ports import free_port

GOOD_STEPS, STEPS = 3, 40


def read_shard():
    announce()
    with open(SILENT_FIFO, "rb", buffering=0) as shard:
        return shard.read(1)


def draw_while_others_wait(torch, dist):
    """Rank 0 draws the curves of the epoch. The others wait for it at a barrier that the project has made of the store."""
    store = dist.distributed_c10d._get_default_store()
    dist.all_reduce(torch.ones(64))
    if is_odd():
        draw_curves()
    meet_in_store(store, "epoch-1")


def draw_curves():
    announce("spins")
    points = [(number, number * number) for number in range(1000)]
    while True:
        points = [(x, y % 1009) for x, y in points]


def meet_in_store(store, name):
    announce("settles")
    arrived = store.add(name, 1)
    while arrived < world():
        time.sleep(0.1)
        arrived = store.add(name, 0)


def uneven_inputs(torch, dist):
    """The inputs of most ranks are used up; DDP's join answers the collectives of the one that goes on."""
    from torch.distributed.algorithms.join import Join
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 8))
    with Join([model]):
        for number in range(GOOD_STEPS + (2 if is_odd() else 0)):
            if number > GOOD_STEPS:
                read_shard()
            model(torch.rand(4, 64)).sum().backward()
        announce()


def gathered_and_broadcast(torch, dist):
    """Rank 0 sends the file names of its epoch to all, while all others gather theirs."""
    dist.all_reduce(torch.ones(64))
    names = ["shard-%d" % rank()]
    announce()
    if is_odd():
        dist.broadcast_object_list(names, src=0)
    else:
        dist.all_gather_object([None] * world(), names)
    dist.barrier()


def both_send(torch, dist):
    """Two neighbours send to each other before they receive. The others have no neighbour in this step."""
    block = torch.ones(1 << 20)
    dist.all_reduce(block)
    announce()
    if is_odd():
        dist.send(block, 1 - rank())
        dist.recv(block, 1 - rank())
    dist.barrier()


def scatter_from_other(torch, dist):
    """One rank takes its part of the batch from another rank than the one that has it."""
    part = torch.zeros(64)
    for number in range(STEPS):
        if number == GOOD_STEPS:
            announce()
        source = 1 if is_odd() and number == GOOD_STEPS else 0
        dist.scatter(part, [torch.ones(64) for _ in range(world())] if rank() == 0 else None, src=source)
        dist.all_reduce(part)


def half_in_group(torch, dist):
    """Three ranks write a checkpoint, and meet before they go on. One of them has forgotten to."""
    writers = dist.new_group([0, 1, 2])
    gradients = torch.ones(64)
    for number in range(STEPS):
        if number == GOOD_STEPS:
            announce()
        if rank() < 3 and not (is_odd() and number == GOOD_STEPS):
            dist.barrier(group=writers)
        dist.all_reduce(gradients)


def unused_branch(torch, dist):
    """The batch of one rank has nothing for one of the model's heads, so that its gradients are not exchanged. That rank is the first to
    gather the losses."""
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.head, self.other = torch.nn.Linear(64, 64), torch.nn.Linear(64, 8), torch.nn.Linear(64, 8)

        def forward(self, batch, both):
            hidden = self.body(batch)
            return self.head(hidden).sum() + (self.other(hidden).sum() if both else 0)

    model = torch.nn.parallel.DistributedDataParallel(Model(), bucket_cap_mb=0.001)
    losses = [torch.zeros(1) for _ in range(world())]
    for number in range(STEPS):
        if number == GOOD_STEPS:
            announce()
        loss = model(torch.rand(4, 64), not (is_odd() and number == GOOD_STEPS))
        loss.backward()
        dist.all_gather(losses, loss.detach().reshape(1))


def ask_for_name(torch, dist):
    """Rank 3 reads what rank 5 would write for it; rank 5 asks for the name of the run."""
    path = os.path.join(DIRECTORY, "routes")
    if rank() == 0:
        os.mkfifo(path)
    dist.barrier()
    if rank() == 5:
        with open(path, "wb", buffering=0) as routes:
            announce()
            routes.write(input("name of this run: ").encode())
    if rank() == 3:
        with open(path, "rb", buffering=0) as routes:
            announce()
            routes.read(1)
    announce()
    dist.all_reduce(torch.ones(64))


def train_and_read(torch, dist):
    """One of two jobs (start_two_jobs()): the first has two ranks and is well, the last rank of the second reads."""
    gradients, endless = torch.ones(64), os.environ["NIGHT_JOB"] == "0"
    for number in range(1 << 40):
        if endless:
            torch.rand(200, 200) @ torch.rand(200, 200)
        if number == GOOD_STEPS:
            if endless:
                announce("moves", name=rank())
            elif rank() == 3:
                announce(name=5)
                with open(SILENT_FIFO, "rb", buffering=0) as shard:
                    shard.read(1)
            else:
                announce(name=2 + rank())
        dist.all_reduce(gradients)


def start_two_jobs():
    processes = []
    for number, ranks in enumerate((2, 4)):
        port = str(free_port())
        for each in range(ranks):
            environment = dict(os.environ, RANK=str(each), LOCAL_RANK=str(each), WORLD_SIZE=str(ranks), MASTER_PORT=port, NIGHT_JOB=str(number))
            processes.append(subprocess.Popen([sys.executable, __file__, "train-and-read"], env=environment))     # pylint: disable=consider-using-with
    for process in processes:
        process.wait()


def train_again(torch, dist):
    """The second try under an agent that starts its ranks anew: in the first one, a rank has failed."""
    if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
        dist.barrier()
        if is_odd():
            sys.exit("the loss is not a number")
        dist.barrier()
    for number in range(STEPS):
        if number == GOOD_STEPS:
            if is_odd():
                read_shard()
            announce()
        dist.all_reduce(torch.ones(64))


def start_elastic():
    os.execv(sys.executable, [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node=" + os.environ["HANGS_RANKS"], "--max_restarts=2",
                              "--monitor_interval=0.2", "--master_port=%d" % free_port(), "--redirects=1", "--tee=2", os.path.abspath(__file__), "train-again"])


CASES = {
    "draws": draw_while_others_wait, "uneven-inputs": uneven_inputs, "object-lists": gathered_and_broadcast, "both-send": both_send,
    "scatter-source": scatter_from_other, "half-in-group": half_in_group, "unused-branch": unused_branch, "asks": ask_for_name,
    "train-and-read": train_and_read, "train-again": train_again,
}
STARTERS = {"two-jobs": start_two_jobs, "elastic": start_elastic}


def main():
    end_with_parent()
    if sys.argv[1] in STARTERS:
        STARTERS[sys.argv[1]]()
    else:
        CASES[sys.argv[1]](*connect())


if __name__ == "__main__":
    main()
