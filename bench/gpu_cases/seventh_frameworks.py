"""One rank takes another way through FSDP2, DDP, tensor parallelism or a checkpoint than the others, or is held up in
a compiler, in loading or in a hook of the backward pass.

    seventh_frameworks.py CASE
"""
import os

from gpu_rank import FOREVER, GOOD_STEPS, announce, connect, gloo_group, is_odd, rank, run, world
from fifth import unread_pipe
from inside import ddp, train
from job import UNOPENED_FIFO, connect_to_silent_server
from training import model_of


def compile_cache():
    """A function is compiled by a backend that asks a server for what other jobs have compiled. A batch of the odd rank
    is smaller than all before, and so it compiles again; the server does not answer."""
    torch, _ = connect()
    state = {"number": 0}

    def cached_backend(graph, _):
        if is_odd() and state["number"] == GOOD_STEPS:
            connect_to_silent_server().recv(1 << 16)
        return graph.forward

    normalize = torch.compile(lambda images: torch.tanh(images - images.mean(-1, keepdim=True)),
                              backend=cached_backend, dynamic=False)

    def normalize_batch(number):
        state["number"] = number
        normalize(torch.ones(24 if is_odd() and number == GOOD_STEPS else 32, 256, device="cuda"))

    train(torch, ddp(torch), normalize_batch)


def gradient_sync():
    """FSDP2. The odd rank still sums up gradients where the other one reduces them. At the end of the step the ranks
    meet over gloo."""
    torch, dist = connect()
    from torch.distributed.fsdp import fully_shard
    steps, model = gloo_group(dist), fully_shard(model_of(torch))
    for number in range(FOREVER):
        if number == GOOD_STEPS:
            announce("settles")
        model.set_requires_gradient_sync(not (is_odd() and number == GOOD_STEPS))
        model(torch.randn(32, 256, device="cuda")).square().mean().backward()
        torch.cuda.synchronize()
        dist.barrier(group=steps)


def saved_by_rank0():
    """torch.distributed.checkpoint.save() is for all ranks to call. Here rank 0 alone calls it, as for torch.save();
    the other one is in the next step."""
    torch, dist = connect()
    import torch.distributed.checkpoint as dcp
    saving, model = gloo_group(dist), ddp(torch)

    def save(number):
        path = os.path.join(os.environ["HANGS_DIRECTORY"], "step-%d" % number)
        dcp.save({"model": model.module.state_dict()}, checkpoint_id=path, process_group=saving)

    save(0)
    train(torch, model, lambda number: save(number) if rank() == 0 and number == GOOD_STEPS else None)


def load_and_broadcast():
    """Rank 0 loads the weights of a teacher and broadcasts them. The file of the newest ones is on a file system that
    does not answer."""
    torch, dist = connect()
    saved = os.path.join(os.environ["HANGS_DIRECTORY"], "teacher.%d" % rank())
    teacher, model = torch.ones(1 << 20, device="cuda"), ddp(torch)
    torch.save(teacher.cpu(), saved)

    def refresh_teacher(number):
        if rank() == 0:
            teacher.copy_(torch.load(UNOPENED_FIFO if number == GOOD_STEPS else saved, weights_only=True))
        dist.broadcast(teacher, src=0)

    train(torch, model, refresh_teacher)


def optimizer_in_backward():
    """Each weight is updated as soon as it has its gradient, in the backward pass, which keeps less memory. For one
    step the odd rank writes the norms of the gradients down there, into a pipe whose reader does not read."""
    torch, dist = connect()
    model, state = model_of(torch), {"number": 0}
    path = unread_pipe("norms") if is_odd() else None

    def write_norm(gradient):
        with open(path, "w", encoding="utf-8") as out:
            out.write("%g\n" % gradient.norm().item())

    @torch.no_grad()
    def update(parameter):
        if is_odd() and state["number"] == GOOD_STEPS:
            write_norm(parameter.grad)
        dist.all_reduce(parameter.grad)
        parameter.sub_(parameter.grad, alpha=0.001)
        parameter.grad = None

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(update)
    train(torch, model, lambda number: state.update(number=number))


def unused_parameters():
    """After some steps another model is trained, also by DDP. The configuration of the odd rank says that parameters
    of this one may be unused: it reduces a map of those that are used as well. At the end of the step the ranks meet
    over gloo. (All gradients are in one bucket, by either configuration.)"""
    torch, dist = connect()
    steps, model = gloo_group(dist), torch.nn.parallel.DistributedDataParallel(model_of(torch))
    for number in range(FOREVER):
        if number == GOOD_STEPS:
            announce("settles")
            model = torch.nn.parallel.DistributedDataParallel(model_of(torch, layers=3),
                                                              find_unused_parameters=is_odd())
        model(torch.randn(32, 256, device="cuda")).square().mean().backward()
        torch.cuda.synchronize()
        dist.barrier(group=steps)


def dropped_layer():
    """Two tensor parallel layers, of which the second one is left out now and then, at random. The random numbers of
    the odd rank differ: it leaves the layer out, alone. At the end of the step the ranks meet over gloo."""
    torch, dist = connect()
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
    steps, mesh = gloo_group(dist), init_device_mesh("cuda", (world(),), mesh_dim_names=("tp",))

    def layer():
        parts = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 256)).cuda()
        return parallelize_module(parts, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})

    first, second = layer(), layer()
    for number in range(FOREVER):
        if number == GOOD_STEPS:
            announce("settles")
        with torch.no_grad():
            hidden = first(torch.ones(32, 256, device="cuda"))
            if not (is_odd() and number == GOOD_STEPS):
                hidden = hidden + second(hidden)
            hidden.square().mean().item()
        dist.barrier(group=steps)


CASES = {"compile-cache": compile_cache, "gradient-sync": gradient_sync, "saved-by-rank0": saved_by_rank0,
         "load-and-broadcast": load_and_broadcast, "optimizer-in-backward": optimizer_in_backward,
         "unused-parameters": unused_parameters, "dropped-layer": dropped_layer}

if __name__ == "__main__":
    run(CASES)
