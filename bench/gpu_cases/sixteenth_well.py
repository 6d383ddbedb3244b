"""Jobs that are well, in which one rank evaluates or loads for minutes, waits for shards, messages or requests, hashes its checkpoint, waits for a lock, or
leaves its children unburied.

    sixteenth_well.py CASE
"""
import hashlib
import os
import socket
import subprocess
import threading
import time

from eleventh import tensor_parallel
from gpu_rank import announce, connect, gloo_group, rank, run, world
from healthy import steps
from inside import ddp
from sixth_groups import Ring
from tenth import serve_in_background
from tenth_well import train_once


def long_evaluation():
    """After four steps rank 0 evaluates: some thousands of batches, each of which takes some hundredths of a second on its GPU and in Python, so that it is
    done after minutes. The others wait for it in a barrier, over gloo."""
    torch, dist = connect()
    group, model = gloo_group(dist), ddp(torch)

    def evaluate():
        right = 0
        for batch in range(10000):
            with torch.no_grad():
                tokens = model.module(torch.randn(4096, 256, device="cuda")).argmax(-1).tolist()
            answers = [" ".join(map(str, tokens[begin:begin + 64])) for begin in range(0, 4096, 2)]
            right += sum(answer.count(str(batch % 256)) > 0 for answer in answers)
        return right

    for epoch in range(1 << 30):
        for _ in range(4):
            train_once(torch, model)
        if epoch == 0:
            announce("moves")
        if rank() == 0:
            print("right: %d" % evaluate(), flush=True)
        dist.barrier(group=group)


PART = 1 << 16


def send_parts(path, parts, seconds):
    """A store that sends a checkpoint part by part, through a pipe."""
    with open(path, "wb", buffering=0) as out:
        for _ in range(parts):
            out.write(bytes(PART))
            time.sleep(seconds)


def slow_restore():
    """Each rank loads its checkpoint from a store that sends it slowly: that of the second rank is large and takes minutes, for which the first one waits in
    a reduction."""
    path, parts = os.path.join(os.environ["HANGS_DIRECTORY"], "shard-of-rank-%d" % rank()), 8000 if rank() == 1 else 80
    os.mkfifo(path)
    serve_in_background(lambda: send_parts(path, parts, 0.03))
    torch, dist = connect()
    weights = torch.zeros(parts, PART // 4, device="cuda")
    with open(path, "rb") as checkpoint:
        for part in range(parts):
            if part == 40:
                announce("moves")
            weights[part] = torch.frombuffer(bytearray(checkpoint.read(PART)), dtype=torch.float32)
    dist.all_reduce(weights[0])
    model = ddp(torch)
    while True:
        train_once(torch, model)


def actor_mesh():
    """Rank 0 controls a mesh of actors: every one and a half seconds it sends each a message over its socket, and waits for their replies. For a message the
    actors take a step together; in between they wait for the next one."""
    path = os.path.join(os.environ["HANGS_DIRECTORY"], "controller")
    if rank() == 0:
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(path)
        listener.listen()
    torch, dist = connect()
    actors, gradient = dist.new_group(list(range(1, world()))), torch.ones(1 << 20, device="cuda")
    if rank() == 0:
        mailboxes = [listener.accept()[0] for _ in range(1, world())]
    else:
        mailbox = socket.socket(socket.AF_UNIX)
        mailbox.connect(path)

    def call_all(number):
        time.sleep(1.5)
        for box in mailboxes:
            box.sendall(b"step %08d" % number)
        return [box.recv(64) for box in mailboxes]

    def handle_message(_):
        mailbox.recv(13)
        for _ in range(8):
            dist.all_reduce(gradient, group=actors)
            gradient.div_(world() - 1)
        mailbox.sendall(b"%g" % gradient.sum().item())

    steps(call_all if rank() == 0 else handle_message)


def write_shards(directory):
    """Another job, which prepares the data: a shard every one and a half seconds."""
    for number in range(1 << 30):
        with open(os.path.join(directory, "next"), "wb") as out:
            out.write(bytes(4 * 256 * 32))
        os.rename(out.name, os.path.join(directory, "shard-%d" % number))
        time.sleep(1.5)


def shards_arrive():
    """Rank 0 looks ten times a second whether the job that prepares the data has written the next shard, reads it and broadcasts it: a shard comes every one
    and a half seconds, and all train on it."""
    directory = os.path.join(os.environ["HANGS_DIRECTORY"], "shards")
    if rank() == 0:
        os.mkdir(directory)
        serve_in_background(lambda: write_shards(directory))
    torch, dist = connect()
    model = ddp(torch)

    def train_step(number):
        shard = torch.empty(32, 256)
        if rank() == 0:
            path = os.path.join(directory, "shard-%d" % number)
            while not os.path.exists(path):
                time.sleep(0.1)
            with open(path, "rb") as stream:
                shard = torch.frombuffer(bytearray(stream.read()), dtype=torch.float32).view(32, 256)
            os.remove(path)
        shard = shard.cuda()
        dist.broadcast(shard, src=0)
        train_once(torch, model, shard)

    steps(train_step)


def hashed_checkpoint():
    """After every four steps rank 0 saves, reads what it has written, and hashes it: 256 MiB, for about a second, most of it in one call. The others wait for
    the digest, over gloo."""
    torch, dist = connect()
    group, model = gloo_group(dist), ddp(torch)
    path, moments = os.path.join(os.environ["HANGS_DIRECTORY"], "moments.pt"), torch.zeros(1 << 26)

    def save():
        torch.save(moments, path)
        with open(path, "rb") as stream:
            return hashlib.sha512(stream.read()).hexdigest()

    def epoch(_):
        for _ in range(4):
            train_once(torch, model)
        digest = [save() if rank() == 0 else None]
        dist.broadcast_object_list(digest, src=0, group=group)

    steps(epoch)


def held_lock():
    """A thread of the second rank derives keys for the shards, under a lock, for most of a second each. The main thread takes the lock before each step to
    look up the key of its own, and has to wait for the thread; the first rank waits for it."""
    guard, keys = threading.Lock(), []

    def derive_keys():
        while True:
            with guard:
                keys[:] = [hashlib.pbkdf2_hmac("sha256", b"shard %d" % len(keys), b"salt", 1500000)]
            time.sleep(0.05)

    torch, _ = connect()
    model = ddp(torch)
    if rank() == 1:
        threading.Thread(target=derive_keys, name="keys", daemon=True).start()

    def train_step(_):
        with guard:
            key = list(keys)
        train_once(torch, model)
        time.sleep(0.07)
        return key

    steps(train_step)


class SpinningRing(Ring):
    """As Ring, for readers that give their processor away between two looks, and do not sleep."""

    def read(self):
        while self.count(rank()) == self.count(0):
            os.sched_yield()
        self.advance(rank())


def write_requests(descriptor):
    """The front end of a server, which is no part of the job: a request every two and a half seconds."""
    while True:
        os.write(descriptor, b"request\n")
        time.sleep(2.5)


def engine_ring():
    """The core of an engine. Rank 0 waits at a pipe for requests, and hands each on by a ring in shared memory, which the other rank looks at without a
    pause; then both generate."""
    ring, (requests, descriptor) = SpinningRing(), os.pipe()
    if rank() == 0:
        serve_in_background(lambda: write_requests(descriptor))
    torch, _ = connect()
    model = tensor_parallel(torch)

    def generate(_):
        if rank() == 0:
            os.read(requests, 8)
            ring.write()
        else:
            ring.read()
        hidden = torch.ones(8, 256, device="cuda")
        for _ in range(16):
            with torch.no_grad():
                hidden = torch.tanh(model(hidden))
        return hidden.sum().item()

    steps(generate)


def unreaped_helpers():
    """In each step the second rank starts a program that notes its progress, and never waits for it: there are more zombies with each step. Then it asks a
    simulator of its own, a program that takes a second for an answer, for which the first rank waits."""
    simulator = subprocess.Popen(["sh", "-c", "while read -r action; do sleep 1; echo $action; done"],        # pylint: disable=consider-using-with
                                 stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    torch, _ = connect()
    model, helpers = ddp(torch), []

    def train_step(number):
        if rank() == 1:
            helpers.append(subprocess.Popen(["true"]))
            simulator.stdin.write(b"%d\n" % number)
            simulator.stdin.flush()
            simulator.stdout.readline()
        train_once(torch, model)

    steps(train_step)


CASES = {"long-evaluation": long_evaluation, "slow-restore": slow_restore, "actor-mesh": actor_mesh, "shards-arrive": shards_arrive,
         "hashed-checkpoint": hashed_checkpoint, "held-lock": held_lock, "engine-ring": engine_ring, "unreaped-helpers": unreaped_helpers}

if __name__ == "__main__":
    run(CASES)
