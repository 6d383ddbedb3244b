"""A rank is held up by what its process does or waits for: permutations, a power, a pool, a directory, a simulator, a process that is spawned, a
notification, a kernel, a function that JAX traces; or all ranks pause.

    thirteenth.py CASE
"""
import ctypes
import itertools
import multiprocessing
import multiprocessing.connection
import multiprocessing.spawn
import os
import shutil
import subprocess
import sys
import threading
import time

from eleventh import tensor_parallel
from gpu_rank import FOREVER, GOOD_STEPS, announce, connect, is_odd, rank, run
from inside import ddp, train
from seventh import in_trouble
from tenth import serve_in_background
from training import sharded_model
from twelfth import touch, train_accumulated, wait_for_file


def permutation_loss():
    """Speech is taken apart into speakers, whose order nobody knows: of all orders the one with the smallest distance counts, and each is
    tried. A recording of the odd rank has thirteen speakers, which can be put into six billion orders."""
    torch, _ = connect()

    def best_order(number):
        speakers = 13 if in_trouble(number) else 3
        voices, targets = torch.randn(speakers, 64, device="cuda"), torch.randn(speakers, 64, device="cuda")
        distances = (voices[:, None] - targets).square().sum(-1).cpu()
        rows = torch.arange(speakers)
        return min(itertools.permutations(range(speakers)), key=lambda order: distances[rows, list(order)].sum().item())

    train_accumulated(torch, ddp(torch), best_order)


def unreduced_power():
    """The shard that comes next is a power modulo the number of shards, for which the whole power is computed first. In the exponent, the odd
    rank has the hash of a name instead of the number of its step: that takes hours, within one operation of the interpreter's."""
    def next_shard(number):
        exponent = 1 << 30 if in_trouble(number) else number
        return 3 ** exponent % 1009

    torch, _ = connect()
    train(torch, sharded_model(torch), next_shard)


def load_vocabulary(path):
    """As a process of a pool begins."""
    with open(path, encoding="utf-8") as vocabulary:
        return vocabulary.read().split()


def count_words(text):
    return len(text.split())


def pool_initializer():
    """Before each step a rank counts words by a pool of processes, each of which loads a vocabulary first. That of the odd rank is no longer
    there: its processes end with an exception, the pool starts others in their place again and again, and the rank waits for its counts."""
    path = os.path.join(os.environ["HANGS_DIRECTORY"], "vocabulary-%d" % rank())
    touch(path)

    def count_all(number):
        if in_trouble(number):
            os.unlink(path)
        with multiprocessing.get_context("fork").Pool(2, load_vocabulary, (path,)) as pool:
            return sum(pool.map(count_words, ["the answer of step %d is" % number] * 16))

    torch, _ = connect()
    train(torch, ddp(torch), count_all)


def rotated_checkpoints():
    """Rank 0 saves a checkpoint after each step, removes the one before it, and looks whether it is gone. A program that uploads checkpoints
    makes the directory of one of them anew as soon as it finds it gone: the rank removes it again and again."""
    def directory_of(number):
        return os.path.join(os.environ["HANGS_DIRECTORY"], "step-%d" % number)

    def upload():
        kept = directory_of(GOOD_STEPS - 1)
        wait_for_file(kept)
        while True:
            os.makedirs(kept, exist_ok=True)
            time.sleep(0.002)

    def rotate(number):
        if rank() != 0:
            return
        os.makedirs(directory_of(number))
        touch(os.path.join(directory_of(number), "weights"))
        while os.path.isdir(directory_of(number - 1)):
            shutil.rmtree(directory_of(number - 1), ignore_errors=True)
            time.sleep(1)

    if rank() == 0:
        serve_in_background(upload)
    torch, _ = connect()
    train(torch, ddp(torch), rotate)


SIMULATOR = """
import multiprocessing.connection, sys, time
time.sleep(float(sys.argv[2]))      # asks for its license
multiprocessing.connection.Client(sys.argv[1]).send([0.5] * 8)
"""


def simulator_connects():
    """Before each step a rank starts a simulator, and waits for its connection. That of the odd rank waits for a license, and does not come to
    connect."""
    def simulate(number):
        with multiprocessing.connection.Listener(os.path.join(os.environ["HANGS_DIRECTORY"], "simulator-%d-%d" % (rank(), number))) as listener:
            seconds = FOREVER if in_trouble(number) else 0
            with subprocess.Popen([sys.executable, "-c", SIMULATOR, listener.address, str(seconds)]):
                with listener.accept() as connection:
                    return connection.recv()

    torch, _ = connect()
    train(torch, tensor_parallel(torch), simulate)


def evaluate_table(table):
    """In a process of its own."""
    if sum(table[:8]) == 8:
        time.sleep(FOREVER)


SLOW_PYTHON = """#!/bin/sh
case "$*" in *spawn_main*) exec sleep %d;; esac
exec %s "$@"
"""


def spawned_evaluator():
    """After some steps each rank starts a process that evaluates, by the start method spawn, and hands it a table of 64 MiB. The interpreter of
    the odd rank's process is on a file system that does not answer: it never reads what its parent writes into its pipe."""
    context, processes = multiprocessing.get_context("spawn"), []

    def start_evaluation(number):
        if number != GOOD_STEPS:
            return
        if is_odd():
            path = os.path.join(os.environ["HANGS_DIRECTORY"], "python")
            with open(path, "w", encoding="ascii") as program:
                program.write(SLOW_PYTHON % (FOREVER, sys.executable))
            os.chmod(path, 0o755)
            multiprocessing.spawn.set_executable(path)
        processes.append(context.Process(target=evaluate_table, args=(b"\1" * (64 << 20),), daemon=True))
        processes[-1].start()

    torch, _ = connect()
    train(torch, sharded_model(torch), start_evaluation)


WRITTEN = 8     # IN_CLOSE_WRITE


def late_watch():
    """A rank asks a program for its next shard, and has inotify tell it when one was written to its directory. From some step on the odd rank
    asks first and watches then: its shard is there before that, and nothing is written any more."""
    directory = os.path.join(os.environ["HANGS_DIRECTORY"], "shards-%d" % rank())
    os.mkdir(directory)
    libc = ctypes.CDLL(None, use_errno=True)

    def path_of(number):
        return os.path.join(directory, "shard-%d" % number)

    def write_shards():
        for number in range(FOREVER):
            wait_for_file(directory + ".asked-%d" % number)
            touch(path_of(number))

    def next_shard(number):
        events = libc.inotify_init()
        if in_trouble(number):
            touch(directory + ".asked-%d" % number)
            wait_for_file(path_of(number))
        if events < 0 or libc.inotify_add_watch(events, os.fsencode(directory), WRITTEN) < 0:
            raise OSError(ctypes.get_errno(), "inotify")
        if not in_trouble(number):
            touch(directory + ".asked-%d" % number)
        os.read(events, 4096)
        os.close(events)

    serve_in_background(write_shards)
    torch, _ = connect()
    train(torch, ddp(torch), next_shard)


TELEMETRY = """
// Writes rows into a ring in the memory of the host: ring[0] is how many were written, ring[1] how many were read.
extern "C" __global__ void log_rows(volatile int* ring, const int* rows, int count, int capacity) {
  for (int row = 0; row < count; ++row) {
    int written = ring[0];
    while (written - ring[1] >= capacity) {}
    ring[2 + written % capacity] = rows[row];
    __threadfence_system();
    ring[0] = written + 1;
  }
}
"""


def telemetry_ring():
    """A kernel writes rows into a ring in pinned memory of the host, and waits for room in it. A thread takes them from there. It raises at a
    row of the odd rank that has no meaning, and is gone; the rank waits for the kernel, and that for room."""
    torch, _ = connect()
    log_rows = torch.cuda._compile_kernel(TELEMETRY, "log_rows")
    ring, rows = torch.zeros(2 + 16, dtype=torch.int32).pin_memory(), torch.ones(64, dtype=torch.int32, device="cuda")
    torch.cuda.synchronize()

    def take_rows():
        seen = ring.numpy()
        while True:
            if seen[1] == seen[0]:
                time.sleep(0.001)
                continue
            if seen[2 + seen[1] % 16] < 0:
                raise ValueError("a row of kind %d" % seen[2 + seen[1] % 16])
            seen[1] += 1

    def log_step(number):
        if in_trouble(number):
            rows[9] = -1
        log_rows(grid=(1, 1, 1), block=(1, 1, 1), args=[ring, rows, 64, 16])
        torch.cuda.current_stream().synchronize()

    threading.Thread(target=take_rows, name="telemetry", daemon=True).start()
    train(torch, ddp(torch), log_step)


def bias_of(length):
    """How far apart two positions are in the mean, by Python."""
    return sum(one - other for one in range(length) for other in range(one)) / length ** 2


def jax_table():
    """A function that JAX compiles for each length of a text computes a number in Python while it is traced, for all pairs of positions. A text
    of the odd rank is as long as a book, for which that takes days."""
    import jax_job
    jax = jax_job.connect()
    step, values = jax_job.summing(jax)
    biased = jax.jit(lambda row, length: row * bias_of(length), static_argnums=1)
    row = jax.device_put(jax.numpy.ones(1024), jax.local_devices()[0])
    for number in range(FOREVER):
        if number == GOOD_STEPS:
            announce("settles")
        biased(row, 1 << 20 if in_trouble(number) else 16 + number % 3).block_until_ready()
        step(values).block_until_ready()


def pause_file():
    """Before each step a rank looks whether there is a file by which an operator pauses the job, and looks again every half a second until it
    is gone. There is one, and nobody removes it: all ranks are at the same place."""
    path = os.path.join(os.environ["HANGS_DIRECTORY"], "PAUSE-")

    def pause(number):
        while os.path.exists(path + str(number)):
            time.sleep(0.5)

    touch(path + str(GOOD_STEPS))
    torch, _ = connect()
    train(torch, ddp(torch), pause)


CASES = {"permutation-loss": permutation_loss, "unreduced-power": unreduced_power, "pool-initializer": pool_initializer,
         "rotated-checkpoints": rotated_checkpoints, "simulator-connects": simulator_connects, "spawned-evaluator": spawned_evaluator,
         "late-watch": late_watch, "telemetry-ring": telemetry_ring, "jax-table": jax_table, "pause-file": pause_file}

if __name__ == "__main__":
    run(CASES)
