"""What the ranks of all cases share: their rank numbers, things to wait for, and how they announce to the benchmark where they will wait.

A rank calls announce() right before the call that it will wait in. The benchmark runs the tool when every rank has done so and /proc shows
that the rank has reached the call (starting.py). rankstacks knows nothing of this module: it sees ordinary processes.
"""
import ctypes
import os
import signal
import socket
import sys

FOREVER = 100000
DIRECTORY = os.environ.get("HANGS_DIRECTORY", ".")
SILENT_FIFO = os.path.join(DIRECTORY, "shard-0003.bin")     # the benchmark has it open and writes nothing: open() succeeds, read() waits
UNOPENED_FIFO = os.path.join(DIRECTORY, "config.json")      # nobody has it open: open() waits
FULL_FIFO = os.path.join(DIRECTORY, "checkpoint.pt")        # full: write() waits


def rank():
    for name in ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "HANGS_RANK"):
        if name in os.environ:
            return int(os.environ[name])
    raise SystemExit("this program is started as a rank, by bench/hangs")


def world():
    return int(os.environ["WORLD_SIZE"])


def odd_ranks():
    return [int(number) for number in os.environ.get("HANGS_ODD", "2").split(",")]


def is_odd():
    return rank() in odd_ranks()


def announce(how="asleep", name=None, pid=None, depth=1):
    """`how` is the state that this process (or `pid`) will be seen in: asleep, polls (wakes up again and again), waits (one of the two),
    settles (any of these, after some seconds), spins, moves (has done good steps and goes on), stopped, gone. `name` is that of the rank, or of another process of the job. The process
    will wait in the function that calls this, or `depth` functions further out."""
    place = sys._getframe(depth).f_code
    path = os.path.join(DIRECTORY, "at.%s" % (rank() if name is None else name))
    with open(path + ".new", "w", encoding="ascii") as out:
        out.write("%d %s %s %s\n" % (pid or os.getpid(), how, place.co_name, os.path.basename(place.co_filename)))
    os.rename(path + ".new", path)


def end_with_parent():
    ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)   # PR_SET_PDEATHSIG


def native():
    """(native.c as a library whose calls release the GIL, the same library keeping it)"""
    path = os.environ["HANGS_NATIVE"]
    return ctypes.CDLL(path), ctypes.PyDLL(path)


def connect_to_silent_server():
    """Connects to a server that accepts and never answers."""
    return socket.create_connection(("127.0.0.1", int(os.environ["HANGS_PORT"])))


def connect():
    """torch.distributed over gloo; one barrier has passed, so that all connections are established."""
    import datetime
    import torch
    import torch.distributed as dist
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=datetime.timedelta(hours=8))
    dist.barrier()
    return torch, dist
