"""What the ranks of all GPU cases share: the NCCL process group, steps that go well, and troubles that the odd rank runs into.

A case's innocent ranks call announce("settles"), because a rank that waits for its GPU may sleep, spin or be in between; the benchmark then
gives the job some seconds to come to its hang.
"""
import datetime
import os
import socket
import subprocess
import sys
import threading
import time

import job
from job import FOREVER, SILENT_FIFO, connect_to_silent_server, is_odd, rank, world

GOOD_STEPS = 3
WATCHDOG_SECONDS = int(os.environ.get("GPU_CASES_WATCHDOG", "0"))     # NCCL's watchdog ends the ranks after that; 0: it does not
TIMEOUT = datetime.timedelta(seconds=WATCHDOG_SECONDS or 8 * 3600)    # of every process group: new_group() does not take that of the first one


def announce(how, name=None):
    """As job.announce, for the function that calls this. Where the watchdog ends the job, all ranks will be gone."""
    job.announce("gone" if WATCHDOG_SECONDS else how, name, depth=2)


def device_index():
    """Ranks share the GPUs if there are fewer than ranks; NCCL_HOSTID, which bench/gpu sets then, keeps NCCL from refusing that."""
    import torch
    return int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count()


def connect(**options):
    """torch.distributed over NCCL, in which one all-reduce has passed."""
    import torch
    import torch.distributed as dist
    torch.cuda.set_device(device_index())
    if torch.cuda.device_count() < world():
        os.environ.setdefault("NCCL_HOSTID", "host-%d" % rank())     # of ranks that torchrun has started
    options.setdefault("timeout", TIMEOUT)
    dist.init_process_group("nccl", **options)
    tensor = torch.ones(8, device="cuda")
    dist.all_reduce(tensor)
    torch.cuda.synchronize()
    return torch, dist


def gloo_group(dist):
    """A group of all ranks that talks over gloo."""
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    return dist.new_group(backend="gloo")


def sleep():
    announce("settles")
    time.sleep(FOREVER)


def spin():
    announce("settles")
    number = 0
    while True:
        number ^= 1


def lock():
    guard = threading.Lock()

    def write_metrics():
        with guard:
            time.sleep(FOREVER)

    threading.Thread(target=write_metrics, daemon=True).start()
    while not guard.locked():
        time.sleep(0.01)
    announce("settles")
    with guard:
        pass


def read():
    announce("settles")
    with open(SILENT_FIFO, "rb", buffering=0) as stream:
        stream.read(4096)


def receive():
    connection = connect_to_silent_server()
    announce("settles")
    connection.recv(1)


def run_program():
    announce("settles")
    subprocess.run(["sleep", str(FOREVER)], check=False)


def kernel():
    """A kernel that does not end."""
    import torch
    torch.cuda._sleep(1 << 46)
    announce("settles")
    torch.cuda.synchronize()


def save():
    import torch
    announce("settles")
    torch.save({"step": torch.zeros(1 << 16)}, os.path.join(os.environ["HANGS_DIRECTORY"], "checkpoint.pt"))


TROUBLES = {"sleep": sleep, "spin": spin, "lock": lock, "read": read, "receive": receive, "subprocess": run_program, "kernel": kernel, "save": save}


def meet(trouble):
    """Called by every rank once its good steps are done: the odd ranks run into the trouble, the others announce that they go on."""
    if is_odd():
        TROUBLES[trouble]()
    else:
        announce("settles")


def run(cases):
    """The main program of a file of cases: its first argument names the function."""
    cases[sys.argv[1]](*sys.argv[2:])


__all__ = ["FOREVER", "GOOD_STEPS", "TROUBLES", "announce", "connect", "device_index", "gloo_group", "is_odd", "meet", "rank", "run", "socket", "world"]
