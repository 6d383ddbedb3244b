"""Cases that were written without a look at the rules of the tool, to see what these make of jobs that they do not know. Their truths are the
judgement of a person who reads the program, as those of table.py, and stay as they were written. They run if they are named, or all of them
with --held-out.
"""
import dataclasses

from hang_cases.scoring import Truth
from hang_cases.table import Case, culprit

MISMATCH = ("collective-mismatch",)
# It waits in a group whose other members wait in another group: both are said of that.
OTHER_GROUP = ("collective-mismatch", "process-group-order")
WORKER = {"also": ("worker",)}


def held_up(name, case, truth, **options):
    options.setdefault("newer", True)
    return Case("field-" + name, "field.py", (case,), truth, **options)


def data(name, case, truth, function, file="field_data.py", **options):
    return Case("field-" + name, "field_data.py", (case,), truth, also=("worker",), chain_ends=(function, file), newer=True, **options)


def apart(name, case, rank, reasons, **options):
    options.setdefault("newer", True)
    return Case("field-" + name, "field_apart.py", (case,), Truth("culprit", {rank: reasons}), odd=options.pop("odd", (rank,)), **options)


def well(name, case, truth=Truth("healthy"), **options):
    return Case("field-" + name, "field_well.py", (case,), truth, newer=True, **options)


def plain(name, case, truth, **options):
    return Case("field-" + name, "field_plain.py", (case,), truth, launch="own", quick=True, **options)


def mesh(name, case, truth, **options):
    return Case("field-" + name, "field_mesh", (case,), truth, launch="argument", quick=True, **options)


def mpi(name, library, case, truth, **options):
    return Case("field-" + name, "field-" + library, (case,), truth, launch="own", quick=True, **options)


def framework(name, case, truth, needs, **options):
    return Case("field-" + name, "field_frameworks.py", (case,), truth, framework=True, needs=needs, **options)


LIVE = [
    # One rank is held up in its own process. It sends again to a server that is not there, and sleeps in between: its program waits for a
    # server, its stack sleeps in code of its own.
    held_up("retry-long-pauses", "log-with-long-pauses", culprit(r2=("network-io", "user-code")), chain_ends=("back_off", "field.py")),
    held_up("retry-short-pauses", "log-with-short-pauses", culprit(r1=("network-io", "user-code")), odd=(1,), chain_ends=("send_with_retries", "field.py")),
    # It waits for an event of its own thread, whose event loop waits for a server.
    held_up("async-read", "read-vocabulary", culprit(r2=("network-io", "python-lock")), chain_ends=("run_forever", "base_events.py")),
    held_up("async-checkpoint", "save-to-store", culprit(r0="checkpoint-io"), odd=(0,), chain_ends=("run_forever", "base_events.py")),
    # It joins threads, which wait for a server.
    held_up("upload-threads", "upload-parts", culprit(r3=("network-io", "python-lock")), odd=(3,), ranks=8, chain_ends=("_worker", "thread.py")),
    held_up("finalizer-socket", "replace-handle", culprit(r2="network-io"), chain_ends=("__del__", "field.py")),
    # The condition of a library, which its thread would signal when the server has answered.
    held_up("native-client", "native-client", culprit(r2=("network-io", "native-lock")), chain_ends=("receive_answers", "field_native.c")),
    # It has not raised, but is in atexit while the others wait.
    held_up("left-early-atexit", "leave-early", culprit(r1=("network-io", "exception")), odd=(1,), chain_ends=("finish_run", "field.py")),
    # A queue of the job's own data pipeline.
    held_up("dead-prefetcher", "take-prefetched", culprit(r2=("data-loading", "python-lock"))),
    held_up("leaked-connection", "take-leaked-connection", culprit(r2="python-lock")),
    held_up("dead-thread-barrier", "meet-dead-thread", culprit(r0="python-lock"), odd=(0,)),
    # One of the two locks is the GIL.
    held_up("mutex-and-gil", "mutex-and-gil", culprit(r1=("native-lock", "python-lock")), odd=(1,), chain_ends=()),
    held_up("device-poll", "poll-device", culprit(r2="user-code"), chain_ends=("wait_for_device", "field_native.c")),
    # It polls: it waits for a file's lock, and sleeps in code of its own.
    held_up("polled-flock", "build-cache", culprit(r1=("file-io", "user-code")), odd=(1,), launch="torchrun", chain_ends=("__enter__", "field.py")),
    held_up("stale-lock-file", "await-stale-lock", culprit(r3=("file-io", "user-code")), odd=(3,), launch="spawn", chain_ends=("await_stale_lock", "field.py")),
    held_up("unread-log", "log-to-unread-pipe", culprit(r3="file-io"), odd=(3,), launch="torchrun"),
    held_up("signal-checkpoint", "save-on-signal", culprit(r1="checkpoint-io"), odd=(1,)),
    held_up("unpacking", "unpack", culprit(r0="subprocess"), odd=(0,), chain_ends=()),
    # It polls: it waits for its child, and sleeps in code of its own.
    held_up("polled-child", "poll-child", culprit(r2=("subprocess", "user-code")), also=("child",), chain_ends=()),
    # Its manager is a child, which it asks over a socket.
    held_up("manager", "ask-manager", culprit(r2=("subprocess", "network-io")), also=("manager",), chain_ends=("look_up", "field.py")),
    held_up("main-process-first", "main-process-first", culprit(r0="network-io"), odd=(0,), ranks=8, chain_ends=("fetch_dataset", "field.py")),
    held_up("saving-threads", "saving-threads", culprit(r1="checkpoint-io"), odd=(1,), chain_ends=("save", "field.py")),
    # Its event loop has nothing to do, because a queue of its own stays empty.
    held_up("event-loops", "event-loops", culprit(r2=("network-io", "python-lock")), chain_ends=("train", "field.py")),
    # A worker of its loader does not deliver.
    data("worker-logs", "logged", culprit(r2="data-loading"), "write_record"),
    data("worker-async-store", "remote", culprit(r2="data-loading"), "call", "field.py"),
    data("worker-native-pool", "resized", culprit(r1="data-loading"), "resize_image", "field_native.c", odd=(1,)),
    # The worker is what was stopped, or what is in the debugger.
    data("worker-stopped", "stopped", culprit(r2=("data-loading", "stopped")), "decode"),
    data("worker-debugged", "debugged", culprit(r0=("debugger", "data-loading")), "decode", odd=(0,)),
    data("worker-second-epoch", "persistent", culprit(r1="data-loading"), "decode", ranks=2, odd=(1,)),
    # One rank takes another path than the others.
    apart("evaluates-with-ddp", "evaluates-with-wrapper", 1, MISMATCH),
    apart("metric-rank-zero", "metric-on-one-rank", 0, MISMATCH),
    apart("state-rank-zero", "gathered-state", 0, MISMATCH),
    apart("barrier-of-pair", "barrier-of-pair", 1, OTHER_GROUP),
    apart("ring-wrong-side", "ring-from-wrong-side", 1, "unmatched-p2p"),
    # Rank 2 has forgotten to send. It is with the others where all should be by now, and rank 3 waits for what nobody sends.
    apart("exchange-no-send", "exchange-without-send", 3, "unmatched-p2p", odd=(2,)),
    apart("accumulation", "accumulation-off-by-one", 2, MISMATCH),
    apart("skips-nan", "skips-bad-batch", 1, MISMATCH),
    apart("stops-alone", "stops-alone", 3, MISMATCH),
    apart("tries-again", "tries-again", 2, MISMATCH),
    # Newer versions of torch do not wait for the whole world there.
    apart("group-by-members", "group-by-members", 3, MISMATCH, newer=False),
    apart("tensor-and-data-parallel", "sums-in-two-halves", 2, "file-io", chain_ends=("read_shard", "field_apart.py")),
    apart("killed-agent-stopped", "killed-under-agent", 3, "missing", launch="torchrun", chain_ends=()),
    apart("pipelines", "pipeline-stage-computes", 4, "user-code", ranks=6, chain_ends=("balance_experts", "field_apart.py")),
    # Plain multiprocessing, C++ and MPI.
    plain("plain-condition", "condition", culprit(r2="file-io"), chain_ends=("read_prices", "field_plain.py")),
    plain("plain-tasks", "task-queue", culprit(r1="user-code"), odd=(1,), chain_ends=("search_forever", "field_plain.py")),
    plain("plain-ring", "ring-of-pipes", culprit(r3="subprocess"), odd=(3,), ranks=5, chain_ends=("sleep", None)),
    mesh("mesh-locks", "locks", culprit(r3="native-lock"), odd=(3,), ranks=5, chain_ends=()),
    # It asks again and again, and sleeps in between in its own code.
    mesh("mesh-coordinator", "coordinator", culprit(r1=("network-io", "user-code")), odd=(1,), chain_ends=("mesh::register_with_coordinator()", "field_mesh.cc")),
    # It unwinds, and a destructor waits for a thread that waits for a server.
    mesh("mesh-exception", "exception", culprit(r2=("exception", "network-io")), chain_ends=()),
    mpi("mpich-halo", "mpich", "halo", culprit(r2="unmatched-p2p")),
    mpi("openmpi-halo", "openmpi", "halo", culprit(r1="unmatched-p2p"), odd=(1,)),
    mpi("mpich-farm", "mpich", "farm", culprit(r2="user-code"), chain_ends=("solve_implicitly", "field_mpi.c")),
    mpi("openmpi-grid", "openmpi", "grid", Truth("culprit", {1: OTHER_GROUP}), odd=(1,)),
    # Frameworks.
    framework("filelock", "filelock", culprit(r1="file-io"), ("filelock",), odd=(1,), chain_ends=("wait_for_filelock", "field_frameworks.py")),
    framework("fsspec", "fsspec", culprit(r2=("network-io", "python-lock")), ("fsspec", "aiohttp"), chain_ends=("run_forever", "base_events.py")),
    framework("torch-compile", "compile", culprit(r3="compiling"), ("torch._inductor",), odd=(3,), also=("compiler",), chain_ends=("sleep", None)),
    framework("accelerate-gather", "accelerate-gather", culprit(r1=MISMATCH), ("accelerate",), odd=(1,), chain_ends=()),
    framework("lightning-save", "lightning-save", culprit(r0=MISMATCH), ("lightning",), odd=(0,), chain_ends=()),
    # No rank is to blame.
    framework("well-lightning", "lightning-steps", Truth("healthy"), ("lightning",)),
    well("well-sleepy-steps", "sleepy-steps"),
    well("well-long-checkpoint", "long-checkpoint"),
    well("well-long-evaluation", "long-evaluation"),
    well("well-pauses", "pauses-between-epochs"),
    well("well-slow-loader", "one-slow-loader"),
    well("well-slow-server", "slow-server", odd=(1,)),
    well("well-micro-batches", "uneven-micro-batches"),
    well("well-warm-up", "warm-up"),
    well("well-learner", "learner-and-actors"),
    well("well-event-loops", "event-loops"),
    well("well-heartbeats", "heartbeats"),
    plain("well-farm", "farm", Truth("healthy")),
    mesh("well-mesh", "steps", Truth("healthy"), ranks=5),
    mpi("well-mpi-farm", "mpich", "work", Truth("healthy")),
    well("all-start-tracker", "all-start-tracker", Truth("symmetric"), ranks=6),
    well("all-wait-for-loaders", "all-wait-for-loaders", Truth("symmetric")),
    well("subset-in-backward", "in-backward", Truth("undecided"), odd=(3,), given=(0, 1)),
]


def more(name, case, truth, **options):
    options.setdefault("newer", True)
    return Case("field-" + name, "field_more.py", (case,), truth, **options)


SECOND = [
    # It waits for threads of a library, one of which reads a file.
    more("native-barrier", "native-barrier", culprit(r2=("file-io", "native-lock")), chain_ends=("read_coefficients", "field_native.c")),
    more("starting-child", "start-child", culprit(r1="subprocess"), odd=(1,), chain_ends=()),
    more("child-full-pipe", "child-with-full-pipe", culprit(r2="subprocess"), chain_ends=("dd", None)),
    more("task-not-done", "await-tasks", culprit(r3="python-lock"), odd=(3,), chain_ends=()),
    more("own-select-loop", "serve-own-loop", culprit(r2="network-io"), chain_ends=()),
    # It waits for the import of a module, which its thread has begun, and which reads a file.
    more("import-of-thread", "import-after-thread", culprit(r0=("python-lock", "file-io")), odd=(0,), chain_ends=("<module>", "vocabulary.py")),
    more("two-of-eight", "two-of-eight", culprit(r2="file-io", r5="python-lock"), odd=(2, 5), ranks=8, chain_ends=("two_of_eight", "field_more.py")),
    more("worker-database", "worker-with-database", culprit(r2="data-loading"), also=("worker",), chain_ends=("remember", "field_more.py")),
    more("other-source", "broadcast-from-other-source", culprit(r1=MISMATCH), odd=(1,)),
    # Rank 2 waits for it, as it should.
    more("wrong-destination", "send-to-wrong-rank", culprit(r1="unmatched-p2p"), odd=(1,)),
    # The others look for a file, in a loop of their own: they wait for rank 0.
    more("marker-file", "await-marker", culprit(r0="checkpoint-io"), odd=(0,)),
    plain("plain-flag", "flag", culprit(r2="file-io"), chain_ends=("read_prices", "field_plain.py")),
    plain("well-stages", "stages", Truth("healthy")),
    more("well-prepares", "prepares-for-others", Truth("healthy")),
    more("well-serves-metrics", "serves-metrics", Truth("healthy")),
    more("well-one-pauses", "one-pauses", Truth("healthy")),
    more("well-compresses", "one-compresses", Truth("healthy")),
]
LIVE += SECOND


def night(name, case, truth, **options):
    options.setdefault("newer", True)
    return Case("night-" + name, "night.py", (case,), truth, **options)


def night_apart(name, case, truth, **options):
    options.setdefault("newer", True)
    return Case("night-" + name, "night_apart.py", (case,), truth, **options)


def night_well(name, case, *statuses, **options):
    return Case("night-" + name, "night_well.py", (case,), Truth(statuses), newer=True, **options)


def night_mpi(name, case, truth, **options):
    return Case("night-" + name, "night-openmpi", (case,), truth, launch="own", quick=True, **options)


NIGHT = [
    # The archive comes from a child, and is the rank's data.
    night("tar-pipe", "tar-pipe", culprit(r2=("data-loading", "subprocess")), chain_ends=("cat", None)),
    # A thread of its data set waits for the server.
    night("streamed", "streamed", culprit(r1=("network-io", "data-loading")), odd=(1,), chain_ends=("read_ahead", "night.py")),
    night("expression", "expression", culprit(r2="user-code")),
    night("duplicates", "duplicates", culprit(r0="user-code"), odd=(0,), chain_ends=("compare_rows", "night.py")),
    night("handshake", "handshake", culprit(r3="network-io"), odd=(3,)),
    # It is the client's own pause.
    night("backoff", "backoff", culprit(r1="network-io"), odd=(1,)),
    # The service is a child of the rank, which asks it over a socket.
    night("service", "service", culprit(r2=("subprocess", "network-io")), chain_ends=("upload", "night.py")),
    night("log-queue", "log-queue", culprit(r3="python-lock"), odd=(3,), chain_ends=()),
    night("signal-lock", "signal-lock", culprit(r2="python-lock"), chain_ends=("add", "night.py")),
    # It is in the interpreter's exit, which waits for a thread.
    night("leaves", "leaves", culprit(r1=("exception", "python-lock")), odd=(1,), chain_ends=("get", "queue.py")),
    # It sleeps in its own code, within the handler of an exception.
    night("memory", "memory", culprit(r2=("user-code", "exception"))),
    # The loop has nothing to do until the child ends.
    night("async-child", "async-child", culprit(r0=("subprocess", "network-io")), odd=(0,), chain_ends=("sleep", None)),
    # What is left of the worker is that its result is missing: the rank waits for a result of its children, on an event of a thread.
    night("killed-worker", "killed-worker", culprit(r2=("worker-dead", "subprocess", "python-lock")), chain_ends=()),
    night("inherited", "inherited", culprit(r1="subprocess"), odd=(1,), chain_ends=("sleep", None)),
    # The lock is one of multiprocessing, in shared memory.
    night("lock-of-killed", "lock-of-killed", culprit(r2=("python-lock", "native-lock", "worker-dead"))),
    night_apart("draws", "draws", culprit(r0="user-code"), odd=(0,), chain_ends=("draw_curves", "night_apart.py")),
    night_apart("uneven-inputs", "uneven-inputs", culprit(r2="file-io"), chain_ends=("read_shard", "night_apart.py")),
    night_apart("object-lists", "object-lists", culprit(r0=MISMATCH), odd=(0,)),
    night_apart("both-send", "both-send", culprit(r0="unmatched-p2p", r1="unmatched-p2p"), odd=(0, 1)),
    night_apart("scatter-source", "scatter-source", culprit(r2=MISMATCH)),
    night_apart("half-in-group", "half-in-group", culprit(r2=MISMATCH)),
    night_apart("unused-branch", "unused-branch", culprit(r2=MISMATCH)),
    # Standard input of a rank that asks.
    night_apart("asks", "asks", culprit(r5="debugger"), ranks=6, odd=(5,)),
    # Two jobs: ranks 0 and 1 are those of one that is well, 2 to 5 are the ranks 0 to 3 of the other.
    night_apart("two-jobs", "two-jobs", culprit(r5="file-io"), ranks=6, odd=(5,), launch="own", newer=False),
    night_apart("elastic", "elastic", culprit(r2="file-io"), launch="own", newer=False, chain_ends=("read_shard", "night_apart.py")),
    night_mpi("openmpi-future", "future", culprit(r1="native-lock"), odd=(1,), chain_ends=()),
    # The handler of a fault waits for a lock of the process.
    night_mpi("openmpi-fault", "fault", culprit(r2=("native-lock", "crashed", "exception")), chain_ends=()),
    # Rank 2 is with the others where all should be by now.
    night_mpi("openmpi-collect", "collect", culprit(r0="unmatched-p2p")),
    night_mpi("openmpi-window", "window", culprit(r1="user-code"), odd=(1,), chain_ends=("(anonymous namespace)::rebalance(double)", "night_mpi.cc")),
    Case("night-shm", "night_shm", ("barrier",), culprit(r3="file-io"), odd=(3,), ranks=5, launch="argument", quick=True, chain_ends=("(anonymous namespace)::read_boundary()", "night_shm.cc")),
    Case("night-half-a-request", "night_plain.py", ("half-a-request",), culprit(r2="file-io"), launch="own", quick=True, chain_ends=("read_gradients", "night_plain.py")),
    # No rank is to blame.
    night_well("well-compiles", "compiles", "healthy"),
    # A job that waits for work is not stuck, and nobody is accused.
    night_well("well-serves", "serves", "healthy", "undecided"),
    night_well("well-tokenizes", "tokenizes", "healthy"),
    night_well("well-downloads", "downloads", "healthy"),
    night_mpi("well-output", "output", Truth("healthy")),
    night_well("all-key", "key", "symmetric"),
    night_well("all-lock", "lock", "symmetric"),
    night_well("all-finish", "finish", "symmetric"),
]
LIVE += NIGHT

FROM_CORES = ("field-async-checkpoint", "field-saving-threads", "field-mesh-locks", "field-barrier-of-pair", "field-finalizer-socket")
CORES = [dataclasses.replace(case, name="cores-" + case.name, cores=True, newer=False) for case in LIVE if case.name in FROM_CORES]


def held_out_cases(newer_python=None, frameworks_python=None):
    """All of them; those marked `newer` once more with the other torch, if one is given."""
    again = [dataclasses.replace(case, name=case.name + "-newer", python=newer_python) for case in LIVE if case.newer] if newer_python else []
    return [dataclasses.replace(case, python=frameworks_python) if case.framework else case for case in LIVE] + again + CORES
