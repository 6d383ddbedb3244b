"""One rank looks for the others where they are not, calls another collective of objects than they do, or waits for a
server in a mesh of replicas and shards.

    ninth_groups.py CASE
"""
import http.client
import os

from gpu_rank import FOREVER, GOOD_STEPS, announce, connect, device_index, gloo_group, rank, run, world
from field_groups import gradient_of, reduce_gradient
from seventh import in_trouble
from training import model_of


def node_local_store():
    """The ranks meet by a file, in a directory that should be shared and is not: each has a file of its own. Rank 0 has
    written down how NCCL reaches it, and waits within NCCL for the other rank, which looks for that in its own file."""
    import torch
    torch.cuda.set_device(device_index())
    torch.ones(8, device="cuda").sum().item()
    directory = os.path.join(os.environ["HANGS_DIRECTORY"], "node-%d" % rank())
    os.makedirs(directory)
    announce("settles")
    connect(init_method="file://%s/rendezvous" % directory, rank=rank(), world_size=world())


def gather_or_broadcast():
    """After a step all ranks gather their metrics on rank 0, as objects over gloo. The odd rank has another version of
    the script, in which rank 0 broadcasts its own metrics in the place of that."""
    torch, dist = connect()
    metrics, gradient = gloo_group(dist), gradient_of(torch)
    for number in range(FOREVER):
        if number == GOOD_STEPS:
            announce("settles")
        reduce_gradient(dist, gradient)
        if in_trouble(number):
            dist.broadcast_object_list([None], src=0, group=metrics)
        else:
            dist.gather_object({"step": number, "rank": rank()}, [None] * world() if rank() == 0 else None, dst=0, group=metrics)


def replicated_shards():
    """FSDP2 with two replicas of two shards each. Between two steps the odd rank posts its loss to a tracking server, which
    does not answer. The other rank of its replica waits for its shard, and the two others for that rank or for the odd one."""
    torch, dist = connect()
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    mesh = init_device_mesh("cuda", (2, 2), mesh_dim_names=("replicate", "shard"))
    model = fully_shard(model_of(torch), mesh=mesh)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)

    def post_loss(loss):
        connection = http.client.HTTPConnection("127.0.0.1", int(os.environ["HANGS_PORT"]))
        connection.request("POST", "/runs/17/metrics", body="%g" % loss)
        connection.getresponse().read()

    for number in range(FOREVER):
        if number == GOOD_STEPS:
            announce("settles")
        loss = model(torch.randn(32, 256, device="cuda")).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        value = loss.item()
        if in_trouble(number):
            post_loss(value)


CASES = {"node-local-store": node_local_store, "gather-or-broadcast": gather_or_broadcast, "replicated-shards": replicated_shards}

if __name__ == "__main__":
    run(CASES)
