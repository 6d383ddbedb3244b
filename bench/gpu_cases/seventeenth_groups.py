"""Ranks that do not do the same: who hands a turn on, whose text ends, and in which group a loss is averaged; or one has what the others wait for, a lock in
the store or a batch of requests, and is held up.

    seventeenth_groups.py CASE
"""
import collections
import logging
import os
import time

from eleventh import tensor_parallel
from field_groups import gradient_of, reduce_gradient
from gpu_rank import FOREVER, GOOD_STEPS, TIMEOUT, announce, connect, gloo_group, is_odd, rank, run, world
from inside import ddp, train
from job import connect_to_silent_server
from seventh import in_trouble


def lost_turn():
    """After each step four ranks write to one report, one after the other: each waits for a message of the rank before, writes, and sends one to the next
    rank, over gloo. The odd rank raises as it writes, logs that, and goes on with the next step: it has not handed its turn on, for which the ranks after
    it wait."""
    torch, dist = connect()
    turns, path, turn = gloo_group(dist), os.path.join(os.environ["HANGS_DIRECTORY"], "report"), torch.zeros(1)

    def write_part(number):
        loss = None if in_trouble(number) else 0.5
        with open(path, "a", encoding="ascii") as report:
            report.write("step %d, rank %d: %.3f\n" % (number, rank(), loss))

    def take_turn(number):
        if rank() > 0:
            dist.recv(turn, src=rank() - 1, group=turns)
        write_part(number)
        if rank() < world() - 1:
            dist.send(turn, dst=rank() + 1, group=turns)

    def report_step(number):
        try:
            take_turn(number)
        except TypeError:
            logging.exception("nothing to report of step %d", number)

    train(torch, ddp(torch), report_step)


def store_lock():
    """A mirror serves one rank of a job at a time, and the ranks have a lock for that in the store, at which they look five times a second. The odd rank has
    it and downloads from the mirror, which does not answer; the others look whether it has been given back."""
    torch, dist = connect()
    store, model = dist.distributed_c10d._get_default_store(), ddp(torch)
    if rank() == 0:
        store.set("mirror", "free")
    dist.barrier()
    torch.cuda.synchronize()

    def download(number):
        if in_trouble(number):
            mirror = connect_to_silent_server()
            mirror.sendall(b"GET /shards/%d\n" % number)
            mirror.recv(4096)

    def download_in_turn(number):
        if number == GOOD_STEPS and not is_odd():
            time.sleep(1)                # these are later
        while store.compare_set("mirror", "free", "of rank %d" % rank()) != b"of rank %d" % rank():
            time.sleep(0.2)
        download(number)
        store.set("mirror", "free")

    train(torch, model, download_in_turn)


def samples_apart():
    """A server, whose model is in parts on four ranks. Each draws the next token by itself, from scores that all have. The generator of the odd rank has come
    into another state, and it draws the end of the text after three tokens: it waits for the next request, over gloo, and the others compute a token
    more, for which they need its part of the model."""
    torch, dist = connect()
    requests, model = gloo_group(dist), tensor_parallel(torch)

    def generate(number):
        hidden = torch.ones(8, 256, device="cuda")
        length = 3 if in_trouble(number) else 8
        for _ in range(length):
            with torch.no_grad():
                hidden = torch.tanh(model(hidden))
            hidden.sum().item()

    for number in range(FOREVER):
        if number == GOOD_STEPS:
            announce("settles")
        dist.broadcast_object_list(["request %d" % number], src=0, group=requests)
        generate(number)


def loss_axis():
    """Four ranks in two pairs. Within a pair they exchange keys, by NCCL; then each averages its loss, over gloo, with the rank at its place in the other
    pair. For one step the odd rank takes the other rank of its own pair for that: it waits in a group in which that one is not."""
    torch, dist = connect()
    gloo_group(dist)
    pairs = [dist.new_group(pair, timeout=TIMEOUT) for pair in ([0, 1], [2, 3])]
    replicas = [dist.new_group(pair, timeout=TIMEOUT, backend="gloo") for pair in ([0, 2], [1, 3])]
    neighbours = [dist.new_group(pair, timeout=TIMEOUT, backend="gloo") for pair in ([0, 1], [2, 3])]
    keys = gradient_of(torch)
    for number in range(FOREVER):
        if number == GOOD_STEPS:
            announce("settles")
        dist.all_reduce(keys, group=pairs[rank() // 2])
        loss = keys.div_(2).mean().cpu()
        dist.all_reduce(loss, group=neighbours[rank() // 2] if in_trouble(number) else replicas[rank() % 2])


class Scheduler:
    """Hands out requests, as long as there are enough blocks of the cache that are free."""

    def __init__(self):
        self.free, self.waiting, self.running = 64, collections.deque(), []

    def finish(self):
        while self.running:
            self.free += self.running.pop()

    def next_request(self):
        while True:
            self.finish()
            if self.waiting[0] <= self.free:
                blocks = self.waiting.popleft()
                self.free -= blocks
                self.running.append(blocks)
                return blocks
            time.sleep(0.001)


def unschedulable():
    """A server. Rank 0 schedules: it hands a request to the others, over gloo, as soon as there are enough free blocks in its cache. One request needs more
    blocks than there are at all: rank 0 looks a thousand times a second whether they have become free."""
    torch, dist = connect()
    requests, gradient, scheduler = gloo_group(dist), gradient_of(torch), Scheduler()
    for number in range(FOREVER):
        if number == GOOD_STEPS:
            announce("settles")
        blocks = [None]
        if rank() == 0:
            scheduler.waiting.append(96 if in_trouble(number) else 8)
            blocks = [scheduler.next_request()]
        dist.broadcast_object_list(blocks, src=0, group=requests)
        reduce_gradient(dist, gradient)


CASES = {"lost-turn": lost_turn, "store-lock": store_lock, "samples-apart": samples_apart, "loss-axis": loss_axis, "unschedulable": unschedulable}

if __name__ == "__main__":
    run(CASES)
