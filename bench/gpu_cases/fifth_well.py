"""Jobs that are well, in which ranks wait for a file, a child, the store, a message or a signal of the other one, for some seconds at most.

    fifth_well.py CASE
"""
import datetime
import os
import time

from gpu_rank import connect, gloo_group, rank, run, world
from fifth_groups import symmetric_buffer
from healthy import steps
from inside import ddp
from training import model_of


def index_marker():
    """At the begin of each short epoch rank 0 shuffles an index for a second or two; the others look every few milliseconds whether its file is
    there."""
    import numpy
    torch, dist = connect()
    model, epochs = ddp(torch), gloo_group(dist)
    path = os.path.join(os.environ["HANGS_DIRECTORY"], "index.%d.npy")

    def build_index(number):
        keys, end = numpy.random.default_rng(number).random(1 << 21), time.monotonic() + 1.2
        while time.monotonic() < end:
            keys = numpy.argsort(keys).astype("float64")
        numpy.save(path % number + ".new.npy", keys[:4096])
        os.rename(path % number + ".new.npy", path % number)

    def epoch(number):
        if rank() == 0:
            build_index(number)
        while not os.path.exists(path % number):
            time.sleep(0.01)
        numpy.load(path % number)
        for _ in range(10):
            model(torch.randn(32, 256, device="cuda")).square().mean().backward()
            torch.cuda.synchronize()
        dist.barrier(group=epochs)
        if rank() == 0:
            os.unlink(path % number)

    steps(epoch)


def traced():
    """Rank 0 profiles every fourth step, with many small operations, and writes the trace, which takes longer than the steps."""
    torch, _ = connect()
    model = ddp(torch)
    path = os.path.join(os.environ["HANGS_DIRECTORY"], "trace.json")
    profile = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], schedule=torch.profiler.schedule(wait=2, warmup=1, active=1),
                                     with_stack=True, on_trace_ready=lambda profile: profile.export_chrome_trace(path))
    if rank() == 0:
        profile.start()

    def train_step(_):
        features = torch.randn(32, 256, device="cuda")
        for _ in range(500):
            features = features * 0.999 + 0.001
        loss = model(features).square().mean()
        loss.backward()
        loss.item()
        if rank() == 0:
            profile.step()

    steps(train_step)


def speculative():
    """Rank 1 drafts tokens by a small model, for half a second, and sends them to rank 0, which verifies them and answers with how many are right:
    one of both waits for a message at nearly any time."""
    torch, dist = connect()
    model, tokens, accepted = model_of(torch), torch.zeros(64, 256, device="cuda"), torch.zeros(1, device="cuda")

    def infer(state, count):
        with torch.no_grad():
            for _ in range(count):
                state = torch.tanh(model(state))
                state.sum().item()
                time.sleep(0.008)
        return state

    def exchange(_):
        if rank() == 1:
            dist.send(infer(torch.randn(64, 256, device="cuda"), 60), 0)
            dist.recv(accepted, 0)
            accepted.item()
        else:
            dist.recv(tokens, 1)
            torch.cuda.synchronize()
            accepted.copy_((infer(tokens, 40) > 0).float().mean())
            dist.send(accepted, 1)

    steps(exchange)


def signalled():
    """The ranks write into each other's symmetric memory by turns, and wait for the signal of the other one in a kernel; in between, the one whose
    turn it is plans in Python for about a second."""
    torch, dist = connect()
    buffer, handle = symmetric_buffer(torch, dist, 4096, torch.float32)
    other = handle.get_buffer(1 - rank(), (4096,), torch.float32)

    def plan():
        end, best = time.monotonic() + 0.8, 0
        while time.monotonic() < end:
            best = max(best, sum(number * number % 97 for number in range(1000)))
        return best

    def turn(number):
        if number % 2 == rank():
            other.fill_(float(plan()))
            handle.put_signal(1 - rank())
        else:
            handle.wait_signal(1 - rank())
        buffer.sum().item()

    steps(turn)


def population():
    """Population based training: each rank trains a model of its own for a second or two, says its score in the store and waits there for that of
    the others."""
    torch, dist = connect()
    model, store = model_of(torch), dist.distributed_c10d._get_default_store()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)

    def generation(number):
        end = time.monotonic() + 0.7 + 0.9 * ((number + rank()) % 2)
        while time.monotonic() < end:
            loss = model(torch.randn(32, 256, device="cuda")).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        store.set("score-%d/%d" % (number, rank()), str(loss.item()))
        store.wait(["score-%d/%d" % (number, other) for other in range(world())], datetime.timedelta(minutes=10))

    steps(generation)


def forked_save():
    """After some steps rank 0 forks a process that writes its checkpoint to a slow disk for a second, and goes on; before it forks the next one, it
    waits for that."""
    torch, _ = connect()
    model, saving = ddp(torch), []
    path = os.path.join(os.environ["HANGS_DIRECTORY"], "model.bin")

    def write_slowly(data):
        with open(path, "wb", buffering=0) as out:
            for begin in range(0, len(data), 1 << 16):
                out.write(data[begin:begin + (1 << 16)])
                time.sleep(0.06)

    def save():
        if saving:
            os.waitpid(saving.pop(), 0)
        data = model.module[0][0].weight.detach().cpu().numpy().tobytes() * 4
        child = os.fork()
        if child == 0:
            write_slowly(data)
            os._exit(0)
        saving.append(child)

    def epoch(_):
        for _ in range(5):
            loss = model(torch.randn(32, 256, device="cuda")).square().mean()
            loss.backward()
            loss.item()
            time.sleep(0.04)
        if rank() == 0:
            save()

    steps(epoch)


CASES = {"index-marker": index_marker, "traced": traced, "speculative": speculative, "signalled": signalled, "population": population,
         "forked-save": forked_save}

if __name__ == "__main__":
    run(CASES)
