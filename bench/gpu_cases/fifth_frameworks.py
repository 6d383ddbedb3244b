"""One rank takes another way through FSDP2, DDP, GradScaler or torch.distributed.pipelining than the others, or is held up by a compiler.

    fifth_frameworks.py CASE
"""
import os

from gpu_rank import FOREVER, GOOD_STEPS, announce, connect, device_index, gloo_group, is_odd, rank, run, world
from field_groups import reduce_gradient
from inside import ddp, train
from job import SILENT_FIFO
from training import model_of

PTXAS = """#!/bin/sh
case "$*" in
*--version*) ;;
*) test -e '%s' && exec cat '%s' ;;
esac
exec '%s' "$@"
"""


def replace_assemblers(directory, full):
    """Triton calls one of two assemblers, by the GPU. In the place of both: one that waits for a file as soon as there is `full`."""
    import triton
    for name in ("ptxas", "ptxas_blackwell"):
        path, tool = os.path.join(directory, name), getattr(triton.knobs.nvidia, name)
        with open(path, "w", encoding="utf-8") as out:
            out.write(PTXAS % (full, SILENT_FIFO, tool.path))
        os.chmod(path, 0o755)
        os.environ["TRITON_%s_PATH" % name.upper()] = path


def compile_workers():
    """The odd rank compiles a function for another kind of batch, by Inductor's worker processes: what they call as ptxas does not come back."""
    torch, _ = connect()
    directory = os.environ["HANGS_DIRECTORY"]
    full = os.path.join(directory, "scratch-is-full")
    if is_odd():
        replace_assemblers(directory, full)
        os.environ.update(TRITON_CACHE_DIR=os.path.join(directory, "triton"), TORCHINDUCTOR_CACHE_DIR=os.path.join(directory, "inductor"),
                          TORCHINDUCTOR_COMPILE_THREADS="4")
        images = torch.randn(32, 256, device="cuda")
        torch.compile(lambda images: images.abs().sum(-1))(images)
        from torch._inductor.async_compile import AsyncCompile
        AsyncCompile.wait_pool_ready()

    def normalize_batch(number):
        if is_odd() and number == GOOD_STEPS:
            with open(full, "w", encoding="utf-8"):
                pass
            torch.compile(lambda images: torch.tanh(images - images.mean(-1, keepdim=True)) * 0.5)(images)

    train(torch, ddp(torch), normalize_batch)


def autotuned():
    """A batch of the odd rank has a length that is no multiple of what a kernel of Triton's takes in one step. The kernel is tuned for that length,
    and does not end."""
    torch, _ = connect()
    from fifth_triton import add_up
    ring, total = torch.ones(8192, device="cuda"), torch.zeros(1, device="cuda")

    def sum_up(number):
        size = 4128 if is_odd() and number == GOOD_STEPS else 4096
        add_up[(1,)](ring, total, size, 8192)

    train(torch, ddp(torch), sum_up)


def conditional_block():
    """FSDP2. Each rank decides by its own batch whether to call a block, which gathers the weights of the block if it is called. The odd rank does
    not call it, and gathers those of the next one."""
    torch, _ = connect()
    from torch.distributed.fsdp import fully_shard

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last = torch.nn.Linear(64, 64, bias=False), torch.nn.Linear(64, 64, bias=False)
            self.images = torch.nn.Sequential(torch.nn.Linear(64, 1 << 18, bias=False), torch.nn.Linear(1 << 18, 64, bias=False))

        def forward(self, inputs, has_images):
            hidden = self.first(inputs)
            if has_images:
                hidden = hidden + self.images(hidden)
            return self.last(hidden)

    model = Model().cuda()
    for part in (model.first, model.images, model.last):
        fully_shard(part)
    fully_shard(model)
    for number in range(FOREVER):
        if number == GOOD_STEPS:
            announce("settles")
        loss = model(torch.randn(8, 64, device="cuda"), has_images=not (is_odd() and number == GOOD_STEPS)).square().mean()
        loss.backward()
        loss.item()


def grad_scaler():
    """Each rank updates a part of the weights, and gathers those of all in its optimizer. The gradient of the odd rank's part overflows: GradScaler
    finds that in this rank alone, and does not call its optimizer. (FSDP has a ShardedGradScaler for this reason.)"""
    torch, dist = connect()
    gathering, weights = dist.new_group(), torch.randn(world() << 18, device="cuda", requires_grad=True)
    part = torch.nn.Parameter(weights.detach().chunk(world())[rank()].clone())

    class ShardedAdamW(torch.optim.AdamW):
        def step(self, closure=None):
            super().step(closure)
            dist.all_gather_into_tensor(weights.detach(), part.detach(), group=gathering)

    optimizer, scaler = ShardedAdamW([part], lr=0.001), torch.amp.GradScaler("cuda", init_scale=256.0)
    dist.all_gather_into_tensor(weights.detach(), part.detach(), group=gathering)
    for number in range(FOREVER):
        if number == GOOD_STEPS:
            announce("settles")
        scaler.scale((weights * torch.rand_like(weights)).square().mean()).backward()
        part.grad = torch.empty_like(part)
        dist.reduce_scatter_tensor(part.grad, weights.grad)
        weights.grad = None
        if is_odd() and number == GOOD_STEPS:
            part.grad[7] = float("inf")
        scaler.step(optimizer)
        scaler.update()
        torch.cuda.synchronize()


def microbatches():
    """A pipeline, one forward, one backward. After some steps a new schedule is made, for which the odd rank cuts the batch into more micro-batches
    than before, as only its configuration says: it waits for activations that rank 0 does not send."""
    torch, dist = connect()
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B
    model, device, norm = model_of(torch, layers=1), torch.device("cuda", device_index()), torch.ones(1 << 20, device="cuda")
    inputs, targets = torch.randn(64, 256, device="cuda"), torch.randn(64, 256, device="cuda")

    def schedule_of(count):
        return Schedule1F1B(PipelineStage(model, rank(), world(), device), n_microbatches=count, loss_fn=lambda output, target: output.square().mean())

    schedule = schedule_of(4)
    for number in range(FOREVER):
        if number == GOOD_STEPS:
            announce("settles")
            schedule = schedule_of(8 if is_odd() else 4)
        if rank() == 0:
            schedule.step(inputs)
        else:
            schedule.step(target=targets)
        reduce_gradient(dist, norm)


def hybrid():
    """FSDP2 with two replicas of two shards each. The odd rank still sums up gradients in the last part of a step, and does not reduce them with
    its replica; at the end of the step the ranks meet over gloo."""
    torch, dist = connect()
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    steps, mesh = gloo_group(dist), init_device_mesh("cuda", (2, 2), mesh_dim_names=("replicate", "shard"))
    model = fully_shard(model_of(torch), mesh=mesh)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    for number in range(FOREVER):
        if number == GOOD_STEPS:
            announce("settles")
        model.set_requires_all_reduce(not (is_odd() and number == GOOD_STEPS))
        model(torch.randn(32, 256, device="cuda")).square().mean().backward()
        if model_has_gradients(model):
            optimizer.step()
        optimizer.zero_grad()
        torch.cuda.synchronize()
        dist.barrier(group=steps)


def model_has_gradients(model):
    return all(parameter.grad is not None for parameter in model.parameters())


def cached_download():
    """Rank 0 loads a model first, and then the others, which find it in the cache then: a barrier before loading for them, and one after it for
    rank 0. Rank 0 has it in its cache already, and returns without that barrier."""
    torch, dist = connect()
    torch.nn.parallel.DistributedDataParallel(model_of(torch))      # imports what it needs, before the hang
    loading, cache = gloo_group(dist), os.path.join(os.environ["HANGS_DIRECTORY"], "model.bin")
    if rank() == 0:
        with open(cache, "wb") as out:
            out.write(bytes(4096))
    dist.barrier(group=loading)

    def load_model():
        if rank() != 0:
            dist.barrier(group=loading)
        if os.path.exists(cache):
            return model_of(torch)
        model = model_of(torch)
        if rank() == 0:
            dist.barrier(group=loading)
        return model

    announce("settles")
    model = torch.nn.parallel.DistributedDataParallel(load_model())
    model(torch.randn(32, 256, device="cuda")).square().mean().backward()
    torch.cuda.synchronize()


CASES = {"compile-workers": compile_workers, "autotuned": autotuned, "conditional-block": conditional_block, "grad-scaler": grad_scaler,
         "microbatches": microbatches, "hybrid": hybrid, "cached-download": cached_download}

if __name__ == "__main__":
    run(CASES)
