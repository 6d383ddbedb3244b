"""Ranks that do not do the same: whose checkpoint has failed, who looks at a batch first, who begins anew, takes another item or asks first; or a rank of an
engine does not answer.

    eighteenth_groups.py CASE
"""
import datetime
import http.client
import http.server
import os
import queue
import random
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import wait as wait_for_all

from field_groups import gradient_of, reduce_gradient
from gpu_rank import FOREVER, GOOD_STEPS, TIMEOUT, announce, connect, gloo_group, is_odd, rank, run, world
from inside import ddp, train
from seventh import in_trouble
from tenth_well import train_once

PROMPTS = queue.SimpleQueue()


class Engine(http.server.BaseHTTPRequestHandler):
    """Hands a prompt to the main thread, and waits for its answer."""

    def do_GET(self):
        answer = queue.SimpleQueue()
        PROMPTS.put((self.path, answer))
        text = answer.get()
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_):
        pass


def expand(prompt, names):
    """Puts names into the places of a prompt, until it has none."""
    while "{" in prompt:
        for place, name in names.items():
            prompt = prompt.replace("{%s}" % place, name)
    return prompt


def rollout_server():
    """Reinforcement learning. Rank 0 learns, and asks an engine over HTTP for what the model says. The engine is the two other ranks, each of which has a part
    of the model: rank 1 takes prompts, and hands them on over gloo. Each expands a prompt by itself. In the table of the odd rank, a name is the place
    where it should be put: it is never done with that; rank 1 waits for it on its GPU, and rank 0 for rank 1 at a socket."""
    torch, dist = connect()
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    engine, prompts = dist.new_group([1, 2], timeout=TIMEOUT), dist.new_group([1, 2], backend="gloo", timeout=TIMEOUT)
    store = dist.distributed_c10d._get_default_store()

    def generate(number, prompt):
        text = expand(prompt, {"user": "{user}" if in_trouble(number) else "Ada"})
        hidden = torch.full((8, 256), float(len(text)), device="cuda")
        dist.all_reduce(hidden, group=engine)
        return b"%g" % hidden.mean().item()

    def learn():
        gradient, port = gradient_of(torch), int(store.get("engine"))
        for number in range(FOREVER):
            if number == GOOD_STEPS:
                announce("settles")
            connection = http.client.HTTPConnection("127.0.0.1", port)
            connection.request("GET", "/generate?{user}")
            reward = float(connection.getresponse().read())
            connection.close()
            gradient.mul_(reward).sum().item()

    def serve():
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Engine)
        threading.Thread(target=server.serve_forever, name="http", daemon=True).start()
        store.set("engine", str(server.server_address[1]))
        for number in range(FOREVER):
            if number == GOOD_STEPS:
                announce("settles")
            prompt, answer = PROMPTS.get()
            dist.broadcast_object_list([prompt], src=1, group=prompts)
            answer.put(generate(number, prompt))

    def follow():
        for number in range(FOREVER):
            if number == GOOD_STEPS:
                announce("settles")
            prompt = [None]
            dist.broadcast_object_list(prompt, src=1, group=prompts)
            generate(number, prompt[0])

    (learn, serve, follow)[rank()]()


def save_failed():
    """In every other step a thread of each rank writes a shard, and gathers over gloo where all shards are; the main thread waits for that in the next step,
    and does not look whether it has failed. That of the odd rank has, as its directory is gone: the rank goes on, and the threads of the others wait for
    its thread, and their main threads for these."""
    torch, dist = connect()
    group, saver, model, saves = gloo_group(dist), ThreadPoolExecutor(1, thread_name_prefix="saver"), ddp(torch), []

    def save(number):
        directory = os.path.join(os.environ["HANGS_DIRECTORY"], "gone" if in_trouble(number) else ".")
        path = os.path.join(directory, "step-%d-of-rank-%d" % (number, rank()))
        with open(path, "wb") as shard:
            shard.write(bytes(4096))
        dist.all_gather_object([None] * world(), path, group=group)

    for number in range(FOREVER):
        if number == GOOD_STEPS:
            announce("settles")
        wait_for_all(saves)
        saves.clear()
        if number % 2 == GOOD_STEPS % 2:
            saves.append(saver.submit(save, number))
        train_once(torch, model)


class SharedOrder:
    """A sampler of which all ranks have the same order: as an epoch begins, rank 0 says by which seed it is shuffled."""

    def __init__(self, dist, group):
        self.dist, self.group = dist, group

    def __iter__(self):
        seed = [random.randrange(1 << 30)]
        self.dist.broadcast_object_list(seed, src=0, group=self.group)
        order = list(range(rank(), 1 << 14, world()))
        random.Random(seed[0]).shuffle(order)
        return iter(order)

    def __len__(self):
        return (1 << 14) // world()


def looks_at_batch():
    """As an epoch begins, the sampler of a loader takes the seed of the epoch from rank 0, over gloo. In the midst of one, the odd rank wants to know how its
    next batches look, and takes the first one of a new iterator: for its sampler that is an epoch, of which the others know nothing."""
    torch, dist = connect()
    order, samples = SharedOrder(dist, gloo_group(dist)), torch.randn(1 << 14, 256)
    loader, model = torch.utils.data.DataLoader(samples, batch_size=8, sampler=order), ddp(torch)
    batches = iter(loader)
    for number in range(FOREVER):
        if number == GOOD_STEPS:
            announce("settles")
        if in_trouble(number):
            print("batches are like %s" % list(next(iter(loader)).shape), flush=True)
        train_once(torch, model, next(batches).cuda())


def rejoin():
    """What a rank does that has begun anew: waits in the store of the job until all are to begin with the next generation."""
    import torch.distributed as dist
    store = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False, timeout=TIMEOUT)
    announce("settles")
    store.wait(["generation 1"], datetime.timedelta(hours=8))


def executed_anew():
    """After an error of its GPU the odd rank has the system execute its program anew, in the same process, and waits in the store for all to begin anew. The
    others have heard nothing of that, and are in a reduction with what the process was before."""
    if os.environ.get("GENERATION") == "1":
        rejoin()
    torch, dist = connect()
    gradient = gradient_of(torch)
    for number in range(FOREVER):
        if in_trouble(number):
            os.environ["GENERATION"] = "1"
            os.execv(sys.executable, [sys.executable, *sys.argv])
        if number == GOOD_STEPS and not is_odd():
            announce("settles")
        reduce_gradient(dist, gradient)


def second_item():
    """Before each step rank 0 puts an item of work for each other rank into a queue of that one, which is in the store. The item of the odd rank is damaged: it
    takes the next one, which is not there before the next step."""
    torch, dist = connect()
    store = dist.distributed_c10d._get_default_store()

    def take_item(number):
        if rank() == 0:
            for worker in range(1, world()):
                store.queue_push("items of rank %d" % worker, b"damaged" if number == GOOD_STEPS and worker == world() - 1 else b"item")
            return b"item"
        item = store.queue_pop("items of rank %d" % rank())
        while item == b"damaged":
            item = store.queue_pop("items of rank %d" % rank())
        return item

    train(torch, ddp(torch), take_item)


def both_ask():
    """Two ranks that each have something that the other one needs, over gloo: rank 0 asks for an episode, and then the other rank for new weights. For one step
    the other rank takes its weights for too old, and asks first: both send a question, and neither takes one."""
    torch, dist = connect()
    messages, gradient, text = gloo_group(dist), gradient_of(torch), torch.zeros(16)

    def ask_for_episode():
        dist.send(text, dst=1, group=messages)
        dist.recv(text, src=1, group=messages)

    def ask_for_weights():
        dist.send(text, dst=0, group=messages)
        dist.recv(text, src=0, group=messages)

    def answer(other):
        dist.recv(text, src=other, group=messages)
        dist.send(text, dst=other, group=messages)

    def learn():
        ask_for_episode()
        answer(1)

    def play(number):
        if in_trouble(number):
            ask_for_weights()
            answer(0)
        else:
            answer(0)
            ask_for_weights()

    for number in range(FOREVER):
        if number == GOOD_STEPS:
            announce("settles")
        if rank() == 0:
            learn()
        else:
            play(number)
        reduce_gradient(dist, gradient)


CASES = {"rollout-server": rollout_server, "save-failed": save_failed, "looks-at-batch": looks_at_batch, "executed-anew": executed_anew,
         "second-item": second_item, "both-ask": both_ask}

if __name__ == "__main__":
    run(CASES)
