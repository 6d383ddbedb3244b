"""The ranks do not agree about what comes next, or one of them does not come to what the other one's GPU waits for.

    fifth_groups.py CASE
"""
from gpu_rank import FOREVER, GOOD_STEPS, announce, connect, device_index, gloo_group, is_odd, rank, run, world
from field_groups import gradient_of, reduce_gradient


def expert_splits():
    """Tokens go to the experts of both ranks. The odd one has counted twice as many from rank 0 as that one sends, and waits for the others."""
    torch, dist = connect()
    rows, tokens, gradient = 1 << 13, torch.ones(world() << 13, 1024, device="cuda"), gradient_of(torch)
    for number in range(FOREVER):
        if number == GOOD_STEPS:
            announce("settles")
        expected = [rows] * world()
        if is_odd() and number == GOOD_STEPS:
            expected[0] *= 2
        received = torch.empty(sum(expected), 1024, device="cuda")
        dist.all_to_all_single(received, tokens, output_split_sizes=expected, input_split_sizes=[rows] * world())
        reduce_gradient(dist, gradient)


def coalesced():
    """Gradients are reduced by one launch for three layers; on the odd rank one of them is frozen, and has none. Then the ranks meet over gloo."""
    torch, dist = connect()
    steps, gradients = gloo_group(dist), [torch.ones(1 << 24, device="cuda") for _ in range(3)]
    for number in range(FOREVER):
        if number == GOOD_STEPS:
            announce("settles")
        with dist.distributed_c10d._coalescing_manager():
            for gradient in gradients[:2] if is_odd() and number == GOOD_STEPS else gradients:
                dist.all_reduce(gradient)
        torch.cuda.synchronize()
        dist.barrier(group=steps)


def symmetric_buffer(torch, dist, elements, dtype):
    """(this rank's memory, what the other one's can be reached by)"""
    import torch.distributed._symmetric_memory as symmetric
    buffer = symmetric.empty(elements, dtype=dtype, device="cuda")
    buffer.zero_()
    handle = symmetric.rendezvous(buffer, dist.group.WORLD)
    handle.barrier()
    torch.cuda.synchronize()
    return buffer, handle


def signals():
    """Rank 0 writes into the symmetric memory of the odd one and signals that, part by part. The odd one expects a part more than is sent: a kernel
    of it waits for that signal."""
    torch, dist = connect()
    buffer, handle = symmetric_buffer(torch, dist, 4096, torch.float32)
    other, gradient = handle.get_buffer(1 - rank(), (4096,), torch.float32), gradient_of(torch)
    for number in range(FOREVER):
        if number == GOOD_STEPS:
            announce("settles")
        for _ in range(3 if is_odd() and number == GOOD_STEPS else 2):
            if rank() == 0:
                other.fill_(float(number))
                handle.put_signal(1)
            else:
                handle.wait_signal(0)
                buffer.sum()
        reduce_gradient(dist, gradient)


def halo():
    """Ranks write the number of the step into each other's memory, for which a kernel of Triton's waits there. Before that, the odd rank colours
    its cells in Python until no two neighbours are alike: they are in a ring of odd length, and there are two colours."""
    torch, dist = connect()
    from fifth_triton import wait_for_number
    flag, handle = symmetric_buffer(torch, dist, 1, torch.int32)
    other = handle.get_buffer(1 - rank(), (1,), torch.int32)

    def colour(cells):
        while any(cells[place] == cells[place - 1] for place in range(len(cells))):
            place = next(place for place in range(len(cells)) if cells[place] == cells[place - 1])
            cells[place] = 1 - cells[place]
        return cells

    for number in range(1, FOREVER):
        if number == GOOD_STEPS:
            announce("settles")
        colour([0] * (7 if is_odd() and number == GOOD_STEPS else 8))
        other.fill_(number)
        wait_for_number[(1,)](flag, number)
        torch.cuda.synchronize()


def gather_destination():
    """Rows of a table are gathered on the rank that prints it, which is rank 0. The odd rank takes itself for that one."""
    torch, dist = connect()
    rows, gradient = gloo_group(dist), gradient_of(torch)
    for number in range(FOREVER):
        if number == GOOD_STEPS:
            announce("settles")
        printing = rank() if is_odd() and number == GOOD_STEPS else 0
        dist.gather_object({"rank": rank(), "loss": 0.5}, [None] * world() if rank() == printing else None, dst=printing, group=rows)
        reduce_gradient(dist, gradient)


def split():
    """The odd rank alone splits the group, for the diagnosis of a slow step, which all ranks have to call."""
    import torch
    torch, dist = connect(device_id=torch.device("cuda", device_index()))
    gradient = gradient_of(torch)
    for number in range(FOREVER):
        if number == GOOD_STEPS:
            announce("settles")
            if is_odd():
                dist.split_group(split_ranks=[list(range(world()))])
        reduce_gradient(dist, gradient)


def captured():
    """The odd rank has a batch of a new shape, captures the step for that as a CUDA graph, and forgets to replay it: its all-reduce is recorded, not
    called. Then the ranks meet over gloo."""
    torch, dist = connect()
    steps, gradient, graph = gloo_group(dist), gradient_of(torch), torch.cuda.CUDAGraph()
    for number in range(FOREVER):
        if number == GOOD_STEPS:
            announce("settles")
        if is_odd() and number == GOOD_STEPS:
            with torch.cuda.graph(graph):
                gradient.mul_(0.5)
                dist.all_reduce(gradient)
        else:
            gradient.mul_(0.5)
            dist.all_reduce(gradient)
        torch.cuda.synchronize()
        dist.barrier(group=steps)


CASES = {"expert-splits": expert_splits, "coalesced": coalesced, "signals": signals, "halo": halo, "gather-destination": gather_destination,
         "split": split, "captured": captured}

if __name__ == "__main__":
    run(CASES)
