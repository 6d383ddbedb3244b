"""Ranks that do not agree: whom a cache comes from, who has failed samples, how many micro-batches a step has, whose turn it is, what is sent at
all, what is tried again, and who is idle.

    thirteenth_groups.py CASE
"""
import os
import socket

from gpu_rank import FOREVER, GOOD_STEPS, announce, connect, gloo_group, rank, run, world
from field_groups import gradient_of, reduce_gradient
from inside import ddp, train
from seventh import in_trouble
from tenth import serve_in_background
from training import model_of


def cache_source():
    """Rank 0 fills the cache of each request, and sends it to the two others, which decode. Those can hand on a cache, too: by its route the odd
    rank expects the one of a request from the rank next to it, which has none for it and counts the tokens already, as all do at the end."""
    torch, dist = connect()
    cache, tokens = torch.ones(1 << 24, device="cuda"), torch.ones(1, device="cuda")
    if rank() == 1:
        dist.send(cache, dst=2)
    elif rank() == 2:
        dist.recv(cache, src=1)
    for number in range(FOREVER):
        if number == GOOD_STEPS:
            announce("settles")
        if rank() == 0:
            for decoder in range(1, world()):
                dist.send(cache, dst=decoder)
        else:
            dist.recv(cache, src=1 if in_trouble(number) else 0)
        dist.all_reduce(tokens)
        torch.cuda.synchronize()


def failed_samples():
    """After each step rank 0 gathers the samples that have failed, over gloo. A rank without such samples has nothing to gather, and leaves that
    out, as the odd rank does for the first time."""
    torch, dist = connect()
    group = gloo_group(dist)

    def gather_failed(number):
        failed = [] if in_trouble(number) else [{"sample": 8 * number, "rank": rank()}]
        if failed:
            dist.gather_object(failed, [None] * world() if rank() == 0 else None, dst=0, group=group)

    train(torch, ddp(torch), gather_failed)


def token_counts():
    """Gradients are summed up over the micro-batches of a step. For each, ranks sum up how many tokens it has, over gloo, to weigh its loss by
    that. The text of the odd rank suffices for three micro-batches instead of four, and it is in the backward pass that synchronizes."""
    torch, dist = connect()
    group, model = gloo_group(dist), ddp(torch)
    for number in range(FOREVER):
        if number == GOOD_STEPS:
            announce("settles")
        count = 3 if in_trouble(number) else 4
        for micro_batch in range(count):
            tokens = torch.tensor([32.0 + rank()])
            dist.all_reduce(tokens, group=group)
            model.require_backward_grad_sync = micro_batch == count - 1
            (model(torch.randn(32, 256, device="cuda")).square().sum() / tokens.item()).backward()
        torch.cuda.synchronize()


def pairwise_averages():
    """Each two of three ranks have a group, in which they average their weights, one pair after the other. For one step the odd rank takes its
    pairs in the other order: each rank waits in a pair whose other rank waits in another one."""
    torch, dist = connect()
    pairs = [(0, 1), (0, 2), (1, 2)]
    groups, weights = {pair: dist.new_group(pair) for pair in pairs}, torch.ones(1 << 20, device="cuda")
    own = [pair for pair in pairs if rank() in pair]
    for number in range(FOREVER):
        if number == GOOD_STEPS:
            announce("settles")
        for pair in reversed(own) if in_trouble(number) else own:
            dist.all_reduce(weights, group=groups[pair])
            weights.div_(2)
            torch.cuda.synchronize()


def early_exit():
    """The first rank has the first layers, and sends their output to the second one, unless it is sure of all answers in a batch. It is so for
    the first time, sends nothing, and reduces what routers have counted, as all do at the end of a step; the second rank waits for the output."""
    torch, dist = connect()
    layers, counted = model_of(torch), torch.ones(64, device="cuda")
    for number in range(FOREVER):
        if number == GOOD_STEPS:
            announce("settles")
        sure = rank() == 0 and number == GOOD_STEPS
        hidden = torch.randn(4096, 256, device="cuda")
        with torch.no_grad():
            if rank() == 1:
                dist.recv(hidden, src=0)
                layers(hidden).argmax(-1)
            elif not sure:
                dist.send(layers(hidden), dst=1)
        dist.all_reduce(counted)
        torch.cuda.synchronize()


def try_three_times(save):
    """A decorator, for what may fail now and then."""
    def tried(number):
        for attempt in range(3):
            try:
                return save(number, attempt)
            except OSError as error:
                print("rank %d, step %d: trying again after %s" % (rank(), number, error), flush=True)
        raise OSError("nothing is saved of step %d" % number)
    return tried


def retried_save():
    """Each rank saves its shard, waits for all others to have done so, over gloo, and uploads it; all of that is tried again if it fails. The
    upload of the odd rank fails once: it saves again and waits for the other one again, which is in the next step."""
    torch, dist = connect()
    group = gloo_group(dist)

    @try_three_times
    def save(number, attempt):
        torch.save({"step": number}, os.path.join(os.environ["HANGS_DIRECTORY"], "shard-%d" % rank()))
        dist.barrier(group=group)
        if in_trouble(number) and attempt == 0:
            raise OSError("the upload was refused")

    train(torch, ddp(torch), save)


def idle_replica():
    """Two replicas of a server share their experts: a forward pass takes both. A front end, which is no part of the job, hands a request to each;
    then it has one for rank 0 only. That waits for the second rank, which waits for a request instead of a pass of its own without one."""
    path = os.path.join(os.environ["HANGS_DIRECTORY"], "front-end")
    if rank() == 0:
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(path)
        listener.listen()

        def hand_out():
            replicas = [listener.accept()[0] for _ in range(world())]
            replicas.sort(key=lambda replica: replica.recv(1))
            for number in range(FOREVER):
                asked = replicas if number < GOOD_STEPS else replicas[:1]
                for replica in asked:
                    replica.sendall(b"request %d\n" % number)
                for replica in asked:
                    replica.recv(64)

        serve_in_background(hand_out)
        listener.close()
    torch, dist = connect()
    experts = gradient_of(torch)
    front_end = socket.socket(socket.AF_UNIX)
    front_end.connect(path)
    front_end.sendall(b"%d" % rank())
    for number in range(FOREVER):
        if number == GOOD_STEPS:
            announce("settles")
        front_end.recv(64)
        reduce_gradient(dist, experts)
        front_end.sendall(b"answer\n")


CASES = {"cache-source": cache_source, "failed-samples": failed_samples, "token-counts": token_counts, "pairwise-averages": pairwise_averages,
         "early-exit": early_exit, "retried-save": retried_save, "idle-replica": idle_replica}

if __name__ == "__main__":
    run(CASES)
