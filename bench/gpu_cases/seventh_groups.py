"""The ranks do not agree about what comes next, or one of them does not come to a message or a key of the store that
the other one waits for.

    seventh_groups.py CASE
"""
import datetime
import os
import select
import time

from gpu_rank import FOREVER, GOOD_STEPS, announce, connect, gloo_group, is_odd, rank, run, world
from field_groups import gradient_of, reduce_gradient
from job import SILENT_FIFO


def store_handshake():
    """The ranks exchange checksums in the store after each step. For one step both look for that of the other one
    before they say their own."""
    torch, dist = connect()
    store, gradient = dist.distributed_c10d._get_default_store(), gradient_of(torch)

    def say(number):
        store.set("checksum-%d/%d" % (number, rank()), "0")

    def look(number):
        store.wait(["checksum-%d/%d" % (number, 1 - rank())], datetime.timedelta(hours=8))

    for number in range(FOREVER):
        if number == GOOD_STEPS:
            announce("settles")
        for exchange in (look, say) if number == GOOD_STEPS else (say, look):
            exchange(number)
        reduce_gradient(dist, gradient)


def unsorted_names():
    """What is reduced after a step is taken from a set, by name: tensors by NCCL, objects over gloo. The names of the
    odd rank come in another order, as its hashes of strings have another seed."""
    torch, dist = connect()
    objects, gradient = gloo_group(dist), gradient_of(torch)

    def gather_names():
        dist.all_gather_object([None] * world(), {"seen": ["a", "b"]}, group=objects)

    def reduce_tensors():
        reduce_gradient(dist, gradient)

    reductions = {"gradient": reduce_tensors, "names": gather_names}
    for number in range(FOREVER):
        if number == GOOD_STEPS:
            announce("settles")
        for name in sorted(reductions, reverse=is_odd() and number == GOOD_STEPS):
            reductions[name]()


def reward_messages():
    """Rank 0 receives rewards from any rank, two in each step, over gloo. It counts one more than there are for one
    step; the other rank has sent both of its own, and reduces its gradient."""
    torch, dist = connect()
    rewards, gradient, reward = gloo_group(dist), gradient_of(torch), torch.zeros(1)
    for number in range(FOREVER):
        if number == GOOD_STEPS:
            announce("settles")
        if rank() == 0:
            for _ in range(3 if number == GOOD_STEPS else 2):
                dist.recv(reward, group=rewards)
        else:
            for part in range(2):
                dist.send(torch.full((1,), float(part)), 0, group=rewards)
        reduce_gradient(dist, gradient)


def operator_commands():
    """Rank 0 sends a batch over gloo in each step, which the other one receives. Before one of them, the odd rank looks
    into a pipe for a command of the operator, and waits until there is one."""
    torch, dist = connect()
    batches, batch = gloo_group(dist), torch.ones(1 << 20)
    commands = os.open(SILENT_FIFO, os.O_RDONLY)

    def take_command():
        select.select([commands], [], [])
        return os.read(commands, 64)

    for number in range(FOREVER):
        if number == GOOD_STEPS:
            announce("settles")
            if is_odd():
                take_command()
        if rank() == 0:
            dist.send(batch, 1, group=batches)
        else:
            dist.recv(batch, 0, group=batches)
            batch.cuda().sum().item()


def boundary():
    """Values of the boundary go to the right, from rank 0 to the other one. For one step rank 0 expects some from the
    right as well, by the same launch; nothing is to the right of the other one, which sends none."""
    torch, dist = connect()
    mine, others, gradient = (torch.ones(1 << 20, device="cuda") for _ in range(3))

    def exchange(number):
        if rank() == 0:
            operations = [dist.P2POp(dist.isend, mine, 1)]
            if number == GOOD_STEPS:
                operations.append(dist.P2POp(dist.irecv, others, 1))
        else:
            operations = [dist.P2POp(dist.irecv, others, 0)]
        for work in dist.batch_isend_irecv(operations):
            work.wait()
        torch.cuda.synchronize()

    for number in range(FOREVER):
        if number == GOOD_STEPS:
            announce("settles")
        exchange(number)
        reduce_gradient(dist, gradient)


def clip_at(values, share, tolerance):
    """The value below which that share of the values is, by halving an interval until it is no longer than the
    tolerance."""
    low, high = 0.0, 1.0
    while high - low > tolerance:
        middle = (low + high) / 2
        if sum(value < middle for value in values) < share * len(values):
            low = middle
        else:
            high = middle
    return high


def counted_ranks():
    """Ranks count in the store who has clipped its gradient, and look at that number every few milliseconds. The
    tolerance of the odd rank has been rounded to 0: an interval of two neighbouring numbers is halved for ever."""
    torch, dist = connect()
    store, gradient = dist.distributed_c10d._get_default_store(), gradient_of(torch)
    values = [number / 7919 % 1 for number in range(1, 100)]
    for number in range(FOREVER):
        if number == GOOD_STEPS:
            announce("settles")
        clip_at(values, 0.9, 0.0 if is_odd() and number == GOOD_STEPS else 1e-6)
        store.add("clipped-%d" % number, 1)
        while store.add("clipped-%d" % number, 0) < world():
            time.sleep(0.005)
        reduce_gradient(dist, gradient)


def patience():
    """Each rank looks at its own loss to see whether there is still progress. The odd rank has lost its patience: it
    leaves the epoch for the validation, which gathers scores in a group of its own."""
    torch, dist = connect()
    validation, gradient = dist.new_group(), gradient_of(torch)

    def validate():
        scores = torch.empty(world() << 16, device="cuda")
        dist.all_gather_into_tensor(scores, torch.ones(1 << 16, device="cuda"), group=validation)
        return scores.mean().item()

    validate()
    for number in range(FOREVER):
        if number == GOOD_STEPS:
            announce("settles")
        if is_odd() and number == GOOD_STEPS:
            validate()
        reduce_gradient(dist, gradient)


CASES = {"store-handshake": store_handshake, "unsorted-names": unsorted_names, "reward-messages": reward_messages,
         "operator-commands": operator_commands, "boundary": boundary, "counted-ranks": counted_ranks,
         "patience": patience}

if __name__ == "__main__":
    run(CASES)
