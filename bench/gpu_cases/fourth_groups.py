"""Two ranks that do not agree about what comes next.

    fourth_groups.py CASE
"""
import threading

from gpu_rank import FOREVER, GOOD_STEPS, announce, connect, gloo_group, is_odd, rank, run, world
from field_groups import gradient_of, reduce_gradient
from inside import ddp


def consolidate():
    """The state of ZeroRedundancyOptimizer is gathered from all ranks before it is saved. Only rank 0 calls that; the other one waits for the
    checkpoint (pytorch.org/docs/stable/distributed.optim.html: consolidate_state_dict has to be called on all ranks)."""
    torch, dist = connect()
    from torch.distributed.optim import ZeroRedundancyOptimizer
    saved, model = gloo_group(dist), ddp(torch)
    optimizer = ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.AdamW, lr=0.001)
    for number in range(FOREVER):
        optimizer.zero_grad()
        model(torch.randn(32, 256, device="cuda")).square().mean().backward()
        optimizer.step()
        torch.cuda.synchronize()
        if number == GOOD_STEPS:
            announce("settles")
            if rank() == 0:
                optimizer.consolidate_state_dict(to=0)
            dist.barrier(group=saved)


def nan_loss():
    """The odd rank's loss is not a number, and it skips the backward pass: it is in the broadcast of the buffers in which the next forward pass
    begins, the other one reduces its gradient."""
    torch, _ = connect()
    layers = torch.nn.Sequential(torch.nn.BatchNorm1d(8, affine=False), torch.nn.Linear(8, 1 << 20, bias=False)).cuda()
    model = torch.nn.parallel.DistributedDataParallel(layers)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for number in range(FOREVER):
        if number == GOOD_STEPS:
            announce("settles")
        inputs = torch.randn(16, 8, device="cuda")
        if is_odd() and number == GOOD_STEPS:
            inputs[3] = float("nan")
        loss = model(inputs).square().mean()
        if not torch.isfinite(loss):
            continue
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


def recomputed_scale():
    """Activation checkpointing. If the numbers that a rank has seen so far are too large, the layer agrees on a scale with its tensor parallel
    group. Those of the odd rank become so within the forward pass; the layer finds that when it is computed again, in the backward pass."""
    torch, dist = connect()
    from torch.utils.checkpoint import checkpoint
    tensor_group, weight = dist.new_group(), torch.randn(256, 256, device="cuda", requires_grad=True)
    largest = torch.ones(1, device="cuda")

    def agree_on_scale():
        dist.all_reduce(largest, op=dist.ReduceOp.MAX, group=tensor_group)
        return largest.item()

    def layer(inputs):
        if largest.item() > 100:
            agree_on_scale()
        largest.copy_(torch.maximum(largest, inputs.detach().abs().max()))
        return torch.tanh(inputs @ weight)

    agree_on_scale()
    for number in range(FOREVER):
        if number == GOOD_STEPS:
            announce("settles")
        inputs = torch.rand(32, 256, device="cuda")
        if is_odd() and number == GOOD_STEPS:
            inputs[3] = 1000
        checkpoint(layer, inputs, use_reentrant=False).square().mean().backward()
        reduce_gradient(dist, weight.grad)
        weight.grad = None


def best_rank():
    """The weights of the rank with the smallest loss are handed to all. Each rank takes itself for that one, as the losses were not exchanged."""
    torch, dist = connect()
    weights = torch.ones(1 << 26, device="cuda")        # 256 MiB: more than NCCL's buffers hold
    for number in range(FOREVER):
        losses = [1.0] * world()
        if number == GOOD_STEPS:
            announce("settles")
            losses[rank()] = 0.5
        dist.broadcast(weights, src=min(range(world()), key=losses.__getitem__))
        torch.cuda.synchronize()


def tags():
    """The shapes of the micro-batches are sent over gloo, each with its number as the tag. The odd rank counts one on which it has dropped."""
    torch, dist = connect()
    shapes, gradient, shape = gloo_group(dist), gradient_of(torch), torch.tensor([32, 256])
    for number in range(FOREVER):
        if number == GOOD_STEPS:
            announce("settles")
        micro_batch = number + (1 if is_odd() and number == GOOD_STEPS else 0)
        if rank() == 0:
            dist.recv(shape, src=1, group=shapes, tag=micro_batch)
        else:
            dist.send(shape, dst=0, group=shapes, tag=micro_batch)
        reduce_gradient(dist, gradient)


def vocabularies():
    """At the begin of an epoch rank 0 believes that the vocabularies of all are gathered, the odd one that it hands its own to all."""
    torch, dist = connect()
    objects, gradient, words = gloo_group(dist), gradient_of(torch), {"a": 1, "b": 2}
    for number in range(FOREVER):
        if number == GOOD_STEPS:
            announce("settles")
        if is_odd() and number == GOOD_STEPS:
            dist.broadcast_object_list([words], src=1, group=objects)
        else:
            dist.all_gather_object([None] * world(), words, group=objects)
        reduce_gradient(dist, gradient)


def metrics_thread():
    """A thread gathers metrics in the same group as that in which the main thread waits for all ranks. On one rank the thread came first, on the
    other one the main thread."""
    torch, dist = connect()
    group, model = gloo_group(dist), ddp(torch)
    called, metric = [threading.Event(), threading.Event()], torch.ones(1 << 10)

    def gather_metrics(first, second):
        if second is not None:
            second.wait()
        work = dist.all_gather([torch.empty_like(metric) for _ in range(world())], metric, group=group, async_op=True)
        if first is not None:
            first.set()
        work.wait()

    for _ in range(GOOD_STEPS):
        model(torch.randn(32, 256, device="cuda")).square().mean().backward()
        torch.cuda.synchronize()
        gather_metrics(None, None)
        dist.barrier(group=group)
    threading.Thread(target=gather_metrics, args=(called[0], None) if rank() == 0 else (None, called[1]), name="metrics", daemon=True).start()
    if rank() == 0:
        called[0].wait()
    epoch_ends = dist.barrier(group=group, async_op=True)
    called[1].set()
    announce("settles")
    epoch_ends.wait()


CASES = {"consolidate": consolidate, "nan-loss": nan_loss, "recomputed-scale": recomputed_scale, "best-rank": best_rank, "tags": tags,
         "vocabularies": vocabularies, "metrics-thread": metrics_thread}

if __name__ == "__main__":
    run(CASES)
