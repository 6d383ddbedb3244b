"""What the ranks of all cases share: who they are, what there is to wait for, and how they tell the benchmark where they are going to stand.

A rank calls announce() right before the call that it will wait in; the benchmark looks at the job when every rank has done so and /proc shows
that it has come there (starting.py). Nothing here is known to rankstacks: it sees processes.
"""
import ctypes
import os
import signal
import socket
import sys

FOREVER = 100000
DIRECTORY = os.environ.get("HANGS_DIRECTORY", ".")
SILENT_FIFO = os.path.join(DIRECTORY, "shard-0003.bin")     # the benchmark holds it open and writes nothing: opening succeeds, reading waits
UNOPENED_FIFO = os.path.join(DIRECTORY, "config.json")      # nobody holds it: opening waits
FULL_FIFO = os.path.join(DIRECTORY, "checkpoint.pt")        # full: writing waits


def rank():
    for name in ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK"):
        if name in os.environ:
            return int(os.environ[name])
    raise SystemExit("this program is started as a rank, by bench/hangs")


def world():
    return int(os.environ["WORLD_SIZE"])


def odd_ranks():
    return [int(number) for number in os.environ.get("HANGS_ODD", "2").split(",")]


def is_odd():
    return rank() in odd_ranks()


def announce(how="asleep", name=None, pid=None):
    """`how` this process (or `pid`) will be seen to stand: asleep, polls (wakes up again and again), waits (one of the two), spins, moves (has done
    good steps and goes on), stopped, gone. `name`: of the rank, or of a process beside the ranks.
    It will stand in the function that calls this."""
    place = sys._getframe(1).f_code
    path = os.path.join(DIRECTORY, "at.%s" % (rank() if name is None else name))
    with open(path + ".new", "w", encoding="ascii") as out:
        out.write("%d %s %s %s\n" % (pid or os.getpid(), how, place.co_name, os.path.basename(place.co_filename)))
    os.rename(path + ".new", path)


def end_with_parent():
    ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)   # PR_SET_PDEATHSIG


def native():
    """(library whose calls release the GIL, the same one keeping it): native.c"""
    path = os.environ["HANGS_NATIVE"]
    return ctypes.CDLL(path), ctypes.PyDLL(path)


def connect_to_silent_server():
    """A server that accepts and never answers."""
    return socket.create_connection(("127.0.0.1", int(os.environ["HANGS_PORT"])))


def connect():
    """torch.distributed over gloo, with one barrier behind it, so that all connections stand."""
    import datetime
    import torch
    import torch.distributed as dist
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=datetime.timedelta(hours=8))
    dist.barrier()
    return torch, dist
