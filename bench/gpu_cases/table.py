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


def field(case, *reasons, odd=1, program="field.py", **options):
    return GpuCase("field-" + case, program, (case,), Truth("culprit", {odd: reasons}), odd=(odd,), **options)


def field_group(case, *reasons, odd=2, ranks=3, **options):
    return field(case, *reasons, odd=odd, program="field_groups.py", ranks=ranks, **options)


def field_framework(case, *reasons, odd=1, needs=(), **options):
    return field(case, *reasons, odd=odd, program="field_frameworks.py", needs=("torch", *needs), **options)


def field_well(case, **options):
    return GpuCase("field-well-" + case, "field_well.py", (case,), Truth("healthy"), **options)


def third(case, *reasons, odd=1, program="third.py", **options):
    return GpuCase("third-" + case, program, (case,), Truth("culprit", {odd: reasons}), odd=(odd,), **options)


def third_group(case, *reasons, odd=2, ranks=3, **options):
    return third(case, *reasons, odd=odd, program="third_groups.py", ranks=ranks, **options)


def third_well(case, **options):
    return GpuCase("third-well-" + case, "third_well.py", (case,), Truth("healthy"), **options)


def fourth(case, *reasons, odd=1, program="fourth.py", **options):
    return GpuCase("fourth-" + case, program, (case,), Truth("culprit", {odd: reasons}), odd=(odd,), **options)


def fourth_framework(case, *reasons, **options):
    return fourth(case, *reasons, program="fourth_frameworks.py", **options)


def fourth_group(case, *reasons, **options):
    """Two ranks in conflict, neither of which is more right."""
    return GpuCase("fourth-" + case, "fourth_groups.py", (case,), culprit(r0=reasons, r1=reasons), **options)


def fourth_well(case, **options):
    return GpuCase("fourth-well-" + case, "fourth_well.py", (case,), Truth("healthy"), **options)


def fourth_core(case):
    """As from_watchdog()."""
    return dataclasses.replace(from_watchdog(case), name=case.name.replace("fourth-", "fourth-cores-"))


def fifth(case, *reasons, odd=1, program="fifth.py", **options):
    return GpuCase("fifth-" + case, program, (case,), Truth("culprit", {odd: reasons}), odd=(odd,), **options)


def fifth_framework(case, *reasons, **options):
    return fifth(case, *reasons, program="fifth_frameworks.py", **options)


def fifth_group(case, *reasons, **options):
    return fifth(case, *reasons, program="fifth_groups.py", **options)


def fifth_well(case, **options):
    return GpuCase("fifth-well-" + case, "fifth_well.py", (case,), Truth("healthy"), **options)


def fifth_core(case):
    """As from_watchdog()."""
    return dataclasses.replace(from_watchdog(case), name=case.name.replace("fifth-", "fifth-cores-"))


def sixth(case, *reasons, odd=1, program="sixth.py", **options):
    return GpuCase("sixth-" + case, program, (case,), Truth("culprit", {odd: reasons}), odd=(odd,), **options)


def sixth_framework(case, *reasons, **options):
    return sixth(case, *reasons, program="sixth_frameworks.py", **options)


def sixth_group(case, *reasons, odd=2, ranks=3, **options):
    return sixth(case, *reasons, odd=odd, program="sixth_groups.py", ranks=ranks, **options)


def sixth_well(case, **options):
    return GpuCase("sixth-well-" + case, "sixth_well.py", (case,), Truth("healthy"), **options)


def sixth_core(case):
    """As from_watchdog()."""
    return dataclasses.replace(from_watchdog(case), name=case.name.replace("sixth-", "sixth-cores-"))


def seventh(case, *reasons, odd=1, program="seventh.py", **options):
    return GpuCase("seventh-" + case, program, (case,), Truth("culprit", {odd: reasons}), odd=(odd,), **options)


def seventh_framework(case, *reasons, **options):
    return seventh(case, *reasons, program="seventh_frameworks.py", **options)


def seventh_group(case, *reasons, **options):
    return seventh(case, *reasons, program="seventh_groups.py", **options)


def seventh_at_odds(case, program, **options):
    """Two ranks that wait in two groups, neither of which is more right."""
    reasons = ("collective-mismatch", "process-group-order")
    return GpuCase("seventh-" + case, program, (case,), culprit(r0=reasons, r1=reasons), **options)


def seventh_well(case, **options):
    return GpuCase("seventh-well-" + case, "seventh_well.py", (case,), Truth("healthy"), **options)


def seventh_core(case):
    """As from_watchdog()."""
    return dataclasses.replace(from_watchdog(case), name=case.name.replace("seventh-", "seventh-cores-"))


def eighth(case, *reasons, odd=1, program="eighth.py", **options):
    return GpuCase("eighth-" + case, program, (case,), Truth("culprit", {odd: reasons}), odd=(odd,), **options)


def eighth_framework(case, *reasons, **options):
    return eighth(case, *reasons, program="eighth_frameworks.py", **options)


def eighth_group(case, *reasons, odd=2, ranks=4, **options):
    return eighth(case, *reasons, odd=odd, program="eighth_groups.py", ranks=ranks, **options)


def eighth_well(case, **options):
    return GpuCase("eighth-well-" + case, "eighth_well.py", (case,), Truth("healthy"), **options)


def eighth_core(case):
    """As from_watchdog()."""
    return dataclasses.replace(from_watchdog(case), name=case.name.replace("eighth-", "eighth-cores-"))


def ninth(case, *reasons, odd=1, program="ninth.py", **options):
    return GpuCase("ninth-" + case, program, (case,), Truth("culprit", {odd: reasons}), odd=(odd,), **options)


def ninth_framework(case, *reasons, **options):
    return ninth(case, *reasons, program="ninth_frameworks.py", **options)


def ninth_group(case, *reasons, **options):
    return ninth(case, *reasons, program="ninth_groups.py", **options)


def ninth_at_odds(case, *reasons, **options):
    """Two ranks that wait for each other at different places, neither of which is more right."""
    return GpuCase("ninth-" + case, "ninth_frameworks.py", (case,), culprit(r0=reasons, r1=reasons), **options)


def ninth_well(case, **options):
    return GpuCase("ninth-well-" + case, "ninth_well.py", (case,), Truth("healthy"), **options)


def ninth_core(case):
    """As from_watchdog()."""
    return dataclasses.replace(from_watchdog(case), name=case.name.replace("ninth-", "ninth-cores-"))


def tenth(case, *reasons, odd=1, program="tenth.py", **options):
    return GpuCase("tenth-" + case, program, (case,), Truth("culprit", {odd: reasons}), odd=(odd,), **options)


def tenth_data(case, *reasons, **options):
    return tenth(case, *reasons, program="tenth_data.py", **options)


def tenth_group(case, *reasons, **options):
    return tenth(case, *reasons, program="tenth_groups.py", **options)


def tenth_well(case, **options):
    return GpuCase("tenth-well-" + case, "tenth_well.py", (case,), Truth("healthy"), **options)


def tenth_core(case):
    """As from_watchdog()."""
    return dataclasses.replace(from_watchdog(case), name=case.name.replace("tenth-", "tenth-cores-"))


def eleventh(case, *reasons, odd=1, program="eleventh.py", **options):
    return GpuCase("eleventh-" + case, program, (case,), Truth("culprit", {odd: reasons}), odd=(odd,), **options)


def eleventh_framework(case, *reasons, **options):
    return eleventh(case, *reasons, program="eleventh_frameworks.py", **options)


def eleventh_at_odds(case, *reasons, **options):
    """Two ranks in conflict, neither of which is more right."""
    return GpuCase("eleventh-" + case, "eleventh_groups.py", (case,), culprit(r0=reasons, r1=reasons), **options)


def eleventh_well(case, **options):
    return GpuCase("eleventh-well-" + case, "eleventh_well.py", (case,), Truth("healthy"), **options)


def eleventh_core(case):
    """As from_watchdog()."""
    return dataclasses.replace(from_watchdog(case), name=case.name.replace("eleventh-", "eleventh-cores-"))


def twelfth(case, *reasons, odd=1, program="twelfth.py", **options):
    return GpuCase("twelfth-" + case, program, (case,), Truth("culprit", {odd: reasons}), odd=(odd,), **options)


def twelfth_framework(case, *reasons, **options):
    return twelfth(case, *reasons, program="twelfth_frameworks.py", **options)


def twelfth_at_odds(case, first, second=None, **options):
    """Two ranks in conflict, neither of which is more right. `first`, `second`: the reasons of each; those of both where there is no second."""
    return GpuCase("twelfth-" + case, "twelfth_groups.py", (case,), culprit(r0=first, r1=second or first), **options)


def twelfth_well(case, **options):
    return GpuCase("twelfth-well-" + case, "twelfth_well.py", (case,), Truth("healthy"), **options)


def twelfth_core(case):
    """As from_watchdog()."""
    return dataclasses.replace(from_watchdog(case), name=case.name.replace("twelfth-", "twelfth-cores-"))


def thirteenth(case, *reasons, odd=1, program="thirteenth.py", **options):
    return GpuCase("thirteenth-" + case, program, (case,), Truth("culprit", {odd: reasons}), odd=(odd,), **options)


def thirteenth_group(case, *reasons, **options):
    return thirteenth(case, *reasons, program="thirteenth_groups.py", **options)


def thirteenth_at_odds(case, *by_rank, program="thirteenth_groups.py", odd=1, **options):
    """Ranks in conflict, none of which is more right. `by_rank`: the reasons of each."""
    return GpuCase("thirteenth-" + case, program, (case,), Truth("culprit", dict(enumerate(by_rank))), odd=(odd,), ranks=len(by_rank), **options)


def thirteenth_framework_at_odds(case, *by_rank, **options):
    return thirteenth_at_odds(case, *by_rank, program="thirteenth_frameworks.py", **options)


def thirteenth_well(case, **options):
    return GpuCase("thirteenth-well-" + case, "thirteenth_well.py", (case,), Truth("healthy"), **options)


def thirteenth_core(case):
    """As from_watchdog()."""
    return dataclasses.replace(from_watchdog(case), name=case.name.replace("thirteenth-", "thirteenth-cores-"))


def fourteenth(case, *reasons, odd=1, program="fourteenth.py", **options):
    return GpuCase("fourteenth-" + case, program, (case,), Truth("culprit", {odd: reasons}), odd=(odd,), **options)


def fourteenth_group(case, *reasons, odd=2, ranks=4, **options):
    return fourteenth(case, *reasons, odd=odd, program="fourteenth_groups.py", ranks=ranks, **options)


def fourteenth_well(case, **options):
    return GpuCase("fourteenth-well-" + case, "fourteenth_well.py", (case,), Truth("healthy"), **options)


def fourteenth_core(case):
    """As from_watchdog()."""
    return dataclasses.replace(from_watchdog(case), name=case.name.replace("fourteenth-", "fourteenth-cores-"))


def fifteenth(case, *reasons, odd=1, program="fifteenth.py", **options):
    return GpuCase("fifteenth-" + case, program, (case,), Truth("culprit", {odd: reasons}), odd=(odd,), **options)


def fifteenth_group(case, *reasons, odd=2, ranks=3, **options):
    return fifteenth(case, *reasons, odd=odd, program="fifteenth_groups.py", ranks=ranks, **options)


def fifteenth_framework(case, *reasons, **options):
    return fifteenth(case, *reasons, program="fifteenth_frameworks.py", **options)


def fifteenth_at_odds(case, *by_rank, program="fifteenth_frameworks.py", odd=(1,), **options):
    """Ranks in conflict, none of which is more right. `by_rank`: the reasons of each."""
    return GpuCase("fifteenth-" + case, program, (case,), Truth("culprit", dict(enumerate(by_rank))), odd=odd, ranks=len(by_rank), **options)


def fifteenth_well(case, **options):
    return GpuCase("fifteenth-well-" + case, "fifteenth_well.py", (case,), Truth("healthy"), **options)


def fifteenth_core(case):
    """As from_watchdog()."""
    return dataclasses.replace(from_watchdog(case), name=case.name.replace("fifteenth-", "fifteenth-cores-"))


def sixteenth(case, *reasons, odd=1, program="sixteenth.py", **options):
    return GpuCase("sixteenth-" + case, program, (case,), Truth("culprit", {odd: reasons}), odd=(odd,), **options)


def sixteenth_group(case, *reasons, odd=2, ranks=3, **options):
    return sixteenth(case, *reasons, odd=odd, program="sixteenth_groups.py", ranks=ranks, **options)


def sixteenth_framework(case, *reasons, **options):
    return sixteenth(case, *reasons, program="sixteenth_frameworks.py", **options)


def sixteenth_at_odds(case, *by_rank, program="sixteenth_frameworks.py", odd=(1,), **options):
    """Ranks in conflict, none of which is more right. `by_rank`: the reasons of each."""
    return GpuCase("sixteenth-" + case, program, (case,), Truth("culprit", dict(enumerate(by_rank))), odd=odd, ranks=len(by_rank), **options)


def sixteenth_well(case, **options):
    return GpuCase("sixteenth-well-" + case, "sixteenth_well.py", (case,), Truth("healthy"), **options)


def sixteenth_core(case):
    """As from_watchdog()."""
    return dataclasses.replace(from_watchdog(case), name=case.name.replace("sixteenth-", "sixteenth-cores-"))


def seventeenth(case, *reasons, odd=1, program="seventeenth.py", **options):
    return GpuCase("seventeenth-" + case, program, (case,), Truth("culprit", {odd: reasons}), odd=(odd,), **options)


def seventeenth_group(case, *reasons, odd=2, ranks=3, **options):
    return seventeenth(case, *reasons, odd=odd, program="seventeenth_groups.py", ranks=ranks, **options)


def seventeenth_framework(case, *reasons, **options):
    return seventeenth(case, *reasons, program="seventeenth_frameworks.py", **options)


def seventeenth_well(case, **options):
    return GpuCase("seventeenth-well-" + case, "seventeenth_well.py", (case,), Truth("healthy"), **options)


def seventeenth_core(case):
    """As from_watchdog()."""
    return dataclasses.replace(from_watchdog(case), name=case.name.replace("seventeenth-", "seventeenth-cores-"))


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
    field("triton-lock", "gpu-wait", needs=("torch", "triton")),
    # The main thread waits for the GPU, whose kernel waits for a thread, which waits for a server.
    field("mapped-flag", "network-io", "gpu-wait", needs=("torch", "cupy")),
    field("grid-barrier", "gpu-wait", needs=("torch", "cupy")),
    field("prefetch-stream", "gpu-wait"),
    # The main thread waits for a stream, which waits for a function, which reads a file.
    field("host-function", "file-io", "gpu-wait"),
    # The other rank is in a finalizer, which only waits.
    field("finalizer-sync", "network-io"),
    field("coalesced", "python-lock"),
    field("waiting-thread", "subprocess"),
    # It sleeps in the handler of the exception, in a loop that does not end.
    field("memory-retry", "exception", "user-code"),
    # The debugger was opened by the handler of an exception.
    field("post-mortem", "debugger", "exception"),
    # As of inside-offload: the thread that would fill the queue has ended.
    field("reward-thread", "worker-dead", "python-lock"),
    # The main thread waits for threads, which wait for a server.
    field("reward-server", "network-io", "python-lock"),
    # The process that had the task is dead, and another one in its place; the main thread waits for a result that is its data.
    field("pool-killed", "worker-dead", "data-loading", "python-lock"),
    # The loader's worker waits for a program.
    field("decoder", "data-loading", "subprocess"),
    field("shards-end", "missing", odd=2, ranks=3, environment={"TORCH_NCCL_ASYNC_ERROR_HANDLING": "0"}),
    # It moves, in a loop that it does not leave.
    field("endless-rollout", "user-code", odd=2, ranks=3),
    # The others poll shared memory for the step that it hands out.
    field("shared-memory-engine", "network-io", odd=0, ranks=3),

    # One of three or four waits in another group than the others, which wait for it in theirs: both reasons are said, as of group-or-reduce.
    field_group("graph-skipped", "collective-mismatch", "process-group-order"),
    field_group("first-use", "collective-mismatch", "process-group-order"),
    # Its peer is in no receive.
    field_group("extra-send", "unmatched-p2p", odd=1),
    # All are at the same place, and each waits for the next one.
    GpuCase("field-ring-sends", "field_groups.py", ("ring-sends",), Truth("symmetric"), ranks=4),
    field_group("skipped-experts", "collective-mismatch", ranks=4),
    # A circle of two groups and a lock in each rank; neither rank is more right.
    GpuCase("field-communication-lock", "field_groups.py", ("communication-lock",),
            Truth("culprit", dict.fromkeys((0, 1), ("process-group-order", "python-lock")))),
    # It has raised, and calls a collective in its handler.
    field_group("emergency-save", "exception", "collective-mismatch"),
    field_group("preempted", "collective-mismatch", "process-group-order"),
    # It is still in the epoch that the others have ended, and waits in another group.
    field_group("longer-epoch", "collective-mismatch", "process-group-order", "behind", ranks=4),
    field_group("joined", "collective-mismatch", "process-group-order"),
    # Two ranks that disagree about what is sent. Over sockets the sizes may be found to differ, which fails.
    GpuCase("field-names-order", "field_groups.py", ("names-order",), culprit(r0="collective-mismatch", r1="collective-mismatch"), own_gpus=True),
    field_group("resumed", "collective-mismatch", "process-group-order"),

    field_framework("async-save", "checkpoint-io"),
    # Another group, as above.
    field_framework("full-state", "collective-mismatch", "process-group-order", odd=0, ranks=3),
    field_framework("not-finite", "collective-mismatch", odd=3, ranks=4),
    # The compiler's pass is a function of the job.
    field_framework("recompiles", "compiling", "user-code"),
    field_framework("gathered-metric", "collective-mismatch", odd=0, ranks=3, needs=("accelerate",)),
    field_framework("main-process-first", "file-io", odd=0, ranks=3, needs=("accelerate",)),
    field_framework("trainer-evaluates", "collective-mismatch", odd=0, ranks=3, needs=("transformers", "accelerate")),
    field_framework("lightning-log", "collective-mismatch", odd=2, ranks=3, needs=("pytorch_lightning",)),
    field_framework("lightning-stops", "network-io", odd=2, ranks=3, needs=("pytorch_lightning",)),
    field_framework("lightning-checkpoint", "checkpoint-io", odd=0, ranks=3, needs=("pytorch_lightning",)),

    field_well("accumulation", alone=True),
    field_well("disk-log"),
    field_well("evaluation", odd=(0,), ranks=3),
    field_well("server", odd=(0,), ranks=3),
    field_well("compiled"),
    field_well("matrices", alone=True),
    field_well("offloaded"),
    field_well("slow-loader", ranks=3),
    field_well("decoding", ranks=3),
    field_well("one-kernel", alone=True),
    field_well("async-save"),
    field_well("several-epochs", ranks=4),

    # The third batch. What holds the odd rank up is in its own process.
    third("worker-mutex", "data-loading"),
    # The other rank gives memory back to the driver, which waits for the all-reduce.
    third("allocator-retry", "network-io"),
    # It is within an import, and has no process group yet.
    third("importing", "network-io"),
    third("store-keys", "file-io"),
    # It sleeps in the handler of a signal.
    third("signal-handler", "user-code"),
    third("question", "debugger"),
    third("spectrum", "user-code"),
    third("join-before-get", "subprocess"),
    # asyncio's loop has nothing to do; what it waits for is an event that a task of the rank should set, which has failed.
    third("lost-task", "network-io", "python-lock"),
    # It waits for its data, by a condition of a library in its process.
    third("native-loader", "native-lock", "data-loading"),
    # The others wait over gloo, with nothing on their GPUs.
    third("host-gradients", "gpu-wait"),
    # The thread that reads a device keeps the interpreter's lock, for which the main thread waits.
    third("holds-gil", "file-io", "python-lock"),

    # The others wait in two groups: one for the odd rank, one for a rank that waits for it.
    third_group("optimizer", "user-code", odd=3, ranks=4),
    # It has what rank 0 sent, and is still within that call.
    third_group("unpickles", "network-io", odd=1, ranks=2),
    # It is done with the pipeline; the stages before it wait for its messages, as they should.
    third_group("micro-batch", "collective-mismatch"),
    # Another group than the others', within the collector.
    third_group("metric-collected", "collective-mismatch", "process-group-order", "garbage-collection"),
    # The others make a group, which takes all ranks.
    # Its main thread waits for rank 0, which waits for a thread of it.
    third_group("remote-evaluation", "network-io", odd=1, ranks=2),
    # A barrier in the store of JAX's coordination service, which the others do not come to.
    third_group("jax-barrier", "collective-mismatch", "store-wait", needs=("jax",)),

    third_well("host-turns"),
    third_well("host-metrics", odd=(0,), ranks=3),
    third_well("large-checkpoints"),
    third_well("idle-engine"),
    third_well("warm-up", needs=("torch", "triton")),
    third_well("preprocessing"),
    third_well("one-process", ranks=1),
    third_well("spare-batches", alone=True),
    third_well("jax-generation", needs=("jax",)),

    # The fourth batch: two ranks each. The other rank waits for a file's lock, which the odd one holds while it computes.
    fourth("corpus-lock", "user-code"),
    # Its main thread waits for itself.
    fourth("signal-lock", "python-lock"),
    # It is the collector that calls the finalizer, which waits for a lock that the main thread itself holds.
    fourth("collector-lock", "garbage-collection", "python-lock"),
    fourth("tokenizer-pool", "python-lock", environment={"CUDA_LAUNCH_BLOCKING": "1"}),
    # Its child waits for a server. The other rank waits in the store, with a timeout, again and again.
    fourth("store-retry", "subprocess", "network-io"),
    fourth("full-pipe", "subprocess", odd=0),
    # The child that has stopped it has ended.
    fourth("suspended", "stopped"),
    # The main thread waits for a thread that feeds it, which waits for the GPU.
    fourth("copying-thread", "gpu-wait", "data-loading"),
    # What feeds it is dead, and what it waits for, by polling, is its data.
    fourth("graph-inputs", "worker-dead", "data-loading"),
    fourth("hash-table", "gpu-wait", needs=("torch", "triton")),
    # Its main thread waits for itself, by a lock of a library.
    fourth("block-table", "native-lock"),
    # It waits for its data, whose worker is stopped.
    fourth("worker-stopped", "data-loading", "stopped"),
    fourth("early-stop", "missing", launch="torchrun", environment={"TORCH_NCCL_ASYNC_ERROR_HANDLING": "0"}),
    # A SIGBUS.
    fourth("truncated-tokens", "crashed", cores=True, environment={"TORCH_NCCL_ASYNC_ERROR_HANDLING": "0"}),

    # The compiler is a child process.
    fourth_framework("augment", "compiling", "subprocess", needs=("torch", "triton")),
    # It looks for a lock that is a file again and again, and sleeps in between.
    fourth_framework("interleaved", "file-io", "user-code"),
    # It opens a file of the checkpoint.
    fourth_framework("loading", "checkpoint-io", "file-io"),
    # It sends its checkpoint to a server.
    fourth_framework("full-state-dict", "network-io", "checkpoint-io", odd=0),
    # SQLite looks for the lock of a file again and again; a database may be called a server, too.
    fourth_framework("sequence-parallel", "file-io", "network-io"),
    # A thread of it has ended, that would empty the queue for which autograd's thread waits.
    fourth_framework("bucket-hook", "python-lock", "worker-dead"),

    # They wait in two groups.
    fourth_group("consolidate", "collective-mismatch", "process-group-order"),
    # The odd rank is ahead by a backward pass that it has skipped. Over sockets the sizes may be found to differ, which fails.
    fourth_group("nan-loss", *MISMATCH, own_gpus=True),
    fourth_group("recomputed-scale", "collective-mismatch", "process-group-order"),
    # The same broadcast, of which each takes itself for the source.
    fourth_group("best-rank", "collective-mismatch", own_gpus=True),
    # One sends, one receives, but not the same message.
    fourth_group("tags", "unmatched-p2p"),
    fourth_group("vocabularies", "collective-mismatch"),
    # Two calls in one group, in another order; each rank waits in both.
    fourth_group("metrics-thread", "collective-mismatch", "process-group-order"),

    fourth_well("polling-server"),
    fourth_well("uneven-evaluation"),
    fourth_well("offloaded-shards"),
    fourth_well("distributed-checkpoints"),
    fourth_well("slow-stage"),
    fourth_well("context-parallel"),
    fourth_well("autotuning", needs=("torch", "triton")),
    fourth_well("policy-gradient"),
    fourth_well("collating"),

    # The fifth batch. The main thread waits for the interpreter's lock, which a thread keeps that computes.
    fifth("redact-logs", "user-code", "python-lock"),
    # A circle: the main thread waits for autograd's thread, which waits for a lock that the main thread holds.
    fifth("reentrant", "python-lock"),
    # The debugger waits for a connection, before any command is read.
    fifth("remote-debugger", "debugger", "network-io"),
    # It waits for its GPU, and there for its batch, which another process has not computed.
    fifth("shared-batches", "gpu-wait", "data-loading"),
    # It writes to a pipe that is not read.
    fifth("profiled", "file-io"),
    fifth("nccl-log", "file-io"),
    # What feeds it reads a file before its first batch.
    fifth("epoch-workers", "data-loading"),
    fifth("handshake", "network-io"),
    # Nobody will release the semaphore; its threads have nothing to do.
    fifth("in-flight", "python-lock"),
    # The main thread waits for the lock of an import, which a thread has that waits for a server.
    fifth("lazy-import", "network-io", "python-lock"),

    # The compiler is a process of Inductor's pool.
    fifth_framework("compile-workers", "compiling", "subprocess", needs=("torch", "triton")),
    # It waits for its GPU within Triton's tuner, which is part of compiling.
    fifth_framework("autotuned", "gpu-wait", "compiling", needs=("torch", "triton")),
    # Two ranks that disagree, of which one is ahead. Over sockets the sizes may be found to differ, which fails.
    GpuCase("fifth-conditional-block", "fifth_frameworks.py", ("conditional-block",), culprit(r0=MISMATCH, r1=MISMATCH), own_gpus=True),
    # One of three waits in another group than the others, as of field-graph-skipped.
    fifth_framework("grad-scaler", "collective-mismatch", "process-group-order", odd=2, ranks=3),
    # It receives once more than its peer sends, which is in an all-reduce.
    fifth_framework("microbatches", "unmatched-p2p", "collective-mismatch"),
    # It has left out the all-reduce in which its replica waits for it, and waits with the two others, which do as they should.
    fifth_framework("hybrid", "collective-mismatch", "process-group-order", odd=3, ranks=4),
    fifth_framework("cached-download", "collective-mismatch", "process-group-order", odd=0, ranks=3),

    # The same call as rank 0, with other sizes, by which it is not done with that; rank 0 is in the next one.
    fifth_group("expert-splits", "collective-mismatch", "behind", own_gpus=True),
    # Neither rank is more right. If the layers that both have pass, they wait in two groups.
    GpuCase("fifth-coalesced", "fifth_groups.py", ("coalesced",), culprit(r0=("collective-mismatch", "process-group-order"),
                                                                         r1=("collective-mismatch", "process-group-order")), own_gpus=True),
    # A kernel of it, not one of a collective, waits for what the other rank does not send.
    fifth_group("signals", "gpu-wait", "unmatched-p2p", own_gpus=True),
    # The other rank waits in a kernel of its own for what the odd one writes.
    fifth_group("halo", "user-code", own_gpus=True, needs=("torch", "triton")),
    # The same call over the same group, with another destination.
    fifth_group("gather-destination", "collective-mismatch", odd=2, ranks=3),
    # It makes a group of the ranks, which wait for it in a collective.
    fifth_group("split", "collective-mismatch", "process-group-order", odd=2, ranks=3),
    fifth_group("captured", "collective-mismatch", "process-group-order", odd=2, ranks=3),

    fifth_well("index-marker"),
    fifth_well("traced"),
    fifth_well("speculative"),
    fifth_well("signalled", own_gpus=True),
    fifth_well("population"),
    fifth_well("forked-save"),

    # The sixth batch. The rank waits at a socket for a process of its own.
    sixth("run-service", "subprocess", "network-io", odd=0),
    # It writes to a pipe that its child does not read; the child does so, too.
    sixth("tokenizer-pipes", "subprocess", "file-io"),
    # It sleeps in its dataset, between two requests.
    sixth("throttled-shards", "data-loading", "user-code"),
    sixth("forked-threads", "data-loading"),
    # Its main thread waits for itself.
    sixth("engine-loop", "python-lock"),
    sixth("nested-pool", "python-lock"),
    sixth("forked-pool", "subprocess"),
    sixth("split-k", "gpu-wait", needs=("torch", "triton"), alone=True),
    # It waits in the handler of a signal.
    sixth("reaper", "subprocess"),
    # It writes in the handler of an exception.
    sixth("memory-snapshot", "file-io", "exception"),
    # It saves, and waits for a lock that a process of its own has.
    sixth("flash-checkpoint", "checkpoint-io", "subprocess"),

    sixth_framework("custom-op", "network-io", needs=("torch", "triton")),
    # A circle of the main thread and a thread of its loader, while it saves.
    sixth_framework("stateful-loader", "python-lock", "checkpoint-io"),
    # The main thread waits for a thread, which reads a file.
    sixth_framework("swap-in", "file-io", "python-lock"),
    # Its dataset waits for a server.
    sixth_framework("dispatched-batches", "data-loading", "network-io", odd=0, ranks=3),
    # What it does alone is to compile, and there it waits in another group than the others.
    sixth_framework("compiler-collectives", "compiling", "collective-mismatch", "process-group-order", odd=2, ranks=3, needs=("torch", "triton"),
                    environment={"TORCH_COMPILER_COLLECTIVES": "1"}),
    sixth_framework("own-communicator", "user-code"),

    # Rank 0 waits for a place in the ring, the other worker in a group without rank 0.
    sixth_group("message-ring", "file-io"),
    # Rank 0 waits at a socket for the odd rank, not in a collective.
    sixth_group("weight-handles", "user-code", odd=1, ranks=2),
    # It waits in the handler of an exception.
    sixth_group("restart", "store-wait", "exception"),
    sixth_group("epoch-key", "store-wait", odd=1, ranks=2),
    # One of three waits in another group than the others, as of field-graph-skipped.
    sixth_group("contrastive", "collective-mismatch", "process-group-order"),
    sixth_group("generation-length", "collective-mismatch", "process-group-order"),
    sixth_group("batch-norm", "collective-mismatch", "process-group-order"),

    sixth_well("unequal-texts", ranks=3),
    sixth_well("local-steps", ranks=4),
    sixth_well("data-server"),
    sixth_well("captures"),
    sixth_well("slow-run-service", ranks=3),
    sixth_well("swapped-state"),

    # The seventh batch: two ranks each. The command has ended, and a child of it keeps the pipe that the rank reads.
    seventh("daemon-pipe", "subprocess", "file-io"),
    # It reads its standard input, for what a person would type.
    seventh("token-prompt", "debugger", "file-io"),
    # Its loader's worker waits for a process of the rank, which waits for a server.
    seventh("manager-cache", "data-loading", "network-io", "subprocess"),
    seventh("status-page", "network-io"),
    # The main thread joins threads that wait in a barrier for one that has ended.
    seventh("thread-barrier", "python-lock", "worker-dead"),
    # The process that has the lock is dead.
    seventh("killed-owner", "worker-dead", "python-lock"),
    # The main thread of the other rank waits for a thread of its own, which waits for the GPU.
    seventh("logged-loss", "file-io"),
    # It waits for a server in the handler of an exception.
    seventh("alert", "network-io", "exception"),
    # It sleeps in the hook for exceptions that nobody has caught.
    seventh("kept-alive", "exception", "user-code", launch="torchrun"),
    seventh("stack-dump", "file-io"),
    seventh("consumer-first", "gpu-wait", needs=("torch", "triton"), alone=True),
    # The main thread waits for the lock of a stream of the C library, which a thread has that reads a file.
    seventh("stream-lock", "file-io", "native-lock"),

    # The compiler asks a server.
    seventh_framework("compile-cache", "compiling", "network-io"),
    seventh_at_odds("gradient-sync", "seventh_frameworks.py", own_gpus=True),
    seventh_at_odds("saved-by-rank0", "seventh_frameworks.py"),
    # It opens a file with weights.
    seventh_framework("load-and-broadcast", "checkpoint-io", "file-io", odd=0),
    seventh_framework("optimizer-in-backward", "file-io"),
    seventh_at_odds("unused-parameters", "seventh_frameworks.py"),
    seventh_at_odds("dropped-layer", "seventh_frameworks.py"),

    # Both ranks are at the same place, and each waits for the other one.
    GpuCase("seventh-store-handshake", "seventh_groups.py", ("store-handshake",), Truth("symmetric")),
    seventh_at_odds("unsorted-names", "seventh_groups.py"),
    # It receives once more than its peer sends, which is in an all-reduce.
    seventh_group("reward-messages", "unmatched-p2p", "collective-mismatch", odd=0),
    # It waits in select() for a pipe; the other rank is in a send over gloo.
    seventh_group("operator-commands", "file-io", "user-code"),
    # As reward-messages, on the GPU.
    seventh_group("boundary", "unmatched-p2p", "collective-mismatch", odd=0, own_gpus=True),
    # Both ranks move: one computes without an end, the other one looks at a number in the store.
    seventh_group("counted-ranks", "user-code"),
    seventh_at_odds("patience", "seventh_groups.py"),

    seventh_well("large-heap"),
    seventh_well("code-reward"),
    seventh_well("locked-cache"),
    seventh_well("retried-batches"),
    seventh_well("idle-front-end"),
    seventh_well("all-communication", own_gpus=True),
    seventh_well("evaluation-thread"),

    # The eighth batch. Its program has ended, and the interpreter waits for a thread, which waits for a server.
    eighth("uploader-exit", "network-io", "exception", "python-lock"),
    # It writes to a terminal that takes nothing.
    eighth("paused-terminal", "file-io"),
    # It waits for its data, whose worker waits for the rank.
    eighth("hard-negatives", "data-loading"),
    # It is in a loop of the interpreter's own, within an expression, which has no end.
    eighth("endless-count", "user-code"),
    # The main thread waits for a thread of its own, which waits for another server.
    eighth("stop-server", "network-io", "python-lock"),
    # The debugger has stopped autograd's thread, for which the main thread waits.
    eighth("backward-breakpoint", "debugger"),
    # The process that would score has raised and ended; the rank, which waits for its scores, has not looked after it.
    eighth("forked-scorer", "worker-dead", "subprocess"),
    # The child, before it becomes a program, waits for a lock that nobody will release; the rank waits for the child.
    eighth("prepared-child", "subprocess"),

    # Rank 0 alone is in a collective of all ranks, which are in the barrier of another group.
    eighth_framework("whole-gradient", "collective-mismatch", "process-group-order", odd=0, ranks=3),
    # It has left out a reduction in which the others wait for it, and waits in another group.
    eighth_framework("none-gradient", "collective-mismatch", "process-group-order", odd=2, ranks=3),
    # It saves into the pipe of a child, which cannot write on.
    eighth_framework("compressed-save", "checkpoint-io", "subprocess", "file-io"),
    # The main thread waits for the compiler's lock, which a thread has that compiles and reads a file for that.
    eighth_framework("compiles-apart", "compiling", "file-io", "python-lock", needs=("torch", "triton")),

    # Its all-reduce cannot begin, as a kernel of its own fills its GPU; so it is the GPU of the odd rank that does not come to the collective.
    eighth_framework("overlapped", "gpu-wait", needs=("torch", "triton"), own_gpus=True, alone=True),
    # The driver waits for the rank's GPU, on which a kernel does not end.
    eighth_framework("empty-cache", "gpu-wait"),
    # A kernel that does not end is before all that it launches; both ranks wait for a place in the queue of launches.
    eighth_framework("runs-ahead", "gpu-wait"),
    # Autograd's thread waits for the GPU, on which a kernel of the rank does not end, and the main thread for autograd's.
    eighth_framework("backward-kernel", "gpu-wait", needs=("torch", "triton")),
    # As before, for a graph that the main thread has launched.
    eighth_framework("graph-loop", "gpu-wait", needs=("torch", "triton")),
    # Each waits on its GPU in a barrier to which the other one does not come; neither is more right.
    GpuCase("eighth-barrier-channels", "eighth_frameworks.py", ("barrier-channels",),
            culprit(r0=("collective-mismatch", "gpu-wait"), r1=("collective-mismatch", "gpu-wait")), own_gpus=True),

    # It exchanges once more than its pair, which has gone on with the others.
    eighth_group("overflow-round", "collective-mismatch", "process-group-order"),
    # It is at the end of the epoch; its pair waits for its batch, and the two others for the gradients of these two.
    eighth_group("batch-source", "collective-mismatch", "process-group-order"),
    # Rank 0 waits in its store for the odd rank, which waits for an answer of what it takes for the store.
    eighth_group("wrong-port", "store-wait", "network-io", odd=1, ranks=2),
    # The two others make a group, in which all ranks should take part; it is in a reduction of all.
    eighth_group("eager-subgroup", "collective-mismatch", "process-group-order", ranks=3, environment={"TORCH_DIST_INIT_BARRIER": "1"}),
    # It waits in another group, as its program ends.
    eighth_group("exit-barrier", "collective-mismatch", "process-group-order", "exception", ranks=3),
    # It counts a step ahead of the others, and waits in another group for them.
    eighth_group("stop-vote", "collective-mismatch", "process-group-order", ranks=3),
    # It has left out the stage in which rank 0 waits for it; the others do as they should.
    eighth_group("leaders", "collective-mismatch", "process-group-order"),
    # The rank that it waits for does no exchange; its own partner waits for it, as it should.
    eighth_group("gossip", "unmatched-p2p", odd=3),

    # The main threads learn and wait for what is seen, in turns.
    eighth_well("replay-buffer"),
    # Each step compiles, and ends.
    eighth_well("compiled-anew", needs=("torch", "triton")),
    # Rank 0 is idle between two messages, and the others compute.
    eighth_well("weight-server", ranks=3),
    # A request comes again and again, and in between all wait for rank 0, which waits for its clients.
    eighth_well("requests-over-nccl", ranks=3),
    # Ranks wait for their processes, which compute, and then for each other.
    eighth_well("evolution"),
    # One rank polls what the other one comes to a second later.
    eighth_well("polled-work"),
    # The second rank is slow in the driver, and the first one waits for it in its step.
    eighth_well("cache-emptied"),
    # Ranks compute for different times in Python, and meet.
    eighth_well("tree-search"),
    # The first rank waits for the second one in each step, for a second.
    eighth_well("sampled"),
    # The ranks sleep nearly all the time, as their GPUs compute.
    eighth_well("throttled-launches", alone=True),

    # The ninth batch. A circle: the main thread has the library's mutex and waits for the interpreter's lock, which a thread has that waits for
    # the mutex.
    ninth("callback-lock", "native-lock", "python-lock"),
    # The collector is called by a loop of the rank that does not end.
    ninth("memory-limit", "garbage-collection", "user-code"),
    ninth("artifact-upload", "network-io", odd=0),
    # Its loader's workers move, in a loop that they do not leave.
    ninth("bad-samples", "data-loading"),
    # It waits for a result of a thread of its own, which has ended.
    ninth("unpicklable-error", "worker-dead", "python-lock"),
    # The program is a child, which is stopped.
    ninth("stopped-program", "subprocess", "stopped"),
    # What it writes is an archive of a checkpoint.
    ninth("packed-checkpoint", "checkpoint-io", "file-io", odd=0, launch="torchrun"),
    # All ranks are at the same place, and wait for the same server.
    GpuCase("ninth-storage-outage", "ninth.py", ("storage-outage",), Truth("symmetric")),
    # The other rank polls for a file, not in a collective.
    ninth("marker-file", "subprocess", odd=0),
    # The other rank waits in the store, not in a collective.
    ninth("left-without-key", "missing", environment={"TORCH_NCCL_ASYNC_ERROR_HANDLING": "0"}),
    # Nobody will say that the last one is done; the thread has nothing to do.
    ninth("queue-join", "python-lock"),
    # A SIGABRT of its watchdog's.
    ninth("device-assert", "crashed", cores=True),

    ninth_framework("unrolled", "compiling"),
    # They wait in two groups.
    ninth_at_odds("empty-batch", "collective-mismatch", "process-group-order"),
    # Each waits in a receive for what the other one would send later.
    ninth_at_odds("two-schedules", "unmatched-p2p", "collective-mismatch"),
    # They wait in two groups.
    ninth_at_odds("wrapped-evaluation", "collective-mismatch", "process-group-order"),
    ninth_at_odds("actor-and-critic", "process-group-order", "collective-mismatch"),
    # Two calls in one group.
    ninth_at_odds("vocabulary-grows", "collective-mismatch"),
    ninth_framework("parents-cycle", "gpu-wait"),
    # It polls an event of its GPU, and sleeps in between.
    ninth_framework("empty-interval", "gpu-wait", "user-code", needs=("torch", "triton")),

    # It looks for what rank 0 has written into another file; rank 0 waits for it within NCCL.
    ninth_group("node-local-store", "store-wait"),
    # The same group, another call; the two others wait for it in theirs.
    ninth_group("gather-or-broadcast", "collective-mismatch", odd=2, ranks=3),
    # The others wait in two groups each, for the odd rank or for one that waits for it.
    ninth_group("replicated-shards", "network-io", odd=3, ranks=4),

    # Rank 0 is idle between two requests, and the other rank waits for what it sends.
    ninth_well("prefill-decode"),
    # A step takes about two seconds, in which a rank waits for its GPU.
    ninth_well("accumulated-shards", alone=True),
    # There is a collective on both GPUs at nearly any time, always another one.
    ninth_well("overlapped-communication", own_gpus=True),
    # The other rank waits in the store for a second or two.
    ninth_well("evaluation-in-store", odd=(0,)),
    # The first rank waits for the second one in each step.
    ninth_well("compiles-alone", needs=("torch", "triton")),
    # Both ranks wait for their data nearly all the time, which come.
    ninth_well("decoded-by-programs"),
    # Ranks unpack for different times in a library, and meet.
    ninth_well("unpacked-by-turns"),
    # The first rank answers the collectives of the second one, which has more batches.
    ninth_well("uneven-epochs"),

    # The tenth batch.
    tenth("lost-datagram", "network-io"),
    # It receives, a byte at a time.
    tenth("trickle-download", "network-io", odd=0, launch="torchrun"),
    # It sends to a Unix socket that is full.
    tenth("full-journal", "network-io"),
    # It waits for a condition, in its own process, as another thread does that was woken in its place.
    tenth("notify-one", "python-lock"),
    # It computes in a library that has released the interpreter's lock.
    tenth("key-derivation", "user-code"),
    # It joins a process, which waits for its thread.
    tenth_data("undead-process", "subprocess"),
    # The sampler of its loader moves, in a loop that it does not leave.
    tenth_data("balanced-batches", "data-loading", "user-code"),
    # It waits for a process of its own, which prepares the batches.
    tenth_data("shared-tensor", "data-loading", "subprocess"),
    # It waits for a server, within the collector.
    tenth("collector-callback", "network-io", "garbage-collection"),
    # It has raised, and waits for a thread that waits for a server.
    tenth("raises-in-pool", "exception", "network-io", "python-lock"),
    tenth("wrapped-angle", "gpu-wait"),

    # It waits for a server, while it plans a checkpoint.
    tenth_group("planner-lease", "checkpoint-io", "network-io"),
    # It waits in the backward pass for a future that a thread of its own would set, which waits for its queue.
    tenth_group("hook-future", "native-lock", "python-lock"),
    # It gathers by NCCL, and the two others over gloo, where they wait for it.
    tenth_group("critic-alone", "collective-mismatch", "process-group-order", odd=2, ranks=3),
    # The same group, a receive from a rank that scatters; the others wait for it there or in the next step.
    tenth_group("scatter-or-receive", "unmatched-p2p", "collective-mismatch", odd=2, ranks=3),
    # It waits in the store for ranks that wait for it in a collective.
    tenth_group("host-group", "store-wait", "collective-mismatch", "process-group-order", odd=2, ranks=3),

    # The second rank is in the driver, and the first one waits for it in its step.
    tenth_well("pins-anew"),
    # Workers end all the time, as they should.
    tenth_well("workers-anew"),
    # The second rank raises and catches in each step.
    tenth_well("halved-batch"),
    # The second rank waits for its own GPU for a second, and the first one for it.
    tenth_well("preconditioner"),

    # The eleventh batch.
    # A thread of it, which answers another rank, waits for a server; the other rank waits for the answer.
    eleventh("rpc-handler", "network-io", odd=0),
    # It waits for a place in a queue; the thread that makes them writes to a pipe.
    eleventh("full-metrics-queue", "file-io", "python-lock"),
    # It waits for a semaphore, which nobody in its process has.
    eleventh("leaked-permits", "python-lock"),
    # It computes in a library.
    eleventh("naive-einsum", "user-code"),
    # It waits for a lock, whose thread waits for a program.
    eleventh("gpu-monitor", "subprocess", "python-lock"),
    # Its event loop has nothing to do until a server answers.
    eleventh("async-rollouts", "network-io"),
    # It has raised, and prints that to a pipe that is full.
    eleventh("traceback-pipe", "exception", "file-io"),
    # It moves, in a loop that it does not leave.
    eleventh("line-search", "user-code"),
    # Else its watchdog may end the other rank as well, when it finds the connection closed.
    eleventh("agent-exit", "missing", launch="torchrun", environment={"TORCH_NCCL_ASYNC_ERROR_HANDLING": "0"}),
    # It saves, to a socket.
    eleventh("streamed-checkpoint", "checkpoint-io", "network-io", odd=0),

    # Autograd's thread waits for the lock of the main thread, and this one for autograd's.
    eleventh_framework("recompute-lock", "python-lock"),
    # The pass is a function of the job's own.
    eleventh_framework("endless-pass", "compiling", "user-code"),
    # It is in the interpreter of TorchScript.
    eleventh_framework("scripted-loop", "user-code"),
    # It reads from the pipe of a child.
    eleventh_framework("pipeline-verifier", "subprocess"),
    # It waits for a mutex that it has itself.
    eleventh_framework("ring-attention", "native-lock"),
    # The worker of its loader waits for a semaphore.
    eleventh_framework("leaked-slots", "data-loading"),
    eleventh_framework("distributed-breakpoint", "debugger"),
    eleventh_framework("threshold", "gpu-wait", needs=("torch", "triton")),
    eleventh_framework("work-counter", "gpu-wait", needs=("torch", "triton")),

    # They wait in two groups.
    eleventh_at_odds("full-metric", "collective-mismatch", "process-group-order"),
    # They wait in two groups; the odd rank is in an earlier step.
    eleventh_at_odds("local-averages", "collective-mismatch", "process-group-order", "behind"),
    # They wait in two groups, each of which comes first on one rank.
    eleventh_at_odds("gather-then-barrier", "process-group-order", "collective-mismatch"),

    # Rank 0 is idle between two requests, which threads of its answer; there is no collective.
    eleventh_well("rpc-server"),
    # The second rank asks its GPU again and again, and the first one waits for it.
    eleventh_well("searches"),
    # Both ranks wait for sockets most of the time, which answer.
    eleventh_well("rollouts"),
    # The main thread of the second rank waits for a lock for most of a second, and gets it.
    eleventh_well("flushed-log"),
    # The second rank is in a library most of the time.
    eleventh_well("contractions"),
    # The second rank compiles in each step, and the first one waits for it.
    eleventh_well("slow-pass"),

    # The twelfth batch.
    # It waits for the lock of a database's file, which a process outside of the job has.
    twelfth("locked-database", "file-io", "network-io", needs=("torch", "_sqlite3")),
    # It waits for a place in a queue of its own; the task that makes them has died, and is no thread.
    twelfth("dead-consumer", "python-lock", "worker-dead", "user-code"),
    # Its event loop runs a task that does not end, before it raises.
    twelfth("keeps-trying", "user-code", "exception"),
    # It reads from its standard input, as input() does.
    twelfth("shell-on-nan", "debugger"),
    # It waits for a semaphore in C; those that had the permits were processes, and are gone.
    twelfth("node-semaphore", "native-lock"),
    # It waits for a signal, in a call of its own.
    twelfth("awaits-signal", "user-code", launch="torchrun"),
    # Else its watchdog may end the other rank as well, when it finds the connection closed. The process that it has left is no rank.
    twelfth("killed-with-child", "missing", environment={"TORCH_NCCL_ASYNC_ERROR_HANDLING": "0"}),
    # It joins a thread of its own, which waits for a queue that only the main thread fills; the other rank waits in a store.
    twelfth("pool-exit", "python-lock"),
    # A circle: it waits for its processes, and they for it.
    twelfth("actors-starve", "subprocess", "data-loading"),
    # It sleeps until it tries again to reach a server; the other rank waits in a call of torch.distributed.rpc.
    twelfth("push-backoff", "user-code", "network-io"),
    # Its loader computes in Python, within next().
    twelfth("dedup-collate", "data-loading", "user-code"),
    # A worker of its loader waits for another one, which has nothing to do.
    twelfth("worker-barrier", "data-loading"),
    # All ranks are at the same place, and wait for somebody outside.
    GpuCase("twelfth-no-word", "twelfth.py", ("no-word",), Truth("symmetric")),

    # What it reads is a batch, by a plain read().
    twelfth_framework("zero-bubble", "file-io", "data-loading", odd=0),
    # It traces, and waits for a lock in the operator; the thread that has it waits for a queue.
    twelfth_framework("traced-table", "compiling", "python-lock"),
    twelfth_framework("bucket-lock", "gpu-wait"),
    # The server is one of XML-RPC.
    twelfth_framework("logged-optimizer", "network-io"),
    # Both ranks wait for their processes; that of the other rank waits for that of the odd one, which writes.
    twelfth_framework("checkpoint-process", "checkpoint-io", "file-io", "subprocess"),

    # They wait in two groups; the odd rank has ended its step before the other one.
    twelfth_at_odds("uneven-closures", ("collective-mismatch", "process-group-order", "behind")),
    # They wait in two groups on their GPUs, where rank 0 has a reduction of its backward pass before the one that all do; both programs are
    # at the same place.
    twelfth_at_odds("frozen-layer", ("collective-mismatch", "process-group-order")),
    # Rank 0 calls alone what all should call; the other one waits for it in the store.
    twelfth_at_odds("samples-for-log", ("collective-mismatch", "process-group-order"),
                    ("store-wait", "collective-mismatch", "process-group-order")),
    # It waits for a message that rank 0 does not send; that waits for it as it should.
    twelfth("work-items", "unmatched-p2p", "collective-mismatch", program="twelfth_groups.py"),

    # Ranks have nothing to do for most of the time, and look for requests a thousand times a second, which come.
    twelfth_well("request-slots"),
    # The second rank is in one call for a second or longer, again and again, and the first one waits for it.
    twelfth_well("sorted-index"),
    # The second rank waits in a barrier for five seconds, in which the first one computes.
    twelfth_well("scores-on-first"),
    # Both ranks wait for their GPUs, which compute.
    twelfth_well("replayed-graphs", alone=True),
    # The main threads wait for threads of their own, which compute, and then for each other.
    twelfth_well("pooled-features", launch="torchrun"),
    # The second rank waits for a pipe nearly all the time, which is read.
    twelfth_well("slow-reader"),
    # The first rank waits for the second one in a call of torch.distributed.rpc, and the second one for a thread of its own.
    twelfth_well("slow-pusher"),

    # The thirteenth batch.
    # It computes, in Python.
    thirteenth("permutation-loss", "user-code"),
    # It is in one operation of the interpreter's, which keeps the interpreter's lock.
    thirteenth("unreduced-power", "user-code"),
    # It waits, for a lock of its pool's, for children each of which dies as it begins.
    thirteenth("pool-initializer", "worker-dead", "subprocess", "python-lock"),
    # It sleeps, in a loop about directories of checkpoints.
    thirteenth("rotated-checkpoints", "user-code", "checkpoint-io", odd=0),
    # It accepts on a socket, to which only its child would connect.
    thirteenth("simulator-connects", "subprocess", "network-io"),
    # It writes to a pipe that only its child would read.
    thirteenth("spawned-evaluator", "subprocess", "file-io"),
    # It reads from a descriptor that tells of its next shard.
    thirteenth("late-watch", "file-io", "data-loading", "user-code"),
    # Its kernel waits for a thread of its own, which has raised and is gone.
    thirteenth("telemetry-ring", "gpu-wait"),
    # The function that JAX traces is one of the job's own.
    thirteenth("jax-table", "user-code", "compiling", needs=("jax",)),
    # All ranks are at the same place, and wait for somebody outside.
    GpuCase("thirteenth-pause-file", "thirteenth.py", ("pause-file",), Truth("symmetric")),

    # In one group, rank 0 is in the barrier that ends its saving, and the other one in a step more.
    thirteenth_framework_at_odds("lightning-saves", ("collective-mismatch", "checkpoint-io", "behind"), ("collective-mismatch", "behind"),
                                 odd=0, needs=("torch", "pytorch_lightning")),
    # As above, with a reduction instead of a barrier.
    thirteenth_framework_at_odds("accelerate-trigger", MISMATCH, MISMATCH, odd=0, needs=("torch", "accelerate")),
    # They wait in two groups; the odd rank for a collective of its backward pass that the other one does not have.
    thirteenth_framework_at_odds("unfreezes-early", *[("collective-mismatch", "process-group-order")] * 2),
    # It waits for a message that rank 0 does not send, which waits for it where its epoch ends.
    thirteenth("pipeline-epoch", "unmatched-p2p", "collective-mismatch", "process-group-order", program="thirteenth_frameworks.py"),
    # They wait in two groups.
    thirteenth_framework_at_odds("compiled-branch", *[("collective-mismatch", "process-group-order")] * 2),

    # It waits for a message of rank 1, which has none for it; rank 0 sends it one, and rank 1 is where all should be next.
    thirteenth_group("cache-source", "unmatched-p2p", "collective-mismatch", odd=2, ranks=3),
    # They wait in two groups; the odd rank has left out what the other one waits in.
    thirteenth_at_odds("failed-samples", *[("collective-mismatch", "process-group-order")] * 2),
    # They wait in two groups; the odd rank is one micro-batch behind, and at the end of its step.
    thirteenth_at_odds("token-counts", *[("collective-mismatch", "process-group-order", "behind")] * 2),
    # A circle of three groups.
    thirteenth_at_odds("pairwise-averages", *[("process-group-order", "collective-mismatch")] * 3),
    # It waits for a message that rank 0 does not send; that waits for it where all should be next.
    thirteenth_group("early-exit", "unmatched-p2p", "collective-mismatch"),
    # They wait in two groups; the odd rank is once more where both were.
    thirteenth_at_odds("retried-save", ("collective-mismatch", "process-group-order"), ("collective-mismatch", "process-group-order", "behind")),
    # It waits for a request.
    thirteenth_group("idle-replica", "network-io"),

    # Ranks compute by turns, and the first one waits for the second one for less than a second.
    thirteenth_well("shared-counter"),
    # Ranks wait for their GPUs, each of which runs one kernel for a second or two.
    thirteenth_well("long-kernels"),
    # Ranks sleep most of the time, and now and then make passes, of which the second rank has none of its own.
    thirteenth_well("dummy-passes"),
    # The first rank waits for one program after the other, and the second one for it.
    thirteenth_well("evaluation-program"),
    # Ranks sleep nearly all the time.
    thirteenth_well("paced-steps"),
    # The first rank computes in Python for half a second, again and again, and the second one waits for it.
    thirteenth_well("lightning-validates", needs=("torch", "pytorch_lightning")),

    # The fourteenth batch.
    # The worker of its loader computes, in one call of a library that keeps the interpreter's lock.
    fourteenth("page-expression", "data-loading", "user-code"),
    # A circle: the main thread has the interpreter's lock and waits for the GPU, whose stream waits for a function, which waits for that lock.
    fourteenth("callback-gil", "python-lock", "gpu-wait"),
    # Its kernel waits for what the main thread would write next, which waits for the kernel.
    fourteenth("persistent-kernel", "gpu-wait"),
    # It waits for the lock of a file, which it has itself.
    fourteenth("nested-file-lock", "file-io", "python-lock"),
    # It waits at a socket for a process of its own, where a thread waits for a lock that the rank has.
    fourteenth("manager-lock", "subprocess", "python-lock", "network-io"),
    # Its child reads the standard input that both have.
    fourteenth("asks-overwrite", "subprocess"),
    # Its thread that would train has raised and is gone; its main thread has nothing to do.
    fourteenth("trainer-thread", "worker-dead", "exception", "network-io"),
    # It has raised, and waits for its child.
    fourteenth("follows-records", "exception", "subprocess"),
    # It sleeps, in a loop that looks for files of a checkpoint.
    fourteenth("counts-shards", "user-code", "checkpoint-io", "file-io", odd=0),
    # Two threads wait for a condition, each for the other one.
    fourteenth("lock-upgrade", "python-lock"),
    # All ranks are at the same place, and wait for somebody outside.
    GpuCase("fourteenth-scores-key", "fourteenth.py", ("scores-key",), Truth("symmetric")),

    # The same sum over the same ranks in two ways, which do not meet; neither rank is more right.
    GpuCase("fourteenth-fast-path", "fourteenth_groups.py", ("fast-path",),
            culprit(r0=("collective-mismatch", "gpu-wait"), r1=("collective-mismatch", "gpu-wait")), own_gpus=True),
    # It waits in another group than the others, as it saves.
    fourteenth_group("clock-checkpoint", "collective-mismatch", "process-group-order", "checkpoint-io"),
    # It has left out the sum in which rank 0 waits for it; the others do as they should.
    fourteenth_group("tied-embeddings", "collective-mismatch", "process-group-order", odd=3),
    # It receives more than its peer has sent, which waits for it in the sum. Over sockets the sizes may be found to differ, which fails.
    fourteenth_group("draft-size", "unmatched-p2p", "collective-mismatch", odd=1, ranks=2, own_gpus=True),
    # It sends what rank 0 does not receive, which waits for it in the broadcast.
    fourteenth_group("skipped-weights", "unmatched-p2p", "collective-mismatch"),
    # It sleeps until it may ask a server again; rank 0 waits for a message of any rank, and the other actors for rank 0.
    fourteenth_group("retry-after", "user-code", "network-io"),

    # The second rank sleeps for a second in each step, and the first one waits for it.
    fourteenth_well("busy-judge"),
    # Main threads wait for the interpreter's lock most of the time, and get it.
    fourteenth_well("polling-threads"),
    # Rank 0 waits for messages of any rank, and the actors sleep for a second or two.
    fourteenth_well("any-actor", ranks=4),
    # The first rank waits for its standard input for a second in each step, and the second one for it.
    fourteenth_well("operator-looks"),
    # Each rank waits for its own GPU for a second in each step, whose kernel waits for a thread of the rank.
    fourteenth_well("lookups"),
    # Ranks make and end communicators all the time.
    fourteenth_well("regrouped"),
    # The kernel of the first rank waits for the second one, whose GPU computes.
    fourteenth_well("one-shot", own_gpus=True),

    # The fifteenth batch.
    # The worker of its loader reads from the pipe of a child.
    fifteenth("piped-shard", "data-loading", "subprocess"),
    # It waits for the thread of its loader that pins memory, and that for a semaphore.
    fifteenth("pinned-slots", "data-loading", "python-lock", launch="torchrun"),
    # It joins a thread of its own that reads ahead, and waits for a place in a queue.
    fifteenth("epoch-prefetcher", "python-lock", "data-loading"),
    # It joins a child, within the collector.
    fifteenth("environment-dropped", "garbage-collection", "subprocess"),
    # It waits in C for a lock that it has itself.
    fifteenth("embedding-rows", "native-lock"),
    # Its kernel does not end.
    fifteenth("sorts-scores", "gpu-wait"),
    # Its event loop sleeps, with something to do of which it does not know; the thread that should have woken it has ended.
    fifteenth("unwoken-loop", "python-lock", "user-code", launch="torchrun"),
    # It has raised, and joins a thread of its own, which waits for the main thread.
    fifteenth("label-clock", "exception", "python-lock"),
    # It reads from a pipe that its child would write to, which was killed and is a zombie.
    fifteenth("frames-fifo", "worker-dead", "file-io", "subprocess"),
    # All ranks are at the same place, and wait for somebody outside.
    GpuCase("fifteenth-license-seat", "fifteenth.py", ("license-seat",), Truth("symmetric")),

    # It has left the loop in which the others wait for it, and waits in another group.
    fifteenth_group("scattered-batches", "collective-mismatch", "process-group-order", odd=0),
    # It has left out the barrier in which the others wait for it.
    fifteenth_group("monitored-save", "collective-mismatch", "process-group-order"),
    # A circle of four groups.
    fifteenth_at_odds("axis-order", *[("process-group-order", "collective-mismatch")] * 4, program="fifteenth_groups.py", odd=(1, 2)),
    # It waits for a message more than its peer sends; that waits for it where all should be next.
    fifteenth_group("more-tensors", "unmatched-p2p", "collective-mismatch", odd=3, ranks=4),
    # It sends what rank 0 does not receive, which waits for it in a reduction.
    fifteenth_group("replies-to-step", "unmatched-p2p", "collective-mismatch", "process-group-order"),

    # Its collator, within next() of its loader, waits for a server.
    fifteenth_framework("trainer-collator", "data-loading", "network-io", needs=("torch", "transformers", "accelerate")),
    # It compiles, and waits for a child that measures for that.
    fifteenth_framework("tuned-by-program", "compiling", "subprocess"),
    # It waits for a batch of a thread of its own, which waits for a server.
    fifteenth_framework("jax-prefetch", "data-loading", "network-io", "python-lock", needs=("jax",)),
    # The same call in the same group, of other sizes. Over sockets these may be found to differ, which fails.
    fifteenth_at_odds("powersgd-start", *["collective-mismatch"] * 2, own_gpus=True),
    # Two calls in one group.
    fifteenth_at_odds("accelerate-pads", MISMATCH, MISMATCH, needs=("torch", "accelerate")),
    # It waits in another group than the others, as it loads.
    fifteenth_framework("rolls-back", "collective-mismatch", "process-group-order", "checkpoint-io", odd=2, ranks=3),
    # They wait in two groups; the odd rank in a scatter of rank 0's, which goes on.
    fifteenth_at_odds("grows-embedding", *[("collective-mismatch", "process-group-order")] * 2),

    # The second rank waits for a socket most of the time, on which something comes ten times a second; the first rank waits for the second one.
    fifteenth_well("slow-object-store"),
    # Rank 0 is idle in its event loop between two prompts, and the other rank waits for it over gloo.
    fifteenth_well("engine-socket"),
    # The second rank waits in a barrier for two seconds, in which the first one computes.
    fifteenth_well("accelerate-evaluates", needs=("torch", "accelerate")),
    # The other ranks wait in a barrier for two seconds, in which the first one compresses and writes.
    fifteenth_well("compressed-checkpoint", ranks=3),
    # The second rank compiles for a second or so in each step, and the first one waits for it.
    fifteenth_well("kernels-anew"),
    # The GPU of the second rank computes for a second or longer, and that of the first one waits for it.
    fifteenth_well("long-sequences", alone=True),
    # The second rank waits for a child, which plays, and the first one for the second one.
    fifteenth_well("plays-episodes"),

    # The sixteenth batch.
    # It waits for a batch of a thread of its own, which has raised and is gone.
    sixteenth("capture-prefetch", "worker-dead", "data-loading", "exception", "python-lock"),
    # A circle: autograd's thread waits for a place in a queue, the thread that takes from it for the main thread, and that for autograd's.
    sixteenth("clipped-offload", "python-lock"),
    # Its kernel waits for what is behind it.
    sixteenth("legacy-stream", "gpu-wait"),
    # A program of its kernel waits for another one, which has ended.
    sixteenth("chained-scan", "gpu-wait", needs=("torch", "triton")),
    # It waits for the lock of a file's buffer, which a thread has that writes.
    sixteenth("shared-trace", "file-io", "python-lock", "native-lock"),
    # It writes to a pipe that it would read itself.
    sixteenth("self-pipe", "file-io", "user-code", launch="torchrun"),
    # It reads the answer of a child, which reads from a pipe that another child has open.
    sixteenth("inherited-pipe", "subprocess", "file-io"),
    # It joins the thread of its loader, which waits for a lock that the main thread has.
    sixteenth("arena-reset", "python-lock", "data-loading", launch="torchrun"),
    # It is at its end, and joins a thread, which writes to a child that was killed.
    sixteenth("unflushed-queue", "exception", "worker-dead", "python-lock", "file-io"),
    # It sleeps, and looks at the memory of its GPU.
    sixteenth("waits-for-memory", "user-code", "gpu-wait"),

    # It waits for messages of ranks that are in a collective, and sends one that nobody receives.
    sixteenth_group("ring-or-ulysses", "unmatched-p2p", "collective-mismatch"),
    # A circle of four groups, none of which is made.
    sixteenth_at_odds("local-groups", *[("process-group-order", "store-wait", "collective-mismatch")] * 4, program="sixteenth_groups.py", odd=(1, 3)),
    # It has left out its backward pass, from which the others wait for messages, and waits in another group.
    sixteenth_group("forward-only", "collective-mismatch", "unmatched-p2p", "process-group-order"),
    # A thread of it waits for a server; rank 0 waits for a message of that thread, and the main threads of the workers for rank 0.
    sixteenth_group("async-output", "network-io"),
    # It has left out what the others wait in, as it failed, and waits in another group.
    sixteenth_group("unpicklable-metrics", "collective-mismatch", "process-group-order"),

    # It waits in the rendezvous, by sleeping between two looks, as it handles an exception.
    sixteenth_framework("elastic-rejoin", "store-wait", "exception", "user-code"),
    # All ranks are at the same place, and wait for somebody who has not come.
    GpuCase("sixteenth-elastic-nodes", "sixteenth_frameworks.py", ("elastic-nodes",), Truth("symmetric")),
    # Two calls in one group, or one of the ranks has left that for another group.
    sixteenth_at_odds("whole-logits", *[("collective-mismatch", "process-group-order")] * 2, own_gpus=True),
    # It compiles a kernel, for which it asks a server.
    sixteenth_framework("triton-cache", "compiling", "network-io", needs=("torch", "triton")),
    # It is at its end, and waits for all others to be.
    sixteenth_framework("rpc-shutdown", "collective-mismatch", "exception", "network-io", odd=2, ranks=3),

    # The other rank waits in a barrier for minutes, in which rank 0 goes on from batch to batch.
    sixteenth_well("long-evaluation"),
    # The first rank waits for minutes for the second one, which reads from a pipe, thirty times a second.
    sixteenth_well("slow-restore"),
    # Rank 0 sleeps most of the time, and the others wait at their sockets.
    sixteenth_well("actor-mesh", ranks=3),
    # Rank 0 looks for a file most of the time, which comes, and the others wait for it on their GPUs.
    sixteenth_well("shards-arrive", ranks=3),
    # Rank 0 hashes for about a second, and the other one waits for it over gloo.
    sixteenth_well("hashed-checkpoint"),
    # The second rank waits for a lock most of the time, and gets it.
    sixteenth_well("held-lock"),
    # Both ranks wait for a request, one at a pipe and one in a loop, and get one every two and a half seconds.
    sixteenth_well("engine-ring"),
    # The second rank has zombies, and waits for a child, which answers.
    sixteenth_well("unreaped-helpers", launch="torchrun"),

    # The seventeenth batch.
    # A warp of its kernel waits for a barrier's phase, which has too few threads to end.
    seventeenth("barrier-phase", "gpu-wait"),
    # It waits as it connects to an agent, which takes no connection.
    seventeenth("full-backlog", "network-io", odd=0),
    # It waits for more reads of a file than it has asked for.
    seventeenth("missing-read", "file-io", "user-code"),
    # It sleeps, and looks at the lock of a file, which another job has.
    seventeenth("shared-hub", "file-io", "python-lock", "user-code", odd=0, needs=("torch", "filelock")),
    # It waits in its event loop for a lock that the same coroutine has.
    seventeenth("refill-in-lock", "python-lock", "user-code", launch="torchrun"),
    # It waits for a child, which ignores the signal that should end it.
    seventeenth("ignores-sigterm", "subprocess"),
    # It waits for its fork server, a child, which imports a module that reads a file.
    seventeenth("fork-server", "subprocess", "file-io", odd=0),
    # Its main thread waits for the lock of the loader of libraries, which a thread has that opens a file.
    seventeenth("loader-lock", "file-io", "native-lock"),
    # Its main thread waits for a thread, a second at a time, and that for a server.
    seventeenth("still-waiting", "network-io", "data-loading", "python-lock", odd=0),
    # The kernels of all ranks do not end, for the same reason.
    GpuCase("seventeenth-limit-of-all", "seventeenth.py", ("limit-of-all",), Truth("symmetric")),

    # It has left out the message for which the ranks after it wait, as it failed, and is in the next step with the rank before it.
    seventeenth_group("lost-turn", "unmatched-p2p", "collective-mismatch", "process-group-order", odd=1, ranks=4),
    # It has the lock for which the others look in the store, and waits for a server.
    seventeenth_group("store-lock", "network-io", odd=1),
    # It has left a loop sooner than the others, which need it, and waits in another group.
    seventeenth_group("samples-apart", "collective-mismatch", "process-group-order", ranks=4),
    # It waits in the group of a pair that is not the right one; one rank waits for it there, and the others in the next step.
    seventeenth_group("loss-axis", "process-group-order", "collective-mismatch", odd=3, ranks=4),
    # It looks for free blocks in a loop that sleeps, and has nothing for the others, which wait for it.
    seventeenth_group("unschedulable", "user-code", odd=0),

    # It waits for a word of a thread of its own, which has raised and is gone.
    seventeenth_framework("silent-streamer", "worker-dead", "exception", "python-lock", needs=("torch", "transformers")),
    # Rank 0 alone is in a collective of all ranks, which gather objects in another group.
    seventeenth_framework("summons-weights", "collective-mismatch", "process-group-order", odd=0, ranks=3),
    # It writes the last file of a checkpoint.
    seventeenth_framework("last-file", "checkpoint-io", "file-io", odd=0, ranks=3),
    # It alone is in a broadcast of all ranks, which gather objects in another group.
    seventeenth_framework("first-noise", "collective-mismatch", "process-group-order", odd=2, ranks=4),
    # It waits for a buffer that nobody gives back, in the forward pass of its stage.
    seventeenth_framework("stage-buffers", "python-lock", odd=0, ranks=3),
    # Its computation calls Python on the host, which waits for a server.
    seventeenth_framework("jax-effects", "network-io", needs=("jax",)),
    # It has raised, and a function that is called for that waits for a server.
    seventeenth_framework("lightning-alert", "exception", "network-io", needs=("torch", "pytorch_lightning")),

    # The third rank waits in the store for what does not come, and nobody waits for it.
    seventeenth_well("hot-spare", ranks=3),
    # The second rank waits for a child that would not end, and kills it after a second; the first rank waits for it.
    seventeenth_well("timed-out-programs"),
    # The second rank is in a loop that would not end, and an alarm ends it after a second; the first rank waits for it.
    seventeenth_well("alarmed-proofs"),
    # Both ranks wait for a server most of the time, which answers after a second or two.
    seventeenth_well("long-polls"),
    # The second rank is traced by Python's debugger, and computes for a second in each step; the first rank waits for it.
    seventeenth_well("counted-lines", launch="torchrun"),
    # The first rank waits for minutes for the second one, which goes on from batch to batch.
    seventeenth_well("skips-batches"),
    # All ranks are in a reduction over gloo nearly all the time.
    seventeenth_well("host-averages", ranks=3),
    # The second process compiles for a second in each step, and the first one waits for it.
    seventeenth_well("jax-compiles", needs=("jax",)),

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
HELD_OUT += [fourth_core(case) for case in HELD_OUT if case.name in ("fourth-bucket-hook", "fourth-nan-loss")]
HELD_OUT += [fifth_core(case) for case in HELD_OUT if case.name in ("fifth-reentrant", "fifth-lazy-import", "fifth-microbatches")]
HELD_OUT += [sixth_core(case) for case in HELD_OUT if case.name in ("sixth-nested-pool", "sixth-stateful-loader", "sixth-batch-norm")]
HELD_OUT += [seventh_core(case) for case in HELD_OUT
             if case.name in ("seventh-thread-barrier", "seventh-stream-lock", "seventh-gradient-sync")]
HELD_OUT += [eighth_core(case) for case in HELD_OUT
             if case.name in ("eighth-stop-server", "eighth-none-gradient", "eighth-compressed-save")]
HELD_OUT += [ninth_core(case) for case in HELD_OUT if case.name in ("ninth-callback-lock", "ninth-actor-and-critic")]
HELD_OUT += [tenth_core(case) for case in HELD_OUT if case.name in ("tenth-notify-one", "tenth-balanced-batches")]
HELD_OUT += [eleventh_core(case) for case in HELD_OUT
             if case.name in ("eleventh-full-metrics-queue", "eleventh-recompute-lock", "eleventh-scripted-loop")]
HELD_OUT += [twelfth_core(case) for case in HELD_OUT
             if case.name in ("twelfth-locked-database", "twelfth-zero-bubble", "twelfth-traced-table", "twelfth-frozen-layer")]
HELD_OUT += [thirteenth_core(case) for case in HELD_OUT
             if case.name in ("thirteenth-pool-initializer", "thirteenth-unfreezes-early", "thirteenth-failed-samples")]
HELD_OUT += [fourteenth_core(case) for case in HELD_OUT
             if case.name in ("fourteenth-persistent-kernel", "fourteenth-follows-records", "fourteenth-clock-checkpoint")]
HELD_OUT += [fifteenth_core(case) for case in HELD_OUT
             if case.name in ("fifteenth-embedding-rows", "fifteenth-label-clock", "fifteenth-rolls-back")]
HELD_OUT += [sixteenth_core(case) for case in HELD_OUT
             if case.name in ("sixteenth-clipped-offload", "sixteenth-legacy-stream", "sixteenth-unpicklable-metrics")]
HELD_OUT += [seventeenth_core(case) for case in HELD_OUT
             if case.name in ("seventeenth-barrier-phase", "seventeenth-loader-lock", "seventeenth-still-waiting")]
CASES += HELD_OUT
