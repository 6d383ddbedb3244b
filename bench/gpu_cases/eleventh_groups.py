"""Two ranks that do not call the same: a metric that is sharded, averages of models, a gather and a barrier.

    eleventh_groups.py CASE
"""
from gpu_rank import FOREVER, GOOD_STEPS, announce, connect, gloo_group, is_odd, rank, run, world
from inside import ddp, train
from training import model_of, sharded_model


def full_metric():
    """A metric is a DTensor of partial sums, in a mesh of its own. From some step on rank 0 alone asks for its whole value, to log it,
    which is a collective. The other rank is in the next step, in FSDP2's group."""
    torch, dist = connect()
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor import DTensor, Partial
    mesh = DeviceMesh.from_group(dist.new_group(), "cuda")

    def log_metric(number):
        metric = DTensor.from_local(torch.ones(1, device="cuda"), mesh, [Partial()])
        if rank() == 0 or number < GOOD_STEPS:
            metric.full_tensor().item()

    train(torch, sharded_model(torch), log_metric)


def local_averages():
    """Ranks train alone for eight steps, and average their models in every second step, once they have warmed up; then they gather their
    losses, over gloo. By its configuration the odd rank warms up for one step, and the other one for five: one of them
    has two averages to go when the other one is done."""
    torch, dist = connect()
    from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
    losses, model = gloo_group(dist), model_of(torch)
    averager = PeriodicModelAverager(period=2, warmup_steps=1 if is_odd() else 5)
    for number in range(8):
        if number == 5:
            announce("settles")
        loss = model(torch.randn(32, 256, device="cuda")).square().mean()
        loss.backward()
        averager.average_parameters(model.parameters())
        torch.cuda.synchronize()
    dist.all_gather_object([None] * world(), loss.item(), group=losses)


def gather_then_barrier():
    """At the end of an epoch ranks gather their lists of files, as objects over gloo, and wait for each other in a barrier, by NCCL. The
    odd rank has an older version of the script, in which the barrier comes first."""
    torch, dist = connect()
    files, model = gloo_group(dist), ddp(torch)

    def gather_files():
        dist.all_gather_object([None] * world(), ["shard-%d" % rank()], group=files)

    def wait_for_all():
        dist.barrier()
        torch.cuda.synchronize()

    for number in range(FOREVER):
        if number == GOOD_STEPS:
            announce("settles")
        model(torch.randn(32, 256, device="cuda")).square().mean().backward()
        torch.cuda.synchronize()
        calls = [gather_files, wait_for_all]
        if is_odd() and number == GOOD_STEPS:
            calls.reverse()
        for call in calls:
            call()


CASES = {"full-metric": full_metric, "local-averages": local_averages, "gather-then-barrier": gather_then_barrier}

if __name__ == "__main__":
    run(CASES)
