"""What ranks do within a library: one rejoins by torch's elastic rendezvous, all wait for a node there, one computes its loss from whole logits, asks a
cache for a kernel of Triton's, or shuts torch.distributed.rpc down.

    sixteenth_frameworks.py CASE
"""
import datetime
import os

from eleventh import start_rpc
from field_groups import gradient_of, reduce_gradient
from gpu_rank import FOREVER, GOOD_STEPS, announce, connect, gloo_group, is_odd, rank, run, world
from inside import ddp, train
from seventh import in_trouble
from tenth_well import train_once


def rendezvous(dist, nodes):
    """Meets as many nodes, by torchrun's rendezvous, in the store of the job."""
    from torch.distributed.elastic.rendezvous.c10d_rendezvous_backend import C10dRendezvousBackend
    from torch.distributed.elastic.rendezvous.dynamic_rendezvous import DynamicRendezvousHandler, RendezvousTimeout
    store = dist.distributed_c10d._get_default_store()
    timeout = RendezvousTimeout(join=datetime.timedelta(hours=8))
    handler = DynamicRendezvousHandler.from_backend("restart", store, C10dRendezvousBackend(store, "restart"), nodes, nodes, "127.0.0.1", timeout)
    return handler.next_rendezvous()


def elastic_rejoin():
    """A trainer restarts within its process: after an error all ranks are to meet anew, by torch's elastic rendezvous. Only the odd rank has had one, and
    waits there for the others, which have heard nothing of that."""
    torch, dist = connect()
    model = ddp(torch)

    def train_step(number):
        inputs = torch.randn(32, 256, device="cuda")
        if in_trouble(number):
            raise RuntimeError("a link of the GPU has an error")
        train_once(torch, model, inputs)

    for number in range(FOREVER):
        if number == GOOD_STEPS:
            announce("settles")
        try:
            train_step(number)
        except RuntimeError as error:
            print("rank %d restarts: %s" % (rank(), error), flush=True)
            rendezvous(dist, world())


def elastic_nodes():
    """After some steps all ranks meet anew, as the job is to go on with three nodes. The third one has not come yet: all ranks are at the same place."""
    torch, dist = connect()
    train(torch, ddp(torch), lambda number: rendezvous(dist, 3) if number == GOOD_STEPS else None)


def whole_logits():
    """The head of a model is split over the ranks by its vocabulary, and so is the loss. From some step on, the odd rank computes its loss from the whole
    logits, for a metric, and gathers these; the others sum up parts of the loss. Then all gather their losses, over gloo."""
    torch, dist = connect()
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard
    from torch.distributed.tensor.parallel import ColwiseParallel, loss_parallel, parallelize_module
    mesh, losses = init_device_mesh("cuda", (world(),)), gloo_group(dist)
    torch.manual_seed(1)
    head = parallelize_module(torch.nn.Linear(256, 1 << 13, bias=False).cuda(), mesh, ColwiseParallel(output_layouts=Shard(-1), use_local_output=False))
    inputs, targets = torch.randn(1 << 11, 256, device="cuda"), torch.arange(1 << 11, device="cuda")

    def loss_of(logits, whole):
        if whole:
            return torch.nn.functional.cross_entropy(logits.full_tensor(), targets).item()
        with loss_parallel():
            loss = torch.nn.functional.cross_entropy(logits, targets)
            loss.backward()
            return loss.to_local().item()

    for number in range(FOREVER):
        if number == GOOD_STEPS:
            announce("settles")
        head.zero_grad()
        loss = loss_of(head(inputs), in_trouble(number))
        dist.all_gather_object([None] * world(), loss, group=losses)


def triton_cache():
    """Kernels of Triton's are looked for in a cache that all jobs share. The odd rank has a batch for which it needs a kernel more, and the server of the
    cache does not answer."""
    torch, dist = connect()
    directory = os.path.join(os.environ["HANGS_DIRECTORY"], "triton-%d" % rank())
    os.environ.update(TRITON_CACHE_MANAGER="sixteenth_triton:SharedCache", TRITON_CACHE_DIR=directory)
    from sixteenth_triton import SharedCache, scale_block
    values, gradient = torch.ones(1024, device="cuda"), gradient_of(torch)
    for number in range(FOREVER):
        if number == GOOD_STEPS:
            announce("settles")
            SharedCache.in_use = True
        scale_block[(1,)](values, 512 if in_trouble(number) else 1024)
        reduce_gradient(dist, gradient)


def vocabulary_size(batch):
    """Called by another rank."""
    return 256 + batch % 7


def rpc_shutdown():
    """Before each step the other ranks ask the first one for the size of the vocabulary, by torch.distributed.rpc. The data of the odd rank end sooner: it
    shuts that down, for which all ranks have to do so; the others are in the next step."""
    torch, _ = connect()
    rpc, model = start_rpc(), ddp(torch)
    for number in range(GOOD_STEPS if is_odd() else FOREVER):
        if number == GOOD_STEPS:
            announce("settles")
        if rank() != 0:
            rpc.rpc_sync("trainer0", vocabulary_size, args=(number,))
        train_once(torch, model)
    announce("settles")
    rpc.shutdown()


CASES = {"elastic-rejoin": elastic_rejoin, "elastic-nodes": elastic_nodes, "whole-logits": whole_logits, "triton-cache": triton_cache,
         "rpc-shutdown": rpc_shutdown}

if __name__ == "__main__":
    run(CASES)
