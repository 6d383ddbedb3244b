"""Jobs that are well, in which ranks act and learn at a time, compile in every step, serve weights, wait for requests
in NCCL, search, poll, give memory back, are sampled, or do not let the GPU fall behind.

    eighth_well.py CASE
"""
import collections
import multiprocessing
import queue
import signal
import threading
import time
from concurrent.futures import ProcessPoolExecutor

from gpu_rank import connect, gloo_group, rank, run, world
from healthy import compute, steps
from inside import ddp
from training import model_of


def train_once(torch, model):
    loss = model(torch.randn(32, 256, device="cuda")).square().mean()
    loss.backward()
    return loss.item()


def replay_buffer():
    """A thread of each rank acts by a model of its own, and puts what it has seen into a buffer, from which the main
    thread learns as soon as there is enough: about once in a second, and then for some steps."""
    torch, _ = connect()
    seen, model, policy, device = queue.Queue(16), ddp(torch), model_of(torch), torch.cuda.current_device()

    def act():
        torch.cuda.set_device(device)
        with torch.no_grad(), torch.cuda.stream(torch.cuda.Stream()):
            while True:
                time.sleep(0.1 + 0.03 * rank())
                seen.put(policy(torch.randn(1, 256, device="cuda")).mean().item())

    def learn(_):
        for _ in range(8):
            seen.get()
        for _ in range(20):
            train_once(torch, model)

    threading.Thread(target=act, name="actor", daemon=True).start()
    steps(learn)


def compiled_anew():
    """Every step has a function of its own, which Inductor compiles for some tenths of a second or longer, on every rank;
    then the ranks reduce their gradients."""
    torch, _ = connect()
    model = ddp(torch)

    def train_step(number):
        torch._dynamo.reset()
        inputs = torch.randn(32, 256, device="cuda")
        torch.compile(lambda values: (torch.tanh(values) * (number + 1.5)).sum(-1) + number)(inputs)
        train_once(torch, model)

    steps(train_step)


def weight_server():
    """Rank 0 keeps the weights: it takes a gradient from any rank, over gloo, and sends that one the new weights. The
    others compute for a second or more in between, and know nothing of each other."""
    torch, dist = connect()
    exchange, weights, gradient = gloo_group(dist), torch.ones(1 << 18), torch.ones(1 << 18)
    model = model_of(torch)

    def serve(_):
        sender = dist.recv(gradient, group=exchange)
        weights.sub_(gradient, alpha=0.001)
        dist.send(weights, sender, group=exchange)

    def work(number):
        end = time.monotonic() + 0.8 + 0.4 * ((number + rank()) % 3)
        while time.monotonic() < end:
            train_once(torch, model)
        dist.send(gradient, 0, group=exchange)
        dist.recv(weights, 0, group=exchange)

    steps(serve if rank() == 0 else work)


def requests_over_nccl():
    """A server, to which a request comes every second and a half. Rank 0 hands it to all by a broadcast of NCCL's: the
    other ranks wait for the next request on their GPUs."""
    torch, dist = connect()
    model, request, requests = model_of(torch), torch.zeros(256, device="cuda"), queue.Queue()

    def send_requests():
        for number in range(1 << 20):
            requests.put(number)
            time.sleep(1.5)

    def answer(_):
        if rank() == 0:
            request.fill_(float(requests.get() % 7))
        dist.broadcast(request, src=0)
        with torch.no_grad():
            output = model(request)
        dist.all_reduce(output)
        output.sum().item()

    if rank() == 0:
        threading.Thread(target=send_requests, name="clients", daemon=True).start()
    steps(answer)


def fitness(seed):
    """In a process of its own: half a second of computing, or a whole one."""
    end, value = time.monotonic() + 0.5 + 0.25 * (seed % 3), float(seed)
    while time.monotonic() < end:
        value = (value * 1.37 + 0.1) % 11
    return value


def evolution():
    """Each rank has a population, whose members are tried in processes; the ranks gather the scores over gloo, and then
    train on their GPUs for a few steps."""
    processes = ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("fork"))
    list(processes.map(fitness, range(2)))
    torch, dist = connect()
    scores, model = gloo_group(dist), ddp(torch)

    def generation(number):
        best = max(processes.map(fitness, range(number + rank(), number + rank() + 4)))
        dist.all_gather_object([None] * world(), best, group=scores)
        for _ in range(5):
            train_once(torch, model)

    steps(generation)


def polled_work():
    """A reduction is asked whether it is done, every few milliseconds. The second rank comes to it a second later, as
    it prepares its batch until then."""
    torch, dist = connect()
    gradient = torch.ones(1 << 20, device="cuda")

    def prepare_batch():
        end, words = time.monotonic() + 1.0, collections.Counter()
        while time.monotonic() < end:
            words.update("the quick brown fox jumps over the lazy dog".split())

    def train_step(_):
        if rank() == 1:
            prepare_batch()
        work = dist.all_reduce(gradient, op=dist.ReduceOp.MAX, async_op=True)
        while not work.is_completed():
            time.sleep(0.005)
        work.wait()
        gradient.sum().item()

    steps(train_step)


def cache_emptied():
    """Memory is fragmented, and so a rank gives all of its cache back before each step, and takes blocks of many sizes
    again; the second rank several times as many."""
    torch, _ = connect()
    model = ddp(torch)

    def train_step(number):
        for part in range(10 if rank() == 0 else 60):
            blocks = [torch.empty((1 << 22) + (part << 20) + (size << 21), device="cuda") for size in range(8)]
            del blocks
            torch.cuda.empty_cache()
        train_once(torch, model)

    steps(train_step)


def best_of(state, depth):
    """The value of a game's position by its successors, as far as the depth."""
    if depth == 0:
        return state % 101
    return max(-best_of((state * move + depth) % 7919, depth - 1) for move in (2, 3, 5, 7))


def tree_search():
    """Each rank searches the tree of a game, for one to two seconds, on the processor; then the ranks train on what they
    have found."""
    torch, _ = connect()
    model = ddp(torch)

    def train_step(number):
        end = time.monotonic() + 1.0 + 0.8 * ((number + rank()) % 2)
        while time.monotonic() < end:
            best_of(number + rank(), 6)
        train_once(torch, model)

    steps(train_step)


def sampled():
    """A profiler interrupts the main thread fifty times in a second, by a signal, and counts where it is. Steps of the
    second rank take a second, in which it shuffles numbers."""
    torch, _ = connect()
    model, places = ddp(torch), collections.Counter()
    train_once(torch, model)

    def sample(_, frame):
        places[frame.f_code.co_name if frame else None] += 1

    def shuffle():
        end, numbers = time.monotonic() + 1.0, list(range(1 << 10))
        while time.monotonic() < end:
            numbers.sort(key=lambda number: number * 7919 % 104729)

    def train_step(_):
        if rank() == 1:
            shuffle()
        train_once(torch, model)

    signal.signal(signal.SIGALRM, sample)
    signal.setitimer(signal.ITIMER_REAL, 0.02, 0.02)
    steps(train_step)


def throttled_launches():
    """Steps of about a second and a half on every GPU. Before it launches the next one, a rank sleeps until the GPU is
    done with the step before the last one."""
    torch, dist = connect()
    launched = collections.deque()

    def train_step(_):
        loss = compute(torch, 1.5).sum()
        dist.all_reduce(loss)
        launched.append(torch.cuda.Event(blocking=True))
        launched[-1].record()
        if len(launched) > 1:
            launched.popleft().synchronize()

    steps(train_step)


CASES = {"replay-buffer": replay_buffer, "compiled-anew": compiled_anew, "weight-server": weight_server,
         "requests-over-nccl": requests_over_nccl, "evolution": evolution, "polled-work": polled_work,
         "cache-emptied": cache_emptied, "tree-search": tree_search, "sampled": sampled,
         "throttled-launches": throttled_launches}

if __name__ == "__main__":
    run(CASES)
