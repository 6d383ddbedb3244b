"""The GPU cases and their truth, which is a person's judgement of what each program does."""
import dataclasses

from hang_cases.scoring import Truth


@dataclasses.dataclass
class GpuCase:
    name: str
    program: str
    arguments: tuple
    truth: Truth
    odd: tuple = (1,)
    ranks: int = 2
    launch: str = "env"
    given: tuple = None
    not_started: tuple = ()
    chain_ends: tuple = None
    also: tuple = ()
    unrelated: bool = False
    cores: bool = False
    field_native: bool = False
    gpu_cores: bool = False               # the cores of its GPUs, too
    needs: tuple = ("torch",)
    programs: tuple = ()                  # that it runs, and which not every machine has
    gpus: int = 1                         # that its process uses, or one of its processes
    own_gpus: bool = False                # ranks cannot share a GPU, or it would not hang then
    alone: bool = False                   # no other job at the same time: its kernels fill a GPU, or what shows its state is the power that its GPUs draw
    environment: dict = dataclasses.field(default_factory=dict)

    @property
    def native(self):
        return self.program == "kernels.py" and self.arguments == ("native-loop",)


def culprit(**ranks):
    """culprit(r1="user-code")"""
    return Truth("culprit", {int(name[1:]): reasons for name, reasons in ranks.items()})


def training(loop, trouble, reason, name=None, **options):
    return GpuCase(name or "%s-%s" % (loop, trouble), "training.py", (loop, trouble), culprit(r1=reason), **options)


def at_odds(case, reason, both=True, **options):
    """Of two ranks that disagree neither is the odd one, unless the program says so."""
    return GpuCase(case, "collectives.py", (case,), culprit(r0=reason, r1=reason) if both else culprit(r1=reason), **options)


def kernel(case, reason, **options):
    return GpuCase(case, "kernels.py", (case,), culprit(r1=reason), **options)


def healthy(case, **options):
    return GpuCase("healthy-" + case, "healthy.py", (case,), Truth("healthy"), **options)


def from_watchdog(case):
    """The case once more, with a timeout of some seconds: NCCL's watchdogs end the ranks, and their cores are examined."""
    return dataclasses.replace(case, name="cores-" + case.name, cores=True,
                               environment={**case.environment, "GPU_CASES_WATCHDOG": "12", "TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC": "1000",
                                            "TORCH_NCCL_COORD_CHECK_MILSEC": "500"})


def jax(case, trouble, reason, **options):
    return GpuCase("jax-%s-%s" % (case, trouble), "jax_job.py", (case, trouble), culprit(r1=reason), needs=("jax",), **options)


MISMATCH = ("collective-mismatch", "behind")
OTHER_GROUP = ("collective-mismatch", "process-group-order")

CASES = [
    training("ddp", "sleep", "user-code"),
    training("ddp", "kernel", "gpu-wait"),
    training("ddp-without-item", "lock", "python-lock"),
    training("fsdp2", "sleep", "user-code"),
    training("fsdp2", "receive", "network-io"),
    training("fsdp2-without-item", "lock", "python-lock"),
    training("fsdp2-norms", "lock", "python-lock"),
    training("fsdp1", "save", "checkpoint-io"),
    training("zero", "subprocess", "subprocess"),
    training("tensor-parallel", "spin", "user-code"),
    training("pipeline", "sleep", "user-code"),
    training("pipeline", "spin", "user-code"),
    training("experts", "receive", "network-io"),
    training("compiled", "lock", "python-lock"),
    training("graphs", "sleep", "user-code"),
    training("graphs", "kernel", "gpu-wait"),
    training("recomputed", "read", ("file-io", "user-code")),
    training("loader", "0", "data-loading", name="loader"),
    training("loader", "2", "data-loading", name="loader-workers"),
    training("async-checkpoint", "", "checkpoint-io", name="async-checkpoint"),
    training("hook", "", "network-io", name="hook"),
    training("backward-launches", "", "python-lock", name="backward-launches"),
    training("lightning", "receive", "network-io", needs=("torch", "lightning")),
    training("accelerate", "sleep", "user-code", needs=("torch", "accelerate")),
    training("trainer", "lock", "python-lock", needs=("torch", "transformers", "accelerate")),
    training("generate", "subprocess", "subprocess", needs=("torch", "transformers")),
    training("ddp", "receive", "network-io", name="torchrun-ddp-receive", launch="torchrun"),

    at_odds("other-size", "collective-mismatch"),
    at_odds("other-collective", "collective-mismatch"),
    at_odds("broadcast-or-reduce", "collective-mismatch"),
    # The peer of the send does no receive.
    at_odds("send-or-reduce", "unmatched-p2p", both=False),
    # Each waits in a group in which the other is not.
    at_odds("group-or-reduce", ("collective-mismatch", "process-group-order")),
    at_odds("barrier-or-reduce", "collective-mismatch"),
    GpuCase("both-receive", "collectives.py", ("both-receive",), Truth("symmetric")),
    at_odds("group-order", "process-group-order"),
    at_odds("group-order-streams", "process-group-order"),
    # The ranks have drifted apart by one operation: each calls another than the other, or one of them is behind.
    GpuCase("extra-evaluation", "collectives.py", ("extra-evaluation",), Truth("culprit", {0: MISMATCH, 1: MISMATCH})),
    GpuCase("uneven-steps", "collectives.py", ("uneven-steps",), Truth("culprit", {0: MISMATCH, 1: MISMATCH})),
    at_odds("uneven-batches", "user-code", both=False),
    # It has ended, with an exception. Else the watchdog may end the other rank as well, as below.
    at_odds("skipped", ("missing", "exception"), both=False, own_gpus=True, environment={"TORCH_NCCL_ASYNC_ERROR_HANDLING": "0"}),
    at_odds("objects", ("missing", "exception"), both=False, own_gpus=True, environment={"TORCH_NCCL_ASYNC_ERROR_HANDLING": "0"}),
    at_odds("in-init", "user-code", both=False),
    at_odds("in-store", "user-code", both=False),
    at_odds("in-destroy", "user-code", both=False, odd=(0,)),
    at_odds("raised", "exception", both=False),
    at_odds("raised-atexit", "exception", both=False),
    at_odds("out-of-memory", "exception", both=False),
    # Else its watchdog may end the other rank as well, when it finds the connection closed.
    at_odds("ended", "missing", both=False, environment={"TORCH_NCCL_ASYNC_ERROR_HANDLING": "0"}),
    at_odds("killed", "missing", both=False, environment={"TORCH_NCCL_ASYNC_ERROR_HANDLING": "0"}),
    at_odds("stopped", "stopped", both=False),
    at_odds("spins-before-message", "user-code", both=False),

    kernel("endless", "gpu-wait", alone=True),
    kernel("endless-item", "gpu-wait"),
    kernel("triton-loop", "gpu-wait", needs=("torch", "triton")),
    kernel("cupy-loop", "gpu-wait", needs=("torch", "cupy")),
    GpuCase("illegal-address", "kernels.py", ("illegal-address",), culprit(r1="crashed"), cores=True, needs=("torch", "cupy")),
    kernel("event", "python-lock"),
    kernel("work-wait", "network-io", environment={"TORCH_NCCL_BLOCKING_WAIT": "1"}),
    kernel("polls-event", "user-code"),
    kernel("pinned-copy", "file-io"),
    kernel("frees-memory", "python-lock"),
    kernel("lazy-load", "user-code"),
    kernel("convolution", "network-io"),
    kernel("symmetric-memory", "user-code", own_gpus=True),
    kernel("native-loop", "user-code"),

    healthy("training"),
    healthy("long-steps", alone=True),
    healthy("no-collective", alone=True),
    healthy("slow-rank"),
    healthy("slow-gpu", alone=True),
    healthy("server"),
    healthy("async-server"),
    healthy("evaluation", odd=(0,)),

    jax("block-until-ready", "sleep", "user-code"),
    jax("to-host", "lock", "python-lock"),
    jax("device-get", "receive", "network-io"),
    jax("barrier", "read", "file-io"),
    GpuCase("jax-training", "jax_job.py", ("training", ""), Truth("healthy"), needs=("jax",)),
]

FROM_WATCHDOGS = ("ddp-sleep", "ddp-without-item-lock", "fsdp2-receive", "fsdp2-norms-lock", "experts-receive", "pipeline-sleep", "loader", "hook", "other-size",
                  "other-collective", "uneven-steps", "uneven-batches", "group-order")
CASES += [from_watchdog(case) for case in CASES if case.name in FROM_WATCHDOGS]


def layout(case, odd=2, reasons="collective-mismatch", ranks=4):
    return GpuCase("layout-" + case, "layouts.py", (case,), Truth("culprit", {odd: reasons}), odd=(odd,), ranks=ranks)


def inside(case, *reasons, **options):
    return GpuCase("inside-" + case, "inside.py", (case,), culprit(r1=reasons), **options)


def role(case, odd, reasons, **options):
    return GpuCase("role-" + case, "roles.py", (case,), Truth("culprit", dict.fromkeys(odd, reasons)), odd=odd, **options)


def well(case, **options):
    return GpuCase("well-" + case, "roles.py", (case,), Truth("healthy"), **options)


class Batch:
    """Cases that one person wrote at one time, in the programs BATCH.py, BATCH_groups.py, BATCH_frameworks.py, BATCH_well.py.
    `group`: the options that most of its groups of ranks have."""

    def __init__(self, name, **group):
        self.name = name
        self.group_options = group

    def program(self, part):
        return "%s_%s.py" % (self.name, part) if part else self.name + ".py"

    def case(self, case, truth, part=None, **options):
        return GpuCase("%s-%s" % (self.name, case), self.program(part), (case,), truth, **options)

    def hang(self, case, *reasons, odd=1, **options):
        return self.case(case, Truth("culprit", {odd: reasons}), odd=(odd,), **options)

    def framework(self, case, *reasons, **options):
        return self.hang(case, *reasons, part="frameworks", **options)

    def group(self, case, *reasons, **options):
        return self.hang(case, *reasons, part="groups", **{**self.group_options, **options})

    def at_odds(self, case, *by_rank, part="groups", odd=(1,), **options):
        """Ranks in conflict, none of which is more right. `by_rank`: the reasons of each."""
        return self.case(case, Truth("culprit", dict(enumerate(by_rank))), part=part, odd=odd, ranks=len(by_rank), **options)

    def well(self, case, **options):
        return GpuCase("%s-well-%s" % (self.name, case), self.program("well"), (case,), Truth("healthy"), **options)

    def core(self, case):
        """As from_watchdog()."""
        return dataclasses.replace(from_watchdog(case), name=case.name.replace(self.name + "-", self.name + "-cores-", 1))


field = Batch("field", odd=2, ranks=3)
third = Batch("third", odd=2, ranks=3)
fourth = Batch("fourth")
fifth = Batch("fifth")
sixth = Batch("sixth", odd=2, ranks=3)
seventh = Batch("seventh")
eighth = Batch("eighth", odd=2, ranks=4)
ninth = Batch("ninth")
tenth = Batch("tenth")
eleventh = Batch("eleventh")
twelfth = Batch("twelfth")
thirteenth = Batch("thirteenth")
fourteenth = Batch("fourteenth", odd=2, ranks=4)
fifteenth = Batch("fifteenth", odd=2, ranks=3)
sixteenth = Batch("sixteenth", odd=2, ranks=3)
seventeenth = Batch("seventeenth", odd=2, ranks=3)
eighteenth = Batch("eighteenth", odd=2, ranks=3)


def kind(case, *reasons, odd=1, **options):
    return GpuCase("kind-" + case, "kinds.py", (case,), Truth("culprit", {odd: reasons}), odd=(odd,), **options)


def kind_in_one_process(case, *reasons, **options):
    return kind(case, *reasons, odd=0, ranks=1, gpus=2, **options)


def kind_well(case, **options):
    return GpuCase("kind-well-" + case, "kinds.py", (case,), Truth("healthy"), **options)


def kind_from_monitor(case, *reasons, **options):
    """The heartbeat monitor ends a rank, the process group's own timeout being hours away. What the Flight Recorder has is not
    written: that could wait for what the watchdog waits for."""
    environment = {"GPU_CASES_WATCHDOG": str(8 * 3600), "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC": "10", "TORCH_NCCL_DUMP_ON_TIMEOUT": "0"}
    return kind(case, *reasons, cores=True, environment={**environment, **options})


# Jobs that were written without a look at the rules, to see what these make of jobs that they do not know. Their truths stay as they were
# written then.
HELD_OUT = [
    # One rank of four leaves the path of the others, which agree.
    layout("accumulation"),
    # It has raised, and calls the barrier of its `finally`.
    layout("unused-branch", reasons=("exception", "collective-mismatch")),
    # The odd rank waits in a group for its pair, which waits in another group for the odd rank: both are said of group-or-reduce, too.
    layout("mesh-redistribute", 3, ("collective-mismatch", "process-group-order")),
    # The expression runs in the dataset, within next() of the loader.
    layout("mesh-fsdp-tp", 1, ("data-loading", "user-code")),
    layout("pipeline-1f1b", 2, "file-io"),
    layout("experts-balance", 3, "user-code"),
    layout("wrong-neighbour", 1, "unmatched-p2p"),
    # The ranks next to it wait for messages, as it should.
    layout("ring-stops"),
    layout("mixed-backends", 1, ("collective-mismatch", "process-group-order"), ranks=3),
    layout("monitored-barrier", 2, "user-code", ranks=3),
    # It is in the epoch before, and calls what the others have called already.
    layout("objects-uneven", 2, MISMATCH),
    layout("rank0-evaluation", 0, ranks=3),

    # The thread that would set the event has died: of threads of the rank, "worker" can be said or not.
    inside("offload", "python-lock", "worker-dead"),
    # A circle: the main thread waits for the GPU, whose stream waits for a function, which waits for the main thread's lock.
    inside("host-callback", "python-lock", "gpu-wait"),
    inside("stream-flag", "gpu-wait"),
    # Where a thread of the rank waits for a server, and the main thread for that thread, both can be said.
    inside("remote-gradients", "network-io", "python-lock"),
    # What feeds it is dead, and what it waits for is its data.
    inside("feeder-killed", "worker-dead", "data-loading"),
    inside("fork-lock", "data-loading"),
    inside("pin-memory", "data-loading", "network-io"),
    inside("prefetch-died", "data-loading", "worker-dead"),
    inside("log-lock", "network-io", "python-lock"),
    inside("tool", "subprocess"),
    inside("stale-build-lock", "compiling"),
    # What compiles is a child process.
    inside("triton-compiler", "compiling", "subprocess", needs=("torch", "triton")),
    # The finalizer that the collector calls waits for a server.
    inside("finalizer", "garbage-collection", "network-io"),
    inside("breakpoint", "debugger"),
    # Its exit, after an exception, waits for a thread that reads a file.
    inside("exit-joins", "exception", "file-io"),
    inside("ema-locks", "python-lock"),
    GpuCase("inside-checkpoint", "inside.py", ("checkpoint",), culprit(r2="checkpoint-io"), odd=(2,), ranks=4),
    inside("jax-callback", "file-io", needs=("jax",)),

    role("serving-grammar", (2,), "user-code", ranks=4),
    role("serving-user", (0,), "network-io", ranks=3),
    # Two ranks against two.
    GpuCase("role-weights-order", "roles.py", ("weights-order",), Truth("culprit", dict.fromkeys(range(4), "process-group-order")), odd=(2, 3), ranks=4),
    role("simulator", (3,), "subprocess", ranks=4),

    well("serving-idle", ranks=4),
    well("rollouts", ranks=4),
    well("logged-steps", ranks=4),
    well("accumulating"),
    well("checkpointing", odd=(0,), ranks=4),
    well("decoding"),
    well("branches", ranks=3),
    well("jax-data", needs=("jax",)),

    # The second batch: after incidents that users have reported.
    field.hang("triton-lock", "gpu-wait", needs=("torch", "triton")),
    # The main thread waits for the GPU, whose kernel waits for a thread, which waits for a server.
    field.hang("mapped-flag", "network-io", "gpu-wait", needs=("torch", "cupy")),
    field.hang("grid-barrier", "gpu-wait", needs=("torch", "cupy")),
    field.hang("prefetch-stream", "gpu-wait"),
    # The main thread waits for a stream, which waits for a function, which reads a file.
    field.hang("host-function", "file-io", "gpu-wait"),
    # The other rank is in a finalizer, which only waits.
    field.hang("finalizer-sync", "network-io"),
    field.hang("coalesced", "python-lock"),
    field.hang("waiting-thread", "subprocess"),
    # It sleeps in the handler of the exception, in a loop that does not end.
    field.hang("memory-retry", "exception", "user-code"),
    # The debugger was opened by the handler of an exception.
    field.hang("post-mortem", "debugger", "exception"),
    # As of inside-offload: the thread that would fill the queue has ended.
    field.hang("reward-thread", "worker-dead", "python-lock"),
    # The main thread waits for threads, which wait for a server.
    field.hang("reward-server", "network-io", "python-lock"),
    # The process that had the task is dead, and another one in its place; the main thread waits for a result that is its data.
    field.hang("pool-killed", "worker-dead", "data-loading", "python-lock"),
    # The loader's worker waits for a program.
    field.hang("decoder", "data-loading", "subprocess"),
    field.hang("shards-end", "missing", odd=2, ranks=3, environment={"TORCH_NCCL_ASYNC_ERROR_HANDLING": "0"}),
    # It moves, in a loop that it does not leave.
    field.hang("endless-rollout", "user-code", odd=2, ranks=3),
    # The others poll shared memory for the step that it hands out.
    field.hang("shared-memory-engine", "network-io", odd=0, ranks=3),

    # One of three or four waits in another group than the others, which wait for it in theirs: both reasons are said, as of group-or-reduce.
    field.group("graph-skipped", "collective-mismatch", "process-group-order"),
    field.group("first-use", "collective-mismatch", "process-group-order"),
    # Its peer is in no receive.
    field.group("extra-send", "unmatched-p2p", odd=1),
    # All are at the same place, and each waits for the next one.
    GpuCase("field-ring-sends", "field_groups.py", ("ring-sends",), Truth("symmetric"), ranks=4),
    field.group("skipped-experts", "collective-mismatch", ranks=4),
    # A circle of two groups and a lock in each rank; neither rank is more right.
    GpuCase("field-communication-lock", "field_groups.py", ("communication-lock",),
            Truth("culprit", dict.fromkeys((0, 1), ("process-group-order", "python-lock")))),
    # It has raised, and calls a collective in its handler.
    field.group("emergency-save", "exception", "collective-mismatch"),
    field.group("preempted", "collective-mismatch", "process-group-order"),
    # It is still in the epoch that the others have ended, and waits in another group.
    field.group("longer-epoch", "collective-mismatch", "process-group-order", "behind", ranks=4),
    field.group("joined", "collective-mismatch", "process-group-order"),
    # Two ranks that disagree about what is sent. Over sockets the sizes may be found to differ, which fails.
    GpuCase("field-names-order", "field_groups.py", ("names-order",), culprit(r0="collective-mismatch", r1="collective-mismatch"), own_gpus=True),
    field.group("resumed", "collective-mismatch", "process-group-order"),

    field.framework("async-save", "checkpoint-io"),
    # Another group, as above.
    field.framework("full-state", "collective-mismatch", "process-group-order", odd=0, ranks=3),
    field.framework("not-finite", "collective-mismatch", odd=3, ranks=4),
    # The compiler's pass is a function of the job.
    field.framework("recompiles", "compiling", "user-code"),
    field.framework("gathered-metric", "collective-mismatch", odd=0, ranks=3, needs=("torch", "accelerate")),
    field.framework("main-process-first", "file-io", odd=0, ranks=3, needs=("torch", "accelerate")),
    field.framework("trainer-evaluates", "collective-mismatch", odd=0, ranks=3, needs=("torch", "transformers", "accelerate")),
    field.framework("lightning-log", "collective-mismatch", odd=2, ranks=3, needs=("torch", "pytorch_lightning")),
    field.framework("lightning-stops", "network-io", odd=2, ranks=3, needs=("torch", "pytorch_lightning")),
    field.framework("lightning-checkpoint", "checkpoint-io", odd=0, ranks=3, needs=("torch", "pytorch_lightning")),

    field.well("accumulation", alone=True),
    field.well("disk-log"),
    field.well("evaluation", odd=(0,), ranks=3),
    field.well("server", odd=(0,), ranks=3),
    field.well("compiled"),
    field.well("matrices", alone=True),
    field.well("offloaded"),
    field.well("slow-loader", ranks=3),
    field.well("decoding", ranks=3),
    field.well("one-kernel", alone=True),
    field.well("async-save"),
    field.well("several-epochs", ranks=4),

    # The third batch. What holds the odd rank up is in its own process.
    third.hang("worker-mutex", "data-loading"),
    # The other rank gives memory back to the driver, which waits for the all-reduce.
    third.hang("allocator-retry", "network-io"),
    # It is within an import, and has no process group yet.
    third.hang("importing", "network-io"),
    third.hang("store-keys", "file-io"),
    # It sleeps in the handler of a signal.
    third.hang("signal-handler", "user-code"),
    third.hang("question", "debugger"),
    third.hang("spectrum", "user-code"),
    third.hang("join-before-get", "subprocess"),
    # asyncio's loop has nothing to do; what it waits for is an event that a task of the rank should set, which has failed.
    third.hang("lost-task", "network-io", "python-lock"),
    # It waits for its data, by a condition of a library in its process.
    third.hang("native-loader", "native-lock", "data-loading"),
    # The others wait over gloo, with nothing on their GPUs.
    third.hang("host-gradients", "gpu-wait"),
    # The thread that reads a device keeps the interpreter's lock, for which the main thread waits.
    third.hang("holds-gil", "file-io", "python-lock"),

    # The others wait in two groups: one for the odd rank, one for a rank that waits for it.
    third.group("optimizer", "user-code", odd=3, ranks=4),
    # It has what rank 0 sent, and is still within that call.
    third.group("unpickles", "network-io", odd=1, ranks=2),
    # It is done with the pipeline; the stages before it wait for its messages, as they should.
    third.group("micro-batch", "collective-mismatch"),
    # Another group than the others', within the collector.
    third.group("metric-collected", "collective-mismatch", "process-group-order", "garbage-collection"),
    # The others make a group, which takes all ranks.
    # Its main thread waits for rank 0, which waits for a thread of it.
    third.group("remote-evaluation", "network-io", odd=1, ranks=2),
    # A barrier in the store of JAX's coordination service, which the others do not come to.
    third.group("jax-barrier", "collective-mismatch", "store-wait", needs=("jax",)),

    third.well("host-turns"),
    third.well("host-metrics", odd=(0,), ranks=3),
    third.well("large-checkpoints"),
    third.well("idle-engine"),
    third.well("warm-up", needs=("torch", "triton")),
    third.well("preprocessing"),
    third.well("one-process", ranks=1),
    third.well("spare-batches", alone=True),
    third.well("jax-generation", needs=("jax",)),

    # The fourth batch: two ranks each. The other rank waits for a file's lock, which the odd one holds while it computes.
    fourth.hang("corpus-lock", "user-code"),
    # Its main thread waits for itself.
    fourth.hang("signal-lock", "python-lock"),
    # It is the collector that calls the finalizer, which waits for a lock that the main thread itself holds.
    fourth.hang("collector-lock", "garbage-collection", "python-lock"),
    fourth.hang("tokenizer-pool", "python-lock", environment={"CUDA_LAUNCH_BLOCKING": "1"}),
    # Its child waits for a server. The other rank waits in the store, with a timeout, again and again.
    fourth.hang("store-retry", "subprocess", "network-io"),
    fourth.hang("full-pipe", "subprocess", odd=0),
    # The child that has stopped it has ended.
    fourth.hang("suspended", "stopped"),
    # The main thread waits for a thread that feeds it, which waits for the GPU.
    fourth.hang("copying-thread", "gpu-wait", "data-loading"),
    # What feeds it is dead, and what it waits for, by polling, is its data.
    fourth.hang("graph-inputs", "worker-dead", "data-loading"),
    fourth.hang("hash-table", "gpu-wait", needs=("torch", "triton")),
    # Its main thread waits for itself, by a lock of a library.
    fourth.hang("block-table", "native-lock"),
    # It waits for its data, whose worker is stopped.
    fourth.hang("worker-stopped", "data-loading", "stopped"),
    fourth.hang("early-stop", "missing", launch="torchrun", environment={"TORCH_NCCL_ASYNC_ERROR_HANDLING": "0"}),
    # A SIGBUS.
    fourth.hang("truncated-tokens", "crashed", cores=True, environment={"TORCH_NCCL_ASYNC_ERROR_HANDLING": "0"}),

    # The compiler is a child process.
    fourth.framework("augment", "compiling", "subprocess", needs=("torch", "triton")),
    # It looks for a lock that is a file again and again, and sleeps in between.
    fourth.framework("interleaved", "file-io", "user-code"),
    # It opens a file of the checkpoint.
    fourth.framework("loading", "checkpoint-io", "file-io"),
    # It sends its checkpoint to a server.
    fourth.framework("full-state-dict", "network-io", "checkpoint-io", odd=0),
    # SQLite looks for the lock of a file again and again; a database may be called a server, too.
    fourth.framework("sequence-parallel", "file-io", "network-io"),
    # A thread of it has ended, that would empty the queue for which autograd's thread waits.
    fourth.framework("bucket-hook", "python-lock", "worker-dead"),

    # They wait in two groups.
    fourth.at_odds("consolidate", *[OTHER_GROUP] * 2),
    # The odd rank is ahead by a backward pass that it has skipped. Over sockets the sizes may be found to differ, which fails.
    fourth.at_odds("nan-loss", MISMATCH, MISMATCH, own_gpus=True),
    fourth.at_odds("recomputed-scale", *[OTHER_GROUP] * 2),
    # The same broadcast, of which each takes itself for the source.
    fourth.at_odds("best-rank", *[("collective-mismatch",)] * 2, own_gpus=True),
    # One sends, one receives, but not the same message.
    fourth.at_odds("tags", *[("unmatched-p2p",)] * 2),
    fourth.at_odds("vocabularies", *[("collective-mismatch",)] * 2),
    # Two calls in one group, in another order; each rank waits in both.
    fourth.at_odds("metrics-thread", *[OTHER_GROUP] * 2),

    fourth.well("polling-server"),
    fourth.well("uneven-evaluation"),
    fourth.well("offloaded-shards"),
    fourth.well("distributed-checkpoints"),
    fourth.well("slow-stage"),
    fourth.well("context-parallel"),
    fourth.well("autotuning", needs=("torch", "triton")),
    fourth.well("policy-gradient"),
    fourth.well("collating"),

    # The fifth batch. The main thread waits for the interpreter's lock, which a thread keeps that computes.
    fifth.hang("redact-logs", "user-code", "python-lock"),
    # A circle: the main thread waits for autograd's thread, which waits for a lock that the main thread holds.
    fifth.hang("reentrant", "python-lock"),
    # The debugger waits for a connection, before any command is read.
    fifth.hang("remote-debugger", "debugger", "network-io"),
    # It waits for its GPU, and there for its batch, which another process has not computed.
    fifth.hang("shared-batches", "gpu-wait", "data-loading"),
    # It writes to a pipe that is not read.
    fifth.hang("profiled", "file-io"),
    fifth.hang("nccl-log", "file-io"),
    # What feeds it reads a file before its first batch.
    fifth.hang("epoch-workers", "data-loading"),
    fifth.hang("handshake", "network-io"),
    # Nobody will release the semaphore; its threads have nothing to do.
    fifth.hang("in-flight", "python-lock"),
    # The main thread waits for the lock of an import, which a thread has that waits for a server.
    fifth.hang("lazy-import", "network-io", "python-lock"),

    # The compiler is a process of Inductor's pool.
    fifth.framework("compile-workers", "compiling", "subprocess", needs=("torch", "triton")),
    # It waits for its GPU within Triton's tuner, which is part of compiling.
    fifth.framework("autotuned", "gpu-wait", "compiling", needs=("torch", "triton")),
    # Two ranks that disagree, of which one is ahead. Over sockets the sizes may be found to differ, which fails.
    GpuCase("fifth-conditional-block", "fifth_frameworks.py", ("conditional-block",), culprit(r0=MISMATCH, r1=MISMATCH), own_gpus=True),
    # One of three waits in another group than the others, as of field-graph-skipped.
    fifth.framework("grad-scaler", "collective-mismatch", "process-group-order", odd=2, ranks=3),
    # It receives once more than its peer sends, which is in an all-reduce.
    fifth.framework("microbatches", "unmatched-p2p", "collective-mismatch"),
    # It has left out the all-reduce in which its replica waits for it, and waits with the two others, which do as they should.
    fifth.framework("hybrid", "collective-mismatch", "process-group-order", odd=3, ranks=4),
    fifth.framework("cached-download", "collective-mismatch", "process-group-order", odd=0, ranks=3),

    # The same call as rank 0, with other sizes, by which it is not done with that; rank 0 is in the next one.
    fifth.group("expert-splits", "collective-mismatch", "behind", own_gpus=True),
    # Neither rank is more right. If the layers that both have pass, they wait in two groups.
    GpuCase("fifth-coalesced", "fifth_groups.py", ("coalesced",), culprit(r0=("collective-mismatch", "process-group-order"),
                                                                         r1=("collective-mismatch", "process-group-order")), own_gpus=True),
    # A kernel of it, not one of a collective, waits for what the other rank does not send.
    fifth.group("signals", "gpu-wait", "unmatched-p2p", own_gpus=True),
    # The other rank waits in a kernel of its own for what the odd one writes.
    fifth.group("halo", "user-code", own_gpus=True, needs=("torch", "triton")),
    # The same call over the same group, with another destination.
    fifth.group("gather-destination", "collective-mismatch", odd=2, ranks=3),
    # It makes a group of the ranks, which wait for it in a collective.
    fifth.group("split", "collective-mismatch", "process-group-order", odd=2, ranks=3),
    fifth.group("captured", "collective-mismatch", "process-group-order", odd=2, ranks=3),

    fifth.well("index-marker"),
    fifth.well("traced"),
    fifth.well("speculative"),
    fifth.well("signalled", own_gpus=True),
    fifth.well("population"),
    fifth.well("forked-save"),

    # The sixth batch. The rank waits at a socket for a process of its own.
    sixth.hang("run-service", "subprocess", "network-io", odd=0),
    # It writes to a pipe that its child does not read; the child does so, too.
    sixth.hang("tokenizer-pipes", "subprocess", "file-io"),
    # It sleeps in its dataset, between two requests.
    sixth.hang("throttled-shards", "data-loading", "user-code"),
    sixth.hang("forked-threads", "data-loading"),
    # Its main thread waits for itself.
    sixth.hang("engine-loop", "python-lock"),
    sixth.hang("nested-pool", "python-lock"),
    sixth.hang("forked-pool", "subprocess"),
    sixth.hang("split-k", "gpu-wait", needs=("torch", "triton"), alone=True),
    # It waits in the handler of a signal.
    sixth.hang("reaper", "subprocess"),
    # It writes in the handler of an exception.
    sixth.hang("memory-snapshot", "file-io", "exception"),
    # It saves, and waits for a lock that a process of its own has.
    sixth.hang("flash-checkpoint", "checkpoint-io", "subprocess"),

    sixth.framework("custom-op", "network-io", needs=("torch", "triton")),
    # A circle of the main thread and a thread of its loader, while it saves.
    sixth.framework("stateful-loader", "python-lock", "checkpoint-io"),
    # The main thread waits for a thread, which reads a file.
    sixth.framework("swap-in", "file-io", "python-lock"),
    # Its dataset waits for a server.
    sixth.framework("dispatched-batches", "data-loading", "network-io", odd=0, ranks=3),
    # What it does alone is to compile, and there it waits in another group than the others.
    sixth.framework("compiler-collectives", "compiling", "collective-mismatch", "process-group-order", odd=2, ranks=3, needs=("torch", "triton"),
                    environment={"TORCH_COMPILER_COLLECTIVES": "1"}),
    sixth.framework("own-communicator", "user-code"),

    # Rank 0 waits for a place in the ring, the other worker in a group without rank 0.
    sixth.group("message-ring", "file-io"),
    # Rank 0 waits at a socket for the odd rank, not in a collective.
    sixth.group("weight-handles", "user-code", odd=1, ranks=2),
    # It waits in the handler of an exception.
    sixth.group("restart", "store-wait", "exception"),
    sixth.group("epoch-key", "store-wait", odd=1, ranks=2),
    # One of three waits in another group than the others, as of field-graph-skipped.
    sixth.group("contrastive", "collective-mismatch", "process-group-order"),
    sixth.group("generation-length", "collective-mismatch", "process-group-order"),
    sixth.group("batch-norm", "collective-mismatch", "process-group-order"),

    sixth.well("unequal-texts", ranks=3),
    sixth.well("local-steps", ranks=4),
    sixth.well("data-server"),
    sixth.well("captures"),
    sixth.well("slow-run-service", ranks=3),
    sixth.well("swapped-state"),

    # The seventh batch: two ranks each. The command has ended, and a child of it keeps the pipe that the rank reads.
    seventh.hang("daemon-pipe", "subprocess", "file-io"),
    # It reads its standard input, for what a person would type.
    seventh.hang("token-prompt", "debugger", "file-io"),
    # Its loader's worker waits for a process of the rank, which waits for a server.
    seventh.hang("manager-cache", "data-loading", "network-io", "subprocess"),
    seventh.hang("status-page", "network-io"),
    # The main thread joins threads that wait in a barrier for one that has ended.
    seventh.hang("thread-barrier", "python-lock", "worker-dead"),
    # The process that has the lock is dead.
    seventh.hang("killed-owner", "worker-dead", "python-lock"),
    # The main thread of the other rank waits for a thread of its own, which waits for the GPU.
    seventh.hang("logged-loss", "file-io"),
    # It waits for a server in the handler of an exception.
    seventh.hang("alert", "network-io", "exception"),
    # It sleeps in the hook for exceptions that nobody has caught.
    seventh.hang("kept-alive", "exception", "user-code", launch="torchrun"),
    seventh.hang("stack-dump", "file-io"),
    seventh.hang("consumer-first", "gpu-wait", needs=("torch", "triton"), alone=True),
    # The main thread waits for the lock of a stream of the C library, which a thread has that reads a file.
    seventh.hang("stream-lock", "file-io", "native-lock"),

    # The compiler asks a server.
    seventh.framework("compile-cache", "compiling", "network-io"),
    seventh.at_odds("gradient-sync", *[OTHER_GROUP] * 2, part="frameworks", own_gpus=True),
    seventh.at_odds("saved-by-rank0", *[OTHER_GROUP] * 2, part="frameworks"),
    # It opens a file with weights.
    seventh.framework("load-and-broadcast", "checkpoint-io", "file-io", odd=0),
    seventh.framework("optimizer-in-backward", "file-io"),
    seventh.at_odds("unused-parameters", *[OTHER_GROUP] * 2, part="frameworks"),
    seventh.at_odds("dropped-layer", *[OTHER_GROUP] * 2, part="frameworks"),

    # Both ranks are at the same place, and each waits for the other one.
    GpuCase("seventh-store-handshake", "seventh_groups.py", ("store-handshake",), Truth("symmetric")),
    seventh.at_odds("unsorted-names", *[OTHER_GROUP] * 2),
    # It receives once more than its peer sends, which is in an all-reduce.
    seventh.group("reward-messages", "unmatched-p2p", "collective-mismatch", odd=0),
    # It waits in select() for a pipe; the other rank is in a send over gloo.
    seventh.group("operator-commands", "file-io", "user-code"),
    # As reward-messages, on the GPU.
    seventh.group("boundary", "unmatched-p2p", "collective-mismatch", odd=0, own_gpus=True),
    # Both ranks move: one computes without an end, the other one looks at a number in the store.
    seventh.group("counted-ranks", "user-code"),
    seventh.at_odds("patience", *[OTHER_GROUP] * 2),

    seventh.well("large-heap"),
    seventh.well("code-reward"),
    seventh.well("locked-cache"),
    seventh.well("retried-batches"),
    seventh.well("idle-front-end"),
    seventh.well("all-communication", own_gpus=True),
    seventh.well("evaluation-thread"),

    # The eighth batch. Its program has ended, and the interpreter waits for a thread, which waits for a server.
    eighth.hang("uploader-exit", "network-io", "exception", "python-lock"),
    # It writes to a terminal that takes nothing.
    eighth.hang("paused-terminal", "file-io"),
    # It waits for its data, whose worker waits for the rank.
    eighth.hang("hard-negatives", "data-loading"),
    # It is in a loop of the interpreter's own, within an expression, which has no end.
    eighth.hang("endless-count", "user-code"),
    # The main thread waits for a thread of its own, which waits for another server.
    eighth.hang("stop-server", "network-io", "python-lock"),
    # The debugger has stopped autograd's thread, for which the main thread waits.
    eighth.hang("backward-breakpoint", "debugger"),
    # The process that would score has raised and ended; the rank, which waits for its scores, has not looked after it.
    eighth.hang("forked-scorer", "worker-dead", "subprocess"),
    # The child, before it becomes a program, waits for a lock that nobody will release; the rank waits for the child.
    eighth.hang("prepared-child", "subprocess"),

    # Rank 0 alone is in a collective of all ranks, which are in the barrier of another group.
    eighth.framework("whole-gradient", "collective-mismatch", "process-group-order", odd=0, ranks=3),
    # It has left out a reduction in which the others wait for it, and waits in another group.
    eighth.framework("none-gradient", "collective-mismatch", "process-group-order", odd=2, ranks=3),
    # It saves into the pipe of a child, which cannot write on.
    eighth.framework("compressed-save", "checkpoint-io", "subprocess", "file-io"),
    # The main thread waits for the compiler's lock, which a thread has that compiles and reads a file for that.
    eighth.framework("compiles-apart", "compiling", "file-io", "python-lock", needs=("torch", "triton")),

    # Its all-reduce cannot begin, as a kernel of its own fills its GPU; so it is the GPU of the odd rank that does not come to the collective.
    eighth.framework("overlapped", "gpu-wait", needs=("torch", "triton"), own_gpus=True, alone=True),
    # The driver waits for the rank's GPU, on which a kernel does not end.
    eighth.framework("empty-cache", "gpu-wait"),
    # A kernel that does not end is before all that it launches; both ranks wait for a place in the queue of launches.
    eighth.framework("runs-ahead", "gpu-wait"),
    # Autograd's thread waits for the GPU, on which a kernel of the rank does not end, and the main thread for autograd's.
    eighth.framework("backward-kernel", "gpu-wait", needs=("torch", "triton")),
    # As before, for a graph that the main thread has launched.
    eighth.framework("graph-loop", "gpu-wait", needs=("torch", "triton")),
    # Each waits on its GPU in a barrier to which the other one does not come; neither is more right.
    GpuCase("eighth-barrier-channels", "eighth_frameworks.py", ("barrier-channels",),
            culprit(r0=("collective-mismatch", "gpu-wait"), r1=("collective-mismatch", "gpu-wait")), own_gpus=True),

    # It exchanges once more than its pair, which has gone on with the others.
    eighth.group("overflow-round", "collective-mismatch", "process-group-order"),
    # It is at the end of the epoch; its pair waits for its batch, and the two others for the gradients of these two.
    eighth.group("batch-source", "collective-mismatch", "process-group-order"),
    # Rank 0 waits in its store for the odd rank, which waits for an answer of what it takes for the store.
    eighth.group("wrong-port", "store-wait", "network-io", odd=1, ranks=2),
    # The two others make a group, in which all ranks should take part; it is in a reduction of all.
    eighth.group("eager-subgroup", "collective-mismatch", "process-group-order", ranks=3, environment={"TORCH_DIST_INIT_BARRIER": "1"}),
    # It waits in another group, as its program ends.
    eighth.group("exit-barrier", "collective-mismatch", "process-group-order", "exception", ranks=3),
    # It counts a step ahead of the others, and waits in another group for them.
    eighth.group("stop-vote", "collective-mismatch", "process-group-order", ranks=3),
    # It has left out the stage in which rank 0 waits for it; the others do as they should.
    eighth.group("leaders", "collective-mismatch", "process-group-order"),
    # The rank that it waits for does no exchange; its own partner waits for it, as it should.
    eighth.group("gossip", "unmatched-p2p", odd=3),

    # The main threads learn and wait for what is seen, in turns.
    eighth.well("replay-buffer"),
    # Each step compiles, and ends.
    eighth.well("compiled-anew", needs=("torch", "triton")),
    # Rank 0 is idle between two messages, and the others compute.
    eighth.well("weight-server", ranks=3),
    # A request comes again and again, and in between all wait for rank 0, which waits for its clients.
    eighth.well("requests-over-nccl", ranks=3),
    # Ranks wait for their processes, which compute, and then for each other.
    eighth.well("evolution"),
    # One rank polls what the other one comes to a second later.
    eighth.well("polled-work"),
    # The second rank is slow in the driver, and the first one waits for it in its step.
    eighth.well("cache-emptied"),
    # Ranks compute for different times in Python, and meet.
    eighth.well("tree-search"),
    # The first rank waits for the second one in each step, for a second.
    eighth.well("sampled"),
    # The ranks sleep nearly all the time, as their GPUs compute.
    eighth.well("throttled-launches", alone=True),

    # The ninth batch. A circle: the main thread has the library's mutex and waits for the interpreter's lock, which a thread has that waits for
    # the mutex.
    ninth.hang("callback-lock", "native-lock", "python-lock"),
    # The collector is called by a loop of the rank that does not end.
    ninth.hang("memory-limit", "garbage-collection", "user-code"),
    ninth.hang("artifact-upload", "network-io", odd=0),
    # Its loader's workers move, in a loop that they do not leave.
    ninth.hang("bad-samples", "data-loading"),
    # It waits for a result of a thread of its own, which has ended.
    ninth.hang("unpicklable-error", "worker-dead", "python-lock"),
    # The program is a child, which is stopped.
    ninth.hang("stopped-program", "subprocess", "stopped"),
    # What it writes is an archive of a checkpoint.
    ninth.hang("packed-checkpoint", "checkpoint-io", "file-io", odd=0, launch="torchrun"),
    # All ranks are at the same place, and wait for the same server.
    GpuCase("ninth-storage-outage", "ninth.py", ("storage-outage",), Truth("symmetric")),
    # The other rank polls for a file, not in a collective.
    ninth.hang("marker-file", "subprocess", odd=0),
    # The other rank waits in the store, not in a collective.
    ninth.hang("left-without-key", "missing", environment={"TORCH_NCCL_ASYNC_ERROR_HANDLING": "0"}),
    # Nobody will say that the last one is done; the thread has nothing to do.
    ninth.hang("queue-join", "python-lock"),
    # A SIGABRT of its watchdog's.
    ninth.hang("device-assert", "crashed", cores=True),

    ninth.framework("unrolled", "compiling"),
    # They wait in two groups.
    ninth.at_odds("empty-batch", *[OTHER_GROUP] * 2, part="frameworks"),
    # Each waits in a receive for what the other one would send later.
    ninth.at_odds("two-schedules", *[("unmatched-p2p", "collective-mismatch")] * 2, part="frameworks"),
    # They wait in two groups.
    ninth.at_odds("wrapped-evaluation", *[OTHER_GROUP] * 2, part="frameworks"),
    ninth.at_odds("actor-and-critic", *[("process-group-order", "collective-mismatch")] * 2, part="frameworks"),
    # Two calls in one group.
    ninth.at_odds("vocabulary-grows", *[("collective-mismatch",)] * 2, part="frameworks"),
    ninth.framework("parents-cycle", "gpu-wait"),
    # It polls an event of its GPU, and sleeps in between.
    ninth.framework("empty-interval", "gpu-wait", "user-code", needs=("torch", "triton")),

    # It looks for what rank 0 has written into another file; rank 0 waits for it within NCCL.
    ninth.group("node-local-store", "store-wait"),
    # The same group, another call; the two others wait for it in theirs.
    ninth.group("gather-or-broadcast", "collective-mismatch", odd=2, ranks=3),
    # The others wait in two groups each, for the odd rank or for one that waits for it.
    ninth.group("replicated-shards", "network-io", odd=3, ranks=4),

    # Rank 0 is idle between two requests, and the other rank waits for what it sends.
    ninth.well("prefill-decode"),
    # A step takes about two seconds, in which a rank waits for its GPU.
    ninth.well("accumulated-shards", alone=True),
    # There is a collective on both GPUs at nearly any time, always another one.
    ninth.well("overlapped-communication", own_gpus=True),
    # The other rank waits in the store for a second or two.
    ninth.well("evaluation-in-store", odd=(0,)),
    # The first rank waits for the second one in each step.
    ninth.well("compiles-alone", needs=("torch", "triton")),
    # Both ranks wait for their data nearly all the time, which come.
    ninth.well("decoded-by-programs"),
    # Ranks unpack for different times in a library, and meet.
    ninth.well("unpacked-by-turns"),
    # The first rank answers the collectives of the second one, which has more batches.
    ninth.well("uneven-epochs"),

    # The tenth batch.
    tenth.hang("lost-datagram", "network-io"),
    # It receives, a byte at a time.
    tenth.hang("trickle-download", "network-io", odd=0, launch="torchrun"),
    # It sends to a Unix socket that is full.
    tenth.hang("full-journal", "network-io"),
    # It waits for a condition, in its own process, as another thread does that was woken in its place.
    tenth.hang("notify-one", "python-lock"),
    # It computes in a library that has released the interpreter's lock.
    tenth.hang("key-derivation", "user-code"),
    # It joins a process, which waits for its thread.
    tenth.hang("undead-process", "subprocess", part="data"),
    # The sampler of its loader moves, in a loop that it does not leave.
    tenth.hang("balanced-batches", "data-loading", "user-code", part="data"),
    # It waits for a process of its own, which prepares the batches.
    tenth.hang("shared-tensor", "data-loading", "subprocess", part="data"),
    # It waits for a server, within the collector.
    tenth.hang("collector-callback", "network-io", "garbage-collection"),
    # It has raised, and waits for a thread that waits for a server.
    tenth.hang("raises-in-pool", "exception", "network-io", "python-lock"),
    tenth.hang("wrapped-angle", "gpu-wait"),

    # It waits for a server, while it plans a checkpoint.
    tenth.group("planner-lease", "checkpoint-io", "network-io"),
    # It waits in the backward pass for a future that a thread of its own would set, which waits for its queue.
    tenth.group("hook-future", "native-lock", "python-lock"),
    # It gathers by NCCL, and the two others over gloo, where they wait for it.
    tenth.group("critic-alone", "collective-mismatch", "process-group-order", odd=2, ranks=3),
    # The same group, a receive from a rank that scatters; the others wait for it there or in the next step.
    tenth.group("scatter-or-receive", "unmatched-p2p", "collective-mismatch", odd=2, ranks=3),
    # It waits in the store for ranks that wait for it in a collective.
    tenth.group("host-group", "store-wait", "collective-mismatch", "process-group-order", odd=2, ranks=3),

    # The second rank is in the driver, and the first one waits for it in its step.
    tenth.well("pins-anew"),
    # Workers end all the time, as they should.
    tenth.well("workers-anew"),
    # The second rank raises and catches in each step.
    tenth.well("halved-batch"),
    # The second rank waits for its own GPU for a second, and the first one for it.
    tenth.well("preconditioner"),

    # The eleventh batch.
    # A thread of it, which answers another rank, waits for a server; the other rank waits for the answer.
    eleventh.hang("rpc-handler", "network-io", odd=0),
    # It waits for a place in a queue; the thread that makes them writes to a pipe.
    eleventh.hang("full-metrics-queue", "file-io", "python-lock"),
    # It waits for a semaphore, which nobody in its process has.
    eleventh.hang("leaked-permits", "python-lock"),
    # It computes in a library.
    eleventh.hang("naive-einsum", "user-code"),
    # It waits for a lock, whose thread waits for a program.
    eleventh.hang("gpu-monitor", "subprocess", "python-lock"),
    # Its event loop has nothing to do until a server answers.
    eleventh.hang("async-rollouts", "network-io"),
    # It has raised, and prints that to a pipe that is full.
    eleventh.hang("traceback-pipe", "exception", "file-io"),
    # It moves, in a loop that it does not leave.
    eleventh.hang("line-search", "user-code"),
    # Else its watchdog may end the other rank as well, when it finds the connection closed.
    eleventh.hang("agent-exit", "missing", launch="torchrun", environment={"TORCH_NCCL_ASYNC_ERROR_HANDLING": "0"}),
    # It saves, to a socket.
    eleventh.hang("streamed-checkpoint", "checkpoint-io", "network-io", odd=0),

    # Autograd's thread waits for the lock of the main thread, and this one for autograd's.
    eleventh.framework("recompute-lock", "python-lock"),
    # The pass is a function of the job's own.
    eleventh.framework("endless-pass", "compiling", "user-code"),
    # It is in the interpreter of TorchScript.
    eleventh.framework("scripted-loop", "user-code"),
    # It reads from the pipe of a child.
    eleventh.framework("pipeline-verifier", "subprocess"),
    # It waits for a mutex that it has itself.
    eleventh.framework("ring-attention", "native-lock"),
    # The worker of its loader waits for a semaphore.
    eleventh.framework("leaked-slots", "data-loading"),
    eleventh.framework("distributed-breakpoint", "debugger"),
    eleventh.framework("threshold", "gpu-wait", needs=("torch", "triton")),
    eleventh.framework("work-counter", "gpu-wait", needs=("torch", "triton")),

    # They wait in two groups.
    eleventh.at_odds("full-metric", *[OTHER_GROUP] * 2),
    # They wait in two groups; the odd rank is in an earlier step.
    eleventh.at_odds("local-averages", *[("collective-mismatch", "process-group-order", "behind")] * 2),
    # They wait in two groups, each of which comes first on one rank.
    eleventh.at_odds("gather-then-barrier", *[("process-group-order", "collective-mismatch")] * 2),

    # Rank 0 is idle between two requests, which threads of its answer; there is no collective.
    eleventh.well("rpc-server"),
    # The second rank asks its GPU again and again, and the first one waits for it.
    eleventh.well("searches"),
    # Both ranks wait for sockets most of the time, which answer.
    eleventh.well("rollouts"),
    # The main thread of the second rank waits for a lock for most of a second, and gets it.
    eleventh.well("flushed-log"),
    # The second rank is in a library most of the time.
    eleventh.well("contractions"),
    # The second rank compiles in each step, and the first one waits for it.
    eleventh.well("slow-pass"),

    # The twelfth batch.
    # It waits for the lock of a database's file, which a process outside of the job has.
    twelfth.hang("locked-database", "file-io", "network-io", needs=("torch", "_sqlite3")),
    # It waits for a place in a queue of its own; the task that makes them has died, and is no thread.
    twelfth.hang("dead-consumer", "python-lock", "worker-dead", "user-code"),
    # Its event loop runs a task that does not end, before it raises.
    twelfth.hang("keeps-trying", "user-code", "exception"),
    # It reads from its standard input, as input() does.
    twelfth.hang("shell-on-nan", "debugger"),
    # It waits for a semaphore in C; those that had the permits were processes, and are gone.
    twelfth.hang("node-semaphore", "native-lock"),
    # It waits for a signal, in a call of its own.
    twelfth.hang("awaits-signal", "user-code", launch="torchrun"),
    # Else its watchdog may end the other rank as well, when it finds the connection closed. The process that it has left is no rank.
    twelfth.hang("killed-with-child", "missing", environment={"TORCH_NCCL_ASYNC_ERROR_HANDLING": "0"}),
    # It joins a thread of its own, which waits for a queue that only the main thread fills; the other rank waits in a store.
    twelfth.hang("pool-exit", "python-lock"),
    # A circle: it waits for its processes, and they for it.
    twelfth.hang("actors-starve", "subprocess", "data-loading"),
    # It sleeps until it tries again to reach a server; the other rank waits in a call of torch.distributed.rpc.
    twelfth.hang("push-backoff", "user-code", "network-io"),
    # Its loader computes in Python, within next().
    twelfth.hang("dedup-collate", "data-loading", "user-code"),
    # A worker of its loader waits for another one, which has nothing to do.
    twelfth.hang("worker-barrier", "data-loading"),
    # All ranks are at the same place, and wait for somebody outside.
    GpuCase("twelfth-no-word", "twelfth.py", ("no-word",), Truth("symmetric")),

    # What it reads is a batch, by a plain read().
    twelfth.framework("zero-bubble", "file-io", "data-loading", odd=0),
    # It traces, and waits for a lock in the operator; the thread that has it waits for a queue.
    twelfth.framework("traced-table", "compiling", "python-lock"),
    twelfth.framework("bucket-lock", "gpu-wait"),
    # The server is one of XML-RPC.
    twelfth.framework("logged-optimizer", "network-io"),
    # Both ranks wait for their processes; that of the other rank waits for that of the odd one, which writes.
    twelfth.framework("checkpoint-process", "checkpoint-io", "file-io", "subprocess"),

    # They wait in two groups; the odd rank has ended its step before the other one.
    twelfth.at_odds("uneven-closures", *[("collective-mismatch", "process-group-order", "behind")] * 2),
    # They wait in two groups on their GPUs, where rank 0 has a reduction of its backward pass before the one that all do; both programs are
    # at the same place.
    twelfth.at_odds("frozen-layer", *[OTHER_GROUP] * 2),
    # Rank 0 calls alone what all should call; the other one waits for it in the store.
    twelfth.at_odds("samples-for-log", ("collective-mismatch", "process-group-order"),
                    ("store-wait", "collective-mismatch", "process-group-order")),
    # It waits for a message that rank 0 does not send; that waits for it as it should.
    twelfth.hang("work-items", "unmatched-p2p", "collective-mismatch", part="groups"),

    # Ranks have nothing to do for most of the time, and look for requests a thousand times a second, which come.
    twelfth.well("request-slots"),
    # The second rank is in one call for a second or longer, again and again, and the first one waits for it.
    twelfth.well("sorted-index"),
    # The second rank waits in a barrier for five seconds, in which the first one computes.
    twelfth.well("scores-on-first"),
    # Both ranks wait for their GPUs, which compute.
    twelfth.well("replayed-graphs", alone=True),
    # The main threads wait for threads of their own, which compute, and then for each other.
    twelfth.well("pooled-features", launch="torchrun"),
    # The second rank waits for a pipe nearly all the time, which is read.
    twelfth.well("slow-reader"),
    # The first rank waits for the second one in a call of torch.distributed.rpc, and the second one for a thread of its own.
    twelfth.well("slow-pusher"),

    # The thirteenth batch.
    # It computes, in Python.
    thirteenth.hang("permutation-loss", "user-code"),
    # It is in one operation of the interpreter's, which keeps the interpreter's lock.
    thirteenth.hang("unreduced-power", "user-code"),
    # It waits, for a lock of its pool's, for children each of which dies as it begins.
    thirteenth.hang("pool-initializer", "worker-dead", "subprocess", "python-lock"),
    # It sleeps, in a loop about directories of checkpoints.
    thirteenth.hang("rotated-checkpoints", "user-code", "checkpoint-io", odd=0),
    # It accepts on a socket, to which only its child would connect.
    thirteenth.hang("simulator-connects", "subprocess", "network-io"),
    # It writes to a pipe that only its child would read.
    thirteenth.hang("spawned-evaluator", "subprocess", "file-io"),
    # It reads from a descriptor that tells of its next shard.
    thirteenth.hang("late-watch", "file-io", "data-loading", "user-code"),
    # Its kernel waits for a thread of its own, which has raised and is gone.
    thirteenth.hang("telemetry-ring", "gpu-wait"),
    # The function that JAX traces is one of the job's own.
    thirteenth.hang("jax-table", "user-code", "compiling", needs=("jax",)),
    # All ranks are at the same place, and wait for somebody outside.
    GpuCase("thirteenth-pause-file", "thirteenth.py", ("pause-file",), Truth("symmetric")),

    # In one group, rank 0 is in the barrier that ends its saving, and the other one in a step more.
    thirteenth.at_odds("lightning-saves", ("collective-mismatch", "checkpoint-io", "behind"), ("collective-mismatch", "behind"), part="frameworks",
                       odd=(0,), needs=("torch", "pytorch_lightning")),
    # As above, with a reduction instead of a barrier.
    thirteenth.at_odds("accelerate-trigger", MISMATCH, MISMATCH, odd=(0,), needs=("torch", "accelerate"), part="frameworks"),
    # They wait in two groups; the odd rank for a collective of its backward pass that the other one does not have.
    thirteenth.at_odds("unfreezes-early", *[OTHER_GROUP] * 2, part="frameworks"),
    # It waits for a message that rank 0 does not send, which waits for it where its epoch ends.
    thirteenth.hang("pipeline-epoch", "unmatched-p2p", "collective-mismatch", "process-group-order", part="frameworks"),
    # They wait in two groups.
    thirteenth.at_odds("compiled-branch", *[OTHER_GROUP] * 2, part="frameworks"),

    # It waits for a message of rank 1, which has none for it; rank 0 sends it one, and rank 1 is where all should be next.
    thirteenth.group("cache-source", "unmatched-p2p", "collective-mismatch", odd=2, ranks=3),
    # They wait in two groups; the odd rank has left out what the other one waits in.
    thirteenth.at_odds("failed-samples", *[OTHER_GROUP] * 2),
    # They wait in two groups; the odd rank is one micro-batch behind, and at the end of its step.
    thirteenth.at_odds("token-counts", *[("collective-mismatch", "process-group-order", "behind")] * 2),
    # A circle of three groups.
    thirteenth.at_odds("pairwise-averages", *[("process-group-order", "collective-mismatch")] * 3),
    # It waits for a message that rank 0 does not send; that waits for it where all should be next.
    thirteenth.group("early-exit", "unmatched-p2p", "collective-mismatch"),
    # They wait in two groups; the odd rank is once more where both were.
    thirteenth.at_odds("retried-save", ("collective-mismatch", "process-group-order"), ("collective-mismatch", "process-group-order", "behind")),
    # It waits for a request.
    thirteenth.group("idle-replica", "network-io"),

    # Ranks compute by turns, and the first one waits for the second one for less than a second.
    thirteenth.well("shared-counter"),
    # Ranks wait for their GPUs, each of which runs one kernel for a second or two.
    thirteenth.well("long-kernels"),
    # Ranks sleep most of the time, and now and then make passes, of which the second rank has none of its own.
    thirteenth.well("dummy-passes"),
    # The first rank waits for one program after the other, and the second one for it.
    thirteenth.well("evaluation-program"),
    # Ranks sleep nearly all the time.
    thirteenth.well("paced-steps"),
    # The first rank computes in Python for half a second, again and again, and the second one waits for it.
    thirteenth.well("lightning-validates", needs=("torch", "pytorch_lightning")),

    # The fourteenth batch.
    # The worker of its loader computes, in one call of a library that keeps the interpreter's lock.
    fourteenth.hang("page-expression", "data-loading", "user-code"),
    # A circle: the main thread has the interpreter's lock and waits for the GPU, whose stream waits for a function, which waits for that lock.
    fourteenth.hang("callback-gil", "python-lock", "gpu-wait"),
    # Its kernel waits for what the main thread would write next, which waits for the kernel.
    fourteenth.hang("persistent-kernel", "gpu-wait"),
    # It waits for the lock of a file, which it has itself.
    fourteenth.hang("nested-file-lock", "file-io", "python-lock"),
    # It waits at a socket for a process of its own, where a thread waits for a lock that the rank has.
    fourteenth.hang("manager-lock", "subprocess", "python-lock", "network-io"),
    # Its child reads the standard input that both have.
    fourteenth.hang("asks-overwrite", "subprocess"),
    # Its thread that would train has raised and is gone; its main thread has nothing to do.
    fourteenth.hang("trainer-thread", "worker-dead", "exception", "network-io"),
    # It has raised, and waits for its child.
    fourteenth.hang("follows-records", "exception", "subprocess"),
    # It sleeps, in a loop that looks for files of a checkpoint.
    fourteenth.hang("counts-shards", "user-code", "checkpoint-io", "file-io", odd=0),
    # Two threads wait for a condition, each for the other one.
    fourteenth.hang("lock-upgrade", "python-lock"),
    # All ranks are at the same place, and wait for somebody outside.
    GpuCase("fourteenth-scores-key", "fourteenth.py", ("scores-key",), Truth("symmetric")),

    # The same sum over the same ranks in two ways, which do not meet; neither rank is more right.
    GpuCase("fourteenth-fast-path", "fourteenth_groups.py", ("fast-path",),
            culprit(r0=("collective-mismatch", "gpu-wait"), r1=("collective-mismatch", "gpu-wait")), own_gpus=True),
    # It waits in another group than the others, as it saves.
    fourteenth.group("clock-checkpoint", "collective-mismatch", "process-group-order", "checkpoint-io"),
    # It has left out the sum in which rank 0 waits for it; the others do as they should.
    fourteenth.group("tied-embeddings", "collective-mismatch", "process-group-order", odd=3),
    # It receives more than its peer has sent, which waits for it in the sum. Over sockets the sizes may be found to differ, which fails.
    fourteenth.group("draft-size", "unmatched-p2p", "collective-mismatch", odd=1, ranks=2, own_gpus=True),
    # It sends what rank 0 does not receive, which waits for it in the broadcast.
    fourteenth.group("skipped-weights", "unmatched-p2p", "collective-mismatch"),
    # It sleeps until it may ask a server again; rank 0 waits for a message of any rank, and the other actors for rank 0.
    fourteenth.group("retry-after", "user-code", "network-io"),

    # The second rank sleeps for a second in each step, and the first one waits for it.
    fourteenth.well("busy-judge"),
    # Main threads wait for the interpreter's lock most of the time, and get it.
    fourteenth.well("polling-threads"),
    # Rank 0 waits for messages of any rank, and the actors sleep for a second or two.
    fourteenth.well("any-actor", ranks=4),
    # The first rank waits for its standard input for a second in each step, and the second one for it.
    fourteenth.well("operator-looks"),
    # Each rank waits for its own GPU for a second in each step, whose kernel waits for a thread of the rank.
    fourteenth.well("lookups"),
    # Ranks make and end communicators all the time.
    fourteenth.well("regrouped"),
    # The kernel of the first rank waits for the second one, whose GPU computes.
    fourteenth.well("one-shot", own_gpus=True),

    # The fifteenth batch.
    # The worker of its loader reads from the pipe of a child.
    fifteenth.hang("piped-shard", "data-loading", "subprocess"),
    # It waits for the thread of its loader that pins memory, and that for a semaphore.
    fifteenth.hang("pinned-slots", "data-loading", "python-lock", launch="torchrun"),
    # It joins a thread of its own that reads ahead, and waits for a place in a queue.
    fifteenth.hang("epoch-prefetcher", "python-lock", "data-loading"),
    # It joins a child, within the collector.
    fifteenth.hang("environment-dropped", "garbage-collection", "subprocess"),
    # It waits in C for a lock that it has itself.
    fifteenth.hang("embedding-rows", "native-lock"),
    # Its kernel does not end.
    fifteenth.hang("sorts-scores", "gpu-wait"),
    # Its event loop sleeps, with something to do of which it does not know; the thread that should have woken it has ended.
    fifteenth.hang("unwoken-loop", "python-lock", "user-code", launch="torchrun"),
    # It has raised, and joins a thread of its own, which waits for the main thread.
    fifteenth.hang("label-clock", "exception", "python-lock"),
    # It reads from a pipe that its child would write to, which was killed and is a zombie.
    fifteenth.hang("frames-fifo", "worker-dead", "file-io", "subprocess"),
    # All ranks are at the same place, and wait for somebody outside.
    GpuCase("fifteenth-license-seat", "fifteenth.py", ("license-seat",), Truth("symmetric")),

    # It has left the loop in which the others wait for it, and waits in another group.
    fifteenth.group("scattered-batches", "collective-mismatch", "process-group-order", odd=0),
    # It has left out the barrier in which the others wait for it.
    fifteenth.group("monitored-save", "collective-mismatch", "process-group-order"),
    # A circle of four groups.
    fifteenth.at_odds("axis-order", *[("process-group-order", "collective-mismatch")] * 4, odd=(1, 2)),
    # It waits for a message more than its peer sends; that waits for it where all should be next.
    fifteenth.group("more-tensors", "unmatched-p2p", "collective-mismatch", odd=3, ranks=4),
    # It sends what rank 0 does not receive, which waits for it in a reduction.
    fifteenth.group("replies-to-step", "unmatched-p2p", "collective-mismatch", "process-group-order"),

    # Its collator, within next() of its loader, waits for a server.
    fifteenth.framework("trainer-collator", "data-loading", "network-io", needs=("torch", "transformers", "accelerate")),
    # It compiles, and waits for a child that measures for that.
    fifteenth.framework("tuned-by-program", "compiling", "subprocess"),
    # It waits for a batch of a thread of its own, which waits for a server.
    fifteenth.framework("jax-prefetch", "data-loading", "network-io", "python-lock", needs=("jax",)),
    # The same call in the same group, of other sizes. Over sockets these may be found to differ, which fails.
    fifteenth.at_odds("powersgd-start", *["collective-mismatch"] * 2, own_gpus=True, part="frameworks"),
    # Two calls in one group.
    fifteenth.at_odds("accelerate-pads", MISMATCH, MISMATCH, needs=("torch", "accelerate"), part="frameworks"),
    # It waits in another group than the others, as it loads.
    fifteenth.framework("rolls-back", "collective-mismatch", "process-group-order", "checkpoint-io", odd=2, ranks=3),
    # They wait in two groups; the odd rank in a scatter of rank 0's, which goes on.
    fifteenth.at_odds("grows-embedding", *[OTHER_GROUP] * 2, part="frameworks"),

    # The second rank waits for a socket most of the time, on which something comes ten times a second; the first rank waits for the second one.
    fifteenth.well("slow-object-store"),
    # Rank 0 is idle in its event loop between two prompts, and the other rank waits for it over gloo.
    fifteenth.well("engine-socket"),
    # The second rank waits in a barrier for two seconds, in which the first one computes.
    fifteenth.well("accelerate-evaluates", needs=("torch", "accelerate")),
    # The other ranks wait in a barrier for two seconds, in which the first one compresses and writes.
    fifteenth.well("compressed-checkpoint", ranks=3),
    # The second rank compiles for a second or so in each step, and the first one waits for it.
    fifteenth.well("kernels-anew"),
    # The GPU of the second rank computes for a second or longer, and that of the first one waits for it.
    fifteenth.well("long-sequences", alone=True),
    # The second rank waits for a child, which plays, and the first one for the second one.
    fifteenth.well("plays-episodes"),

    # The sixteenth batch.
    # It waits for a batch of a thread of its own, which has raised and is gone.
    sixteenth.hang("capture-prefetch", "worker-dead", "data-loading", "exception", "python-lock"),
    # A circle: autograd's thread waits for a place in a queue, the thread that takes from it for the main thread, and that for autograd's.
    sixteenth.hang("clipped-offload", "python-lock"),
    # Its kernel waits for what is behind it.
    sixteenth.hang("legacy-stream", "gpu-wait"),
    # A program of its kernel waits for another one, which has ended.
    sixteenth.hang("chained-scan", "gpu-wait", needs=("torch", "triton")),
    # It waits for the lock of a file's buffer, which a thread has that writes.
    sixteenth.hang("shared-trace", "file-io", "python-lock", "native-lock"),
    # It writes to a pipe that it would read itself.
    sixteenth.hang("self-pipe", "file-io", "user-code", launch="torchrun"),
    # It reads the answer of a child, which reads from a pipe that another child has open.
    sixteenth.hang("inherited-pipe", "subprocess", "file-io"),
    # It joins the thread of its loader, which waits for a lock that the main thread has.
    sixteenth.hang("arena-reset", "python-lock", "data-loading", launch="torchrun"),
    # It is at its end, and joins a thread, which writes to a child that was killed.
    sixteenth.hang("unflushed-queue", "exception", "worker-dead", "python-lock", "file-io"),
    # It sleeps, and looks at the memory of its GPU.
    sixteenth.hang("waits-for-memory", "user-code", "gpu-wait"),

    # It waits for messages of ranks that are in a collective, and sends one that nobody receives.
    sixteenth.group("ring-or-ulysses", "unmatched-p2p", "collective-mismatch"),
    # A circle of four groups, none of which is made.
    sixteenth.at_odds("local-groups", *[("process-group-order", "store-wait", "collective-mismatch")] * 4, odd=(1, 3)),
    # It has left out its backward pass, from which the others wait for messages, and waits in another group.
    sixteenth.group("forward-only", "collective-mismatch", "unmatched-p2p", "process-group-order"),
    # A thread of it waits for a server; rank 0 waits for a message of that thread, and the main threads of the workers for rank 0.
    sixteenth.group("async-output", "network-io"),
    # It has left out what the others wait in, as it failed, and waits in another group.
    sixteenth.group("unpicklable-metrics", "collective-mismatch", "process-group-order"),

    # It waits in the rendezvous, by sleeping between two looks, as it handles an exception.
    sixteenth.framework("elastic-rejoin", "store-wait", "exception", "user-code"),
    # All ranks are at the same place, and wait for somebody who has not come.
    GpuCase("sixteenth-elastic-nodes", "sixteenth_frameworks.py", ("elastic-nodes",), Truth("symmetric")),
    # Two calls in one group, or one of the ranks has left that for another group.
    sixteenth.at_odds("whole-logits", *[OTHER_GROUP] * 2, own_gpus=True, part="frameworks"),
    # It compiles a kernel, for which it asks a server.
    sixteenth.framework("triton-cache", "compiling", "network-io", needs=("torch", "triton")),
    # It is at its end, and waits for all others to be.
    sixteenth.framework("rpc-shutdown", "collective-mismatch", "exception", "network-io", odd=2, ranks=3),

    # The other rank waits in a barrier for minutes, in which rank 0 goes on from batch to batch.
    sixteenth.well("long-evaluation"),
    # The first rank waits for minutes for the second one, which reads from a pipe, thirty times a second.
    sixteenth.well("slow-restore"),
    # Rank 0 sleeps most of the time, and the others wait at their sockets.
    sixteenth.well("actor-mesh", ranks=3),
    # Rank 0 looks for a file most of the time, which comes, and the others wait for it on their GPUs.
    sixteenth.well("shards-arrive", ranks=3),
    # Rank 0 hashes for about a second, and the other one waits for it over gloo.
    sixteenth.well("hashed-checkpoint"),
    # The second rank waits for a lock most of the time, and gets it.
    sixteenth.well("held-lock"),
    # Both ranks wait for a request, one at a pipe and one in a loop, and get one every two and a half seconds.
    sixteenth.well("engine-ring"),
    # The second rank has zombies, and waits for a child, which answers.
    sixteenth.well("unreaped-helpers", launch="torchrun"),

    # The seventeenth batch.
    # A warp of its kernel waits for a barrier's phase, which has too few threads to end.
    seventeenth.hang("barrier-phase", "gpu-wait"),
    # It waits as it connects to an agent, which takes no connection.
    seventeenth.hang("full-backlog", "network-io", odd=0),
    # It waits for more reads of a file than it has asked for.
    seventeenth.hang("missing-read", "file-io", "user-code"),
    # It sleeps, and looks at the lock of a file, which another job has.
    seventeenth.hang("shared-hub", "file-io", "python-lock", "user-code", odd=0, needs=("torch", "filelock")),
    # It waits in its event loop for a lock that the same coroutine has.
    seventeenth.hang("refill-in-lock", "python-lock", "user-code", launch="torchrun"),
    # It waits for a child, which ignores the signal that should end it.
    seventeenth.hang("ignores-sigterm", "subprocess"),
    # It waits for its fork server, a child, which imports a module that reads a file.
    seventeenth.hang("fork-server", "subprocess", "file-io", odd=0),
    # Its main thread waits for the lock of the loader of libraries, which a thread has that opens a file.
    seventeenth.hang("loader-lock", "file-io", "native-lock"),
    # Its main thread waits for a thread, a second at a time, and that for a server.
    seventeenth.hang("still-waiting", "network-io", "data-loading", "python-lock", odd=0),
    # The kernels of all ranks do not end, for the same reason.
    GpuCase("seventeenth-limit-of-all", "seventeenth.py", ("limit-of-all",), Truth("symmetric")),

    # It has left out the message for which the ranks after it wait, as it failed, and is in the next step with the rank before it.
    seventeenth.group("lost-turn", "unmatched-p2p", "collective-mismatch", "process-group-order", odd=1, ranks=4),
    # It has the lock for which the others look in the store, and waits for a server.
    seventeenth.group("store-lock", "network-io", odd=1),
    # It has left a loop sooner than the others, which need it, and waits in another group.
    seventeenth.group("samples-apart", "collective-mismatch", "process-group-order", ranks=4),
    # It waits in the group of a pair that is not the right one; one rank waits for it there, and the others in the next step.
    seventeenth.group("loss-axis", "process-group-order", "collective-mismatch", odd=3, ranks=4),
    # It looks for free blocks in a loop that sleeps, and has nothing for the others, which wait for it.
    seventeenth.group("unschedulable", "user-code", odd=0),

    # It waits for a word of a thread of its own, which has raised and is gone.
    seventeenth.framework("silent-streamer", "worker-dead", "exception", "python-lock", needs=("torch", "transformers")),
    # Rank 0 alone is in a collective of all ranks, which gather objects in another group.
    seventeenth.framework("summons-weights", "collective-mismatch", "process-group-order", odd=0, ranks=3),
    # It writes the last file of a checkpoint.
    seventeenth.framework("last-file", "checkpoint-io", "file-io", odd=0, ranks=3),
    # It alone is in a broadcast of all ranks, which gather objects in another group.
    seventeenth.framework("first-noise", "collective-mismatch", "process-group-order", odd=2, ranks=4),
    # It waits for a buffer that nobody gives back, in the forward pass of its stage.
    seventeenth.framework("stage-buffers", "python-lock", odd=0, ranks=3),
    # Its computation calls Python on the host, which waits for a server.
    seventeenth.framework("jax-effects", "network-io", needs=("jax",)),
    # It has raised, and a function that is called for that waits for a server.
    seventeenth.framework("lightning-alert", "exception", "network-io", needs=("torch", "pytorch_lightning")),

    # The third rank waits in the store for what does not come, and nobody waits for it.
    seventeenth.well("hot-spare", ranks=3),
    # The second rank waits for a child that would not end, and kills it after a second; the first rank waits for it.
    seventeenth.well("timed-out-programs"),
    # The second rank is in a loop that would not end, and an alarm ends it after a second; the first rank waits for it.
    seventeenth.well("alarmed-proofs"),
    # Both ranks wait for a server most of the time, which answers after a second or two.
    seventeenth.well("long-polls"),
    # The second rank is traced by Python's debugger, and computes for a second in each step; the first rank waits for it.
    seventeenth.well("counted-lines", launch="torchrun"),
    # The first rank waits for minutes for the second one, which goes on from batch to batch.
    seventeenth.well("skips-batches"),
    # All ranks are in a reduction over gloo nearly all the time.
    seventeenth.well("host-averages", ranks=3),
    # The second process compiles for a second in each step, and the first one waits for it.
    seventeenth.well("jax-compiles", needs=("jax",)),

    # The eighteenth batch.
    # Its main thread has the lock of an import and waits for its threads, which wait for that import.
    eighteenth.hang("import-pool", "python-lock"),
    # It waits in pthread_once() for what it is setting up itself.
    eighteenth.hang("once-again", "native-lock"),
    # It waits at a socket that another thread has closed; the number of its descriptor is that of a file now.
    eighteenth.hang("closed-elsewhere", "network-io"),
    # It waits for the lock of a file, which a child of it has inherited.
    eighteenth.hang("inherited-flock", "file-io", "subprocess"),
    # Its event loop waits for the end of a program, which writes to a pipe that the rank does not read.
    eighteenth.hang("unread-report", "subprocess"),
    # It waits at a socket for a thread of its own, which waits for a lock that the main thread has.
    eighteenth.hang("asks-itself", "python-lock", "network-io"),
    # The blocks of its kernel wait for a number that has been passed.
    eighteenth.hang("stale-counter", "gpu-wait"),
    # Two streams of it wait for each other, with no kernel.
    eighteenth.hang("semaphore-pair", "gpu-wait"),
    # It waits for a process of its own to say that its batch is ready, which that has said already.
    eighteenth.hang("lost-notify", "data-loading", "python-lock", "subprocess"),
    # Its kernel waits for rows of a process that was killed.
    eighteenth.hang("row-writer", "worker-dead", "gpu-wait", "data-loading"),
    # All ranks are in their debugger, at the same place.
    GpuCase("eighteenth-breakpoint-on-all", "eighteenth.py", ("breakpoint-on-all",), Truth("symmetric")),

    # It computes without an end; another rank waits for it on its GPU, and rank 0 for that one, over HTTP.
    eighteenth.group("rollout-server", "user-code"),
    # A thread of it has failed to come to a gathering, for which the threads of the others wait; the rank is in the next step.
    eighteenth.group("save-failed", "collective-mismatch", "process-group-order"),
    # It is in a broadcast of rank 0's within its loader, which the others do not call.
    eighteenth.group("looks-at-batch", "collective-mismatch", "process-group-order"),
    # It is a new program in the same process, and waits in the store for the others.
    eighteenth.group("executed-anew", "store-wait", environment={"TORCH_NCCL_ASYNC_ERROR_HANDLING": "0"}),
    # It waits for an item in a queue of the store, which rank 0 puts there in the next step.
    eighteenth.group("second-item", "store-wait"),
    # Each sends a message to the other one, which does not receive.
    eighteenth.at_odds("both-ask", *["unmatched-p2p"] * 2),

    # A function on its host, which its computation has called, is a debugger.
    eighteenth.framework("jax-breakpoint", "debugger", needs=("jax",)),
    # It gathers alone, in the group in which the others reduce their gradients.
    eighteenth.framework("trainer-logs", *MISMATCH, odd=0, ranks=3, needs=("torch", "transformers", "accelerate")),
    # It downloads its data for all, and the others wait for it in a barrier.
    eighteenth.framework("prepares-data", "network-io", "data-loading", odd=0, needs=("torch", "pytorch_lightning")),
    # Two calls in one group; the first rank gathers once more than the other one.
    eighteenth.at_odds("uneven-prompts", MISMATCH, MISMATCH, part="frameworks", needs=("torch", "accelerate")),
    # It saves, and waits for a loop of its own that has been stopped, and whose thread is gone.
    eighteenth.framework("closed-client", "checkpoint-io", "python-lock", "worker-dead", odd=2, ranks=3),
    # It compiles, and waits in the store for what rank 0 would have compiled.
    eighteenth.framework("compiled-elsewhere", "compiling", "store-wait", odd=2, ranks=3),
    # It has raised, and writes to a file that takes nothing.
    eighteenth.framework("error-file", "exception", "file-io", launch="torchrun"),

    # A child of the second rank is stopped most of the time, for which nobody waits; the first rank waits for the second one.
    eighteenth.well("paused-evaluator"),
    # A thread of each rank reads a command that nobody types; the first rank waits for the second one.
    eighteenth.well("open-console"),
    # A thread of the second rank waits for a server that never answers, and nobody for the thread; the first rank waits for the second one.
    eighteenth.well("unanswered-report"),
    # The other ranks wait in the store most of the time, for a second and a half, and raise and catch in each step.
    eighteenth.well("short-waits", ranks=3),
    # The second rank waits for a process that has just been started, and the first one for the second one.
    eighteenth.well("spawned-scorers"),
    # The second rank is in the handler of a signal half of the time, and the first one waits for it.
    eighteenth.well("saves-on-signal", launch="torchrun"),
    # The second rank is in the launch of a kernel nearly all the time, and the first one in that of a reduction.
    eighteenth.well("blocking-launches", environment={"CUDA_LAUNCH_BLOCKING": "1"}),
    # The last rank waits for a message most of the time, and gets it; the first one waits for the second one.
    eighteenth.well("reward-connections", ranks=3),

    # Kinds of jobs that the others lack. The monitor aborts rank 0, which waits for the odd rank; this one gets a SIGABRT later, to leave a core.
    kind_from_monitor("heartbeat-destroy", "network-io"),
    kind_from_monitor("heartbeat-store", "file-io", TORCH_NCCL_DESYNC_DEBUG="1"),
    # There is one process, and what its callback waits for holds it up.
    kind_in_one_process("jax-host-callback", "file-io", needs=("jax",)),
    # The main thread waits for its threads, one of which waits for a server.
    kind_in_one_process("two-threads", "network-io", "python-lock"),
    kind("inline-extension", "gpu-wait", programs=("nvcc", "g++", "ninja")),
    kind("cublaslt-backward", "network-io"),
    kind("mpi-buffers", "file-io", launch="mpirun", needs=("mpi4py", "cupy")),
    # A SIGABRT of the driver's, once the GPU has left its core.
    kind("core-illegal-address", "crashed", cores=True, gpu_cores=True),
    kind_well("jax-mesh", ranks=1, gpus=2, needs=("jax",)),
    kind_well("two-replicas", ranks=1, gpus=2),
    kind_well("data-parallel", ranks=1, gpus=2),
]
HELD_OUT += [fourth.core(case) for case in HELD_OUT if case.name in ("fourth-bucket-hook", "fourth-nan-loss")]
HELD_OUT += [fifth.core(case) for case in HELD_OUT if case.name in ("fifth-reentrant", "fifth-lazy-import", "fifth-microbatches")]
HELD_OUT += [sixth.core(case) for case in HELD_OUT if case.name in ("sixth-nested-pool", "sixth-stateful-loader", "sixth-batch-norm")]
HELD_OUT += [seventh.core(case) for case in HELD_OUT
             if case.name in ("seventh-thread-barrier", "seventh-stream-lock", "seventh-gradient-sync")]
HELD_OUT += [eighth.core(case) for case in HELD_OUT
             if case.name in ("eighth-stop-server", "eighth-none-gradient", "eighth-compressed-save")]
HELD_OUT += [ninth.core(case) for case in HELD_OUT if case.name in ("ninth-callback-lock", "ninth-actor-and-critic")]
HELD_OUT += [tenth.core(case) for case in HELD_OUT if case.name in ("tenth-notify-one", "tenth-balanced-batches")]
HELD_OUT += [eleventh.core(case) for case in HELD_OUT
             if case.name in ("eleventh-full-metrics-queue", "eleventh-recompute-lock", "eleventh-scripted-loop")]
HELD_OUT += [twelfth.core(case) for case in HELD_OUT
             if case.name in ("twelfth-locked-database", "twelfth-zero-bubble", "twelfth-traced-table", "twelfth-frozen-layer")]
HELD_OUT += [thirteenth.core(case) for case in HELD_OUT
             if case.name in ("thirteenth-pool-initializer", "thirteenth-unfreezes-early", "thirteenth-failed-samples")]
HELD_OUT += [fourteenth.core(case) for case in HELD_OUT
             if case.name in ("fourteenth-persistent-kernel", "fourteenth-follows-records", "fourteenth-clock-checkpoint")]
HELD_OUT += [fifteenth.core(case) for case in HELD_OUT
             if case.name in ("fifteenth-embedding-rows", "fifteenth-label-clock", "fifteenth-rolls-back")]
HELD_OUT += [sixteenth.core(case) for case in HELD_OUT
             if case.name in ("sixteenth-clipped-offload", "sixteenth-legacy-stream", "sixteenth-unpicklable-metrics")]
HELD_OUT += [seventeenth.core(case) for case in HELD_OUT
             if case.name in ("seventeenth-barrier-phase", "seventeenth-loader-lock", "seventeenth-still-waiting")]
HELD_OUT += [eighteenth.core(case) for case in HELD_OUT
             if case.name in ("eighteenth-import-pool", "eighteenth-once-again", "eighteenth-lost-notify")]
CASES += HELD_OUT
