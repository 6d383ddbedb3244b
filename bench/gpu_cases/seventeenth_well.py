"""Jobs that are well, in which a rank is a spare one, runs what does not end for as long as it may, polls for tasks, is traced, leaves out what it has
learned from, averages on the host, or has JAX compile in each step.

    seventeenth_well.py CASE
"""
import bdb
import datetime
import http.client
import http.server
import signal
import subprocess
import time

from gpu_rank import TIMEOUT, announce, connect, gloo_group, rank, run, world
from healthy import steps
from inside import ddp
from tenth import serve_in_background
from tenth_well import train_once
from training import model_of


def hot_spare():
    """Two ranks train. The third one is a spare, which would take the place of one that fails: it waits in the store for the word that one has, which does
    not come, as all is well."""
    torch, dist = connect()
    trainers = dist.new_group([0, 1], timeout=TIMEOUT)
    if rank() == 2:
        announce("settles")
        dist.distributed_c10d._get_default_store().wait(["rank that has failed"], datetime.timedelta(hours=8))
    model = torch.nn.parallel.DistributedDataParallel(model_of(torch), process_group=trainers)

    def train_step(_):
        time.sleep(0.01)
        train_once(torch, model)

    steps(train_step)


def timed_out_programs():
    """In each step the second rank runs a program that its model has written, which may take a second. Most do not end, and this one never does: it is
    killed, and its reward is nought. The first rank waits for the second one."""
    torch, _ = connect()
    model = ddp(torch)

    def reward():
        try:
            subprocess.run(["sleep", "100000"], timeout=1.0, check=False)
        except subprocess.TimeoutExpired:
            return 0.0
        return 1.0

    def train_step(_):
        if rank() == 1:
            reward()
        train_once(torch, model)

    steps(train_step)


class OutOfTime(Exception):
    """Raised by the handler of an alarm."""


def give_up(*_):
    raise OutOfTime


def alarmed_proofs():
    """In each step the second rank looks for a proof of what its model has said, in a loop that would not end; an alarm ends it after a second. The first
    rank waits for the second one."""
    torch, _ = connect()
    model = ddp(torch)
    signal.signal(signal.SIGALRM, give_up)

    def find_proof(number):
        while True:
            number = (1103515245 * number + 12345) % (1 << 31)

    def prove(number):
        signal.setitimer(signal.ITIMER_REAL, 1.0)
        try:
            find_proof(number)
        except OutOfTime:
            return False
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)

    def train_step(number):
        if rank() == 1:
            prove(number)
        train_once(torch, model)

    steps(train_step)


class Tasks(http.server.BaseHTTPRequestHandler):
    """Answers only when there is a task, or when a second and a half is over: which is always the case, and then there is none most of the time."""
    polls = 0

    def do_GET(self):
        Tasks.polls += 1
        time.sleep(1.5 + 0.2 * rank())
        answer = b"learn" if Tasks.polls % 2 == 0 else b"nothing"
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_):
        pass


def long_polls():
    """Each rank asks a server of its own for tasks, which answers after more than a second, and then every other time that there is none. For a task a rank
    computes by itself; the ranks do not wait for each other."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Tasks)
    serve_in_background(server.serve_forever)
    port = server.server_address[1]
    server.server_close()
    torch, _ = connect()
    model = model_of(torch)

    def poll(_):
        connection = http.client.HTTPConnection("127.0.0.1", port)
        connection.request("GET", "/task")
        if connection.getresponse().read() == b"learn":
            for _ in range(16):
                train_once(torch, model)
        connection.close()

    steps(poll)


class LineCounter(bdb.Bdb):
    """A debugger that stops nowhere, and counts the lines that are run."""
    lines = 0

    def user_line(self, frame):
        self.lines += 1


def counted_lines():
    """The second rank runs under Python's debugger, which stops nowhere: something that counts lines is called for each of them. In each step it augments
    its samples in Python, for about a second; the first rank waits for it."""
    torch, _ = connect()
    model = ddp(torch)

    def augment(number):
        end, noise = time.monotonic() + 1.0, number
        while time.monotonic() < end:
            noise = (1103515245 * noise + 12345) % (1 << 31)
        return noise

    def train_step(number):
        if rank() == 1:
            augment(number)
        train_once(torch, model)

    if rank() == 1:
        LineCounter().runcall(steps, train_step)
    else:
        steps(train_step)


def skips_batches():
    """The job has been resumed. After two steps ranks come to their next files: the second rank has learned from most of its file already, and reads and
    tokenizes thousands of batches to leave them out, for minutes, of which it says how far it is. The first rank waits for it in the next step."""
    torch, _ = connect()
    model = ddp(torch)

    def tokenize(number):
        text = " ".join("word-%d" % ((number * place) % 4093) for place in range(1, 8192))
        vocabulary = {}
        return [vocabulary.setdefault(word, len(vocabulary)) for word in text.split()]

    def next_file(number):
        if number == 2 and rank() == 1:
            for batch in range(100000):
                tokenize(batch)
                if batch % 100 == 0:
                    print("left out %d of 100000 batches" % batch, flush=True)

    def train_step(number):
        next_file(number)
        train_once(torch, model)

    steps(train_step)


def host_averages():
    """Each rank trains by itself for some steps, and then all average their weights, which are in the memory of the hosts: 256 MiB over gloo, in which they
    are nearly all the time."""
    torch, dist = connect()
    group, model, weights = gloo_group(dist), model_of(torch), torch.ones(1 << 26)

    def round_of_training(_):
        for _ in range(4):
            train_once(torch, model)
        dist.all_reduce(weights, group=group)
        weights.div_(world())

    steps(round_of_training)


def jax_compiles():
    """JAX. For each step the second process has functions that are new, which JAX compiles for more than a second; the first one waits for it in the sum over
    both."""
    import jax_job
    jax = jax_job.connect()
    step, values = jax_job.summing(jax)

    def compile_one(scale):
        def chain(batch):
            for layer in range(16):
                batch = jax.numpy.tanh(batch * (scale + layer))
            return batch.sum()

        jax.jit(chain)(jax.numpy.ones(4096)).block_until_ready()

    def train_step(number):
        end, count = time.monotonic() + 1.2 * rank(), 0
        while time.monotonic() < end:
            compile_one(100.0 * number + count)
            count += 1
        step(values).block_until_ready()
        time.sleep(0.02)

    steps(train_step)


CASES = {"hot-spare": hot_spare, "timed-out-programs": timed_out_programs, "alarmed-proofs": alarmed_proofs, "long-polls": long_polls,
         "counted-lines": counted_lines, "skips-batches": skips_batches, "host-averages": host_averages, "jax-compiles": jax_compiles}

if __name__ == "__main__":
    run(CASES)
