"""Jobs that are well, in which a rank downloads slowly, answers requests between which there is nothing to do, evaluates, compresses a checkpoint,
compiles kernels, has longer texts than the others, or plays.

    fifteenth_well.py CASE
"""
import asyncio
import http.client
import http.server
import multiprocessing
import os
import socket
import time
import zlib

from eleventh import tensor_parallel
from field_frameworks import accelerator_of_job
from gpu_rank import announce, connect, device_index, gloo_group, rank, run
from healthy import steps
from inside import ddp
from tenth import serve_in_background
from tenth_well import train_once


class SlowShards(http.server.BaseHTTPRequestHandler):
    """Sends a shard in sixteen parts, with a rest before each."""

    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", str(16 * 4096))
        self.end_headers()
        for _ in range(16):
            time.sleep(0.01 + 0.1 * rank())
            self.wfile.write(bytes(4096))

    def log_message(self, *_):
        pass


def slow_object_store():
    """Before each step a rank downloads its shard over HTTP, which comes in parts; that of the second rank takes nearly two seconds, for which the first
    one waits."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), SlowShards)
    serve_in_background(server.serve_forever)
    port = server.server_address[1]
    server.server_close()
    torch, _ = connect()
    model = ddp(torch)

    def download():
        connection = http.client.HTTPConnection("127.0.0.1", port)
        connection.request("GET", "/shard")
        shard = connection.getresponse().read()
        connection.close()
        return shard

    def train_step(_):
        download()
        train_once(torch, model)

    steps(train_step)


def send_prompts(path):
    """The front end of a server, which is no part of the job: a prompt every two seconds, once the server is there."""
    while True:
        try:
            connection = socket.socket(socket.AF_UNIX)
            connection.connect(path)
            break
        except OSError:
            time.sleep(0.2)
    with connection, connection.makefile("rb") as answers:
        for number in range(1 << 30):
            connection.sendall(b"prompt %d\n" % number)
            answers.readline()
            time.sleep(2)


def engine_socket():
    """A server, whose model is in parts on all ranks. Rank 0 takes prompts in an event loop, hands each over to the others over gloo, and generates in a
    thread; in between all ranks wait, for two seconds at a time."""
    path = os.path.join(os.environ["HANGS_DIRECTORY"], "engine")
    if rank() == 0:
        serve_in_background(lambda: send_prompts(path))
    torch, dist = connect()
    prompts, model = gloo_group(dist), tensor_parallel(torch)

    def generate(prompt):
        torch.cuda.set_device(device_index())
        received = [prompt]
        dist.broadcast_object_list(received, src=0, group=prompts)
        hidden = torch.ones(8, 256, device="cuda")
        for _ in range(16):
            with torch.no_grad():
                hidden = torch.tanh(model(hidden))
        return "%s: %g\n" % (received[0], hidden.sum().item())

    async def answer(reader, writer):
        answered = 0
        while prompt := await reader.readline():
            text = await asyncio.get_running_loop().run_in_executor(None, generate, prompt.decode().strip())
            writer.write(text.encode())
            answered += 1
            if answered == 2:
                announce("moves")

    async def serve():
        server = await asyncio.start_unix_server(answer, path)
        await server.serve_forever()

    if rank() == 0:
        asyncio.run(serve())
    else:
        steps(lambda _: generate(None))


def accelerate_evaluates():
    """Accelerate. After every four steps the main process evaluates for about two seconds, on its GPU and in Python; the other one waits for it in
    wait_for_everyone()."""
    torch, accelerator = accelerator_of_job()
    model = torch.nn.Linear(256, 256)
    model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.01))

    def evaluate():
        end, answers = time.monotonic() + 2, 0
        with torch.no_grad():
            while time.monotonic() < end:
                tokens = accelerator.unwrap_model(model)(torch.randn(64, 256, device=accelerator.device)).argmax(-1).tolist()
                answers += sum(" ".join(map(str, tokens)).count(str(token)) > 2 for token in tokens)
        return answers

    def epoch(_):
        for _ in range(4):
            optimizer.zero_grad()
            loss = model(torch.randn(32, 256, device=accelerator.device)).square().mean()
            accelerator.backward(loss)
            optimizer.step()
            loss.item()
        if accelerator.is_main_process:
            evaluate()
        accelerator.wait_for_everyone()

    steps(epoch)


def compressed_checkpoint():
    """After every four steps rank 0 saves a state of 64 MiB, which it compresses before it writes it, for about two seconds. The others wait for it in a
    barrier, over gloo."""
    torch, dist = connect()
    group, model = gloo_group(dist), ddp(torch)
    moments = torch.randn(1 << 24)

    def save(path):
        packer, state = zlib.compressobj(6), memoryview(moments.numpy()).cast("B")
        with open(path, "wb") as out:
            for begin in range(0, len(state), 1 << 20):
                out.write(packer.compress(state[begin:begin + (1 << 20)]))
            out.write(packer.flush())

    def epoch(_):
        for _ in range(4):
            train_once(torch, model)
        if rank() == 0:
            save(os.path.join(os.environ["HANGS_DIRECTORY"], "state.z"))
        dist.barrier(group=group)

    steps(epoch)


SCALE = """
extern "C" __global__ void scale_rows(float* values, int count) {
  int at = blockIdx.x * blockDim.x + threadIdx.x;
  if (at < count) values[at] *= %d.0f / 1024.0f;
}
"""


def kernels_anew():
    """For each step a rank compiles kernels for the scales that it has: three of them on the first rank, and twelve on the second one, for which the first
    one waits."""
    torch, _ = connect()
    model, values = ddp(torch), torch.ones(1 << 12, device="cuda")

    def train_step(number):
        for kernel in range(3 + 9 * rank()):
            scale_rows = torch.cuda._compile_kernel(SCALE % (1000 * number + kernel + 1), "scale_rows")
            scale_rows(grid=(16, 1, 1), block=(256, 1, 1), args=[values, 1 << 12])
        train_once(torch, model)

    steps(train_step)


def long_sequences():
    """The texts of the second rank are eight times as long as those of the first one, and its attention takes a second or longer; the first rank waits
    for it, on its GPU."""
    torch, _ = connect()
    model, length = ddp(torch), (1 << 14) * (1 + 7 * rank())

    def train_step(_):
        queries, keys, values = (torch.randn(1, 16, length, 64, dtype=torch.bfloat16, device="cuda") for _ in range(3))
        with torch.no_grad():
            for _ in range(12):
                queries = torch.nn.functional.scaled_dot_product_attention(queries, keys, values, is_causal=True)
        train_once(torch, model)

    steps(train_step)


def play_games(connection):
    """The process of a game: each takes a second or so, in Python."""
    while True:
        seed = connection.recv()
        end, score = time.monotonic() + 0.2 + 0.4 * rank() + 0.3 * (seed % 3), seed
        while time.monotonic() < end:
            score = (1103515245 * score + 12345) % (1 << 31)
        connection.send(score / (1 << 31))


def plays_episodes():
    """Reinforcement learning. Before each step a rank has a process of its own play an episode, and waits for its score; that of the second rank takes
    longer, for which the first one waits in the step."""
    context = multiprocessing.get_context("fork")
    connection, other = context.Pipe()
    context.Process(target=play_games, args=(other,), daemon=True).start()
    other.close()
    torch, _ = connect()
    model = ddp(torch)

    def train_step(number):
        connection.send(number)
        train_once(torch, model, torch.full((32, 256), connection.recv(), device="cuda"))

    steps(train_step)


CASES = {"slow-object-store": slow_object_store, "engine-socket": engine_socket, "accelerate-evaluates": accelerate_evaluates,
         "compressed-checkpoint": compressed_checkpoint, "kernels-anew": kernels_anew, "long-sequences": long_sequences, "plays-episodes": plays_episodes}

if __name__ == "__main__":
    run(CASES)
