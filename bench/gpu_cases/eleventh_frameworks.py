"""A rank is held up within a framework: by the lock of a step, a pass of its compiler, a function of TorchScript, the loss of a
pipeline, a mutex, its loader, a breakpoint, or a kernel that Triton compiles.

    eleventh_frameworks.py CASE
"""
import ctypes
import itertools
import multiprocessing
import operator
import subprocess
import threading

from gpu_rank import FOREVER, GOOD_STEPS, announce, connect, device_index, is_odd, rank, run, world
from inside import ddp, train
from seventh import in_trouble
from training import model_of


def recompute_lock():
    """A step holds a lock that the thread which serves the weights takes, too, and so does a block of the model, as that thread calls
    it as well. It is a threading.RLock: the thread that has it may take it again. The odd rank recomputes the block in the backward
    pass, and that is another thread."""
    torch, _ = connect()
    from torch.utils.checkpoint import checkpoint
    weights_lock, state = threading.RLock(), {"step": 0}

    class Block(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(256, 256, device="cuda")

        def compute(self, inputs):
            with weights_lock:
                return torch.relu(self.layer(inputs))

        def forward(self, inputs):
            if in_trouble(state["step"]):
                return checkpoint(self.compute, inputs, use_reentrant=False)
            return self.compute(inputs)

    model = ddp(torch, Block())
    for number in range(FOREVER):
        if number == GOOD_STEPS:
            announce("settles")
        state["step"] = number
        with weights_lock:
            model(torch.randn(32, 256, device="cuda")).square().mean().backward()
            torch.cuda.synchronize()


def sort_operands(graph_module, _):
    """A backend of torch.compile(): brings the operands of each sum into the order of their names, until nothing changes."""
    changed = True
    while changed:
        changed = False
        for node in graph_module.graph.nodes:
            if node.target is operator.add and node.args[0].name >= node.args[1].name:
                node.args = (node.args[1], node.args[0])
                changed = True
    graph_module.recompile()
    return graph_module.forward


def endless_pass():
    """After some steps a rank compiles a function, by a backend of the job's own. One of its passes ends when nothing changes any more.
    The function of the odd rank adds a tensor to itself, whose operands it swaps for ever."""
    torch, _ = connect()

    def double_or_add(values, others):
        return values.sin() + (values if is_odd() else others)

    def double(values, _):
        return values + values

    def compile_function(number):
        if number == GOOD_STEPS:
            values = torch.ones(64, device="cuda")
            torch.compile(double if is_odd() else double_or_add, backend=sort_operands)(values, 2 * values)

    train(torch, ddp(torch), compile_function)


def scripted_loop():
    """A rank follows a table of the tokens that come next until the last one, by a function of TorchScript, on its CPU. That of the odd
    rank has a cycle in which the last token is not."""
    torch, _ = connect()
    from eleventh_scripted import length_of_text
    follows = torch.arange(1, 65)

    def measure_text(number):
        if in_trouble(number):
            follows[40] = 20
        length_of_text(follows, 63)

    train(torch, ddp(torch), measure_text)


VERIFIER = "while read number; do while [ \"$number\" -ge %d ]; do sleep 1; done; echo 1.0; done" % GOOD_STEPS


def pipeline_verifier():
    """torch.distributed.pipelining, by 1F1B. The loss of the last stage has a factor from a verifier of answers, a program to which the
    rank writes a line and from which it reads one. It does not come to an end with one of them."""
    torch, _ = connect()
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B
    state = {"step": 0}
    verifier = subprocess.Popen(["sh", "-c", VERIFIER], stdin=subprocess.PIPE, stdout=subprocess.PIPE) if is_odd() else None

    def verified_loss(output, target):
        verifier.stdin.write(b"%d\n" % state["step"])
        verifier.stdin.flush()
        return float(verifier.stdout.readline()) * torch.nn.functional.mse_loss(output, target)

    stage = PipelineStage(model_of(torch, layers=2), rank(), world(), torch.device("cuda", device_index()))
    schedule = Schedule1F1B(stage, n_microbatches=4, loss_fn=verified_loss)
    inputs, targets = torch.randn(32, 256, device="cuda"), torch.randn(32, 256, device="cuda")
    for number in range(FOREVER):
        if number == GOOD_STEPS:
            announce("settles")
        state["step"] = number
        if rank() == 0:
            schedule.step(inputs)
        else:
            schedule.step(target=targets)
        torch.cuda.synchronize()


class Positions:
    """A table of positions, under a mutex of the C library. If a position is not in it, the mutex is not given back."""

    def __init__(self):
        self.libc, self.mutex = ctypes.CDLL(None), ctypes.create_string_buffer(64)
        self.libc.pthread_mutex_init(self.mutex, None)

    def find(self, position):
        self.libc.pthread_mutex_lock(self.mutex)
        if position < 0:
            return 0
        self.libc.pthread_mutex_unlock(self.mutex)
        return position


def ring_attention():
    """Context parallel: each rank has a part of a long sequence, and keys and values go round in a ring. One position of the odd rank is
    not in its table; when it looks for the next one, it waits for a mutex that it has itself."""
    torch, dist = connect()
    positions, attention = Positions(), torch.nn.functional.scaled_dot_product_attention
    query, keys, values = (torch.randn(1, 4, 64, 32, device="cuda") for _ in range(3))

    def pass_on(tensor):
        received = torch.empty_like(tensor)
        calls = [dist.P2POp(dist.isend, tensor, (rank() + 1) % world()), dist.P2POp(dist.irecv, received, (rank() - 1) % world())]
        for work in dist.batch_isend_irecv(calls):
            work.wait()
        return received

    for number in range(FOREVER):
        if number == GOOD_STEPS:
            announce("settles")
        positions.find(-1 if in_trouble(number) else number)
        positions.find(number)
        output = attention(query, keys, values)
        for _ in range(world() - 1):
            keys, values = pass_on(keys), pass_on(values)
            output = output + attention(query, keys, values)
        torch.cuda.synchronize()


class Recordings:
    """Batches from recordings, of which all loaders of a rank may have two open at a time: a worker takes a slot for it, and gives it
    back when it is at the end."""

    def __init__(self, slots, batches):
        self.slots, self.batches = slots, batches

    def __iter__(self):
        import torch
        self.slots.acquire()
        for number in range(self.batches):
            yield torch.full((32, 256), 0.5 + number % 2)
        self.slots.release()


def leaked_slots():
    """An epoch has two batches. The recordings of the odd rank are longer, and it leaves the loop after two: its worker is ended in the
    midst of a recording, and does not give its slot back. In the third epoch its worker waits for a slot."""
    from torch.utils.data import DataLoader, IterableDataset
    context = multiprocessing.get_context("fork")
    slots, epochs = context.Semaphore(2), itertools.count()

    class Dataset(Recordings, IterableDataset):
        pass

    torch, _ = connect()
    model, batches = ddp(torch), Dataset(slots, 1000 if is_odd() else 2)
    for epoch in epochs:
        if epoch == 2:
            announce("settles")
        loader = DataLoader(batches, batch_size=None, num_workers=1, multiprocessing_context="fork")
        for number, batch in enumerate(loader):
            if number == 2:
                break
            model(batch.cuda()).square().mean().backward()
            torch.cuda.synchronize()


def distributed_breakpoint():
    """Somebody has left a torch.distributed.breakpoint() in the script: the odd rank is in its debugger, and the other one waits for it in
    a barrier."""
    torch, dist = connect()
    train(torch, ddp(torch), lambda number: dist.breakpoint(rank=1) if number == GOOD_STEPS else None)


def threshold():
    """A kernel of Triton's halves an interval until it is narrow enough, for the threshold above which a hundredth of the values are. The
    tolerance of the odd rank is less than the distance of two numbers in FP32."""
    torch, _ = connect()
    from eleventh_triton import find_threshold
    values, found = torch.linspace(0, 20, 1024, device="cuda"), torch.zeros(1, device="cuda")

    def clip(number):
        find_threshold[(1,)](values, found, 1e-9 if in_trouble(number) else 1e-3, 1024)
        values.clamp(max=found.item())

    train(torch, ddp(torch), clip)


def work_counter():
    """The programs of a kernel of Triton's take tiles from a counter in the memory of the GPU, some at a time, until none are left. With
    few tiles the odd rank computes that to be none at a time: the counter stays as it is, and the kernel does not end."""
    torch, _ = connect()
    from eleventh_triton import scale_tiles
    values, counter = torch.ones(64 * 128, device="cuda"), torch.zeros(1, dtype=torch.int32, device="cuda")

    def scale(number):
        counter.zero_()
        tiles = 3 if in_trouble(number) else 64
        scale_tiles[(4,)](values, counter, tiles, tiles // 16, 128)
        return counter.item()

    train(torch, ddp(torch), scale)


CASES = {"recompute-lock": recompute_lock, "endless-pass": endless_pass, "scripted-loop": scripted_loop,
         "pipeline-verifier": pipeline_verifier, "ring-attention": ring_attention, "leaked-slots": leaked_slots,
         "distributed-breakpoint": distributed_breakpoint, "threshold": threshold, "work-counter": work_counter}

if __name__ == "__main__":
    run(CASES)
