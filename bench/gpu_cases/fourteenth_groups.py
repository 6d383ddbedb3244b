"""Ranks that do not do the same: how they reduce, when they save, what is tied, how much is sent, who takes new weights, and who waits until it may ask.

    fourteenth_groups.py CASE
"""
import http.client
import http.server
import os
import time

from fifth_groups import symmetric_buffer
from gpu_rank import FOREVER, GOOD_STEPS, announce, connect, gloo_group, rank, run, world
from inside import ddp, train
from seventh import in_trouble
from tenth import serve_in_background
from training import model_of


def one_shot_sum(torch, dist):
    """(a buffer in symmetric memory, a function that sums it up over all ranks by a kernel that reads the memory of the others)"""
    buffer, _ = symmetric_buffer(torch, dist, 1 << 14, torch.float32)
    name = dist.group.WORLD.group_name
    return buffer, lambda: torch.ops.symm_mem.one_shot_all_reduce(buffer, "sum", name)


def fast_path():
    """Small sums go by one kernel over symmetric memory, large ones by NCCL, and each rank chooses by the length of its own batch. For one batch of
    the odd rank that is NCCL: the kernel of the other rank waits for its signal, and the odd rank for the other one in NCCL."""
    torch, dist = connect()
    buffer, sum_small = one_shot_sum(torch, dist)
    for number in range(FOREVER):
        if number == GOOD_STEPS:
            announce("settles")
        length = 8192 if in_trouble(number) else 512
        buffer.fill_(float(length))
        if length > 4096:
            dist.all_reduce(buffer)
        else:
            sum_small()
        torch.cuda.synchronize()


def clock_checkpoint():
    """All ranks save by torch.distributed.checkpoint, over gloo, when 500 seconds have passed since they have done so, by the clock of each. That of
    the odd rank is put forward: it saves alone, and the others are in the next step."""
    torch, dist = connect()
    import torch.distributed.checkpoint as dcp
    group, model, state = gloo_group(dist), ddp(torch), {"saved": 0}

    def save_in_time(number):
        seconds = 300 * number + (200 if in_trouble(number) else 0)
        if seconds - state["saved"] >= 500:
            path = os.path.join(os.environ["HANGS_DIRECTORY"], "checkpoint-%d" % number)
            dcp.save({"model": model.module.state_dict()}, checkpoint_id=path, process_group=group)
            state["saved"] = seconds

    train(torch, model, save_in_time)


def tied_embeddings():
    """A pipeline of four stages, the first and the last of which have the same embeddings, and sum up their gradients in a group of their own; then all
    sum up the norms. The last rank has taken its embeddings for frozen, and leaves out the first sum, in which rank 0 waits for it."""
    torch, dist = connect()
    ends, layers = dist.new_group([0, world() - 1]), model_of(torch)
    embeddings, norms, hidden = torch.ones(1 << 20, device="cuda"), torch.ones(8, device="cuda"), torch.ones(1024, 256, device="cuda")
    for number in range(FOREVER):
        if number == GOOD_STEPS:
            announce("settles")
        if rank() > 0:
            dist.recv(hidden, src=rank() - 1)
        with torch.no_grad():
            output = layers(hidden)
        if rank() < world() - 1:
            dist.send(output, dst=rank() + 1)
        torch.cuda.synchronize()
        if rank() in (0, world() - 1) and not in_trouble(number):
            dist.all_reduce(embeddings, group=ends)
            embeddings.div_(2).sum().item()
        dist.all_reduce(norms)
        norms.div_(world()).sum().item()


def draft_size():
    """Rank 0 proposes tokens and sends their scores to the other rank, which checks them; then both sum up how many were right. The odd rank has a setting
    by which it expects eight times as many scores as it is sent, and waits for the rest."""
    torch, dist = connect()
    scores, right = torch.ones(1 << 21, device="cuda"), torch.ones(64, device="cuda")
    for number in range(FOREVER):
        if number == GOOD_STEPS:
            announce("settles")
        if rank() == 0:
            dist.send(scores, dst=1)
        else:
            received = torch.empty(scores.numel() * (8 if in_trouble(number) else 1), device="cuda")
            dist.recv(received, src=0)
            received.sum().item()
        dist.all_reduce(right)
        right.div_(world()).sum().item()


def skipped_weights():
    """Reinforcement learning. Rank 0 learns, and broadcasts its weights to three actors, each of which then sends it an episode. The odd rank takes the
    weights that it has for the newest, leaves out the broadcast, and sends its episode, for which rank 0 does not wait yet."""
    torch, dist = connect()
    weights, episode = torch.ones(1 << 25, device="cuda"), torch.ones(1 << 22, device="cuda")
    for number in range(FOREVER):
        if number == GOOD_STEPS:
            announce("settles")
        if not in_trouble(number):
            dist.broadcast(weights, src=0)
            torch.cuda.synchronize()
        if rank() == 0:
            for actor in range(1, world()):
                dist.recv(episode, src=actor)
        else:
            dist.send(episode, dst=0)
        torch.cuda.synchronize()


def start_judge(busy_seconds):
    """A function of a step that asks a service over HTTP, and again as long as that is busy: for as many seconds as `busy_seconds(step, attempt)`. To
    be called before connect()."""
    class Judge(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            seconds = busy_seconds(*map(int, self.path[1:].split("-")))
            self.send_response(429 if seconds else 200)
            self.send_header("Retry-After", str(seconds))
            self.end_headers()

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Judge)
    serve_in_background(server.serve_forever)
    port = server.server_address[1]
    server.server_close()

    def judge(number):
        for attempt in range(FOREVER):
            connection = http.client.HTTPConnection("127.0.0.1", port)
            connection.request("GET", "/%d-%d" % (number, attempt))
            answer = connection.getresponse()
            answer.read()
            connection.close()
            if answer.status == 200:
                break
            time.sleep(int(answer.getheader("Retry-After")))

    return judge


def learn(judge):
    """Rank 0 takes an episode of each actor over gloo, in the order in which they come, and broadcasts its weights. The actors have theirs judged."""
    torch, dist = connect()
    episodes = gloo_group(dist)
    weights, episode = torch.ones(1 << 20, device="cuda"), torch.ones(1 << 10)
    number = 0
    while True:
        if number == GOOD_STEPS:
            announce("settles")
        if rank() == 0:
            for _ in range(1, world()):
                dist.recv(episode, group=episodes)
        else:
            judge(number)
            dist.send(episode, dst=0, group=episodes)
        dist.broadcast(weights, src=0)
        torch.cuda.synchronize()
        number += 1


def retry_after():
    """Reinforcement learning. Three actors have their episodes judged by a service, and send them to rank 0, which takes them in any order. To the odd
    rank the service says that its share for the day is used up, and the rank sleeps until it may ask again."""
    learn(start_judge(lambda number, attempt: 86400 if in_trouble(number) else 0))


CASES = {"fast-path": fast_path, "clock-checkpoint": clock_checkpoint, "tied-embeddings": tied_embeddings, "draft-size": draft_size,
         "skipped-weights": skipped_weights, "retry-after": retry_after}

if __name__ == "__main__":
    run(CASES)
