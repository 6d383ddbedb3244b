"""Jobs whose ranks are laid out in groups, meshes, stages or rings; one of them leaves the common path, or is stuck on its own.

    layouts.py CASE
"""
import contextlib
import fcntl
import itertools
import os
import pickle
import re

from gpu_rank import FOREVER, GOOD_STEPS, announce, connect, device_index, gloo_group, is_odd, rank, run, world
from training import model_of, sharded_model


def accumulation():
    """Gradients are summed up over four micro-batches. The epoch of the odd rank ends one micro-batch early, before the one that synchronizes."""
    torch, dist = connect()
    finished = gloo_group(dist)
    model = torch.nn.parallel.DistributedDataParallel(model_of(torch))
    for number in range(1, 4 * (GOOD_STEPS + 1) + (0 if is_odd() else 1)):
        if number == 4 * GOOD_STEPS + 1:
            announce("settles")
        with contextlib.nullcontext() if number % 4 == 0 else model.no_sync():
            model(torch.randn(32, 256, device="cuda")).square().mean().backward()
    torch.cuda.synchronize()
    dist.barrier(group=finished)


def unused_branch():
    """A batch of the odd rank has no auxiliary target: DDP waits for gradients that never come, and refuses the next step. On its way out the
    rank meets the others in a barrier, as it thinks."""
    torch, dist = connect()
    leaving = gloo_group(dist)

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.trunk, self.head, self.auxiliary = model_of(torch, layers=2), torch.nn.Linear(256, 1).cuda(), torch.nn.Linear(256, 1).cuda()

        def forward(self, inputs, with_auxiliary):
            hidden = self.trunk(inputs)
            loss = self.head(hidden).square().mean()
            return loss + self.auxiliary(hidden).square().mean() if with_auxiliary else loss

    model = torch.nn.parallel.DistributedDataParallel(Model())
    try:
        for number in range(FOREVER):
            if number == GOOD_STEPS:
                announce("settles")
            loss = model(torch.randn(32, 256, device="cuda"), not (is_odd() and number == GOOD_STEPS))
            loss.backward()
            loss.item()
    finally:
        dist.barrier(group=leaving)


def mesh_redistribute():
    """Data times tensor parallel. One rank logs the norm of a weight that is sharded over its pair, and gathers it for that; the others go on."""
    torch, dist = connect()
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor
    mesh = init_device_mesh("cuda", (world() // 2, 2), mesh_dim_names=("dp", "tp"))
    weights = distribute_tensor(torch.randn(1024, 1024, device="cuda"), mesh["tp"], [Shard(0)])
    gradient, loss = torch.ones(1 << 20, device="cuda"), torch.ones(1, device="cuda")
    for number in range(FOREVER):
        if number == GOOD_STEPS:
            announce("settles")
            if is_odd():
                weights.redistribute(placements=[Replicate()]).to_local().norm().item()
        dist.all_reduce(gradient, group=mesh["dp"].get_group())
        dist.all_reduce(loss)
        loss.div_(world()).item()


class Documents:
    """A dataset. One of its documents takes the expression that cleans it longer than anybody can wait."""

    def __len__(self):
        return 1 << 16

    def __getitem__(self, index):
        import torch
        document = "some words " * 2
        if is_odd() and index == 8 * GOOD_STEPS:
            document = "a" * 60 + "!"
        return torch.full((256,), float(self.clean(document)))

    def clean(self, document):
        if document.endswith("!"):
            announce("settles")
        return len((re.match(r"(\w+\s?)*$", document) or [""])[0])


def mesh_fsdp_tp():
    """FSDP2 over one dimension of the mesh, tensor parallel over the other; one rank does not come back from its dataset."""
    torch, _ = connect()
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
    mesh = init_device_mesh("cuda", (world() // 2, 2), mesh_dim_names=("dp", "tp"))
    model = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 256)).cuda()
    fully_shard(parallelize_module(model, mesh["tp"], {"0": ColwiseParallel(), "2": RowwiseParallel()}), mesh=mesh["dp"])
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.001)
    for number, inputs in enumerate(torch.utils.data.DataLoader(Documents(), batch_size=8)):
        if number == GOOD_STEPS:
            announce("settles")
        optimizer.zero_grad()
        model(inputs.cuda()).square().mean().backward()
        optimizer.step()
        torch.cuda.synchronize()


def pipeline_1f1b():
    """Four stages. A layer of one of them reads a table again, under a lock of the file, which another job holds."""
    torch, _ = connect()
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B
    state = {"step": 0}

    def load_table(module, inputs):
        if state["step"] == GOOD_STEPS and is_odd():
            with open(os.path.join(os.environ["HANGS_DIRECTORY"], "cache.lock"), encoding="utf-8") as table:
                announce("settles")
                fcntl.flock(table, fcntl.LOCK_EX)

    model = model_of(torch, layers=2)
    model[2].register_forward_pre_hook(load_table)
    stage = PipelineStage(model, rank(), world(), torch.device("cuda", device_index()))
    schedule = Schedule1F1B(stage, n_microbatches=8, loss_fn=torch.nn.functional.mse_loss)
    inputs = (torch.randn(64, 256, device="cuda"),) if rank() == 0 else ()
    targets = {"target": torch.randn(64, 256, device="cuda")} if rank() == world() - 1 else {}
    while True:
        if state["step"] == GOOD_STEPS and not is_odd():
            announce("settles")
        schedule.step(*inputs, **targets)
        torch.cuda.synchronize()
        state["step"] += 1


def balance(load, capacity):
    """Moves tokens from the fullest expert to the emptiest until none has more than its capacity: never, if there are more than all can take."""
    while max(load) > capacity:
        fullest, emptiest = load.index(max(load)), load.index(min(load))
        load[fullest] -= 1
        load[emptiest] += 1
    return load


def experts_balance():
    """Tokens go to the experts of other ranks; before, each rank plans how many go where."""
    torch, dist = connect()
    expert = torch.nn.Linear(256, 256).cuda()
    for number in range(FOREVER):
        if number == GOOD_STEPS:
            announce("settles")
        planned = balance([40] + [8] * (world() - 1), 15 if is_odd() and number == GOOD_STEPS else 16)
        tokens = torch.randn(sum(planned), 256, device="cuda")
        received = torch.empty_like(tokens)
        dist.all_to_all_single(received, tokens)
        dist.all_to_all_single(tokens, expert(received).detach())
        tokens.sum().item()


def exchange(dist, outgoing, incoming, right, left):
    operations = [dist.P2POp(dist.isend, outgoing, right), dist.P2POp(dist.irecv, incoming, left)]
    for work in dist.batch_isend_irecv(operations):
        work.wait()


def wrong_neighbour():
    """Halos go around to the right. After a change of the layout the odd rank expects its own from the rank that is not its left neighbour."""
    torch, dist = connect()
    halo, received = torch.ones(1 << 22, device="cuda"), torch.empty(1 << 22, device="cuda")
    right, left = (rank() + 1) % world(), (rank() - 1) % world()
    for number in range(FOREVER):
        if number == GOOD_STEPS:
            announce("settles")
            if is_odd():
                left = (rank() - 2) % world()
        exchange(dist, halo, received, right, left)
        torch.cuda.synchronize()


def ring_stops():
    """Ring attention: keys go around. The odd rank believes that it needs no further block, leaves the ring a hop early and reduces its gradients."""
    torch, dist = connect()
    keys, gradient = torch.ones(1 << 22, device="cuda"), torch.ones(1 << 20, device="cuda")
    for number in range(FOREVER):
        if number == GOOD_STEPS:
            announce("settles")
        for hop in range(world() - 1):
            if is_odd() and number == GOOD_STEPS and hop == world() - 2:
                break
            received = torch.empty_like(keys)
            exchange(dist, keys, received, (rank() + 1) % world(), (rank() - 1) % world())
            keys = received
        dist.all_reduce(gradient)
        gradient.div_(world()).sum().item()


def mixed_backends():
    """A checkpoint is due after some minutes by each rank's own clock. That of the odd rank is late: it takes the next step first."""
    torch, dist = connect()
    saving = gloo_group(dist)
    gradient = torch.ones(1 << 20, device="cuda")
    for number in range(FOREVER):
        if number == GOOD_STEPS:
            announce("settles")
        if number == GOOD_STEPS + (1 if is_odd() else 0):
            dist.barrier(group=saving)
        dist.all_reduce(gradient)
        gradient.div_(world()).sum().item()


class Tokens:
    """Pickled as a list that its numbers are read into."""

    def __reduce__(self):
        return list, (), None, itertools.cycle(range(50000))


def write_tokens():
    announce("settles")
    with open(os.devnull, "wb") as cache:
        pickle.dump(Tokens(), cache)


def monitored_barrier():
    """The odd rank pickles its tokens, of which there is no end; the others wait for it in a monitored barrier."""
    torch, dist = connect()
    ready = gloo_group(dist)
    dist.monitored_barrier(group=ready)
    torch.cuda.synchronize()
    if is_odd():
        write_tokens()
    announce("settles")
    dist.monitored_barrier(group=ready)


def objects_uneven():
    """Results are gathered sample by sample. The odd rank's shard has one sample more; the others are in the next epoch."""
    torch, dist = connect()
    results = gloo_group(dist)
    gradient = torch.ones(1 << 20, device="cuda")
    for epoch in range(FOREVER):
        dist.all_reduce(gradient)
        gradient.div_(world()).sum().item()
        for sample in range(3 + (1 if is_odd() and epoch == GOOD_STEPS else 0)):
            if epoch == GOOD_STEPS and sample == 2:
                announce("settles")
            dist.all_gather_object([None] * world(), {"sample": sample}, group=results)


def rank0_evaluation():
    """Rank 0 alone evaluates, which seems to be its own affair; but its model is sharded, and gathers the weights of the first layer."""
    torch, dist = connect()
    evaluated = gloo_group(dist)
    model = sharded_model(torch)
    for number in range(FOREVER):
        if number == GOOD_STEPS:
            announce("settles")
            if is_odd():
                with torch.no_grad():
                    model(torch.randn(32, 256, device="cuda")).square().mean().item()
            dist.barrier(group=evaluated)
        model(torch.randn(32, 256, device="cuda")).square().mean().backward()
        torch.cuda.synchronize()


CASES = {"accumulation": accumulation, "unused-branch": unused_branch, "mesh-redistribute": mesh_redistribute, "mesh-fsdp-tp": mesh_fsdp_tp,
         "pipeline-1f1b": pipeline_1f1b, "experts-balance": experts_balance, "wrong-neighbour": wrong_neighbour, "ring-stops": ring_stops,
         "mixed-backends": mixed_backends, "monitored-barrier": monitored_barrier, "objects-uneven": objects_uneven, "rank0-evaluation": rank0_evaluation}

if __name__ == "__main__":
    run(CASES)
