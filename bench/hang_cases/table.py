"""The cases and their truth. A case's truth is the judgement of a person who reads its program and knows how collectives work, whatever a
tool says.

Where two sides disagree and neither is more right, the ranks of both sides are culprits. A second reason is accepted only where the
definitions of two reasons (docs/json.md) overlap for that very program; a comment says why.
"""
import dataclasses
import glob
import os

from hang_cases.scoring import Truth

HERE = os.path.dirname(os.path.abspath(__file__))
SNAPSHOTS = os.path.join(os.path.dirname(os.path.dirname(HERE)), "fixtures", "nccl")


@dataclasses.dataclass
class Case:
    name: str
    program: str                          # a file here; "mpich", "openmpi", "framework": built from source; "snapshot": a saved report
    arguments: tuple
    truth: Truth
    odd: tuple = (2,)
    ranks: int = 4
    launch: str = "env"                   # ranks started with RANK and the like in their environment; "jax": JAX_PROCESS_ID; "indexed":
                                          # JOB_COMPLETION_INDEX; "argument": no variable; "torchrun", "spawn", "own": by a launcher
    given: tuple = None                   # ranks whose pids the tool is given; None: all that are alive
    not_started: tuple = ()
    chain_ends: tuple = None              # (function, file) of the thread that all culprits' chains end at; (program, None): a child
                                          # process, whose program is "" if it has ended; None: where the culprit has announced that it
                                          # waits, if it has
    also: tuple = ()                      # processes that announce themselves in addition to the ranks: a loader worker
    unrelated: bool = False               # two unrelated processes are given too
    cores: bool = False                   # the tool reads cores instead
    newer: bool = False                   # also with the torch of --python
    quick: bool = False                   # no torch: some seconds
    framework: bool = False               # with the interpreter of --frameworks
    needs: tuple = ()                     # modules that its ranks import in addition to those of its program (starting.py)
    python: str = None

    @property
    def native(self):
        """Its ranks use native.c."""
        return self.program in ("elsewhere.py", "collectives.py", "ring.py")

    @property
    def field_native(self):
        """Its ranks use field_native.c."""
        return self.program in ("field.py", "field_data.py", "field_more.py")


def culprit(**ranks):
    """culprit(r2="user-code")"""
    return Truth("culprit", {int(name[1:]): reasons for name, reasons in ranks.items()})


def gloo(name, arguments, truth, **options):
    return Case(name, "elsewhere.py", tuple(arguments.split()), truth, **options)


def at_odds(name, case, truth, **options):
    return Case(name, "collectives.py", (case,), truth, **options)


def between(name, case, function="refresh_cache", **options):
    """Rank 0 waits for rank 1, which is blocked in that function of its own."""
    return Case(name, "between.py", (case,), culprit(r1="user-code"), odd=(1,), chain_ends=(function, "between.py"), **options)


def moving(name, case, **options):
    return Case(name, "moving.py", (case,), Truth("healthy"), **options)


def plain(name, case, truth, **options):
    return Case(name, "plain.py", (case,), truth, launch="own", quick=True, **options)


def mpi(name, program, case, truth, **options):
    return Case(name, program, (case,), truth, launch="own", quick=True, **options)


def jax(name, case, truth, launch="jax", **options):
    return Case(name, "jax_cpu.py", (case,), truth, launch=launch, framework=True, **options)


def ray(name, case, truth, **options):
    return Case(name, "ray_job.py", (case,), truth, launch="own", framework=True, **options)


def deepspeed(name, case, truth, **options):
    return Case(name, "deepspeed_job.py", (case,), truth, framework=True, **options)


def orbax(name, case, truth, **options):
    return Case(name, "orbax_job.py", (case,), truth, launch="jax", framework=True, **options)


def grain(name, case, truth, **options):
    return Case(name, "grain_job.py", (case,), truth, framework=True, **options)


def megatron(name, case, truth, **options):
    return Case(name, "megatron_job.py", (case,), truth, framework=True, **options)


def horovod(name, case, truth, **options):
    return Case(name, "horovod_job.py", (case,), truth, launch="own", framework=True, **options)


def serving(name, truth, **options):
    return Case(name, "serving.py", (name,), truth, ranks=5, launch="own", **options)


LIVE = [
    # One rank is elsewhere, the others wait in a collective.
    gloo("loader-main", "loader ddp", culprit(r2="data-loading"), newer=True),
    gloo("loader-worker", "loader-worker ddp", culprit(r2="data-loading"), also=("worker",), chain_ends=("fetch", "elsewhere.py"), newer=True),
    gloo("loader-worker-remote", "loader-worker-remote", culprit(r0="data-loading"), odd=(0,), also=("worker",), chain_ends=("fetch", "elsewhere.py")),
    gloo("checkpoint-save", "save barrier", culprit(r0="checkpoint-io"), odd=(0,), newer=True),
    gloo("checkpoint-load", "load objects", culprit(r3="checkpoint-io"), odd=(3,)),
    gloo("file-lock", "file-lock", culprit(r1="file-io"), odd=(1,)),
    gloo("database-lock", "database-lock", culprit(r2="file-io"), chain_ends=("store_trial", "elsewhere.py")),
    gloo("file-open", "read-config barrier", culprit(r2="file-io")),
    gloo("socket-receive", "receive ddp", culprit(r2="network-io"), newer=True),
    gloo("http-download", "download", culprit(r3="network-io"), odd=(3,)),
    gloo("future-of-socket", "future", culprit(r2="network-io"), chain_ends=("_worker", "thread.py")),
    gloo("sleep", "sleep ddp", culprit(r2="user-code"), chain_ends=("sleep", "elsewhere.py"), newer=True),
    gloo("busy-wait", "busy-wait", culprit(r1="user-code"), odd=(1,)),
    gloo("native-loop", "native-loop", culprit(r2="user-code"), chain_ends=("simulate_particles", "native.c"), newer=True),
    # The GIL is a lock inside of the rank's own process; its holder runs the rank's own native code.
    gloo("gil-holder", "gil-holder", culprit(r2=("user-code", "python-lock")), chain_ends=("simulate_particles", "native.c")),
    gloo("python-locks", "python-locks", culprit(r2="python-lock"), newer=True),
    gloo("reporter-lock", "reporter", culprit(r1="python-lock"), odd=(1,), chain_ends=("write_report", "elsewhere.py"), newer=True),
    gloo("native-locks", "native-locks barrier", culprit(r1="native-lock"), odd=(1,)),
    gloo("subprocess", "subprocess", culprit(r2="subprocess"), chain_ends=("sleep", None), newer=True),
    gloo("shell", "shell objects", culprit(r0="subprocess"), odd=(0,), chain_ends=("sleep", None)),
    gloo("pdb", "debugger ddp", culprit(r2="debugger"), newer=True),
    gloo("input", "input", culprit(r0="debugger"), odd=(0,)),
    gloo("stopped", "stop ddp", culprit(r2="stopped")),
    gloo("build-lock", "baton barrier", culprit(r2="compiling")),
    gloo("build-extension", "extension", culprit(r1="compiling"), odd=(1,), also=("compiler",), chain_ends=("sleep", None)),
    gloo("collector", "collector", culprit(r2="garbage-collection"), newer=True),
    gloo("collector-busy", "collector-busy barrier", culprit(r0="garbage-collection"), odd=(0,)),
    gloo("exception-atexit", "atexit ddp", culprit(r2="exception"), chain_ends=()),            # no function is left
    gloo("exception-hook", "excepthook", culprit(r1="exception"), odd=(1,), chain_ends=("upload_log", "elsewhere.py"), newer=True),
    gloo("exception-thread", "thread-at-exit", culprit(r2="exception"), chain_ends=("run", "threading.py")),
    gloo("dead-worker", "dead-worker", culprit(r2="worker-dead"), also=("worker",), chain_ends=("", None), newer=True),
    gloo("exception-finally", "finally", culprit(r2="exception"), newer=True),
    gloo("exception-handler", "handler", culprit(r1="exception"), odd=(1,)),
    gloo("exception-last-collective", "last-collective", culprit(r2="exception"), chain_ends=("barrier", "distributed_c10d.py"), newer=True),
    gloo("async-client", "async-client", culprit(r2="network-io"), chain_ends=("await_server", "elsewhere.py"), newer=True),
    # Its threads wait for a lock; the owner of the lock is in the rank's own native code.
    gloo("fan-out-lock", "fan-out", culprit(r2=("native-lock", "user-code")), chain_ends=("keep_table", "native.c"), newer=True),
    gloo("native-engine", "native-engine", culprit(r2="file-io"), chain_ends=("read_tile", "native.c")),
    gloo("two-culprits", "two-ways", culprit(r1="user-code", r2="network-io"), odd=(1, 2)),
    gloo("three-of-four", "loader ddp", culprit(r1="data-loading", r2="data-loading", r3="data-loading"), odd=(1, 2, 3)),
    gloo("torchrun-sleep", "sleep", culprit(r2="user-code"), launch="torchrun", newer=True),
    gloo("torchrun-loader", "loader-worker ddp", culprit(r1="data-loading"), odd=(1,), launch="torchrun", also=("worker",), chain_ends=("fetch", "elsewhere.py")),
    gloo("spawn-lock", "python-locks", culprit(r2="python-lock"), launch="spawn", newer=True),
    gloo("spawn-socket", "receive barrier", culprit(r0="network-io"), odd=(0,), launch="spawn"),
    # It waits for its own thread, which waits for a server: both reasons name that.
    gloo("event-of-a-thread", "event", culprit(r2=("python-lock", "network-io")), chain_ends=("fetch_vocabulary", "elsewhere.py")),
    # It waits for its worker process, on a lock of its own.
    gloo("pool-worker", "pool", culprit(r2=("subprocess", "python-lock")), also=("reader",), chain_ends=("read_shard", "elsewhere.py")),
    gloo("executor-worker", "executor", culprit(r2=("subprocess", "python-lock")), also=("reader",), chain_ends=("read_shard", "elsewhere.py")),
    gloo("dead-producer", "dead-producer", culprit(r2="python-lock")),
    # Its threads join each other in a chain; the last one is in the rank's own native code.
    gloo("join-chain", "join-threads", culprit(r2="user-code"), chain_ends=("write_shard", "native.c"), newer=True),
    gloo("rwlock-writer", "read-behind-writer barrier", culprit(r2="native-lock"), chain_ends=("rewrite_index", "native.c"), newer=True),
    gloo("child-asleep", "join-process", culprit(r2="subprocess"), also=("tokenizer",), chain_ends=("tokenize_shard", "elsewhere.py"), newer=True),
    gloo("loader-worker-asleep", "loader-worker-asleep", culprit(r2="data-loading"), also=("worker",), chain_ends=("augment", "elsewhere.py"), newer=True),
    # A rank waits for another one by other means than torch.
    between("flock-of-a-rank", "flock", newer=True),
    Case("crossed-flocks", "between.py", ("crossed-flocks",), culprit(r0="file-io", r1="file-io"), odd=(1,)),
    between("record-lock-of-a-rank", "record-lock"),
    between("database-of-a-rank", "database-rollback", newer=True),
    between("database-of-a-rank-wal", "database-wal"),
    between("fifo-of-a-rank", "fifo"),
    between("unix-server-in-a-rank", "unix-server", "aggregate_gradients"),
    between("tcp-server-in-a-rank", "tcp-server", "aggregate_gradients", newer=True),
    between("named-queue-of-a-rank", "named-queue"),
    # Ranks that are missing.
    at_odds("rank-never-started", "rendezvous", culprit(r3="missing"), not_started=(3,), newer=True),
    gloo("rank-left", "leave store", culprit(r3="missing"), odd=(3,)),
    # The ranks do not agree.
    at_odds("mismatch-broadcast", "broadcast", culprit(r2="collective-mismatch"), newer=True),
    at_odds("mismatch-barrier", "barrier", culprit(r1="collective-mismatch"), odd=(1,)),
    at_odds("mismatch-halves", "halves", culprit(r0="collective-mismatch", r1="collective-mismatch", r2="collective-mismatch", r3="collective-mismatch")),
    # Both groups have all ranks. The rank would have come to the right group later, which makes the second case one of a wrong order. No
    # stack shows the future, and both reasons name the same fact: the rank waits in another group than its peers.
    at_odds("mismatch-group", "another-group", culprit(r2=("collective-mismatch", "process-group-order"))),
    at_odds("group-order", "order-of-two", culprit(r2=("process-group-order", "collective-mismatch")), newer=True),
    at_odds("group-cycle", "order-cycle", Truth("culprit", {rank: "process-group-order" for rank in range(4)}), newer=True),
    at_odds("receive-unmatched", "receive-unmatched", culprit(r0="unmatched-p2p"), newer=True),
    at_odds("send-unmatched", "send-unmatched", culprit(r3="unmatched-p2p")),
    at_odds("both-receive", "both-receive", culprit(r0="unmatched-p2p", r1="unmatched-p2p")),
    at_odds("receive-from-sleeper", "receive-from-sleeper", culprit(r1="user-code"), chain_ends=("receive_from_sleeper", "collectives.py")),
    at_odds("pipeline-without-input", "pipeline-without-input", culprit(r0="file-io"), newer=True),
    at_odds("store-key", "store-key", culprit(r2="store-wait"), newer=True),
    at_odds("store-key-of-a-rank", "store-key-of-a-rank", culprit(r2="user-code"), chain_ends=("build_vocabulary", "collectives.py"), newer=True),
    at_odds("new-group-alone", "new-group", culprit(r1="store-wait"), odd=(1,), newer=True),
    at_odds("late-start", "late-start", culprit(r2="subprocess"), chain_ends=("sleep", None)),
    at_odds("resumed-earlier", "resumed-earlier", culprit(r1="behind"), odd=(1,), newer=True),
    at_odds("logs-alone", "logs-alone", culprit(r0="collective-mismatch"), odd=(0,), newer=True),
    at_odds("uneven-inputs", "uneven-inputs", culprit(r2="collective-mismatch")),
    # Another pass of the same loop.
    at_odds("another-pass", "another-pass", culprit(r2="user-code"), newer=True),
    at_odds("another-pass-of-while", "another-pass-of-while", culprit(r2="user-code")),
    # It waits in the store, for the keys of an earlier step: both reasons name that.
    at_odds("another-pass-by-store", "another-pass-by-store", culprit(r2=("behind", "store-wait"))),
    at_odds("uneven-everywhere", "uneven-everywhere", culprit(r0="collective-mismatch"), newer=True),
    at_odds("uneven-loops", "uneven-loops", culprit(r2="collective-mismatch")),
    at_odds("two-groups", "two-groups", culprit(r1="user-code"), odd=(1,)),
    at_odds("monitored-barrier", "monitored-barrier", culprit(r2="user-code"), chain_ends=("build_vocabulary", "collectives.py")),
    at_odds("scatter-and-gather", "scatter-gather", culprit(r2="collective-mismatch")),
    at_odds("receive-during-barrier", "send-into-barrier", culprit(r2="unmatched-p2p")),
    at_odds("left-out-exchange", "left-out-exchange", culprit(r2="collective-mismatch"), ranks=6, newer=True),
    at_odds("left-out-sends", "left-out-sends", culprit(r2="collective-mismatch"), ranks=6),
    at_odds("another-stage", "another-stage", culprit(r2="unmatched-p2p"), newer=True),
    # The command line says which ranks should do the same, as in Megatron's jobs.
    Case("stages-mismatch", "collectives.py", ("stages", "--tensor-model-parallel-size", "1", "--pipeline-model-parallel-size", "2"),
         culprit(r4="collective-mismatch"), ranks=6, odd=(4,), newer=True),
    # Plain multiprocessing.
    plain("plain-barrier", "barrier", culprit(r2="network-io")),
    # The others are given, and nothing of them shows who else there was.
    plain("plain-left-barrier", "left-barrier", Truth("undecided")),
    plain("plain-queue", "queue", culprit(r1="user-code"), odd=(1,), chain_ends=("tokenize", "plain.py")),
    plain("plain-lock-holder", "lock-holder", culprit(r3="user-code"), odd=(3,), chain_ends=("tokenize", "plain.py")),
    plain("plain-file-lock", "file-lock", culprit(r0="file-io"), odd=(0,)),
    # MPI. Ranks that wait spin.
    mpi("mpich-loop", "mpich", "loop", culprit(r2="user-code"), chain_ends=("compute_forces", "mpi.c")),
    mpi("mpich-receive", "mpich", "receive", culprit(r0="unmatched-p2p"), odd=(0,), chain_ends=("receive_from", "mpi.c")),
    mpi("mpich-file-8", "mpich", "file", culprit(r5="file-io"), ranks=8, odd=(5,), chain_ends=("read_input_deck", "mpi.c")),
    mpi("openmpi-lock", "openmpi", "lock", culprit(r1="native-lock"), odd=(1,), chain_ends=("refine_mesh", "mpi.c")),
    mpi("openmpi-broadcast", "openmpi", "broadcast", culprit(r3="collective-mismatch"), odd=(3,)),
    mpi("openmpi-exchange", "openmpi", "exchange", culprit(r0="unmatched-p2p", r1="unmatched-p2p"), chain_ends=("receive_from", "mpi.c")),
    mpi("mpi4py-sleep", "mpi_job.py", "sleep", culprit(r2="user-code")),
    mpi("mpi4py-receive", "mpi_job.py", "receive", culprit(r1="unmatched-p2p"), odd=(1,)),
    # A job with a communication library of its own.
    Case("ring-compute", "ring.py", ("compute",), culprit(r2="user-code"), chain_ends=("simulate_particles", "native.c"), quick=True),
    Case("ring-sleep", "ring.py", ("sleep",), culprit(r1="user-code"), odd=(1,), chain_ends=("sleep", "ring.py"), quick=True),
    # A C++ framework that the tool has no rules for. Its loader is its own native code.
    Case("framework", "framework", (), culprit(r2=("data-loading", "user-code")), chain_ends=("flow::data::LoadBatch(bool)", "framework.cc"), quick=True),
    # Frameworks. A rank in a lock that it holds itself has no other thread to wait for.
    jax("jax-block-until-ready", "block-until-ready", culprit(r2="user-code"), chain_ends=("augment", "jax_cpu.py")),
    jax("jax-to-host", "to-host", culprit(r1="file-io"), odd=(1,), launch="indexed", chain_ends=("read_shard", "jax_cpu.py")),
    jax("jax-device-get", "device-get", culprit(r3="network-io"), odd=(3,), launch="argument", chain_ends=("fetch_vocabulary", "jax_cpu.py")),
    jax("jax-to-numpy", "to-numpy", culprit(r0="python-lock"), odd=(0,), launch="argument", chain_ends=("update_statistics", "jax_cpu.py")),
    jax("jax-barrier", "barrier", culprit(r2="file-io"), chain_ends=("read_shard", "jax_cpu.py")),
    jax("jax-allgather", "allgather", culprit(r1="user-code"), odd=(1,), launch="indexed", chain_ends=("augment", "jax_cpu.py")),
    jax("jax-host-callback", "host-callback", culprit(r2="network-io"), chain_ends=("fetch_vocabulary", "jax_cpu.py")),
    jax("jax-uneven", "uneven", culprit(r2="collective-mismatch"), chain_ends=()),
    ray("ray-environment", "environment", culprit(r2="user-code"), chain_ends=("augment", "ray_job.py")),
    ray("ray-arguments", "arguments", culprit(r1="file-io"), odd=(1,), chain_ends=("read_shard", "ray_job.py")),
    ray("ray-asks", "asks", culprit(r3="user-code"), odd=(3,), chain_ends=("augment", "ray_job.py")),
    deepspeed("deepspeed-zero3", "zero3", culprit(r2="user-code"), chain_ends=("augment", "deepspeed_job.py")),
    deepspeed("deepspeed-zero1", "zero1", culprit(r0="file-io"), odd=(0,), chain_ends=("read_shard", "deepspeed_job.py")),
    deepspeed("deepspeed-pipeline", "pipeline", culprit(r1="file-io"), odd=(1,), chain_ends=("read_shard", "deepspeed_job.py")),
    orbax("orbax-save", "save", culprit(r1="checkpoint-io"), odd=(1,), chain_ends=("write_statistics", "orbax_job.py")),
    orbax("orbax-background", "background", culprit(r2="checkpoint-io"), chain_ends=("write_statistics", "orbax_job.py")),
    # Its lock is one of the checkpoint's directory.
    orbax("orbax-directory", "directory", culprit(r0=("checkpoint-io", "file-io")), odd=(0,), chain_ends=("create", "orbax_job.py")),
    orbax("orbax-restore", "restore", culprit(r3="checkpoint-io"), odd=(3,), chain_ends=("read_text", "abstract_path.py")),
    orbax("orbax-one-process", "one-process", culprit(r0="collective-mismatch"), odd=(0,), chain_ends=()),
    # Grain sends the worker the functions of the main program by cloudpickle, which takes away their file.
    grain("grain-worker", "worker", culprit(r2="data-loading"), also=("worker",), chain_ends=("read_in_worker", "<dynamic-code>")),
    grain("grain-threads", "threads", culprit(r1="data-loading"), odd=(1,), chain_ends=("read_remote", "grain_job.py")),
    grain("grain-thread", "thread", culprit(r3="data-loading"), odd=(3,), chain_ends=("decode", "grain_job.py")),
    grain("grain-shards", "shards", culprit(r3="collective-mismatch"), odd=(3,), chain_ends=()),
    megatron("megatron-tensor", "tensor", culprit(r1="user-code"), odd=(1,), chain_ends=("augment", "megatron_job.py")),
    megatron("megatron-pipeline", "pipeline", culprit(r2="file-io"), chain_ends=("read_shard", "megatron_job.py")),
    megatron("megatron-mismatch", "mismatch", culprit(r3="collective-mismatch"), odd=(3,), chain_ends=()),
    megatron("megatron-checkpoint", "checkpoint", culprit(r0="checkpoint-io"), odd=(0,), chain_ends=("checkpoint", "megatron_job.py")),
    horovod("horovod-optimizer", "optimizer", culprit(r1="file-io"), odd=(1,), chain_ends=("read_shard", "horovod_job.py")),
    horovod("horovod-barrier", "barrier", culprit(r2="user-code"), chain_ends=("augment", "horovod_job.py")),
    # Servers; rank 4 is the engine, or the detokenizer.
    serving("vllm-worker-sleeps", culprit(r1="user-code"), odd=(1,), chain_ends=("compute_logits", "serving.py")),
    serving("vllm-worker-reads", culprit(r2="file-io"), chain_ends=("read_adapter", "serving.py")),
    serving("vllm-engine-reads", culprit(r4="file-io"), odd=(4,), chain_ends=("read_adapter", "serving.py")),
    serving("sglang-scheduler-sleeps", culprit(r2="user-code"), chain_ends=("compute_logits", "serving.py")),
    # No rank is to blame.
    serving("vllm-idle", Truth("healthy")),
    serving("sglang-idle", Truth("healthy")),
    jax("healthy-jax", "training", Truth("healthy"), launch="argument"),
    ray("healthy-ray", "steps", Truth("healthy")),
    ray("ray-idle", "idle", Truth("healthy")),
    deepspeed("healthy-deepspeed", "steps", Truth("healthy")),
    orbax("healthy-orbax", "steps", Truth("healthy")),
    grain("healthy-grain", "steps", Truth("healthy")),
    megatron("healthy-megatron", "steps", Truth("healthy")),
    horovod("healthy-horovod", "steps", Truth("healthy")),
    moving("healthy-training", "training", newer=True),
    moving("healthy-slow-steps", "slow-steps"),
    moving("healthy-slow-rank", "slow-rank"),
    moving("healthy-pipeline", "pipeline"),
    moving("healthy-evaluation", "evaluation", newer=True),
    moving("healthy-parameter-server", "parameter-server"),
    moving("healthy-slow-loaders", "slow-loaders", newer=True),
    moving("healthy-requests", "requests"),
    moving("healthy-with-unrelated", "training", unrelated=True),
    mpi("healthy-mpich", "mpich", "steps", Truth("healthy")),
    mpi("healthy-mpi4py", "mpi_job.py", "steps", Truth("healthy")),
    plain("healthy-plain", "simulate", Truth("healthy")),
    Case("healthy-framework", "framework", ("steps",), Truth("healthy"), quick=True),
    at_odds("all-receive-in-a-ring", "receive-ring", Truth("symmetric"), newer=True),
    at_odds("all-read", "all-read", Truth("symmetric")),
    at_odds("all-asleep", "all-asleep", Truth("symmetric")),
    at_odds("all-spin", "all-spin", Truth("symmetric")),
    Case("all-poll-framework", "framework", ("poll",), Truth("symmetric")),
    plain("all-wait-for-a-server", "alike", Truth("symmetric")),
    mpi("all-receive-mpich", "mpich", "ring", Truth("symmetric")),
    gloo("subset-without-culprit", "sleep", Truth("undecided"), ranks=8, odd=(6,), given=(0, 1, 2, 3)),
    gloo("subset-with-culprit", "sleep", culprit(r2="user-code"), ranks=8, odd=(2,), given=(0, 1, 2, 3)),
    gloo("culprit-with-unrelated", "receive ddp", culprit(r2="network-io"), unrelated=True),
]

FROM_CORES = ("loader-main", "loader-worker", "sleep", "python-locks", "reporter-lock", "checkpoint-save", "receive-unmatched", "mismatch-broadcast", "exception-hook",
              "openmpi-lock", "all-receive-in-a-ring")

CORES = [dataclasses.replace(case, name="cores-" + case.name, cores=True, newer=False) for case in LIVE if case.name in FROM_CORES] + [
    gloo("cores-crashed", "crash store", culprit(r1="crashed"), odd=(1,), cores=True),
]

    # All ranks are in the same synchronize(), and a saved report without GPU state does not contain what the job's author knows. Naming no
    # rank is right.
INDISTINCT_SNAPSHOTS = {"collective-mismatch": Truth(("symmetric", "undecided")), "group-order": Truth(("symmetric", "undecided")),
                        # These were saved before the tool read NCCL's own counts; the reports of two ranks have them.
                        "gpu-busy": Truth("undecided"), "unmatched-receive": Truth("undecided"),
                        # A single sample of a job that makes progress.
                        "training": Truth(("healthy", "undecided"))}


def snapshots():
    import json
    found = []
    for path in sorted(glob.glob(os.path.join(SNAPSHOTS, "*.truth.json"))):
        name = os.path.basename(path)[:-len(".truth.json")]
        with open(path, encoding="utf-8") as stream:
            saved = json.load(stream)
        truth = INDISTINCT_SNAPSHOTS.get(name) or Truth(saved["status"], {int(rank): reason for rank, reason in saved["suspects"].items()})
        found.append(Case("nccl-" + name, "snapshot", (os.path.join(SNAPSHOTS, name + ".json.gz"),), truth, quick=True))
    return found


def cases(newer_python=None, frameworks_python=None):
    """All cases; those marked `newer` once more with the other torch, if one is given; those of frameworks with the interpreter that has
    them."""
    again = [dataclasses.replace(case, name=case.name + "-newer", python=newer_python) for case in LIVE if case.newer] if newer_python else []
    live = [dataclasses.replace(case, python=frameworks_python) if case.framework else case for case in LIVE]
    return live + again + CORES + snapshots()
