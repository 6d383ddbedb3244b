"""The ranks take different ways through FSDP2, DDP, DTensor or torch.distributed.pipelining; or one of them is held up by
torch.compile, or by a kernel of its own.

    ninth_frameworks.py CASE
"""
import time

from gpu_rank import FOREVER, GOOD_STEPS, TIMEOUT, announce, connect, device_index, gloo_group, is_odd, rank, run, world
from inside import ddp, train
from seventh import in_trouble
from training import model_of


def unrolled():
    """A compiled function applies a filter as many times as its argument says, in a loop of Python's, which the compiler
    unrolls. The odd rank's argument is a million times too large, and it compiles for hours."""
    torch, _ = connect()

    @torch.compile(backend="eager", dynamic=False)
    def smooth(values, times):
        for _ in range(times):
            values = values * 0.5 + 0.25
        return values

    def smooth_batch(number):
        smooth(torch.ones(256, device="cuda"), 4000000 if in_trouble(number) else 4)

    train(torch, ddp(torch), smooth_batch)


def empty_batch():
    """FSDP2 in bfloat16, whose shards are in the host's memory. Samples that are too long are left out; of a batch of the
    odd rank nothing is left, and it leaves out the step, in which the other one needs its shards: it gathers the losses
    of all, over gloo."""
    torch, dist = connect()
    from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard
    losses = gloo_group(dist)
    precision = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    options = {"mp_policy": precision, "offload_policy": CPUOffloadPolicy()}
    model = torch.nn.Sequential(*[torch.nn.Linear(512, 512, bias=False) for _ in range(4)])
    for layer in model:
        fully_shard(layer, **options)
    fully_shard(model, **options)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.001, foreach=False)
    for number in range(FOREVER):
        if number == GOOD_STEPS:
            announce("settles")
        samples, total = 0 if in_trouble(number) else 16, 0.0
        if samples:
            loss = model(torch.randn(samples, 512, device="cuda")).float().square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            total = loss.item()
        dist.all_gather_object([None] * world(), total, group=losses)


def two_schedules():
    """A pipeline of two stages. After some steps the schedule is made anew: rank 0 runs one forward, one backward, and
    the odd rank still all forwards first, as its configuration says. Rank 0 waits for the gradient of the first
    micro-batch before it sends the third one, for which the odd rank waits before it sends a gradient."""
    torch, _ = connect()
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe
    model, device = model_of(torch, layers=1), torch.device("cuda", device_index())
    inputs, targets = torch.randn(64, 256, device="cuda"), torch.randn(64, 256, device="cuda")

    def schedule_by(schedule_class):
        stage = PipelineStage(model, rank(), world(), device)
        return schedule_class(stage, n_microbatches=8, loss_fn=torch.nn.functional.mse_loss)

    schedule = schedule_by(ScheduleGPipe)
    for number in range(FOREVER):
        if number == GOOD_STEPS:
            announce("settles")
            schedule = schedule_by(ScheduleGPipe if is_odd() else Schedule1F1B)
        if rank() == 0:
            schedule.step(inputs)
        else:
            schedule.step(target=targets)
        torch.cuda.synchronize()


def wrapped_evaluation():
    """Rank 0 alone evaluates, by the model as DDP has wrapped it. The model has buffers, those of its batch norm, and DDP
    broadcasts them from rank 0 in each forward pass, also in evaluation; nobody takes them, and after some batches rank
    0 can send no more. The other rank waits for the end of the evaluation in a barrier over gloo."""
    torch, dist = connect()
    evaluations = gloo_group(dist)
    layers = torch.nn.Sequential(model_of(torch), torch.nn.BatchNorm1d(256).cuda())
    model = torch.nn.parallel.DistributedDataParallel(layers)
    for number in range(FOREVER):
        if number == GOOD_STEPS:
            announce("settles")
            if rank() == 0:
                evaluate(torch, model)
            dist.barrier(group=evaluations)
        model.train()
        model(torch.randn(32, 256, device="cuda")).square().mean().backward()
        torch.cuda.synchronize()


def evaluate(torch, model):
    model.eval()
    correct = 0
    with torch.no_grad():
        for _ in range(4096):
            correct += int(model(torch.randn(32, 256, device="cuda")).sum().item() > 0)
    return correct


def actor_and_critic():
    """Two models, each of which is sharded by FSDP2 in a group of its own. Rank 0 calls the actor first, the odd rank the
    critic, as the names come in another order in its configuration: each waits for the other's part of its model."""
    torch, dist = connect()
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.fsdp import fully_shard
    models = {}
    for name in ("actor", "critic"):
        mesh = DeviceMesh.from_group(dist.new_group(list(range(world())), timeout=TIMEOUT), "cuda")
        models[name] = fully_shard(model_of(torch), mesh=mesh)
    for number in range(FOREVER):
        if number == GOOD_STEPS:
            announce("settles")
        for name in sorted(models, reverse=in_trouble(number)):
            models[name](torch.randn(32, 256, device="cuda")).square().mean().backward()
            torch.cuda.synchronize()


def vocabulary_grows():
    """Tensor parallel. The tokenizer of the odd rank has got a new token, and the rank makes its embedding larger:
    distribute_tensor() takes the parts from rank 0, by a scatter among all ranks. Rank 0 is in the all-reduce of the next
    forward pass."""
    torch, _ = connect()
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
    mesh = init_device_mesh("cuda", (world(),), mesh_dim_names=("tp",))
    layers = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 256)).cuda()
    model = parallelize_module(layers, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    for number in range(FOREVER):
        if number == GOOD_STEPS:
            announce("settles")
        if in_trouble(number):
            distribute_tensor(torch.randn(1002, 256, device="cuda"), mesh, [Shard(0)])
        output = model(torch.ones(32, 256, device="cuda"))
        output.square().mean().backward()
        output.sum().item()


PARENTS = """
extern "C" __global__ void find_roots(const int* parents, int* roots) {
    int node = blockIdx.x * blockDim.x + threadIdx.x;
    while (((volatile const int*)parents)[node] != node)
        node = ((volatile const int*)parents)[node];
    roots[blockIdx.x * blockDim.x + threadIdx.x] = node;
}
"""


def parents_cycle():
    """A kernel that is compiled at run time, by NVRTC, goes from each node of a forest to its root. Two nodes of the odd
    rank are each other's parent, and the kernel does not end; the rank waits for the number of trees."""
    torch, _ = connect()
    find_roots = torch.cuda._compile_kernel(PARENTS, "find_roots")
    parents = torch.arange(1024, dtype=torch.int32, device="cuda").div_(4, rounding_mode="floor")
    roots = torch.zeros_like(parents)

    def count_trees(number):
        if in_trouble(number):
            parents[6], parents[7] = 7, 6
        find_roots(grid=(4, 1, 1), block=(256, 1, 1), args=[parents, roots])
        return roots.unique().numel()

    train(torch, ddp(torch), count_trees)


def empty_interval():
    """Noise is drawn on a stream of its own until it is within an interval, by a kernel of Triton's. That of the odd rank
    is empty, and the kernel does not end. The rank asks every few milliseconds whether the copy behind it is done."""
    torch, _ = connect()
    from ninth_triton import draw_between
    side, noise = torch.cuda.Stream(), torch.zeros(128, device="cuda")
    bounds, on_host = torch.tensor([0.25, 0.75], device="cuda"), torch.zeros(128, pin_memory=True)
    torch.cuda.synchronize()

    def draw_noise(number):
        with torch.cuda.stream(side):
            if in_trouble(number):
                bounds.fill_(2.0)
            draw_between[(1,)](noise, bounds, number)
            on_host.copy_(noise, non_blocking=True)
            done = side.record_event()
        while not done.query():
            time.sleep(0.005)

    train(torch, ddp(torch), draw_noise)


CASES = {"unrolled": unrolled, "empty-batch": empty_batch, "two-schedules": two_schedules, "wrapped-evaluation": wrapped_evaluation,
         "actor-and-critic": actor_and_critic, "vocabulary-grows": vocabulary_grows, "parents-cycle": parents_cycle,
         "empty-interval": empty_interval}

if __name__ == "__main__":
    run(CASES)
