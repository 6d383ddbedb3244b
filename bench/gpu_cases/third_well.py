"""Jobs that are well, or idle, each in a way that looks like a hang for a while.

    third_well.py CASE
"""
import http.server
import multiprocessing
import multiprocessing.connection
import os
import threading
import time

from gpu_rank import announce, connect, gloo_group, rank, run, world
from healthy import steps
from inside import ddp


def reducer(torch, dist):
    """A function that sums up a gradient and waits for it."""
    gradient = torch.ones(1 << 20, device="cuda")

    def reduce_gradient():
        dist.all_reduce(gradient)
        return gradient.div_(world()).sum().item()

    return reduce_gradient


def pack(seconds):
    """Packs documents into sequences, in Python, for about so long."""
    end, sequences, document = time.monotonic() + seconds, 0, 1
    while time.monotonic() < end:
        free = 4096
        while free > 0:
            document = document * 1103515245 % 2147483648
            free -= 64 + document % 512
        sequences += 1
    return sequences


def host_turns():
    """In each step another rank packs the batches of all, for a second and a half; the others wait for its result."""
    torch, dist = connect()
    reduce_gradient, sequences = reducer(torch, dist), torch.zeros(1, device="cuda")

    def train_step(number):
        packer = number % world()
        if rank() == packer:
            sequences.fill_(pack(1.5))
        dist.broadcast(sequences, src=packer)
        reduce_gradient()

    steps(train_step)


def host_metrics():
    """Rank 0 computes the metrics of an epoch on the processor, metric by metric; the others are in the next all-reduce already."""
    import numpy
    torch, dist = connect()
    reduce_gradient, scores = reducer(torch, dist), numpy.random.default_rng(0).random(1 << 16)

    def epoch(_):
        for _ in range(5):
            reduce_gradient()
        if rank() == 0:
            generator = numpy.random.default_rng(1)
            for _ in range(2000):
                generator.choice(scores, scores.size).mean()

    steps(epoch)


def large_checkpoints():
    """Every rank writes 256 MiB after a few steps, and all wait for the one that is done last."""
    torch, dist = connect()
    reduce_gradient, saved = reducer(torch, dist), gloo_group(dist)
    state = {"weights": torch.ones(1 << 26, device="cuda")}
    path = os.path.join(os.environ["HANGS_DIRECTORY"], "weights.%d.pt" % rank())

    def epoch(number):
        for _ in range(5):
            reduce_gradient()
        torch.save({"step": number, **state}, path + ".new")
        os.replace(path + ".new", path)
        dist.barrier(group=saved)

    steps(epoch)


def serve_http(address):
    """The front end of an engine: a process that hands over its requests one by one. The first ones are its own."""
    with multiprocessing.connection.Client(address) as connection:
        def forward(text):
            connection.send(text)
            return connection.recv()

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                body = b"%f" % forward(self.path)
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        for _ in range(3):
            forward("warm up")
        http.server.HTTPServer(("127.0.0.1", 0), Handler).serve_forever()


def idle_engine():
    """An engine without requests. Rank 0 takes them from its front end, the others from what rank 0 broadcasts."""
    torch, dist = connect()
    reduce_gradient, requests = reducer(torch, dist), gloo_group(dist)
    address = os.path.join(os.environ["HANGS_DIRECTORY"], "engine.socket")
    if rank() == 0:
        with multiprocessing.connection.Listener(address) as listening:
            multiprocessing.get_context("fork").Process(target=serve_http, args=(address,), name="front-end", daemon=True).start()
            with listening.accept() as connection:
                announce("settles")
                while True:
                    dist.broadcast_object_list([connection.recv()], src=0, group=requests)
                    connection.send(reduce_gradient())
    announce("settles")
    while True:
        dist.broadcast_object_list([None], src=0, group=requests)
        reduce_gradient()


def warm_up():
    """A job that begins: for every length of its sequences a model is compiled, which takes seconds, on one rank longer than on the other."""
    torch, dist = connect()
    reduce_gradient = reducer(torch, dist)

    def model_of_length(length):
        def model(inputs):
            for layer in range(4 + length % 3 + 2 * rank()):
                inputs = torch.softmax(torch.tanh(inputs * (layer + 0.5)) @ inputs.T, -1) @ inputs
            return inputs.sum()

        return torch.compile(model, dynamic=False)

    def first_step_of(number):
        torch.compiler.reset()
        length = 64 + number
        inputs = torch.ones(length, 128, device="cuda", requires_grad=True)
        model_of_length(length)(inputs).backward()
        reduce_gradient()

    steps(first_step_of)


def tokenize(text):
    words = {}
    for position in range(len(text) - 3):
        word = text[position:position + 3]
        words[word] = words.get(word, 0) + 1
    return len(words)


def preprocessing():
    """The ranks have their process group, but tokenize on the processor so far, in a pool of processes each."""
    texts = [("shard %d " % number) * 200000 for number in range(8)]
    pool = multiprocessing.get_context("fork").Pool(2)
    connect()
    steps(lambda _: sum(pool.imap_unordered(tokenize, texts)))


def one_process():
    """One process has two GPUs, with a thread for each: their parts are computed, and summed up on the first one."""
    import torch
    devices = [torch.device("cuda", number % torch.cuda.device_count()) for number in range(2)]
    weights = [torch.randn(4096, 4096, device=device) for device in devices]
    parts, begin, end = [None, None], threading.Barrier(3), threading.Barrier(3)

    def compute_part(number):
        torch.cuda.set_device(devices[number])
        while True:
            begin.wait()
            hidden = weights[number]
            for _ in range(60):
                hidden = torch.tanh(hidden @ weights[number])
            parts[number] = hidden.sum()
            torch.cuda.synchronize()
            end.wait()

    for number in range(2):
        threading.Thread(target=compute_part, args=(number,), name="replica-%d" % number, daemon=True).start()

    def train_step(_):
        begin.wait()
        end.wait()
        return sum(part.to(devices[0]) for part in parts).item()

    steps(train_step)


def spare_batches():
    """Steps of about four seconds on the GPU, and a loader that is done long before: nearly always a rank waits for its GPU, and its loader for
    a place in the queue."""
    torch, _ = connect()
    model = ddp(torch)
    items = [torch.full((256,), float(index)) for index in range(1 << 16)]
    batches = iter(torch.utils.data.DataLoader(items, batch_size=8, num_workers=2, pin_memory=True, multiprocessing_context="fork"))

    def train_step(_):
        inputs = next(batches).cuda(non_blocking=True)
        torch.cuda._sleep(1 << 33)
        model(inputs).square().mean().backward()
        torch.cuda.synchronize()

    steps(train_step)


def jax_generation():
    """A JAX job generates token by token: many tiny kernels, and Python between them that samples."""
    import jax_job
    jax = jax_job.connect()
    step, values = jax_job.summing(jax)

    def generate(_):
        score = float(step(values))
        token = int(jax.numpy.argmax(jax.numpy.arange(512) * score))
        time.sleep(0.005)
        return token

    steps(generate)


CASES = {"host-turns": host_turns, "host-metrics": host_metrics, "large-checkpoints": large_checkpoints, "idle-engine": idle_engine,
         "warm-up": warm_up, "preprocessing": preprocessing, "one-process": one_process, "spare-batches": spare_batches,
         "jax-generation": jax_generation}

if __name__ == "__main__":
    run(CASES)
