"""Jobs that are well, in which one rank serves another by torch.distributed.rpc, searches, collects rewards, waits for a lock that is
given back, is in one call of a library, or in a pass of its compiler.

    eleventh_well.py CASE
"""
import threading
import time
import zlib

from eleventh import collect_rollouts, search_step, start_rpc
from gpu_rank import announce, connect, rank, run
from healthy import steps
from inside import ddp
from tenth_well import train_once


def weights_of(layer):
    """Called by the other rank."""
    time.sleep(0.05)
    return [0.5] * (16 + layer)


def rpc_server():
    """Rank 0 has nothing to do but to answer the other rank by torch.distributed.rpc, and waits for that to say that it is done. The other
    rank asks for the weights of some layers in each step."""
    torch, _ = connect()
    rpc = start_rpc()
    if rank() == 0:
        done = threading.Event()
        announce("settles")
        done.wait()
    model = torch.nn.Linear(256, 256).cuda()

    def train_step(_):
        for layer in range(8):
            rpc.rpc_sync("trainer0", weights_of, args=(layer,))
        train_once(torch, model)

    steps(train_step)


def searches():
    """In each step the second rank searches along some gradients for a step that is small enough, for more than a second, and asks its GPU
    for the result of each comparison. The first rank waits for it."""
    torch, _ = connect()
    model = ddp(torch)

    def train_step(_):
        end = time.monotonic() + 1.2
        while rank() == 1 and time.monotonic() < end:
            search_step(torch, torch.zeros(4096, device="cuda"), torch.full((4096,), -6.0, device="cuda"))
        train_once(torch, model)

    steps(train_step)


def rollouts():
    """Before each step a rank collects the rewards of four environments by asyncio, over TCP, each of which takes up to 1.2 s to
    answer, and those of the second rank longer."""
    collect = collect_rollouts(lambda number, action: (0.1 + 0.2 * rank()) * (action + 1))
    torch, _ = connect()
    model = ddp(torch)

    def train_step(number):
        collect(number)
        train_once(torch, model)

    steps(train_step)


def flushed_log():
    """A thread of the second rank compresses the log again and again, and keeps the lock of the log for nearly a second. Before each step
    the main thread takes the lock to add a line; the first rank waits for it."""
    torch, _ = connect()
    model, guard, log = ddp(torch), threading.Lock(), bytearray(1 << 22)

    def compress_log():
        while True:
            with guard:
                end = time.monotonic() + 0.8
                while time.monotonic() < end:
                    zlib.compress(log, 9)
            time.sleep(0.1)

    def train_step(number):
        with guard:
            log.extend(b"step %d\n" % number)
        train_once(torch, model)

    if rank() == 1:
        threading.Thread(target=compress_log, name="log", daemon=True).start()
    steps(train_step)


def contractions():
    """In each step the second rank multiplies some matrices by numpy.einsum(), some tenths of a second in one call,
    for more than a second. The first rank waits for it."""
    import numpy
    torch, _ = connect()
    model, matrix = ddp(torch), numpy.ones((18, 18))

    def train_step(_):
        end = time.monotonic() + 1.2
        while rank() == 1 and time.monotonic() < end:
            numpy.einsum("ab,bc,cd,de,ef->af", *[matrix] * 5)
        train_once(torch, model)

    steps(train_step)


def rename_nodes(graph_module, _):
    """A backend of torch.compile() with a slow pass, which goes over the graph many times."""
    end = time.monotonic() + 1.0
    while time.monotonic() < end:
        for node in graph_module.graph.nodes:
            node.meta["visits"] = node.meta.get("visits", 0) + len(node.users)
        graph_module.graph.lint()
    graph_module.recompile()
    return graph_module.forward


def slow_pass():
    """In each step the second rank compiles a function anew, by a backend of the job's own, which takes a second. The first rank waits
    for it."""
    torch, _ = connect()
    model = ddp(torch)

    def smooth(values):
        for _ in range(8):
            values = torch.tanh(values + values.sin())
        return values

    def train_step(_):
        if rank() == 1:
            torch._dynamo.reset()
            torch.compile(smooth, backend=rename_nodes)(torch.ones(64, device="cuda"))
        train_once(torch, model)

    steps(train_step)


CASES = {"rpc-server": rpc_server, "searches": searches, "rollouts": rollouts, "flushed-log": flushed_log, "contractions": contractions,
         "slow-pass": slow_pass}

if __name__ == "__main__":
    run(CASES)
