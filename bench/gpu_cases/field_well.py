"""Jobs that are well, each in a way that users have taken for a hang.

    field_well.py CASE
"""
import os
import threading
import time

from gpu_rank import announce, connect, gloo_group, is_odd, rank, run, world
from healthy import steps
from inside import ddp
from roles import compute
from training import model_of

CYCLES = 1 << 30     # of a GPU: half a second, or somewhat more


def loss_of(torch, model):
    return model(torch.randn(32, 256, device="cuda")).square().mean()


def accumulation():
    """Gradients are summed up for seconds on every rank before they are reduced."""
    torch, _ = connect()
    model = ddp(torch)

    def train_step(_):
        with model.no_sync():
            for _ in range(20):
                compute(torch, 90)
                loss_of(torch, model).backward()
        loss = loss_of(torch, model)
        loss.backward()
        loss.item()

    steps(train_step)


def disk_log():
    """One rank writes its log to a slow disk for a second and a half in each step."""
    torch, dist = connect()
    loss = torch.ones(1, device="cuda")

    def write_log(out, number):
        for line in range(30):
            out.write("step %d, line %d\n" % (number, line))
            out.flush()
            os.fsync(out.fileno())
            time.sleep(0.05)

    with open(os.path.join(os.environ["HANGS_DIRECTORY"], "steps.log"), "w", encoding="utf-8") as out:
        def train_step(number):
            dist.all_reduce(loss)
            loss.div_(world()).item()
            if is_odd():
                write_log(out, number)

        steps(train_step)


def evaluation():
    """Rank 0 evaluates batch by batch for some seconds; the others wait in a barrier over gloo."""
    torch, dist = connect()
    evaluated, model = gloo_group(dist), model_of(torch)
    gradient = torch.ones(1 << 20, device="cuda")

    def evaluate():
        with torch.no_grad():
            for _ in range(100):
                loss_of(torch, model).item()
                time.sleep(0.02)

    def epoch(_):
        dist.all_reduce(gradient)
        gradient.div_(world()).sum().item()
        if rank() == 0:
            evaluate()
        dist.barrier(group=evaluated)

    steps(epoch)


def server():
    """A server gets a request every few seconds, and is idle in between."""
    import http.server
    import urllib.request
    torch, dist = connect()
    hidden, requests = torch.ones(1 << 16, device="cuda"), gloo_group(dist)

    def forward():
        dist.broadcast_object_list(["prompt"] if rank() == 0 else [None], src=0, group=requests)
        dist.all_reduce(hidden)
        return hidden.div_(world()).sum().item()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            body = b"%f" % forward()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    def ask(port):
        while True:
            with urllib.request.urlopen("http://127.0.0.1:%d/" % port) as response:
                response.read()
            time.sleep(3)

    if rank() == 0:
        serving = http.server.HTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=ask, args=serving.server_address[1:], name="client", daemon=True).start()
        announce("settles")
        serving.serve_forever()
    announce("settles")
    while True:
        forward()


def compiled():
    """The first step compiles for a long time, the others do not."""
    torch, _ = connect()
    model = torch.compile(ddp(torch))

    def train_step(_):
        loss = loss_of(torch, model)
        loss.backward()
        loss.item()

    steps(train_step)


def matrices():
    """Every rank multiplies matrices on its GPU, and has nothing to do with the others."""
    torch, _ = connect()
    steps(lambda _: compute(torch, 600).sum().item())


def offloaded():
    """Weights and optimizer are in the host's memory; each layer comes to the GPU when it is computed."""
    torch, dist = connect()
    layers = [torch.nn.Linear(1024, 1024) for _ in range(8)]
    optimizer = torch.optim.AdamW([parameter for layer in layers for parameter in layer.parameters()])

    def train_step(_):
        hidden = torch.randn(32, 1024, device="cuda")
        for layer in layers:
            hidden = torch.relu(torch.nn.functional.linear(hidden, layer.weight.cuda(), layer.bias.cuda()))
        hidden.square().mean().backward()
        for layer in layers:
            for parameter in layer.parameters():
                gradient = parameter.grad.cuda()
                dist.all_reduce(gradient)
                parameter.grad.copy_(gradient)
        optimizer.step()
        optimizer.zero_grad()

    steps(train_step)


class Pages:
    """A dataset on a slow file system."""

    def __len__(self):
        return 1 << 16

    def __getitem__(self, index):
        import torch
        time.sleep(0.1)
        return torch.full((256,), float(index))


def slow_loader():
    """The loaders of all ranks are slow, and all ranks wait for them nearly all the time."""
    torch, _ = connect()
    model = ddp(torch)
    batches = iter(torch.utils.data.DataLoader(Pages(), batch_size=8, num_workers=1, multiprocessing_context="fork"))

    def train_step(_):
        loss = model(next(batches).cuda()).square().mean()
        loss.backward()
        loss.item()

    steps(train_step)


def decoding():
    """A token every 20 ms, for which the ranks reduce and rank 0 samples."""
    torch, dist = connect()
    hidden, token = torch.ones(4096, device="cuda"), torch.zeros(1, dtype=torch.long, device="cuda")

    def decode(_):
        dist.all_reduce(hidden)
        hidden.div_(world())
        if rank() == 0:
            token.copy_(torch.multinomial(torch.softmax(hidden, 0), 1))
        dist.broadcast(token, src=0)
        time.sleep(0.02)
        return token.item()

    steps(decode)


def one_kernel():
    """A step is one kernel of about a second on every rank, and a reduction."""
    torch, dist = connect()
    loss = torch.ones(1, device="cuda")

    def train_step(_):
        torch.cuda._sleep(CYCLES * 2)
        dist.all_reduce(loss)
        loss.div_(world()).item()

    steps(train_step)


def async_save():
    """A thread writes each step's checkpoint for a second, while the next step is computed; then it is waited for."""
    torch, dist = connect()
    model = ddp(torch)
    path = os.path.join(os.environ["HANGS_DIRECTORY"], "saved.%d.pt" % rank())

    def write(state):
        torch.save(state, path)
        for _ in range(20):
            time.sleep(0.05)

    writers = []

    def train_step(_):
        loss = loss_of(torch, model)
        loss.backward()
        loss.item()
        for writer in writers:
            writer.join()
        state = {name: value.cpu() for name, value in model.state_dict().items()}
        writers[:] = [threading.Thread(target=write, args=(state,), name="checkpoint", daemon=True)]
        writers[0].start()

    steps(train_step)


def several_epochs():
    """Short epochs: at the end of each one the ranks gather objects, and rank 0 writes them down while the others read the next shard."""
    torch, dist = connect()
    results, gradient = gloo_group(dist), torch.ones(1 << 20, device="cuda")

    def epoch(number):
        for _ in range(10):
            dist.all_reduce(gradient)
            gradient.div_(world()).sum().item()
        gathered = [None] * world()
        dist.all_gather_object(gathered, {"epoch": number, "rank": rank()}, group=results)
        time.sleep(0.4 if rank() == 0 else 0.1)

    steps(epoch)


CASES = {"accumulation": accumulation, "disk-log": disk_log, "evaluation": evaluation, "server": server, "compiled": compiled, "matrices": matrices,
         "offloaded": offloaded, "slow-loader": slow_loader, "decoding": decoding, "one-kernel": one_kernel, "async-save": async_save,
         "several-epochs": several_epochs}

if __name__ == "__main__":
    run(CASES)
