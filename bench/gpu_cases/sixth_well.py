"""Jobs that are well, in which ranks wait for the longest text, for local steps, for a slow server or service, for files, or capture graphs.

    sixth_well.py CASE
"""
import gc
import os
import time
from concurrent.futures import ThreadPoolExecutor

from gpu_rank import connect, rank, run, world
from healthy import steps
from inside import ddp
from sixth import fetch, serve_apart, start_run_service
from training import model_of


def unequal_texts():
    """Each rank generates texts of other lengths by a model that is sharded: those that are done go on computing for the others until all are."""
    torch, dist = connect()
    from torch.distributed.fsdp import fully_shard
    model, unfinished = torch.nn.Sequential(*[torch.nn.Linear(512, 512, bias=False) for _ in range(4)]).cuda(), torch.zeros(1, device="cuda")
    for layer in model:
        fully_shard(layer)
    fully_shard(model)

    @torch.no_grad()
    def generate(number):
        state, text, length = torch.ones(1, 512, device="cuda"), [], 40 + 60 * ((number + rank()) % world())
        while True:
            state = torch.tanh(model(state))
            if len(text) < length:
                text.append(int(state.argmax().item()))
                time.sleep(0.008)
            unfinished.fill_(float(len(text) < length))
            dist.all_reduce(unfinished)
            if unfinished.item() == 0:
                return text

    steps(generate)


def local_steps():
    """Each rank trains by itself for two to three seconds, and then the weights of all are averaged (DiLoCo)."""
    torch, dist = connect()
    model = model_of(torch)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)

    def round_of_steps(number):
        end = time.monotonic() + 2.0 + 0.9 * ((number + rank()) % 2)
        while time.monotonic() < end:
            loss = model(torch.randn(32, 256, device="cuda")).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            loss.item()
        for weight in model.parameters():
            dist.all_reduce(weight.data)
            weight.data.div_(world())
        torch.cuda.synchronize()

    steps(round_of_steps)


def data_server():
    """The batches come from a server over HTTP, which takes a second, more or less, for each."""
    def answer(path):
        time.sleep(0.6 + 0.3 * (int(path.rsplit("-", 1)[-1]) % 3))
        return 200, bytes(8192)

    port = serve_apart(answer)
    torch, _ = connect()
    model = ddp(torch)

    def train_step(number):
        batch = torch.frombuffer(bytearray(fetch(port, "batch-%d" % (number + rank()))), dtype=torch.uint8).reshape(32, 256).float()
        loss = model(batch.cuda()).square().mean()
        loss.backward()
        loss.item()

    steps(train_step)


def captures():
    """A server that begins: for each number of requests a graph is captured, with its all-reduces, as a warm-up has taken place; and that for one
    adapter after the other."""
    torch, dist = connect()
    model = model_of(torch)

    @torch.no_grad()
    def forward(inputs):
        for layer in model:
            inputs = layer(inputs)
            dist.all_reduce(inputs)
        return inputs

    def capture_of(_):
        for count in range(64, 0, -4):
            inputs, graph = torch.ones(count, 256, device="cuda"), torch.cuda.CUDAGraph()
            forward(inputs)
            torch.cuda.synchronize()
            gc.collect()
            with torch.cuda.graph(graph):
                forward(inputs)
            graph.replay()
            torch.cuda.synchronize()

    steps(capture_of)


def slow_run_service():
    """Rank 0 logs every step to a service, a process of its own, which confirms it after half a second or a whole one; the others wait for rank 0 in
    their step."""
    service = start_run_service(lambda record: time.sleep(0.5 + 0.5 * (record["step"] % 2))) if rank() == 0 else None
    torch, _ = connect()
    model = ddp(torch)

    def train_step(number):
        loss = model(torch.randn(32, 256, device="cuda")).square().mean()
        loss.backward()
        loss.item()
        if rank() == 0:
            service.send({"step": number, "loss": loss.item()})
            service.recv()

    steps(train_step)


def swapped_state():
    """The optimizer's state is in files: threads read it after a step's gradient and write it again, part by part, 128 MiB in all; the
    rank waits for them."""
    torch, _ = connect()
    model, threads = ddp(torch), ThreadPoolExecutor(2, thread_name_prefix="swap")
    path = os.path.join(os.environ["HANGS_DIRECTORY"], "state.%d.%d")

    def write_part(part, data):
        with open(path % (rank(), part), "wb", buffering=0) as out:
            out.write(data)
            os.fsync(out.fileno())

    def read_part(part):
        with open(path % (rank(), part), "rb", buffering=0) as stream:
            return stream.read()

    def wait_for(tasks):
        return [task.result() for task in tasks]

    wait_for([threads.submit(write_part, part, bytes(1 << 24)) for part in range(8)])

    def train_step(_):
        loss = model(torch.randn(32, 256, device="cuda")).square().mean()
        loss.backward()
        loss.item()
        state = wait_for([threads.submit(read_part, part) for part in range(8)])
        wait_for([threads.submit(write_part, part, data) for part, data in enumerate(state)])

    steps(train_step)


CASES = {"unequal-texts": unequal_texts, "local-steps": local_steps, "data-server": data_server, "captures": captures,
         "slow-run-service": slow_run_service, "swapped-state": swapped_state}

if __name__ == "__main__":
    run(CASES)
