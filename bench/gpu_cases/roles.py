"""Jobs whose ranks have different roles (servers, learners and actors), stuck or well; and jobs that are well, however long a rank waits.

    roles.py CASE
"""
import asyncio
import contextlib
import http.client
import logging
import multiprocessing
import os
import queue
import threading
import time

from gpu_rank import FOREVER, GOOD_STEPS, announce, connect, gloo_group, is_odd, rank, run, world
from healthy import steps
from training import model_of


class Engine:
    """A server of a model: a thread of rank 0 hands the requests to all ranks over gloo, and all ranks compute the answer together."""

    def __init__(self):
        self.torch, self.dist = connect()
        self.work = gloo_group(self.dist)
        self.hidden = self.torch.ones(1 << 16, device="cuda")
        self.requests = queue.Queue()

    def forward(self, request):
        if request == "with grammar":
            announce("settles")
            if is_odd():
                compile_grammar()
        self.dist.all_reduce(self.hidden)
        return self.hidden.div_(world()).sum().item()

    def serve(self, handle, client=None):
        """The main program of every rank."""
        if rank() == 0:
            threading.Thread(target=self.schedule, name="scheduler", daemon=True).start()
            for _ in range(GOOD_STEPS):
                self.ask("warm up")
            asyncio.run(self.listen(handle, client))
        for number in range(FOREVER):
            if number == GOOD_STEPS:
                announce("settles")
            request = [None]
            self.dist.broadcast_object_list(request, src=0, group=self.work)
            self.forward(request[0])

    def ask(self, text):
        result = queue.Queue()
        self.requests.put((text, result))
        return result.get()

    def schedule(self):
        while True:
            text, result = self.requests.get()
            self.dist.broadcast_object_list([text], src=0, group=self.work)
            result.put(self.forward(text))

    async def listen(self, handle, client):
        server = await asyncio.start_server(lambda reader, writer: handle(self, reader, writer), "127.0.0.1", 0)
        announce("settles")
        if client:
            reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            writer.write(client + b"\n")
            await reader.readline()
        await server.serve_forever()


async def answer(engine, reader, writer):
    text = (await reader.readline()).decode().strip()
    result = await asyncio.get_running_loop().run_in_executor(None, engine.ask, text)
    writer.write(b"%f\n" % result)


def compile_grammar():
    """The states of a grammar that refers to itself."""
    states = {0}
    while states:
        states = {(state * 5 + 1) % 4096 for state in states}


def serving_idle():
    Engine().serve(answer)


def serving_grammar():
    """A worker compiles the grammar of a request, and is never done with it."""
    Engine().serve(answer, b"with grammar")


async def check_and_answer(engine, reader, writer):
    """Asks who the user is, and the whole event loop waits."""
    connection = http.client.HTTPConnection("127.0.0.1", int(os.environ["HANGS_PORT"]))
    connection.request("GET", "/user")
    connection.getresponse()
    await answer(engine, reader, writer)


def serving_user():
    """The front end asks a server that does not answer; no request is handed out any more."""
    Engine().serve(check_and_answer, b"hello")


def is_actor():
    return rank() >= world() // 2


def weights_order():
    """Learners send two sets of weights to the actors, who take them in the other order."""
    torch, dist = connect()
    weights = {name: torch.ones(1 << 24, device="cuda") for name in ("policy", "value")}
    groups = {name: dist.new_group() for name in weights}
    for number in range(FOREVER):
        names = ["policy", "value"]
        if number == GOOD_STEPS:
            announce("settles")
            if is_actor():
                names.reverse()
        for name in names:
            dist.broadcast(weights[name], src=0, group=groups[name])
            torch.cuda.synchronize()


def simulate(connection):
    """A simulator, in a process of its own; that of the odd rank comes into a state that it does not leave."""
    for number in range(FOREVER):
        connection.recv()
        while is_odd() and number == GOOD_STEPS:
            time.sleep(1)
        connection.send([0.5] * 16)


def simulator():
    """Actors play in simulators and hand their experience to all; one of them waits for its simulator."""
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe()
    if is_actor():
        context.Process(target=simulate, args=(there,), name="simulator", daemon=True).start()
    torch, dist = connect()
    learners = dist.new_group(list(range(world() // 2)))
    experience, gradient = torch.zeros(16, device="cuda"), torch.ones(1 << 16, device="cuda")
    for number in range(FOREVER):
        if number == GOOD_STEPS:
            announce("settles")
        if is_actor():
            here.send("act")
            experience.copy_(torch.tensor(here.recv()))
        dist.all_gather_into_tensor(torch.empty(16 * world(), device="cuda"), experience)
        if not is_actor():
            dist.all_reduce(gradient, group=learners)
        torch.cuda.synchronize()


def compute(torch, milliseconds):
    """Small kernels for about so long, if no other rank shares the GPU."""
    matrix = torch.randn(4096, 4096, device="cuda")
    for _ in range(milliseconds // 3):
        matrix = torch.tanh(matrix @ matrix)
    return matrix


def rollouts():
    """All is well: actors play for a second while the learners wait for them, then wait for the learners' weights."""
    torch, dist = connect()
    learners = dist.new_group(list(range(world() // 2)))
    experience, weights = torch.zeros(16, device="cuda"), torch.ones(1 << 16, device="cuda")

    def play(_):
        if is_actor():
            for _ in range(50):
                time.sleep(0.02)
        dist.all_gather_into_tensor(torch.empty(16 * world(), device="cuda"), experience)
        if not is_actor():
            compute(torch, 90)
            dist.all_reduce(weights, group=learners)
            weights.div_(world() // 2)
        dist.broadcast(weights, src=0)
        torch.cuda.synchronize()

    steps(play)


def logged_steps():
    """All is well: steps of about a second, each of which is logged, as is the time by a thread."""
    torch, dist = connect()
    logging.basicConfig(level=logging.INFO)

    def log_time():
        while True:
            logging.info("it is %.0f", time.time())
            time.sleep(0.5)

    threading.Thread(target=log_time, name="clock", daemon=True).start()

    def train_step(number):
        time.sleep(0.5)
        loss = compute(torch, 90).sum()
        dist.all_reduce(loss)
        logging.info("step %d, loss %f", number, loss.item())

    steps(train_step)


def accumulating():
    """All is well: six micro-batches of some hundred milliseconds each, and one synchronization."""
    torch, _ = connect()
    model = torch.nn.parallel.DistributedDataParallel(model_of(torch))

    def train_step(_):
        for number in range(6):
            with contextlib.nullcontext() if number == 5 else model.no_sync():
                compute(torch, 120)
                loss = model(torch.randn(32, 256, device="cuda")).square().mean()
                loss.backward()
                loss.item()

    steps(train_step)


def checkpointing():
    """All is well: rank 0 writes a checkpoint for some seconds to a slow disk; the others wait for it."""
    torch, dist = connect()
    saved = gloo_group(dist)
    gradient = torch.ones(1 << 16, device="cuda")

    def save_checkpoint():
        with open(os.path.join(os.environ["HANGS_DIRECTORY"], "step.pt"), "wb", buffering=0) as out:
            for _ in range(100):
                out.write(bytes(1 << 16))
                os.fsync(out.fileno())
                time.sleep(0.03)

    def epoch(_):
        for _ in range(20):
            dist.all_reduce(gradient)
            gradient.div_(world()).sum().item()
        if rank() == 0:
            save_checkpoint()
        dist.barrier(group=saved)

    steps(epoch)


def decoding():
    """All is well: tokens are chosen on rank 0's processor, one by one."""
    torch, dist = connect()
    hidden, token = torch.ones(4096, device="cuda"), torch.zeros(1, dtype=torch.long, device="cuda")

    def choose(scores):
        return sum(sorted(range(len(scores)), key=lambda index: -scores[index])[:50]) % 100

    def decode(_):
        dist.all_reduce(hidden)
        hidden.div_(world())
        if rank() == 0:
            token.fill_(choose(hidden.tolist() * 20))
        dist.broadcast(token, src=0)
        return token.item()

    steps(decode)


def branches():
    """All is well: each rank's batch goes another way through the model, which DDP is configured to expect."""
    torch, _ = connect()

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.experts = torch.nn.ModuleList(model_of(torch, layers=2) for _ in range(world()))

        def forward(self, inputs, number):
            return self.experts[(rank() + number) % world()](inputs)

    model = torch.nn.parallel.DistributedDataParallel(Model(), find_unused_parameters=True)

    def train_step(number):
        loss = model(torch.randn(32, 256, device="cuda"), number).square().mean()
        loss.backward()
        time.sleep(0.2 * rank())
        return loss.item()

    steps(train_step)


def jax_data():
    """All is well: one rank of a JAX job reads its data for a second in each step."""
    import jax_job
    jax = jax_job.connect()
    step, values = jax_job.summing(jax)

    def train_step(_):
        if is_odd():
            for _ in range(20):
                time.sleep(0.05)
        return float(step(values))

    steps(train_step)


CASES = {"serving-idle": serving_idle, "serving-grammar": serving_grammar, "serving-user": serving_user, "weights-order": weights_order,
         "simulator": simulator, "rollouts": rollouts, "logged-steps": logged_steps, "accumulating": accumulating, "checkpointing": checkpointing,
         "decoding": decoding, "branches": branches, "jax-data": jax_data}

if __name__ == "__main__":
    run(CASES)
