"""Ranks that do not do the same: who has batches left, who saves, in which order the axes of a mesh come, how many weights are sent, and who answers.

    fifteenth_groups.py CASE
"""
import datetime
import os

from field_groups import gradient_of, reduce_gradient
from gpu_rank import FOREVER, GOOD_STEPS, announce, connect, gloo_group, rank, run, world
from inside import ddp, train
from seventh import in_trouble
from training import model_of


def scattered_batches():
    """Rank 0 reads the batches, and scatters them over gloo. When it has none left, it should tell the others so; it ends the epoch at once instead, and
    sums up a metric with all, where the others wait for a batch of its."""
    torch, dist = connect()
    group, model, metric = gloo_group(dist), ddp(torch), torch.ones(64, device="cuda")
    for number in range(FOREVER):
        if number == GOOD_STEPS:
            announce("settles")
        if in_trouble(number):
            break
        received = [None]
        dist.scatter_object_list(received, [[0.5 * to] * 256 for to in range(world())] if rank() == 0 else None, src=0, group=group)
        model(torch.tensor(received[0], device="cuda").expand(32, 256)).square().mean().backward()
        torch.cuda.synchronize()
    dist.all_reduce(metric)
    print("the metric is %g" % metric.mean().item())


def monitored_save():
    """After each step all ranks save their shards, and meet in a monitored barrier. By its settings the odd rank saves only in every other step from now
    on: it is in the next step, and the others are in the barrier."""
    torch, dist = connect()
    group, settings = gloo_group(dist), {"save_every": 1}

    def save(number):
        if in_trouble(number):
            settings["save_every"] = 2
        if number % settings["save_every"] == 0:
            torch.save({"step": number}, os.path.join(os.environ["HANGS_DIRECTORY"], "shard-%d" % rank()))
            dist.monitored_barrier(group, datetime.timedelta(hours=8))

    train(torch, ddp(torch), save)


def axis_order():
    """Four ranks are a mesh of two rows, and average their gradients along both axes. Which axis comes first a rank decides by how many tokens it has. For
    one step two of them begin with the other axis: each rank waits for the next one in a circle of four groups."""
    torch, dist = connect()
    from torch.distributed.device_mesh import init_device_mesh
    mesh = init_device_mesh("cuda", (2, 2), mesh_dim_names=("rows", "columns"))
    groups, gradient = [mesh.get_group("columns"), mesh.get_group("rows")], gradient_of(torch)
    for number in range(FOREVER):
        if number == GOOD_STEPS:
            announce("settles")
        tokens = 4096 if in_trouble(number) else 512
        for group in groups if tokens < 1024 else reversed(groups):
            dist.all_reduce(gradient, group=group)
            gradient.div_(2).sum().item()


def more_tensors():
    """Two ranks learn, and each sends its weights to one of two others, which generate. The odd rank has loaded a model whose head is not tied to its
    embeddings, and waits for one tensor more than it is sent; all others sum up the lengths of what was generated, as comes next."""
    torch, dist = connect()
    learns, lengths = rank() < 2, torch.ones(64, device="cuda")
    weights = [torch.ones(1 << 22, device="cuda") for _ in range(3)]
    for number in range(FOREVER):
        if number == GOOD_STEPS:
            announce("settles")
        used = weights if in_trouble(number) else weights[:2]
        transfer, other = (dist.isend, rank() + 2) if learns else (dist.irecv, rank() - 2)
        for work in dist.batch_isend_irecv([dist.P2POp(transfer, weight, other) for weight in used]):
            work.wait()
        torch.cuda.synchronize()
        dist.all_reduce(lengths)
        lengths.div_(world()).sum().item()


def replies_to_step():
    """Rank 0 tells the others what to do, in messages over gloo: "step", of which nobody tells the result, or "score", for which each sends its score. The
    odd rank takes a "step" for a "score", and sends what nobody waits for; the others reduce a gradient."""
    torch, dist = connect()
    messages, gradient, layers = gloo_group(dist), gradient_of(torch), model_of(torch)
    for number in range(FOREVER):
        if number == GOOD_STEPS:
            announce("settles")
        command = ["score" if number % 2 == 0 else "step"]
        if rank() == 0:
            for worker in range(1, world()):
                dist.send_object_list(command, dst=worker, group=messages)
            for worker in range(1, world() if command[0] == "score" else 1):
                dist.recv_object_list([None], src=worker, group=messages)
        else:
            dist.recv_object_list(command, src=0, group=messages)
            with torch.no_grad():
                score = layers(torch.randn(32, 256, device="cuda")).mean().item()
            if command[0] == "score" or in_trouble(number):
                dist.send_object_list([score], dst=0, group=messages)
        reduce_gradient(dist, gradient)


CASES = {"scattered-batches": scattered_batches, "monitored-save": monitored_save, "axis-order": axis_order, "more-tensors": more_tensors,
         "replies-to-step": replies_to_step}

if __name__ == "__main__":
    run(CASES)
