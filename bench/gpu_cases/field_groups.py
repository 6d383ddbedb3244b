"""After incidents that users have reported: the ranks do not agree about what comes next.

    field_groups.py CASE
"""
import os
import signal
import threading

from gpu_rank import FOREVER, GOOD_STEPS, announce, connect, device_index, gloo_group, is_odd, rank, run, world
from inside import ddp


def reduce_gradient(dist, gradient):
    dist.all_reduce(gradient)
    gradient.div_(world()).sum().item()


def gradient_of(torch):
    return torch.ones(1 << 20, device="cuda")


def graph_skipped():
    """A step is a CUDA graph, with its all-reduce. A batch of the odd rank does not fit the graph, and it asks the others for their sizes."""
    torch, dist = connect()
    sizes, gradient = gloo_group(dist), gradient_of(torch)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            dist.all_reduce(gradient)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        gradient.mul_(0.25)
        dist.all_reduce(gradient)
    for number in range(FOREVER):
        if number == GOOD_STEPS:
            announce("settles")
            if is_odd():
                dist.all_gather_object([None] * world(), 48, group=sizes)
        graph.replay()
        torch.cuda.synchronize()


def first_use():
    """A group's communicator is made when it is first used. The odd rank has nothing to send in it, and goes on."""
    torch, dist = connect()
    embedding, gradient = dist.new_group(), gradient_of(torch)
    for number in range(FOREVER):
        if number == GOOD_STEPS:
            announce("settles")
            if not is_odd():
                dist.all_reduce(gradient, group=embedding)
        reduce_gradient(dist, gradient)


def extra_send():
    """Three stages. For one step the middle one splits its batch into three parts instead of two, and sends all of them."""
    torch, dist = connect()
    activations, gradient = torch.ones(1 << 24, device="cuda"), gradient_of(torch)

    def send_parts(count):
        for _ in range(count):
            dist.send(activations, dst=rank() + 1)
        torch.cuda.synchronize()

    for number in range(FOREVER):
        if number == GOOD_STEPS:
            announce("settles")
        if rank() > 0:
            for _ in range(2):
                dist.recv(activations, src=rank() - 1)
        if rank() < world() - 1:
            send_parts(3 if is_odd() and number == GOOD_STEPS else 2)
        reduce_gradient(dist, gradient)


def ring_sends():
    """A ring in which even ranks send first and odd ones receive first; after a step all of them send first, and none receives."""
    torch, dist = connect()
    keys, received = torch.ones(1 << 24, device="cuda"), torch.empty(1 << 24, device="cuda")
    right, left = (rank() + 1) % world(), (rank() - 1) % world()
    for number in range(FOREVER):
        if number == GOOD_STEPS:
            announce("settles")
        if rank() % 2 == 0 or number >= GOOD_STEPS:
            dist.send(keys, dst=right)
            torch.cuda.synchronize()
            dist.recv(received, src=left)
        else:
            dist.recv(received, src=left)
            dist.send(keys, dst=right)
        torch.cuda.synchronize()


def skipped_experts():
    """A batch of the odd rank has no token for the experts: it skips the exchange, and reduces its gradient."""
    torch, dist = connect()
    tokens, gradient = torch.ones(world() << 20, device="cuda"), gradient_of(torch)
    for number in range(FOREVER):
        if number == GOOD_STEPS:
            announce("settles")
        if not (is_odd() and number == GOOD_STEPS):
            dist.all_to_all_single(torch.empty_like(tokens), tokens)
            torch.cuda.synchronize()
        reduce_gradient(dist, gradient)


def communication_lock():
    """Training and evaluation, a thread, have a group each, and a lock so that only one of them communicates. On rank 0 the thread comes first."""
    torch, dist = connect()
    groups = {name: dist.new_group() for name in ("training", "evaluation")}
    gradient, guard, started = gradient_of(torch), threading.Lock(), threading.Event()

    def reduce_in(name):
        with guard:
            started.set()
            dist.all_reduce(gradient, group=groups[name])
            torch.cuda.synchronize()

    def evaluate():
        torch.cuda.set_device(device_index())
        reduce_in("evaluation")

    for _ in range(GOOD_STEPS):
        for name in groups:
            reduce_in(name)
    started.clear()
    thread = threading.Thread(target=evaluate, name="evaluation", daemon=True)
    if rank() == 0:
        thread.start()
        started.wait()
        announce("settles")
        reduce_in("training")
    with guard:
        thread.start()
        announce("settles")
        dist.all_reduce(gradient, group=groups["training"])
        torch.cuda.synchronize()


def emergency_save():
    """The odd rank meets a sample that it cannot parse. Before it gives up, it saves with all the others, as it thinks."""
    torch, dist = connect()
    saving, gradient = gloo_group(dist), gradient_of(torch)
    try:
        for number in range(FOREVER):
            if number == GOOD_STEPS:
                announce("settles")
            int("4711" if not is_odd() or number < GOOD_STEPS else "47-11")
            reduce_gradient(dist, gradient)
    except ValueError:
        dist.all_gather_object([None] * world(), {"of": rank()}, group=saving)


def preempted():
    """One rank alone gets a SIGTERM. Its handler saves, for which it waits for all ranks
    (github.com/Lightning-AI/pytorch-lightning/pull/20825)."""
    torch, dist = connect()
    saving, gradient = gloo_group(dist), gradient_of(torch)

    def save_and_leave(number, frame):
        dist.barrier(group=saving)
        os._exit(0)

    signal.signal(signal.SIGTERM, save_and_leave)
    for number in range(FOREVER):
        if number == GOOD_STEPS:
            announce("settles")
            if is_odd():
                os.kill(os.getpid(), signal.SIGTERM)
        reduce_gradient(dist, gradient)


def longer_epoch():
    """The odd rank's loader has a batch more; the others gather the results of the epoch
    (github.com/webdataset/webdataset/issues/225)."""
    torch, dist = connect()
    results = gloo_group(dist)
    model = ddp(torch)
    for number in range(GOOD_STEPS + (1 if is_odd() else 0)):
        if number == GOOD_STEPS - 1:
            announce("settles")
        loss = model(torch.randn(32, 256, device="cuda")).square().mean()
        loss.backward()
        loss.item()
    dist.all_gather_object([None] * world(), {"steps": number}, group=results)


def joined():
    """DDP's join(): a rank without batches answers the collectives of DDP for it, but not that of the metric."""
    torch, dist = connect()
    metrics, model = gloo_group(dist), ddp(torch)
    metric = torch.ones(1)
    with model.join():
        for number in range(GOOD_STEPS + (1 if is_odd() else 3)):
            if number == GOOD_STEPS:
                announce("settles")
            loss = model(torch.randn(32, 256, device="cuda")).square().mean()
            loss.backward()
            loss.item()
            dist.all_reduce(metric, group=metrics)


def names_order():
    """The trainer sends the weights to the engine in the order of its modules, the engine takes them in the order of their names."""
    torch, dist = connect()
    weights = {"model.embedding": torch.ones(1 << 24, device="cuda"), "layers.norm": torch.ones(64, device="cuda")}
    for number in range(FOREVER):
        names = list(weights)
        if number == GOOD_STEPS:
            announce("settles")
            if is_odd():
                names.sort()
        for name in names:
            dist.broadcast(weights[name], src=0)
            torch.cuda.synchronize()


def resumed():
    """Each rank loads its part of the optimizer. That of the odd rank is missing: it starts afresh, without the barrier after loading."""
    torch, dist = connect()
    loaded, gradient = gloo_group(dist), gradient_of(torch)
    for _ in range(GOOD_STEPS):
        reduce_gradient(dist, gradient)
    path = os.path.join(os.environ["HANGS_DIRECTORY"], "optimizer.%d.pt" % rank())
    if not is_odd():
        torch.save({"step": torch.ones(1)}, path)
    try:
        gradient.fill_(torch.load(path)["step"].item())
        announce("settles")
        dist.barrier(group=loaded)
    except FileNotFoundError:
        print("no optimizer's state in %s, starting afresh" % path)
        announce("settles")
    while True:
        reduce_gradient(dist, gradient)


CASES = {"graph-skipped": graph_skipped, "first-use": first_use, "extra-send": extra_send, "ring-sends": ring_sends, "skipped-experts": skipped_experts,
         "communication-lock": communication_lock, "emergency-save": emergency_save, "preempted": preempted, "longer-epoch": longer_epoch, "joined": joined,
         "names-order": names_order, "resumed": resumed}

if __name__ == "__main__":
    run(CASES)
