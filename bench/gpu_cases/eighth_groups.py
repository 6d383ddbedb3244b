"""The ranks do not agree about what comes next, in groups of tensor, data and expert parallel ranks, of nodes and of
pairs; or one of them does not find the others.

    eighth_groups.py CASE
"""
import atexit
import os

from gpu_rank import FOREVER, GOOD_STEPS, announce, connect, device_index, gloo_group, is_odd, rank, run, world
from field_groups import gradient_of, reduce_gradient
from seventh import in_trouble

NODES = ((0, 1), (2, 3))


def groups_of(dist, *members):
    """The group of those members that has this rank, or None; all ranks make all of the groups."""
    groups = [dist.new_group(list(ranks)) for ranks in members]
    return next((group for group, ranks in zip(groups, members) if rank() in ranks), None)


def overflow_round():
    """Tokens go to the experts of a node. Those of the odd rank are more than there is place for, and it sends the rest
    in a second round, of which its pair knows nothing: that is with the others in the reduction of all."""
    torch, dist = connect()
    experts, gradient = groups_of(dist, *NODES), gradient_of(torch)
    tokens, received = torch.ones(1 << 16, device="cuda"), torch.empty(1 << 16, device="cuda")
    for number in range(FOREVER):
        if number == GOOD_STEPS:
            announce("settles")
        for _ in range(2 if in_trouble(number) else 1):
            dist.all_to_all_single(received, tokens, group=experts)
            torch.cuda.synchronize()
        reduce_gradient(dist, gradient)


def batch_source():
    """Tensor parallel in pairs, of which the first rank has the data and broadcasts each batch; the replicas reduce their
    gradients. The data of the odd rank end one batch sooner: it is at the end of the epoch, where all gather."""
    torch, dist = connect()
    epochs, tensor_parallel = gloo_group(dist), groups_of(dist, *NODES)
    replicas, gradient, batch = groups_of(dist, (0, 2), (1, 3)), gradient_of(torch), torch.ones(1 << 16, device="cuda")
    source = rank() - rank() % 2
    for number in range(FOREVER):
        if number == GOOD_STEPS:
            announce("settles")
        if in_trouble(number):
            dist.all_gather_object([None] * world(), number, group=epochs)
        dist.broadcast(batch, src=source, group=tensor_parallel)
        torch.cuda.synchronize()
        dist.all_reduce(gradient, group=replicas)
        torch.cuda.synchronize()


def wrong_port():
    """The port of the odd rank's configuration is not that of rank 0's store: another program listens there, takes the
    connection and says nothing. Rank 0 waits for all ranks to come to its store."""
    import torch
    torch.cuda.set_device(device_index())
    torch.ones(8, device="cuda").sum().item()
    if is_odd():
        os.environ["MASTER_PORT"] = os.environ["HANGS_PORT"]
    announce("settles")
    connect()


def eager_subgroup():
    """Communicators are made at once, as the ranks are bound to their GPUs; a new group is then split off from that of
    all. Ranks 0 and 1 make a group for themselves, and the odd rank, which is not in it, does not take part."""
    import torch
    torch, dist = connect(device_id=torch.device("cuda", device_index()))
    gradient = gradient_of(torch)
    for number in range(FOREVER):
        if number == GOOD_STEPS:
            announce("settles")
            if not is_odd():
                dist.new_group([0, 1])
        reduce_gradient(dist, gradient)


def exit_barrier():
    """The shard of the odd rank is shorter: its program is at its end, where it waits for all, as was registered with
    atexit; the others have more steps."""
    torch, dist = connect()
    ends, gradient = gloo_group(dist), gradient_of(torch)
    atexit.register(dist.barrier, group=ends)
    for number in range(GOOD_STEPS if is_odd() else FOREVER):
        if number == GOOD_STEPS:
            announce("settles")
        reduce_gradient(dist, gradient)
    announce("settles")


def stop_vote():
    """In every fourth step the ranks vote whether to stop, over gloo. The odd rank has resumed, and counts one step more
    than the others: it votes alone."""
    torch, dist = connect()
    votes, gradient, wants_stop = gloo_group(dist), gradient_of(torch), torch.zeros(1)
    for number in range(FOREVER):
        if number == GOOD_STEPS:
            announce("settles")
        step = number + 1 if in_trouble(number) else number
        if step % 4 == 0:
            dist.all_reduce(wants_stop, group=votes)
        reduce_gradient(dist, gradient)


def leaders():
    """Gradients are reduced in three stages: to the leader of each node, among the leaders, and from the leader to its
    node. The odd rank, a leader, has only zeros in its gradient and leaves the second stage out. Then all meet."""
    torch, dist = connect()
    steps, node, heads = gloo_group(dist), groups_of(dist, *NODES), groups_of(dist, (0, 2))
    leader, gradient = rank() - rank() % 2, gradient_of(torch)
    for number in range(FOREVER):
        if number == GOOD_STEPS:
            announce("settles")
        dist.reduce(gradient, dst=leader, group=node)
        if heads is not None and not in_trouble(number):
            dist.all_reduce(gradient, group=heads)
        dist.broadcast(gradient, src=leader, group=node)
        gradient.fill_(1.0)
        torch.cuda.synchronize()
        dist.barrier(group=steps)


def gossip():
    """In each step a rank exchanges its weights with a partner, over gloo, and then all reduce their losses. The odd rank
    takes the partner of another round, who has exchanged with its own partner and is with the losses."""
    torch, dist = connect()
    pairs, gradient, mine, others = gloo_group(dist), gradient_of(torch), torch.ones(1 << 20), torch.empty(1 << 20)
    for number in range(FOREVER):
        if number == GOOD_STEPS:
            announce("settles")
        partner = rank() ^ (2 if in_trouble(number) else 1)
        sent = dist.isend(mine, partner, group=pairs)
        dist.recv(others, partner, group=pairs)
        sent.wait()
        reduce_gradient(dist, gradient)


CASES = {"overflow-round": overflow_round, "batch-source": batch_source, "wrong-port": wrong_port,
         "eager-subgroup": eager_subgroup, "exit-barrier": exit_barrier, "stop-vote": stop_vote, "leaders": leaders,
         "gossip": gossip}

if __name__ == "__main__":
    run(CASES)
