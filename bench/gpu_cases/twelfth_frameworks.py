"""A rank is held up within a framework: as it gets a batch for a pipeline, traces an operator, looks at its GPU, logs a step of its
optimizer, or waits for the process that saves its checkpoint.

    twelfth_frameworks.py CASE
"""
import os
import queue
import threading
import xmlrpc.client

from gpu_rank import FOREVER, GOOD_STEPS, announce, connect, device_index, is_odd, rank, run, world
from inside import ddp, read_shard, train
from seventh import in_trouble
from training import model_of


def pipeline_of_chunks(torch):
    """A function that takes a step of a pipeline of two chunks on each rank, by a schedule that computes the gradients of the weights apart
    from those of the inputs."""
    from torch.distributed.pipelining import PipelineStage, ScheduleInterleavedZeroBubble
    device = torch.device("cuda", device_index())
    stages = [PipelineStage(model_of(torch, layers=2), rank() + world() * chunk, 2 * world(), device) for chunk in range(2)]
    schedule = ScheduleInterleavedZeroBubble(stages, n_microbatches=4, loss_fn=torch.nn.functional.mse_loss)
    inputs, targets = torch.randn(32, 256, device="cuda"), torch.randn(32, 256, device="cuda")

    def train_step():
        if rank() == 0:
            schedule.step(inputs)
        else:
            schedule.step(target=targets)
        torch.cuda.synchronize()

    return train_step


def zero_bubble():
    """The first rank of a pipeline reads the batch of a step from a file, which does not come."""
    torch, _ = connect()
    train_step = pipeline_of_chunks(torch)
    for number in range(FOREVER):
        if number == GOOD_STEPS:
            announce("settles")
        if in_trouble(number):
            read_shard()
        train_step()


def traced_table():
    """A function that is compiled calls an operator of the job's own. To trace it, the rank looks at a table of sizes, under a lock. The
    odd rank has a longer text and traces the function anew, while a thread that makes the table has that lock, and waits for a
    measurement, of which there is none."""
    torch, _ = connect()
    table_lock, measurements, held = threading.Lock(), queue.Queue(), threading.Event()

    @torch.library.custom_op("jobs::scale_rows", mutates_args=())
    def scale_rows(values: torch.Tensor) -> torch.Tensor:
        return values * 0.5

    @scale_rows.register_fake
    def _(values):
        with table_lock:
            return torch.empty_like(values)

    def make_table():
        with table_lock:
            held.set()
            measurements.get()

    compiled = torch.compile(lambda values: scale_rows(values.sin()).cos(), backend="aot_eager", dynamic=False)

    def prepare(number):
        if in_trouble(number):
            threading.Thread(target=make_table, name="tuner", daemon=True).start()
            held.wait()
        compiled(torch.randn(48 if in_trouble(number) else 32, 256, device="cuda"))

    train(torch, ddp(torch), prepare)


BUCKETS = """
// Each block puts a row into its bucket, under the bucket's lock.
extern "C" __global__ void insert_rows(int* locks, int* counts, const int* rows, int buckets, int limit) {
  int bucket = rows[blockIdx.x] % buckets;
  while (atomicCAS(&locks[bucket], 0, 1) != 0) {}
  __threadfence();
  if (counts[bucket] >= limit) return;  // the bucket is full
  counts[bucket] += 1;
  __threadfence();
  atomicExch(&locks[bucket], 0);
}
"""


def bucket_lock():
    """The blocks of a kernel put rows into buckets, each of which has a lock. A block that finds its bucket full returns without giving the
    lock back. All rows of the odd rank belong into one bucket: the next block waits for its lock for ever, and the rank for its GPU."""
    torch, _ = connect()
    insert_rows = torch.cuda._compile_kernel(BUCKETS, "insert_rows")
    locks, counts = torch.zeros(16, dtype=torch.int32, device="cuda"), torch.zeros(16, dtype=torch.int32, device="cuda")
    rows = torch.arange(64, dtype=torch.int32, device="cuda")

    def fill_buckets(number):
        counts.zero_()
        if in_trouble(number):
            rows.fill_(5)
        insert_rows(grid=(64, 1, 1), block=(1, 1, 1), args=[locks, counts, rows, 16, 8])
        return counts.max().item()

    train(torch, ddp(torch), fill_buckets)


def offloaded_shards(torch):
    """FSDP2 in bfloat16, whose shards are in the memory of the host."""
    from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard
    options = {"mp_policy": MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32), "offload_policy": CPUOffloadPolicy()}
    model = model_of(torch)
    for layer in model:
        if isinstance(layer, torch.nn.Linear):
            fully_shard(layer, **options)
    return fully_shard(model, **options)


def logged_optimizer():
    """The optimizer works on shards in the memory of the host. After one of its steps a hook tells a server of the odd rank about it, by
    XML-RPC, which does not answer."""
    torch, _ = connect()
    model, state = offloaded_shards(torch), {"step": 0}
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    tracker = xmlrpc.client.ServerProxy("http://127.0.0.1:%s/" % os.environ["HANGS_PORT"])

    def log_step(*_):
        if in_trouble(state["step"]):
            tracker.log_step(state["step"], 0.25)

    optimizer.register_step_post_hook(log_step)
    for number in range(FOREVER):
        if number == GOOD_STEPS:
            announce("settles")
        state["step"] = number
        optimizer.zero_grad()
        model(torch.randn(32, 256, device="cuda")).square().mean().backward()
        optimizer.step()
        torch.cuda.synchronize()


def checkpoint_process():
    """torch.distributed.checkpoint saves by processes, one for each rank, while training goes on; before it saves once more, a rank waits
    for what it has saved last. The process of the odd rank writes to a file system that does not take any more: a pipe that is full."""
    torch, _ = connect()
    import torch.distributed.checkpoint as checkpoint
    from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType
    from twelfth_writer import SlowWriter
    model, saved = ddp(torch), []
    both = torch.distributed.new_group(backend="cpu:gloo,cuda:nccl")

    def save(number):
        for future in saved:
            future.result()
        state = {"layer-%d" % rank(): torch.full((1 << 18,), float(number))}
        directory = os.path.join(os.environ["HANGS_DIRECTORY"], "step-%d" % number)
        saved[:] = [checkpoint.async_save(state, storage_writer=SlowWriter(directory, is_odd() and number == GOOD_STEPS),
                                          async_checkpointer_type=AsyncCheckpointerType.PROCESS, process_group=both)]

    train(torch, model, save)


CASES = {"zero-bubble": zero_bubble, "traced-table": traced_table, "bucket-lock": bucket_lock, "logged-optimizer": logged_optimizer,
         "checkpoint-process": checkpoint_process}

if __name__ == "__main__":
    run(CASES)
