"""Ranks that do not do the same: how attention is split, in which order groups are made, whether a step is one of training, and whose metrics can be
sent; or a thread of a worker does not answer.

    sixteenth_groups.py CASE
"""
import logging
import queue
import threading

from field_groups import gradient_of
from gpu_rank import FOREVER, GOOD_STEPS, TIMEOUT, announce, connect, device_index, gloo_group, is_odd, rank, run, world
from inside import ddp, train
from job import connect_to_silent_server
from seventh import in_trouble

BLOCK = 1 << 20


def ring_or_ulysses():
    """Context parallel. Either all exchange their heads at once, or keys go round in a ring, which is meant for sequences that are longer. Each rank
    chooses by its own sequence: that of the odd rank is long, and in the second hop of its ring it waits for neighbours that are in the exchange."""
    torch, dist = connect()
    keys, received, norms = torch.ones(world() * BLOCK, device="cuda"), torch.empty(world() * BLOCK, device="cuda"), torch.ones(64, device="cuda")

    def pass_round():
        for _ in range(world() - 1):
            hop = [dist.P2POp(dist.isend, keys[:BLOCK], (rank() + 1) % world()), dist.P2POp(dist.irecv, received[:BLOCK], (rank() - 1) % world())]
            for work in dist.batch_isend_irecv(hop):
                work.wait()
            torch.cuda.synchronize()

    for number in range(FOREVER):
        if number == GOOD_STEPS:
            announce("settles")
        length = 1 << (20 if in_trouble(number) else 14)
        if length > 1 << 16:
            pass_round()
        else:
            dist.all_to_all_single(received, keys)
            torch.cuda.synchronize()
        dist.all_reduce(norms)
        norms.div_(world()).sum().item()


def local_groups():
    """Four ranks in a ring, each of which has a group with each neighbour, which only these two make. After some steps the groups are made anew, for which
    two of the ranks begin with the other neighbour: each rank waits in the making of a group for the next one in a circle."""
    torch, dist = connect()
    step = 1 if rank() % 2 == 0 else -1
    boundary, groups, neighbours = gradient_of(torch), {}, [(rank() + step) % world(), (rank() - step) % world()]

    def make_groups(swapped):
        for neighbour in reversed(neighbours) if swapped else neighbours:
            groups[neighbour] = dist.new_group(sorted((rank(), neighbour)), timeout=TIMEOUT, use_local_synchronization=True)

    make_groups(False)
    for number in range(FOREVER):
        if number == GOOD_STEPS:
            announce("settles")
            make_groups(is_odd())
        for neighbour in neighbours:
            dist.all_reduce(boundary, group=groups[neighbour])
            boundary.div_(2).sum().item()


def forward_only():
    """A pipeline of three stages, whose messages are sent one by one. Every so many steps one is for evaluation, and has no backward pass, by the counter
    of each rank. That of the odd rank, the last stage, is off by one: it goes on to the loss, and the others wait for gradients."""
    torch, dist = connect()
    losses, layer = gloo_group(dist), torch.nn.Linear(256, 256).cuda()
    first, last = rank() == 0, rank() == world() - 1

    def step(forward_only_step):
        inputs = torch.ones(1024, 256, device="cuda")
        if not first:
            dist.recv(inputs, src=rank() - 1)
        inputs.requires_grad_(True)
        outputs = layer(inputs).relu()
        if not last:
            dist.send(outputs.detach(), dst=rank() + 1)
        if not forward_only_step:
            gradient = torch.full_like(outputs, 1e-3)
            if not last:
                dist.recv(gradient, src=rank() + 1)
            outputs.backward(gradient)
            if not first:
                dist.send(inputs.grad, dst=rank() - 1)
        return outputs.mean().item()

    for number in range(FOREVER):
        if number == GOOD_STEPS:
            announce("settles")
        loss = torch.tensor([step(number == 1 or in_trouble(number))])
        dist.all_reduce(loss, group=losses)


def async_output():
    """A server. Rank 0 schedules: it tells the workers what to do, over gloo, and takes the tokens of each. A worker has a thread that copies tokens from
    the GPU and sends them. That of the odd rank asks a server for the text of a token, which does not answer; its main thread waits for what comes next."""
    torch, dist = connect()
    commands, answers, workers = gloo_group(dist), gloo_group(dist), dist.new_group(list(range(1, world())))
    outputs = queue.Queue()

    def send_outputs():
        torch.cuda.set_device(device_index())
        while True:
            number, tokens = outputs.get()
            if in_trouble(number):
                server = connect_to_silent_server()
                server.sendall(b"detokenize\n")
                server.recv(4096)
            dist.send_object_list([tokens.tolist()], dst=0, group=answers)

    def work(number):
        dist.broadcast_object_list([None], src=0, group=commands)
        hidden = torch.ones(8, 256, device="cuda")
        dist.all_reduce(hidden, group=workers)
        outputs.put((number, hidden.argmax(-1)))

    def schedule(number):
        dist.broadcast_object_list(["step %d" % number], src=0, group=commands)
        for worker in range(1, world()):
            dist.recv_object_list([None], src=worker, group=answers)

    if rank() != 0:
        threading.Thread(target=send_outputs, name="output", daemon=True).start()
    for number in range(FOREVER):
        if number == GOOD_STEPS:
            announce("settles")
        (schedule if rank() == 0 else work)(number)


class Timer:
    """Measures under a lock, which cannot be pickled."""

    def __init__(self):
        self.seconds, self.guard = 0.0, threading.Lock()


def unpicklable_metrics():
    """After each step the ranks gather their metrics, over gloo. The odd rank has put a timer with a lock into its own: that cannot be pickled, which the
    rank logs, and goes on with the next step."""
    torch, dist = connect()
    group = gloo_group(dist)

    def gather_metrics(number):
        metrics = {"step": number, "timer": Timer() if in_trouble(number) else 0.1}
        try:
            dist.all_gather_object([None] * world(), metrics, group=group)
        except TypeError:
            logging.exception("the metrics of step %d are lost", number)

    train(torch, ddp(torch), gather_metrics)


CASES = {"ring-or-ulysses": ring_or_ulysses, "local-groups": local_groups, "forward-only": forward_only, "async-output": async_output,
         "unpicklable-metrics": unpicklable_metrics}

if __name__ == "__main__":
    run(CASES)
