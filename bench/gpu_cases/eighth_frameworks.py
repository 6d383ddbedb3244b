"""One rank takes another way through FSDP2 or its own reduction of gradients than the others, or is held up in a
checkpoint or by the compiler; and kernels and streams by which a rank waits for its own GPU.

    eighth_frameworks.py CASE
"""
import os
import subprocess
import threading
import time

from gpu_rank import FOREVER, GOOD_STEPS, announce, connect, gloo_group, is_odd, rank, run, world
from fifth_groups import symmetric_buffer
from inside import ddp, train
from job import FULL_FIFO, SILENT_FIFO
from seventh import in_trouble
from training import model_of, sharded_model


def whole_gradient():
    """FSDP2, whose gradients are DTensors. Rank 0 alone logs the largest gradient of the first layer, for which
    full_tensor() gathers it from all ranks; the others are at the end of the step, where all ranks meet over gloo."""
    torch, dist = connect()
    steps, model = gloo_group(dist), sharded_model(torch)
    for number in range(FOREVER):
        if number == GOOD_STEPS:
            announce("settles")
        model(torch.randn(32, 256, device="cuda")).square().mean().backward()
        if number < GOOD_STEPS or rank() == 0:
            largest = model[0].weight.grad.full_tensor().abs().max()
            print("step %d: the largest gradient is %g" % (number, largest.item()))
        model.zero_grad()
        torch.cuda.synchronize()
        dist.barrier(group=steps)


def none_gradient():
    """Gradients are reduced one after the other, where there are any. A branch of the model is for a kind of sample of
    which the odd rank has none in this step, and has no gradients. Then the losses of all are gathered over gloo."""
    torch, dist = connect()
    losses, trunk, branch = gloo_group(dist), model_of(torch), torch.nn.Linear(256, 256).cuda()
    weights = [*trunk.parameters(), *branch.parameters()]
    for number in range(FOREVER):
        if number == GOOD_STEPS:
            announce("settles")
        hidden = trunk(torch.randn(32, 256, device="cuda"))
        if not in_trouble(number):
            hidden = hidden + branch(hidden)
        loss = hidden.square().mean()
        loss.backward()
        for weight in weights:
            if weight.grad is not None:
                dist.all_reduce(weight.grad)
                weight.grad = None
        torch.cuda.synchronize()
        dist.all_gather_object([None] * world(), loss.item(), group=losses)


def compressed_save():
    """Each rank saves its state through a program that compresses it, as it were. That of the odd rank writes to a file
    system that takes nothing any more, and so the rank can write no more to the program."""
    torch, _ = connect()
    model, path = ddp(torch), os.path.join(os.environ["HANGS_DIRECTORY"], "state.%d" % rank())

    def save(number):
        with open(FULL_FIFO if in_trouble(number) else path, "wb") as out:
            compressor = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=out)
            torch.save(model.module.state_dict(), compressor.stdin)
            compressor.stdin.close()
            compressor.wait()

    train(torch, model, save)


def compiles_apart():
    """A thread compiles a function ahead of its use, while the main thread calls one that is to be compiled as well:
    the compiler has one lock. The thread of the odd rank reads a file of tuned parameters, which does not come."""
    torch, _ = connect()
    is_compiling = threading.Event()

    def tuned_backend(graph, _):
        is_compiling.set()
        if is_odd():
            with open(SILENT_FIFO, "rb", buffering=0) as parameters:
                parameters.read(4096)
        return graph.forward

    draft = torch.compile(lambda tokens: torch.tanh(tokens) * 0.5, backend=tuned_backend)
    normalize = torch.compile(lambda images: images - images.mean(-1, keepdim=True), backend="eager")

    def compile_both(number):
        if number == GOOD_STEPS:
            threading.Thread(target=draft, args=(torch.ones(8),), name="compiles-draft", daemon=True).start()
            is_compiling.wait()
            normalize(torch.ones(32, 256))

    train(torch, ddp(torch), compile_both)


def overlapped():
    """A kernel multiplies what another stream gathers, as soon as a flag says that it is there. That of the odd rank has
    so many programs that they fill the GPU while they wait: what gathers has no place there to begin."""
    torch, dist = connect()
    from eighth_triton import scale_when_ready
    values, gathered = torch.ones(1024, device="cuda"), torch.ones(1 << 20, device="cuda")
    flag, side = torch.zeros(1, dtype=torch.int32, device="cuda"), torch.cuda.Stream()

    def gather(number):
        with torch.cuda.stream(side):
            dist.all_reduce(gathered, op=dist.ReduceOp.MAX)
            flag.fill_(number)

    gather(0)
    torch.cuda.synchronize()
    for number in range(1, FOREVER):
        if number == GOOD_STEPS:
            announce("settles")
        scale_when_ready[(1 << 16 if in_trouble(number) else 8,)](values, flag, number)
        time.sleep(0.1)
        gather(number)
        torch.cuda.synchronize()


def empty_cache():
    """The odd rank gives memory back to the driver, for which that waits for all of the GPU, also for a stream on which
    a kernel does not end."""
    torch, _ = connect()
    side = torch.cuda.Stream()

    def give_back(number):
        unused = torch.empty(1 << 26, device="cuda")
        if in_trouble(number):
            with torch.cuda.stream(side):
                torch.cuda._sleep(1 << 46)
        del unused
        torch.cuda.empty_cache()

    train(torch, ddp(torch), give_back)


def runs_ahead():
    """Nothing reads a result: the ranks launch one step after the other. A kernel of the odd rank does not end, and once
    the queue of launches is full, the rank waits for a place in it."""
    torch, _ = connect()
    model = ddp(torch)
    for number in range(FOREVER):
        if number == GOOD_STEPS:
            announce("settles")
        if in_trouble(number):
            torch.cuda._sleep(1 << 46)
        model(torch.randn(32, 256, device="cuda")).square().mean().backward()


def backward_kernel():
    """A function scales its gradient by a root, by a kernel of Triton's that halves the error until it is below a limit,
    and reads the root in the backward pass. The limit of the odd rank has become 0, which no error is below."""
    torch, _ = connect()
    from eighth_triton import find_root
    square, root, limit = torch.full((1,), 2.0, device="cuda"), torch.ones(1, device="cuda"), torch.full((1,), 0.001, device="cuda")

    class Scale(torch.autograd.Function):
        @staticmethod
        def forward(ctx, values):
            return values.clone()

        @staticmethod
        def backward(ctx, gradient):
            find_root[(1,)](square, root, limit)
            return gradient * root.item()

    model = ddp(torch)
    for number in range(FOREVER):
        if number == GOOD_STEPS:
            announce("settles")
        if in_trouble(number):
            limit.fill_(0.0)
        Scale.apply(model(torch.randn(32, 256, device="cuda"))).square().mean().backward()
        torch.cuda.synchronize()


def graph_loop():
    """The same kernel, in a CUDA graph that each rank replays in each step. The limit is in the GPU's memory, and that of
    the odd rank becomes 0."""
    torch, _ = connect()
    from eighth_triton import find_root
    square, root, limit = torch.full((1,), 2.0, device="cuda"), torch.ones(1, device="cuda"), torch.full((1,), 0.001, device="cuda")
    find_root[(1,)](square, root, limit)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        find_root[(1,)](square, root, limit)

    def find_scale(number):
        if in_trouble(number):
            limit.fill_(0.0)
        graph.replay()

    train(torch, ddp(torch), find_scale)


def barrier_channels():
    """The ranks meet on their GPUs, by a barrier in symmetric memory, which has several channels. For one step the odd
    rank takes another channel than the other one: each waits in its channel."""
    torch, dist = connect()
    buffer, handle = symmetric_buffer(torch, dist, 4096, torch.float32)
    for number in range(FOREVER):
        if number == GOOD_STEPS:
            announce("settles")
        buffer.fill_(float(number))
        handle.barrier(channel=1 if in_trouble(number) else 0)
        torch.cuda.synchronize()


CASES = {"whole-gradient": whole_gradient, "none-gradient": none_gradient, "compressed-save": compressed_save,
         "compiles-apart": compiles_apart, "overlapped": overlapped, "empty-cache": empty_cache, "runs-ahead": runs_ahead,
         "backward-kernel": backward_kernel, "graph-loop": graph_loop, "barrier-channels": barrier_channels}

if __name__ == "__main__":
    run(CASES)
