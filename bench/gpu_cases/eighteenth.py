"""A rank is held up in its own process: by an import that needs threads, a library that is set up within its own set-up, a socket that somebody has closed,
a lock that a child has kept, the output of a program, a request to itself, streams and kernels of its GPU, or a batch that was ready too soon; or all ranks
are in a debugger.

    eighteenth.py CASE
"""
import asyncio
import ctypes
import fcntl
import http.client
import http.server
import logging
import multiprocessing
import os
import signal
import socket
import sys
import threading
import time

from gpu_rank import FOREVER, GOOD_STEPS, announce, connect, is_odd, rank, run
from inside import ddp, train
from job import connect_to_silent_server
from seventh import in_trouble
from sixteenth import count_rows
from tenth import serve_in_background
from tenth_well import train_once
from training import sharded_model
from twelfth import train_accumulated


def import_pool():
    """After some steps a rank imports its filters. The module reads the tables of its languages as it is imported, by a thread for each where there are
    several, as on the odd rank; the function of these threads imports a name of that module, and waits until it has been imported."""
    def import_filters(number):
        if number == GOOD_STEPS:
            import eighteenth_filters
            print("%d tables" % len(eighteenth_filters.TABLES), flush=True)

    torch, _ = connect()
    train(torch, ddp(torch), import_filters)


class Registry:
    """Operators by their names. A registry is set up when it is first asked, by pthread_once()."""

    def __init__(self, default):
        self.library, self.control, self.default = ctypes.CDLL(None), ctypes.c_int(0), default
        self.operators, self.callback = {}, ctypes.CFUNCTYPE(None)(self.set_up)

    def set_up(self):
        self.operators.update(attention="flash", norm="fused")
        if self.default is not None:
            self.operators["default"] = self.find(self.default)

    def find(self, name):
        self.library.pthread_once(ctypes.byref(self.control), self.callback)
        return self.operators[name]


def once_again():
    """A rank finds its operators in a registry, which is set up once, by a function of the C library. By the configuration of the odd rank one operator is
    the default: the function that sets the registry up asks the registry for it, which waits until it has been set up."""
    torch, _ = connect()
    train(torch, sharded_model(torch), lambda number: Registry("attention" if in_trouble(number) else None).find("norm"))


def answer_all(listener):
    """A server, which answers each client once."""
    while True:
        client, _ = listener.accept()
        with client:
            client.recv(4096)
            client.sendall(bytes(64))


def closed_elsewhere():
    """Before each step a rank asks a server for features. As that should not take longer than a second, a timer then closes the socket, and logs that. The
    server of the odd rank does not answer; but who waits at a socket already goes on to wait when another thread closes it, and its descriptor is that of
    the log now, which is opened when it has its first line."""
    listener = socket.create_server(("127.0.0.1", 0))
    serve_in_background(lambda: answer_all(listener))
    address = listener.getsockname()
    listener.close()
    logger = logging.getLogger("features")
    logger.addHandler(logging.FileHandler(os.path.join(os.environ["HANGS_DIRECTORY"], "features-of-rank-%d.log" % rank()), delay=True))

    def give_up(server, number):
        server.close()
        logger.warning("no features for step %d", number)

    def fetch_features(number):
        server = connect_to_silent_server() if in_trouble(number) else socket.create_connection(address)
        timer = threading.Timer(1.0, give_up, (server, number))
        timer.daemon = True
        timer.start()
        server.sendall(b"features %d\n" % number)
        features = server.recv(4096)
        timer.cancel()
        server.close()
        return features

    torch, _ = connect()
    train_accumulated(torch, ddp(torch), fetch_features)


def inherited_flock():
    """A rank adds to its index under the lock of a file, which is given back when the file is closed. The odd rank has forked a process for its statistics
    as it had the lock. The process has the file open as well, and keeps it: one step later the rank waits for its own child."""
    context = multiprocessing.get_context("fork")
    rows, path = context.SimpleQueue(), os.path.join(os.environ["HANGS_DIRECTORY"], "index-of-rank-%d" % rank())

    def add_to_index(number):
        with open(path, "ab") as index:
            fcntl.flock(index, fcntl.LOCK_EX)
            if is_odd() and number == GOOD_STEPS - 1:
                context.Process(target=count_rows, args=(rows,), name="statistics", daemon=True).start()
            index.write(b"step %d\n" % number)
        rows.put(1)

    torch, _ = connect()
    train(torch, ddp(torch), add_to_index)


REPORT = "import sys; sys.stdout.write('layer %d: norm 0.25\\n' * int(sys.argv[1]) % tuple(range(int(sys.argv[1]))))"


async def check_weights(layers):
    """The exit status of a program that reports on each layer."""
    program = await asyncio.create_subprocess_exec(sys.executable, "-S", "-c", REPORT, str(layers), stdout=asyncio.subprocess.PIPE)
    return await program.wait()


def unread_report():
    """Before each step a rank has a program check its weights, and waits in its event loop until that has ended. It wants the status alone, and not what the
    program prints: asyncio takes some of that, and no more than some. The program of the odd rank prints a megabyte."""
    torch, _ = connect()
    train(torch, sharded_model(torch), lambda number: asyncio.run(check_weights(50000 if in_trouble(number) else 8)))


class Metrics(http.server.BaseHTTPRequestHandler):
    """Says how many samples the rank has seen."""
    guard, samples = threading.Lock(), 0

    def do_GET(self):
        with Metrics.guard:
            text = b"samples %d\n" % Metrics.samples
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_):
        pass


def asks_itself():
    """A rank serves its metrics over HTTP, by a thread for each request, and looks at them itself before each step. The odd rank looks once more as it sets
    its numbers back, under the lock that it takes for that, and which the thread that should answer takes, too."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Metrics)
    threading.Thread(target=server.serve_forever, name="metrics", daemon=True).start()

    def look():
        connection = http.client.HTTPConnection("127.0.0.1", server.server_address[1])
        connection.request("GET", "/metrics")
        text = connection.getresponse().read()
        connection.close()
        return text

    def count(number):
        look()
        with Metrics.guard:
            Metrics.samples += 32
            if in_trouble(number):
                print("set back: %s" % look().decode(), flush=True)
                Metrics.samples = 0

    torch, _ = connect()
    train(torch, ddp(torch), count)


NORMALIZE = """
// Divides by the sum of all. Each block adds its part, and waits until all blocks have done so.
extern "C" __global__ void normalize(float* values, float* sum, int* arrived) {
  int at = blockIdx.x * blockDim.x + threadIdx.x;
  atomicAdd(sum, values[at]);
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    atomicAdd(arrived, 1);
    while (*(volatile int*)arrived != gridDim.x) {
    }
  }
  __syncthreads();
  values[at] /= *(volatile float*)sum;
}
"""


def stale_counter():
    """A kernel normalizes scores. Its blocks wait for each other by a counter in a workspace, which is set to 0 before each launch. The odd rank has a second
    set of scores in one step, and forgets that: the counter goes on from where the first launch left it, and is never again what the blocks wait for."""
    torch, _ = connect()
    normalize = torch.cuda._compile_kernel(NORMALIZE, "normalize")
    sums, arrived = torch.zeros(1, device="cuda"), torch.zeros(1, dtype=torch.int32, device="cuda")

    def largest_score(number):
        sums.zero_()
        arrived.zero_()
        largest = 0.0
        for _ in range(2 if in_trouble(number) else 1):
            scores = torch.rand(512, device="cuda")
            normalize(grid=(8, 1, 1), block=(64, 1, 1), args=[scores, sums, arrived])
            largest = scores.max().item()
        return largest

    train(torch, ddp(torch), largest_score)


class Semaphores:
    """Numbers in the memory of the GPU, which its streams write, and for which they wait."""

    def __init__(self, torch, count):
        self.driver, self.numbers = ctypes.CDLL("libcuda.so.1"), torch.zeros(count, dtype=torch.int32, device="cuda")

    def call(self, function, stream, which, value):
        address = ctypes.c_uint64(self.numbers.data_ptr() + 4 * which)
        if function(ctypes.c_void_p(stream.cuda_stream), address, ctypes.c_uint32(value), ctypes.c_uint(0)) != 0:
            raise RuntimeError("the driver takes no operation on a number")

    def signal(self, stream, which, value):
        self.call(self.driver.cuStreamWriteValue32_v2, stream, which, value)

    def wait(self, stream, which, value):
        """Until the number is at least `value`."""
        self.call(self.driver.cuStreamWaitValue32_v2, stream, which, value)


FILLED, FREED = 0, 1


def semaphore_pair():
    """One stream fills a buffer, and another one computes with it, each of which says by a number in the GPU's memory how far it is. The buffer is free from
    the start. For one step the odd rank, which has just made its buffer larger, waits until that is free before it fills it: for a number that comes after
    what waits for it to be filled."""
    torch, _ = connect()
    fills, computes, semaphores = torch.cuda.Stream(), torch.cuda.Stream(), Semaphores(torch, 2)
    buffer, total = torch.zeros(1 << 16, device="cuda"), torch.zeros(1, device="cuda")
    torch.cuda.synchronize()

    def fill(number):
        semaphores.wait(fills, FREED, number + 1 if in_trouble(number) else number)
        with torch.cuda.stream(fills):
            buffer.fill_(float(number))
        semaphores.signal(fills, FILLED, number + 1)

    def compute(number):
        semaphores.wait(computes, FILLED, number + 1)
        with torch.cuda.stream(computes):
            total.add_(buffer.mean())
        semaphores.signal(computes, FREED, number + 1)

    def fill_and_compute(number):
        fill(number)
        compute(number)
        torch.cuda.synchronize()

    train(torch, ddp(torch), fill_and_compute)


def prepare_batches(asked, ready, batch):
    """A process of the rank's own: prepares the batch that it is asked for, and says so."""
    while True:
        number = asked.get()
        with ready:
            batch.value = number
            ready.notify()


def lost_notify():
    """Batches come from a process. A rank asks for one, and waits until the process says that it is ready, by a condition that it has taken before it has
    asked. In one step the odd rank asks ahead, logs something, and waits then: the process has said so already, and says it only once."""
    context = multiprocessing.get_context("fork")
    asked, ready, batch = context.SimpleQueue(), context.Condition(), context.Value("i", 0)
    context.Process(target=prepare_batches, args=(asked, ready, batch), name="prepare", daemon=True).start()

    def next_batch(number):
        if in_trouble(number):
            asked.put(number)
            time.sleep(0.5)                  # what it logs
            with ready:
                ready.wait()
        else:
            with ready:
                asked.put(number)
                ready.wait()
        return batch.value

    torch, _ = connect()
    train(torch, sharded_model(torch), next_batch)


TAKE_ROWS = """
// Takes rows from the memory of the host, as soon as they are there.
extern "C" __global__ void take_rows(float* taken, const float* rows, volatile int* ready, int number) {
  if (threadIdx.x == 0) {
    while (*ready < number) {
    }
  }
  __syncthreads();
  taken[threadIdx.x] = *(volatile const float*)(rows + threadIdx.x);
}
"""


def write_rows(asked, rows, ready):
    """A process of the rank's own: writes rows into shared memory. The kernel kills it when the machine has no memory left."""
    while True:
        number = asked.get()
        if in_trouble(number):
            os.kill(os.getpid(), signal.SIGKILL)
        rows.fill_(float(number))
        ready[0] = number + 1


def row_writer():
    """A process writes rows into memory that it shares with its rank, and with the rank's GPU: a kernel waits there for a number, and takes them. The process
    of the odd rank has been killed, and its kernel goes on to wait."""
    import torch
    context = multiprocessing.get_context("fork")
    asked, rows, ready = context.SimpleQueue(), torch.zeros(1024).share_memory_(), torch.zeros(1024, dtype=torch.int32).share_memory_()
    context.Process(target=write_rows, args=(asked, rows, ready), name="rows", daemon=True).start()
    connect()
    for memory in (rows, ready):
        if int(torch.cuda.cudart().cudaHostRegister(memory.data_ptr(), 4096, 0)) != 0:
            raise RuntimeError("cudaHostRegister")
    take_rows = torch.cuda._compile_kernel(TAKE_ROWS, "take_rows")

    def sum_rows(number):
        asked.put(number)
        taken = torch.empty(256, device="cuda")
        take_rows(grid=(1, 1, 1), block=(256, 1, 1), args=[taken, rows, ready, number + 1])
        return taken.sum().item()

    model = ddp(torch)
    for number in range(FOREVER):
        if number == GOOD_STEPS:
            announce("settles")
        sum_rows(number)
        train_once(torch, model)


def breakpoint_on_all():
    """Somebody has left a breakpoint where the learning rate changes: all ranks are in their debugger, at the same place."""
    def change_rate(number):
        if number == GOOD_STEPS:
            breakpoint()  # pylint: disable=forgotten-debug-statement

    torch, _ = connect()
    train(torch, ddp(torch), change_rate)


CASES = {"import-pool": import_pool, "once-again": once_again, "closed-elsewhere": closed_elsewhere, "inherited-flock": inherited_flock,
         "unread-report": unread_report, "asks-itself": asks_itself, "stale-counter": stale_counter, "semaphore-pair": semaphore_pair,
         "lost-notify": lost_notify, "row-writer": row_writer, "breakpoint-on-all": breakpoint_on_all}

if __name__ == "__main__":
    run(CASES)
