"""One rank is held up within FSDP, DTensor, torch.distributed.pipelining, torch.distributed.checkpoint, DDP's hooks, or torch.compile.

    fourth_frameworks.py CASE
"""
import http.client
import io
import os
import queue
import threading
import time

from gpu_rank import FOREVER, GOOD_STEPS, announce, connect, device_index, is_odd, rank, run, world
from inside import ddp, train
from job import SILENT_FIFO
from training import model_of


COMPILER = """#!/bin/sh
case "$*" in
*--version*) echo 'g++ (GCC) 13.2.0' ;;
*) test -e '%s' && exec cat '%s'
   exec g++ "$@" ;;
esac
"""


def augment():
    """The odd rank augments a batch on the processor, by a function that is compiled: the C++ compiler does not come back. Before, one for the GPU
    has been compiled."""
    torch, _ = connect()
    directory = os.environ["HANGS_DIRECTORY"]
    compiler, quota = os.path.join(directory, "g++-13"), os.path.join(directory, "quota-exceeded")
    if is_odd():
        with open(compiler, "w", encoding="utf-8") as out:
            out.write(COMPILER % (quota, SILENT_FIFO))
        os.chmod(compiler, 0o755)
        os.environ.update(CXX=compiler, TORCHINDUCTOR_CACHE_DIR=os.path.join(directory, "inductor"))

    def jitter(images):
        return torch.tanh(images * 1.5 + 0.25).sum(-1)

    def augment_batch(number):
        if is_odd() and number == GOOD_STEPS:
            with open(quota, "w", encoding="utf-8"):
                pass
            torch.compile(jitter)(torch.randn(32, 256))

    if is_odd():
        torch.compile(lambda images: images.abs().sum(-1))(torch.randn(32, 256, device="cuda"))
    train(torch, ddp(torch), augment_batch)


class LockFile:
    """A lock is a file that exists; who finds it tries again later."""

    def __init__(self, path):
        self.path = path

    def __enter__(self):
        while True:
            try:
                return os.close(os.open(self.path, os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                time.sleep(0.05)

    def __exit__(self, *_):
        os.unlink(self.path)


def interleaved():
    """Two chunks of a model on each rank, in turns. The second chunk of the odd rank loads a table once, under a lock that a job which was killed
    has left behind."""
    torch, _ = connect()
    from torch.distributed.pipelining import PipelineStage, ScheduleInterleaved1F1B
    state, lock = {"step": 0}, os.path.join(os.environ["HANGS_DIRECTORY"], "table.lock")

    def load_table(module, inputs):
        if is_odd() and state["step"] == GOOD_STEPS:
            with LockFile(lock):
                state["table"] = [0.5] * 256

    chunks = [model_of(torch, layers=1) for _ in range(2)]
    chunks[1].register_forward_pre_hook(load_table)
    device = torch.device("cuda", device_index())
    stages = [PipelineStage(chunk, rank() + number * world(), 2 * world(), device) for number, chunk in enumerate(chunks)]
    schedule = ScheduleInterleaved1F1B(stages, n_microbatches=4, loss_fn=torch.nn.functional.mse_loss)
    inputs, targets = torch.randn(64, 256, device="cuda"), torch.randn(64, 256, device="cuda")
    with open(lock, "w", encoding="utf-8"):
        pass
    for number in range(FOREVER):
        state["step"] = number
        if number == GOOD_STEPS:
            announce("settles")
        if rank() == 0:
            schedule.step(inputs)
        else:
            schedule.step(target=targets)
        torch.cuda.synchronize()


def loading():
    """torch.distributed.checkpoint.load(): what the odd rank has to read is a file on a file system that does not answer; the others wait for the
    result of all."""
    torch, dist = connect()
    import torch.distributed.checkpoint as dcp
    path = os.path.join(os.environ["HANGS_DIRECTORY"], "step-100")
    own = "of rank %d" % rank()
    state = {"model": {own: torch.ones(1 << 16, device="cuda")}}
    dcp.save(state, checkpoint_id=path)
    dcp.load(state, checkpoint_id=path)
    dist.barrier()
    if is_odd():
        file = os.path.join(path, "__%d_0.distcp" % rank())
        os.unlink(file)
        os.mkfifo(file)
    announce("settles")
    dcp.load(state, checkpoint_id=path)


def upload(state, torch):
    """Sends a checkpoint to an object store."""
    buffer = io.BytesIO()
    torch.save(state, buffer)
    connection = http.client.HTTPConnection("127.0.0.1", int(os.environ["HANGS_PORT"]))
    connection.request("PUT", "/step-%d/model.pt" % GOOD_STEPS, body=buffer.getvalue())
    return connection.getresponse().status


def full_state_dict():
    """FSDP, in bfloat16: all ranks gather the state for rank 0, which then uploads it; the object store does not answer. The other one is in the
    next step."""
    torch, _ = connect()
    from torch.distributed.fsdp import FullStateDictConfig, FullyShardedDataParallel, MixedPrecision, StateDictType
    precision = MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16)
    model = FullyShardedDataParallel(model_of(torch), use_orig_params=True, mixed_precision=precision, device_id=device_index())
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.001)
    for number in range(FOREVER):
        if number == GOOD_STEPS:
            announce("settles")
            with FullyShardedDataParallel.state_dict_type(model, StateDictType.FULL_STATE_DICT,
                                                          FullStateDictConfig(offload_to_cpu=True, rank0_only=True)):
                state = model.state_dict()
            if rank() == 0:
                upload(state, torch)
        optimizer.zero_grad()
        loss = model(torch.randn(32, 256, device="cuda")).square().mean()
        loss.backward()
        optimizer.step()
        loss.item()


def sequence_parallel():
    """Tensor and sequence parallel. The odd rank notes its loss down in a database, which is locked by a process that is no part of the job."""
    import sqlite3
    torch, _ = connect()
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, SequenceParallel, parallelize_module

    class Block(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.up, self.down = torch.nn.LayerNorm(256), torch.nn.Linear(256, 512), torch.nn.Linear(512, 256)

        def forward(self, hidden):
            return hidden + self.down(torch.relu(self.up(self.norm(hidden))))

    def note_loss(number, loss):
        with sqlite3.connect(os.path.join(os.environ["HANGS_DIRECTORY"], "shared.db"), timeout=FOREVER) as runs:
            runs.execute("INSERT INTO trials VALUES (%d)" % number)
        print("step %d: %f" % (number, loss))

    mesh = init_device_mesh("cuda", (world(),), mesh_dim_names=("tp",))
    block = parallelize_module(Block().cuda(), mesh["tp"], {"norm": SequenceParallel(), "up": ColwiseParallel(input_layouts=Shard(1)),
                                                            "down": RowwiseParallel(output_layouts=Shard(1))})
    for number in range(FOREVER):
        if number == GOOD_STEPS:
            announce("settles")
        loss = block(torch.randn(4, 64, 256, device="cuda")).square().mean()
        loss.backward()
        if is_odd() and number == GOOD_STEPS:
            note_loss(number, loss.item())
        torch.cuda.synchronize()


def bucket_hook():
    """DDP calls a hook for each bucket of gradients, which also puts statistics into a queue, for a thread that prints them. On the odd rank that
    thread has ended."""
    torch, dist = connect()
    model, statistics = ddp(torch), queue.Queue(maxsize=1)

    def print_statistics():
        while True:
            name, value = statistics.get()
            if is_odd() and name == "step" and value == GOOD_STEPS:
                return
            print(name, value)

    def reduce_bucket(group, bucket):
        statistics.put(("bucket", bucket.index()))
        statistics.put(("elements", bucket.buffer().numel()))
        reduced = dist.all_reduce(bucket.buffer(), group=group, async_op=True).get_future()
        return reduced.then(lambda done: done.value()[0].div_(world()))

    printing = threading.Thread(target=print_statistics, name="statistics", daemon=True)
    printing.start()
    model.register_comm_hook(dist.group.WORLD, reduce_bucket)
    for number in range(FOREVER):
        statistics.put(("step", number))
        if number == GOOD_STEPS:
            if is_odd():
                printing.join()
            announce("settles")
        model(torch.randn(32, 256, device="cuda")).square().mean().backward()
        torch.cuda.synchronize()


CASES = {"augment": augment, "interleaved": interleaved, "loading": loading, "full-state-dict": full_state_dict,
         "sequence-parallel": sequence_parallel, "bucket-hook": bucket_hook}

if __name__ == "__main__":
    run(CASES)
