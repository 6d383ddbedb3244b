"""Ranks that do not call the same: closures of an optimizer, a layer that is frozen, samples for rank 0 alone, and items of work.

    twelfth_groups.py CASE
"""
import datetime

from eleventh import tensor_parallel
from gpu_rank import FOREVER, GOOD_STEPS, announce, connect, gloo_group, is_odd, rank, run, world
from inside import ddp
from seventh import in_trouble


def uneven_closures():
    """L-BFGS calls the forward and backward pass of DDP up to four times in a step, until the loss does not change any more. All targets in
    a batch of the odd rank are masked: its loss is nought both times, and it is done. Then ranks gather their losses, over gloo."""
    torch, dist = connect()
    losses, model = gloo_group(dist), ddp(torch)
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=4, tolerance_grad=0, tolerance_change=1e-30)
    for number in range(FOREVER):
        if number == GOOD_STEPS:
            announce("settles")
        inputs, mask = torch.randn(32, 256, device="cuda"), 0.0 if in_trouble(number) else 1.0

        def closure(inputs=inputs, mask=mask):
            optimizer.zero_grad()
            loss = (mask * (model(inputs) - 1)).square().mean()
            loss.backward()
            return loss

        loss = optimizer.step(closure).item()
        dist.all_gather_object([None] * world(), loss, group=losses)


def split_layer(torch, dist, group):
    """A function of inputs that all ranks have: each computes a part of the sum. The gradients of the inputs are summed up over the group in
    the backward pass, where there are some."""
    class CopyToGroup(torch.autograd.Function):
        @staticmethod
        def forward(context, inputs):
            return inputs.clone()

        @staticmethod
        def backward(context, gradient):
            gradient = gradient.contiguous()
            dist.all_reduce(gradient, group=group)
            return gradient

    class ReduceOverGroup(torch.autograd.Function):
        @staticmethod
        def forward(context, part):
            total = part.clone()
            dist.all_reduce(total, group=group)
            return total

        @staticmethod
        def backward(context, gradient):
            return gradient

    parts = torch.nn.Linear(256, 256, device="cuda")
    return lambda inputs: ReduceOverGroup.apply(torch.relu(parts(CopyToGroup.apply(inputs))))


def frozen_layer():
    """A layer is split over the ranks, by functions of autograd's that reduce in a group of their own. From some step on the odd rank has
    frozen what comes before that layer: its inputs need no gradients, and it leaves out the reduction of these. Its GPU is in that of the
    loss, which is one of all ranks; both ranks wait for their GPUs to read the loss."""
    torch, dist = connect()
    group = dist.new_group()
    embedding, layer = torch.nn.Linear(256, 256, device="cuda"), split_layer(torch, dist, group)
    layer(embedding(torch.ones(32, 256, device="cuda"))).mean().backward()
    torch.cuda.synchronize()
    for number in range(FOREVER):
        if number == GOOD_STEPS:
            announce("settles")
            embedding.requires_grad_(not is_odd())
        loss = layer(embedding(torch.randn(32, 256, device="cuda"))).square().mean()
        loss.backward()
        total = loss.detach().clone()
        dist.all_reduce(total)
        total.item()


def samples_for_log():
    """A model whose layers are in parts on all ranks. From time to time rank 0 alone generates samples for the log, for which it needs all
    ranks; the other one waits in the store until rank 0 says that it is done."""
    torch, dist = connect()
    store, model = dist.distributed_c10d._get_default_store(), tensor_parallel(torch)
    for number in range(FOREVER):
        if number == GOOD_STEPS:
            announce("settles")
        model(torch.randn(32, 256, device="cuda")).square().mean().backward()
        torch.cuda.synchronize()
        if number < GOOD_STEPS:
            continue
        if rank() == 0:
            with torch.no_grad():
                for _ in range(16):
                    model(torch.randn(1, 256, device="cuda")).argmax().item()
            store.set("samples-%d" % number, "done")
        else:
            store.wait(["samples-%d" % number], datetime.timedelta(hours=8))


def work_items():
    """In each step rank 0 sends items of work to the other rank, as objects over gloo. That expects four of them; rank 0 has three in its
    last shard, and is in the backward pass of the step."""
    torch, dist = connect()
    items, model = gloo_group(dist), ddp(torch)

    def hand_out(number):
        for item in range(3 if number == GOOD_STEPS else 4):
            dist.send_object_list([{"item": item, "step": number}], dst=1, group=items)

    def take():
        for _ in range(4):
            received = [None]
            dist.recv_object_list(received, src=0, group=items)

    for number in range(FOREVER):
        if number == GOOD_STEPS:
            announce("settles")
        if rank() == 0:
            hand_out(number)
        else:
            take()
        model(torch.randn(32, 256, device="cuda")).square().mean().backward()
        torch.cuda.synchronize()


CASES = {"uneven-closures": uneven_closures, "frozen-layer": frozen_layer, "samples-for-log": samples_for_log, "work-items": work_items}

if __name__ == "__main__":
    run(CASES)
