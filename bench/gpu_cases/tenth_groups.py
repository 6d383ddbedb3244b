"""One rank is held up while a checkpoint is planned or a gradient is handed back to DDP, or it makes another call of
torch.distributed than the others.

    tenth_groups.py CASE
"""
import os
import queue
import threading

from gpu_rank import FOREVER, GOOD_STEPS, announce, connect, device_index, gloo_group, rank, run, world
from field_groups import gradient_of, reduce_gradient
from inside import ddp, train
from job import connect_to_silent_server
from seventh import in_trouble


def planner_lease():
    """torch.distributed.checkpoint.save() with a planner of the job's own, which takes a lease for the rank's files before
    it plans them. The server of the leases does not answer the odd rank; the other one waits for the plans of all."""
    torch, _ = connect()
    import torch.distributed.checkpoint as dcp
    model = ddp(torch)

    class LeasedFiles(dcp.DefaultSavePlanner):
        leased = True

        def create_local_plan(self):
            if not self.leased:
                lease = connect_to_silent_server()
                lease.sendall(b"lease for rank %d\n" % rank())
                lease.recv(64)
            return super().create_local_plan()

    def save(number):
        planner = LeasedFiles()
        planner.leased = not in_trouble(number)
        path = os.path.join(os.environ["HANGS_DIRECTORY"], "step-%d" % number)
        dcp.save({"model": {"of rank %d" % rank(): model.module[0][0].weight}}, checkpoint_id=path, planner=planner)

    train(torch, model, save)


def hook_future():
    """DDP hands each bucket of gradients to a hook, which returns a future at once; a thread clips and reduces the bucket,
    and sets the future. The gradient of the odd rank is not finite: its thread leaves that bucket out and takes the
    next one from its queue, which does not come, as the backward pass waits for the future."""
    torch, dist = connect()
    buckets, state, model = queue.Queue(), {"step": 0}, ddp(torch)

    def reduce_buckets():
        torch.cuda.set_device(device_index())
        while True:
            gradient, future = buckets.get()
            if in_trouble(state["step"]):
                continue
            dist.all_reduce(gradient.clamp_(-1, 1))
            future.set_result(gradient.div_(world()))

    def hand_over(_, bucket):
        future = torch.futures.Future(devices=[torch.device("cuda", device_index())])
        buckets.put((bucket.buffer(), future))
        return future

    model.register_comm_hook(None, hand_over)
    threading.Thread(target=reduce_buckets, name="reducer", daemon=True).start()
    train(torch, model, lambda number: state.update(step=number))


def critic_alone():
    """At the end of a step all ranks gather their losses, over gloo. By its configuration the odd rank trains a critic as
    well, from some step on, and makes that a model of DDP's, which compares the shapes of its weights with those of the
    other ranks, by NCCL: they have no critic."""
    torch, dist = connect()
    losses, model = gloo_group(dist), ddp(torch)
    for number in range(FOREVER):
        if number == GOOD_STEPS:
            announce("settles")
        loss = model(torch.randn(32, 256, device="cuda")).square().mean()
        loss.backward()
        torch.cuda.synchronize()
        if in_trouble(number):
            ddp(torch)
        dist.all_gather_object([None] * world(), loss.item(), group=losses)


def scatter_or_receive():
    """After a step rank 0 scatters prompts to all ranks, as objects over gloo. The odd rank has an older version of the
    script, to which rank 0 would send its prompts: it receives from rank 0, which sends nothing."""
    torch, dist = connect()
    prompts, gradient = gloo_group(dist), gradient_of(torch)
    for number in range(FOREVER):
        if number == GOOD_STEPS:
            announce("settles")
        reduce_gradient(dist, gradient)
        mine = [None]
        if in_trouble(number):
            dist.recv_object_list(mine, src=0, group=prompts)
        else:
            parts = [{"prompt": "Once upon a time", "for": other} for other in range(world())]
            dist.scatter_object_list(mine, parts if rank() == 0 else None, src=0, group=prompts)


def host_group():
    """The odd rank alone makes a group over gloo, for what it is to gather on the hosts, which all ranks have to make. Gloo
    looks in the store for the addresses of the other ranks. These have not put any there, and are in the next all-reduce."""
    torch, dist = connect()
    gradient = gradient_of(torch)
    for number in range(FOREVER):
        if number == GOOD_STEPS:
            announce("settles")
        if in_trouble(number):
            gloo_group(dist)
        reduce_gradient(dist, gradient)


CASES = {"planner-lease": planner_lease, "hook-future": hook_future, "critic-alone": critic_alone,
         "scatter-or-receive": scatter_or_receive, "host-group": host_group}

if __name__ == "__main__":
    run(CASES)
