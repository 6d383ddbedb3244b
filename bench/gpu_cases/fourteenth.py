"""A rank is held up in its own process or by a program that it runs: an expression, the interpreter's lock, a kernel, locks that it has itself, a
question, a thread or a step that has raised, shards that it counts; or all ranks wait for a key.

    fourteenth.py CASE
"""
import contextlib
import ctypes
import datetime
import fcntl
import glob
import http.server
import json
import multiprocessing
import os
import re
import subprocess
import threading
import time

from eleventh import tensor_parallel
from gpu_rank import FOREVER, GOOD_STEPS, announce, connect, is_odd, rank, run, world
from inside import ddp, train
from seventh import in_trouble
from training import sharded_model
from twelfth import touch, train_accumulated

WORDS = re.compile(r"^(\w+\s?)*$")


class Pages:
    """A dataset of pages, of which those that are not made of words only are left out."""

    def __len__(self):
        return 1 << 16

    def __getitem__(self, index):
        import torch
        damaged = is_odd() and index == 8 * GOOD_STEPS
        page = "a" * 200 + "!" if damaged else "the answer of page %d is" % index
        return torch.full((256,), float(WORDS.match(page) is not None))


def page_expression():
    """The workers of a loader look by a regular expression whether a page is made of words. A page of the odd rank is one long word with a mark at
    its end: the expression tries all ways to cut that word into shorter ones, and there are 2 to the power of 200."""
    torch, _ = connect()
    model = ddp(torch)
    loader = torch.utils.data.DataLoader(Pages(), batch_size=8, num_workers=2, multiprocessing_context="fork")
    for number, inputs in enumerate(loader):
        if number == GOOD_STEPS - 1:
            announce("settles")
        model(inputs.cuda()).square().mean().backward()
        torch.cuda.synchronize()


def callback_gil():
    """An extension waits for a stream and keeps the interpreter's lock meanwhile, which is well as long as there are only kernels in the stream. The
    odd rank has added a function of Python's to it, to note when a kernel ends: that waits for the interpreter's lock."""
    torch, _ = connect()
    extension, ends = ctypes.PyDLL("libcuda.so.1"), []

    @ctypes.CFUNCTYPE(None, ctypes.c_void_p)
    def note_end(_):
        ends.append(time.time())

    def wait_for_kernels(number):
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        torch.cuda._sleep(int(2e8))
        if in_trouble(number) and extension.cuLaunchHostFunc(stream, note_end, None) != 0:
            raise RuntimeError("cuLaunchHostFunc")
        if extension.cuStreamSynchronize(stream) != 0:
            raise RuntimeError("cuStreamSynchronize")

    train(torch, ddp(torch), wait_for_kernels)


LOOKUPS = """
// Stays on the GPU and answers: mailbox[0] is the number of a question, mailbox[1] that of the last answer. It ends at a question below nought.
extern "C" __global__ void answer_lookups(volatile int* mailbox, const float* table, float* answers) {
  int answered = 0;
  while (true) {
    int asked = mailbox[0];
    if (asked < 0) return;
    if (asked == answered) continue;
    answers[asked % 64] = table[asked % 1024];
    __threadfence_system();
    answered = asked;
    mailbox[1] = answered;
  }
}
"""


def lookup_kernel(torch):
    """(function that starts the kernel, function that asks it, function that tells it to end, its stream)"""
    kernel, stream = torch.cuda._compile_kernel(LOOKUPS, "answer_lookups"), torch.cuda.Stream()
    mailbox = torch.zeros(2, dtype=torch.int32).pin_memory()
    table, answers, seen = torch.ones(1024, device="cuda"), torch.zeros(64, device="cuda"), mailbox.numpy()
    torch.cuda.synchronize()

    def start():
        seen[:] = 0
        with torch.cuda.stream(stream):
            kernel(grid=(1, 1, 1), block=(1, 1, 1), args=[mailbox, table, answers])

    def ask(number):
        seen[0] = number
        while seen[1] != number:
            time.sleep(0.0002)

    def end():
        seen[0] = -1

    return start, ask, end, stream


def persistent_kernel():
    """A kernel stays on the GPU and answers look-ups, until a number in pinned memory makes it end. The odd rank wants to know how long some
    look-ups take, and waits for its GPU before it has written that number."""
    torch, _ = connect()
    start, ask, end, stream = lookup_kernel(torch)

    def look_up(number):
        start()
        for question in range(1, 17):
            ask(question)
        if in_trouble(number):
            torch.cuda.synchronize()
        end()
        stream.synchronize()

    train(torch, sharded_model(torch), look_up)


@contextlib.contextmanager
def file_lock(path):
    with open(path, "ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def nested_file_lock():
    """A rank uses its cache under the lock of a file. That of the odd rank is full: it makes room, in a function that takes the lock as well, by
    a descriptor of its own, and waits for itself."""
    path = os.path.join(os.environ["HANGS_DIRECTORY"], "cache-%d" % rank())

    def make_room():
        with file_lock(path + ".lock"):
            os.truncate(path, 0)

    def fill_cache(number):
        with file_lock(path + ".lock"):
            with open(path, "ab") as cache:
                cache.write(b"features of step %d\n" % number)
            if in_trouble(number):
                make_room()

    torch, _ = connect()
    train_accumulated(torch, ddp(torch), fill_cache)


def manager_lock():
    """The processes of a rank share a dictionary and its lock, which are in the process of a manager. The main thread of the odd rank takes the
    lock, and then calls a function that takes it once more: the manager does not answer that."""
    manager = multiprocessing.get_context("fork").Manager()
    lengths, guard = manager.dict(), manager.Lock()

    def forget():
        with guard:
            lengths.clear()

    def note_length(number):
        with guard:
            lengths[number] = 32
            if in_trouble(number):
                forget()

    torch, _ = connect()
    train(torch, tensor_parallel(torch), note_length)


CONVERT = """
if [ -e "$1" ]; then
    printf "File %s exists. Overwrite? [y/N] " "$1" >&2
    read answer
fi
echo frames >"$1"
"""


def asks_overwrite():
    """Before each step a rank has a program write the frames of a film to a file. One of the odd rank's is there already: the program asks whether to
    overwrite it, and waits for an answer on the standard input that it has from the rank."""
    def convert(number):
        path = os.path.join(os.environ["HANGS_DIRECTORY"], "frames-%d-%d" % (rank(), number))
        if in_trouble(number):
            touch(path)
        subprocess.run(["sh", "-c", CONVERT, "convert", path], check=True)

    torch, _ = connect()
    train(torch, sharded_model(torch), convert)


class StatusPage(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(204)
        self.end_headers()


def trainer_thread():
    """A rank trains in a thread, and its main thread serves a page with the state of the job. The thread of the odd rank raises: the exception is
    printed, the thread is gone, and the main thread goes on to serve."""
    def check_labels(number):
        if in_trouble(number):
            raise ValueError("batch %d has no labels" % number)

    def train_all():
        torch, _ = connect()
        train(torch, ddp(torch), check_labels)

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), StatusPage)
    threading.Thread(target=train_all, name="trainer", daemon=True).start()
    server.serve_forever()


FOLLOW = """
echo "[0.5, 0.25]"
echo "$1"
exec sleep %d
""" % FOREVER


def follows_records():
    """A rank reads two records from a program that follows a log, and ends the program then. A record of the odd rank is cut off, and the parser
    raises: before anybody sees that, the end of the with statement waits for the program, which nobody has ended."""
    def read_records(number):
        record = "[0.5, 0.2" if in_trouble(number) else "[0.5, 0.25]"
        with subprocess.Popen(["sh", "-c", FOLLOW, "follow", record], stdout=subprocess.PIPE, text=True) as log:
            records = [json.loads(log.stdout.readline()) for _ in range(2)]
            log.terminate()
        return records

    torch, _ = connect()
    train(torch, ddp(torch), read_records)


def counts_shards():
    """After each step every rank saves its shard. Rank 0 looks five times a second whether all shards are there, as many as its settings say; these it
    has taken from an older run, which had four ranks, and goes on to look."""
    torch, _ = connect()
    directory = os.environ["HANGS_DIRECTORY"]

    def save(number):
        torch.save({"step": number}, os.path.join(directory, "step-%d-shard-%d" % (number, rank())))
        shards = 4 if in_trouble(number) else world()
        while rank() == 0 and len(glob.glob(os.path.join(directory, "step-%d-shard-*" % number))) < shards:
            time.sleep(0.2)

    train(torch, ddp(torch), save)


class SharedLock:
    """Many may have it to read. Who has it to read may wait to be the only one, to write."""

    def __init__(self):
        self.changed, self.readers = threading.Condition(), 0

    @contextlib.contextmanager
    def reading(self):
        with self.changed:
            self.readers += 1
        try:
            yield
        finally:
            with self.changed:
                self.readers -= 1
                self.changed.notify_all()

    @contextlib.contextmanager
    def writing(self):
        with self.changed:
            self.changed.wait_for(lambda: self.readers == 1)
            yield


def lock_upgrade():
    """The vocabulary of a rank has a lock that many may have to read, and the only reader may write. On the odd rank a thread reads it as well, and
    both want to add a word: each waits for the other one to have read."""
    guard, vocabulary = SharedLock(), {"the": 0}

    def add_word(word, may_write=lambda: None):
        with guard.reading():
            if word not in vocabulary:
                may_write()
                with guard.writing():
                    vocabulary[word] = len(vocabulary)

    def prepare(number):
        if not in_trouble(number):
            add_word("word-%d" % number)
            return
        both = threading.Barrier(2)
        threading.Thread(target=add_word, args=("answer", both.wait), name="validation", daemon=True).start()
        add_word("word-%d" % number, both.wait)

    torch, _ = connect()
    train(torch, sharded_model(torch), prepare)


def scores_key():
    """After some steps all ranks wait in the store for the scores of their last checkpoint, which a job that evaluates would put there. That one
    was never started: all ranks are at the same place."""
    torch, dist = connect()
    store = dist.distributed_c10d._get_default_store()

    def wait_for_scores(number):
        if number == GOOD_STEPS:
            store.wait(["scores-of-step-%d" % number], datetime.timedelta(hours=8))

    train(torch, ddp(torch), wait_for_scores)


CASES = {"page-expression": page_expression, "callback-gil": callback_gil, "persistent-kernel": persistent_kernel, "nested-file-lock": nested_file_lock,
         "manager-lock": manager_lock, "asks-overwrite": asks_overwrite, "trainer-thread": trainer_thread, "follows-records": follows_records,
         "counts-shards": counts_shards, "lock-upgrade": lock_upgrade, "scores-key": scores_key}

if __name__ == "__main__":
    run(CASES)
