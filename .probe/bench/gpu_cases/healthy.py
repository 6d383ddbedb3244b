"""Jobs that make progress, each in a way that may look like a hang.

    healthy.py CASE
"""
import socket
import time

from gpu_rank import announce, connect, is_odd, rank, run, world


def compute(torch, seconds, matrix=None):
    """Kernels that keep the GPU busy for about as long, and take microseconds to launch."""
    matrix = torch.randn(16384, 16384, device="cuda") if matrix is None else matrix
    for _ in range(max(1, round(seconds / COMPUTE_SECONDS))):
        matrix = torch.tanh(matrix @ matrix)
    return matrix


COMPUTE_SECONDS = 0.18          # of one product of that size in FP32 on an H200


def steps(step, how="moves"):
    number = 0
    while True:
        if number == 2:
            announce(how)
        step(number)
        number += 1


def training():
    torch, _ = connect()
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(*[torch.nn.Linear(512, 512) for _ in range(8)]).cuda())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def train_step(_):
        optimizer.zero_grad()
        model(torch.randn(64, 512, device="cuda")).square().mean().backward()
        optimizer.step()

    steps(train_step)


def long_steps():
    """Steps of 3 s on every GPU; the ranks wait for their GPU nearly all the time."""
    torch, dist = connect()

    def train_step(_):
        result = compute(torch, 3)
        loss = result.sum()
        dist.all_reduce(loss)
        return loss.item()

    steps(train_step)


def no_collective():
    """Every rank computes on its own GPU, without any collective."""
    torch, _ = connect()

    def predict(_):
        return compute(torch, 2).sum().item()

    steps(predict)


def slow_rank():
    """One rank reads its data for a second in each step."""
    torch, dist = connect()
    tensor = torch.ones(1024, device="cuda")

    def train_step(_):
        if is_odd():
            read_batch()
        dist.all_reduce(tensor)
        tensor.div_(world())
        torch.cuda.synchronize()

    steps(train_step)


def read_batch():
    time.sleep(0.4)


def slow_gpu():
    """One rank computes longer in each step; the others wait for it in the all-reduce."""
    torch, dist = connect()

    def train_step(_):
        result = compute(torch, 0.8 if is_odd() else 0.2)
        loss = result.sum()
        dist.all_reduce(loss)
        return loss.item()

    steps(train_step)


def server():
    """An inference server: rank 0 waits for requests, the others for the work that it broadcasts."""
    torch, dist = connect()
    tensor = torch.zeros(16, device="cuda")
    if rank() == 0:
        serve_requests(dist, tensor)
    follow(torch, dist, tensor)


def follow(torch, dist, tensor):
    """A rank that takes its work from rank 0."""
    announce("settles")
    while True:
        dist.broadcast(tensor, src=0)
        torch.cuda.synchronize()


def serve_requests(dist, tensor):
    import selectors
    listening = socket.create_server(("127.0.0.1", 0))
    selector = selectors.DefaultSelector()
    selector.register(listening, selectors.EVENT_READ)
    announce("settles")
    while True:
        for key, _ in selector.select():
            connection, _ = key.fileobj.accept()
            tensor.fill_(float(connection.recv(1)[0]))
            dist.broadcast(tensor, src=0)


def async_server():
    """The same over asyncio."""
    import asyncio
    torch, dist = connect()
    tensor = torch.zeros(16, device="cuda")
    if rank() == 0:
        async def handle(reader, writer):
            await reader.read(1)
            dist.broadcast(tensor, src=0)
            writer.close()

        async def serve():
            listening = await asyncio.start_server(handle, "127.0.0.1", 0)
            announce("settles")
            await listening.serve_forever()

        asyncio.run(serve())
    follow(torch, dist, tensor)


def evaluation():
    """Rank 0 evaluates for a second or two; the others wait for it in a barrier."""
    torch, dist = connect()

    def epoch(_):
        if rank() == 0:
            evaluate(torch)
        dist.barrier()
        torch.cuda.synchronize()

    steps(epoch)


def evaluate(torch):
    correct = 0
    for batch in range(200):
        correct += int((torch.randn(256, 256, device="cuda") @ torch.randn(256, 256, device="cuda")).sum().item() > 0)
        time.sleep(0.005)
    return correct, batch


CASES = {"training": training, "long-steps": long_steps, "no-collective": no_collective, "slow-rank": slow_rank, "slow-gpu": slow_gpu, "server": server,
         "async-server": async_server, "evaluation": evaluation}

if __name__ == "__main__":
    run(CASES)
